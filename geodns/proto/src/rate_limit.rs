//! Response rate limiting: how many answers of one class a second one source prefix gets.
//!
//! ```text
//! (source /24 or /56, class of answer) ──keyed hash──► set of 8 entries of 8 bytes: one cache line
//! entry   0 tag (upper half of the hash) | 4 until: when all answers counted so far are paid off, in 1/16 µs, modulo 2^32
//! ```
//!
//! The generic cell rate algorithm: each answer moves `until` on by the time it costs, and an answer that would move it more than
//! a second ahead of now is over the limit. An idle entry needs no sweep: it is paid off, and the first to be replaced.
//!
//! The table has a fixed size. A set that is full loses the entry that is nearest to being paid off; when it was not, that is
//! counted, and its prefix begins again. It knows no cookie and sends nothing: the caller exempts who has shown its address.

use std::hash::{BuildHasher as _, Hasher as _};
use std::net::IpAddr;

use foldhash::fast::FixedState;

/// Sets of one table. With 8 entries each, 1 MiB.
pub const SETS: usize = 16_384;
const WAYS: usize = 8;
/// Units of time in a microsecond.
const UNITS_PER_US: u64 = 16;
/// How far ahead an entry may be: a second of answers may come at once.
const BURST_UNITS: u32 = 16_000_000;

/// Limits of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Answers of one class a second to one prefix; 0: no limit.
    pub responses_per_s: u32,
    /// Every how many answers over the limit one is sent truncated; 0: none.
    pub slip: u8,
}

impl Limits {
    /// The share of one of `workers`: a prefix that asks from many ports is spread over all of them.
    #[must_use]
    pub fn share(self, workers: u32) -> Self {
        Self {
            responses_per_s: self.responses_per_s.div_ceil(workers.max(1)),
            slip: self.slip,
        }
    }
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Send it.
    Send,
    /// Over the limit: send it truncated, so that a real resolver comes back by TCP.
    Truncate,
    /// Over the limit: send nothing.
    Drop,
}

/// See the module head.
pub struct RateLimiter {
    limits: Limits,
    cost_units: u32,
    hasher: FixedState,
    sets: Box<[Set]>,
    over: u64,
    displaced: u64,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

#[derive(Clone, Copy, Default)]
struct Entry {
    tag: u32,
    until: u32,
}

impl RateLimiter {
    /// `seed` is random: nobody can choose prefixes that fall into one set.
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            cost_units: cost_units(limits),
            hasher: FixedState::with_seed(seed),
            sets: table(limits),
            over: 0,
            displaced: 0,
        }
    }

    /// From here on these limits hold.
    pub fn set(&mut self, limits: Limits) {
        if self.sets.is_empty() {
            self.sets = table(limits);
        }
        self.limits = limits;
        self.cost_units = cost_units(limits);
    }

    /// Entries that were replaced before they were paid off.
    #[must_use]
    pub const fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Counts one answer of `class` to `source`.
    pub fn allow(&mut self, source: IpAddr, class: u32, now_us: u64) -> Allowance {
        if self.limits.responses_per_s == 0 || self.charge(source, class, now_us) {
            return Allowance::Send;
        }
        self.over = self.over.wrapping_add(1);
        match self.over.checked_rem(self.limits.slip.into()) {
            Some(0) => Allowance::Truncate,
            Some(_) | None => Allowance::Drop,
        }
    }

    /// Whether it is within the limit.
    fn charge(&mut self, source: IpAddr, class: u32, now_us: u64) -> bool {
        let hash = self.hash(source, class);
        let [t0, t1, t2, t3, _, _, s0, s1] = hash.to_be_bytes();
        // 0 is an entry nobody has used.
        let tag = u32::from_be_bytes([t0, t1, t2, t3]) | 1;
        let set = usize::from(u16::from_be_bytes([s0, s1])) % SETS;
        let Some(Set(entries)) = self.sets.get_mut(set) else {
            return true;
        };
        let now = units(now_us);
        let entry = match entries.iter().position(|entry| entry.tag == tag) {
            Some(at) => entries.get_mut(at),
            None => {
                let oldest = entries.iter_mut().min_by_key(|entry| entry.ahead(now));
                oldest.map(|entry| {
                    self.displaced += u64::from(entry.ahead(now) > 0);
                    *entry = Entry { tag, until: now };
                    entry
                })
            }
        };
        entry.is_none_or(|entry| entry.pay(now, self.cost_units))
    }

    fn hash(&self, source: IpAddr, class: u32) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(class);
        hasher.write_u64(match source {
            IpAddr::V4(v4) => u64::from(v4.to_bits() >> 8),
            IpAddr::V6(v6) => {
                let [high @ .., _, _, _, _, _, _, _, _, _] = v6.octets();
                let [a, b, c, d, e, f, g] = high;
                u64::from_be_bytes([1, a, b, c, d, e, f, g])
            }
        });
        hasher.finish()
    }
}

