//! Delay below saturation: packets leave at a fixed rate, one at a time from client after client, whether or not earlier ones
//! have arrived, and each carries the time it left.

use std::time::Duration;

use runtime::clock;

use super::median::quantile;
use super::packet;
use super::path::Path;

/// Packets sent in one turn at most when the clock has run ahead.
const TURN: u64 = 64;
/// Before anything is counted.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long the last packets may take.
const TAIL: Duration = Duration::from_millis(50);

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Half of the packets took no longer, in microseconds, from the client's send to the far end's receive.
    pub p50_us: f64,
    /// Of a hundred, 99 took no longer.
    pub p99_us: f64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Processor time of all hops for one packet, in nanoseconds.
    pub ns_per_packet: f64,
}

/// Sends `rate` packets a second of `len` bytes from the clients for `measured`, after a warm-up.
///
/// # Errors
/// A socket's, a forwarder has ended, or nothing arrives.
pub fn pace(path: &mut Path, rate: u32, len: usize, measured: Duration) -> anyhow::Result<Sample> {
    let mut packet = vec![0; len];
    packet::write(&mut packet, 0, 0);
    let started = clock::now();
    let ns = || u64::try_from((clock::now() - started).as_nanos()).unwrap_or(u64::MAX);
    let warm_ns = u64::try_from(WARM_UP.as_nanos())?;
    let end_ns = warm_ns + u64::try_from(measured.as_nanos())?;
    let tail_ns = end_ns + u64::try_from(TAIL.as_nanos())?;
    let (mut delays, mut sent, mut counted) = (Vec::new(), 0, 0);
    delays.reserve(usize::try_from(u64::from(rate) * (measured.as_secs() + 1))?);
    let mut time_before = None;
    let mut time_after = None;
    let mut client = 0;
    loop {
        let now = ns();
        if now >= warm_ns && time_before.is_none() {
            time_before = Some(path.time()?);
        }
        if now >= end_ns && time_after.is_none() {
            time_after = Some(path.time()?);
        }
        if now >= tail_ns {
            break;
        }
        let due = u64::from(rate) * now.min(end_ns) / 1_000_000_000;
        for _ in 0..due.saturating_sub(sent).min(TURN) {
            let left_ns = ns();
            packet::mark(&mut packet, u32::try_from(client)?, left_ns);
            path.clients.send(client, &packet, len);
            client = (client + 1) % path.clients.len();
            sent += 1;
            counted += u64::from(left_ns >= warm_ns);
        }
        let arrived_after = delays.len();
        path.receive_far(len, |left_ns| {
            if left_ns >= warm_ns {
                delays.push(left_ns);
            }
        })?;
        let arrived_ns = ns();
        for delay in delays.iter_mut().skip(arrived_after) {
            *delay = arrived_ns - *delay;
        }
    }
    let spent: Duration = time_after
        .unwrap_or_default()
        .iter()
        .zip(time_before.unwrap_or_default())
        .map(|(after, before)| *after - before)
        .sum();
    delays.sort_unstable();
    let us = |thousandths| quantile(&delays, thousandths).map(|ns| ns as f64 / 1000.0);
    let arrived = u64::try_from(delays.len())?;
    anyhow::ensure!(arrived > 0, "no packet arrives at {rate} a second");
    Ok(Sample {
        p50_us: us(500).unwrap_or(f64::NAN),
        p99_us: us(990).unwrap_or(f64::NAN),
        lost: counted - arrived,
        ns_per_packet: spent.as_nanos() as f64 / arrived as f64,
    })
}
