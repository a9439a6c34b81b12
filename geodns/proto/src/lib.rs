//! DNS without sockets: questions, client subnet, the zone, answers.
//!
//! Invariants, stated as absences: no socket, task, lock or clock; the caller passes time and addresses in.

#![forbid(unsafe_code)]
