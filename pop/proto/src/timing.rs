//! Round trips, timed by what passes through anyway. Nothing is decrypted, nothing is sent.
//!
//! ```text
//!  client side   PoP ── DTLS flight of the owner ──► client ── its next flight ──► PoP        at set-up
//!                PoP ── Binding request of the owner ──► client ── its response ──► PoP       if the owner checks at all
//!  owner side    PoP ── Binding request of a client ──► owner ── its response ──► PoP
//! ```
//!
//! The first passage of a question and the first passage of its answer count, so that a retransmission can make a round trip too long and
//! never too short; of what is timed within [`WINDOW`] the least is the flow's sample. Only committed flows are timed. The samples carry nothing of
//! why the client came here.
//!
//! What is timed lives in tables of fixed size beside the flows, taken at the start. A flow whose place is taken is not timed, and is
//! counted: samples are a sample.

mod dtls;
mod owner;

use std::collections::VecDeque;

use wire::stun::Class;
use wire::{ClientAddr, RegionId};

use self::dtls::{Awaited, Record};
use self::owner::OwnerTimes;
use crate::flow::{FlowKey, TICKS_PER_S, Tick};
use crate::medians::Sample;

/// Flows that are timed at the same time, at most.
const TIMED_MAX: usize = 4096;
/// So long after the first question a flow's sample is settled.
pub(crate) const WINDOW: u32 = 10 * TICKS_PER_S;
/// A longer round trip is none: somebody waited for something else.
pub(crate) const RTT_US_MAX: u64 = 2_000_000;
/// Samples that wait to be taken.
const SAMPLES_MAX: usize = 1024;
/// Places that are looked at when the hand moves: all of them about once a second.
const SWEEP: usize = 64;

/// Microseconds since the table of flows was made.
pub(crate) type Micros = u64;

/// See the module head.
pub(crate) struct Timing {
    places: Box<[Option<Timed>]>,
    hand: usize,
    samples: VecDeque<Sample>,
    owner: OwnerTimes,
    pub(crate) totals: TimingStats,
}

/// What became of the timing, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimingStats {
    /// Samples of clients.
    pub samples: u64,
    /// Packets of flows that were not timed by them, because their place was taken.
    pub untimed: u64,
    /// Samples that nobody took in time.
    pub samples_lost: u64,
    /// Round trips to owners.
    pub owner_samples: u64,
}

struct Timed {
    client: ClientAddr,
    hash: u64,
    since: Tick,
    rtt_us: Option<u32>,
    dtls: Awaited,
    request: Option<Request>,
}

/// A Binding request under way.
#[derive(Clone, Copy)]
struct Request {
    id: [u8; 12],
    sent: Micros,
}

/// A flow and the moment at which something of it passes.
#[derive(Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) client: ClientAddr,
    /// The hash of its [`FlowKey`].
    pub(crate) hash: u64,
    pub(crate) tick: Tick,
    pub(crate) at: Micros,
}

impl Timing {
    pub(crate) fn new() -> Self {
        let none = std::iter::repeat_with(|| None);
        Self {
            places: none.take(TIMED_MAX).collect(),
            hand: 0,
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            owner: OwnerTimes::new(),
            totals: TimingStats::default(),
        }
    }

    /// A DTLS packet of the owner goes to the client.
    pub(crate) fn dtls_down(&mut self, passage: Passage, packet: &[u8]) {
        if let Record::Handshake(message) = dtls::read(packet)
            && let Some(timed) = self.begin(passage)
        {
            timed.dtls.sent(message, passage.at);
        }
    }

    /// A DTLS packet of the client passes.
    pub(crate) fn dtls_up(&mut self, passage: Passage, packet: &[u8]) {
        let record = dtls::read(packet);
        if record != Record::Other
            && let Some(timed) = self.find(passage)
            && let Some(sent) = timed.dtls.answered(record)
        {
            timed.took(passage.at.saturating_sub(sent));
        }
    }

    /// A Binding request of the owner goes to the client.
    pub(crate) fn request_down(&mut self, passage: Passage, id: [u8; 12]) {
        if let Some(timed) = self.begin(passage)
            && timed.request.is_none_or(|request| request.id != id)
        {
            let sent = passage.at;
            timed.request = Some(Request { id, sent });
        }
    }

    /// A response of the client passes.
    pub(crate) fn response_up(&mut self, passage: Passage, class: Class, id: [u8; 12]) {
        if class == Class::Success
            && let Some(timed) = self.find(passage)
            && let Some(request) = timed.request.take_if(|request| request.id == id)
        {
            timed.took(passage.at.saturating_sub(request.sent));
        }
    }

    /// A Binding request of the client passes to its owner.
    pub(crate) fn request_up(&mut self, passage: Passage, id: [u8; 12]) {
        self.owner.asked(passage, id);
    }

    /// A response of the owner goes to the client.
    pub(crate) fn response_down(&mut self, passage: Passage, region: RegionId, id: [u8; 12]) {
        let counted = self.owner.answered(passage, region, id);
        self.totals.owner_samples += u64::from(counted);
    }

    /// The least of the latest round trips to owners in each region, in microseconds.
    pub(crate) fn owner_rtts(&self) -> impl Iterator<Item = (RegionId, u32)> {
        self.owner.rtts()
    }

    /// The flow's place, which it gets if nobody has it.
    fn begin(&mut self, passage: Passage) -> Option<&mut Timed> {
        let place = self.places.get_mut(place_of(passage.hash))?;
        if place.as_ref().is_some_and(|timed| !timed.is(&passage)) {
            self.totals.untimed += 1;
            return None;
        }
        Some(place.get_or_insert_with(|| Timed::new(&passage)))
    }

