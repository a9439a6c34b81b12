//! Policies, one file each. Those that find evidence are asked in the order of [`Evidence`](crate::rank::Evidence); those that order, filter and share
//! candidates are joined in `rank.rs` and `select.rs`.

pub mod asn;
pub mod avoid;
pub mod cidr;
pub mod continent;
pub mod country;
pub mod distance;
pub mod explore;
pub mod health;
pub mod hysteresis;
pub mod load;
pub mod measured;
pub mod nearest;
pub mod residency;
pub mod rules;
