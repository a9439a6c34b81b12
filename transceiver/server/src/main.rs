//! transceiver/server
fn main() {}
