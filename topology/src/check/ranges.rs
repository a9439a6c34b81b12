//! Values that are wrong whatever the rest of the file says. The ranges are those of the doc comments in `model`.

use super::Findings;
use crate::anycast::POP_ADDRESSES_MAX;
use crate::error::Problem;
use crate::failover::{FailoverGroup, RedisUrl};
use crate::model::{Link, Location, Network, Pop, Region, Signaling, Topology};
use crate::steering::StateStore;

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    if topology.version != 1 {
        let found = topology.version;
        findings.add("version", Problem::UnsupportedVersion { found });
    }
    network(&topology.network, findings);
    if topology.regions.is_empty() {
        findings.add("regions", Problem::NoRegion);
    }
    for (i, of) in topology.regions.iter().enumerate() {
        region(&format!("regions[{i}]"), of, findings);
    }
    for (i, of) in topology.failover_groups.iter().enumerate() {
        failover_group(&format!("failover_groups[{i}]"), of, findings);
    }
    if topology.pops.is_empty() {
        findings.add("pops", Problem::NoPop);
    }
    for (i, of) in topology.pops.iter().enumerate() {
        pop(&format!("pops[{i}]"), of, findings);
    }
}

fn network(network: &Network, findings: &mut Findings) {
    findings.range(
        "network.hint_age_max_min",
        network.hint_age_max_min,
        10,
        32_000,
    );
    findings.range("network.drain_max_s", network.drain_max_s, 0, 3_600);

    link(&network.link, findings);

    let worker = &network.worker;
    let at = |key| format!("network.worker.{key}");
    findings.range(at("busy_poll_us"), worker.busy_poll_us, 0, 1_000);
    findings.range(at("tick_us"), worker.tick_us, 0, 1_000);
    findings.range(at("tick_above_pps"), worker.tick_above_pps, 1, 10_000_000);

    signaling(&network.signaling, findings);
    if let Some(store) = &network.state {
        state_store("network.state", store, findings);
    }
}

fn link(link: &Link, findings: &mut Findings) {
    findings.range("network.link.mtu_bytes", link.mtu_bytes, 1_200, 8_900);
    findings.range("network.link.rate_mbps", link.rate_mbps, 1, 400_000);
    findings.range("network.link.rtt_ms", link.rtt_ms, 1, 1_000);
    findings.range("network.link.heartbeat_ms", link.heartbeat_ms, 20, 5_000);
    findings.range("network.link.down_after_ms", link.down_after_ms, 60, 60_000);
    let (found, min) = (link.down_after_ms, link.heartbeat_ms.saturating_mul(3));
    if found < min {
        findings.add(
            "network.link.down_after_ms",
            Problem::UnderThreeHeartbeats { found, min },
        );
    }
    let Some(found) = link.suspect_after_ms else {
        return;
    };
    let field = "network.link.suspect_after_ms";
    findings.range(field, found, 40, 60_000);
    let (min, max) = (link.heartbeat_ms.saturating_mul(2), link.down_after_ms);
    if found < min {
        findings.add(field, Problem::UnderTwoHeartbeats { found, min });
    } else if found > max {
        findings.add(field, Problem::OverDownAfter { found, max });
    }
}

fn signaling(signaling: &Signaling, findings: &mut Findings) {
    let at = |key| format!("network.signaling.{key}");
    findings.range(at("sessions_max"), signaling.sessions_max, 1, 1_000_000);
    findings.range(at("pending_max"), signaling.pending_max, 1, 1_000_000);
    findings.range(at("pending_ttl_s"), signaling.pending_ttl_s, 1, 300);
    findings.range(
        at("body_max_bytes"),
        signaling.body_max_bytes,
        1_024,
        1 << 20,
    );
    findings.range(at("offers_per_s"), signaling.offers_per_s, 1, 1_000_000);
    findings.range(at("ingress_max"), signaling.ingress_max, 1, 16);
}

