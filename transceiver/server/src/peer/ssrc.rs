//! Which SSRCs of a client reach the media engine.
//!
//! The engine keeps state for every SSRC it is shown, before it has verified anything. So it is shown those that the offer
//! declared, those that have proved themselves, and a bounded number of others, in case a client declares none. Whoever
//! sends packets of invented SSRCs from a client's address spends only that number.

/// SSRCs read from one offer at most.
const DECLARED_MAX: usize = 64;
/// SSRCs that proved themselves, at most.
const PROVEN_MAX: usize = 32;
/// Others, from one offer to the next.
const TRIALS_MAX: usize = 64;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct SsrcGate {
    declared: Vec<u32>,
    proven: Vec<u32>,
    trials: Vec<u32>,
}

impl SsrcGate {
    /// An offer was accepted: what it declares (RFC 5576 §4.1) may come.
    pub(super) fn declare(&mut self, offer: &str) {
        self.trials.clear();
        self.declared.clear();
        for line in offer.lines() {
            let number = line
                .strip_prefix("a=ssrc:")
                .and_then(|rest| rest.split([' ', '\r']).next())
                .and_then(|number| number.parse().ok());
            if let Some(ssrc) = number
                && !self.declared.contains(&ssrc)
                && self.declared.len() < DECLARED_MAX
            {
                self.declared.push(ssrc);
            }
        }
    }

    /// Whether the engine may see a packet of `ssrc`.
    pub(super) fn admit(&mut self, ssrc: u32) -> bool {
        if [&self.proven, &self.declared, &self.trials]
            .iter()
            .any(|known| known.contains(&ssrc))
        {
            return true;
        }
        if self.trials.len() >= TRIALS_MAX {
            return false;
        }
        self.trials.push(ssrc);
        true
    }

    /// A packet of `ssrc` was authentic.
    pub(super) fn prove(&mut self, ssrc: u32) {
        if !self.proven.contains(&ssrc) && self.proven.len() < PROVEN_MAX {
            self.proven.push(ssrc);
            self.trials.retain(|trial| *trial != ssrc);
        }
    }
}

/// The sender's SSRC of an RTP (RFC 3550 §5.1) or RTCP packet (§6.4); SRTP leaves it in the clear. `None`: too short.
pub(super) fn ssrc_of(packet: &[u8], rtcp: bool) -> Option<u32> {
    let at = if rtcp { 4 } else { 8 };
    let bytes = packet.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_ssrcs_are_bounded_and_shut_nobody_out_who_is_known() {
        let mut gate = SsrcGate::default();
        gate.declare("a=ssrc:7 cname:x\r\na=ssrc:7 msid:y\r\na=ssrc:8\r\na=ssrc:x\r\na=ssrc:\r\n");
        assert_eq!(gate.declared, [7, 8]);
        assert!(gate.admit(1000));
        gate.prove(1000);
        let admitted = (2000..100_000).filter(|ssrc| gate.admit(*ssrc)).count();
        assert_eq!(admitted, TRIALS_MAX);
        assert!(gate.admit(7) && gate.admit(8) && gate.admit(1000) && gate.admit(2000));
        assert!(!gate.admit(1));
        gate.declare("a=ssrc:9 cname:x\r\n");
        assert!(gate.admit(1) && gate.admit(9) && gate.admit(1000));
    }

    #[test]
    fn lists_are_bounded() {
        let mut gate = SsrcGate::default();
        let offer: String = (0..500)
            .map(|n| format!("a=ssrc:{n} cname:x\r\n"))
            .collect();
        gate.declare(&offer);
        (0..500).for_each(|ssrc| gate.prove(ssrc));
        assert_eq!(
            (gate.declared.len(), gate.proven.len()),
            (DECLARED_MAX, PROVEN_MAX)
        );
    }

    #[test]
    fn where_the_ssrc_is() {
        let packet = [0x80, 200, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9];
        assert_eq!(ssrc_of(&packet, true), Some(5));
        assert_eq!(ssrc_of(&packet, false), Some(9));
        assert_eq!(ssrc_of(&packet[..11], false), None);
        assert_eq!(ssrc_of(&[], true), None);
    }
}
