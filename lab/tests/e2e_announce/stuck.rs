//! Orders that get no answer: the PoP stands still, or the disk that is to keep them does. Either costs a bounded time, is told in one
//! line, and leaves no half of an order.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::orders::command_at_p1;
use super::*;

/// How long the command waits for the answer to an order.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);
/// How long a PoP waits for the disk.
const DISK_PATIENCE: Duration = Duration::from_secs(2);

/// A network whose p1 keeps its orders in a directory, and is announced.
fn keeping(dir: impl FnOnce(&Network) -> PathBuf) -> (Network, Keeping, PathBuf) {
    let mut network = Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
    network.rewrite_credential("admin.token", TOKEN).unwrap();
    for relay in ["r1", "r2"] {
        network.start_node(relay).unwrap();
    }
    let dir = dir(&network);
    let log = network.topology_file().with_file_name("p1.log");
    let pop = Keeping::start_with(&network, &dir, &log);
    wait_announced(&[], Some(100), SOON);
    (network, pop, dir)
}

fn signal(pop: &Keeping, signal: Signal) {
    kill(Pid::from_raw(pop.0.id().try_into().unwrap()), signal).unwrap();
}

/// The one line of an order that failed, and how long that took.
fn failed(network: &Network, verb: &str) -> (String, Duration) {
    let began = clock::now();
    let (code, error) = command_at_p1(network, &[verb, "p1"]);
    let took = clock::now() - began;
    assert_eq!(code, Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    (error, took)
}

#[test]
fn an_order_to_a_pop_that_stands_still_ends_in_time_and_is_kept_whole_or_not_at_all() {
    let what = "an order to a PoP that stands still";
    figures(what, || in_namespace(a_pop_stands_still)).unwrap();
}

fn a_pop_stands_still() -> Figures {
    let mut found = Figures::default();
    let (network, pop, dir) = keeping(|network| {
        let dir = network.topology_file().with_file_name("orders");
        fs::create_dir_all(&dir).unwrap();
        dir
    });
    let file = dir.join("p1.drain");
    signal(&pop, Signal::SIGSTOP);
    let (error, took) = failed(&network, "drain");
    assert!(
        error.contains("gives no answer. It may have taken"),
        "{error}"
    );
    assert!(took >= COMMAND_PATIENCE, "{took:?}");
    found.below("given up", took, COMMAND_PATIENCE + SLACK);
    assert!(!file.exists(), "nobody was there to keep it");

    // It goes on, and finds an order of somebody who waits no more. Taken or not: what it does is what it keeps.
    signal(&pop, Signal::SIGCONT);
    let mut since = None;
    wait::until_true("it to do what it keeps, for a second", SOON, || {
        if !does_what_it_keeps(&network, &file) {
            since = None;
            return false;
        }
        let since = *since.get_or_insert_with(clock::now);
        clock::now() - since >= Duration::from_secs(1)
    })
    .unwrap();
    eprintln!("after {took:?}: {error}taken: {}", file.exists());
    let said = command(&network, "undrain");
    assert!(said.starts_with("p1: serving"), "{said}");
    assert!(!file.exists());
    wait_announced(&[], Some(100), SOON);
    found
}

fn does_what_it_keeps(network: &Network, file: &Path) -> bool {
    let url = format!("{}/v1/drain", network.admin("p1"));
    let view = http::get(&url).map(|said| serde_json::from_str::<Value>(&said.body));
    let Ok(Ok(view)) = view else { return false };
    let ordered = view["ordered"] == true;
    let does = if ordered { "done" } else { "serving" };
    ordered == file.exists() && view["step"] == does
}

/// A file system of its own on a loop device, which can be made to stand still. Gone when dropped.
struct Disk(PathBuf);

impl Disk {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let image = dir.with_extension("img");
        File::create(&image).unwrap().set_len(8 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        let (image, at) = (image.to_str().unwrap(), dir.to_str().unwrap());
        run("mount", &["-o", "loop", image, at]);
        Self(dir)
    }

    /// Whoever writes waits.
    fn stop(&self) {
        run("fsfreeze", &["--freeze", self.0.to_str().unwrap()]);
    }

    fn go_on(&self) {
        run("fsfreeze", &["--unfreeze", self.0.to_str().unwrap()]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may not stand still, and a PoP may have it open.
        let unfreeze = Command::new("fsfreeze")
            .arg("--unfreeze")
            .arg(&self.0)
            .stderr(Stdio::null())
            .status();
        let _ = unfreeze;
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.unwrap().success(), "{program} {arguments:?}");
}

#[test]
fn a_disk_that_hangs_costs_an_order_two_seconds_and_the_data_plane_nothing() {
    let what = "an order that is to be kept by a disk that hangs";
    figures(what, || in_namespace(a_disk_hangs)).unwrap();
}

fn a_disk_hangs() -> Figures {
    let mut found = Figures::default();
    let mut disk = None;
    let (network, pop, dir) = keeping(|network| {
        let dir = network.topology_file().with_file_name("disk");
        disk = Some(Disk::new(dir.clone()));
        dir
    });
    let disk = disk.unwrap();
    let file = dir.join("p1.drain");
    disk.stop();
    let (error, took) = failed(&network, "drain");
    eprintln!("after {took:?}: {error}");
    assert!(
        error.contains("the state directory does not answer: the order is not given"),
        "{error}"
    );
    assert!(took >= DISK_PATIENCE, "{took:?}");
    found.below("given up", took, DISK_PATIENCE + SLACK);
    // One thread waits for the disk; another order is not given beside it, and everything else goes on.
    let (error, took) = failed(&network, "drain");
    assert!(error.contains("another order is being given"), "{error}");
    found.below("refused", took, SLACK);
    assert_eq!(drain(&network)["ordered"], false);
    assert_eq!(metrics(&[]), announced(100));

    // The disk goes on, and does what it was told: that is undone before another order is given.
    disk.go_on();
    wait::until_true("an undrain to be taken", SOON, || {
        command_at_p1(&network, &["undrain", "p1"]).0 == Some(0)
    })
    .unwrap();
    assert!(!file.exists(), "of an order that was not given");
    let (code, error) = command_at_p1(&network, &["drain", "p1", "--no-wait"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(file.exists());
    let said = command(&network, "undrain");
    assert!(said.starts_with("p1: serving"), "{said}");
    assert!(!file.exists());
    wait_announced(&[], Some(100), SOON);
    drop(pop);
    found
}
