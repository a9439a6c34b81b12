//! The PoP's decisions: which flow a client's packet belongs to, whether it may pass, and whom a downlink record commits.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, draws no random number, and originates no
//! packet. It never parses a payload beyond the STUN header and USERNAME of a Binding request.

#![forbid(unsafe_code)]
