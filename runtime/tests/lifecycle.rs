//! The life of a node from outside: a real process, real signals, real files.
//!
//! This program is both: run with `node` as its first argument it is a small PoP, otherwise it runs the tests and
//! starts itself as that PoP. It has no harness of its own kind, because a test harness owns `main`.

#[path = "support/issue.rs"]
mod issue;

use std::io::{BufRead as _, BufReader, Read as _, Write as _, stdout};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use issue::{Ca, Dir, Leaf};
use runtime::admin::{self, Admin};
use runtime::args::NodeArgs;
use runtime::node::{self, NodeContext, Running, State};
use runtime::poll::{Poller, Waker};
use runtime::thread::spawn_worker;

const LOCAL: &str = include_str!("../../topology/samples/local.yaml");
/// How long a condition may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "node" => node_main(),
        _ => run_tests(),
    }
}

// ---- The node ----

/// `lifecycle node [--stubborn | --panics | --refuses | --leaves] FLAGS`
#[derive(Parser)]
struct Flags {
    /// Does not end on drain.
    #[arg(long)]
    stubborn: bool,
    /// Panics when told to drain.
    #[arg(long)]
    panics: bool,
    /// Fails to start.
    #[arg(long)]
    refuses: bool,
    /// Ends though nobody asked.
    #[arg(long)]
    leaves: bool,
    #[command(flatten)]
    node: NodeArgs,
}

fn node_main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match Flags::try_parse_from(&words) {
        Ok(Flags {
            stubborn: true,
            node,
            ..
        }) => node::main_with("pop", stubborn, node),
        Ok(Flags {
            refuses: true,
            node,
            ..
        }) => node::main_with("pop", refuses, node),
        Ok(Flags {
            leaves: true, node, ..
        }) => node::main_with("pop", leaves, node),
        Ok(Flags {
            panics: true, node, ..
        }) => node::main_with("pop", panics, node),
        Ok(command) => node::main_with("pop", polite, command.node),
        Err(_) => ExitCode::from(99),
    }
}

fn polite(context: NodeContext) -> Result<Running> {
    start(context, |state| state != State::Running)
}

fn stubborn(context: NodeContext) -> Result<Running> {
    start(context, |state| state == State::Stopped)
}

fn leaves(context: NodeContext) -> Result<Running> {
    start(context, |_| true)
}

fn panics(context: NodeContext) -> Result<Running> {
    start(context, |state| {
        assert!(state == State::Running, "a bug");
        false
    })
}

fn refuses(_: NodeContext) -> Result<Running> {
    anyhow::bail!("bind 127.0.31.1:3478: Address already in use\nsecond line")
}

/// A worker that says on stdout what it sees, until `ends`.
fn start(context: NodeContext, ends: fn(State) -> bool) -> Result<Running> {
    let admin = Admin {
        ready: Box::new(|| Ok(String::new())),
        state: Box::new(|| serde_json::Value::Null),
        routes: axum::Router::new(),
    };
    let server = admin::serve(&context, "127.0.0.1:0".parse()?, admin)?;
    say(&format!("admin {}", server.address()));
    let waker = Waker::new()?;
    context.shutdown.register(&waker);
    let worker = spawn_worker("worker", Some(0), move || work(&context, &waker, ends))?;
    Ok(Running::new(vec![worker], move || {
        drop(server);
        say("on_stop");
    }))
}

fn work(context: &NodeContext, waker: &Waker, ends: fn(State) -> bool) {
    let mut poller = Poller::new();
    let (mut generation, mut seen) = (0, None);
    loop {
        if context.config.generation() != generation {
            let config = context.config.load();
            generation = config.generation;
            let name = &config.topology.network.name;
            say(&format!("generation {generation} network {name}"));
        }
        let state = context.shutdown.state();
        // A signal handler on this thread ends a wait too, so one state can be seen twice.
        if seen.replace(state) != Some(state) {
            match state {
                State::Running => {}
                State::Draining { .. } => say("draining"),
                State::Stopped => say("stopped"),
            }
        }
        if ends(state) {
            return;
        }
        poller.wait(&[waker.as_fd()], None).expect("ppoll works");
        waker.drain();
    }
}

fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

// ---- The tests ----

type Test = (&'static str, fn() -> Result<()>);

const TESTS: &[Test] = &[
    (
        "a first SIGTERM drains and the node ends when it has",
        drains,
    ),
    (
        "a second signal stops a node that does not end",
        stops_on_second,
    ),
    (
        "the drain deadline stops a node that does not end",
        stops_on_deadline,
    ),
    (
        "SIGHUP reloads, and a bad file keeps the old configuration",
        reloads_on_hangup,
    ),
    (
        "changed files are taken without a signal",
        reloads_on_change,
    ),
    (
        "what a running node cannot change is refused",
        refuses_settled,
    ),
    (
        "a secret that is gone does not open WHIP",
        refuses_to_open_whip,
    ),
    (
        "a FIFO in place of a file is refused, not waited for",
        refuses_what_is_no_file,
    ),
    (
        "wrong input is exit code 2 and one line",
        refuses_wrong_input,
    ),
    (
        "--check and --print-config start nothing",
        checks_and_prints,
    ),
    (
        "a start that fails is exit code 1 and one line",
        reports_failed_start,
    ),
    (
        "a worker that panics takes the process with it",
        aborts_on_panic,
    ),
    (
        "a node that ends unasked is exit code 1",
        reports_unasked_end,
    ),
    (
        "a service manager hears of start, beats and end",
        tells_service_manager,
    ),
    (
        "no service manager, and none that can be told, is never fatal",
        survives_wrong_service_managers,
    ),
];

fn run_tests() -> ExitCode {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter));
    let mut failed = false;
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted(name)) {
        match test() {
            Ok(()) => say(&format!("test {name} ... ok")),
            Err(error) => {
                failed = true;
                say(&format!("test {name} ... FAILED\n{error:#}"));
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

/// A node's directory: credentials and `topology.yaml`.
struct Place {
    dir: Dir,
    ca: Ca,
}

impl Place {
    fn new() -> Self {
        let ca = Ca::new();
        let dir = Dir::with_credentials(&ca, &Leaf::of("ams"));
        dir.write("topology.yaml", LOCAL);
        Self { dir, ca }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The sample with one piece of text replaced.
    fn change_topology(&self, from: &str, to: &str) {
        assert!(LOCAL.contains(from), "the sample has no `{from}`");
        self.dir
            .write("topology.yaml", &LOCAL.replacen(from, to, 1));
    }

    fn command(&self, node: &str, more: &[&str]) -> Command {
        let own = std::env::current_exe().expect("the program knows where it is");
        let mut command = Command::new(own);
        command.arg("node").args(more);
        command.args(["--node", node, "--topology", &self.path("topology.yaml")]);
        command.args(["--credentials", &self.dir.path().display().to_string()]);
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(variable);
        }
        command
    }

    fn start(&self, more: &[&str]) -> Result<Node> {
        self.start_with(more, &[])
    }

    fn start_with(&self, more: &[&str], variables: &[(&str, &str)]) -> Result<Node> {
        let mut child = self
            .command("ams", more)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut node = Node {
            child,
            lines,
            admin: String::new(),
        };
        let line = node.line()?;
        node.admin = line
            .strip_prefix("admin ")
            .context("the first line")?
            .to_owned();
        node.expect("generation 1 network local")?;
        Ok(node)
    }

    /// Exit code, stdout and stderr of a node that does not come up.
    fn outcome(&self, node: &str, more: &[&str]) -> Result<(Option<i32>, String, String)> {
        let output = self.command(node, more).output()?;
        let text = |bytes| String::from_utf8(bytes).context("output is text");
        Ok((
            output.status.code(),
            text(output.stdout)?,
            text(output.stderr)?,
        ))
    }
}

/// A node that runs. Killed when dropped.
struct Node {
    child: Child,
    lines: BufReader<ChildStdout>,
    admin: String,
}

impl Node {
    fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status()?;
        ensure!(status.success(), "kill -s {name} {pid}");
        Ok(())
    }

    /// The next line of stdout; blocks, because the node says something or ends.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.lines.read_line(&mut line)? > 0,
            "the node ended: {}",
            self.stderr()?
        );
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(line == wanted, "`{wanted}` was expected, `{line}` came");
        Ok(())
    }

    fn stderr(&mut self) -> Result<String> {
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut text)?;
        }
        Ok(text)
    }

    /// Expects the end, with this exit code.
    fn ends(mut self, code: i32) -> Result<String> {
        self.expect("on_stop")?;
        let status = self.child.wait()?;
        let stderr = self.stderr()?;
        ensure!(status.code() == Some(code), "{status} with {stderr}");
        Ok(stderr)
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.admin)?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Waits until the metrics have this line.
    fn await_metric(&self, line: &str) -> Result<()> {
        let deadline = runtime::clock::now() + PATIENCE;
        while !self.get("/metrics")?.contains(&format!("\n{line}\n")) {
            ensure!(runtime::clock::now() < deadline, "`{line}` did not come");
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drains() -> Result<()> {
    for signal in ["TERM", "INT"] {
        let mut node = Place::new().start(&[])?;
        node.signal(signal)?;
        node.expect("draining")?;
        let log = node.ends(0)?;
        ensure!(
            log.contains("draining; a second signal stops at once"),
            "{log}"
        );
    }
    Ok(())
}

fn stops_on_second() -> Result<()> {
    let mut node = Place::new().start(&["--stubborn"])?;
    node.signal("TERM")?;
    node.expect("draining")?;
    ensure!(node.get("/readyz")?.ends_with("draining\n"));
    node.signal("INT")?;
    node.expect("stopped")?;
    node.ends(0)?;
    Ok(())
}

fn stops_on_deadline() -> Result<()> {
    let place = Place::new();
    place.change_topology("name: local", "name: local\n  drain_max_s: 1");
    let mut node = place.start(&["--stubborn"])?;
    let before = runtime::clock::now();
    node.signal("TERM")?;
    node.expect("draining")?;
    node.expect("stopped")?;
    let took = runtime::clock::now() - before;
    ensure!(took >= Duration::from_millis(900), "{took:?}");
    node.ends(0)?;
    Ok(())
}

fn reloads_on_hangup() -> Result<()> {
    let place = Place::new();
    let mut node = place.start(&[])?;
    place.change_topology("name: local", "name: second");
    node.signal("HUP")?;
    node.expect("generation 2 network second")?;
    node.await_metric("firsthop_config_reloads_total{result=\"ok\"} 1")?;
    place.change_topology("name: local", "nome: local");
    node.signal("HUP")?;
    node.await_metric("firsthop_config_reloads_total{result=\"refused\"} 1")?;
    let (_, key) = place.ca.issue(&Leaf::of("ams"));
    place.change_topology("name: local", "name: third");
    place.dir.write("key.pem", &key);
    node.signal("HUP")?;
    node.await_metric("firsthop_config_reloads_total{result=\"refused\"} 2")?;
    node.await_metric("firsthop_config_generation 2")?;
    node.signal("TERM")?;
    node.expect("draining")?;
    let log = node.ends(0)?;
    ensure!(
        log.matches("configuration not reloaded: the old one stays")
            .count()
            == 2,
        "{log}"
    );
    ensure!(
        log.contains("topology.yaml:8: network.nome: unknown key"),
        "{log}"
    );
    ensure!(log.contains("key.pem: does not go with cert.pem"), "{log}");
    Ok(())
}

fn reloads_on_change() -> Result<()> {
    let place = Place::new();
    let mut node = place.start(&[])?;
    place.change_topology("name: local", "name: second");
    node.expect("generation 2 network second")?;
    let (cert, key) = place.ca.issue(&Leaf::of("ams"));
    place.dir.write("cert.pem", &cert);
    place.dir.write("key.pem", &key);
    node.expect("generation 3 network second")?;
    node.signal("TERM")?;
    node.expect("draining")?;
    node.ends(0)?;
    Ok(())
}

fn refuses_settled() -> Result<()> {
    let cases = [
        (
            "ingress: [\"127.0.31.1:3478\"]",
            "ingress: [\"127.0.31.1:3479\"]",
            "`ingress` of ams changed from [\"127.0.31.1:3478\"] to [\"127.0.31.1:3479\"], which takes a restart",
        ),
        (
            "name: local",
            "name: local\n  link: { mtu_bytes: 1400 }",
            "`network.link.mtu_bytes` of ams changed from 1452 to 1400, which takes a restart",
        ),
    ];
    for (from, to, line) in cases {
        let place = Place::new();
        let mut node = place.start(&[])?;
        place.change_topology(from, to);
        node.signal("HUP")?;
        node.await_metric("firsthop_config_reloads_total{result=\"refused\"} 1")?;
        node.signal("TERM")?;
        node.expect("draining")?;
        let log = node.ends(0)?;
        ensure!(log.replace('\\', "").contains(line), "{log}");
    }
    Ok(())
}

fn refuses_to_open_whip() -> Result<()> {
    let place = Place::new();
    place
        .dir
        .write("whip.secret", "0123456789012345678901234567890123456789");
    let mut node = place.start(&[])?;
    std::fs::remove_file(place.path("whip.secret"))?;
    node.signal("HUP")?;
    node.await_metric("firsthop_config_reloads_total{result=\"refused\"} 1")?;
    node.signal("TERM")?;
    node.expect("draining")?;
    let log = node.ends(0)?;
    ensure!(log.contains("whip.secret is gone"), "{log}");
    Ok(())
}

fn refuses_what_is_no_file() -> Result<()> {
    let place = Place::new();
    std::fs::remove_file(place.path("hint.keys"))?;
    let made = Command::new("mkfifo")
        .arg(place.path("hint.keys"))
        .status()?;
    ensure!(made.success(), "mkfifo");
    let (code, _, err) = place.outcome("ams", &["--check"])?;
    let wanted = format!("pop: {}: not a regular file\n", place.path("hint.keys"));
    ensure!(code == Some(2) && err == wanted, "{code:?} {err}");
    Ok(())
}

fn refuses_wrong_input() -> Result<()> {
    let place = Place::new();
    let expect = |node: &str, more: &[&str], wanted: &str| {
        let (code, out, err) = place.outcome(node, more)?;
        ensure!(code == Some(2) && out.is_empty(), "{code:?} {out}");
        ensure!(err == wanted, "expected {wanted}got {err}");
        Ok(())
    };
    let topology = place.path("topology.yaml");
    expect(
        "ams",
        &["--log", "pop=loud"],
        "pop: --log pop=loud: error parsing level filter: expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5\n",
    )?;
    let line = format!("pop: {topology}: no pop is named `eu-r1`; there are: ams, nyc, sin\n");
    expect("eu-r1", &[], &line)?;
    let line = format!(
        "pop: {}: does not name `nyc` (SAN dNSName)\n",
        place.path("cert.pem")
    );
    expect("nyc", &[], &line)?;
    place.dir.write("hint.keys", "current 16 00\n");
    let line = format!(
        "pop: {}: line 1: expected `previous|current|next <id 0-15> <32 hex digits>`\n",
        place.path("hint.keys")
    );
    expect("ams", &["--check"], &line)?;
    place.change_topology("version: 1", "version: 2");
    let line = format!(
        "pop: {topology}:5: version: version 2 is not supported, this program reads version 1\n"
    );
    expect("ams", &["--check"], &line)?;
    place.dir.remove("topology.yaml");
    let line = format!("pop: {topology}: No such file or directory (os error 2)\n");
    expect("ams", &[], &line)?;
    Ok(())
}

fn checks_and_prints() -> Result<()> {
    let place = Place::new();
    let (code, out, err) = place.outcome("ams", &["--check"])?;
    let line = format!("ok: pop ams of {}\n", place.path("topology.yaml"));
    ensure!((code, out, err.as_str()) == (Some(0), line, ""));
    let (code, out, err) = place.outcome("ams", &["--print-config"])?;
    ensure!(code == Some(0) && err.is_empty(), "{err}");
    for line in [
        "node: ams",
        "  drain_max_s: 30",
        "  flows_max: 1048576",
        "- name: eu",
    ] {
        ensure!(
            out.lines().any(|shown| shown == line),
            "`{line}` is missing in\n{out}"
        );
    }
    let secret = "000102030405060708090a0b0c0d0e0f";
    ensure!(!out.contains(secret) && !out.contains(issue::TOKEN));
    Ok(())
}

fn reports_failed_start() -> Result<()> {
    let (code, out, err) = Place::new().outcome("ams", &["--refuses"])?;
    let line = "pop: bind 127.0.31.1:3478: Address already in use second line\n";
    ensure!(
        (code, out.as_str(), err.as_str()) == (Some(1), "", line),
        "{code:?} {out} {err}"
    );
    Ok(())
}

fn reports_unasked_end() -> Result<()> {
    let node = Place::new().start(&["--leaves"])?;
    let log = node.ends(1)?;
    ensure!(
        log.contains("every thread ended, though nobody asked for it"),
        "{log}"
    );
    Ok(())
}

fn aborts_on_panic() -> Result<()> {
    let mut node = Place::new().start(&["--panics"])?;
    node.signal("TERM")?;
    node.expect("draining")?;
    let status = node.child.wait()?;
    let log = node.stderr()?;
    ensure!(status.signal() == Some(ABORT), "{status} with {log}");
    ensure!(
        log.contains("worker panicked: the process ends") && log.contains("a bug"),
        "{log}"
    );
    Ok(())
}

/// SIGABRT.
const ABORT: i32 = 6;

fn tells_service_manager() -> Result<()> {
    let place = Place::new();
    let path = place.path("notify");
    let name = format!("firsthop-lifecycle-{}", std::process::id());
    let by_path = UnixDatagram::bind(&path)?;
    let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let named = format!("@{name}");
    for (manager, socket) in [(by_path, path.as_str()), (by_name, named.as_str())] {
        manager.set_read_timeout(Some(PATIENCE))?;
        let next = || -> Result<String> {
            let mut message = [0; 100];
            let length = manager.recv(&mut message)?;
            let message = message.get(..length).context("a message that fits")?;
            Ok(String::from_utf8_lossy(message).trim_end().to_owned())
        };
        let variables = [("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "1000000")];
        let mut node = place.start_with(&[], &variables)?;
        for wanted in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
            let message = next()?;
            ensure!(message == wanted, "{wanted} was expected, {message} came");
        }
        node.signal("TERM")?;
        node.expect("draining")?;
        while next()? != "STOPPING=1" {}
        node.ends(0)?;
    }
    Ok(())
}

fn survives_wrong_service_managers() -> Result<()> {
    let place = Place::new();
    let file = place.path("topology.yaml");
    for (socket, watchdog) in [
        ("/no/such/socket", "1000000"),
        (file.as_str(), "1000000"),
        ("@nobody-has-this-name", "1000000"),
        ("", "1000000"),
        ("@", "0"),
        ("notify", "soon"),
        ("vsock:2:9999", "-1"),
    ] {
        let variables = [("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", watchdog)];
        let mut node = place.start_with(&[], &variables)?;
        node.signal("TERM")?;
        node.expect("draining")?;
        let log = node.ends(0)?;
        ensure!(log.contains("service manager"), "{socket}: {log}");
    }
    Ok(())
}