impl std::fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimiter")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// Time until it is paid off. No entry is ever further ahead than a burst, so one that seems to be is old: time has wrapped.
    fn ahead(&self, now: u32) -> u32 {
        let ahead = self.until.wrapping_sub(now);
        if ahead > BURST_UNITS || self.tag == 0 {
            0
        } else {
            ahead
        }
    }

    fn pay(&mut self, now: u32, cost: u32) -> bool {
        let ahead = self.ahead(now).saturating_add(cost);
        if ahead > BURST_UNITS {
            return false;
        }
        self.until = now.wrapping_add(ahead);
        true
    }
}

/// Without a limit there is none.
fn table(limits: Limits) -> Box<[Set]> {
    match limits.responses_per_s {
        0 => Box::default(),
        _ => vec![Set::default(); SETS].into(),
    }
}

fn cost_units(limits: Limits) -> u32 {
    BURST_UNITS.checked_div(limits.responses_per_s).unwrap_or(0)
}

fn units(now_us: u64) -> u32 {
    let [.., a, b, c, d] = now_us.wrapping_mul(UNITS_PER_US).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn limiter(responses_per_s: u32, slip: u8) -> RateLimiter {
        RateLimiter::new(
            Limits {
                responses_per_s,
                slip,
            },
            1,
        )
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Answers of each kind: sent, truncated, dropped.
    fn ask(limiter: &mut RateLimiter, source: IpAddr, times: u32, now_us: u64) -> [u32; 3] {
        let mut answers = [0; 3];
        for _ in 0..times {
            answers[limiter.allow(source, 7, now_us) as usize] += 1;
        }
        answers
    }

    #[test]
    fn a_second_of_answers_at_once_then_as_time_passes() {
        let mut limiter = limiter(100, 0);
        let source = ip("192.0.2.1");
        let start = 5 * SECOND_US;
        assert_eq!(ask(&mut limiter, source, 150, start), [100, 0, 50]);
        assert_eq!(
            ask(&mut limiter, source, 10, start + SECOND_US / 20),
            [5, 0, 5]
        );
        assert_eq!(
            ask(&mut limiter, source, 300, start + 60 * SECOND_US),
            [100, 0, 200]
        );
    }

    #[test]
    fn prefixes_and_classes_have_their_own_allowance() {
        let mut limiter = limiter(10, 0);
        assert_eq!(ask(&mut limiter, ip("192.0.2.1"), 10, 0), [10, 0, 0]);
        assert_eq!(ask(&mut limiter, ip("192.0.2.255"), 1, 0), [0, 0, 1]);
        assert_eq!(ask(&mut limiter, ip("192.0.3.1"), 1, 0), [1, 0, 0]);
        assert_eq!(limiter.allow(ip("192.0.2.1"), 8, 0), Allowance::Send);
        assert_eq!(ask(&mut limiter, ip("2001:db8:0:ff::1"), 10, 0), [10, 0, 0]);
        assert_eq!(ask(&mut limiter, ip("2001:db8:0:0::2"), 1, 0), [0, 0, 1]);
        assert_eq!(ask(&mut limiter, ip("2001:db8:0:100::1"), 1, 0), [1, 0, 0]);
    }

    #[test]
    fn every_slip_th_answer_over_the_limit_is_truncated() {
        for (slip, expected) in [
            (0, [5, 0, 60]),
            (1, [5, 60, 0]),
            (2, [5, 30, 30]),
            (10, [5, 6, 54]),
        ] {
            assert_eq!(
                ask(&mut limiter(5, slip), ip("::1"), 65, 0),
                expected,
                "{slip}"
            );
        }
        assert_eq!(ask(&mut limiter(0, 2), ip("::1"), 1000, 0), [1000, 0, 0]);
    }

    #[test]
    fn the_highest_limit_is_what_it_says() {
        let mut limiter = limiter(100_000, 0);
        let source = ip("192.0.2.1");
        let [sent, ..] = ask(&mut limiter, source, 200_000, 0);
        assert_eq!(sent, 100_000);
        let sent: u32 = (1..=1000)
            .map(|ms| ask(&mut limiter, source, 300, ms * 1000)[0])
            .sum();
        assert_eq!(sent, 100_000);
    }

    #[test]
    fn time_that_wraps_forgives_at_most_a_burst() {
        let mut limiter = limiter(10, 0);
        let wrap_us = (1u64 << 32) / UNITS_PER_US;
        for now_us in [
            wrap_us - 10,
            wrap_us + SECOND_US,
            3 * wrap_us - SECOND_US / 2,
            3 * wrap_us + SECOND_US,
        ] {
            assert_eq!(
                ask(&mut limiter, ip("::1"), 20, now_us),
                [10, 0, 10],
                "{now_us}"
            );
        }
    }

    #[test]
    fn a_full_set_loses_what_is_nearest_to_being_paid_off_and_counts_it() {
        let mut limiter = limiter(10, 0);
        let attacker = ip("198.51.100.1");
        assert_eq!(ask(&mut limiter, attacker, 11, 0), [10, 0, 1]);
        // More prefixes than the table has entries, one answer each.
        let prefixes = u32::try_from(SETS * WAYS * 2).unwrap();
        for prefix in 0..prefixes {
            limiter.allow(IpAddr::V4((0x0100_0000 + (prefix << 8)).into()), 7, 0);
        }
        assert!(limiter.displaced() > 0);
        assert_eq!(
            ask(&mut limiter, attacker, 1, 0),
            [0, 0, 1],
            "it owes most, so it stays"
        );
        let displaced = limiter.displaced();
        limiter.allow(ip("203.0.113.1"), 7, 10 * SECOND_US);
        assert_eq!(limiter.displaced(), displaced, "all are paid off by then");
    }

    #[test]
    fn a_limit_may_come_and_go() {
        let mut limiter = limiter(0, 0);
        assert_eq!(ask(&mut limiter, ip("::1"), 100, 0), [100, 0, 0]);
        limiter.set(Limits {
            responses_per_s: 10,
            slip: 0,
        });
        assert_eq!(ask(&mut limiter, ip("::1"), 100, 0), [10, 0, 90]);
        limiter.set(Limits {
            responses_per_s: 0,
            slip: 0,
        });
        assert_eq!(ask(&mut limiter, ip("::1"), 100, 0), [100, 0, 0]);
    }

    #[test]
    fn workers_share_the_limit() {
        let limits = Limits {
            responses_per_s: 1000,
            slip: 2,
        };
        assert_eq!(limits.share(4).responses_per_s, 250);
        assert_eq!(limits.share(64).responses_per_s, 16);
        assert_eq!(limits.share(0), limits);
        assert_eq!(
            Limits {
                responses_per_s: 0,
                slip: 2
            }
            .share(4)
            .responses_per_s,
            0
        );
    }
}
