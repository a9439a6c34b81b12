//! A service manager that waits for beats, played by the test by the rules of systemd: whoever does not beat in time is killed with
//! SIGKILL, and started again. What the kernel keeps for a process that stands still, it does not keep for one that is dead.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// `WatchdogSec`.
const WATCHDOG: Duration = Duration::from_secs(2);
/// A part stands still for as long as two looks before the beats know it.
const LOOKS: Duration = Duration::from_secs(1);

/// A PoP that is watched. Killed when dropped.
struct Managed {
    child: Child,
    manager: UnixDatagram,
    /// The last beat, or that it is ready.
    heard: Instant,
    /// The longest wait for one, where one was to come.
    longest: Duration,
}

impl Managed {
    /// Started, and ready.
    fn start(network: &Network) -> Self {
        let dir = network.topology_file().with_file_name("manager");
        fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("notify");
        // That of the service manager of a start before.
        let _none = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).unwrap();
        let log = File::create(dir.join("p1.log")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(programs_dir().unwrap().join("pop"))
            .args(flags(network, "p1"))
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut managed = Self {
            child,
            manager,
            heard: clock::now(),
            longest: Duration::ZERO,
        };
        let first = managed.message(SOON).expect("READY");
        assert_eq!(first, "READY=1\n");
        managed
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    fn message(&mut self, patience: Duration) -> Option<String> {
        let patience = patience.max(Duration::from_millis(1));
        self.manager.set_read_timeout(Some(patience)).unwrap();
        let mut message = [0; 100];
        match self.manager.recv(&mut message) {
            Ok(length) => {
                self.heard = clock::now();
                Some(String::from_utf8(message[..length].to_vec()).unwrap())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for beats until `over`.
    fn beats_until(&mut self, over: impl Fn() -> bool) {
        let late = clock::now() + SOON;
        while !over() {
            assert!(clock::now() < late, "it does not come to that");
            let before = self.heard;
            if let Some(message) = self.message(Duration::from_millis(100)) {
                assert_eq!(message, "WATCHDOG=1\n");
                self.longest = self.longest.max(self.heard - before);
            }
        }
        self.longest = self.longest.max(clock::now() - self.heard);
    }

    /// Waits for a beat that does not come in time, and says how long after `since` that was.
    fn missed(&mut self, since: Instant) -> Duration {
        let late = clock::now() + SOON;
        loop {
            let left = (self.heard + WATCHDOG).saturating_duration_since(clock::now());
            if left.is_zero() {
                return clock::now() - since;
            }
            assert!(clock::now() < late, "it beats on");
            if let Some(message) = self.message(left) {
                assert_eq!(message, "WATCHDOG=1\n");
            }
        }
    }

    /// What systemd does then.
    fn kill(mut self) {
        kill(self.pid(), Signal::SIGKILL).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // Either call fails only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network whose PoP is not started yet.
fn without_pop() -> Network {
    let mut network = Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
    network.start_node("r1").unwrap();
    network.start_node("r2").unwrap();
    network
}

#[test]
fn a_pop_that_stands_still_as_a_whole_is_killed_and_its_routes_are_gone() {
    let what = "a PoP that stands still as a whole";
    figures(what, || in_namespace(all_of_it_stands_still)).unwrap();
}

fn all_of_it_stands_still() -> Figures {
    let network = without_pop();
    let mut pop = Managed::start(&network);
    let up = || metrics(&[]) == announced(100);
    pop.beats_until(up);
    let later = clock::now() + 2 * WATCHDOG;
    pop.beats_until(|| clock::now() > later);
    let mut found = Figures::default();
    found.below("between two beats", pop.longest, WATCHDOG);

    kill(pop.pid(), Signal::SIGSTOP).unwrap();
    let stopped = clock::now();
    let took = pop.missed(stopped);
    assert_eq!(metrics(&[]), announced(100), "the kernel keeps the routes");
    pop.kill();
    wait_announced(&[], None, SOON);
    let gone = clock::now() - stopped;
    eprintln!("no beat for {WATCHDOG:?} {took:?} after it stood still; withdrawn after {gone:?}");
    found.below("withdrawn", gone, WATCHDOG + SLACK);

    let _pop = Managed::start(&network);
    wait_announced(&[], Some(100), SOON);
    found
}

#[test]
fn each_part_of_a_pop_that_stands_still_ends_its_beats() {
    let what = "a part of a PoP that stands still";
    figures(what, || in_namespace(each_part_stands_still)).unwrap();
}

fn each_part_stands_still() -> Figures {
    let network = without_pop();
    let mut found = Figures::default();
    for part in ["pop-0", "announce", "control"] {
        let mut pop = Managed::start(&network);
        let later = clock::now() + WATCHDOG / 2;
        pop.beats_until(|| clock::now() > later);
        let frozen = Frozen::thread_named(pop.child.id(), part).unwrap();
        let took = pop.missed(clock::now());
        eprintln!("no beat for {WATCHDOG:?} {took:?} after {part} stood still");
        found.below(part, took, WATCHDOG + LOOKS + SLACK);
        // Whoever traces a thread would have to bury it, too.
        drop(frozen);
        pop.kill();
    }
    found
}
