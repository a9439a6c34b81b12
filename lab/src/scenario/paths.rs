//! Which PoP carries each call at each moment, as its transceiver knows it: the return path of the last authenticated packet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use runtime::clock;
use serde_json::Value;

use crate::world::World;

/// What one call was like at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// When.
    pub at: Instant,
    /// The PoP, if it has a path.
    pub pop: Option<String>,
    /// Frames that had come from the client.
    pub heard: u64,
    /// DTLS is up.
    pub connected: bool,
}

/// By `TRANSCEIVER/ID`, in the order of time.
pub(super) type Paths = BTreeMap<String, Vec<Sample>>;

/// Asks a transceiver once in `each` until it is told to stop. Whether it answers is not what this is about.
pub(super) fn watch(world: &World, transceiver: &str, each: Duration, stop: &AtomicBool) -> Paths {
    let mut paths = Paths::new();
    let mut next = clock::now();
    while !stop.load(Ordering::Relaxed) {
        let at = clock::now();
        if let Ok(sessions) = sessions(world, transceiver) {
            for session in &sessions {
                if let Some((name, sample)) = sample(transceiver, session, at) {
                    paths.entry(name).or_default().push(sample);
                }
            }
        }
        next += each;
        std::thread::sleep(next.saturating_duration_since(clock::now()));
    }
    paths
}

/// The sessions of a transceiver, as it lists them.
pub(super) fn sessions(world: &World, transceiver: &str) -> anyhow::Result<Vec<Value>> {
    let response = world.admin(transceiver, "GET", "/sessions")?;
    let list: Value = serde_json::from_str(&response.body).context("no list of sessions")?;
    let sessions = list.get("sessions").and_then(Value::as_array);
    Ok(sessions.context("no `sessions`")?.clone())
}

fn sample(transceiver: &str, session: &Value, at: Instant) -> Option<(String, Sample)> {
    let id = session.get("id")?.as_u64()?;
    let pop = session.get("pop").and_then(Value::as_str);
    let sample = Sample {
        at,
        pop: pop.map(str::to_owned),
        heard: session.get("rtp_in").and_then(Value::as_u64)?,
        connected: session.get("state")?.as_str()? == "connected",
    };
    Some((format!("{transceiver}/{id}"), sample))
}

/// How many calls each PoP carried at a moment: by the last sample not after it.
pub(super) fn by_pop(paths: &Paths, at: Instant) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for samples in paths.values() {
        let known = samples.iter().take_while(|sample| sample.at <= at).last();
        if let Some(pop) = known.and_then(|sample| sample.pop.clone()) {
            *found.entry(pop).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_before_a_moment_counts() {
        let start = clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let list = r#"[{"id":1,"pop":"lon","rtp_in":5,"state":"connected"},{"id":2,"pop":null,"rtp_in":0,"state":"pending"}]"#;
        let list: Vec<Value> = serde_json::from_str(list).unwrap();
        let mut paths = Paths::new();
        for (ms, pop) in [(0, "lon"), (100, "fra")] {
            for session in &list {
                let (name, mut sample) = sample("t1", session, at(ms)).unwrap();
                sample.pop = sample.pop.map(|_| pop.to_owned());
                paths.entry(name).or_default().push(sample);
            }
        }
        assert_eq!(paths["t1/1"][0].heard, 5);
        assert!(!paths["t1/2"][0].connected);
        assert!(
            by_pop(&paths, at(50))
                .into_iter()
                .eq([("lon".to_owned(), 1)])
        );
        assert!(
            by_pop(&paths, at(100))
                .into_iter()
                .eq([("fra".to_owned(), 1)])
        );
    }
}
