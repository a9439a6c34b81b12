//! What of an answer matters to the comparison: its code, its first address, the scope of its client subnet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::query::{A, AAAA, CLIENT_SUBNET, COOKIE};

/// A record type: EDNS0's.
pub(super) const OPT: u16 = 41;

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Of the question.
    pub id: u16,
    /// RCODE, 0 for no error.
    pub code: u8,
    /// Whether it is cut.
    pub is_truncated: bool,
    /// Records in its answer section.
    pub records: u16,
    /// Of the first A or AAAA record.
    pub address: Option<IpAddr>,
    /// The client subnet it carries.
    pub subnet: Option<Scope>,
    /// Whether it carries a cookie.
    pub has_cookie: bool,
}

/// A client subnet of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// SOURCE PREFIX-LENGTH, as it was asked.
    pub source: u8,
    /// SCOPE PREFIX-LENGTH.
    pub scope: u8,
}

/// Reads it. `None`: it is no answer, or breaks off.
#[must_use]
pub fn read(message: &[u8]) -> Option<Answer> {
    let mut rest = message;
    let [id, flags, questions, answers, authority, additional] = words(&mut rest)?;
    if flags & 0x8000 == 0 {
        return None;
    }
    let mut answer = Answer {
        id,
        code: u8::try_from(flags & 15).ok()?,
        is_truncated: flags & 0x0200 != 0,
        records: answers,
        ..Answer::default()
    };
    for _ in 0..questions {
        name(&mut rest)?;
        take(&mut rest, 4)?;
    }
    let records = u32::from(answers) + u32::from(authority) + u32::from(additional);
    for index in 0..records {
        name(&mut rest)?;
        let [kind, _class, _ttl_high, _ttl_low, len] = words(&mut rest)?;
        let data = take(&mut rest, usize::from(len))?;
        if kind == OPT {
            options(data, &mut answer)?;
        } else if index < u32::from(answers) && answer.address.is_none() {
            answer.address = address(kind, data);
        }
    }
    rest.is_empty().then_some(answer)
}

fn address(kind: u16, data: &[u8]) -> Option<IpAddr> {
    match kind {
        A => Some(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
        AAAA => Some(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
        _ => None,
    }
}

fn options(mut rest: &[u8], answer: &mut Answer) -> Option<()> {
    while !rest.is_empty() {
        let [code, len] = words(&mut rest)?;
        let data = take(&mut rest, usize::from(len))?;
        match (code, data) {
            (CLIENT_SUBNET, [_, _, source, scope, ..]) => {
                answer.subnet = Some(Scope {
                    source: *source,
                    scope: *scope,
                });
            }
            (COOKIE, _) => answer.has_cookie = true,
            _ => {}
        }
    }
    Some(())
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn words<const N: usize>(rest: &mut &[u8]) -> Option<[u16; N]> {
    let mut words = [0; N];
    for word in &mut words {
        let (bytes, left) = rest.split_first_chunk()?;
        *word = u16::from_be_bytes(*bytes);
        *rest = left;
    }
    Some(words)
}

/// Passes over a name; one that is compressed ends with its pointer.
fn name(rest: &mut &[u8]) -> Option<()> {
    loop {
        let (&len, left) = rest.split_first()?;
        *rest = left;
        match len {
            0 => return Some(()),
            1..64 => take(rest, usize::from(len))?,
            64.. => return take(rest, 1).map(|_| ()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = &[1, 2, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 1];
    const QUESTION: &[u8] = b"\x03geo\x00\x00\x01\x00\x01";
    const RECORD: &[u8] = &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 5];
    const EDNS: &[u8] = &[
        0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 17, 8, 8, 8,
    ];

    #[test]
    fn names_may_be_pointers_or_not() {
        for owner in [&[0xc0, 12][..], b"\x03geo\x00"] {
            let message = [HEAD, QUESTION, owner, RECORD, EDNS].concat();
            let answer = read(&message).unwrap();
            assert_eq!((answer.id, answer.code, answer.records), (0x102, 0, 1));
            assert_eq!(answer.address, Some([192, 0, 2, 5].into()));
            let scope = Scope {
                source: 24,
                scope: 17,
            };
            assert_eq!(answer.subnet, Some(scope));
            assert!(!answer.has_cookie && !answer.is_truncated);
            for cut in 0..message.len() {
                assert_eq!(read(&message[..cut]), None, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_question_is_no_answer() {
        let mut message = [HEAD, QUESTION, &[0xc0, 12], RECORD, EDNS].concat();
        message[2] = 0;
        assert_eq!(read(&message), None);
    }
}
