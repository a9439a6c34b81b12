//! A world file: which topology, which cities, where everything is, who carries packets between cities, and who the clients are.
//! What follows from these is in `plan.rs`: addresses of links, namespaces, BGP, who serves whom.
//!
//! ```yaml
//! topology: topologies/small.yaml     # beside this file
//! cities: rtt-ibm-2024.yaml
//! places: { eu: fra, us: wdc, ns1: fra }  # regions and other nodes; what is named like a city lies there
//! routers:                            # transit, one in a city, all joined with each other
//!   - { city: lon, asn: 65001 }
//!   - { city: fra, asn: 65002 }
//! isps:                               # each with a network, one upstream router, and clients
//!   - { city: lon }                   # isp-lon and c-lon, behind r-lon
//!   - { city: mad, upstream: fra, clients: 2 }   # isp-mad, c-mad and c-mad-2, behind r-fra
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::Deserialize;
use topology::{LoadErrors, Topology};

use super::cities::Cities;
use super::plan::Plan;
use crate::yaml::read;

/// Clients of one ISP at most.
const CLIENTS_MAX: u8 = 50;

/// A world file that was read and checked, with the files it names.
#[derive(Clone, Debug)]
pub struct WorldFile {
    /// Name of the world: of the file, unless it is changed to have two of them.
    pub name: String,
    /// Seed of the WAN emulator.
    pub seed: u64,
    /// The network, and where nodes find it.
    pub topology: Topology,
    /// Round trips.
    pub cities: Cities,
    /// City of a region, or of a node. What is absent here is named like its city.
    pub places: BTreeMap<String, String>,
    /// Transit routers.
    pub routers: Vec<Router>,
    /// Access networks.
    pub isps: Vec<Isp>,
    /// One way between a client and its ISP.
    pub access_ms: f64,
}

/// A router of a transit network of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// Where it is; its node is `r-CITY`.
    pub city: String,
    /// Its AS.
    pub asn: u32,
    /// Whether it obeys GRACEFUL_SHUTDOWN (RFC 8326).
    #[serde(default = "yes")]
    pub graceful_shutdown: bool,
    /// Whether it prefers what a customer announces to what others do, as transit networks do.
    #[serde(default = "yes")]
    pub prefers_customers: bool,
}

/// An access network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isp {
    /// Where it is; its node is `isp-CITY`.
    pub city: String,
    /// City of the router it buys transit from; its own city's, or else the nearest.
    #[serde(default)]
    pub upstream: Option<String>,
    /// Clients: `c-CITY`, `c-CITY-2`, ...
    #[serde(default = "one")]
    pub clients: u8,
}

const fn yes() -> bool {
    true
}

const fn one() -> u8 {
    1
}

const fn access_ms() -> f64 {
    4.0
}

/// As it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    topology: PathBuf,
    cities: PathBuf,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    places: BTreeMap<String, String>,
    routers: Vec<Router>,
    isps: Vec<Isp>,
    #[serde(default = "access_ms")]
    access_ms: f64,
}

/// Where the worlds of this repository are.
#[must_use]
pub fn worlds_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("worlds")
}

