//! What a user would pick in place of PoP and core relay, run beside them: programs of Debian and of crates.io, each set up
//! so that it does its best, each on the processor that [`Shape`](crate::net::Shape) gives our own.
//!
//! ```text
//! nginx       one hop   a NAT-style UDP proxy
//! coturn      one hop   a TURN server; clients speak ChannelData
//! boringtun   two hops  nginx, then a WireGuard tunnel in user space: a home-made PoP with a backbone
//! ```
//!
//! A peer that is not installed is no failure: whoever asks learns why it is missing, and goes on.

mod boringtun;
mod buffers;
mod coturn;
mod nginx;
pub(crate) mod program;

pub(crate) use boringtun::Tunnel;
pub(crate) use buffers::Buffers;
pub(crate) use coturn::Coturn;
pub(crate) use nginx::Nginx;
pub(crate) use program::Missing;
