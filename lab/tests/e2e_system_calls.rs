//! The system calls a worker thread makes while packets pass: those that move packets and the wait for more, and no other. A lock
//! that another thread holds would be a `futex`, a log line a `write`; memory may be taken in bulk a few times, not once a batch.
//!
//! `strace` counts them, attached to the one thread. Where it is not installed the test says so and looks at nothing.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::bench::clients::Clients;
use lab::bench::world::World;
use lab::wait;
use runtime::clock;
use topology::Datagrams;

/// What the packet path is made of. `restart_syscall` is a wait that attaching has interrupted.
const PATH: [&str; 5] = [
    "recvmmsg",
    "sendmmsg",
    "sendmsg",
    "ppoll",
    "restart_syscall",
];
/// How the system's allocator takes memory in bulk. A worker that still grows a table does so a few times, not once a batch.
const MEMORY: [&str; 5] = ["brk", "mmap", "mprotect", "munmap", "madvise"];
const MEMORY_CALLS_MAX: u64 = 8;
const CLIENTS: usize = 64;
const PACKETS: usize = 10_000;
const PACKET_BYTES: usize = 160;
const BACK_WITHIN: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(10);

/// `strace -c` on one thread.
struct Trace {
    strace: Child,
}

impl Trace {
    fn attach(thread: u32) -> Self {
        let strace = Command::new("strace")
            .args(["-c", "-U", "name,calls", "-p", &thread.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = format!("/proc/{thread}/status");
        wait::until_true("strace to attach", SOON, || {
            let status = fs::read_to_string(&status).unwrap();
            status
                .lines()
                .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        })
        .unwrap();
        Self { strace }
    }

    /// Detaches; calls by name.
    fn end(mut self) -> BTreeMap<String, u64> {
        let id = self.strace.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &id])
                .status()
                .unwrap()
                .success()
        );
        let mut table = String::new();
        self.strace
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut table)
            .unwrap();
        self.strace.wait().unwrap();
        let call = |line: &str| {
            let mut words = line.split_whitespace();
            let (name, calls) = (words.next()?, words.next()?.parse().ok()?);
            (name != "total").then(|| (name.to_owned(), calls))
        };
        table.lines().filter_map(call).collect()
    }
}

/// The kernel's id of a worker.
fn worker(process: u32, name: &str) -> u32 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let id = threads.map(Result::unwrap).find_map(|thread| {
        let comm = fs::read_to_string(thread.path().join("comm")).ok()?;
        (comm.trim_end() == name).then(|| thread.file_name().to_str()?.parse().ok())?
    });
    id.expect("a worker of this name")
}

/// Sends packets there and back until `packets` are back.
fn exchange(world: &mut World, clients: &mut Clients, packets: usize) {
    let packet = [0x80; PACKET_BYTES];
    let mut back = 0;
    while back < packets {
        for client in 0..clients.len() {
            assert!(clients.send(client, &packet, PACKET_BYTES));
        }
        let (mut arrived, end) = (0, clock::now() + BACK_WITHIN);
        while arrived < clients.len() && clock::now() < end {
            world.far_end.echo().unwrap();
            for client in 0..clients.len() {
                while clients.receive(client, |_| arrived += 1).unwrap() {}
            }
        }
        back += arrived;
    }
}

#[test]
fn workers_move_packets_and_wait_and_call_the_kernel_for_nothing_else() {
    if Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        println!("strace is not installed: nothing was looked at");
        return;
    }
    for datagrams in [Datagrams::Packed, Datagrams::Single] {
        let mut world = World::start(datagrams, |_| {}).unwrap();
        let mut clients = Clients::open(CLIENTS, world.ingress()).unwrap();
        world.commit(&mut clients).unwrap();
        exchange(&mut world, &mut clients, PACKETS);
        let workers = [("p1", "pop-0"), ("r1", "core-relay-0")];
        let traces = workers
            .map(|(node, name)| Trace::attach(worker(world.network.pid(node).unwrap(), name)));
        exchange(&mut world, &mut clients, PACKETS);
        for ((node, _), trace) in workers.iter().zip(traces) {
            let calls = trace.end();
            println!("{node}, {datagrams:?}: {calls:?}");
            let moved = calls.get("recvmmsg").copied().unwrap_or(0);
            assert!(moved > 100, "{node}: strace saw nothing: {calls:?}");
            let (memory, other): (Vec<_>, Vec<_>) = calls
                .iter()
                .filter(|(call, _)| !PATH.contains(&call.as_str()))
                .partition(|(call, _)| MEMORY.contains(&call.as_str()));
            let grown: u64 = memory.iter().map(|(_, times)| **times).sum();
            assert!(grown <= MEMORY_CALLS_MAX, "{node}: {memory:?}");
            assert!(
                other.is_empty(),
                "{node} calls the kernel for {other:?}: {calls:?}"
            );
        }
    }
}
