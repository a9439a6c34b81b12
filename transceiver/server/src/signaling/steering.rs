//! Asks the GeoDNS nodes of the topology which ingress a client gets. Signaling never waits long for them, and never depends on them.
//!
//! ```text
//! offer ──► first node that is up ──► next one ──► nobody: the answer advertises VIPs and PoPs in the topology's order
//!             steering.timeout_ms for all of them together
//!
//! watch, per node:  up ── a look fails, a connection fails, or TIMEOUTS_MAX questions in a row are not answered in time ──► down
//!                   down ── a look succeeds ──► up
//! ```
//!
//! A node that is down is not asked: it costs the offers that found out, and none after them. Whether it is back is for its watch
//! to find, which also keeps a connection open for the next offer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode, Uri};
use runtime::clock;
use runtime::control::Control;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use topology::{GeoDns, Topology};

use crate::signaling::forward::{Client, client};
use crate::signaling::metrics::{SteerMetrics, SteerOutcome};

/// Bytes of an answer, at most.
const ANSWER_LEN_MAX: usize = 256 * 1024;
/// Questions in a row without an answer in time after which a node is down. One slow answer says nothing of the next.
const TIMEOUTS_MAX: u32 = 3;
/// Between two looks at a node that is up.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// A look that takes longer finds the node down.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks at a node that is down: at first, and at last.
const PAUSE_SHORTEST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);

/// Which way in: a PoP, or the addresses that all share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A PoP, by name.
    Pop(String),
    /// The VIPs.
    Vips,
}

/// The nodes, in the order of the topology.
pub(super) struct Steering {
    nodes: Vec<Arc<Node>>,
    timeout: Duration,
    watches: Vec<JoinHandle<()>>,
}

struct Node {
    client: Client,
    steer: Uri,
    look: Uri,
    health: Health,
}

/// Whether a node is asked.
struct Health {
    is_up: AtomicBool,
    /// Questions in a row without an answer in time.
    timeouts: AtomicU32,
}

impl Health {
    const fn new() -> Self {
        Self {
            is_up: AtomicBool::new(true),
            timeouts: AtomicU32::new(0),
        }
    }

    fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    fn looked(&self, is_up: bool) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    fn asked(&self, outcome: SteerOutcome) {
        match outcome {
            SteerOutcome::Answered | SteerOutcome::Refused => {
                self.timeouts.store(0, Ordering::Relaxed);
            }
            SteerOutcome::Timeout => {
                let before = self.timeouts.fetch_add(1, Ordering::Relaxed);
                if before + 1 >= TIMEOUTS_MAX {
                    self.is_up.store(false, Ordering::Relaxed);
                }
            }
            SteerOutcome::Unreachable => self.is_up.store(false, Ordering::Relaxed),
            SteerOutcome::Skipped => {}
        }
    }
}

#[derive(Serialize)]
struct Ask<'a> {
    client: IpAddr,
    region: &'a str,
}

/// What matters of the answer; a later release may tell more.
#[derive(Deserialize)]
struct Told {
    ingress: Vec<Ingress>,
}

#[derive(Deserialize)]
struct Ingress {
    #[serde(default)]
    pop: Option<String>,
}

impl Steering {
    /// `None`: the topology has no GeoDNS nodes.
    pub(super) fn new(topology: &Topology, tls: &ClientConfig, control: &Control) -> Option<Self> {
        let nodes: Vec<_> = topology
            .geodns
            .iter()
            .filter_map(|node| Node::new(node, tls.clone()).map(Arc::new))
            .collect();
        if nodes.is_empty() {
            return None;
        }
        let watches = nodes
            .iter()
            .map(|node| control.spawn(watch(Arc::clone(node))));
        Some(Self {
            watches: watches.collect(),
            timeout: Duration::from_millis(topology.steering.timeout_ms.into()),
            nodes,
        })
    }

