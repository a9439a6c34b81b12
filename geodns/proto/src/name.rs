//! Domain names in wire form, lower case: what the zone is made of and questions are compared with.
//!
//! ```text
//! 3 r t c   7 e x a m p l e   3 c o m   0        rtc.example.com, 17 bytes
//! ```
//!
//! Not the parser of names in packets: that one reads untrusted bytes and knows compression.

use std::cmp::Ordering;
use std::fmt;

/// Longest name, in bytes of its wire form (RFC 1035 §2.3.4).
pub const NAME_LEN_MAX: usize = 255;

/// Longest label, in bytes.
pub const LABEL_LEN_MAX: usize = 63;

/// Labels of the longest name, without the root.
const LABELS_MAX: usize = NAME_LEN_MAX / 2;

/// A name, lower case, at most [`NAME_LEN_MAX`] bytes, with the root's empty label at its end.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<[u8]>);

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// An empty label, or one over 63 bytes.
    #[error("a label of {0} bytes, 1..=63 are allowed")]
    Label(usize),
    /// Over 255 bytes.
    #[error("the name is longer than 255 bytes")]
    TooLong,
}

impl Name {
    /// The root.
    #[must_use]
    pub fn root() -> Self {
        Self(Box::new([0]))
    }

    /// A name as people write it, without a dot at its end and without escapes.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        Self::root().below(text)
    }

    /// `labels` (one or more, separated by dots) in front of this name.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn below(&self, labels: &str) -> Result<Self, NameError> {
        self.below_labels(labels.split('.').map(str::as_bytes))
    }

    /// The same with labels that may hold any byte.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn below_labels<'a>(
        &self,
        labels: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, NameError> {
        let mut wire = Vec::with_capacity(NAME_LEN_MAX);
        for label in labels {
            let len = u8::try_from(label.len()).unwrap_or(u8::MAX);
            if !(1..=LABEL_LEN_MAX).contains(&label.len()) {
                return Err(NameError::Label(label.len()));
            }
            wire.push(len);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        wire.extend_from_slice(&self.0);
        if wire.len() > NAME_LEN_MAX {
            return Err(NameError::TooLong);
        }
        Ok(Self(wire.into()))
    }

    /// Its wire form, lower case and uncompressed.
    #[must_use]
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// The name without its first label; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        parent(&self.0).map(|wire| Self(wire.into()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As in a zone file, with the dot at its end.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == 1 {
            return f.write_str(".");
        }
        for label in labels(&self.0) {
            for byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                    0x21..=0x7e => write!(f, "{}", char::from(*byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

/// By canonical order (RFC 4034 §6.1).
impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        canonical_order(&self.0, &other.0)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A wire name without its first label; `None` for the root.
pub(crate) fn parent(wire: &[u8]) -> Option<&[u8]> {
    match wire.split_first() {
        Some((&len, rest)) if len > 0 => rest.get(usize::from(len)..),
        Some(_) | None => None,
    }
}

/// Labels of a wire name from the left, without the root's.
pub(crate) fn labels(mut wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let rest = parent(wire)?;
        let label = wire.get(1..wire.len() - rest.len())?;
        wire = rest;
        Some(label)
    })
}

/// Whether `wire` is `zone` or lies below it.
pub(crate) fn is_within(wire: &[u8], zone: &[u8]) -> bool {
    let mut at = Some(wire);
    while let Some(name) = at {
        match name.len().cmp(&zone.len()) {
            Ordering::Greater => at = parent(name),
            Ordering::Equal => return name == zone,
            Ordering::Less => return false,
        }
    }
    false
}

/// Canonical order of two lower-case wire names: labels are compared from the right (RFC 4034 §6.1).
pub(crate) fn canonical_order(a: &[u8], b: &[u8]) -> Ordering {
    SortKey::of(a).as_bytes().cmp(SortKey::of(b).as_bytes())
}

/// A name as bytes whose order is the canonical one, on the stack.
///
/// ```text
/// a.example    "example" 0 "a" 0        bytes 0 and 1 of a label are written as 1 1 and 1 2, so 0 only ends labels
/// ```
pub(crate) struct SortKey {
    bytes: [u8; SORT_KEY_LEN_MAX],
    len: usize,
}

/// Every byte of a label may take two; a label's end takes the place of its length.
const SORT_KEY_LEN_MAX: usize = 2 * NAME_LEN_MAX;

impl SortKey {
    /// Of a lower-case wire name.
    pub(crate) fn of(wire: &[u8]) -> Self {
        let mut list = [&[][..]; LABELS_MAX];
        let mut count = 0;
        for (slot, label) in list.iter_mut().zip(labels(wire)) {
            *slot = label;
            count += 1;
        }
        let mut key = Self {
            bytes: [0; SORT_KEY_LEN_MAX],
            len: 0,
        };
        for label in list.iter().take(count).rev() {
            for byte in *label {
                match byte {
                    0 | 1 => {
                        key.push(1);
                        key.push(byte + 1);
                    }
                    2.. => key.push(*byte),
                }
            }
            key.push(0);
        }
        key
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }
}

/// How many labels, from the right, two names have in common, by the bytes of their sort keys.
pub(crate) fn labels_in_common(a: &[u8], b: &[u8]) -> usize {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b);
    common.filter(|(byte, _)| **byte == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn texts_become_wire_names() {
        assert_eq!(name("Ab.c").as_wire(), b"\x02ab\x01c\x00");
        assert_eq!(Name::root().as_wire(), b"\x00");
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(name(&longest).as_wire().len(), 255);
        for (text, error) in [
            ("", NameError::Label(0)),
            ("a..b", NameError::Label(0)),
            ("a.", NameError::Label(0)),
            (&"a".repeat(64), NameError::Label(64)),
            (&format!("{longest}a"), NameError::TooLong),
        ] {
            assert_eq!(Name::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn names_are_shown_as_in_zone_files() {
        assert_eq!(Name::root().to_string(), ".");
        assert_eq!(name("A.b-c").to_string(), "a.b-c.");
        let odd = Name::root().below_labels([&b"a.b\\ \x00"[..]]).unwrap();
        assert_eq!(odd.to_string(), "a\\.b\\\\\\032\\000.");
    }

    /// The example of RFC 4034 §6.1.
    #[test]
    fn names_have_canonical_order() {
        let binary = |byte: u8| name("z.example").below_labels([&[byte][..]]).unwrap();
        let sorted = [
            name("example"),
            name("a.example"),
            name("yljkjljk.a.example"),
            name("Z.a.example"),
            name("zABC.a.EXAMPLE"),
            name("z.example"),
            binary(1),
            name("*.z.example"),
            binary(200),
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn names_have_labels_in_common() {
        let common = |a: &str, b: &str| {
            let keys = [a, b].map(|text| SortKey::of(name(text).as_wire()));
            labels_in_common(keys[0].as_bytes(), keys[1].as_bytes())
        };
        assert_eq!(common("a.b.c", "x.b.c"), 2);
        assert_eq!(common("a.b.c", "ab.c"), 1);
        assert_eq!(common("b.c", "a.b.c"), 2);
        assert_eq!(common("a", "b"), 0);
        // As long as a name gets, with bytes that take two each.
        let label = [1_u8; 63];
        let longest = Name::root().below_labels([&label[..], &label, &label, &label[..61]]);
        let longest = longest.unwrap();
        let key = SortKey::of(longest.as_wire());
        assert_eq!(key.as_bytes().len(), 2 * 250 + 4);
    }

    #[test]
    fn within_is_by_labels() {
        let zone = name("b.c");
        for (text, within) in [
            ("b.c", true),
            ("a.b.c", true),
            ("x.a.b.c", true),
            ("ab.c", false),
            ("c", false),
            ("b.c.d", false),
        ] {
            assert_eq!(
                is_within(name(text).as_wire(), zone.as_wire()),
                within,
                "{text}"
            );
        }
        // A label whose bytes look like the end of the zone's name.
        let disguised = name("d").below_labels([&b"a\x01b\x01c\x00"[..]]).unwrap();
        assert!(!is_within(disguised.as_wire(), zone.as_wire()));
    }

    #[test]
    fn broken_wire_names_end() {
        for wire in [&b""[..], b"\x05ab", b"\x01a", b"\xff"] {
            assert!(labels(wire).count() <= 1);
            assert!(!is_within(wire, b"\x01a\x00"));
            assert_eq!(canonical_order(wire, wire), Ordering::Equal);
        }
    }
}
