//! Exploration: now and then a client is sent to another plausible ingress, so that it is measured at all.
//!
//! A few clients, chosen by a hash of prefix and ten-minute epoch: the same at every node, and for all clients of the prefix.
//! Only for media and only by HTTP: DNS answers are kept by resolvers for clients that nobody chose.

use ipnet::IpNet;

use crate::decision::{Choosable, EvidenceShown, Term};
use crate::live::Standing;
use crate::rendezvous::mix;
use crate::select::Tier;

/// How long one draw holds, in seconds.
pub const EPOCH_S: u64 = 600;
/// What an explored ingress may cost more than the best, at most, in milliseconds.
pub const WITHIN_MS: u32 = 150;

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

/// Which of the ordered ingresses goes first instead of the best: one that is usable, not avoided and not absurdly far. Those
/// that the client's own prefix has not measured come before those that it has.
#[must_use]
pub fn pick(ingresses: &[Choosable], seed: u64) -> Option<usize> {
    let best = ingresses.first()?;
    let limit = best.cost_ms?.saturating_add(WITHIN_MS);
    let plausible = ingresses.iter().enumerate().skip(1).filter(|(_, other)| {
        other.standing == Standing::Usable
            && other.tier <= Tier::Ordinary
            && other.cost_ms.is_some_and(|cost| cost <= limit)
    });
    let (known, unknown): (Vec<_>, Vec<_>) = plausible.partition(|(_, other)| is_measured(other));
    let choices = if unknown.is_empty() { known } else { unknown };
    let count = u64::try_from(choices.len())
        .ok()
        .filter(|count| *count > 0)?;
    let at = usize::try_from(seed % count).ok()?;
    choices.get(at).map(|(at, _)| *at)
}

fn is_measured(ingress: &Choosable) -> bool {
    ingress.terms.iter().any(|term| match term {
        Term::Client { evidence, .. } => *evidence == EvidenceShown::MeasuredPrefix,
        Term::Backbone { .. } | Term::PopLoad { .. } | Term::RegionLoad { .. } => false,
    })
}
