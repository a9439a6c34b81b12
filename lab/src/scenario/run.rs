//! One run of a scenario: the world is brought up, calls flow, the faults happen at their times, and everything is taken down.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use runtime::clock;
use topology::Topology;

use super::check::RELAY;
use super::figures::{Figures, Window};
use super::file::{Act, Caller, Change, Must, Scenario};
use super::paths::{self, Paths};
use super::share::{self, Carried};
use crate::clients::{self, Client};
use crate::load::{Call, Plan, Report, Running};
use crate::wait;
use crate::world::{Options, World, WorldFile};

/// How long calls may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(40);
/// Packets a second of a call.
const PACKETS_PER_S: u64 = 50;
/// How long traffic is measured before the first fault, where one is a share of it.
const MEASURED: Duration = Duration::from_secs(2);
/// How often a transceiver is asked for paths, and for what it has heard of a browser.
const PATHS_EACH: Duration = Duration::from_millis(100);
const BROWSER_EACH: Duration = Duration::from_millis(20);
/// A load ends when it is told to; this is for one that nobody tells.
const LOAD_MAX: Duration = Duration::from_secs(300);
/// A client whose frames are later than this did not run: two frames.
const STANDSTILL_MS_MAX: f64 = 40.0;
/// How long a browser's call goes on beyond the scenario: it takes its time to begin.
const BROWSER_SLACK_S: u32 = 6;

/// What a run found.
#[derive(Clone, Debug)]
pub struct Run {
    /// Figures.
    pub figures: Figures,
    /// Every frame of every call; none of a browser's.
    pub calls: Vec<Call>,
    /// The time that counts.
    pub window: Window,
    /// What happened when, in microseconds since the load began.
    pub marks: Vec<(u32, String)>,
    /// By call: when it was carried by which PoP, in microseconds since the load began.
    pub paths: BTreeMap<String, Vec<(u32, String)>>,
    /// What did not hold.
    pub broken: Vec<String>,
    /// What a node complained about meanwhile.
    pub complaint: Option<String>,
}

impl Run {
    /// Whether the client stood still for so long that a silence may be the machine's.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.figures.standstill_ms > STANDSTILL_MS_MAX
    }
}

/// Runs a scenario once.
///
/// # Errors
/// The world does not come up, calls cannot be made, or a fault cannot be done. What must hold and does not is in the run.
pub fn run(scenario: &Scenario) -> anyhow::Result<Run> {
    let mut file = WorldFile::find(&scenario.world)?;
    scenario.network.apply(&mut file.topology);
    let options = Options {
        meters: scenario.calls.by == Caller::Load,
        ..Options::default()
    };
    let world = World::up(&file, &options)?;
    for order in &scenario.conditions {
        world.wan(order)?;
    }
    let (world, stop) = (&world, &AtomicBool::new(false));
    let transceiver = scenario.calls.transceiver.as_str();
    let (done, paths) = std::thread::scope(|scope| {
        let each = match scenario.calls.by {
            Caller::Load => PATHS_EACH,
            Caller::Chromium => BROWSER_EACH,
        };
        let watch = scope.spawn(move || paths::watch(world, transceiver, each, stop));
        let stage = Stage { world, scenario };
        let done = match scenario.calls.by {
            Caller::Load => stage.load(),
            Caller::Chromium => stage.browser(),
        };
        stop.store(true, Ordering::Relaxed);
        (done, watch.join())
    });
    let Ok(paths) = paths else {
        bail!("the watch over the paths broke");
    };
    let complaint = world.check().err().map(|error| error.to_string());
    done?.run(scenario, &paths, complaint)
}

impl Change {
    pub(super) fn apply(&self, topology: &mut Topology) {
        if !self.flow_cache {
            topology.failover_groups.clear();
            for pop in &mut topology.pops {
                pop.failover_group = None;
            }
        }
        if let Some(offer) = self.offer_unknown {
            topology.network.offer_unknown = offer;
        }
        if let Some(bytes) = self.link_mtu_bytes {
            topology.network.link.mtu_bytes = bytes;
        }
        if self.bfd_ms == Some(0) {
            let sessions = topology.pops.iter_mut().flat_map(|pop| &mut pop.bgp);
            sessions.for_each(|session| session.bfd = false);
        }
        if let Some(ms) = self.link_down_after_ms {
            topology.network.link.down_after_ms = ms;
            topology.network.link.heartbeat_ms = ms / 5;
        }
        let Some(anycast) = &mut topology.network.anycast else {
            return;
        };
        if let Some(ms) = self.bfd_ms.filter(|ms| *ms > 0) {
            anycast.bfd.interval_ms = ms;
        }
        anycast.hold_s = self.hold_s.unwrap_or(anycast.hold_s);
    }
}

