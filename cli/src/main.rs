//! See the library `firsthop`.

use std::process::ExitCode;

use clap::Parser;
use firsthop::args::Args;

fn main() -> ExitCode {
    firsthop::run(Args::parse())
}
