//! Record framing: the one format between PoP, core relay and transceiver, in both directions.
//!
//! ```text
//! datagram = header + records            (a QUIC DATAGRAM on a link, a UDP payload inside a region)
//!  0      1      2             4
//!  +------+------+-------------+-----------------------
//!  | 0xF1 | kind | sequence    | records, or the body of a heartbeat
//!  +------+------+-------------+-----------------------
//!
//! record
//!  0       1      2        4        6        7         8        10               14     16            20 / 32
//!  +-------+------+--------+--------+--------+---------+--------+----------------+------+-------------+----
//!  | flags | hops | length | pop    | worker | ingress | region | transceiver    | port | client IP   | [fragment] payload
//!  +-------+------+--------+--------+--------+---------+--------+----------------+------+-------------+----
//!  flags: bit 0 client IP is IPv6, bit 1 fragment header present, bit 2 end, bit 3 offer, others zero
//!  length: bytes of [fragment] + payload; 0 with the end flag, never 0 without, but for the answer to an offer
//!
//! fragment (4 bytes): id u16, index u8, count u8. All parts but the last are equally long, the last is not longer.
//! ```
//!
//! 0xF1 lies outside the ranges of RFC 7983 §7. A record names its owner, its client and its way back, so
//! whoever forwards it needs no state.
//!
//! An *end* record says that its owner no longer serves its client. It has no payload and is no offer: a
//! [`RecordHeader`] has no field for it, [`put_record`] sets the flag, and [`Record::is_end`] reads it.
//!
//! An *offered* record carries a packet of a client that its PoP does not know to an owner that may know it. An owner that does says so by
//! a *taken* record: the same flag, and no payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::BufMut;

use crate::ids::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

/// First byte of every datagram.
pub const MAGIC: u8 = 0xf1;
/// Bytes of the datagram header.
pub const DATAGRAM_HEADER_LEN: usize = 4;
/// Bytes of a record header for an IPv4 client.
pub const RECORD_HEADER_LEN_V4: usize = 20;
/// Bytes of a record header for an IPv6 client, the longest there is.
pub const RECORD_HEADER_LEN_V6: usize = 32;
/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 4;
/// The longest client packet, in bytes: a 1500-byte IPv4 path.
pub const PAYLOAD_LEN_MAX: usize = 1472;
/// A record that has been forwarded this often is dropped.
pub const HOPS_MAX: u8 = 4;
/// Fragments a packet may be split into.
pub const FRAGMENTS_MAX: u8 = 4;

const FLAG_V6: u8 = 0b01;
const FLAG_FRAGMENT: u8 = 0b10;
const FLAG_END: u8 = 0b100;
const FLAG_OFFER: u8 = 0b1000;

/// What a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramKind {
    /// Records.
    Records,
    /// A heartbeat: the body is the sender's and is echoed unchanged.
    Ping,
    /// The echo of a heartbeat.
    Pong,
}

impl DatagramKind {
    const fn code(self) -> u8 {
        match self {
            Self::Records => 0,
            Self::Ping => 1,
            Self::Pong => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Records),
            1 => Some(Self::Ping),
            2 => Some(Self::Pong),
            _ => None,
        }
    }
}

/// Why bytes are not a datagram or not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Shorter than a header, or than the length a header claims.
    #[error("truncated")]
    Truncated,
    /// Wrong magic byte or unknown kind.
    #[error("unknown datagram kind")]
    UnknownKind,
    /// Reserved flag bits set.
    #[error("unknown flags")]
    UnknownFlags,
    /// Payload empty or longer than [`PAYLOAD_LEN_MAX`], an end record with a payload, or a record without payload that has a
    /// fragment header.
    #[error("payload length out of range")]
    BadLength,
    /// Index not below count, count 0, 1 or above [`FRAGMENTS_MAX`].
    #[error("bad fragment header")]
    BadFragment,
    /// Zero region, pop or transceiver, an IPv4-mapped client, or port 0.
    #[error("bad address")]
    BadAddress,
}

/// Splits a datagram into its kind, sequence number and body.
///
/// # Errors
/// [`RecordError::Truncated`], [`RecordError::UnknownKind`].
pub fn open_datagram(datagram: &[u8]) -> Result<(DatagramKind, u16, &[u8]), RecordError> {
    let ([magic, kind, s0, s1], body) = datagram
        .split_first_chunk::<DATAGRAM_HEADER_LEN>()
        .ok_or(RecordError::Truncated)?;
    if *magic != MAGIC {
        return Err(RecordError::UnknownKind);
    }
    let kind = DatagramKind::from_code(*kind).ok_or(RecordError::UnknownKind)?;
    Ok((kind, u16::from_be_bytes([*s0, *s1]), body))
}

