//! Exploration: now and then a client is sent to another plausible ingress, so that it is measured at all.
//!
//! A few clients, chosen by a hash of prefix and ten-minute epoch: the same at every node, and for all clients of the prefix.
//! Only for media and only by HTTP: DNS answers are kept by resolvers for clients that nobody chose. The region stays when the
//! request fixes it; else an ingress without a link to the best region is tried for the nearest region it has. What an
//! administrator's rule names is not left: of candidates that it names only others that it names are tried.
//!
//! Few explorations are for what is known to be far: so that it is found again when its way has become shorter, and costs few
//! clients until then.

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
/// Of so many explorations one is for a measured ingress that is farther than [`KNOWN_WITHIN_MS`], however far, if there is one.
pub const FAR_EVERY: u64 = 16;

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
    pub(crate) known: Known,
}

/// What anybody like the client has measured of a way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It, lately.
    Measured,
    /// It, longer ago than counts: it costs no less than what it was.
    Before,
    /// Nothing.
    Never,
}

/// Which way is tried instead of the best: one that is usable, not avoided, named if the best is, and not absurdly far. Of those that
/// nobody like the client has measured one of the nearest; when all are measured any, so that none grows old. What is known to be far is
/// tried seldom, first what was measured longer ago than counts.
#[must_use]
pub(crate) fn pick(best: &Candidate, mut ways: Vec<Way>, seed: u64) -> Option<Way> {
    ways.retain(|Way { pop, .. }| {
        pop.index != best.index
            && pop.standing == Standing::Usable
            && pop.tier <= Tier::Ordinary
            && (is_named(pop.tier) || !is_named(best.tier))
    });
    ways.sort_by_key(|way| placed(&way.pop));
    let within = |way: &Way, ms: u32| way.pop.cost.total() <= best.cost.total().saturating_add(ms);
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    let (mut far, mut far_before) = (Vec::new(), Vec::new());
    for way in ways {
        match way.known {
            Known::Measured if within(&way, KNOWN_WITHIN_MS) => known.push(way),
            Known::Measured => far.push(way),
            Known::Before | Known::Never if within(&way, WITHIN_MS) => unknown.push(way),
            Known::Before => far_before.push(way),
            Known::Never => {}
        }
    }
    unknown.truncate(NEAREST);
    if !far_before.is_empty() {
        far = far_before;
    }
    let (turn, seed) = (seed % FAR_EVERY, seed / FAR_EVERY);
    let choices = if turn == 0 && !far.is_empty() {
        far
    } else if unknown.is_empty() {
        known
    } else {
        unknown
    };
    let count = u64::try_from(choices.len())
        .ok()
        .filter(|count| *count > 0)?;
    let at = usize::try_from(seed % count).ok()?;
    choices.get(at).copied()
}

/// Whether a rule names the candidate.
pub(crate) const fn is_named(tier: Tier) -> bool {
    match tier {
        Tier::Named(_) => true,
        Tier::Ordinary | Tier::Standby | Tier::Avoided => false,
    }
}
