//! Where packets pass that a round trip can be timed by. Most packets are none of these, and their first byte says so.

use std::time::Instant;

use wire::stun::{self, Class, METHOD_BINDING, PacketKind};
use wire::{Owner, RegionId};

use super::{Arrival, Flows, Now};
use crate::medians::Sample;
use crate::timing::{Micros, Passage};

impl Flows {
    /// A packet of a client passes to its owner.
    pub(super) fn time_uplink(&mut self, from: &Arrival, packet: &[u8], now: Now) {
        match PacketKind::of(packet) {
            PacketKind::Rtp | PacketKind::Other => {}
            PacketKind::Dtls => self.timing.dtls_up(self.passage(from, now), packet),
            PacketKind::Stun => {
                if let Ok(header) = stun::parse(packet)
                    && header.method == METHOD_BINDING
                {
                    let passage = self.passage(from, now);
                    self.timing
                        .response_up(passage, header.class, header.transaction_id);
                }
            }
        }
    }

    /// A packet of an owner goes to a client that it has authenticated.
    pub(super) fn time_downlink(&mut self, to: &Arrival, owner: Owner, packet: &[u8], now: Now) {
        match PacketKind::of(packet) {
            PacketKind::Rtp | PacketKind::Other => {}
            PacketKind::Dtls => self.timing.dtls_down(self.passage(to, now), packet),
            PacketKind::Stun => {
                if let Ok(header) = stun::parse(packet)
                    && header.method == METHOD_BINDING
                {
                    let (passage, id) = (self.passage(to, now), header.transaction_id);
                    match header.class {
                        Class::Request => self.timing.request_down(passage, id),
                        Class::Success => self.timing.response_down(passage, owner.region, id),
                        Class::Indication | Class::Error => {}
                    }
                }
            }
        }
    }

    /// Round trips of clients that have settled, to be taken after each batch.
    pub fn next_sample(&mut self) -> Option<Sample> {
        self.timing.next_sample()
    }

    /// The least of the latest round trips from here to owners in each region and back, in microseconds.
    pub fn owner_rtts(&self) -> impl Iterator<Item = (RegionId, u32)> {
        self.timing.owner_rtts()
    }

    pub(super) fn passage(&self, of: &Arrival, now: Now) -> Passage {
        Passage {
            client: of.source.client,
            hash: of.hash,
            tick: of.tick,
            at: self.micros(now.instant),
        }
    }

    fn micros(&self, now: Instant) -> Micros {
        let since = now.saturating_duration_since(self.epoch);
        Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
    }
}
