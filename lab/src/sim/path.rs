//! One direction between two sites: delay, jitter, loss, reordering, duplication, a rate with a bounded queue, a packet
//! size that does not pass, a cut. It decides the fate of each packet, in simulated worlds and in the WAN emulator.

use std::time::Duration;

use super::random::Random;

/// What a path does to packets. The default does nothing to them.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// One way.
    pub delay: Duration,
    /// Up to so much more, evenly spread.
    pub jitter: Duration,
    /// Whether jitter lets packets overtake each other.
    pub reorders: bool,
    /// What is lost by chance.
    pub loss: Loss,
    /// How many in a million overtake: the delay does not hold for them.
    pub overtakes_ppm: u32,
    /// How many in a million arrive twice.
    pub duplicates_ppm: u32,
    /// The bottleneck, if there is one.
    pub rate: Option<Rate>,
    /// Nothing passes.
    pub cut: bool,
    /// Longer packets, IP header included, vanish without a word.
    pub packet_len_max: usize,
}

/// Loss by chance.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// None.
    None,
    /// Each packet for itself, so many in a million.
    Independent(u32),
    /// Gilbert-Elliott: each packet turns good to bad, and bad to good, with these chances in a million.
    Bursts {
        /// From good to bad.
        enter_ppm: u32,
        /// From bad to good.
        leave_ppm: u32,
        /// Lost while it is bad.
        bad_ppm: u32,
        /// Lost while it is good.
        good_ppm: u32,
    },
}

/// A bottleneck.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Thousands of bits a second, IP headers included.
    pub kbit_s: u64,
    /// A packet that would wait longer is lost: a queue bounded in time, and so in bytes.
    pub queue: Duration,
}

/// Why a path lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// By chance.
    Chance,
    /// The bottleneck's queue was full.
    Queue,
    /// The path is cut.
    Cut,
    /// Longer than what passes.
    TooLong,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after so long, and perhaps once more.
    Arrives(Duration, Option<Duration>),
    /// It does not.
    Lost(Cause),
}

/// Bytes of IPv4 and UDP headers.
pub const HEADERS_LEN: usize = 28;

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorders: false,
            loss: Loss::None,
            overtakes_ppm: 0,
            duplicates_ppm: 0,
            rate: None,
            cut: false,
            packet_len_max: usize::MAX,
        }
    }
}

/// One direction between two sites.
#[derive(Clone, Debug)]
pub struct Path {
    /// What it does to packets; may change at any time.
    pub conditions: Conditions,
    random: Random,
    bad: bool,
    /// When the bottleneck has sent what it has taken.
    free_at: Duration,
    /// When the last packet arrives, for a path that keeps order.
    last_arrival: Duration,
}

impl Path {
    /// A path with chances of its own.
    #[must_use]
    pub fn new(random: Random) -> Self {
        Self {
            conditions: Conditions::default(),
            random,
            bad: false,
            free_at: Duration::ZERO,
            last_arrival: Duration::ZERO,
        }
    }

    /// Decides what becomes of a packet of `len` bytes, IP header included, that is sent at `at`.
    pub fn send(&mut self, at: Duration, len: usize) -> Fate {
        if self.conditions.cut {
            return Fate::Lost(Cause::Cut);
        }
        if len > self.conditions.packet_len_max {
            return Fate::Lost(Cause::TooLong);
        }
        let Some(queued) = self.pass_bottleneck(at, len) else {
            return Fate::Lost(Cause::Queue);
        };
        if self.is_unlucky() {
            return Fate::Lost(Cause::Chance);
        }
        let arrival = self.arrival(at + queued);
        let again = self.random.chance(self.conditions.duplicates_ppm);
        let again = again.then(|| self.arrival(at + queued).saturating_sub(at));
        Fate::Arrives(arrival.saturating_sub(at), again)
    }

    fn arrival(&mut self, at: Duration) -> Duration {
        if self.random.chance(self.conditions.overtakes_ppm) {
            return at;
        }
        let jitter_ns = u64::try_from(self.conditions.jitter.as_nanos()).unwrap_or(u64::MAX);
        let arrival =
            at + self.conditions.delay + Duration::from_nanos(self.random.below(jitter_ns));
        if self.conditions.reorders {
            return arrival;
        }
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_arrival
    }

    /// How long the packet waits and takes; `None` when the queue is full.
    fn pass_bottleneck(&mut self, at: Duration, len: usize) -> Option<Duration> {
        let Some(rate) = self.conditions.rate else {
            return Some(Duration::ZERO);
        };
        let bits = u64::try_from(len).unwrap_or(u64::MAX).saturating_mul(8);
        let free_at = self.free_at.max(at);
        if free_at - at > rate.queue {
            return None;
        }
        self.free_at =
            free_at + Duration::from_nanos(bits.saturating_mul(1_000_000) / rate.kbit_s.max(1));
        Some(self.free_at - at)
    }

