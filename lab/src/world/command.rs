//! `lab world`: a world that stands until it is told to end, and orders to it from elsewhere.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use runtime::clock;
use serde_json::Value;

use super::control::{ask, serve};
use super::file::check_name;
use super::home::{self, SOCKET};
use super::{Fault, Options, WorldFile};

/// A world of network namespaces.
#[derive(Debug, Subcommand)]
pub enum World {
    /// Brings a world up and keeps it until SIGINT, SIGTERM or `down`; as root
    Up(Up),
    /// Ends a world
    Down(Which),
    /// Does something to a world: kill lon, cut lon r-lon, power-off fra, drain wdc ...
    Fault(Order),
    /// What there is, what runs, and which PoP serves which client
    Status(Status),
    /// An order to its WAN emulator
    Wan(Order),
    /// A command to the BIRD of a node
    Birdc(Order),
    /// A request to a node: NODE METHOD PATH
    Admin(Order),
    /// Runs a program in the namespace of a node; as root
    Exec(Exec),
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub struct Up {
    /// A world file, or the name of one of the repository: small, world
    file: String,
    /// Another name for it, so that several of one file stand side by side
    #[arg(long)]
    name: Option<String>,
    /// Nodes whose programs are not started
    #[arg(long, value_name = "NODE")]
    idle: Vec<String>,
}

/// Which world.
#[derive(Debug, Args)]
pub struct Which {
    /// Its name; the one that stands, if it is the only one
    #[arg(long = "world", value_name = "NAME")]
    name: Option<String>,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    which: Which,
    /// One JSON object instead of lines for people
    #[arg(long)]
    json: bool,
}

/// Words for a world.
#[derive(Debug, Args)]
pub struct Order {
    #[command(flatten)]
    which: Which,
    /// The order
    #[arg(required = true)]
    words: Vec<String>,
}

/// Arguments of `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    #[command(flatten)]
    which: Which,
    /// The node
    node: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl World {
    /// Carries it out.
    ///
    /// # Errors
    /// Not root, no such world, or an order that is refused.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Up(up) => up.run(),
            Self::Down(which) => which.down(),
            Self::Fault(order) => {
                let fault: Fault = order.words.join(" ").parse()?;
                order.which.tell(&format!("fault {fault}"))
            }
            Self::Status(status) => status.run(),
            Self::Wan(order) => order.tell("wan"),
            Self::Birdc(order) => order.tell("birdc"),
            Self::Admin(order) => order.tell("admin"),
            Self::Exec(exec) => exec.run(),
        }
    }
}

impl Up {
    fn run(&self) -> anyhow::Result<()> {
        let mut file = WorldFile::find(&self.file)?;
        if let Some(name) = &self.name {
            file.rename(name)?;
        }
        let taken = home::take(&worlds(), &file.name)?;
        let dir = worlds().join(&file.name);
        let (end, ended) = mpsc::sync_channel(2);
        // Before there is any other thread: they inherit what is blocked, and the world's processes do not.
        on_signal(end.clone())?;
        let began = clock::now();
        let options = Options {
            dir: Some(dir.clone()),
            idle: self.idle.iter().cloned().collect(),
            ..Options::default()
        };
        let world = Arc::new(super::World::up(&file, &options)?);
        let listener = UnixListener::bind(dir.join(SOCKET)).context("the socket for orders")?;
        let took = (clock::now() - began).as_secs_f64();
        let mut out = std::io::stdout();
        writeln!(
            out,
            "up after {took:.1} s: {} nodes, files in {}, pid 1 is {}\n\
             lab world exec NODE ip route; lab world fault kill POP; lab world status; lab world down",
            world.plan().nodes.len(),
            dir.display(),
            world.pid()
        )?;
        let orders = Arc::clone(&world);
        let orders = std::thread::spawn(move || serve(&orders, &listener, &end));
        ended.recv().context("waiting for the end")?;
        // Whoever gives an order holds the world no longer than the order takes; a second signal does not wait for it.
        ensure!(
            std::fs::remove_file(dir.join(SOCKET)).is_ok(),
            "the socket is gone"
        );
        end_of(world, orders.is_finished());
        drop(taken);
        writeln!(out, "down")?;
        Ok(())
    }
}

