//! One harness per parser of signaling: bytes in, assertions inside. `cargo test` replays `corpora/<name>/` through them
//! and mutates it with a seed.

use wire::hint::{KeyId, KeyRing, Minute};

use crate::signaling::bearer::{Refusal, Verifier};
use crate::signaling::precondition::{self, ENTITY_TAGS_MAX};
use crate::signaling::sdpfrag;
use crate::token::{TOKEN_LEN, Token};

/// A harness.
pub type Target = fn(&[u8]);

/// Every harness by name; the name is also its corpus directory.
pub const TARGETS: [(&str, Target); 4] = [
    ("sdpfrag", fragment),
    ("if_match", if_match),
    ("authorization", authorization),
    ("session_url", session_url),
];

/// A fragment: what parses survives being written and read again.
pub fn fragment(bytes: &[u8]) {
    let Ok(fragment) = sdpfrag::parse(bytes) else {
        return;
    };
    assert!(fragment.candidates <= sdpfrag::CANDIDATES_MAX);
    let Some(credentials) = fragment.credentials else {
        return;
    };
    let ours = sdpfrag::render(credentials, fragment.media, &[]);
    let again = sdpfrag::parse(ours.as_bytes());
    assert!(
        again.is_ok_and(|again| again.credentials == fragment.credentials
            && (fragment.media.is_none() || again.media == fragment.media)),
        "our own fragment reads as it was written"
    );
}

/// A value of `If-Match`: bounded, and the tags are pieces of it.
pub fn if_match(bytes: &[u8]) {
    if let Ok(tags) = precondition::parse([bytes].into_iter()) {
        assert!(tags.len() <= ENTITY_TAGS_MAX);
    }
}

/// A value of `Authorization`: nobody without the secret gets in.
pub fn authorization(bytes: &[u8]) {
    let verifier = Verifier::new(b"a secret that no corpus file knows");
    let outcome = verifier.check([bytes].into_iter(), 0);
    assert!(matches!(outcome, Err(Refusal::NoToken | Refusal::Invalid)));
}

/// A segment of a session URL: what opens is what would be sealed, but for the sealed block.
pub fn session_url(bytes: &[u8]) {
    let Some(id) = KeyId::new(1) else { return };
    let ring = KeyRing::single(id, [1; 16]);
    let Ok(segment) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(token) = Token::open(&ring, segment) {
        assert_eq!(segment.len(), TOKEN_LEN);
        let again = token.seal(&ring, Minute(0), [0; 3]);
        assert_eq!(Token::open(&ring, &again), Ok(token));
    }
}