/// Bytes of a datagram header.
#[must_use]
pub const fn datagram_header(kind: DatagramKind, sequence: u16) -> [u8; DATAGRAM_HEADER_LEN] {
    let [s0, s1] = sequence.to_be_bytes();
    [MAGIC, kind.code(), s0, s1]
}

/// One part of a split packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Same for all parts of one packet, chosen by the splitter.
    pub id: u16,
    /// From 0.
    pub index: u8,
    /// 2..=[`FRAGMENTS_MAX`].
    pub count: u8,
}

/// Everything a record says besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The transceiver the record goes to (uplink) or comes from (downlink).
    pub owner: Owner,
    /// Where it entered the network (uplink) or leaves it (downlink).
    pub tag: Tag,
    /// The client.
    pub client: ClientAddr,
    /// How often it has been forwarded.
    pub hops: u8,
    /// Set when the payload is one part of a split packet.
    pub fragment: Option<Fragment>,
    /// Uplink: the PoP does not know whose client it is, and offers the packet to an owner that may. Downlink, without payload:
    /// the owner has authenticated such a packet.
    pub offered: bool,
}

impl RecordHeader {
    /// Bytes this header takes on the wire, fragment header included.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let base = if self.client.ip().is_ipv4() {
            RECORD_HEADER_LEN_V4
        } else {
            RECORD_HEADER_LEN_V6
        };
        if self.fragment.is_some() {
            base + FRAGMENT_HEADER_LEN
        } else {
            base
        }
    }
}

/// A record and its payload inside a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The header.
    pub header: RecordHeader,
    /// 1..=[`PAYLOAD_LEN_MAX`] bytes; none in an end record and in a taken one.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Whether the owner says that it no longer serves the client. Such a record is never delivered.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        self.payload.is_empty() && !self.header.offered
    }

    /// Whether the owner says that a packet it was offered is of a client of its own. Such a record is never delivered.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        self.payload.is_empty() && self.header.offered
    }
}

/// Walks the records of a datagram body. A malformed record ends the walk with an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Over the body that [`open_datagram`] returned.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = take_record(self.rest);
        self.rest = taken.as_ref().map_or(&[], |(_, rest)| *rest);
        Some(taken.map(|(record, _)| record))
    }
}

fn take_record(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), RecordError> {
    let (head, rest) = bytes
        .split_first_chunk::<16>()
        .ok_or(RecordError::Truncated)?;
    let [
        flags,
        hops,
        l0,
        l1,
        p0,
        p1,
        worker,
        ingress,
        r0,
        r1,
        t0,
        t1,
        t2,
        t3,
        c0,
        c1,
    ] = *head;
    if flags & !(FLAG_V6 | FLAG_FRAGMENT | FLAG_END | FLAG_OFFER) != 0 {
        return Err(RecordError::UnknownFlags);
    }
    let (ip, rest) = take_ip(flags, rest)?;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let (body, after) = rest
        .split_at_checked(length)
        .ok_or(RecordError::Truncated)?;
    let (fragment, payload) = take_fragment(flags, body)?;
    let [end, offered] = [FLAG_END, FLAG_OFFER].map(|flag| flags & flag != 0);
    if end && offered {
        return Err(RecordError::UnknownFlags);
    }
    let bare = end || (offered && length == 0);
    if payload.is_empty() != bare || (bare && fragment.is_some()) || payload.len() > PAYLOAD_LEN_MAX
    {
        return Err(RecordError::BadLength);
    }
    let port = u16::from_be_bytes([c0, c1]);
    let pop = PopId(u16::from_be_bytes([p0, p1]));
    let region = RegionId(u16::from_be_bytes([r0, r1]));
    let transceiver = TransceiverId(u32::from_be_bytes([t0, t1, t2, t3]));
    if port == 0 || pop.0 == 0 || region.0 == 0 || transceiver.0 == 0 {
        return Err(RecordError::BadAddress);
    }
    let header = RecordHeader {
        owner: Owner {
            region,
            transceiver,
        },
        tag: Tag {
            pop,
            worker,
            ingress,
        },
        client: ClientAddr::new(SocketAddr::new(ip, port)),
        hops,
        fragment,
        offered,
    };
    Ok((Record { header, payload }, after))
}