impl WorldFile {
    /// Reads a world and the files it names.
    ///
    /// # Errors
    /// A file that is not there or is none; the text says which, and what is wrong.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let written: Written = read(path)?;
        let beside = |file: &Path| path.with_file_name("").join(file);
        let file = beside(&written.topology);
        let name = file.display().to_string();
        let text = fs::read_to_string(&file).with_context(|| name.clone())?;
        let topology = topology::load(&text, &name).map_err(|errors| anyhow!(first_of(&errors)))?;
        let world = Self {
            name: stem(path)?,
            seed: written.seed,
            topology,
            cities: cities(&beside(&written.cities))?,
            places: written.places,
            routers: written.routers,
            isps: written.isps,
            access_ms: written.access_ms,
        };
        let checked = world.check().and_then(|()| Plan::new(&world));
        let checked = checked.and_then(|plan| plan.check_places(&world));
        checked.with_context(|| path.display().to_string())?;
        Ok(world)
    }

    /// A world of this repository by name, or any by path.
    ///
    /// # Errors
    /// See [`Self::load`].
    pub fn find(name: &str) -> anyhow::Result<Self> {
        let own = worlds_dir().join(format!("{name}.yaml"));
        if !name.contains(['/', '.']) && own.exists() {
            return Self::load(&own);
        }
        Self::load(Path::new(name))
    }

    /// Gives it another name: two worlds of one name cannot stand in one directory.
    ///
    /// # Errors
    /// The name is more than letters, digits and dashes.
    pub fn rename(&mut self, name: &str) -> anyhow::Result<()> {
        self.name = check_name(name)?;
        Ok(())
    }

    /// The city of a node of the topology, `region` being the one it belongs to, if it does.
    #[must_use]
    pub fn city_of<'a>(&'a self, node: &'a str, region: Option<&str>) -> Option<&'a str> {
        let said = self.places.get(node);
        let said = said.or_else(|| self.places.get(region?));
        let named = self.cities.cities.contains_key(node).then_some(node);
        said.map(String::as_str).or(named)
    }

    /// The city of the router that an ISP's packets pass.
    #[must_use]
    pub fn upstream_of<'a>(&'a self, isp: &'a Isp) -> &'a str {
        let far = |router: &&Router| self.cities.rtt_ms(&isp.city, &router.city);
        let nearest = || {
            let routers = self.routers.iter();
            routers.min_by(|a, b| far(a).total_cmp(&far(b)))
        };
        let said = isp.upstream.as_deref();
        said.or_else(|| nearest().map(|router| router.city.as_str()))
            .unwrap_or(&isp.city)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.routers.is_empty(), "there is no router");
        ensure!(!self.isps.is_empty(), "there is no ISP");
        let access = (0.0..=1000.0).contains(&self.access_ms);
        ensure!(access, "access_ms: 0 to 1000");
        let known = |city: &str| self.cities.cities.contains_key(city);
        let routers = self.routers.iter().map(|router| router.city.as_str());
        let isps = self.isps.iter().map(|isp| isp.city.as_str());
        let places = self.places.values().map(String::as_str);
        for city in routers.clone().chain(isps.clone()).chain(places) {
            ensure!(known(city), "there is no city `{city}`");
        }
        unique("router in", routers.clone())?;
        unique("ISP in", isps)?;
        unique("AS", self.routers.iter().map(|router| router.asn))?;
        for isp in &self.isps {
            let upstream = self.upstream_of(isp);
            let there = routers.clone().any(|city| city == upstream);
            ensure!(there, "isp-{}: no router is in `{upstream}`", isp.city);
            let few = (1..=CLIENTS_MAX).contains(&isp.clients);
            ensure!(few, "isp-{}: 1 to {CLIENTS_MAX} clients", isp.city);
        }
        Ok(())
    }
}

fn unique<T: Ord + std::fmt::Display>(
    what: &str,
    all: impl Iterator<Item = T>,
) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for one in all {
        if seen.contains(&one) {
            bail!("{what} {one} stands twice");
        }
        seen.insert(one);
    }
    Ok(())
}

/// Reads a file of cities.
///
/// # Errors
/// It is not there, is none, or a round trip names a city that it does not have.
pub fn cities(path: &Path) -> anyhow::Result<Cities> {
    let cities: Cities = read(path)?;
    if let Some(name) = cities.unknown().next() {
        bail!("{}: there is no city `{name}`", path.display());
    }
    Ok(cities)
}

fn stem(path: &Path) -> anyhow::Result<String> {
    let stem = path.file_stem().context("a world file has a name")?;
    check_name(&stem.to_string_lossy())
}

/// A name that is a directory of its own, and part of other names.
pub(super) fn check_name(name: &str) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    ensure!(
        name.chars().all(plain) && !name.starts_with('-') && (1..=32).contains(&name.len()),
        "the name of a world is letters, digits and dashes, 1 to 32"
    );
    Ok(name.to_owned())
}

/// The first error of a topology, in one line.
pub(crate) fn first_of(errors: &LoadErrors) -> String {
    match errors.as_slice() {
        [] => String::new(),
        [one] => one.to_string(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    }
}
