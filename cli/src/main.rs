//! See the library `firsthop`.

use std::process::ExitCode;

use clap::Parser;
use firsthop::args::Args;

fn main() -> ExitCode {
    let code = firsthop::run(Args::parse());
    runtime::logging::flush();
    code
}