/// When, and what happened.
type Mark = (Instant, String);

/// What came of the traffic.
struct Done {
    report: Option<Report>,
    browser: Option<serde_json::Value>,
    later: Vec<Report>,
    started: Instant,
    from: Instant,
    marks: Vec<Mark>,
    end: Instant,
}

/// A world, and the plan for it.
struct Stage<'a> {
    world: &'a World,
    scenario: &'a Scenario,
}

impl Stage<'_> {
    fn load(&self) -> anyhow::Result<Done> {
        let calls = &self.scenario.calls;
        let load = self.start(calls.count, &calls.transceiver)?;
        let second = calls.count as u64 * PACKETS_PER_S;
        let connected = load.wait_connected(calls.count as u64, CONNECT_MAX);
        if let Err(error) = connected.and_then(|()| load.wait_received(second, CONNECT_MAX)) {
            let report = load.stop()?;
            bail!(
                "{error}: {} connected; {:?}",
                report.connected,
                report.failures
            );
        }
        let from = clock::now();
        load.wait_received(second, CONNECT_MAX)?;
        let (marks, later) = self.happen(Some(&load))?;
        let end = clock::now();
        let report = load.stop()?;
        let later = later.into_iter().map(Running::stop);
        Ok(Done {
            started: report.started.context("a report with its time")?,
            later: later.collect::<Result<_, _>>()?,
            report: Some(report),
            browser: None,
            from,
            marks,
            end,
        })
    }

    /// One call of a browser, which measures its downlink itself; its uplink is what the transceiver counts.
    fn browser(&self) -> anyhow::Result<Done> {
        let calls = &self.scenario.calls;
        let whip = self.whip(&calls.transceiver)?;
        let vip = self.vip()?.to_string();
        self.give_browser(self.address()?)?;
        let plan = clients::Plan {
            whip: &whip,
            seconds: self.scenario.watch_s + BROWSER_SLACK_S,
            actions: &[],
            only: Some(&vip),
        };
        let started = clock::now();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let call = || clients::call(Client::Chromium, &plan);
                self.world.run_in(&calls.from, call)
            });
            let flows = || {
                let sessions = paths::sessions(self.world, &calls.transceiver);
                let heard = |session: &serde_json::Value| {
                    session["rtp_in"].as_u64() > Some(2 * PACKETS_PER_S)
                };
                call.is_finished() || sessions.is_ok_and(|sessions| sessions.iter().any(heard))
            };
            wait::until_true("a browser to call", CONNECT_MAX, flows)?;
            if call.is_finished() {
                let Ok(ended) = call.join() else {
                    bail!("the browser's thread panicked");
                };
                bail!("the browser's call ended before it was to: {ended:?}");
            }
            let from = clock::now();
            let (marks, _) = self.happen(None)?;
            let end = clock::now();
            let Ok(result) = call.join() else {
                bail!("the browser's thread panicked");
            };
            Ok(Done {
                report: None,
                browser: Some(result?),
                later: Vec::new(),
                started,
                from,
                marks,
                end,
            })
        })
    }

    /// The faults at their times, and what follows until the end.
    fn happen(&self, load: Option<&Running>) -> anyhow::Result<(Vec<Mark>, Vec<Running>)> {
        let carried = self.carried()?;
        let first = clock::now();
        let mut marks = Vec::new();
        let mut later = Vec::new();
        for event in &self.scenario.faults {
            sleep_until(first + Duration::from_millis(event.at_ms.into()));
            let act = self.with_relay(&event.act)?;
            let act: Act = carried.resolve(&act.to_string())?.parse()?;
            marks.push((clock::now(), act.to_string()));
            match (&act, load) {
                (Act::World(fault), _) => self.world.fault(fault)?,
                (Act::Rebind, Some(load)) => load.progress().move_to(self.address()?),
                (Act::Roam, Some(load)) => load.progress().move_to(self.other_address()?),
                (Act::Call(count, transceiver), Some(_)) => {
                    later.push(self.start(*count, transceiver)?);
                }
                (Act::Roam, None) => self.give_browser(self.other_address()?)?,
                (Act::Rebind | Act::Call(..), None) => {
                    bail!("{act}: a browser does not")
                }
            }
        }
        sleep_until(first + Duration::from_secs(self.scenario.watch_s.into()));
        Ok((marks, later))
    }

    /// What each way of the world carries, where a fault is a share of it.
    fn carried(&self) -> anyhow::Result<Carried> {
        let mut faults = self.scenario.faults.iter();
        if !faults.any(|event| share::is_in(&event.act.to_string()).unwrap_or(false)) {
            return Ok(Carried::default());
        }
        let stats = || Ok::<_, anyhow::Error>((self.world.wan("stats")?, clock::now()));
        let (before, since) = stats()?;
        sleep_until(since + MEASURED);
        let (after, until) = stats()?;
        let took = until.saturating_duration_since(since);
        Ok(Carried::between(&before, &after, took))
    }

    /// Names the core relay that carries most calls, where a fault says `RELAY`.
    fn with_relay(&self, act: &Act) -> anyhow::Result<Act> {
        let line = act.to_string();
        if !line.contains(RELAY) {
            return Ok(act.clone());
        }
        let sessions = paths::sessions(self.world, &self.scenario.calls.transceiver)?;
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        for session in &sessions {
            if let Some(relay) = session["core_relay"].as_str() {
                *calls.entry(relay).or_default() += 1;
            }
        }
        let most = calls.into_iter().max_by_key(|(_, calls)| *calls);
        let (relay, _) = most.context("no core relay carries a call")?;
        Ok(line.replace(RELAY, relay).parse()?)
    }

    fn start(&self, count: usize, transceiver: &str) -> anyhow::Result<Running> {
        let plan = Plan {
            only: Some(self.vip()?),
            address: self.address()?,
            ..Plan::new(self.whip(transceiver)?, count, LOAD_MAX).measured()
        };
        let start = || Ok(Running::start(plan));
        self.world.run_in(&self.scenario.calls.from, start)
    }

    fn whip(&self, transceiver: &str) -> anyhow::Result<String> {
        let (_, node) = self
            .world
            .topology()
            .transceiver_named(transceiver)
            .with_context(|| format!("there is no transceiver `{transceiver}`"))?;
        Ok(format!("http://{}/whip", node.whip))
    }

    /// Of the family of the calls.
    fn vip(&self) -> anyhow::Result<SocketAddr> {
        let mut vips = self.world.vips().iter().copied();
        let vip = vips.find(|vip| vip.is_ipv6() == self.scenario.calls.v6);
        vip.context("the world has no such VIP")
    }

    fn address(&self) -> anyhow::Result<IpAddr> {
        let from = &self.scenario.calls.from;
        let own = self.world.plan().node(from)?.addresses.iter().copied();
        let mut own = own.filter(|own| own.is_ipv6() == self.scenario.calls.v6);
        own.next()
            .with_context(|| format!("{from} has no such address"))
    }

    /// The next one of the client's network, which it has from here on.
    fn other_address(&self) -> anyhow::Result<IpAddr> {
        let other: IpAddr = match self.address()? {
            IpAddr::V4(own) => Ipv4Addr::from_bits(own.to_bits() + 1).into(),
            IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() + 1).into(),
        };
        let text = other.to_string();
        self.world.run_in(&self.scenario.calls.from, || {
            let mut words = vec!["address", "replace", &text, "dev", "lo"];
            // Usable at once: nobody else is on this loopback.
            words.extend(other.is_ipv6().then_some("nodad"));
            ip(&words).map(|_said| ())
        })?;
        Ok(other)
    }
}

