//! How many packets of clients that nobody here knows are offered to owners that may know them: a few of each client, and a
//! rate of each source prefix and in all.
//!
//! A client is known by 32 bits of its hash within its set. Where more clients are remembered than there is room for, the one that would
//! be forgotten first is forgotten; the rates hold for all the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::ClientAddr;

use crate::neighbours::Neighbours;
use crate::recovery::limits::{Exceeded, Rate, Rates, low_bits};
use crate::verdict::DropReason;

/// Packets of one client within [`WINDOW`]: what a voice sends while its owner answers over a long backbone.
pub(crate) const PER_CLIENT_MAX: u8 = 16;
/// So long the packets of one client are counted together.
const WINDOW: Duration = Duration::from_secs(5);
/// Packets a second, and at once, of one IPv4 /24 or IPv6 /56, of all workers: the kernel gives its ports to all of them.
const PER_PREFIX_PER_S: u32 = 128;
const PER_PREFIX_BURST: u32 = 256;
/// Packets a second, and at once, of one worker.
const PER_S: u32 = 4_000;
const BURST: u32 = 1_000;
const SETS: usize = 1024;
const WAYS: usize = 4;

pub(crate) struct Offers {
    pub(crate) neighbours: Arc<Neighbours>,
    pub(crate) enabled: bool,
    epoch: Instant,
    rates: Rates,
    spent: Box<[[Spent; WAYS]]>,
}

#[derive(Clone, Copy, Default)]
struct Spent {
    tag: u32,
    /// Tenths of a second since the epoch.
    until: u32,
    packets: u8,
}

impl Offers {
    /// For one of `workers`.
    pub(crate) fn new(neighbours: Arc<Neighbours>, workers: u8, seed: u64, now: Instant) -> Self {
        let workers = u32::from(workers.max(1));
        // One client that roamed has all its packets at one worker.
        let burst = (PER_PREFIX_BURST / workers).max(PER_CLIENT_MAX.into());
        Self {
            neighbours,
            enabled: true,
            epoch: now,
            rates: Rates::new(
                Rate::new(PER_PREFIX_PER_S / workers, burst),
                Rate::new(PER_S, BURST),
                seed,
                now,
            ),
            spent: vec![[Spent::default(); WAYS]; SETS].into_boxed_slice(),
        }
    }

    /// Takes a place for one packet of the client with this hash.
    pub(crate) fn take(
        &mut self,
        hash: u64,
        client: ClientAddr,
        now: Instant,
    ) -> Result<(), DropReason> {
        let tenth = self.tenth(now);
        let until = self.tenth(now + WINDOW);
        let tag = u32::try_from(hash >> 32).unwrap_or_default();
        let set = self.spent.get_mut(low_bits(hash, SETS));
        let set = set.ok_or(DropReason::OfferClient)?;
        let known = |spent: &Spent| spent.tag == tag && spent.until > tenth;
        let place = set
            .iter_mut()
            .min_by_key(|spent| (!known(spent), spent.until))
            .ok_or(DropReason::OfferClient)?;
        let mut spent = *place;
        if !known(place) {
            spent = Spent {
                tag,
                until,
                packets: 0,
            };
        }
        if spent.packets >= PER_CLIENT_MAX {
            return Err(DropReason::OfferClient);
        }
        self.rates
            .take(client, now)
            .map_err(|exceeded| match exceeded {
                Exceeded::Prefix => DropReason::OfferPrefixRate,
                Exceeded::Total => DropReason::OfferRate,
            })?;
        spent.packets += 1;
        *place = spent;
        Ok(())
    }

    fn tenth(&self, now: Instant) -> u32 {
        let tenths = now.saturating_duration_since(self.epoch).as_millis() / 100;
        u32::try_from(tenths).unwrap_or(u32::MAX)
    }

    /// Bytes taken from the allocator by this worker alone.
    pub(crate) fn bytes(&self) -> usize {
        self.rates.bytes() + self.spent.len() * size_of::<[Spent; WAYS]>()
    }
}
