//! `core-relay`: the regional end of the backbone. See `core_relay::start`.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::node::main("core-relay", core_relay::start)
}
