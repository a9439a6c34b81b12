//! A plan: which nodes there are, what joins them, and what the ways between them do to packets. Read from YAML.
//!
//! ```yaml
//! name: demo                       # namespaces are demo-NODE
//! seed: 7
//! rtt_ms: { lon: { fra: 13, wdc: 76 }, fra: { wdc: 91 } }
//! links:
//!   - a: { node: r-lon, addresses: [10.254.0.0/31] }
//!     b: { node: r-fra, addresses: [10.254.0.1/31] }
//!     cities: [lon, fra]           # half of their round trip each way
//!     conditions: { loss_ppm: 1000 }
//!     back: { loss_ppm: 20000 }    # from b to a, where it differs
//! clouds:
//!   - name: backbone
//!     members:
//!       - { node: p-lon, city: lon, addresses: [10.200.1.1/16], prefixes: [10.1.0.0/24] }
//!       - { node: p-wdc, city: wdc, addresses: [10.200.2.1/16] }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::sim::{Conditions, Loss, Rate};

/// Round trip within a city.
const WITHIN_CITY_RTT_MS: f64 = 0.5;
/// Linux keeps 15 characters of a device's name.
const DEVICE_CHARS_MAX: usize = 15;
/// Nodes that one plan may have.
const NODES_MAX: usize = 1024;
/// Longest delay or queue: an hour would be a mistake.
const MS_MAX: f64 = 60_000.0;

/// See the module head.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What the names of its namespaces begin with, and a dash.
    pub name: String,
    /// Seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// MTU of the devices.
    #[serde(default = "mtu_bytes")]
    pub mtu_bytes: u16,
    /// User and group that the process becomes once every device is open; as it is, if absent.
    #[serde(default)]
    pub become_uid: Option<u32>,
    /// Whether the thread that carries packets runs before all others: truer delays where processors are short, and less time for
    /// others in a flood.
    #[serde(default)]
    pub real_time: bool,
    /// With `real_time`: how long after the last packet idle processors stay awake, because they take long to come back; 0: never.
    #[serde(default = "awake_ms")]
    pub awake_ms: u32,
    /// Round-trip times between cities, each pair once.
    #[serde(default)]
    pub rtt_ms: BTreeMap<String, BTreeMap<String, f64>>,
    /// Nodes that nothing joins.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Pairs of nodes.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Sets of nodes.
    #[serde(default)]
    pub clouds: Vec<Cloud>,
}

const fn mtu_bytes() -> u16 {
    1500
}

/// Longer than the gaps between the packets of a call.
pub(crate) const fn awake_ms() -> u32 {
    50
}

/// A pair of nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: End,
    /// The other one.
    pub b: End,
    /// Cities of `a` and `b`: half of their round trip is the delay each way, if none is said.
    #[serde(default)]
    pub cities: Option<(String, String)>,
    /// From a to b, and back if `back` is absent.
    #[serde(default)]
    pub conditions: Direction,
    /// From b to a.
    #[serde(default)]
    pub back: Option<Direction>,
}

/// One end of a link.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The node.
    pub node: String,
    /// Name of the device; `to-` and the other node, if absent.
    #[serde(default)]
    pub device: Option<String>,
    /// Addresses of the device.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
}

/// A set of nodes that reach each other directly.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cloud {
    /// Name of each member's device.
    pub name: String,
    /// The nodes.
    pub members: Vec<Member>,
    /// What all its ways do to packets, beside the delay of the matrix.
    #[serde(default)]
    pub conditions: Direction,
}

/// A node in a cloud.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The node.
    pub node: String,
    /// Where it is.
    pub city: String,
    /// Addresses of the device.
    pub addresses: Vec<IpNet>,
    /// What else is behind it.
    #[serde(default)]
    pub prefixes: Vec<IpNet>,
}

/// What one direction does to packets.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Direction {
    /// One way. Absent: half of what the matrix says.
    pub delay_ms: Option<f64>,
    /// Up to so much more, evenly spread.
    pub jitter_ms: f64,
    /// Whether jitter lets packets overtake each other.
    pub jitter_reorders: bool,
    /// Lost by chance, each for itself.
    pub loss_ppm: u32,
    /// Lost in bursts (Gilbert–Elliott), instead.
    pub bursts: Option<Bursts>,
    /// Arrive before the delay, ahead of others.
    pub overtakes_ppm: u32,
    /// Arrive twice.
    pub duplicates_ppm: u32,
    /// Rate of the bottleneck; 0: none.
    pub rate_kbit_s: u64,
    /// A packet that would wait longer at the bottleneck is lost.
    pub queue_ms: Option<f64>,
    /// Longer packets vanish without a word; 0: none does.
    pub black_hole_above_bytes: usize,
    /// Nothing passes.
    pub cut: bool,
}

/// Gilbert–Elliott: a state that changes with each packet.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// From good to bad.
    pub enter_ppm: u32,
    /// From bad to good.
    pub leave_ppm: u32,
    /// Lost while it is bad.
    #[serde(default = "all_ppm")]
    pub bad_loss_ppm: u32,
    /// Lost while it is good.
    #[serde(default)]
    pub good_loss_ppm: u32,
}

