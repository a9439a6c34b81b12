//! Links over an in-memory wire, under an invented clock. One file of `links/` for each subject.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share, where a panic is a failed test"
)]

#[path = "links/abuse.rs"]
mod abuse;
#[path = "links/changes.rs"]
mod changes;
#[path = "links/health.rs"]
mod health;
#[path = "links/identity.rs"]
mod identity;
#[path = "links/load.rs"]
mod load;
#[path = "links/records.rs"]
mod records;
#[path = "links/suspicion.rs"]
mod suspicion;
#[path = "links/world.rs"]
mod world;
