//! `geodns`: DNS and HTTP steering. See `geodns::start_with`.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::node::main_of("geodns", geodns::main_with)
}