const PPM: u32 = 1_000_000;
const QUEUE_MS: f64 = 50.0;

const fn all_ppm() -> u32 {
    PPM
}

/// Why a plan is none.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not YAML, or not of this form.
    #[error("{0}")]
    Form(#[from] serde_yaml::Error),
    /// A name that no namespace or device can have.
    #[error("`{0}` is no name: letters, digits, dashes, dots; a device at most 15 of them")]
    Name(String),
    /// A name twice.
    #[error("`{0}` stands twice")]
    Twice(String),
    /// More nodes than a plan may have.
    #[error("more than {NODES_MAX} nodes")]
    TooMany,
    /// The matrix does not say.
    #[error("no round trip between `{0}` and `{1}`")]
    NoRtt(String, String),
    /// A figure out of its range.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// Two kinds of loss.
    #[error("loss_ppm and bursts exclude each other")]
    TwoLosses,
}

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_yaml::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// Every node, once, in a fixed order.
    #[must_use]
    pub fn all_nodes(&self) -> BTreeSet<&str> {
        let ends = self.links.iter().flat_map(|link| [&link.a, &link.b]);
        let members = self.clouds.iter().flat_map(|cloud| &cloud.members);
        let nodes = self.nodes.iter().map(String::as_str);
        nodes
            .chain(ends.map(|end| end.node.as_str()))
            .chain(members.map(|member| member.node.as_str()))
            .collect()
    }

    /// The name of a node's namespace.
    #[must_use]
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    fn check(&self) -> Result<(), PlanError> {
        let nodes = self.all_nodes();
        if nodes.len() > NODES_MAX {
            return Err(PlanError::TooMany);
        }
        for name in nodes.into_iter().chain([self.name.as_str()]) {
            check_name(name, usize::MAX)?;
        }
        let mut devices = BTreeSet::new();
        for (node, device) in self.devices() {
            check_name(&device, DEVICE_CHARS_MAX)?;
            if !devices.insert((node, device.clone())) {
                return Err(PlanError::Twice(device));
            }
        }
        for link in &self.links {
            self.link_conditions(link)?;
        }
        for cloud in &self.clouds {
            for from in &cloud.members {
                for to in &cloud.members {
                    self.cloud_direction(cloud, from, to)?.conditions()?;
                }
            }
        }
        Ok(())
    }

    fn devices(&self) -> impl Iterator<Item = (&str, String)> {
        let of_links = self.links.iter().flat_map(|link| {
            let (a, b) = (&link.a, &link.b);
            [(a, b), (b, a)].map(|(own, other)| (own.node.as_str(), own.device(other)))
        });
        let of_clouds = self.clouds.iter().flat_map(|cloud| {
            let members = cloud.members.iter();
            members.map(|member| (member.node.as_str(), cloud.name.clone()))
        });
        of_links.chain(of_clouds)
    }

    /// From a to b, and back.
    pub(crate) fn link_directions(&self, link: &Link) -> Result<[Direction; 2], PlanError> {
        let back = link.back.as_ref().unwrap_or(&link.conditions);
        let delay_ms = match &link.cities {
            Some((a, b)) => self.rtt_ms(a, b)? / 2.0,
            None => 0.0,
        };
        Ok([&link.conditions, back].map(|direction| direction.or_delay(delay_ms)))
    }

    fn link_conditions(&self, link: &Link) -> Result<(), PlanError> {
        for direction in self.link_directions(link)? {
            direction.conditions()?;
        }
        Ok(())
    }

    /// Between two members.
    pub(crate) fn cloud_direction(
        &self,
        cloud: &Cloud,
        from: &Member,
        to: &Member,
    ) -> Result<Direction, PlanError> {
        let delay_ms = self.rtt_ms(&from.city, &to.city)? / 2.0;
        Ok(cloud.conditions.or_delay(delay_ms))
    }

    fn rtt_ms(&self, a: &str, b: &str) -> Result<f64, PlanError> {
        let said = |from: &str, to: &str| self.rtt_ms.get(from)?.get(to).copied();
        let rtt = said(a, b).or_else(|| said(b, a));
        let rtt = rtt.or_else(|| (a == b).then_some(WITHIN_CITY_RTT_MS));
        rtt.ok_or_else(|| PlanError::NoRtt(a.to_owned(), b.to_owned()))
    }
}

fn check_name(name: &str, chars_max: usize) -> Result<(), PlanError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let good = !name.is_empty() && name.len() <= chars_max && name.chars().all(fits);
    if good && !name.starts_with(['.', '-']) {
        Ok(())
    } else {
        Err(PlanError::Name(name.to_owned()))
    }
}

impl End {
    pub(crate) fn device(&self, other: &Self) -> String {
        let named = self.device.clone();
        named.unwrap_or_else(|| format!("to-{}", other.node))
    }
}

impl Direction {
    fn or_delay(&self, delay_ms: f64) -> Self {
        Self {
            delay_ms: self.delay_ms.or(Some(delay_ms)),
            ..self.clone()
        }
    }

