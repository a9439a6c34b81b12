//! The congestion controller of a link: a constant window.
//!
//! Media is congestion-controlled end to end by WebRTC, and the backbone is provisioned. A controller that halves on
//! loss delivers a few percent of the media at 1 % loss and 80 ms (Cubic: 2.6 %); this one delivers what the path
//! does. The window doubles as a rate cap, because quinn paces at 1.25 windows per round trip.
//!
//! quinn's own controllers can be chosen instead, so that a simulation can show what they do to media. No program does.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::congestion::{
    BbrConfig, Controller, ControllerFactory, CubicConfig, NewRenoConfig,
};
use topology::Link;

/// Which congestion controller the links of a worker have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// A window that never changes: what every program uses.
    #[default]
    ConstantWindow,
    /// quinn's default, for comparison in simulations only.
    Cubic,
    /// For comparison in simulations only.
    NewReno,
    /// For comparison in simulations only.
    Bbr,
}

impl Congestion {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::ConstantWindow, Self::Cubic, Self::NewReno, Self::Bbr];

    pub(crate) fn factory(self, link: &Link) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::ConstantWindow => Arc::new(ConstantWindow::of(link)),
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::NewReno => Arc::new(NewRenoConfig::default()),
            Self::Bbr => Arc::new(BbrConfig::default()),
        }
    }
}

/// Packets the window holds at least, whatever the rate: a handshake and a burst of voice must fit.
const WINDOW_PACKETS_MIN: u64 = 32;

/// A window that never changes.
#[derive(Clone, Debug)]
pub(crate) struct ConstantWindow {
    bytes: u64,
}

impl ConstantWindow {
    /// Provisioned rate x round-trip time x 1.25.
    pub(crate) fn of(link: &Link) -> Self {
        let bytes_per_ms = u64::from(link.rate_mbps) * 125;
        let product = bytes_per_ms * u64::from(link.rtt_ms);
        let floor = WINDOW_PACKETS_MIN * u64::from(link.mtu_bytes);
        Self {
            bytes: (product + product / 4).max(floor),
        }
    }
}

impl ControllerFactory for ConstantWindow {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Self::clone(&self))
    }
}

impl Controller for ConstantWindow {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.bytes
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.bytes
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rate_mbps: u32, rtt_ms: u32) -> Link {
        Link {
            rate_mbps,
            rtt_ms,
            ..Link::default()
        }
    }

    #[test]
    fn window_is_rate_times_rtt_times_five_quarters() {
        assert_eq!(
            ConstantWindow::of(&link(1000, 200)).window(),
            25_000_000 * 5 / 4
        );
        assert_eq!(
            ConstantWindow::of(&link(400_000, 1000)).window(),
            62_500_000_000
        );
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn programs_get_the_window_that_never_changes() {
        let link = link(1000, 200);
        let constant = ConstantWindow::of(&link).window();
        let window =
            |choice: Congestion| choice.factory(&link).build(Instant::now(), 1452).window();
        assert_eq!(window(Congestion::default()), constant);
        for other in [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr] {
            assert!(window(other) < constant / 100, "{other:?} starts slowly");
        }
    }

    #[test]
    fn a_slow_link_still_holds_a_burst() {
        assert_eq!(ConstantWindow::of(&link(1, 1)).window(), 32 * 1452);
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "any instant will do: the controller ignores it"
    )]
    fn loss_does_not_move_the_window() {
        let mut controller = ConstantWindow::of(&link(1000, 200));
        let before = controller.window();
        let now = Instant::now();
        for _ in 0..1000 {
            controller.on_congestion_event(now, now, true, 1 << 20);
            controller.on_mtu_update(1200);
        }
        assert_eq!(controller.window(), before);
    }
}
