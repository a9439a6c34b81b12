//! A query, read from bytes once and strictly: header, one question, at most one OPT record (RFC 1035 §4, RFC 6891).
//!
//! ```text
//!  0    2       4         6         8         10        12
//!  +----+-------+---------+---------+---------+---------+------------------------------+------+-------+------------+
//!  | id | flags | QDCOUNT | ANCOUNT | NSCOUNT | ARCOUNT | name: labels and a zero byte | type | class | [OPT]      |
//!  +----+-------+---------+---------+---------+---------+------------------------------+------+-------+------------+
//! ```
//!
//! What is not of this shape but may still deserve an answer is [`Unread::Slow`]; what is malformed is [`Unread::Malformed`].
//! It does not know the zone and decides no answer. The slow path reads with the same function, so that both ways refuse the same.

use crate::ecs::{self, Subnet};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Bytes of the longest name (RFC 1035 §2.3.4).
pub const NAME_BYTES_MAX: usize = 255;
/// Type and class behind a name.
pub const QUESTION_TAIL_BYTES: usize = 4;
const LABEL_BYTES_MAX: u8 = 63;
/// Bytes of an OPT record without its options.
pub const OPT_BYTES: usize = 11;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;
pub(crate) const CODE_NSID: u16 = 3;
const CODE_COOKIE: u16 = 10;
/// Client cookie, and the longest server cookie (RFC 7873 §4).
const CLIENT_COOKIE_BYTES: usize = 8;
const COOKIE_BYTES_MAX: usize = 40;
const COOKIE_BYTES_MIN: usize = 16;
/// A client cookie and a server cookie of ours.
const OUR_COOKIE_BYTES: usize = 24;

/// One question, and what its OPT record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Bytes of the name, with the zero byte.
    pub name_len: u8,
    /// Type asked for.
    pub qtype: u16,
    /// Whether recursion is desired; echoed.
    pub recursion_desired: bool,
    /// What the OPT record says, if there is one.
    pub edns: Option<Edns>,
}

/// An OPT record; the default says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edns {
    /// Bytes of UDP payload the asker takes.
    pub payload_max: u16,
    /// Version; the options of any but 0 are not read.
    pub version: u8,
    /// Whether signatures are wanted (DO, RFC 3225).
    pub dnssec_ok: bool,
    /// Whether the name of the server is wanted (RFC 5001).
    pub nsid: bool,
    /// The last client subnet.
    pub subnet: Option<Subnet>,
    /// The first cookie (RFC 7873 §5.2).
    pub cookie: Option<Cookie>,
}

/// The cookie option of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    /// The client's.
    pub client: [u8; 8],
    /// The server's.
    pub server: ServerCookie,
}

/// What follows the client cookie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerCookie {
    /// Nothing: the client knows none yet.
    None,
    /// As long as ours are.
    Ours([u8; 16]),
    /// Of another length.
    Foreign,
}

impl std::fmt::Debug for Cookie {
    /// Never the cookie.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.server {
            ServerCookie::None => "Cookie(client)",
            ServerCookie::Ours(_) => "Cookie(client, server)",
            ServerCookie::Foreign => "Cookie(client, foreign)",
        })
    }
}

/// Why a packet is not a [`Query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Nothing to answer.
    Drop(Garbage),
    /// FORMERR. The bytes of header and question that can be echoed: 12 when the question cannot be read. `edns` when an OPT record
    /// was read, but not what is in it.
    Malformed {
        /// Bytes of header and question.
        echo_len: u16,
        /// Whether the answer carries an OPT record.
        edns: bool,
    },
    /// Well formed as far as it was read, but not what the fast path answers.
    Slow(Unusual),
}

/// Why a packet gets no answer at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// Shorter than a header.
    Short,
    /// A response: answering it would be the beginning of a loop.
    Response,
}

/// What makes a query one for the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusual {
    /// Another opcode than QUERY.
    Opcode,
    /// Counts of records that an ordinary query does not have.
    Counts,
    /// The truncation bit is set.
    Truncated,
    /// A class other than IN.
    Class,
    /// A type that is no record's: AXFR, TKEY ...
    MetaType,
    /// An additional record that is not OPT: TSIG, SIG(0).
    Additional,
}

impl Query {
    /// Reads a whole packet.
    ///
    /// # Errors
    /// See [`Unread`].
    pub fn parse(packet: &[u8]) -> Result<Self, Unread> {
        let short = Unread::Drop(Garbage::Short);
        let (header, rest) = packet.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let [_, _, high, _, counts @ ..] = *header;
        if high & FLAG_RESPONSE != 0 {
            return Err(Unread::Drop(Garbage::Response));
        }
        let has_opt = shape(high, counts).map_err(Unread::Slow)?;
        let name_len = name_len(rest).ok_or(Unread::Malformed {
            echo_len: 12,
            edns: false,
        })?;
        let after_name = rest.get(usize::from(name_len)..).unwrap_or_default();
        let malformed = |echo_len, edns| Unread::Malformed { echo_len, edns };
        let (&[t0, t1, c0, c1], tail) = after_name
            .split_first_chunk::<QUESTION_TAIL_BYTES>()
            .ok_or_else(|| malformed(12, false))?;
        let echo_len = 16 + u16::from(name_len);
        let qtype = u16::from_be_bytes([t0, t1]);
        if u16::from_be_bytes([c0, c1]) != CLASS_IN {
            return Err(Unread::Slow(Unusual::Class));
        }
        if is_meta(qtype) {
            return Err(Unread::Slow(Unusual::MetaType));
        }
        let edns = match (has_opt, tail) {
            (false, []) => None,
            (false, _) => return Err(malformed(echo_len, false)),
            (true, record) => Some(Edns::parse(record, echo_len)?),
        };
        Ok(Self {
            name_len,
            qtype,
            recursion_desired: high & FLAG_RECURSION_DESIRED != 0,
            edns,
        })
    }