    /// What a path is to do.
    pub(crate) fn conditions(&self) -> Result<Conditions, PlanError> {
        let loss = match (self.loss_ppm, self.bursts) {
            (0, None) => Loss::None,
            (loss, None) => Loss::Independent(ppm(loss, "loss_ppm")?),
            (0, Some(bursts)) => Loss::Bursts {
                enter_ppm: ppm(bursts.enter_ppm, "enter_ppm")?,
                leave_ppm: ppm(bursts.leave_ppm, "leave_ppm")?,
                bad_ppm: ppm(bursts.bad_loss_ppm, "bad_loss_ppm")?,
                good_ppm: ppm(bursts.good_loss_ppm, "good_loss_ppm")?,
            },
            (_, Some(_)) => return Err(PlanError::TwoLosses),
        };
        let queue = ms(self.queue_ms.unwrap_or(QUEUE_MS), "queue_ms")?;
        let kbit_s = self.rate_kbit_s;
        let black_hole = self.black_hole_above_bytes;
        Ok(Conditions {
            delay: ms(self.delay_ms.unwrap_or(0.0), "delay_ms")?,
            jitter: ms(self.jitter_ms, "jitter_ms")?,
            reorders: self.jitter_reorders,
            loss,
            overtakes_ppm: ppm(self.overtakes_ppm, "overtakes_ppm")?,
            duplicates_ppm: ppm(self.duplicates_ppm, "duplicates_ppm")?,
            rate: (kbit_s > 0).then_some(Rate { kbit_s, queue }),
            cut: self.cut,
            packet_len_max: if black_hole == 0 {
                usize::MAX
            } else {
                black_hole
            },
        })
    }
}

fn ppm(value: u32, name: &'static str) -> Result<u32, PlanError> {
    if value <= PPM {
        Ok(value)
    } else {
        Err(PlanError::Range(name))
    }
}

fn ms(value: f64, name: &'static str) -> Result<Duration, PlanError> {
    if (0.0..=MS_MAX).contains(&value) {
        Ok(Duration::from_secs_f64(value / 1000.0))
    } else {
        Err(PlanError::Range(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "
name: t
rtt_ms: { lon: { fra: 13 } }
nodes: [alone]
links:
  - a: { node: a, addresses: [10.254.0.0/31] }
    b: { node: b, device: up, addresses: [10.254.0.1/31, 'fd00::1/127'] }
    cities: [fra, lon]
    conditions: { loss_ppm: 1000 }
    back: { delay_ms: 3, bursts: { enter_ppm: 10, leave_ppm: 20 } }
clouds:
  - name: bb
    members:
      - { node: a, city: lon, addresses: [10.200.1.1/16] }
      - { node: c, city: fra, addresses: [10.200.2.1/16] }
";

    #[test]
    fn delays_are_half_of_the_round_trip_unless_they_are_said() {
        let plan = Plan::parse(PLAN).unwrap();
        let [there, back] = plan.link_directions(&plan.links[0]).unwrap();
        assert_eq!(there.delay_ms, Some(6.5));
        assert_eq!(back.delay_ms, Some(3.0));
        let conditions = back.conditions().unwrap();
        assert_eq!(conditions.delay, Duration::from_millis(3));
        assert!(matches!(
            conditions.loss,
            Loss::Bursts {
                bad_ppm: PPM,
                good_ppm: 0,
                ..
            }
        ));
        let cloud = &plan.clouds[0];
        let between = |from: usize, to: usize| {
            let direction = plan.cloud_direction(cloud, &cloud.members[from], &cloud.members[to]);
            direction.unwrap().delay_ms
        };
        assert_eq!((between(0, 1), between(1, 0)), (Some(6.5), Some(6.5)));
        assert_eq!(between(0, 0), Some(0.25));
        let nodes: Vec<_> = plan.all_nodes().into_iter().collect();
        assert_eq!(nodes, ["a", "alone", "b", "c"]);
        assert_eq!(plan.namespace("a"), "t-a");
    }

    #[test]
    fn a_plan_that_cannot_be_is_refused() {
        let refused = |from: &str, to: &str| {
            let text = PLAN.replace(from, to);
            assert_ne!(text, PLAN);
            Plan::parse(&text).unwrap_err().to_string()
        };
        let cases = [
            ("seed", refused("name: t", "name: t\nseeds: 1")),
            ("`../t`", refused("name: t", "name: ../t")),
            (
                "15 of them",
                refused("device: up", "device: much-too-long-a-name"),
            ),
            ("`to-b`", refused("name: bb", "name: to-b")),
            ("`oslo`", refused("city: fra", "city: oslo")),
            ("delay_ms", refused("delay_ms: 3", "delay_ms: -3")),
            ("delay_ms", refused("delay_ms: 3", "delay_ms: .nan")),
            ("loss_ppm", refused("loss_ppm: 1000", "loss_ppm: 1000001")),
            ("exclude", refused("delay_ms: 3", "loss_ppm: 3")),
        ];
        for (part, error) in cases {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
