//! The example of RFC 6605 §6.1, and what keys must be.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

use super::*;

/// The private key of the example, its public key, and its signature of `www.example.net. 3600 IN A 192.0.2.1`.
const PRIVATE: &str = "194e929d0fcebbec42e51ba6b88508b8966d7974f6cf43bfa24d6cdfc12dea64";
const PUBLIC: &str = "1a88c88615d437fbb8bf9e1942a1929f28562706ae6c2bd399e7b1bfb6d1e9e75b92b4aa42917ae1c61b701ef035c3fe7be3009cbafe5a2f71316c902dcf0d00";
const SIGNATURE: &str = "ab1eb02d8aa687e97da0229337aa8873e6f0eb26be289f28333d183f5d3b7a95c0c869adfb748daee3c5286eed6682c12e5533186baced9c26c167a9ebae950b";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// RFC 5915 in RFC 5208, by hand.
fn pkcs8(private: &str, public: &str) -> Vec<u8> {
    let head = "308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420";
    bytes(&format!("{head}{private}a14403420004{public}"))
}

pub(crate) fn keys() -> Keys {
    Keys::from_pkcs8([&pkcs8(PRIVATE, PUBLIC)[..]], &SystemRandom::new()).unwrap()
}

/// Whether each signature of `set` is one of `keys`, made for `apex`.
pub(crate) fn verifies(set: &Rrset, keys: &Keys, apex: &Name) -> bool {
    !set.signatures.is_empty()
        && set.signatures.iter().all(|rdata| {
            let (before, signature) = rdata.split_at(18 + apex.as_wire().len());
            let tag = u16::from_be_bytes([before[16], before[17]]);
            let key = keys.keys.iter().find(|key| key.tag == tag).unwrap();
            let input = [before, &canonical(set)].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.pair.public_key())
                .verify(&input, signature)
                .is_ok()
        })
}

#[test]
fn the_example_of_rfc_6605() {
    let (keys, apex) = (keys(), Name::parse("example.net").unwrap());
    assert_eq!(
        keys.ds_texts(&apex),
        ["example.net. IN DS 55648 13 2 \
          b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"]
    );
    let ds = keys.ds(&apex);
    assert_eq!(ds[0][..4], [0xd9, 0x60, 13, 2]);
    let name = Name::parse("www.example.net").unwrap();
    let mut set = Rrset::new(name, Type::A, 3600, vec![vec![192, 0, 2, 1]]);
    let signer = Signer {
        apex: &apex,
        keys: &keys,
        validity: Validity {
            inception_s: 1_281_607_479,
            expiration_s: 1_284_026_679,
        },
        random: &SystemRandom::new(),
    };
    signer.sign(&mut set).unwrap();
    assert!(verifies(&set, &keys, &apex));
    let before = set.signatures[0].len() - 64;
    set.signatures[0].truncate(before);
    set.signatures[0].extend(bytes(SIGNATURE));
    assert!(verifies(&set, &keys, &apex), "the signature of the example");
    set.ttl_s += 1;
    assert!(!verifies(&set, &keys, &apex));
}

#[test]
fn the_order_of_answers_is_not_signed() {
    let (keys, apex) = (keys(), Name::parse("example").unwrap());
    let records = vec![vec![192, 0, 2, 9], vec![192, 0, 2, 1], vec![192, 0, 2, 200]];
    let mut set = Rrset::new(apex.clone(), Type::A, 60, records);
    let signer = Signer {
        apex: &apex,
        keys: &keys,
        validity: Validity::at(1_000_000),
        random: &SystemRandom::new(),
    };
    signer.sign(&mut set).unwrap();
    set.rdata.reverse();
    assert!(verifies(&set, &keys, &apex));
}

#[test]
fn signatures_are_renewed_every_day() {
    let noon = 1_700_000_000 / DAY_S * DAY_S + 43_200;
    assert_eq!(Validity::at(noon), Validity::at(noon + 43_199));
    assert_ne!(Validity::at(noon), Validity::at(noon + 43_200));
    let validity = Validity::at(noon);
    let begins = u64::from(validity.inception_s);
    let ends = u64::from(validity.expiration_s);
    assert!(noon - begins >= SLACK_S && ends - noon > 13 * DAY_S);
    // After 2106, as serial numbers.
    let late = Validity::at((1 << 32) + DAY_S);
    assert!(late.expiration_s > late.inception_s && late.inception_s < 200_000);
}

#[test]
fn what_is_no_key_is_refused() {
    let random = SystemRandom::new();
    let good = pkcs8(PRIVATE, PUBLIC);
    let other = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let other = other.as_ref();
    let load = |list: &[&[u8]]| Keys::from_pkcs8(list.iter().copied(), &random);
    for (list, error) in [
        (&[][..], KeysError::Count(0)),
        (&[&b"x"[..]], KeysError::NotAKey(1)),
        (&[&good[..], &good[..10]], KeysError::NotAKey(2)),
        (&[&good, other, &good], KeysError::SameTag(1, 3)),
    ] {
        assert_eq!(load(list).unwrap_err(), error);
    }
    let two = load(&[other, &good]).unwrap();
    assert!(format!("{two:?}").contains("55648"));
    assert!(!format!("{two:?}").contains("194e"));
}

#[test]
fn every_key_signs_the_keys_and_the_first_signs_the_rest() {
    let random = SystemRandom::new();
    let other = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let list = [other.as_ref().to_vec(), pkcs8(PRIVATE, PUBLIC)];
    let keys = Keys::from_pkcs8(list.iter().map(Vec::as_slice), &random).unwrap();
    let apex = Name::parse("example").unwrap();
    let signer = Signer {
        apex: &apex,
        keys: &keys,
        validity: Validity::at(0),
        random: &random,
    };
    for (rtype, count) in [
        (Type::DNSKEY, 2),
        (Type::CDS, 2),
        (Type::CDNSKEY, 2),
        (Type::A, 1),
    ] {
        let mut set = Rrset::new(apex.clone(), rtype, 60, keys.dnskeys());
        signer.sign(&mut set).unwrap();
        assert_eq!(set.signatures.len(), count, "{rtype:?}");
        assert!(verifies(&set, &keys, &apex));
    }
}
