//! A running `firsthop up`, and the machine it runs on.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use firsthop::tempdir::TempDir;
use rustix::process::{Pid, Signal};

use super::http::{self, Answer};

/// Whoever uses the addresses of `topology/samples/local.yaml` in a test holds it.
pub(crate) const LOCK: &str = "firsthop-local-network.lock";
/// From the command to the line with the page's address.
const UP_WITHIN: Duration = Duration::from_secs(30);
/// What `up` promises for its end.
const END_WITHIN: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The right to the local network's addresses, and a directory for temporary files.
pub(crate) struct Machine {
    dir: TempDir,
    _lock: File,
}

impl Machine {
    pub(crate) fn lock() -> Self {
        let path = std::env::temp_dir().join(LOCK);
        let lock = File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        lock.lock().unwrap();
        let dir = TempDir::create().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir, _lock: lock }
    }

    fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    pub(crate) fn files_left(&self) -> usize {
        fs::read_dir(self.tmp()).unwrap().count()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firsthop"));
        command.arg("up").args(arguments).env("TMPDIR", self.tmp());
        command
    }
}

/// A network that runs until [`Up::end`]. Killed when a test fails.
pub(crate) struct Up<'a> {
    machine: &'a Machine,
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    at: String,
}

impl<'a> Up<'a> {
    /// Starts a network on a free port and waits until it is ready.
    pub(crate) fn start(machine: &'a Machine, arguments: &[&str]) -> Self {
        let mut up = Self::spawn(machine, arguments);
        let line = wait_for(&up.stdout, UP_WITHIN, |line| {
            line.starts_with("Open http://")
        });
        let Some(line) = line else {
            let said: Vec<_> = up.stderr.try_iter().collect();
            panic!("not up: {said:#?}");
        };
        let address = line.strip_prefix("Open http://").unwrap();
        up.at = address.split(' ').next().unwrap().to_owned();
        up
    }

    /// Starts it and does not wait.
    pub(crate) fn spawn(machine: &'a Machine, arguments: &[&str]) -> Self {
        let mut child = machine
            .command(&["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Self {
            machine,
            child,
            stdout,
            stderr,
            at: String::new(),
        }
    }

    /// Runs one that does not start.
    pub(crate) fn refused(machine: &Machine, arguments: &[&str]) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = machine.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    pub(crate) fn at(&self) -> &str {
        &self.at
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        http::send(&self.at, method, path, headers, body)
    }

    /// Its child processes.
    pub(crate) fn children(&self) -> Vec<u32> {
        let parent = format!("PPid:\t{}\n", self.child.id());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| status(*pid).is_some_and(|text| text.contains(&parent)))
            .collect()
    }

    /// `kill -9` of one node.
    pub(crate) fn kill_node(&self, name: &str) {
        let is_it = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains(&format!("\0--node\0{name}\0"))
        };
        let pid = self.children().into_iter().find(is_it).unwrap();
        signal(pid, Signal::KILL);
    }

    /// Waits for a line on stderr.
    pub(crate) fn expect_stderr(&self, expected: &str) {
        let found = wait_for(&self.stderr, Duration::from_secs(5), |line| {
            line == expected
        });
        assert!(found.is_some(), "no line `{expected}`");
    }

    /// `kill -9` of itself.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with a signal, and sees that it is gone in time with everything it had.
    pub(crate) fn end(&mut self, how: Signal) {
        let children = self.children();
        signal(self.child.id(), how);
        let mut status = None;
        eventually("it has ended", END_WITHIN, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0));
        let alive: Vec<_> = children.into_iter().filter(|pid| is_alive(*pid)).collect();
        assert!(alive.is_empty(), "{alive:?} are alive");
        assert_eq!(self.machine.files_left(), 0);
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        // Has ended already unless a test failed.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Whether a process is there, and not a zombie whose last thread has ended: until then it holds its sockets.
pub(crate) fn is_alive(pid: u32) -> bool {
    let ended = |text: String| {
        let last = text.contains("Threads:\t1\n") || text.contains("Threads:\t0\n");
        text.contains("State:\tZ") && last
    };
    status(pid).is_some_and(|text| !ended(text))
}

fn status(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits for a condition with a deadline.
pub(crate) fn eventually(what: &str, within: Duration, mut reached: impl FnMut() -> bool) {
    let deadline = runtime::clock::now() + within;
    while !reached() {
        assert!(
            runtime::clock::now() < deadline,
            "not within {within:?}: {what}"
        );
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Lines of a pipe, read as they come so that the writer never blocks.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (lines, received) = sync_channel(10_000);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // Nobody listens when the test is over.
            let _over = lines.try_send(line);
        }
    });
    received
}

fn wait_for(
    lines: &Receiver<String>,
    within: Duration,
    wanted: impl Fn(&str) -> bool,
) -> Option<String> {
    let deadline = runtime::clock::now() + within;
    loop {
        let left = deadline.saturating_duration_since(runtime::clock::now());
        match lines.recv_timeout(left) {
            Ok(line) if wanted(&line) => return Some(line),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}
