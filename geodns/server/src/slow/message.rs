//! Answers as hickory writes them. The only file that imports it.
//!
//! Records come from the zone in wire form and go through hickory's types, so an answer here and one of the fast path are made by
//! two implementations that a test holds against each other.

use geodns_proto::respond::ANSWER_BYTES_MAX;
use geodns_proto::{Owner, Part, Sections, Type};
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{NULL, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};

/// What is written beside the records.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) rcode: u16,
    pub(super) authoritative: bool,
    /// Whether the question is echoed.
    pub(super) question: bool,
    /// Texts that are a TXT record at the name of the question.
    pub(super) texts: Vec<String>,
    /// The OPT record.
    pub(super) opt: Option<Opt>,
}

/// An OPT record.
#[derive(Clone, Debug, Default)]
pub(super) struct Opt {
    pub(super) dnssec_ok: bool,
    /// Codes and data.
    pub(super) options: Vec<(u16, Vec<u8>)>,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    /// The smallest TTL in it: how long a cache of HTTP may keep it (RFC 8484 §5.1).
    pub(crate) ttl_s: u32,
    /// Whether it is for its asker alone, and no cache that others share may keep it (RFC 9111 §5.2.2.7).
    pub(crate) is_private: bool,
}

/// `None`: hickory cannot echo the question or write the message.
pub(super) fn write(
    packet: &[u8],
    head: Head,
    sections: &Sections<'_>,
    len_max: usize,
) -> Option<Reply> {
    let (&[id0, id1, high, ..], _) = packet.split_first_chunk::<12>()?;
    let opcode = OpCode::from_u8(high >> 3 & 0x0f);
    let question = if head.question {
        let mut decoder = BinDecoder::new(packet);
        decoder.read_slice(12).ok()?;
        Some(Query::read(&mut decoder).ok()?)
    } else {
        None
    };
    let mut message = Message::response(u16::from_be_bytes([id0, id1]), opcode);
    message.metadata.response_code = ResponseCode::from(
        u8::try_from(head.rcode >> 4).ok()?,
        u8::try_from(head.rcode & 0x0f).ok()?,
    );
    message.metadata.authoritative = head.authoritative;
    message.metadata.recursion_desired = high & 1 != 0;
    message.answers = records(&sections.answers);
    if let Some(question) = question {
        if !head.texts.is_empty() {
            message.add_answer(text(&question, &head.texts));
        }
        message.add_query(question);
    }
    message.authorities = records(&sections.authority);
    message.additionals = records(&sections.additional);
    message.edns = head.opt.map(edns);
    let ttl_s = message.all_sections().map(|record| record.ttl).min();
    let mut bytes = message.to_vec().ok()?;
    if bytes.len() > len_max && !message.additionals.is_empty() {
        // Nobody misses them (RFC 2181 §9).
        message.additionals.clear();
        bytes = message.to_vec().ok()?;
    }
    if bytes.len() > len_max {
        message.take_all_sections().for_each(drop);
        message.metadata.truncation = true;
        bytes = message.to_vec().ok()?;
    }
    Some(Reply {
        bytes,
        ttl_s: ttl_s.unwrap_or(0),
        is_private: false,
    })
}

fn edns(opt: Opt) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(u16::try_from(ANSWER_BYTES_MAX).unwrap_or(u16::MAX));
    edns.set_dnssec_ok(opt.dnssec_ok);
    for (code, data) in opt.options {
        edns.options_mut().insert(EdnsOption::Unknown(code, data));
    }
    edns
}

fn records(parts: &[Part<'_>]) -> Vec<Record> {
    let typed_or_raw = |part| typed(part).or_else(|| raw(part)).unwrap_or_default();
    parts.iter().flat_map(typed_or_raw).collect()
}

/// `None`: hickory's types refuse a record, such as a CAA of a kind it does not know.
fn typed(part: &Part<'_>) -> Option<Vec<Record>> {
    let mut bytes = Vec::new();
    match part {
        Part::Records(set) => set.write(Owner::Whole, &mut bytes),
        Part::Signatures(set) => set.write_signatures(Owner::Whole, &mut bytes),
    };
    let mut decoder = BinDecoder::new(&bytes);
    let mut records = Vec::new();
    while !decoder.is_empty() {
        records.push(Record::read(&mut decoder).ok()?);
    }
    Some(records)
}

/// The same as bytes without a meaning (RFC 3597).
fn raw(part: &Part<'_>) -> Option<Vec<Record>> {
    let (rtype, list) = match part {
        Part::Records(set) => (set.rtype, &set.rdata),
        Part::Signatures(set) => (Type::RRSIG, &set.signatures),
    };
    let set = part.set();
    let name = Name::read(&mut BinDecoder::new(set.name.as_wire())).ok()?;
    let record = |rdata: &Vec<u8>| {
        let rdata = RData::Unknown {
            code: RecordType::from(rtype.0),
            rdata: NULL::with(rdata.clone()),
        };
        Record::from_rdata(name.clone(), set.ttl_s, rdata)
    };
    Some(list.iter().map(record).collect())
}

/// A TXT record at the name of the question.
fn text(question: &Query, texts: &[String]) -> Record {
    let strings = texts.iter().flat_map(|text| text.as_bytes().chunks(255));
    let rdata = TXT::from_bytes(strings.collect());
    let mut record = Record::from_rdata(question.name.clone(), 0, RData::TXT(rdata));
    record.dns_class = question.query_class;
    record
}

#[cfg(test)]
mod tests {
    use geodns_proto::{Name, Rrset};

    use super::*;

    #[test]
    fn a_record_that_has_no_type_here_is_written_as_it_is() {
        let name = Name::parse("a.example").unwrap();
        // A CAA whose tag is longer than its RDATA.
        let broken = Rrset::new(name, Type::CAA, 60, vec![vec![0, 200, 1]]);
        let part = Part::Records(&broken);
        assert_eq!(typed(&part), None);
        let sections = Sections {
            answers: vec![part],
            ..Sections::default()
        };
        let packet = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\x01\x01\0\x01";
        let head = Head {
            question: true,
            ..Head::default()
        };
        let reply = write(packet, head, &sections, 512).unwrap();
        assert!(reply.bytes.ends_with(&[0, 0, 0, 60, 0, 3, 0, 200, 1]));
        assert_eq!(reply.ttl_s, 60);
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        let name = Name::parse("a.example").unwrap();
        let many = Rrset::new(
            name,
            Type::A,
            60,
            (0..40).map(|i| vec![192, 0, 2, i]).collect(),
        );
        let sections = Sections {
            answers: vec![Part::Records(&many)],
            additional: vec![Part::Records(&many)],
            ..Sections::default()
        };
        let packet = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01";
        let head = Head {
            question: true,
            ..Head::default()
        };
        let of = |len_max| write(packet, head.clone(), &sections, len_max).unwrap();
        assert_eq!(of(65_535).bytes.len(), packet.len() + 2 * 40 * 16);
        let without_additional = of(packet.len() + 40 * 16).bytes;
        assert_eq!(without_additional.len(), packet.len() + 40 * 16);
        assert_eq!(
            without_additional[2..12],
            [0x81, 0, 0, 1, 0, 40, 0, 0, 0, 0]
        );
        let cut = write(packet, head, &sections, 512).unwrap().bytes;
        assert_eq!(cut.len(), packet.len());
        assert_eq!(cut[2..12], [0x83, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
}
