//! One 127.R.0.0/16 per network, held by a listening socket: two runs of any process never share one.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context;

/// Second octets in use; below are the addresses of people and of the sample topology.
const OCTETS: RangeInclusive<u8> = 64..=250;
/// Port of the socket that holds a range.
const HOLD_PORT: u16 = 4999;

static NEXT: AtomicU8 = AtomicU8::new(0);

/// A range, until dropped.
#[derive(Debug)]
pub(super) struct Range {
    octet: u8,
    _hold: TcpListener,
}

impl Range {
    /// The next free one; where to start looking differs by process and by call.
    pub(super) fn take() -> anyhow::Result<Self> {
        let [low, ..] = std::process::id().to_le_bytes();
        let first = low.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        octets_from(first)
            .find_map(|octet| {
                let hold = (Ipv4Addr::new(127, octet, 255, 254), HOLD_PORT);
                let hold = TcpListener::bind(hold).ok()?;
                Some(Self { octet, _hold: hold })
            })
            .context("every 127.R.0.0/16 is taken by another run")
    }

    pub(super) const fn octet(&self) -> u8 {
        self.octet
    }
}

/// Each of [`OCTETS`] once. Neighbours begin at neighbours: networks of one process begin at different octets, even where namespaces hide from
/// each what the others hold.
fn octets_from(first: u8) -> impl Iterator<Item = u8> {
    let count = OCTETS.count();
    OCTETS.cycle().skip(usize::from(first) % count).take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_begin_at_different_octets_and_each_octet_comes_once() {
        for first in 0..=u8::MAX {
            let mut octets: Vec<_> = octets_from(first).collect();
            let next = octets_from(first.wrapping_add(1)).next();
            assert_ne!(octets.first().copied(), next, "{first}");
            octets.sort_unstable();
            assert!(octets.into_iter().eq(OCTETS), "{first}");
        }
    }
}
