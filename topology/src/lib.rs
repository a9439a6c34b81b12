//! The topology: one YAML file that every firsthop program, Terraform and people read.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, reads no file (the caller passes
//! the text), spawns nothing. A [`Topology`] that exists is consistent: nothing downstream validates it again.

#![forbid(unsafe_code)]

pub mod model;

pub use model::{
    CoreRelay, Link, Network, Pop, Region, Signaling, Topology, Transceiver, TransceiverCluster,
};
