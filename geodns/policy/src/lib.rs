//! Steering: which region and which ingress a client gets, and why.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no file (databases come as bytes), reads no clock, has no
//! random source of its own.

#![forbid(unsafe_code)]
