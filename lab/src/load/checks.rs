//! When libwebrtc says a connectivity check again: soon after one that was not answered, and not only at the next regular one.
//! `rtc` knows regular checks alone, so its last request is repeated here, byte by byte; the answer is one to its own request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::stun::{self, Class, PacketKind};

/// The check that waits for its answer, if one does.
#[derive(Debug)]
pub(super) struct Checks {
    after: Duration,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    to: SocketAddr,
    request: Vec<u8>,
    said: Instant,
}

impl Checks {
    pub(super) const fn new(after: Duration) -> Self {
        Self {
            after,
            waiting: None,
        }
    }

    pub(super) fn handle_sent(&mut self, to: SocketAddr, packet: &[u8], now: Instant) {
        if class(packet) == Some(Class::Request) {
            self.waiting = Some(Waiting {
                to,
                request: packet.to_vec(),
                said: now,
            });
        }
    }

    pub(super) fn handle_received(&mut self, packet: &[u8]) {
        if class(packet) == Some(Class::Success) {
            self.waiting = None;
        }
    }

    /// What to say again.
    pub(super) fn due(&mut self, now: Instant) -> Option<(SocketAddr, &[u8])> {
        let after = self.after;
        let waiting = self.waiting.as_mut()?;
        if now.saturating_duration_since(waiting.said) < after {
            return None;
        }
        waiting.said = now;
        Some((waiting.to, &waiting.request))
    }
}

fn class(packet: &[u8]) -> Option<Class> {
    if PacketKind::of(packet) != PacketKind::Stun {
        return None;
    }
    stun::parse(packet).ok().map(|header| header.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare Binding message of this type.
    fn binding(kind: u16) -> Vec<u8> {
        let [high, low] = kind.to_be_bytes();
        let mut message = vec![high, low, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        message.extend([7; 12]);
        message
    }

    #[test]
    fn a_request_is_said_again_until_it_is_answered() {
        let start = runtime::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let to = SocketAddr::from(([192, 0, 2, 1], 3478));
        let mut checks = Checks::new(Duration::from_millis(900));
        assert_eq!(checks.due(at(0)), None);
        let request = binding(0x0001);
        checks.handle_sent(to, &request, at(0));
        checks.handle_sent(to, &[0x80; 40], at(100));
        assert_eq!(checks.due(at(899)), None);
        assert_eq!(checks.due(at(900)), Some((to, &*request)));
        assert_eq!(checks.due(at(1_700)), None);
        assert_eq!(checks.due(at(1_800)), Some((to, &*request)));
        checks.handle_received(&binding(0x0101));
        assert_eq!(checks.due(at(9_000)), None);
    }
}
