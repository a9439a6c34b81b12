//! Which sessions a media stream may be of, by the SSRC that SRTP leaves in the clear.
//!
//! A stream is known once a packet of it has verified. Clients choose SSRCs, so two sessions may have one in common: each of
//! a few gets its try, and one more finds no place until another leaves. What is found is a guess that the media engine confirms.

use hashbrown::HashMap;
use wire::stun::PacketKind;

use crate::sessions::Slot;

/// Sessions that may have one SSRC in common.
pub(crate) const CLAIMANTS_MAX: usize = 3;
/// Streams of a session that are known at a time.
pub(crate) const STREAMS_MAX: usize = 4;

/// Sessions of one SSRC, in the order they came.
pub type Claimants = [Option<Slot>; CLAIMANTS_MAX];

/// See the module head. As many entries as all sessions have streams, at most.
pub(crate) struct Streams(HashMap<u32, Claimants, foldhash::fast::FixedState>);

impl Streams {
    pub(crate) fn new(seed: u64) -> Self {
        Self(HashMap::with_hasher(foldhash::fast::FixedState::with_seed(
            seed,
        )))
    }

    /// The caller knows that `slot` has no entry at `ssrc`. Whether it found a place.
    pub(crate) fn add(&mut self, ssrc: u32, slot: Slot) -> bool {
        let claimants = self.0.entry(ssrc).or_default();
        let place = claimants.iter_mut().find(|place| place.is_none());
        let placed = place.is_some();
        if let Some(place) = place {
            *place = Some(slot);
        }
        placed
    }

    pub(crate) fn remove(&mut self, ssrc: u32, slot: Slot) {
        let Some(claimants) = self.0.get_mut(&ssrc) else {
            return;
        };
        for place in claimants.iter_mut().filter(|place| **place == Some(slot)) {
            *place = None;
        }
        if claimants.iter().all(Option::is_none) {
            self.0.remove(&ssrc);
        }
    }

    /// Whose it may be; all `None`: nobody's.
    pub(crate) fn find(&self, ssrc: u32) -> Claimants {
        self.0.get(&ssrc).copied().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The sender's SSRC of an RTP (RFC 3550 §5.1) or RTCP packet (§6.4), and whether it is RTCP (RFC 5761 §4).
pub(crate) fn ssrc_of(packet: &[u8]) -> Option<(u32, bool)> {
    if PacketKind::of(packet) != PacketKind::Rtp {
        return None;
    }
    let rtcp = matches!(packet.get(1), Some(192..=223));
    let at = if rtcp { 4 } else { 8 };
    let bytes = packet.get(at..)?.first_chunk()?;
    Some((u32::from_be_bytes(*bytes), rtcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_sessions_may_share_an_ssrc() {
        let mut streams = Streams::new(1);
        assert_eq!(streams.find(7), [None; 3]);
        for slot in 0..5 {
            assert_eq!(streams.add(7, Slot(slot)), slot < 3, "three have a place");
        }
        assert_eq!(
            streams.find(7),
            [Some(Slot(0)), Some(Slot(1)), Some(Slot(2))]
        );
        streams.remove(7, Slot(1));
        streams.remove(7, Slot(4));
        streams.remove(8, Slot(0));
        assert_eq!(streams.find(7), [Some(Slot(0)), None, Some(Slot(2))]);
        assert!(streams.add(7, Slot(4)));
        assert_eq!(
            streams.find(7),
            [Some(Slot(0)), Some(Slot(4)), Some(Slot(2))]
        );
        for slot in [0, 4, 2] {
            streams.remove(7, Slot(slot));
        }
        assert_eq!(streams.len(), 0);
    }

    #[test]
    fn where_the_ssrc_is() {
        let packet = [0x80, 200, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_eq!(ssrc_of(&packet), Some((5, true)));
        let packet = [0x80, 111, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_eq!(ssrc_of(&packet), Some((9, false)));
        assert_eq!(ssrc_of(&packet[..11]), None);
        assert_eq!(ssrc_of(&[23; 40]), None);
        assert_eq!(ssrc_of(&[]), None);
    }
}
