//! Hint key files (`hint.keys`): making and rotating them, and the key of the DNS zone. What the lines mean is
//! `wire::hint::KeyRing`'s.
//!
//! ```text
//!              previous   current   next        opens with: all three
//!  new                       0        1         seals with: current
//!  rotate          0         1        2         so a key is known everywhere before anything is sealed with it,
//!  rotate          1         2        3         and goes on opening for one rotation after
//! ```

use std::path::Path;

use anyhow::{Context, bail};
use ring::rand::SystemRandom;
use runtime::credentials::{PrivateKey, dnssec_keys};
use runtime::files::read_text;
use topology::Topology;
use wire::hint::KeyRing;

use crate::certs::key_pem;
use crate::files::{Existing, NewFile, write_set};
use crate::random;

/// Longest key file that is read, in bytes: three lines and what people write beside them.
const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// Key ids are 4 bits in a ufrag.
const IDS: u8 = 16;

/// Text of the help of `firsthop keys rotate`.
pub const ROTATE_HELP: &str = "\
Moves every key one role on: next becomes current, current becomes previous, previous is dropped, and a fresh key
becomes next. The file is replaced in one step; a running node notices within a second.

The safe order:
  1. `firsthop keys rotate hint.keys` on one machine.
  2. Copy the file to every node of the network, in any order. What one node seals with the
     current key, a node that still has the older file opens with its next key.
  3. Rotate again only when every node has this file, and no sooner than the longest call lasts
     (network.hint_age_max_min of the topology): a call whose hint was sealed with a dropped key cannot be moved.";

/// One line of a key file.
struct Key {
    id: u8,
    hex: String,
}

/// The keys of a file by role.
struct Roles {
    previous: Option<Key>,
    current: Key,
    next: Option<Key>,
}

/// What a rotation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Every key moved on; `current` seals from here on.
    Rotated {
        /// Id of the current key.
        current: u8,
        /// Id of the fresh key.
        next: u8,
    },
    /// There was no next key, so nobody knows the key that would become current: one was added, nothing moved.
    NextAdded {
        /// Id of the fresh key.
        next: u8,
    },
}

/// The text of a fresh key file.
///
/// # Errors
/// When there is no randomness.
pub fn fresh() -> anyhow::Result<String> {
    let roles = Roles {
        previous: None,
        current: fresh_key(0)?,
        next: Some(fresh_key(1)?),
    };
    Ok(roles.to_text())
}

/// Writes a fresh key file.
///
/// # Errors
/// When it exists and may not be replaced, or cannot be written.
pub fn write_new(file: &Path, existing: Existing) -> anyhow::Result<()> {
    write_set(&[NewFile::private(file.to_owned(), fresh()?)], existing)
}

/// Writes a fresh key of the DNS zone.
///
/// # Errors
/// When the file exists and may not be replaced, or cannot be written.
pub fn write_dnssec(file: &Path, existing: Existing) -> anyhow::Result<()> {
    write_set(&[NewFile::private(file.to_owned(), key_pem()?)], existing)
}

/// The DS records of the keys in `file`, as in the zone file of the parent.
///
/// # Errors
/// When the file has no keys of the kind that signs, or the topology no zone.
pub fn ds(file: &Path, topology: &Topology) -> anyhow::Result<Vec<String>> {
    let dns = topology.dns.as_ref().context("the topology has no `dns`")?;
    let zone = geodns_proto::Name::parse(&dns.zone)?;
    let text = read_text(file, KEY_FILE_BYTES_MAX)
        .with_context(|| format!("reading {}", file.display()))?;
    let keys = zone_keys(&text).with_context(|| format!("reading {}", file.display()))?;
    Ok(keys.ds_texts(&zone))
}

fn zone_keys(pem: &str) -> anyhow::Result<geodns_proto::Keys> {
    let list = dnssec_keys(pem.as_bytes())?;
    let der: Vec<_> = list.iter().map(PrivateKey::der).collect();
    let der = der.iter().map(|key| key.secret_der());
    Ok(geodns_proto::Keys::from_pkcs8(der, &SystemRandom::new())?)
}

/// Rotates a key file in place.
///
/// # Errors
/// When it cannot be read, is not a key file, or cannot be written.
pub fn rotate(file: &Path) -> anyhow::Result<Rotation> {
    let text = read_text(file, KEY_FILE_BYTES_MAX)
        .with_context(|| format!("reading {}", file.display()))?;
    let (text, rotation) =
        rotated(&text).with_context(|| format!("rotating {}", file.display()))?;
    write_set(
        &[NewFile::private(file.to_owned(), text)],
        Existing::Replace,
    )?;
    Ok(rotation)
}

fn rotated(text: &str) -> anyhow::Result<(String, Rotation)> {
    let Roles {
        previous,
        current,
        next,
    } = parse(text)?;
    let Some(next) = next else {
        let id = free_id(current.id, &[Some(&current), previous.as_ref()]);
        let roles = Roles {
            previous,
            current,
            next: Some(fresh_key(id)?),
        };
        return Ok((roles.to_text(), Rotation::NextAdded { next: id }));
    };
    let id = free_id(next.id, &[Some(&next), Some(&current), previous.as_ref()]);
    let rotation = Rotation::Rotated {
        current: next.id,
        next: id,
    };
    let roles = Roles {
        previous: Some(current),
        current: next,
        next: Some(fresh_key(id)?),
    };
    Ok((roles.to_text(), rotation))
}

