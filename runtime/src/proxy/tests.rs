//! Tables of who is believed.

use super::Found::{Forwarded, Peer, ProxyHeader, Spoofed, Unreadable, XForwardedFor};
use super::v2::{HeaderError, PREFIX_BYTES, Prefix, REST_BYTES_MAX};
use super::*;

fn trusted() -> TrustedProxies {
    let nets = ["10.0.0.0/8", "2001:db8:a::/48", "127.0.0.1/32"];
    TrustedProxies {
        nets: nets.iter().map(|net| net.parse().unwrap()).collect(),
        proxy_protocol: true,
    }
}

fn client(peer: &str, source: Option<&str>, fields: &[(&str, &str)]) -> (String, Found) {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    let source = source.map(|source| source.parse().unwrap());
    let (client, found) = trusted().client(peer.parse().unwrap(), source, &headers);
    (client.to_string(), found)
}

type Row = (
    &'static str,
    Option<&'static str>,
    &'static [(&'static str, &'static str)],
    &'static str,
    Found,
);

const F: &str = "forwarded";
const X: &str = "x-forwarded-for";

/// Peer, source of a PROXY header, header fields; the client, and where it was found.
const ROWS: &[Row] = &[
    // Nobody in between.
    ("198.51.100.7", None, &[], "198.51.100.7", Peer),
    ("::ffff:198.51.100.7", None, &[], "198.51.100.7", Peer),
    ("10.0.0.1", None, &[], "10.0.0.1", Peer),
    // A stranger who claims.
    (
        "198.51.100.7",
        None,
        &[(X, "192.0.2.1")],
        "198.51.100.7",
        Spoofed,
    ),
    (
        "198.51.100.7",
        None,
        &[(F, "for=192.0.2.1")],
        "198.51.100.7",
        Spoofed,
    ),
    ("198.51.100.7", Some("192.0.2.1"), &[], "198.51.100.7", Peer),
    // One proxy.
    (
        "10.0.0.1",
        None,
        &[(X, "192.0.2.1")],
        "192.0.2.1",
        XForwardedFor,
    ),
    (
        "::ffff:10.0.0.1",
        None,
        &[(X, "192.0.2.1:4711")],
        "192.0.2.1",
        XForwardedFor,
    ),
    (
        "10.0.0.1",
        None,
        &[(X, "2001:db8::7")],
        "2001:db8::7",
        XForwardedFor,
    ),
    (
        "10.0.0.1",
        None,
        &[(X, "[2001:db8::7]:4711")],
        "2001:db8::7",
        XForwardedFor,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=192.0.2.1")],
        "192.0.2.1",
        Forwarded,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "proto=https;For=\"[2001:db8::7]:4711\";by=x")],
        "2001:db8::7",
        Forwarded,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=\"[2001:db8::7]\"")],
        "2001:db8::7",
        Forwarded,
    ),
    // What strangers wrote stands left of whom the last proxy saw.
    (
        "10.0.0.1",
        None,
        &[(X, "203.0.113.9, 192.0.2.1")],
        "192.0.2.1",
        XForwardedFor,
    ),
    (
        "10.0.0.1",
        None,
        &[(X, "203.0.113.9"), (X, "192.0.2.1, 10.0.0.2")],
        "192.0.2.1",
        XForwardedFor,
    ),
    (
        "10.0.0.1",
        None,
        &[(
            F,
            "for=203.0.113.9, for=192.0.2.1;by=10.0.0.2, for=10.0.0.2",
        )],
        "192.0.2.1",
        Forwarded,
    ),
    (
        "10.0.0.1",
        None,
        &[(X, "junk, 192.0.2.1")],
        "192.0.2.1",
        XForwardedFor,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=\"a,b\", for=192.0.2.1")],
        "192.0.2.1",
        Forwarded,
    ),
    // Nobody but ours.
    (
        "10.0.0.1",
        None,
        &[(X, "10.0.0.3, 10.0.0.2")],
        "10.0.0.3",
        XForwardedFor,
    ),
    // Both: a proxy that writes both says the same in both. Else a stranger wrote one of them, whichever.
    (
        "10.0.0.1",
        None,
        &[(X, "203.0.113.9, 192.0.2.1"), (F, "for=192.0.2.1")],
        "192.0.2.1",
        Forwarded,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=203.0.113.9"), (X, "192.0.2.1")],
        "10.0.0.1",
        Unreadable,
    ),
    // A quote left open by a stranger hides nothing of what our proxy wrote.
    (
        "10.0.0.1",
        None,
        &[(F, "for=203.0.113.9;host=\"x, for=192.0.2.1")],
        "192.0.2.1",
        Forwarded,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=203.0.113.9;host=\"x, for=\"[2001:db8::7]:1\"")],
        "2001:db8::7",
        Forwarded,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=203.0.113.9;host=\"x, for=10.0.0.2")],
        "10.0.0.2",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=203.0.113.9;host=a\"b;proto=http")],
        "10.0.0.1",
        Unreadable,
    ),
    // What cannot be read.
    ("10.0.0.1", None, &[(X, "")], "10.0.0.1", Unreadable),
    (
        "10.0.0.1",
        None,
        &[(X, "192.0.2.1, junk")],
        "10.0.0.1",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=unknown")],
        "10.0.0.1",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=_hidden")],
        "10.0.0.1",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "by=10.0.0.1")],
        "10.0.0.1",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=192.0.2.1;for=192.0.2.2")],
        "10.0.0.1",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "for=\"192.0.2.1")],
        "10.0.0.1",
        Unreadable,
    ),
    (
        "10.0.0.1",
        None,
        &[(F, "junk, for=10.0.0.2")],
        "10.0.0.2",
        Unreadable,
    ),
    // PROXY headers.
    ("10.0.0.1", Some("192.0.2.1"), &[], "192.0.2.1", ProxyHeader),
    (
        "10.0.0.1",
        Some("192.0.2.1"),
        &[(X, "203.0.113.9")],
        "192.0.2.1",
        ProxyHeader,
    ),
    (
        "10.0.0.1",
        Some("10.0.0.2"),
        &[(X, "192.0.2.1")],
        "192.0.2.1",
        XForwardedFor,
    ),
];

