//! Writes a database of MaxMind's format 2.0: a binary tree over 128 bits, IPv4 below `::/96`, records of 32 bits.
//!
//! ```text
//! tree        node_count * 2 records: a node, node_count for nothing, or node_count + 16 + where the value is
//! separator   16 zero bytes
//! values      maps of strings
//! metadata    0xabcdef "MaxMind.com" and a map
//! ```
//!
//! Equal subtrees of one value become one record, so the same networks give the same bytes whatever their order.

use std::net::IpAddr;

/// What is on the other side of one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    Value(u16),
    Node(usize),
}

/// Networks and the numbers of their values.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<[Slot; 2]>,
}

/// A value: where a network is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value {
    /// Two letters.
    pub continent: String,
    /// Two letters.
    pub country: Option<String>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![[Slot::Empty; 2]],
        }
    }
}

impl Tree {
    /// Networks do not overlap.
    pub fn insert(&mut self, address: IpAddr, prefix_len: u8, value: u16) {
        let (bits, len) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), prefix_len + V4_DEPTH),
            IpAddr::V6(v6) => (v6.to_bits(), prefix_len),
        };
        let mut at = 0;
        for depth in 1..=len {
            let side = usize::from((bits >> (128 - u32::from(depth))) & 1 == 1);
            let next = self.nodes.len();
            let slot = self.nodes.get_mut(at).and_then(|node| node.get_mut(side));
            let slot = slot.expect("a node's number is that of a node");
            match *slot {
                _ if depth == len => *slot = Slot::Value(value),
                Slot::Node(node) => at = node,
                above @ (Slot::Empty | Slot::Value(_)) => {
                    *slot = Slot::Node(next);
                    self.nodes.push([above; 2]);
                    at = next;
                }
            }
        }
    }

    /// The file.
    #[must_use]
    pub fn write(&self, values: &[Value], build_epoch: u64) -> Vec<u8> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        self.compact(0, true, &mut nodes);
        let mut data = Vec::new();
        let mut offsets = Vec::new();
        for value in values {
            offsets.push(data.len());
            value.write(&mut data);
        }
        let count = nodes.len();
        let mut file = Vec::with_capacity(count * 8 + data.len() + 1024);
        for slot in nodes.into_iter().flatten() {
            let record = match slot {
                Slot::Empty => count,
                Slot::Node(node) => node,
                Slot::Value(value) => {
                    let offset = offsets.get(usize::from(value));
                    count + SEPARATOR_LEN + offset.copied().unwrap_or_default()
                }
            };
            file.extend(u32::try_from(record).unwrap_or(u32::MAX).to_be_bytes());
        }
        file.extend([0; SEPARATOR_LEN]);
        file.extend(data);
        metadata(count, build_epoch, &mut file);
        file
    }

    /// Appends the node and what is below it; a node whose sides are equal is no node, unless it is the root.
    fn compact(&self, node: usize, is_root: bool, out: &mut Vec<[Slot; 2]>) -> Slot {
        let index = out.len();
        out.push([Slot::Empty; 2]);
        let sides = self.nodes.get(node).copied().unwrap_or([Slot::Empty; 2]);
        let sides = sides.map(|side| match side {
            Slot::Node(below) => self.compact(below, false, out),
            Slot::Empty | Slot::Value(_) => side,
        });
        let [low, high] = sides;
        if low == high && !matches!(low, Slot::Node(_)) && !is_root {
            out.truncate(index);
            return low;
        }
        if let Some(slot) = out.get_mut(index) {
            *slot = sides;
        }
        Slot::Node(index)
    }
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        head(MAP, 1 + usize::from(self.country.is_some()), out);
        for (key, inner, text) in [
            ("continent", "code", Some(&self.continent)),
            ("country", "iso_code", self.country.as_ref()),
        ] {
            if let Some(text) = text {
                string(key, out);
                head(MAP, 1, out);
                string(inner, out);
                string(text, out);
            }
        }
    }
}

