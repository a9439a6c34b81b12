//! `cargo xtask bench NAME [--json]`: benchmarks by name. A benchmark is a row of [`BENCHES`].

use anyhow::Context;

use crate::workspace::Workspace;
use crate::{geo_database, test};

/// Which benchmark, and how to print.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name; see the list without one.
    name: Option<String>,
    /// One JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// More arguments for the program that runs it.
    #[arg(last = true)]
    more: Vec<String>,
}

/// A benchmark: a program of the workspace with arguments. It understands `--json`.
struct Bench {
    name: &'static str,
    about: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "sessions",
        about: "200 sessions of 20 ms Opus for 30 s through the whole local network: loss, latency, processor, memory",
        program: "lab",
        arguments: &["bench", "sessions"],
    },
    Bench {
        name: "datapath",
        about: "what a packet costs PoP and core relay, against plain forwarders, a plain tunnel and other relays",
        program: "lab",
        arguments: &["bench", "datapath"],
    },
    Bench {
        name: "geodns",
        about: "what a question costs a GeoDNS node, against gdnsd, Knot and hickory-server with the same map; reload under load",
        program: "lab",
        arguments: &["bench", "geodns"],
    },
    Bench {
        name: "failover",
        about: "what calls hear of a PoP, a relay or a route that goes away, in a world of real BGP; as root",
        program: "lab",
        arguments: &["bench", "failover"],
    },
    Bench {
        name: "soak",
        about: "10 minutes (-- --minutes N) at half of saturation, 10,000 flows that come and go: memory and counters of loss",
        program: "lab",
        arguments: &["bench", "soak"],
    },
];

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<()> {
    let Some(name) = &arguments.name else {
        for bench in BENCHES {
            println!("{:<12} {}", bench.name, bench.about);
        }
        return Ok(());
    };
    let bench = BENCHES
        .iter()
        .find(|bench| bench.name == name)
        .with_context(|| format!("no benchmark `{name}`; `cargo xtask bench` lists them"))?;
    let step = workspace
        .program(bench.program)?
        .args(bench.arguments)
        .args(arguments.json.then_some("--json"))
        .args(&arguments.more);
    if bench.name == "geodns" {
        geo_database::fetch(workspace)?;
    }
    test::build_programs(workspace)?;
    step.run()
}
