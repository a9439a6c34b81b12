//! Exploration: now and then a client is sent to another plausible ingress, so that it is measured at all.
//!
//! A few clients, chosen by a hash of prefix and ten-minute epoch: the same at every node, and for all clients of the prefix.
//! Only for media and only by HTTP: DNS answers are kept by resolvers for clients that nobody chose. The region stays when the
//! request fixes it; else an ingress without a link to the best region is tried for the nearest region it has.

use ipnet::IpNet;

use crate::live::Standing;
use crate::plan::RegionIx;
use crate::rendezvous::mix;
use crate::select::{Candidate, Tier, placed};

/// How long one draw holds, in seconds.
pub const EPOCH_S: u64 = 600;
/// What an ingress that nobody has measured may seem to cost more than the best to be tried, in milliseconds.
pub const WITHIN_MS: u32 = 250;
/// What one that is measured may cost more to be measured again.
pub const KNOWN_WITHIN_MS: u32 = 100;
/// Ingresses nobody has measured that are tried next.
const NEAREST: usize = 3;

/// The draw of a prefix in the epoch of `unix_s`: `Some(seed)` when it explores, with a share of `permille`.
#[must_use]
pub fn drawn(prefix: IpNet, unix_s: u64, permille: u32) -> Option<u64> {
    let address = match prefix {
        IpNet::V4(net) => u128::from(u32::from(net.network())),
        IpNet::V6(net) => u128::from(net.network()),
    };
    let [a, b] = [address >> 64, address & u128::from(u64::MAX)]
        .map(|half| u64::try_from(half).unwrap_or_default());
    let hash = mix(mix(a ^ mix(b)) ^ mix(unix_s / EPOCH_S));
    (hash % 1_000 < u64::from(permille)).then(|| mix(hash))
}

/// An ingress that may be tried, with the region it would be tried for.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) region: RegionIx,
    pub(crate) pop: Candidate,
    /// Whether anybody like the client has measured it.
    pub(crate) is_measured: bool,
}

/// Which way is tried instead of the best: one that is usable, not avoided and not absurdly far. Of those that nobody like the
/// client has measured one of the nearest; when all are measured any, so that none grows old.
#[must_use]
pub(crate) fn pick(best: &Candidate, mut ways: Vec<Way>, seed: u64) -> Option<Way> {
    ways.retain(
        |Way {
             pop, is_measured, ..
         }| {
            let within = if *is_measured {
                KNOWN_WITHIN_MS
            } else {
                WITHIN_MS
            };
            pop.index != best.index
                && pop.standing == Standing::Usable
                && pop.tier <= Tier::Ordinary
                && pop.cost.total() <= best.cost.total().saturating_add(within)
        },
    );
    ways.sort_by_key(|way| placed(&way.pop));
    let (known, mut unknown): (Vec<_>, Vec<_>) = ways.into_iter().partition(|way| way.is_measured);
    unknown.truncate(NEAREST);
    let choices = if unknown.is_empty() { known } else { unknown };
    let count = u64::try_from(choices.len())
        .ok()
        .filter(|count| *count > 0)?;
    let at = usize::try_from(seed % count).ok()?;
    choices.get(at).copied()
}