/// Ends it while the thread that takes orders may still hold it.
fn end_of(world: Arc<super::World>, alone: bool) {
    match Arc::try_unwrap(world) {
        Ok(world) => drop(world),
        Err(held) => {
            debug_assert!(!alone, "nobody else holds it");
            held.end();
        }
    }
}

/// SIGINT and SIGTERM: the first is an end in order, the second at once. The kernel clears up after either.
fn on_signal(end: SyncSender<()>) -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("blocking signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut heard = 0;
            while signals.wait().is_ok() {
                heard += 1;
                if heard > 1 || end.try_send(()).is_err() {
                    std::process::exit(130);
                }
            }
        })?;
    Ok(())
}

impl Which {
    fn dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(name) = &self.name {
            return Ok(worlds().join(check_name(name)?));
        }
        match home::standing(&worlds()).as_slice() {
            [one] => Ok(worlds().join(one)),
            [] => bail!("no world stands"),
            all @ [_, _, ..] => bail!(
                "several worlds stand, say which with --world: {}",
                all.join(", ")
            ),
        }
    }

    /// Ends the world. Of one that was killed only a socket is left, which goes, too.
    fn down(&self) -> anyhow::Result<()> {
        let name = self.name.as_deref().map(check_name).transpose()?;
        let dead = home::clear_up(&worlds(), name.as_deref())?;
        for name in &dead {
            writeln!(
                std::io::stdout(),
                "{name} was dead: nothing is left of it but its files"
            )?;
        }
        let done = !dead.is_empty() && (name.is_some() || home::standing(&worlds()).is_empty());
        if done {
            return Ok(());
        }
        self.ask("down").map(|_answer| ())
    }

    fn ask(&self, line: &str) -> anyhow::Result<Value> {
        ask(&self.dir()?.join(SOCKET), line)
    }

    fn tell(&self, line: &str) -> anyhow::Result<()> {
        let answer = self.ask(line)?;
        let mut out = std::io::stdout();
        match answer.as_str() {
            Some(text) => writeln!(out, "{text}")?,
            None => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
        }
        Ok(())
    }
}

impl Order {
    fn tell(&self, verb: &str) -> anyhow::Result<()> {
        self.which.tell(&format!("{verb} {}", self.words.join(" ")))
    }
}

impl Status {
    fn run(&self) -> anyhow::Result<()> {
        let status = self.which.ask("status")?;
        let mut out = std::io::stdout();
        if self.json {
            writeln!(out, "{status}")?;
            return Ok(());
        }
        let text = |value: &Value, key: &str| match value.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => "-".to_owned(),
            Some(other) => other.to_string(),
        };
        writeln!(
            out,
            "{} in {}",
            text(&status, "world"),
            text(&status, "dir")
        )?;
        for (name, node) in status
            .get("nodes")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let (kind, city) = (text(node, "kind"), text(node, "city"));
            let (runs, bird) = (text(node, "runs"), text(node, "bird"));
            writeln!(
                out,
                "  {name:<16} {kind:<12} {city:<5} runs {runs:<6} bird {bird}"
            )?;
        }
        for row in status
            .get("nearest")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let (client, vip, pop) = (text(row, "client"), text(row, "vip"), text(row, "pop"));
            writeln!(out, "  {client:<16} {vip:<26} {pop}")?;
        }
        Ok(())
    }
}

impl Exec {
    fn run(&self) -> anyhow::Result<()> {
        let status = self.which.ask("status")?;
        let pid = status
            .get("pid")
            .and_then(Value::as_u64)
            .context("no pid")?;
        let world = status
            .get("world")
            .and_then(Value::as_str)
            .context("no name")?;
        let network = format!("/proc/{pid}/root/run/netns/{world}-{}", self.node);
        let network = File::open(&network);
        let network = network.with_context(|| format!("there is no node `{}`", self.node))?;
        setns(network, CloneFlags::CLONE_NEWNET).context("entering the namespace")?;
        let (program, arguments) = self.command.split_first().context("which program?")?;
        let error = Command::new(program).args(arguments).exec();
        Err(error).with_context(|| program.clone())
    }
}

/// Where worlds that stand by themselves have their directories.
fn worlds() -> PathBuf {
    Path::new("/tmp").join("firsthop-lab")
}
