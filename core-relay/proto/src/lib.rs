//! The core relay's decisions: where a record goes, or why it is dropped, and how records are regrouped by destination.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, and keeps nothing about a flow.

#![forbid(unsafe_code)]
