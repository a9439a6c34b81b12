//! What programs export of a link, declared once. Each program has its own prefix and names the two ends in labels.

use crate::link::LinkStats;

/// One figure of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkFigure {
    /// Its name at a PoP.
    pub pop: &'static str,
    /// Its name at a core relay.
    pub core_relay: &'static str,
    /// UCUM unit.
    pub unit: &'static str,
    /// One line; "the peer" is the other end of the link.
    pub help: &'static str,
    /// Whether it only rises.
    pub rises: bool,
    /// Its value.
    pub read: fn(&LinkStats) -> u64,
}

macro_rules! figure {
    ($kind:ident $name:literal, $unit:literal, $help:literal, $read:expr) => {
        LinkFigure {
            pop: concat!("pop.link.", $name),
            core_relay: concat!("core_relay.link.", $name),
            unit: $unit,
            help: $help,
            rises: figure!(@$kind),
            read: $read,
        }
    };
    (@gauge) => { false };
    (@counter) => { true };
}

/// Every figure, the most important first.
pub const LINK_FIGURES: [LinkFigure; 10] = [
    figure!(gauge "up", "", "Whether the link is up.", |link| {
        u64::from(link.up_since.is_some())
    }),
    figure!(gauge "rtt_us", "us", "Smoothed round-trip time.", |link| link.rtt_us.into()),
    figure!(gauge "jitter_us", "us", "Smoothed variation of the round-trip time.", |link| {
        link.jitter_us.into()
    }),
    figure!(gauge "loss_ppm", "ppm", "Loss from the peer to this node.", |link| {
        link.loss_ppm.into()
    }),
    figure!(gauge "peer_loss_ppm", "ppm", "Loss from this node to the peer.", |link| {
        link.peer_loss_ppm.into()
    }),
    figure!(counter "came_up", "{link}", "How often the link came up.", |link| link.ups),
    figure!(
        counter "suspected",
        "{link}",
        "How often one end of the link had not heard the other for `suspect_after_ms`.",
        |link| link.suspected
    ),
    figure!(
        counter "datagrams_arrived",
        "{datagram}",
        "Datagrams of the peer that arrived, heartbeats included.",
        |link| link.arrivals.received
    ),
    figure!(
        counter "datagrams_lost",
        "{datagram}",
        "Datagrams of the peer that did not arrive within the 127 after them.",
        |link| link.arrivals.lost
    ),
    figure!(
        counter "datagrams_reordered",
        "{datagram}",
        "Datagrams of the peer that arrived after later ones.",
        |link| link.arrivals.reordered
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_differ_only_in_the_program() {
        for (index, figure) in LINK_FIGURES.iter().enumerate() {
            let bare = |name: &'static str| name.rsplit_once('.').unwrap().1;
            assert_eq!(bare(figure.pop), bare(figure.core_relay));
            let earlier = LINK_FIGURES.iter().take(index);
            assert!(
                earlier
                    .map(|other| other.pop)
                    .all(|name| name != figure.pop)
            );
        }
    }
}
