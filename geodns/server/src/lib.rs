//! The GeoDNS node: sockets, threads and tasks around `geodns-proto` and `geodns-policy`.

#![forbid(unsafe_code)]

pub mod udp;
