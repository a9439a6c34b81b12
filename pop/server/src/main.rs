//! pop/server
fn main() {}
