//! A real redis-server of a test's own, on a free loopback port.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use runtime::clock;

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct RedisServer {
    child: Option<Child>,
    pub(crate) port: u16,
    arguments: Vec<String>,
    dir: PathBuf,
}

pub(crate) fn free_port() -> u16 {
    // Below the ephemeral range, so that no client socket takes it; a Cluster needs port + 10000 as well.
    (0..1000)
        .map(|_| {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            12_000 + listener.local_addr().unwrap().port() % 10_000
        })
        .find(|port| {
            TcpListener::bind(("127.0.0.1", *port)).is_ok()
                && TcpListener::bind(("127.0.0.1", *port + 10_000)).is_ok()
        })
        .unwrap()
}

impl RedisServer {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut server = Self::stopped(arguments);
        server.restart();
        server
    }

    /// One that is not there yet.
    pub(crate) fn stopped(arguments: &[&str]) -> Self {
        let port = free_port();
        let dir =
            std::env::temp_dir().join(format!("firsthop-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self {
            child: None,
            port,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            dir,
        }
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        let port = self.port.to_string();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--loglevel", "warning", "--dir"])
            .arg(&self.dir)
            .args(if self.arguments.iter().any(|a| a == "--tls-port") {
                vec!["--port", "0", "--tls-port", &port]
            } else {
                vec!["--port", &port]
            })
            .args(self.arguments.iter().filter(|a| *a != "--tls-port"))
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        self.child = Some(child);
        let end = clock::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(clock::now() < end, "redis-server listens");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.unwrap().success());
    }

    /// What redis-cli prints.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal("CONT");
        }
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