fn take_ip(flags: u8, bytes: &[u8]) -> Result<(IpAddr, &[u8]), RecordError> {
    if flags & FLAG_V6 == 0 {
        let (octets, rest) = bytes
            .split_first_chunk::<4>()
            .ok_or(RecordError::Truncated)?;
        return Ok((IpAddr::V4(Ipv4Addr::from(*octets)), rest));
    }
    let (octets, rest) = bytes
        .split_first_chunk::<16>()
        .ok_or(RecordError::Truncated)?;
    let ip = Ipv6Addr::from(*octets);
    if ip.to_ipv4_mapped().is_some() {
        return Err(RecordError::BadAddress);
    }
    Ok((IpAddr::V6(ip), rest))
}

fn take_fragment(flags: u8, body: &[u8]) -> Result<(Option<Fragment>, &[u8]), RecordError> {
    if flags & FLAG_FRAGMENT == 0 {
        return Ok((None, body));
    }
    let ([i0, i1, index, count], payload) = body
        .split_first_chunk::<FRAGMENT_HEADER_LEN>()
        .ok_or(RecordError::Truncated)?;
    if !(2..=FRAGMENTS_MAX).contains(count) || index >= count {
        return Err(RecordError::BadFragment);
    }
    Ok((
        Some(Fragment {
            id: u16::from_be_bytes([*i0, *i1]),
            index: *index,
            count: *count,
        }),
        payload,
    ))
}

/// Appends one record to `out`; when `payload` is empty, an end record or a taken one. Nothing is checked against a size limit: the caller
/// knows what fits (see [`RecordHeader::encoded_len`]).
pub fn put_record(out: &mut impl BufMut, header: &RecordHeader, payload: &[u8]) {
    let v6 = if header.client.ip().is_ipv6() {
        FLAG_V6
    } else {
        0
    };
    let split = if header.fragment.is_some() {
        FLAG_FRAGMENT
    } else {
        0
    };
    let fragment_len = if header.fragment.is_some() {
        FRAGMENT_HEADER_LEN
    } else {
        0
    };
    let kind = match (header.offered, payload.is_empty()) {
        (true, _) => FLAG_OFFER,
        (false, true) => FLAG_END,
        (false, false) => 0,
    };
    let length = u16::try_from(payload.len() + fragment_len).unwrap_or(u16::MAX);
    let [l0, l1] = length.to_be_bytes();
    let [p0, p1] = header.tag.pop.0.to_be_bytes();
    let [r0, r1] = header.owner.region.0.to_be_bytes();
    let [t0, t1, t2, t3] = header.owner.transceiver.0.to_be_bytes();
    let [c0, c1] = header.client.port().to_be_bytes();
    let (worker, ingress) = (header.tag.worker, header.tag.ingress);
    out.put_slice(&[
        v6 | split | kind,
        header.hops,
        l0,
        l1,
        p0,
        p1,
        worker,
        ingress,
        r0,
        r1,
        t0,
        t1,
        t2,
        t3,
        c0,
        c1,
    ]);
    match header.client.ip() {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
    if let Some(fragment) = header.fragment {
        let [i0, i1] = fragment.id.to_be_bytes();
        out.put_slice(&[i0, i1, fragment.index, fragment.count]);
    }
    out.put_slice(payload);
}

/// Splits a packet that does not fit into `room` bytes (record header included) into equal parts.
/// Yields each part with its header; yields the packet whole when it fits, and nothing for an empty one.
/// `None` when it would take more than [`FRAGMENTS_MAX`] parts.
#[must_use]
pub fn split<'a>(
    header: RecordHeader,
    payload: &'a [u8],
    room: usize,
    id: u16,
) -> Option<Parts<'a>> {
    let whole = RecordHeader {
        fragment: None,
        ..header
    };
    if whole.encoded_len() + payload.len() <= room {
        return Some(Parts {
            header: whole,
            rest: payload,
            part_len: payload.len().max(1),
            id,
            index: 0,
            count: 1,
        });
    }
    let part_room = room
        .checked_sub(whole.encoded_len() + FRAGMENT_HEADER_LEN)
        .filter(|room| *room > 0)?;
    let count = payload.len().div_ceil(part_room);
    let count = u8::try_from(count)
        .ok()
        .filter(|count| *count <= FRAGMENTS_MAX)?;
    // The payload did not fit whole, so it is longer than `part_room` and `count` is at least 2. Equal parts of
    // the rounded-up share are again exactly `count` many, because the share is at most `part_room`.
    let part_len = payload.len().div_ceil(usize::from(count));
    Some(Parts {
        header: whole,
        rest: payload,
        part_len,
        id,
        index: 0,
        count,
    })
}