fn region(at: &str, region: &Region, findings: &mut Findings) {
    findings.range(format!("{at}.id"), region.id, 1, 65_535);
    if !is_http_url(&region.signaling_url) {
        findings.add(format!("{at}.signaling_url"), Problem::NotAUrl);
    }
    if let Some(of) = &region.location {
        location(&format!("{at}.location"), of, findings);
    }
    for (i, code) in region.avoid_countries.iter().enumerate() {
        country(&format!("{at}.avoid_countries[{i}]"), code, findings);
    }
    findings.range(format!("{at}.weight"), region.weight, 0, 1_000);
    if region.core_relays.is_empty() {
        let region = region.name.clone();
        findings.add(format!("{at}.core_relays"), Problem::NoCoreRelay { region });
    }
    for (i, relay) in region.core_relays.iter().enumerate() {
        findings.range(
            format!("{at}.core_relays[{i}].workers"),
            relay.workers,
            1,
            64,
        );
    }
    if region.transceivers.nodes.is_empty() {
        let region = region.name.clone();
        findings.add(
            format!("{at}.transceivers.nodes"),
            Problem::NoTransceiver { region },
        );
    }
}

fn failover_group(at: &str, group: &FailoverGroup, findings: &mut Findings) {
    redis(&format!("{at}.redis"), &group.redis, findings);
    findings.range(format!("{at}.ttl_s"), group.ttl_s, 60, 3_600);
    findings.range(format!("{at}.lookup_max_ms"), group.lookup_max_ms, 5, 1_000);
}

/// One to sixteen servers, all of them with TLS or none.
fn redis(at: &str, servers: &[RedisUrl], findings: &mut Findings) {
    let (found, min, max) = (servers.len(), 1, 16);
    if !(min..=max).contains(&found) {
        findings.add(at, Problem::Count { found, min, max });
    }
    let tls = servers.first().map(|url| url.tls);
    if servers.iter().any(|url| Some(url.tls) != tls) {
        findings.add(at, Problem::RedisSchemes);
    }
}

fn state_store(at: &str, store: &StateStore, findings: &mut Findings) {
    redis(&format!("{at}.redis"), &store.redis, findings);
    findings.range(format!("{at}.interval_ms"), store.interval_ms, 100, 60_000);
    findings.range(format!("{at}.ttl_s"), store.ttl_s, 1, 3_600);
    let min = store.interval_ms.saturating_mul(3).div_ceil(1_000);
    if store.ttl_s < min {
        let found = store.ttl_s;
        findings.add(
            format!("{at}.ttl_s"),
            Problem::UnderThreeIntervals { found, min },
        );
    }
}

fn pop(at: &str, pop: &Pop, findings: &mut Findings) {
    findings.range(format!("{at}.id"), pop.id, 1, 65_535);
    findings.range(format!("{at}.workers"), pop.workers, 1, 64);
    findings.range(format!("{at}.flows_max"), pop.flows_max, 1, 1 << 24);
    findings.range(format!("{at}.weight"), pop.weight, 0, 1_000);
    let (found, min, max) = (pop.ingress.len(), 1, POP_ADDRESSES_MAX);
    if !(min..=max).contains(&found) {
        findings.add(format!("{at}.ingress"), Problem::Count { found, min, max });
    }
    if let Some(of) = &pop.location {
        location(&format!("{at}.location"), of, findings);
    }
}

fn location(at: &str, location: &Location, findings: &mut Findings) {
    let mut degrees = |key: &str, found: f64, max: f64| {
        // Not a number lies in no range.
        if !(-max..=max).contains(&found) {
            findings.add(
                format!("{at}.{key}"),
                Problem::DegreesOutOfRange { found, max },
            );
        }
    };
    degrees("latitude", location.latitude, 90.0);
    degrees("longitude", location.longitude, 180.0);
    country(&format!("{at}.country"), &location.country, findings);
}

pub(super) fn country(field: &str, code: &str, findings: &mut Findings) {
    if code.len() != 2 || !code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        let code = code.to_owned();
        findings.add(field, Problem::NotACountry { code });
    }
}

fn is_http_url(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty()
            && !host.starts_with(':')
            && !rest.contains(|c: char| c.is_whitespace() || c.is_control())
    })
}
