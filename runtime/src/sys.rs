//! The system calls that no safe crate wraps the way the packet path needs them. Every `unsafe` of firsthop is below
//! this module; everything it exports is safe to call.
//!
//! It decides nothing: no retry, no policy, no log line.

pub(crate) mod address;
pub(crate) mod allocator;
pub(crate) mod control_message;
pub(crate) mod eventfd;
pub(crate) mod message;
pub(crate) mod pages;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod socket;
pub(crate) mod tun;
