//! The database that every server of the comparison reads: the public-domain country database, rewritten into the nested
//! schema that gdnsd and Knot want, with the continent of each country. Deterministic: the same source gives the same file.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use maxminddb::{Reader, path};

use super::countries;
use super::map::{self, Place};
use super::mmdb::{Tree, Value};
use crate::net::programs_dir;

/// A network of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Bits.
    pub prefix_len: u8,
}

/// A written database, and what is in it.
#[derive(Debug)]
pub struct Database {
    file: PathBuf,
    reader: Reader<Vec<u8>>,
    networks: Vec<Network>,
}

/// What is written of each country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// As it is.
    First,
    /// South America is told to be Africa: a database that is replaced by this one has other answers.
    Second,
}

impl Database {
    /// Writes it into `dir`.
    ///
    /// # Errors
    /// The source is not there, or `dir` cannot be written to.
    pub fn write(dir: &Path, edition: Edition) -> anyhow::Result<Self> {
        let source = source()?;
        let source = Reader::open_readfile(&source)
            .with_context(|| format!("reading {}", source.display()))?;
        let (bytes, networks) = convert(&source, edition)?;
        let file = dir.join(format!("{edition:?}.mmdb").to_lowercase());
        fs::create_dir_all(dir)?;
        fs::write(&file, &bytes).with_context(|| format!("writing {}", file.display()))?;
        let reader = Reader::from_source(bytes)?;
        Ok(Self {
            file,
            reader,
            networks,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The same in a file of its own.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn copied_to(self, file: &Path) -> anyhow::Result<Self> {
        fs::copy(&self.file, file)?;
        Ok(Self {
            file: file.to_owned(),
            ..self
        })
    }

    /// Every network that has a place.
    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// The region that the map gives an address; none: it is nowhere.
    #[must_use]
    pub fn place(&self, address: IpAddr) -> Option<&'static Place> {
        let found = self.reader.lookup(address).ok()?;
        let continent: &str = found.decode_path(&path!["continent", "code"]).ok()??;
        let country = found.decode_path(&path!["country", "iso_code"]);
        map::first(continent, country.ok().flatten())
    }
}

fn convert(source: &Reader<Vec<u8>>, edition: Edition) -> anyhow::Result<(Vec<u8>, Vec<Network>)> {
    let (mut tree, mut networks) = (Tree::default(), Vec::new());
    let mut values = BTreeMap::new();
    for found in source.networks(maxminddb::WithinOptions::default())? {
        let found = found?;
        let country: Option<&str> = found.decode_path(&path!["country_code"])?;
        let Some(value) = country.and_then(|country| value(country, edition)) else {
            continue;
        };
        let next = values.len();
        let number = *values.entry(value).or_insert(next);
        let network = found.network()?;
        let (address, prefix_len) = (network.ip(), network.prefix());
        if prefix_len > 0 {
            tree.insert(address, prefix_len, u16::try_from(number)?);
            networks.push(Network {
                address,
                prefix_len,
            });
        }
    }
    ensure!(
        networks.len() > 1000,
        "the database has hardly any networks"
    );
    let mut numbered: Vec<_> = values.into_iter().collect();
    numbered.sort_by_key(|(_, number)| *number);
    let values: Vec<_> = numbered.into_iter().map(|(value, _)| value).collect();
    Ok((tree.write(&values, source.metadata().build_epoch), networks))
}

/// Codes that are no country's are left out.
fn value(country: &str, edition: Edition) -> Option<Value> {
    let continent = match (countries::continent(country)?, edition) {
        ("SA", Edition::Second) => "AF",
        (continent, Edition::First | Edition::Second) => continent,
    };
    Some(Value {
        continent: continent.to_owned(),
        country: Some(country.to_owned()),
    })
}

/// The public-domain database that the test command fetches.
fn source() -> anyhow::Result<PathBuf> {
    let profile = programs_dir()?;
    let target = profile.parent().unwrap_or(&profile);
    let file = target.join("geo-databases/iptoasn-country.mmdb");
    ensure!(
        file.exists(),
        "{} is not there: the test command fetches it",
        file.display()
    );
    Ok(file)
}