/// The id after `last`, modulo 16, that none of `taken` has. The dropped key counts as taken: two keys of one id
/// never meet while files differ between nodes.
fn free_id(last: u8, taken: &[Option<&Key>]) -> u8 {
    (1..IDS)
        .map(|step| (last + step) % IDS)
        .find(|id| taken.iter().flatten().all(|key| key.id != *id))
        .unwrap_or(last)
}

fn fresh_key(id: u8) -> anyhow::Result<Key> {
    let hex = random::hex::<16>()?;
    Ok(Key { id, hex })
}

fn parse(text: &str) -> anyhow::Result<Roles> {
    KeyRing::parse(text)?;
    let (mut previous, mut current, mut next) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        if let (Some(role), Some(id), Some(hex)) = (words.next(), words.next(), words.next()) {
            let key = Key {
                id: id.parse()?,
                hex: hex.to_owned(),
            };
            match role {
                "previous" => previous = Some(key),
                "current" => current = Some(key),
                _ => next = Some(key),
            }
        }
    }
    let Some(current) = current else {
        bail!("no `current` key");
    };
    Ok(Roles {
        previous,
        current,
        next,
    })
}

impl Roles {
    fn to_text(&self) -> String {
        let mut text = String::from(
            "# Hint keys: <role> <id 0-15> <128-bit key>. The same file on every node.\n",
        );
        let roles = [
            ("previous", self.previous.as_ref()),
            ("current", Some(&self.current)),
            ("next", self.next.as_ref()),
        ];
        for (role, key) in roles {
            if let Some(Key { id, hex }) = key {
                text.push_str(&format!("{role} {id} {hex}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use wire::hint::{Hint, Minute};
    use wire::{Owner, RegionId, TransceiverId};

    use super::*;

    const HINT: Hint = Hint {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(2),
        },
        issued: Minute(3),
    };

    #[test]
    fn neighbouring_files_open_each_others_hints() {
        let mut text = fresh().unwrap();
        for _ in 0..40 {
            let (later, rotation) = rotated(&text).unwrap();
            assert!(matches!(rotation, Rotation::Rotated { .. }));
            let (old, new) = (
                KeyRing::parse(&text).unwrap(),
                KeyRing::parse(&later).unwrap(),
            );
            assert_eq!(new.open(old.seal(HINT, [1; 3]).as_bytes()), Ok(HINT));
            assert_eq!(old.open(new.seal(HINT, [1; 3]).as_bytes()), Ok(HINT));
            text = later;
        }
    }

    #[test]
    fn a_key_of_the_zone_has_a_ds_record() {
        let dir = crate::tempdir::TempDir::create().unwrap();
        let file = dir.path().join("dnssec.pem");
        write_dnssec(&file, Existing::Keep).unwrap();
        let world = include_str!("../../topology/samples/world.yaml");
        let mut world = topology::load(world, "world.yaml").unwrap();
        let records = ds(&file, &world).unwrap();
        let [record] = records.as_slice() else {
            panic!("{records:?}");
        };
        let words: Vec<_> = record.split(' ').collect();
        assert_eq!(words[..3], ["rtc.example.com.", "IN", "DS"]);
        assert_eq!((words[4], words[5], words[6].len()), ("13", "2", 64));
        assert!(write_dnssec(&file, Existing::Keep).is_err());
        std::fs::write(&file, fresh().unwrap()).unwrap();
        assert!(ds(&file, &world).is_err(), "hint keys");
        world.dns = None;
        assert!(ds(&file, &world).is_err());
    }

    #[test]
    fn ids_go_round() {
        let mut text = fresh().unwrap();
        let mut ids = Vec::new();
        for _ in 0..16 {
            let (later, rotation) = rotated(&text).unwrap();
            if let Rotation::Rotated { current, next } = rotation {
                ids.push((current, next));
            }
            text = later;
        }
        assert_eq!(ids.first(), Some(&(1, 2)));
        assert_eq!(ids.get(13..), Some(&[(14, 15), (15, 0), (0, 1)][..]));
    }

    #[test]
    fn ids_chosen_by_hand_do_not_clash() {
        let key = "00112233445566778899aabbccddeeff";
        let text = format!("previous 2 {key}\ncurrent 3 {key}\nnext 1 {key}\n");
        let (_, rotation) = rotated(&text).unwrap();
        assert_eq!(
            rotation,
            Rotation::Rotated {
                current: 1,
                next: 4
            }
        );
    }

    #[test]
    fn without_a_next_key_nothing_moves() {
        let key = "00112233445566778899aabbccddeeff";
        let (text, rotation) = rotated(&format!("current 15 {key}\n")).unwrap();
        assert_eq!(rotation, Rotation::NextAdded { next: 0 });
        assert!(text.contains(&format!("current 15 {key}\n")));
    }

    #[test]
    fn what_is_no_key_file_is_refused() {
        for text in ["", "next 1 00112233445566778899aabbccddeeff", "hello"] {
            assert!(rotated(text).is_err(), "{text}");
        }
    }
}
