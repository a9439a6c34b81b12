//! Whether anything is lost or refused while the files of our node are replaced under load: the database, weights, a region that
//! takes no one any more, and a hang-up that changes nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use runtime::clock;
use serde::Serialize;

use super::answer;
use super::asked::while_asked;
use super::database::{Database, Edition};
use super::load::Found;
use super::map::PLACES;
use super::query::{A, Query, Subnet};
use crate::net::Network;
use crate::wait;

/// What happened.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reload {
    /// Questions a second that were to be asked.
    pub rate: u32,
    /// Answers a second that came.
    pub answered_per_s: f64,
    /// Questions asked.
    pub sent: u64,
    /// Questions without an answer.
    pub lost: u64,
    /// Answers that are errors or cut.
    pub refused: u64,
    /// Answers that name no region.
    pub wrong: u64,
    /// Time of an answer, half of them.
    pub p50_us: f64,
    /// Time of an answer, all but one in a hundred.
    pub p99_us: f64,
    /// Time of an answer, all but one in a thousand.
    pub p999_us: f64,
    /// Changes that were made, and how long each took until answers showed it.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// What was changed.
    pub what: &'static str,
    /// Until it showed.
    pub shown_after_ms: u64,
}

/// Loads our node at `rate` and changes everything that can change.
///
/// # Errors
/// It does not come up, or does not show a change.
pub fn run(rate: u32, dir: &Path) -> anyhow::Result<Reload> {
    // The node reads a copy, which is replaced.
    let live = dir.join("live.mmdb");
    let served = Database::write(dir, Edition::First)?.copied_to(&live)?;
    let second = Database::write(dir, Edition::Second)?;
    let change = |network: &mut Network| change_everything(network, &live, &second);
    let (found, changes) = while_asked(&served, rate, change)?;
    Ok(Reload::new(rate, &found, changes))
}

impl Reload {
    fn new(rate: u32, found: &Found, changes: Vec<Change>) -> Self {
        Self {
            rate,
            answered_per_s: found.rate(),
            sent: found.sent,
            lost: found.lost,
            refused: found.refused,
            wrong: found.wrong + found.strange,
            p50_us: found.latency_us(500),
            p99_us: found.latency_us(990),
            p999_us: found.latency_us(999),
            changes,
        }
    }
}

/// One after the other; each is waited for until an answer shows it.
fn change_everything(
    network: &mut Network,
    live: &Path,
    second: &Database,
) -> anyhow::Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut step = |what,
                    network: &mut Network,
                    change: &mut dyn FnMut(&mut Network) -> anyhow::Result<()>,
                    expected: &str| {
        let start = clock::now();
        change(network)?;
        let to = super::ours::address(network)?;
        wait::until_true(what, SHOWN_MAX, || region_of_brazil(to) == Some(expected))?;
        let shown = clock::now();
        let shown_after_ms = u64::try_from((shown - start).as_millis())?;
        // What a change does to answers shows for a while behind it.
        wait::until_true("the load to go on", SHOWN_MAX, || {
            clock::now() - shown >= HOLD
        })?;
        changes.push(Change {
            what,
            shown_after_ms,
        });
        anyhow::Ok(())
    };
    step("steady", network, &mut |_| Ok(()), "sa")?;
    step(
        "database",
        network,
        &mut |network| {
            let draft = live.with_extension("draft");
            fs::copy(second.file(), &draft)?;
            fs::rename(&draft, live)?;
            network.reload()
        },
        "af",
    )?;
    step(
        "order of a rule",
        network,
        &mut |network| {
            let mut topology = network.topology().clone();
            let rules = topology.steering.rules.iter_mut();
            for rule in rules.filter(|rule| rule.name == "af") {
                rule.regions = vec!["oc".to_owned(), "af".to_owned()];
            }
            network.rewrite_topology(topology)?;
            network.reload()
        },
        "oc",
    )?;
    step(
        "weights",
        network,
        &mut |network| {
            let mut topology = network.topology().clone();
            for region in &mut topology.regions {
                region.weight = 7 * region.id;
            }
            network.rewrite_topology(topology)?;
            network.reload()
        },
        "oc",
    )?;
    step("hang-up", network, &mut |network| network.reload(), "oc")?;
    network.check()?;
    Ok(changes)
}

/// Which region a client in Brazil gets.
fn region_of_brazil(to: std::net::SocketAddr) -> Option<&'static str> {
    let query = Query {
        kind: A,
        subnet: Some(Subnet::new(BRAZIL.into(), 24)),
        cookie: None,
    };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").ok()?;
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .ok()?;
    socket.send_to(&query.write(), to).ok()?;
    let mut buffer = [0; 512];
    let len = socket.recv(&mut buffer).ok()?;
    let address = answer::read(buffer.get(..len)?)?.address?;
    let place = PLACES.iter().find(|place| address == place.v4())?;
    Some(place.name)
}

/// Lines for people.
#[must_use]
pub fn text(reload: &Reload) -> String {
    let changes = reload.changes.iter();
    let changes: Vec<_> = changes
        .map(|change| format!("{} {} ms", change.what, change.shown_after_ms))
        .collect();
    format!(
        "reload at {} questions/s: {} asked, {} lost, {} refused, {} wrong; p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us\n  shown after: {}\n",
        reload.rate,
        reload.sent,
        reload.lost,
        reload.refused,
        reload.wrong,
        reload.p50_us,
        reload.p99_us,
        reload.p999_us,
        changes.join(", ")
    )
}

/// `registro.br`.
const BRAZIL: [u8; 4] = [200, 160, 2, 0];
const HOLD: Duration = Duration::from_millis(500);
const SHOWN_MAX: Duration = Duration::from_secs(20);