    /// The ways in for a client of `region`, best first; `None` when nobody told in time.
    pub(super) async fn ask(
        &self,
        client: IpAddr,
        region: &str,
        metrics: &SteerMetrics,
    ) -> Option<Vec<Way>> {
        let body = serde_json::to_vec(&Ask { client, region }).ok()?;
        let body = Bytes::from(body);
        let deadline = clock::now() + self.timeout;
        let up: Vec<_> = self
            .nodes
            .iter()
            .filter(|node| node.health.is_up())
            .collect();
        if up.is_empty() {
            metrics.count(SteerOutcome::Skipped);
        }
        for (left, node) in (1..=up.len()).rev().zip(up) {
            // What the first ones leave is shared, so that a node that hangs does not take the chance of the next one.
            let remaining = deadline.saturating_duration_since(clock::now());
            let share = remaining / u32::try_from(left).unwrap_or(u32::MAX);
            let outcome = timeout(share, node.ask(body.clone())).await;
            let outcome = outcome.unwrap_or(Err(SteerOutcome::Timeout));
            match outcome {
                Ok(ways) => {
                    metrics.count(SteerOutcome::Answered);
                    node.health.asked(SteerOutcome::Answered);
                    return Some(ways);
                }
                Err(failure) => {
                    metrics.count(failure);
                    node.health.asked(failure);
                }
            }
        }
        None
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

impl Node {
    fn new(node: &GeoDns, tls: ClientConfig) -> Option<Self> {
        let uri = |path: &'static str| {
            Uri::builder()
                .scheme("https")
                .authority(format!("{}:{}", node.name, node.steer.port()))
                .path_and_query(path)
                .build()
                .ok()
        };
        let directory = HashMap::from([(node.name.clone(), node.steer.ip())]);
        Some(Self {
            client: client(directory, tls),
            steer: uri("/v1/steer")?,
            look: uri("/healthz")?,
            health: Health::new(),
        })
    }

    async fn ask(&self, body: Bytes) -> Result<Vec<Way>, SteerOutcome> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.steer.clone();
        let json = hyper::header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let response = self.client.request(request).await;
        let response = response.map_err(|_| SteerOutcome::Unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(SteerOutcome::Refused);
        }
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX);
        let body = body.collect().await.map_err(|_| SteerOutcome::Refused)?;
        let told: Told =
            serde_json::from_slice(&body.to_bytes()).map_err(|_| SteerOutcome::Refused)?;
        let ways = told.ingress.into_iter();
        Ok(ways
            .map(|way| way.pop.map_or(Way::Vips, Way::Pop))
            .collect())
    }

    async fn look(&self) -> bool {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.look.clone();
        let answer = async {
            let response = self.client.request(request).await.ok()?;
            let is_well = response.status() == StatusCode::OK;
            // Read to its end, the connection can be used again.
            let body = Limited::new(response.into_body(), ANSWER_LEN_MAX);
            body.collect().await.ok().map(|_| is_well)
        };
        matches!(timeout(LOOK_TIMEOUT, answer).await, Ok(Some(true)))
    }
}

async fn watch(node: Arc<Node>) {
    let mut pause = PAUSE_SHORTEST;
    loop {
        let is_up = node.look().await;
        node.health.looked(is_up);
        let wait = if is_up { LOOK_INTERVAL } else { pause };
        pause = if is_up {
            PAUSE_SHORTEST
        } else {
            (pause * 2).min(PAUSE_LONGEST)
        };
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::SteerOutcome::{Answered, Refused, Skipped, Timeout, Unreachable};
    use super::*;

    #[test]
    fn one_slow_answer_does_not_make_a_node_down() {
        for (outcomes, is_up) in [
            (&[][..], true),
            (&[Timeout], true),
            (&[Timeout, Timeout], true),
            (&[Timeout, Timeout, Timeout], false),
            (&[Timeout, Timeout, Answered, Timeout, Timeout], true),
            (&[Timeout, Timeout, Refused, Timeout], true),
            (&[Timeout, Skipped, Timeout, Timeout], false),
            (&[Unreachable], false),
        ] {
            let health = Health::new();
            outcomes.iter().for_each(|outcome| health.asked(*outcome));
            assert_eq!(health.is_up(), is_up, "{outcomes:?}");
        }
        let health = Health::new();
        health.looked(false);
        assert!(!health.is_up());
        health.asked(Timeout);
        health.looked(true);
        health.asked(Timeout);
        health.asked(Timeout);
        assert!(health.is_up(), "counted from the look on");
    }
}
