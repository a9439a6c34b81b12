//! `pop`: one ingress site. See `pop::start`.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::node::main("pop", pop::start)
}
