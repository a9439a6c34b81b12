//! The automation of the repository: `cargo xtask lint | test | bench | lab | schema | geo-db`.
//!
//! Each command is a list of steps; a step is one program run to its end, announced, timed and named when it fails.
//! This crate links nothing of firsthop: it must build in seconds on a bare machine.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its terminal"
)]

mod bench;
mod geo_database;
mod lint;
mod packages;
mod step;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::step::Step;
use crate::workspace::Workspace;

/// Automation of the firsthop repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, clippy, documentation, licences and dependencies.
    Lint,
    /// All tests: unit, property and fuzz replay, then real clients against real processes.
    Test(test::Arguments),
    /// Runs a benchmark; without a name, lists them.
    Bench(bench::Arguments),
    /// Passes its arguments to the `lab` program.
    Lab {
        /// Arguments of `lab`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Rewrites `topology/topology.schema.json` from the types.
    Schema,
    /// Fetches the public-domain country database that tests use, and says where it is.
    GeoDb,
}

fn main() -> ExitCode {
    let ended = run(Arguments::parse().command);
    eprint!("{}", step::times());
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let workspace = Workspace::read().context("reading the workspace")?;
    match command {
        Command::Lint => lint::run(&workspace),
        Command::Test(arguments) => test::run(&workspace, &arguments),
        Command::Bench(arguments) => bench::run(&workspace, &arguments),
        Command::Lab { arguments } => {
            let lab = workspace.program("lab")?.args(arguments);
            test::build_programs(&workspace)?;
            lab.run()
        }
        Command::GeoDb => {
            println!("{}", geo_database::fetch(&workspace)?.display());
            Ok(())
        }
        Command::Schema => Step::cargo("schema", &workspace)
            .args(["test", "--locked", "--quiet"])
            .args(["--package", "topology", "--test", "schema"])
            .env("FIRSTHOP_REWRITE", "1")
            .run(),
    }
}
