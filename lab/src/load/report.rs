//! What a load found, summed over its sessions.

use std::time::{Duration, Instant};

use runtime::clock;
use serde::Serialize;

use super::measured::Call;
use super::session::{AfterMove, Session};
use super::{Failures, LINGER, Plan};

/// An echo this recent at the end shows that a session lived to the end.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// What a load found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Sessions of the plan.
    pub sessions: usize,
    /// Sessions that were connected at some time.
    pub connected: usize,
    /// Sessions that never connected, were disconnected at the end, or had fallen silent.
    pub sessions_lost: usize,
    /// Median time from offer to connected, in milliseconds.
    pub connect_ms_p50: f64,
    /// 99th percentile of it.
    pub connect_ms_p99: f64,
    /// RTP packets sent.
    pub sent: u64,
    /// RTP packets that came back as they were.
    pub received: u64,
    /// RTP packets that did not come back.
    pub lost: u64,
    /// RTP packets that came back changed.
    pub altered: u64,
    /// Median round trip of media once every session was connected, in microseconds.
    pub rtt_us_p50: u32,
    /// 99th percentile of it.
    pub rtt_us_p99: u32,
    /// Median over the sessions of the longest silence, in milliseconds.
    pub gap_ms_p50: f64,
    /// The longest silence of any session, in milliseconds.
    pub gap_ms_max: f64,
    /// Sessions that went on from another address and heard an echo there before they sent a check from it.
    pub heard_unchecked: usize,
    /// Data-channel messages that came back; one per session when all is well.
    pub echoes: u64,
    /// Sessions that could not be deleted at the end, such as those that the network had ended.
    pub deletes_failed: usize,
    /// What sessions measured whose far end measures, too.
    #[serde(skip)]
    pub calls: Vec<Call>,
    /// When the load began: what times of calls count from.
    #[serde(skip)]
    pub started: Option<Instant>,
    /// The first reasons why sessions failed, or could not be deleted.
    pub failures: Vec<String>,
}

impl Report {
    pub(super) fn add_goodbyes(&mut self, failures: Failures) {
        self.deletes_failed = failures.count;
        self.failures.extend(failures.reasons);
    }
}

pub(super) fn of(plan: &Plan, sessions: &[Session], failures: &Failures) -> Report {
    let now = clock::now();
    let figures = || sessions.iter().map(Session::figures);
    let mut connect_ms: Vec<_> = figures().filter_map(|one| one.connect).map(ms).collect();
    let mut gap_ms: Vec<_> = figures().map(|one| ms(one.gap_max)).collect();
    let mut rtt_us: Vec<_> = figures().flat_map(|one| &one.rtt_us).copied().collect();
    connect_ms.sort_unstable_by(f64::total_cmp);
    gap_ms.sort_unstable_by(f64::total_cmp);
    rtt_us.sort_unstable();
    let lived = sessions
        .iter()
        .filter(|session| !session.is_lost(now, SILENCE_MAX + LINGER));
    let sent: u64 = figures().map(|one| one.sent).sum();
    let received: u64 = figures().map(|one| one.received).sum();
    Report {
        sessions: plan.sessions,
        connected: connect_ms.len(),
        sessions_lost: plan.sessions - lived.count(),
        connect_ms_p50: percentile(&connect_ms, 50),
        connect_ms_p99: percentile(&connect_ms, 99),
        sent,
        received,
        lost: sent.saturating_sub(received),
        altered: figures().map(|one| one.altered).sum(),
        rtt_us_p50: percentile(&rtt_us, 50),
        rtt_us_p99: percentile(&rtt_us, 99),
        gap_ms_p50: percentile(&gap_ms, 50),
        gap_ms_max: percentile(&gap_ms, 100),
        heard_unchecked: figures()
            .filter(|one| one.after_move == AfterMove::Heard)
            .count(),
        echoes: figures().map(|one| one.echoes).sum(),
        deletes_failed: 0,
        calls: Vec::new(),
        started: None,
        failures: failures.reasons.clone(),
    }
}

/// Of sorted values; the default when there are none.
fn percentile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let last = sorted.len().saturating_sub(1);
    let index = (sorted.len() * percent / 100).min(last);
    sorted.get(index).copied().unwrap_or_default()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let values: Vec<u32> = (0..200).collect();
        assert_eq!(percentile(&values, 50), 100);
        assert_eq!(percentile(&values, 99), 198);
        assert_eq!(percentile(&values, 100), 199);
        assert_eq!(percentile::<u32>(&[], 50), 0);
    }
}