impl Stage<'_> {
    /// A browser looks for addresses on devices that are not loopback, and binds what it finds: gives it this one alone.
    fn give_browser(&self, address: IpAddr) -> anyhow::Result<()> {
        let text = address.to_string();
        let family = if address.is_ipv6() { "-6" } else { "-4" };
        self.world.run_in(&self.scenario.calls.from, || {
            let routes = ip(&[family, "route", "show", "default"])?;
            let mut words: Vec<&str> = routes.split_whitespace().collect();
            if let Some(source) = words.iter().position(|word| *word == "src") {
                words.drain(source..(source + 2).min(words.len()));
            }
            let after_dev = words.iter().skip_while(|word| **word != "dev").nth(1);
            let device = *after_dev.context("a default route by a device")?;
            for device in [device, "lo"] {
                ip(&[family, "address", "flush", "dev", device, "scope", "global"])?;
            }
            ip(&[family, "address", "add", &text, "dev", device])?;
            // The wire's own address went, too, and nobody is asked where its other end is.
            let change = [
                &[family, "route", "replace"],
                &*words,
                &["src", &text, "onlink"],
            ];
            let change = change.concat();
            ip(&change).map(|_said| ())
        })
    }
}

fn ip(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(words).output();
    let output = output.context("running ip")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "ip {}: {}",
        words.join(" "),
        error.trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

impl Done {
    fn run(
        self,
        scenario: &Scenario,
        paths: &Paths,
        complaint: Option<String>,
    ) -> anyhow::Result<Run> {
        let us = |at: Instant| {
            let us = at.saturating_duration_since(self.started).as_micros();
            u32::try_from(us).unwrap_or(u32::MAX)
        };
        let (event, _) = self.marks.first().context("a scenario has a fault")?;
        let window = Window {
            from_us: us(self.from),
            event_us: us(*event),
            end_us: us(self.end),
        };
        let sessions = scenario.calls.count;
        let calls = self.report.map(|report| report.calls).unwrap_or_default();
        let mut figures = match &self.browser {
            Some(found) => Figures::of_browser(found, paths, *event, self.end),
            None => Figures::of(&calls, sessions, window),
        };
        figures.path_before = paths::by_pop(paths, *event);
        figures.path_after = paths::by_pop(paths, self.end);
        for call in self.later.iter().flat_map(|report| &report.calls) {
            let (transceiver, _) = call.name.split_once('/').unwrap_or(("", ""));
            let place = if call.lost { "lost" } else { transceiver };
            *figures.later_calls.entry(place.to_owned()).or_default() += 1;
        }
        let carried = paths.iter().map(|(name, samples)| {
            let pops = samples
                .iter()
                .filter_map(|sample| Some((us(sample.at), sample.pop.clone()?)));
            (name.clone(), pops.collect())
        });
        Ok(Run {
            broken: scenario.must.broken(&figures),
            paths: carried.collect(),
            marks: self
                .marks
                .iter()
                .map(|(at, act)| (us(*at), act.clone()))
                .collect(),
            figures,
            calls,
            window,
            complaint,
        })
    }
}

impl Must {
    /// What does not hold, in words.
    fn broken(&self, figures: &Figures) -> Vec<String> {
        let mut broken = Vec::new();
        let mut at_most = |what: &str, found: f64, most: Option<f64>| {
            if let Some(most) = most.filter(|most| found > *most) {
                broken.push(format!("{what}: {found:.0}, at most {most:.0}"));
            }
        };
        let Figures { up, down, .. } = figures;
        at_most(
            "sessions lost",
            figures.sessions_lost as f64,
            Some(self.sessions_lost as f64),
        );
        at_most("silence up, ms", up.silence_ms.max, self.silence_up_ms);
        at_most(
            "silence down, ms",
            down.silence_ms.max,
            self.silence_down_ms,
        );
        at_most(
            "frames lost up",
            up.lost as f64,
            self.lost_up.map(|most| most as f64),
        );
        at_most(
            "frames lost down",
            down.lost as f64,
            self.lost_down.map(|most| most as f64),
        );
        let all_by = |found: &BTreeMap<String, usize>, pop: &str| {
            found.len() == 1 && found.contains_key(pop)
        };
        if let Some((before, after)) = &self.path {
            for (found, pop) in [(&figures.path_before, before), (&figures.path_after, after)] {
                if !all_by(found, pop) {
                    broken.push(format!("path: {found:?}, all by {pop}"));
                }
            }
        }
        if let Some(transceiver) = &self.later_calls_at
            && !all_by(&figures.later_calls, transceiver)
        {
            broken.push(format!(
                "later calls: {:?}, all at {transceiver}",
                figures.later_calls
            ));
        }
        broken
    }
}

/// Waits for a moment of the plan.
fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(clock::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_hold_and_does_not_is_said() {
        let must = Must {
            silence_up_ms: Some(100.0),
            lost_down: Some(0),
            path: Some(("lon".to_owned(), "fra".to_owned())),
            later_calls_at: Some("eu-t2".to_owned()),
            ..Must::default()
        };
        let mut figures = Figures::default();
        figures.path_before.insert("lon".to_owned(), 25);
        figures.path_after.insert("fra".to_owned(), 25);
        figures.later_calls.insert("eu-t2".to_owned(), 5);
        assert_eq!(must.broken(&figures), [""; 0]);
        figures.sessions_lost = 1;
        figures.up.silence_ms.max = 100.5;
        figures.down.lost = 2;
        figures.path_after.insert("lon".to_owned(), 1);
        figures.later_calls.clear();
        assert_eq!(
            must.broken(&figures).len(),
            5,
            "{:?}",
            must.broken(&figures)
        );
    }
}
