//! What worker threads allocate while packets pass: nothing of their own. PoP and core relay run as threads of this process, with
//! real sockets between clients and a far end, under an allocator that counts by thread and size.
//!
//! What remains is quinn-proto's book of packets in flight, a B-tree: one node for about every sixth QUIC packet, of one or two
//! sizes. The test fails when an allocation of any other size grows with the packets, or when the nodes are more than that.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use lab::bench::clients::Clients;
use lab::bench::far_end::FarEnd;
use lab::net::{Network, Shape};
use runtime::args::NodeArgs;
use runtime::clock;
use runtime::control::Control;
use runtime::counting::{CountingAllocator, allocations_of};
use runtime::logging::Format;
use runtime::node::{NodeContext, Running, Shutdown};
use wire::hint::{Hint, KeyRing, Minute};
use wire::{Owner, RegionId, TransceiverId};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Clients of one session: no more than a PoP takes unanswered of one hint.
const CLIENTS: usize = 16;
/// Packets one client sends at once.
const BURST: usize = 8;
const PACKET_BYTES: usize = 160;
/// Packets until every buffer has its size, and packets that are looked at.
const WARM_UP: usize = 40_000;
const PACKETS: usize = 200_000;
/// A packet that is not back by then is lost, and the next are sent.
const BACK_WITHIN: Duration = Duration::from_millis(200);
/// Allocations of one size a second that have nothing to do with packets: heartbeats and figures.
const IDLE_PER_S: u64 = 60;

type BySize = BTreeMap<usize, u64>;
type Start = fn(NodeContext) -> anyhow::Result<Running>;

/// A node as threads of this process.
struct Node {
    shutdown: Shutdown,
    running: Option<Running>,
    worker: u32,
}

impl Node {
    fn start(network: &Network, program: &'static str, name: &str, start: Start) -> Self {
        let args = NodeArgs {
            topology: network.topology_file(),
            node: name.to_owned(),
            credentials: network.credentials(name),
            state_dir: None,
            check: false,
            print_config: false,
            log: "warn".to_owned(),
            log_format: Format::Text,
        };
        let config = runtime::node::load(program, &args).unwrap();
        let control = Control::new().unwrap();
        let context = NodeContext::new(program, name, config, control);
        let shutdown = context.shutdown.clone();
        let running = start(context).unwrap();
        Self {
            shutdown,
            running: Some(running),
            worker: thread_named(&format!("{program}-0")),
        }
    }

    fn allocations(&self) -> BySize {
        allocations_of(self.worker).into_iter().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.stop();
        if let Some(running) = self.running.take() {
            running.join();
        }
    }
}

/// The kernel's id of the thread of this name, which comes up within a moment.
fn thread_named(name: &str) -> u32 {
    let what = format!("thread {name}");
    lab::wait::until(&what, Duration::from_secs(5), || {
        let mut threads = fs::read_dir("/proc/self/task").ok()?;
        threads.find_map(|thread| {
            let path = thread.ok()?.path();
            let comm = fs::read_to_string(path.join("comm")).ok()?;
            let id = path.file_name()?.to_str()?.parse().ok()?;
            (comm.trim_end() == name).then_some(id)
        })
    })
    .unwrap()
}

fn ufrag(network: &Network) -> String {
    let keys = fs::read_to_string(network.credentials("p1").join("hint.keys")).unwrap();
    let hint = Hint {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        },
        issued: Minute::from_unix_s(clock::unix_s()),
    };
    let sealed = KeyRing::parse(&keys).unwrap().seal(hint, [1, 2, 3]);
    sealed.as_str().to_owned()
}

fn commit(clients: &mut Clients, far_end: &mut FarEnd, ufrag: &str) {
    for client in 0..clients.len() {
        lab::wait::until_true("a check to be answered", Duration::from_secs(10), || {
            clients.check(client, ufrag);
            far_end.echo().unwrap();
            clients.is_answered(client).unwrap()
        })
        .unwrap();
    }
}

/// Sends packets there and back, a window of them at a time, until `packets` are back.
fn exchange(clients: &mut Clients, far_end: &mut FarEnd, packets: usize) {
    let burst = [0x80; BURST * PACKET_BYTES];
    let mut back = 0;
    while back < packets {
        for client in 0..clients.len() {
            assert!(clients.send(client, &burst, PACKET_BYTES));
        }
        let (mut arrived, end) = (0, clock::now() + BACK_WITHIN);
        while arrived < CLIENTS * BURST && clock::now() < end {
            far_end.echo().unwrap();
            for client in 0..clients.len() {
                while clients.receive(client, |_| arrived += 1).unwrap() {}
            }
        }
        assert!(arrived > 0, "nothing comes back");
        back += arrived;
    }
}

/// What grew, by size.
fn growth(before: &BySize, after: &BySize) -> BySize {
    let grown = |(size, times): (&usize, &u64)| {
        let more = times - before.get(size).copied().unwrap_or(0);
        (*size, more)
    };
    after
        .iter()
        .map(grown)
        .filter(|(_, more)| *more > 0)
        .collect()
}

#[test]
fn a_packet_costs_no_allocation() {
    let shape = Shape {
        core_relays: 1,
        ..Shape::default()
    };
    let network = Network::prepare(&shape, |_| {}).unwrap();
    let relay = Node::start(&network, "core-relay", "r1", core_relay::start);
    let pop = Node::start(&network, "pop", "p1", pop::start);
    let mut far_end = FarEnd::bind(network.topology(), "t1").unwrap();
    let mut clients = Clients::open(CLIENTS, network.ingress("p1")).unwrap();
    commit(&mut clients, &mut far_end, &ufrag(&network));
    exchange(&mut clients, &mut far_end, WARM_UP);
    let (before, from) = ([pop.allocations(), relay.allocations()], clock::now());
    exchange(&mut clients, &mut far_end, PACKETS);
    let (after, seconds) = (
        [pop.allocations(), relay.allocations()],
        (clock::now() - from).as_secs() + 1,
    );
    for (node, (before, after)) in ["pop", "core relay"].iter().zip(before.iter().zip(&after)) {
        let grown = growth(before, after);
        let total: u64 = grown.values().sum();
        println!(
            "{node}: {total} allocations for {PACKETS} packets there and back in {seconds} s: {grown:?}"
        );
        let of_packets: Vec<_> = grown
            .iter()
            .filter(|(_, times)| **times > IDLE_PER_S * seconds)
            .collect();
        let nodes: u64 = of_packets.iter().map(|(_, times)| **times).sum();
        assert!(
            of_packets.len() <= 2,
            "{node}: sizes that grow with the packets: {of_packets:?}"
        );
        assert!(
            nodes < u64::try_from(PACKETS).unwrap() / 6,
            "{node}: {nodes} B-tree nodes"
        );
    }
}
