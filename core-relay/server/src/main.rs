//! core-relay/server
fn main() {}