    /// Bytes of header and question: what an answer begins with.
    #[must_use]
    pub const fn question_end(&self) -> usize {
        HEADER_BYTES + self.name_len as usize + QUESTION_TAIL_BYTES
    }
}

impl Edns {
    /// Reads the record that must be the rest of the packet.
    fn parse(record: &[u8], echo_len: u16) -> Result<Self, Unread> {
        let malformed = |edns| Unread::Malformed { echo_len, edns };
        let (fixed, options) = record
            .split_first_chunk::<OPT_BYTES>()
            .ok_or_else(|| malformed(false))?;
        let [owner, t0, t1, p0, p1, _, version, z0, _, l0, l1] = *fixed;
        if u16::from_be_bytes([t0, t1]) != TYPE_OPT {
            return Err(Unread::Slow(Unusual::Additional));
        }
        // The owner of OPT is the root (RFC 6891 §6.1.2).
        if owner != 0 || options.len() != usize::from(u16::from_be_bytes([l0, l1])) {
            return Err(malformed(false));
        }
        let mut edns = Self {
            payload_max: u16::from_be_bytes([p0, p1]),
            version,
            dnssec_ok: z0 & FLAG_DO != 0,
            nsid: false,
            subnet: None,
            cookie: None,
        };
        if version == 0 {
            edns.read_options(options).ok_or_else(|| malformed(true))?;
        }
        Ok(edns)
    }

    fn read_options(&mut self, mut options: &[u8]) -> Option<()> {
        while !options.is_empty() {
            let (&[c0, c1, l0, l1], rest) = options.split_first_chunk()?;
            let len = usize::from(u16::from_be_bytes([l0, l1]));
            let (data, rest) = rest.split_at_checked(len)?;
            match u16::from_be_bytes([c0, c1]) {
                ecs::CODE => self.subnet = Some(Subnet::parse(data).ok()?),
                CODE_COOKIE if self.cookie.is_none() => self.cookie = Some(Cookie::parse(data)?),
                CODE_NSID => self.nsid = true,
                _ => {}
            }
            options = rest;
        }
        Some(())
    }
}

impl Cookie {
    /// `None`: a length RFC 7873 §4 does not allow.
    fn parse(data: &[u8]) -> Option<Self> {
        let (client, server) = data.split_first_chunk::<CLIENT_COOKIE_BYTES>()?;
        let server = match data.len() {
            CLIENT_COOKIE_BYTES => ServerCookie::None,
            OUR_COOKIE_BYTES => ServerCookie::Ours(*server.first_chunk()?),
            COOKIE_BYTES_MIN..=COOKIE_BYTES_MAX => ServerCookie::Foreign,
            _ => return None,
        };
        Some(Self {
            client: *client,
            server,
        })
    }
}

const FLAG_RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const FLAG_TRUNCATED: u8 = 0x02;
pub(crate) const FLAG_RECURSION_DESIRED: u8 = 0x01;
const FLAG_DO: u8 = 0x80;

/// Whether there is one additional record.
fn shape(high: u8, counts: [u8; 8]) -> Result<bool, Unusual> {
    if high & OPCODE != 0 {
        return Err(Unusual::Opcode);
    }
    if high & FLAG_TRUNCATED != 0 {
        return Err(Unusual::Truncated);
    }
    match counts {
        [0, 1, 0, 0, 0, 0, 0, additional @ 0..=1] => Ok(additional == 1),
        _ => Err(Unusual::Counts),
    }
}

/// Bytes of the uncompressed name that `bytes` begin with. `None`: none, a pointer (there is nothing before the question that one
/// could lead to), an unknown label type, or longer than a name may be.
fn name_len(bytes: &[u8]) -> Option<u8> {
    let mut at = 0usize;
    loop {
        let label = *bytes.get(at)?;
        at += 1;
        if label == 0 {
            return u8::try_from(at).ok();
        }
        if label > LABEL_BYTES_MAX {
            return None;
        }
        at += usize::from(label);
        if at >= NAME_BYTES_MAX {
            return None;
        }
    }
}

/// Types that ask for something else than records of a name (RFC 6895 §3.1); 255, ANY, is answered like a record.
const fn is_meta(qtype: u16) -> bool {
    matches!(qtype, 0 | 41 | 128..=254)
}