    fn is_unlucky(&mut self) -> bool {
        match self.conditions.loss {
            Loss::None => false,
            Loss::Independent(ppm) => self.random.chance(ppm),
            Loss::Bursts {
                enter_ppm,
                leave_ppm,
                bad_ppm,
                good_ppm,
            } => {
                let turns = if self.bad { leave_ppm } else { enter_ppm };
                self.bad ^= self.random.chance(turns);
                let lost = if self.bad { bad_ppm } else { good_ppm };
                self.random.chance(lost)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn path(conditions: Conditions) -> Path {
        Path {
            conditions,
            ..Path::new(Random::new(7, 0))
        }
    }

    fn lost(path: &mut Path, packets: u32) -> u32 {
        let fates = (0..packets).map(|index| path.send(MS * index, 1000));
        let lost = fates.filter(|fate| matches!(fate, Fate::Lost(_)));
        u32::try_from(lost.count()).unwrap()
    }

    #[test]
    fn a_plain_path_only_delays() {
        let mut path = path(Conditions {
            delay: 40 * MS,
            ..Conditions::default()
        });
        assert_eq!(path.send(MS, 9000), Fate::Arrives(40 * MS, None));
    }

    #[test]
    fn loss_by_chance_is_as_often_as_said() {
        let mut even = path(Conditions {
            loss: Loss::Independent(10_000),
            ..Conditions::default()
        });
        let even = lost(&mut even, 100_000);
        assert!((900..1100).contains(&even), "{even}");
        let mut bursts = path(Conditions {
            loss: Loss::Bursts {
                enter_ppm: 10_000,
                leave_ppm: 250_000,
                bad_ppm: 1_000_000,
                good_ppm: 0,
            },
            ..Conditions::default()
        });
        // Bad for 4 packets after 100 good ones: 1 of 26 is lost.
        let bursts = lost(&mut bursts, 100_000);
        assert!((3400..4300).contains(&bursts), "{bursts}");
    }

    #[test]
    fn a_bottleneck_delays_and_then_loses() {
        let mut path = path(Conditions {
            rate: Some(Rate {
                kbit_s: 8000,
                queue: 3 * MS,
            }),
            ..Conditions::default()
        });
        // 1000 bytes take 1 ms.
        let fates: Vec<_> = (0..6).map(|_| path.send(MS, 1000)).collect();
        let waits = |ms| Fate::Arrives(ms * MS, None);
        let full = Fate::Lost(Cause::Queue);
        assert_eq!(fates, [waits(1), waits(2), waits(3), waits(4), full, full]);
        assert_eq!(path.send(5 * MS, 1000), waits(1));
    }

    #[test]
    fn cuts_and_long_packets_are_lost_and_order_is_kept_unless_jitter_reorders() {
        let mut path = path(Conditions {
            jitter: 5 * MS,
            packet_len_max: 1000,
            ..Conditions::default()
        });
        assert_eq!(path.send(MS, 1001), Fate::Lost(Cause::TooLong));
        let mut overtaken = |reorders| {
            path.conditions.reorders = reorders;
            let mut last = Duration::ZERO;
            (0..1000_u32).any(|index| {
                let at = Duration::from_secs(1) + MS * index;
                let Fate::Arrives(delay, None) = path.send(at, 1000) else {
                    panic!("nothing is lost");
                };
                let early = at + delay < last;
                last = last.max(at + delay);
                early
            })
        };
        assert!(!overtaken(false));
        assert!(overtaken(true));
        path.conditions.cut = true;
        assert_eq!(path.send(MS, 1), Fate::Lost(Cause::Cut));
    }

    /// Bursts are bursts: packets lost in a row, on average as many as the state lasts.
    #[test]
    fn lost_packets_come_in_bursts_of_the_length_that_was_said() {
        let mut path = path(Conditions {
            loss: Loss::Bursts {
                enter_ppm: 10_000,
                leave_ppm: 250_000,
                bad_ppm: 1_000_000,
                good_ppm: 0,
            },
            ..Conditions::default()
        });
        let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
        for index in 0..100_000 {
            let is_lost = matches!(path.send(MS * index, 1000), Fate::Lost(Cause::Chance));
            lost += u32::from(is_lost);
            bursts += u32::from(is_lost && !before);
            before = is_lost;
        }
        let tenths = lost * 10 / bursts;
        assert!((36..44).contains(&tenths), "{tenths} tenths of a packet");
    }

    #[test]
    fn jitter_is_spread_evenly_up_to_what_was_said() {
        let mut path = path(Conditions {
            delay: 10 * MS,
            jitter: 4 * MS,
            reorders: true,
            ..Conditions::default()
        });
        let mut quarters = [0_u32; 4];
        for index in 0..40_000 {
            let Fate::Arrives(took, None) = path.send(MS * index, 100) else {
                panic!("nothing is lost");
            };
            let beyond = usize::try_from((took - 10 * MS).as_millis()).unwrap();
            quarters[beyond] += 1;
        }
        assert!(
            quarters.iter().all(|count| (9_500..10_500).contains(count)),
            "{quarters:?}"
        );
    }

    #[test]
    fn one_that_overtakes_arrives_before_those_sent_earlier() {
        let mut path = path(Conditions {
            delay: 10 * MS,
            overtakes_ppm: 10_000,
            ..Conditions::default()
        });
        let fates = (0..100_000).map(|index| path.send(MS * index, 100));
        let early = fates.filter(|fate| *fate == Fate::Arrives(Duration::ZERO, None));
        assert!((900..1100).contains(&early.count()));
    }

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        let fates = |seed| -> Vec<Fate> {
            let mut path = Path::new(Random::new(seed, 3));
            path.conditions.loss = Loss::Independent(100_000);
            path.conditions.jitter = 5 * MS;
            (0..1000).map(|index| path.send(MS * index, 100)).collect()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn duplicates_arrive_twice() {
        let mut path = path(Conditions {
            duplicates_ppm: 500_000,
            ..Conditions::default()
        });
        let twice = (0..1000).filter(|_| matches!(path.send(MS, 1), Fate::Arrives(_, Some(_))));
        assert!((400..600).contains(&twice.count()));
    }
}
