//! Harness for fuzzing: any bytes as a query of the slow path. No panic, and what is said of them is so.

use geodns_proto::cookie::Standing;
use geodns_proto::query::HEADER_BYTES;

use super::answer::refuse;
use super::odd::{self, Refusal};

/// A harness.
pub type Target = fn(&[u8]);

/// Every harness by name; the name is also its corpus directory.
pub const TARGETS: [(&str, Target); 1] = [("odd", odd)];

/// A packet: what was made ordinary lies inside it, and a refusal is a message that says the same id.
///
/// # Panics
/// When a property does not hold.
pub fn odd(bytes: &[u8]) {
    let is_response = bytes.get(2).is_some_and(|flags| flags & 0x80 != 0);
    let refusal = match odd::read(bytes) {
        Ok(asked) => {
            let end = asked.query.question_end();
            let tail = bytes.get(end - 4..end).expect("the question is inside");
            let expected = [asked.rtype.0.to_be_bytes(), asked.class.0.to_be_bytes()].concat();
            assert_eq!(tail, expected, "type and class are those of the packet");
            assert_eq!(bytes.get(4..6), Some(&[0, 1][..]), "one question");
            return;
        }
        Err(refusal) => refusal,
    };
    let (question, opt) = match refusal {
        Refusal::Silent => {
            assert!(is_response || bytes.len() < HEADER_BYTES);
            return;
        }
        Refusal::CookieAlone(edns) => {
            assert!(edns.cookie.is_some());
            assert_eq!(bytes.get(4..12), Some(&[0, 0, 0, 0, 0, 0, 0, 1][..]));
            (false, true)
        }
        Refusal::Code { question, edns, .. } => (question, edns.is_some()),
    };
    let reply = refuse(bytes, refusal, |_| (Standing::Bad, [7; 16]));
    // A question that cannot be echoed, such as one whose name is a pointer to nowhere, is not answered.
    assert!(reply.is_some() || question);
    if let Some(reply) = reply {
        assert_eq!(reply.bytes.get(..2), bytes.get(..2), "id");
        assert_eq!(reply.bytes.get(11), Some(&u8::from(opt)), "OPT alone");
    }
}