/// Parts of one packet, in order. See [`split`].
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    header: RecordHeader,
    rest: &'a [u8],
    part_len: usize,
    id: u16,
    index: u8,
    count: u8,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (payload, rest) = self.rest.split_at(self.part_len.min(self.rest.len()));
        self.rest = rest;
        let fragment = (self.count > 1).then_some(Fragment {
            id: self.id,
            index: self.index,
            count: self.count,
        });
        self.index += 1;
        Some(Record {
            header: RecordHeader {
                fragment,
                ..self.header
            },
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_bytes_ipv4() {
        let header = header("203.0.113.7:50000", None);
        let mut out = datagram_header(DatagramKind::Records, 0x1234).to_vec();
        put_record(&mut out, &header, b"\x80hi");
        let expected = b"\xf1\x00\x12\x34\
            \x00\x01\x00\x03\x00\x05\x01\x02\x00\x02\x00\x00\x00\x4d\xc3\x50\xcb\x00\x71\x07\x80hi";
        assert_eq!(out, expected);
    }

    #[test]
    fn exact_bytes_ipv6_fragment() {
        let fragment = Fragment {
            id: 0x0708,
            index: 1,
            count: 3,
        };
        let header = header("[2001:db8::9]:50000", Some(fragment));
        let mut out = Vec::new();
        put_record(&mut out, &header, b"x");
        let expected = b"\x03\x01\x00\x05\x00\x05\x01\x02\x00\x02\x00\x00\x00\x4d\xc3\x50\
            \x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\x07\x08\x01\x03x";
        assert_eq!(out, expected);
        assert_eq!(out.len(), header.encoded_len() + 1);
    }

    #[test]
    fn exact_bytes_end() {
        let header = header("203.0.113.7:50000", None);
        let mut out = Vec::new();
        put_record(&mut out, &header, b"");
        let expected =
            b"\x04\x01\x00\x00\x00\x05\x01\x02\x00\x02\x00\x00\x00\x4d\xc3\x50\xcb\x00\x71\x07";
        assert_eq!(out, expected);
        let record = Records::new(&out).next().unwrap().unwrap();
        assert!(record.is_end());
        assert_eq!(record.header, header);
        put_record(&mut out, &header, b"x");
        let ends: Vec<bool> = Records::new(&out)
            .map(|record| record.unwrap().is_end())
            .collect();
        assert_eq!(ends, [true, false]);
    }

    #[test]
    fn exact_bytes_offered_and_taken() {
        let header = RecordHeader {
            offered: true,
            ..header("203.0.113.7:50000", None)
        };
        let mut out = Vec::new();
        put_record(&mut out, &header, b"x");
        put_record(&mut out, &header, b"");
        let expected =
            b"\x08\x01\x00\x01\x00\x05\x01\x02\x00\x02\x00\x00\x00\x4d\xc3\x50\xcb\x00\x71\x07x\
            \x08\x01\x00\x00\x00\x05\x01\x02\x00\x02\x00\x00\x00\x4d\xc3\x50\xcb\x00\x71\x07";
        assert_eq!(out, expected);
        let records: Vec<_> = Records::new(&out).map(Result::unwrap).collect();
        assert!(records.iter().all(|record| record.header == header));
        let taken: Vec<_> = records
            .iter()
            .map(|record| (record.is_taken(), record.is_end()))
            .collect();
        assert_eq!(taken, [(false, false), (true, false)]);
    }

    #[test]
    fn only_end_records_and_answers_to_offers_are_empty() {
        let mut end = Vec::new();
        put_record(&mut end, &header("203.0.113.7:50000", None), b"");
        let with = |flags: u8, length: u8, tail: &[u8]| {
            let mut bytes = end.clone();
            (bytes[0], bytes[3]) = (flags, length);
            bytes.extend_from_slice(tail);
            Records::new(&bytes).next().unwrap().map(|_| ())
        };
        assert_eq!(with(4, 0, b""), Ok(()));
        assert_eq!(with(0, 0, b""), Err(RecordError::BadLength));
        assert_eq!(with(4, 1, b"x"), Err(RecordError::BadLength));
        assert_eq!(with(6, 4, &[0, 1, 0, 2]), Err(RecordError::BadLength));
        assert_eq!(with(6, 5, &[0, 1, 0, 2, 9]), Err(RecordError::BadLength));
        assert_eq!(with(8, 0, b""), Ok(()));
        assert_eq!(with(8, 1, b"x"), Ok(()));
        assert_eq!(with(10, 4, &[0, 1, 0, 2]), Err(RecordError::BadLength));
        assert_eq!(with(10, 5, &[0, 1, 0, 2, 9]), Ok(()));
        assert_eq!(with(12, 0, b""), Err(RecordError::UnknownFlags));
        assert_eq!(with(16, 0, b""), Err(RecordError::UnknownFlags));
    }

    #[test]
    fn each_defect_has_its_reason() {
        let good = {
            let mut out = Vec::new();
            let fragment = Fragment {
                id: 1,
                index: 0,
                count: 2,
            };
            put_record(&mut out, &header("203.0.113.7:50000", Some(fragment)), b"x");
            out
        };
        let with = |edits: &[(usize, u8)]| {
            let mut bytes = good.clone();
            for (at, byte) in edits {
                bytes[*at] = *byte;
            }
            Records::new(&bytes).next().unwrap().map(|_| ())
        };
        assert_eq!(with(&[]), Ok(()));
        assert_eq!(with(&[(0, 18)]), Err(RecordError::UnknownFlags));
        assert_eq!(with(&[(0, 6)]), Err(RecordError::BadLength));
        assert_eq!(with(&[(3, 4)]), Err(RecordError::BadLength));
        assert_eq!(with(&[(3, 3)]), Err(RecordError::Truncated));
        assert_eq!(with(&[(3, 6)]), Err(RecordError::Truncated));
        assert_eq!(with(&[(22, 2)]), Err(RecordError::BadFragment));
        for count in [0, 1, 5, 255] {
            assert_eq!(
                with(&[(23, count)]),
                Err(RecordError::BadFragment),
                "{count}"
            );
        }
        assert_eq!(with(&[(4, 0), (5, 0)]), Err(RecordError::BadAddress));
        assert_eq!(with(&[(8, 0), (9, 0)]), Err(RecordError::BadAddress));
        assert_eq!(with(&[(13, 0)]), Err(RecordError::BadAddress));
        assert_eq!(with(&[(14, 0), (15, 0)]), Err(RecordError::BadAddress));
    }

    #[test]
    fn a_broken_record_ends_the_walk_after_the_good_ones() {
        let mut body = Vec::new();
        put_record(&mut body, &header("203.0.113.7:50000", None), b"one");
        body.push(0xff);
        let mut records = Records::new(&body);
        assert_eq!(records.next().unwrap().unwrap().payload, b"one");
        assert_eq!(records.next(), Some(Err(RecordError::Truncated)));
        assert_eq!(records.next(), None);
    }

    #[test]
    fn a_mapped_client_is_refused() {
        let datagram = include_bytes!("../corpora/datagram/mapped-client");
        let (_, _, body) = open_datagram(datagram).unwrap();
        assert_eq!(
            Records::new(body).next(),
            Some(Err(RecordError::BadAddress))
        );
    }

    #[test]
    fn datagram_headers() {
        assert_eq!(open_datagram(b"\xf1\x00\x00"), Err(RecordError::Truncated));
        assert_eq!(
            open_datagram(b"\xf0\x00\x00\x00"),
            Err(RecordError::UnknownKind)
        );
        assert_eq!(
            open_datagram(b"\xf1\x03\x00\x00"),
            Err(RecordError::UnknownKind)
        );
        let ping = [&datagram_header(DatagramKind::Ping, 7)[..], b"body"].concat();
        assert_eq!(
            open_datagram(&ping),
            Ok((DatagramKind::Ping, 7, &b"body"[..]))
        );
    }

    #[test]
    fn a_packet_that_cannot_be_split_small_enough_is_refused() {
        let header = header("203.0.113.7:50000", None);
        assert!(split(header, &[0; 100], 24, 1).is_none());
        assert!(split(header, &[0; 100], 24 + 24, 1).is_none());
        assert_eq!(split(header, &[0; 100], 24 + 25, 1).unwrap().count(), 4);
        assert_eq!(split(header, &[0; 100], 119, 1).unwrap().count(), 2);
        assert_eq!(split(header, &[0; 100], 120, 1).unwrap().count(), 1);
    }

    fn header(client: &str, fragment: Option<Fragment>) -> RecordHeader {
        RecordHeader {
            owner: Owner {
                region: RegionId(2),
                transceiver: TransceiverId(77),
            },
            tag: Tag {
                pop: PopId(5),
                worker: 1,
                ingress: 2,
            },
            client: ClientAddr::new(client.parse().unwrap()),
            hops: 1,
            fragment,
            offered: false,
        }
    }
}
