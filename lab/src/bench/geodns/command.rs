//! `lab bench geodns` and what it starts itself again as.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::questions::Clients;
use super::report::{self, Options};
use super::servers::Server;
use super::{floor, hickory};

/// Arguments of `lab bench geodns`.
#[derive(Debug, Args)]
pub struct GeodnsArguments {
    /// How often each server is measured; what is reported is the median
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long each measurement takes
    #[arg(long, default_value_t = 600, value_name = "MS")]
    measure_ms: u64,
    /// What the clients of the questions are
    #[arg(long, value_enum, default_value_t = Clients::V4)]
    clients: Clients,
    /// Questions with a client cookie, in percent
    #[arg(long, default_value_t = 25)]
    cookies: u32,
    /// These servers and parts only
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Questions a second while files are replaced; 0: leave that part out
    #[arg(long, default_value_t = 100_000)]
    reload_rate: u32,
    /// One JSON object instead of tables for people
    #[arg(long)]
    json: bool,
}

/// Arguments of `lab bench name-server`.
#[derive(Debug, Args)]
pub struct NameServerArguments {
    /// Which
    #[arg(value_enum)]
    server: Own,
    /// Where it answers
    at: SocketAddr,
    /// What it looks clients up in
    database: PathBuf,
}

/// What can be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Ours,
    Gdnsd,
    Knot,
    KnotAlike,
    Hickory,
    Floor,
    /// Steering over HTTP.
    Steer,
}

impl Part {
    const fn server(self) -> Option<Server> {
        match self {
            Self::Ours => Some(Server::Ours),
            Self::Gdnsd => Some(Server::Gdnsd),
            Self::Knot => Some(Server::Knot),
            Self::KnotAlike => Some(Server::KnotAlike),
            Self::Hickory => Some(Server::Hickory),
            Self::Floor => Some(Server::Floor),
            Self::Steer => None,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Own {
    Hickory,
    Floor,
}

/// Measures and prints.
///
/// # Errors
/// See [`report::run`].
pub fn geodns(arguments: &GeodnsArguments) -> anyhow::Result<()> {
    let options = Options {
        rounds: arguments.rounds,
        measured: Duration::from_millis(arguments.measure_ms),
        clients: arguments.clients,
        cookies_percent: arguments.cookies,
        servers: match arguments.only.as_slice() {
            [] => Server::ALL.to_vec(),
            some => some.iter().copied().filter_map(Part::server).collect(),
        },
        steer: arguments.only.is_empty() || arguments.only.contains(&Part::Steer),
        reload_rate: (arguments.reload_rate > 0).then_some(arguments.reload_rate),
    };
    let found = report::run(&options)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&found)?)?;
    } else {
        write!(out, "{}", report::text(&found))?;
    }
    Ok(())
}

/// Answers until killed.
///
/// # Errors
/// The server's.
pub fn name_server(arguments: &NameServerArguments) -> anyhow::Result<()> {
    match arguments.server {
        Own::Hickory => hickory::serve(arguments.at, &arguments.database),
        Own::Floor => floor::serve(arguments.at),
    }
}
