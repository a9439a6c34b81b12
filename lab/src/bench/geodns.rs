//! `lab bench geodns`: how many questions a processor answers and what one costs, against other name servers with the same map and the
//! same database, in one run; and whether a reload under load loses any. `docs/performance.md` says how to read the figures.
//!
//! ```text
//!  processor 0                                    processor 1
//! ┌────────────────────────┐   questions         ┌────────────────────────┐
//! │ generator, one thread, │ ──────────────────► │ one name server of five│
//! │ 16 sockets, 12 each    │ ◄────────────────── │ one UDP thread         │
//! └────────────────────────┘   answers, checked  └────────────────────────┘
//! ```

pub mod answer;
pub mod ask;
mod asked;
pub mod command;
pub mod countries;
pub mod database;
pub mod ending;
mod floor;
mod hickory;
pub mod load;
pub mod map;
pub mod mmdb;
pub mod ours;
pub mod query;
pub mod questions;
pub mod reload;
pub mod report;
pub mod servers;
pub mod steer;
