//! Scenarios: plans of what happens to a world while calls are on, and what they find. A file says conditions, traffic, faults and what
//! must hold; a run brings up the world of it, makes the calls, does what the plan says, and measures every frame of both
//! directions; a report has a table, and a timeline of each run.
//!
//! ```text
//! lab/scenarios/NAME.yaml ──► World, load client, faults ──► Call × 25 ──► Figures ──► report.md, results.json
//!      file.rs, check.rs                 run.rs                              figures.rs   report.rs, svg.rs
//! ```
//!
//! Not here: how a world works ([`crate::world`]), and how a call is made and measured ([`crate::load`], [`crate::meter`]).

mod check;
pub mod command;
mod figures;
mod file;
mod paths;
mod report;
mod run;
mod share;
mod svg;

pub use figures::{Figures, Spread, Way};
pub use file::{Act, Must, Scenario, scenarios_dir};
pub use report::{Outcome, write};
pub use run::{Run, run};
