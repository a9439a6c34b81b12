//! The highest rate that a relay carries.

use super::load::Hold;

/// Where a search ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// The highest rate carried; 0 when not even the lowest was.
    pub(crate) rate: u32,
    /// How it was.
    pub(crate) hold: Hold,
    /// The rate above was not carried because it could not be offered.
    pub(crate) generator_limited: bool,
}

/// Goes up in steps of a half until a rate is not carried, then closes in on the highest that is. A rate that was not carried is
/// tried once more: on a machine that others use, one bad second is no limit.
pub(crate) fn search(mut hold: impl FnMut(u32) -> anyhow::Result<Hold>) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let (mut rate, mut failed) = (RATE_MIN, None);
    loop {
        let mut tried = hold(rate)?;
        if !tried.is_carried() {
            tried = hold(rate)?;
        }
        if tried.is_carried() {
            found.rate = rate;
            found.hold = tried;
        } else {
            failed = Some(rate);
            found.generator_limited = !tried.is_offered();
        }
        rate = match failed {
            None if rate >= RATE_MAX => return Ok(found),
            None => rate / 2 * 3,
            Some(failed) if failed - found.rate <= failed / 20 => return Ok(found),
            Some(failed) if failed <= RATE_MIN => return Ok(found),
            Some(failed) => found.rate.midpoint(failed),
        };
    }
}

/// Packets a second; no relay here carries less.
const RATE_MIN: u32 = 10_000;
/// No machine this is for offers more.
const RATE_MAX: u32 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(rate: u32, carried: bool) -> Hold {
        let due = u64::from(rate);
        Hold {
            due,
            sent: due,
            back: if carried { due } else { 0 },
            p50_us: 1,
            p99_us: 1,
        }
    }

    #[test]
    fn closes_in_on_the_limit() {
        for limit in [10_000, 10_100, 39_000, 155_000, 1_000_000] {
            let found = search(|rate| Ok(hold(rate, rate <= limit))).unwrap();
            assert!(
                found.rate <= limit && found.rate >= limit / 20 * 19,
                "{found:?}"
            );
        }
        assert_eq!(search(|rate| Ok(hold(rate, false))).unwrap().rate, 0);
    }

    #[test]
    fn one_bad_hold_is_no_limit() {
        let mut holds = 0;
        let found = search(|rate| {
            holds += 1;
            Ok(hold(rate, rate <= 50_000 && holds % 2 == 0))
        });
        assert!(found.unwrap().rate > 47_000);
    }

    #[test]
    fn says_when_the_generator_was_the_limit() {
        let found = search(|rate| {
            Ok(Hold {
                due: u64::from(rate),
                ..hold(rate.min(30_000), true)
            })
        });
        let found = found.unwrap();
        assert!(found.generator_limited && found.rate <= 31_000);
    }
}