#[test]
fn who_is_believed() {
    for (peer, source, fields, expected, found) in ROWS {
        let said = client(peer, *source, fields);
        let expected = ((*expected).to_owned(), *found);
        assert_eq!(said, expected, "{peer} {source:?} {fields:?}");
    }
}

#[test]
fn a_chain_is_read_no_further_than_its_bound() {
    let long = vec!["10.0.0.2"; HOPS_MAX].join(",");
    let (client, _) = client(
        "10.0.0.1",
        None,
        &[("x-forwarded-for", &format!("192.0.2.1,{long}"))],
    );
    assert_eq!(client, "10.0.0.2");
}

#[test]
fn only_trusted_peers_send_headers_and_only_when_they_are_told_to() {
    let mut proxies = trusted();
    assert!(proxies.sends_proxy_header("10.1.2.3".parse().unwrap()));
    assert!(!proxies.sends_proxy_header("198.51.100.7".parse().unwrap()));
    proxies.proxy_protocol = false;
    assert!(!proxies.sends_proxy_header("10.1.2.3".parse().unwrap()));
}

fn prefix(version: u8, family: u8, len: usize) -> [u8; PREFIX_BYTES] {
    let mut bytes = [0; PREFIX_BYTES];
    let len = u16::try_from(len).unwrap().to_be_bytes();
    let kind = [version, family];
    let parts = [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &kind, &len].concat();
    bytes.copy_from_slice(&parts);
    bytes
}

#[test]
fn proxy_headers() {
    let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80];
    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    v6[15] = 7;
    let mut mapped = [0; 36];
    mapped[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let with_tlv = [v4.as_slice(), &[4, 0, 1, 0]].concat();
    for (version, family, rest, expected) in [
        (0x21, 0x11, v4.as_slice(), Ok(ip("192.0.2.1"))),
        (0x21, 0x11, &with_tlv, Ok(ip("192.0.2.1"))),
        (0x21, 0x21, &v6, Ok(ip("2001:db8::7"))),
        (0x21, 0x21, &mapped, Ok(ip("192.0.2.1"))),
        (0x20, 0x00, &[], Ok(None)),
        (0x20, 0x11, &v4, Ok(None)),
        (0x21, 0x00, &[], Ok(None)),
        (0x21, 0x31, &[0; 216], Ok(None)),
        (0x21, 0x11, &v4[..11], Err(HeaderError::TooShort)),
        (0x21, 0x21, &v6[..35], Err(HeaderError::TooShort)),
        (0x22, 0x11, &v4, Err(HeaderError::Version)),
        (0x11, 0x11, &v4, Err(HeaderError::Version)),
    ] {
        let parsed = Prefix::parse(&prefix(version, family, rest.len()));
        let source = parsed.and_then(|prefix| prefix.source(rest));
        assert_eq!(source, expected, "{version:x} {family:x} {rest:?}");
    }
    let long = prefix(0x21, 0x11, REST_BYTES_MAX + 1);
    assert_eq!(Prefix::parse(&long), Err(HeaderError::TooLong));
    let mut other = prefix(0x21, 0x11, 12);
    other[0] = b'G';
    assert_eq!(Prefix::parse(&other), Err(HeaderError::Signature));
}

#[tokio::test]
async fn a_header_is_taken_off_and_not_a_byte_more() {
    let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80];
    let bytes = [prefix(0x21, 0x11, 12).as_slice(), &v4, b"POST"].concat();
    let mut stream = bytes.as_slice();
    let source = v2::read(&mut stream).await;
    assert_eq!(source, Ok(Some([192, 0, 2, 1].into())));
    assert_eq!(stream, b"POST");
    let mut cut = &bytes[..20];
    assert_eq!(v2::read(&mut cut).await, Err(HeaderError::TooShort));
}

#[test]
fn bytes_of_a_network_do_not_panic() {
    let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80];
    let corpus = [
        b"for=192.0.2.1, for=\"[2001:db8::7]:1\";by=x".to_vec(),
        b"for=\"\\\"\", ;;=,\n,,\xff".to_vec(),
        [prefix(0x21, 0x11, 12).as_slice(), &v4].concat(),
        [prefix(0x21, 0x21, 2000).as_slice(), &v4].concat(),
    ];
    for seed in &corpus {
        for at in 0..seed.len() {
            for byte in [0, b'"', b'\\', b',', b';', b'=', 0x7f, 0xff] {
                let mut bytes = seed.clone();
                bytes[at] = byte;
                fuzz::proxy_header(&bytes);
                fuzz::header_fields(&bytes);
                fuzz::proxy_header(&bytes[..at]);
                fuzz::header_fields(&bytes[..at]);
            }
        }
    }
}
