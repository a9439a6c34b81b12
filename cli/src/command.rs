//! What each command does, and how it ends: 0 done, 1 failed on the way, 2 could not start (arguments, files, machine).

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use runtime::files::read_text;
use topology::Topology;

use crate::args::{
    Args, CertsCommand, Command, ExplainCommand, GeoDnsRun, KeysCommand, NodeCommand, NodeRun,
    RenderCommand, TopoCommand,
};
use crate::certs::{self, Authority, NetworkValidity, Validity};
use crate::drain;
use crate::explain;
use crate::files::{Existing, write_set};
use crate::keys::{self, Rotation};
use crate::up;
use crate::up::plan::Kind;

/// How a command that did not do what it should ends.
pub(crate) enum Failure {
    /// It could not start; the text says what to change.
    Refused(String),
    /// It broke on the way.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

/// Does what the arguments say.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    let done = match args.command {
        Command::Up(args) => up::run(&args),
        Command::Node(node) => return run_node(node),
        Command::Certs(command) => make_certs(command),
        Command::Keys(command) => make_keys(command),
        Command::Topo(command) => topo(command),
        Command::Explain(ExplainCommand::Steer(args)) => explain::steer(&args),
        Command::Lab { arguments } => become_lab(&arguments),
        Command::Drain(args) => drain::run(drain::Verb::Drain, &args),
        Command::Undrain(args) => drain::run(drain::Verb::Undrain, &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refused(text)) => {
            complain(&text);
            ExitCode::from(2)
        }
        Err(Failure::Broken(error)) => {
            complain(&format!("firsthop: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Goes on as the program `lab`, which comes with the others and is no part of a network.
fn become_lab(arguments: &[OsString]) -> Result<(), Failure> {
    let own = std::env::current_exe().context("the path of this program")?;
    let lab = own.with_file_name("lab");
    if !lab.exists() {
        let missing = format!(
            "firsthop: {} is not there: `cargo build -p lab`",
            lab.display()
        );
        return Err(Failure::Refused(missing));
    }
    let error = std::process::Command::new(&lab).args(arguments).exec();
    Err(Failure::Broken(
        anyhow::Error::new(error).context(lab.display().to_string()),
    ))
}

fn run_node(node: NodeCommand) -> ExitCode {
    let (kind, run) = match node {
        NodeCommand::Pop(run) => (Kind::Pop, run),
        NodeCommand::CoreRelay(run) => (Kind::CoreRelay, run),
        NodeCommand::Transceiver(run) => (Kind::Transceiver, run),
        NodeCommand::GeoDns(GeoDnsRun { geodns, die_with }) => {
            return bound_to(die_with).unwrap_or_else(|| geodns::main_with(geodns));
        }
    };
    let NodeRun { node, die_with } = run;
    bound_to(die_with)
        .unwrap_or_else(|| runtime::node::main_with(kind.command(), kind.start(), node))
}

/// How the program ends when it cannot be bound to the life of `parent`.
fn bound_to(parent: Option<i32>) -> Option<ExitCode> {
    let error = up::die_with(parent?).err()?;
    complain(&format!("firsthop: {error:#}"));
    Some(ExitCode::FAILURE)
}

fn make_certs(command: CertsCommand) -> Result<(), Failure> {
    let now = runtime::clock::unix_s();
    let validity = |days| Validity::days_from(now, days).map_err(refused);
    match command {
        CertsCommand::Ca {
            dir,
            network,
            days,
            force,
        } => {
            let authority = Authority::create(&network, validity(days)?)?;
            write_set(&authority.files(&dir), existing(force)).map_err(refused)
        }
        CertsCommand::Node {
            ca,
            name,
            out,
            days,
            force,
        } => {
            let files = Authority::load(&ca)
                .and_then(|ca| ca.node_files(&name, Validity::days_from(now, days)?, &out))
                .map_err(refused)?;
            write_set(&files, existing(force)).map_err(refused)
        }
        CertsCommand::All {
            topology,
            out,
            days,
            ca_days,
            force,
        } => {
            let validity = NetworkValidity {
                ca: validity(ca_days)?,
                node: validity(days)?,
            };
            let topology = load_topology(&topology)?;
            certs::write_network(&topology, &out, validity, existing(force)).map_err(refused)?;
            let nodes = topology.node_names().count();
            say(&format!(
                "Credentials of {nodes} nodes are in {}. Keep ca.key.pem where no node runs.",
                out.display()
            ))
        }
    }
}

fn make_keys(command: KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::New { file, force } => {
            keys::write_new(&file, existing(force)).map_err(refused)
        }
        KeysCommand::Dnssec { file, force } => {
            keys::write_dnssec(&file, existing(force)).map_err(refused)
        }
        KeysCommand::Ds { file, topology } => {
            let topology = load_topology(&topology)?;
            let records = keys::ds(&file, &topology).map_err(refused)?;
            say(&records.join("\n"))
        }
        KeysCommand::Rotate { file } => match keys::rotate(&file).map_err(refused)? {
            Rotation::Rotated { current, next } => say(&format!(
                "Key {current} is current, key {next} is next. Copy {} to every node; \
                 `firsthop keys rotate --help` has the safe order.",
                file.display()
            )),
            Rotation::NextAdded { next } => say(&format!(
                "There was no next key: key {next} was added and nothing moved, because no node knows it yet. \
                 Copy {} to every node, then rotate again.",
                file.display()
            )),
        },
    }
}

fn topo(command: TopoCommand) -> Result<(), Failure> {
    match command {
        TopoCommand::Check { files } => check_all(&files),
        TopoCommand::Schema => {
            io::stdout().write_all(topology::json_schema().as_bytes())?;
            Ok(())
        }
        TopoCommand::Render(RenderCommand::Bird { topology, node }) => {
            let config = topology::bird::config(&load_topology(&topology)?, &node)
                .map_err(|error| refused(error.into()))?;
            io::stdout().write_all(config.as_bytes())?;
            Ok(())
        }
    }
}

/// All files are checked, whatever the first ones are like.
fn check_all(files: &[std::path::PathBuf]) -> Result<(), Failure> {
    let mut errors = Vec::new();
    for file in files {
        match load_topology(file) {
            Ok(_) => say(&format!("{}: ok", file.display()))?,
            Err(Failure::Refused(text)) => errors.push(text),
            Err(broken) => return Err(broken),
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Failure::Refused(errors.join("\n")))
    }
}

/// Reads and checks a topology; its errors are for people as they are.
pub(crate) fn load_topology(file: &Path) -> Result<Topology, Failure> {
    let text = read_text(file, topology::TEXT_BYTES_MAX)
        .with_context(|| format!("reading {}", file.display()))
        .map_err(refused)?;
    topology::load(&text, &file.display().to_string())
        .map_err(|errors| Failure::Refused(errors.to_string()))
}

pub(crate) fn refused(error: anyhow::Error) -> Failure {
    Failure::Refused(format!("firsthop: {error:#}"))
}

const fn existing(force: bool) -> Existing {
    if force {
        Existing::Replace
    } else {
        Existing::Keep
    }
}

/// A line for the user.
fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// A line about what went wrong. A closed stderr is no reason to panic.
fn complain(text: &str) {
    let _nobody_reads = writeln!(io::stderr(), "{text}");
}