fn metadata(node_count: usize, build_epoch: u64, out: &mut Vec<u8>) {
    out.extend(b"\xab\xcd\xefMaxMind.com");
    head(MAP, 9, out);
    string("binary_format_major_version", out);
    number(UINT16, 2, out);
    string("binary_format_minor_version", out);
    number(UINT16, 0, out);
    string("build_epoch", out);
    number(UINT64, build_epoch, out);
    string("database_type", out);
    string("firsthop-lab-Country", out);
    string("description", out);
    head(MAP, 1, out);
    string("en", out);
    string("countries and continents", out);
    string("ip_version", out);
    number(UINT16, 6, out);
    string("languages", out);
    head(ARRAY, 0, out);
    string("node_count", out);
    number(UINT32, u64::try_from(node_count).unwrap_or(u64::MAX), out);
    string("record_size", out);
    number(UINT16, 32, out);
}

const STRING: u8 = 2;
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const MAP: u8 = 7;
const UINT64: u8 = 9;
const ARRAY: u8 = 11;

/// Type and length of a field; types from 8 on are in a byte of their own. Nothing here is longer than 28.
fn head(kind: u8, len: usize, out: &mut Vec<u8>) {
    let len = u8::try_from(len).unwrap_or_default().min(28);
    if kind < 8 {
        out.push((kind << 5) | len);
    } else {
        out.extend([len, kind - 7]);
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    head(STRING, text.len(), out);
    out.extend(text.as_bytes());
}

fn number(kind: u8, value: u64, out: &mut Vec<u8>) {
    let bytes = value
        .to_be_bytes()
        .into_iter()
        .skip_while(|byte| *byte == 0);
    let bytes: Vec<_> = bytes.collect();
    head(kind, bytes.len(), out);
    out.extend(bytes);
}

const SEPARATOR_LEN: usize = 16;
/// Bits above an IPv4 address.
const V4_DEPTH: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use maxminddb::{Reader, path};

    fn value(continent: &str, country: Option<&str>) -> Value {
        Value {
            continent: continent.to_owned(),
            country: country.map(str::to_owned),
        }
    }

    fn file(networks: &[(&str, u8, u16)]) -> Vec<u8> {
        let mut tree = Tree::default();
        for (address, len, value) in networks {
            tree.insert(address.parse().unwrap(), *len, *value);
        }
        tree.write(&[value("EU", None), value("NA", Some("US"))], 77)
    }

    #[test]
    fn what_is_written_is_read_back_with_its_prefix() {
        let bytes = file(&[("10.0.0.0", 8, 1), ("2a00::", 12, 0), ("11.1.2.3", 32, 0)]);
        let reader = Reader::from_source(bytes).unwrap();
        reader.verify().unwrap();
        assert_eq!(reader.metadata().build_epoch, 77);
        let look = |address: &str| {
            let found = reader.lookup(address.parse().unwrap()).unwrap();
            let code = |outer, inner| found.decode_path::<String>(&path![outer, inner]).unwrap();
            let prefix = found.network().unwrap().prefix();
            (
                code("continent", "code"),
                code("country", "iso_code"),
                prefix,
            )
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(look("10.9.9.9"), (some("NA"), some("US"), 8));
        assert_eq!(look("11.1.2.3"), (some("EU"), None, 32));
        assert_eq!(look("2a0f::1"), (some("EU"), None, 12));
        assert_eq!(look("12.0.0.1").0, None);
    }

    #[test]
    fn halves_of_one_value_are_one_network_and_order_is_nothing() {
        let whole = file(&[("10.0.0.0", 8, 1)]);
        assert_eq!(whole, file(&[("10.0.0.0", 9, 1), ("10.128.0.0", 9, 1)]));
        assert_eq!(whole, file(&[("10.128.0.0", 9, 1), ("10.0.0.0", 9, 1)]));
        Reader::from_source(file(&[])).unwrap();
    }
}
