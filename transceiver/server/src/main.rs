//! `transceiver`: terminates WebRTC for its sessions. See `transceiver::start`.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::node::main("transceiver", transceiver::start)
}
