//! Writes databases in the MaxMind DB format for tests: any networks, any records. Not fast, not small.

use ipnet::IpNet;

/// A value of a record.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Map(Vec<(String, Self)>),
    Double(f64),
    Float(f32),
    Number(u32),
    Short(u16),
    Long(u64),
    /// An array without elements.
    Nothing,
}

/// Text.
pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A map.
pub(crate) fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.map(|(key, value)| (key.to_owned(), value)).into())
}

/// What a database is to be.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) kind: String,
    /// 4 or 6.
    pub(crate) ip_version: u16,
    pub(crate) built_unix_s: u64,
    /// Later and longer prefixes override.
    pub(crate) networks: Vec<(IpNet, Value)>,
}

impl Draft {
    /// IPv6 with an IPv4 subtree.
    pub(crate) fn new(networks: Vec<(IpNet, Value)>) -> Self {
        Self {
            kind: "Test".to_owned(),
            ip_version: 6,
            built_unix_s: 1_790_000_000,
            networks,
        }
    }

    /// The bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut tree = vec![[Slot::Empty; 2]];
        let mut networks: Vec<_> = self.networks.iter().collect();
        networks.sort_by_key(|(net, _)| net.prefix_len());
        for (net, value) in networks {
            let offset = u32::try_from(data.len()).unwrap();
            encode(value, &mut data);
            let (bits, len) = self.place(*net);
            insert(&mut tree, bits, len, offset);
        }
        let nodes = u32::try_from(tree.len()).unwrap();
        let mut bytes = Vec::new();
        for slot in tree.iter().flatten() {
            let word = match slot {
                Slot::Empty => nodes,
                Slot::Node(node) => *node,
                Slot::Data(offset) => nodes + 16 + offset,
            };
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([0; 16]);
        bytes.extend(data);
        bytes.extend(b"\xab\xcd\xefMaxMind.com");
        encode(&self.metadata(nodes), &mut bytes);
        bytes
    }

    /// Bits of the search tree, and how many: the first bits of a `u128`.
    fn place(&self, net: IpNet) -> (u128, u8) {
        match net {
            IpNet::V4(net) => {
                let bits = u128::from(u32::from(net.network()));
                match self.ip_version {
                    4 => (bits << 96, net.prefix_len()),
                    _ => (bits, net.prefix_len() + 96),
                }
            }
            IpNet::V6(net) => (net.network().into(), net.prefix_len()),
        }
    }

    fn metadata(&self, nodes: u32) -> Value {
        map([
            ("binary_format_major_version", Value::Short(2)),
            ("binary_format_minor_version", Value::Short(0)),
            ("build_epoch", Value::Long(self.built_unix_s)),
            ("database_type", text(&self.kind)),
            ("description", map([])),
            ("ip_version", Value::Short(self.ip_version)),
            ("languages", Value::Nothing),
            ("node_count", Value::Number(nodes)),
            ("record_size", Value::Short(32)),
        ])
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Empty,
    Node(u32),
    Data(u32),
}

/// Prefixes come shortest first: what is below `bits/len` is empty or one wider network.
fn insert(tree: &mut Vec<[Slot; 2]>, bits: u128, len: u8, offset: u32) {
    let bit = |i: u8| usize::from(bits >> (127 - i) & 1 == 1);
    let mut node = 0;
    for i in 0..len - 1 {
        node = match tree[node][bit(i)] {
            Slot::Node(below) => below as usize,
            wider @ (Slot::Empty | Slot::Data(_)) => {
                let below = tree.len();
                tree.push([wider; 2]);
                tree[node][bit(i)] = Slot::Node(u32::try_from(below).unwrap());
                below
            }
        };
    }
    tree[node][bit(len - 1)] = Slot::Data(offset);
}

fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => {
            control(2, text.len(), out);
            out.extend(text.as_bytes());
        }
        Value::Map(entries) => {
            control(7, entries.len(), out);
            for (key, value) in entries {
                encode(&Value::Text(key.clone()), out);
                encode(value, out);
            }
        }
        Value::Double(number) => {
            control(3, 8, out);
            out.extend(number.to_be_bytes());
        }
        Value::Float(number) => {
            control(15, 4, out);
            out.extend(number.to_be_bytes());
        }
        Value::Nothing => control(11, 0, out),
        Value::Short(number) => {
            control(5, 2, out);
            out.extend(number.to_be_bytes());
        }
        Value::Long(number) => {
            control(9, 8, out);
            out.extend(number.to_be_bytes());
        }
        Value::Number(number) => {
            control(6, 4, out);
            out.extend(number.to_be_bytes());
        }
    }
}

fn control(kind: u8, len: usize, out: &mut Vec<u8>) {
    let (size, more) = match len {
        0..29 => (u8::try_from(len).unwrap(), None),
        _ => (29, Some(u8::try_from(len - 29).unwrap())),
    };
    if kind < 8 {
        out.push(kind << 5 | size);
    } else {
        out.extend([size, kind - 7]);
    }
    out.extend(more);
}