    fn find(&mut self, passage: Passage) -> Option<&mut Timed> {
        let timed = self.places.get_mut(place_of(passage.hash))?.as_mut()?;
        timed.is(&passage).then_some(timed)
    }

    /// Settles what is due among a few places.
    pub(crate) fn sweep(&mut self, now: Tick) {
        for _ in 0..SWEEP {
            let hand = self.hand;
            self.hand = (hand + 1) % TIMED_MAX;
            let place = self.places.get_mut(hand);
            let due = |timed: &mut Timed| now.since(timed.since) >= WINDOW;
            let settled = place.and_then(|place| place.take_if(due));
            if let Some(rtt_us) = settled.as_ref().and_then(|timed| timed.rtt_us)
                && let Some(timed) = settled
            {
                self.totals.samples += 1;
                if self.samples.len() < SAMPLES_MAX {
                    self.samples.push_back(Sample::of(timed.client, rtt_us));
                } else {
                    self.totals.samples_lost += 1;
                }
            }
        }
    }

    pub(crate) fn next_sample(&mut self) -> Option<Sample> {
        self.samples.pop_front()
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places)
            + self.samples.capacity() * size_of::<Sample>()
            + self.owner.bytes()
    }
}

impl Timed {
    fn new(passage: &Passage) -> Self {
        Self {
            client: passage.client,
            hash: passage.hash,
            since: passage.tick,
            rtt_us: None,
            dtls: Awaited::default(),
            request: None,
        }
    }

    fn is(&self, passage: &Passage) -> bool {
        self.hash == passage.hash && FlowKey::new(self.client) == FlowKey::new(passage.client)
    }

    fn took(&mut self, us: Micros) {
        if us <= RTT_US_MAX
            && let Ok(us) = u32::try_from(us)
        {
            // A client on the same machine may be there and back within one batch.
            let us = us.max(1);
            self.rtt_us = Some(self.rtt_us.map_or(us, |least| least.min(us)));
        }
    }
}

fn place_of(hash: u64) -> usize {
    usize::try_from(hash % (TIMED_MAX as u64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(host: u8, ms: u64) -> Passage {
        let client = ClientAddr::new(([192, 0, 2, host], 4000).into());
        Passage {
            client,
            hash: host.into(),
            tick: Tick(u32::try_from(ms / 100).unwrap()),
            at: ms * 1000,
        }
    }

    fn settle(timing: &mut Timing, tick: u32) -> Vec<Sample> {
        for _ in 0..TIMED_MAX / SWEEP {
            timing.sweep(Tick(tick));
        }
        std::iter::from_fn(|| timing.next_sample()).collect()
    }

    fn id(n: u8) -> [u8; 12] {
        [n; 12]
    }

    #[test]
    fn the_least_of_a_window_is_the_sample() {
        let mut timing = Timing::new();
        for (n, sent, answered) in [(1, 0, 50), (2, 2500, 2540), (3, 5000, 5090)] {
            timing.request_down(passage(7, sent), id(n));
            timing.response_up(passage(7, answered), Class::Success, id(n));
        }
        assert!(settle(&mut timing, WINDOW - 1).is_empty());
        let sample = Sample::of(passage(7, 0).client, 40_000);
        assert_eq!(settle(&mut timing, WINDOW), [sample]);
        assert!(settle(&mut timing, WINDOW).is_empty(), "once");
    }

    #[test]
    fn a_retransmission_never_makes_it_shorter() {
        let mut timing = Timing::new();
        timing.request_down(passage(7, 0), id(1));
        timing.request_down(passage(7, 500), id(1));
        timing.response_up(passage(7, 600), Class::Success, id(1));
        assert_eq!(settle(&mut timing, WINDOW)[0].rtt_us, 600_000);
    }

    #[test]
    fn what_answers_nothing_is_no_round_trip() {
        let mut timing = Timing::new();
        timing.response_up(passage(7, 1), Class::Success, id(1));
        timing.request_down(passage(7, 2), id(1));
        timing.response_up(passage(7, 3), Class::Success, id(2));
        timing.response_up(passage(7, 4), Class::Error, id(1));
        timing.response_up(passage(8, 5), Class::Success, id(1));
        // Somebody waited for something else.
        timing.response_up(passage(7, 2003), Class::Success, id(1));
        timing.response_up(passage(7, 2004), Class::Success, id(1));
        assert!(settle(&mut timing, WINDOW).is_empty());
        assert_eq!(timing.totals.samples, 0);
    }

    #[test]
    fn a_taken_place_and_a_full_queue_are_counted() {
        let mut timing = Timing::new();
        let other = Passage {
            hash: 7 + TIMED_MAX as u64,
            ..passage(8, 0)
        };
        timing.request_down(passage(7, 0), id(1));
        timing.request_down(other, id(1));
        assert_eq!(timing.totals.untimed, 1);
        let place = |n: usize| Passage {
            hash: n as u64,
            ..passage(7, 0)
        };
        for n in 0..=SAMPLES_MAX {
            timing.request_down(place(n), id(1));
            let answered = Passage { at: 5, ..place(n) };
            timing.response_up(answered, Class::Success, id(1));
        }
        assert_eq!(settle(&mut timing, WINDOW).len(), SAMPLES_MAX);
        assert_eq!(timing.totals.samples_lost, 1);
    }

    #[test]
    fn it_weighs_next_to_nothing() {
        assert!(
            size_of::<Option<Timed>>() <= 128,
            "{}",
            size_of::<Option<Timed>>()
        );
        assert!(Timing::new().bytes() < 600 * 1024);
    }
}
