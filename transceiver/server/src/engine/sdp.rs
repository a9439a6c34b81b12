//! The lines of a session description that are ours: ICE credentials, candidates, `ice-lite`.
//!
//! ```text
//! client's offer ──inward──► same, with the virtual peer's credentials, SHA-256 alone and no candidates ──► rtc
//! client ◄──outward── rtc's answer with our ufrag, password, PoP candidates and ice-lite
//! ```
//!
//! Everything else passes as it is: what SDP means is the media engine's business.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use transceiver_proto::LocalCredentials;

/// Credentials of the virtual peer, the same in every session, so that the media engine never sees an ICE restart.
pub const VIRTUAL_UFRAG: &str = "virtual";
/// See [`VIRTUAL_UFRAG`].
pub const VIRTUAL_PASSWORD: &str = "virtual-peer-of-one-pair";

/// m-lines an offer may have.
const MEDIA_MAX: usize = 32;

/// Characters of a client's ufrag (RFC 8839 §5.4).
const UFRAG_LEN: RangeInclusive<usize> = 4..=256;
/// Characters of a client's password (RFC 8839 §5.4).
const PASSWORD_LEN: RangeInclusive<usize> = 22..=256;

/// Characters of a SHA-256 fingerprint.
const SHA256_LEN: usize = 32 * 3 - 1;

/// What we read of an offer.
/// `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer {
    /// The offer as the media engine gets it.
    pub inward: String,
    /// The client's ufrag.
    pub ufrag: String,
    /// The client's password; only a change of it tells an ICE restart.
    pub password: String,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Offer(..)")
    }
}

/// Why an offer is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// Not a session description.
    #[error("the body is not an SDP offer")]
    NotSdp,
    /// No m-line of audio that is in use.
    #[error("the offer has no audio")]
    NoAudio,
    /// Anything else, said in words.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// Reads an offer and prepares it for the media engine.
///
/// # Errors
/// See [`SdpError`].
pub fn inward(offer: &str) -> Result<Offer, SdpError> {
    if !offer.starts_with("v=0") || !offer.lines().all(is_line) {
        return Err(SdpError::NotSdp);
    }
    let media = offer.lines().filter(|line| line.starts_with("m="));
    if !media
        .clone()
        .any(|line| line.starts_with("m=audio ") && !line.starts_with("m=audio 0 "))
    {
        return Err(SdpError::NoAudio);
    }
    check_shape(offer, media.count())?;
    let ufrag =
        attribute(offer, "ice-ufrag").ok_or(SdpError::Unsupported("the offer has no ice-ufrag"))?;
    let password =
        attribute(offer, "ice-pwd").ok_or(SdpError::Unsupported("the offer has no ice-pwd"))?;
    if !is_ice(ufrag, &UFRAG_LEN) || !is_ice(password, &PASSWORD_LEN) {
        return Err(SdpError::Unsupported(
            "ice-ufrag or ice-pwd is not of ICE characters, or too short or long",
        ));
    }
    Ok(Offer {
        inward: rewrite_inward(offer),
        ufrag: ufrag.to_owned(),
        password: password.to_owned(),
    })
}

/// What we cannot do, whatever else the offer says.
fn check_shape(offer: &str, media: usize) -> Result<(), SdpError> {
    let has = |wanted: &str| offer.lines().any(|line| line.trim_end() == wanted);
    let bundles = || offer.lines().any(|line| line.starts_with("a=group:BUNDLE"));
    if media > MEDIA_MAX {
        return Err(SdpError::Unsupported("the offer has too many m-lines"));
    }
    if media > 1 && !bundles() {
        return Err(SdpError::Unsupported("the offer does not bundle"));
    }
    check_fingerprints(offer)?;
    if has("a=ice-lite") {
        return Err(SdpError::Unsupported("both sides would be ICE-lite"));
    }
    // We are the DTLS server, so that the client's first packet, not ours, finds the way.
    if has("a=setup:passive") || has("a=setup:holdconn") {
        return Err(SdpError::Unsupported("both sides would be DTLS servers"));
    }
    Ok(())
}

/// The media engine compares SHA-256 alone, and only once DTLS has come to the certificate: the client is told now.
fn check_fingerprints(offer: &str) -> Result<(), SdpError> {
    if attribute(offer, "fingerprint").is_none() {
        return Err(SdpError::Unsupported("the offer has no DTLS fingerprint"));
    }
    let mut values = offer.lines().filter_map(sha256).peekable();
    if values.peek().is_none() {
        return Err(SdpError::Unsupported(
            "the offer has no DTLS fingerprint of SHA-256",
        ));
    }
    if !values.all(is_sha256) {
        return Err(SdpError::Unsupported(
            "a DTLS fingerprint of the offer is not of SHA-256's 32 bytes",
        ));
    }
    Ok(())
}

/// The value of a fingerprint line of SHA-256; the name of the hash is of any case (RFC 8122 §5, RFC 5234 §2.3).
fn sha256(line: &str) -> Option<&str> {
    let fingerprint = line.strip_prefix("a=fingerprint:")?.trim();
    let (hash, value) = fingerprint.split_once(' ').unwrap_or((fingerprint, ""));
    hash.eq_ignore_ascii_case("sha-256").then_some(value)
}

/// RFC 8122 §5: pairs of hexadecimal digits with colons between. Small letters are compared like large ones.
fn is_sha256(value: &str) -> bool {
    value.len() == SHA256_LEN
        && value.bytes().enumerate().all(|(index, byte)| {
            if index % 3 == 2 {
                byte == b':'
            } else {
                byte.is_ascii_hexdigit()
            }
        })
}

/// RFC 8839 §5.4: `ice-char`.
fn is_ice(value: &str, len: &RangeInclusive<usize>) -> bool {
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    len.contains(&value.len()) && value.bytes().all(is_char)
}

fn is_line(line: &str) -> bool {
    let mut bytes = line.bytes();
    line.is_empty()
        || (bytes.next().is_some_and(|kind| kind.is_ascii_lowercase())
            && bytes.next() == Some(b'='))
}

/// The value of the first `a=name:` line.
fn attribute<'a>(sdp: &'a str, name: &str) -> Option<&'a str> {
    sdp.lines()
        .find_map(|line| {
            line.strip_prefix("a=")?
                .strip_prefix(name)?
                .strip_prefix(':')
        })
        .map(str::trim)
}

fn rewrite_inward(offer: &str) -> String {
    let mut out = String::with_capacity(offer.len());
    for line in offer.lines().filter(|line| !line.is_empty()) {
        if line.starts_with("a=ice-ufrag:") {
            let _ = write!(out, "a=ice-ufrag:{VIRTUAL_UFRAG}\r\n");
        } else if line.starts_with("a=ice-pwd:") {
            let _ = write!(out, "a=ice-pwd:{VIRTUAL_PASSWORD}\r\n");
        } else if line.starts_with("a=fingerprint:") {
            // Of several hashes the engine reads the first alone.
            if let Some(value) = sha256(line) {
                let _ = write!(out, "a=fingerprint:sha-256 {value}\r\n");
            }
        } else if !is_candidate_line(line) && !line.starts_with("a=ice-options:") {
            let _ = write!(out, "{line}\r\n");
        }
    }
    out
}

fn is_candidate_line(line: &str) -> bool {
    [
        "a=candidate:",
        "a=end-of-candidates",
        "a=remote-candidates:",
    ]
    .iter()
    .any(|prefix| line.starts_with(prefix))
}

/// Makes the media engine's answer ours. Candidates go to the first m-line in use: the others are bundled with it
/// (RFC 9725 §4.4.1 asks for bundle, RFC 8839 §4.2.1.2 for candidates there).
#[must_use]
pub fn outward(answer: &str, local: &LocalCredentials, ingress: &[SocketAddr]) -> String {
    let mut out = String::with_capacity(answer.len() + 512);
    let mut given = false;
    let mut pending = false;
    for line in answer.lines().filter(|line| !line.is_empty()) {
        if line.starts_with("m=") {
            close_media(&mut out, &mut pending, &mut given, ingress);
            if !out.contains("a=ice-lite\r\n") {
                out.push_str("a=ice-lite\r\n");
            }
            pending = line.split(' ').nth(1).is_none_or(|port| port != "0");
        }
        if line.starts_with("a=ice-ufrag:") {
            let _ = write!(out, "a=ice-ufrag:{}\r\n", local.ufrag.as_str());
        } else if line.starts_with("a=ice-pwd:") {
            let _ = write!(out, "a=ice-pwd:{}\r\n", local.password.as_str());
        } else if !is_candidate_line(line)
            && line != "a=ice-lite"
            && !line.starts_with("a=ice-options:")
        {
            let _ = write!(out, "{line}\r\n");
        }
    }
    close_media(&mut out, &mut pending, &mut given, ingress);
    out
}

fn close_media(out: &mut String, pending: &mut bool, given: &mut bool, ingress: &[SocketAddr]) {
    if *pending && !*given {
        candidates(out, ingress);
        *given = true;
    }
    *pending = false;
}

/// Host candidates of component 1 in falling priority (RFC 8445 §5.1.2.1), then the end.
pub fn candidates(out: &mut String, ingress: &[SocketAddr]) {
    for (index, address) in ingress.iter().enumerate() {
        let local_preference = u16::MAX - u16::try_from(index).unwrap_or(u16::MAX);
        let priority = (126 << 24) | (u32::from(local_preference) << 8) | 255;
        let (ip, port) = (address.ip(), address.port());
        let _ = write!(
            out,
            "a=candidate:{} 1 udp {priority} {ip} {port} typ host\r\n",
            index + 1
        );
    }
    out.push_str("a=end-of-candidates\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use transceiver_proto::Password;
    use wire::hint::{Hint, KeyId, KeyRing, Minute};
    use wire::{Owner, RegionId, TransceiverId};

    const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=candidate:1 1 udp 1 192.0.2.9 4000 typ host\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=ice-options:trickle\r\na=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff\r\na=setup:actpass\r\na=mid:0\r\n";

    #[test]
    fn the_media_engine_sees_the_virtual_peer_and_no_candidate() {
        let offer = inward(OFFER).unwrap();
        assert_eq!(
            (offer.ufrag.as_str(), offer.password.as_str()),
            ("abcd", "0123456789012345678901")
        );
        assert!(
            offer.inward.contains("a=ice-ufrag:virtual\r\n") && !offer.inward.contains("192.0.2.9")
        );
        assert!(offer.inward.contains("a=mid:0\r\n") && !offer.inward.contains("trickle"));
    }

    #[test]
    fn bad_offers_say_why() {
        let video = OFFER.replace("m=audio", "m=video");
        let rejected = OFFER.replace("m=audio 9", "m=audio 0");
        let many = format!(
            "{OFFER}{}",
            "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n".repeat(32)
        );
        let bad_ice = SdpError::Unsupported(
            "ice-ufrag or ice-pwd is not of ICE characters, or too short or long",
        );
        let cases = [
            ("", SdpError::NotSdp),
            ("hello", SdpError::NotSdp),
            ("v=0\r\nhello there\r\n", SdpError::NotSdp),
            ("v=0\r\ns=-\r\n", SdpError::NoAudio),
            (&video, SdpError::NoAudio),
            (&rejected, SdpError::NoAudio),
            (
                &many,
                SdpError::Unsupported("the offer has too many m-lines"),
            ),
            (
                &OFFER.replace("a=ice-ufrag", "a=x"),
                SdpError::Unsupported("the offer has no ice-ufrag"),
            ),
            (
                &OFFER.replace("a=ice-pwd", "a=x"),
                SdpError::Unsupported("the offer has no ice-pwd"),
            ),
            (
                &OFFER.replace("a=fingerprint", "a=x"),
                SdpError::Unsupported("the offer has no DTLS fingerprint"),
            ),
            (
                &OFFER.replace("a=mid:0", "a=ice-lite"),
                SdpError::Unsupported("both sides would be ICE-lite"),
            ),
            (
                &OFFER.replace("setup:actpass", "setup:passive"),
                SdpError::Unsupported("both sides would be DTLS servers"),
            ),
            (
                &format!(
                    "{}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n",
                    OFFER.replace("a=group:BUNDLE 0", "a=x")
                ),
                SdpError::Unsupported("the offer does not bundle"),
            ),
            (&OFFER.replace("abcd", "abc"), bad_ice),
            (&OFFER.replace("abcd", "ab:cd"), bad_ice),
            (&OFFER.replace("abcd", &"a".repeat(257)), bad_ice),
            (&OFFER.replace("0123456789012345678901", "short"), bad_ice),
        ];
        for (offer, error) in cases {
            assert_eq!(inward(offer), Err(error), "{offer:.40}");
        }
    }

    #[test]
    fn fingerprints_are_checked_by_their_shape() {
        let line = OFFER
            .lines()
            .find(|line| line.starts_with("a=fingerprint:"));
        let good = line.unwrap();
        let value = good.strip_prefix("a=fingerprint:sha-256 ").unwrap();
        let none = Err(SdpError::Unsupported(
            "the offer has no DTLS fingerprint of SHA-256",
        ));
        let malformed = Err(SdpError::Unsupported(
            "a DTLS fingerprint of the offer is not of SHA-256's 32 bytes",
        ));
        let with = |fingerprint: &str| format!("a=fingerprint:{fingerprint}");
        let table = [
            (good.to_owned(), Ok(())),
            (with(&format!("SHA-256 {value}")), Ok(())),
            (format!("{}\r\n{good}", with("sha-1 00:11")), Ok(())),
            (with("sha-1 00:11"), none),
            (with(&format!("sha-512 {value}")), none),
            (with(value), none),
            (with(""), none),
            (with("sha-256"), malformed),
            (with("sha-256 00"), malformed),
            (with(&format!("sha-256 {value}:00")), malformed),
            (with(&format!("sha-256 {value} {value}")), malformed),
            (
                with(&format!("sha-256 {}", value.replace(':', "-"))),
                malformed,
            ),
            (
                with(&format!("sha-256 {}", value.replace("00", "0x"))),
                malformed,
            ),
            (
                with(&format!("sha-256 {}", value.replace("00", "\u{e9}"))),
                malformed,
            ),
            (format!("{good}\r\n{}", with("sha-256 00")), malformed),
        ];
        for (fingerprint, outcome) in table {
            let read = inward(&OFFER.replace(good, &fingerprint));
            assert_eq!(read.clone().map(|_| ()), outcome, "{fingerprint}");
            if let Ok(offer) = read {
                assert_eq!(offer.inward.matches("a=fingerprint:").count(), 1);
                assert!(offer.inward.contains(good), "{fingerprint}");
            }
        }
    }

    #[test]
    fn the_client_sees_our_credentials_and_candidates_once() {
        let ring = KeyRing::single(KeyId::new(1).unwrap(), [1; 16]);
        let owner = Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        };
        let local = LocalCredentials {
            ufrag: ring.seal(
                Hint {
                    owner,
                    issued: Minute(1),
                },
                [0; 3],
            ),
            password: Password::new([3; 24]),
        };
        let answer = format!(
            "{}m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=ice-ufrag:firsthop\r\na=ice-pwd:x\r\na=candidate:9 1 udp 1 192.0.2.1 9 typ host\r\n",
            OFFER
        );
        let ingress = [
            "192.0.2.10:3478".parse().unwrap(),
            "[2001:db8::1]:3478".parse().unwrap(),
        ];
        let out = outward(&answer, &local, &ingress);
        assert_eq!(out.matches("a=candidate:").count(), 2);
        assert!(out.contains("a=candidate:1 1 udp 2130706431 192.0.2.10 3478 typ host\r\n"));
        assert!(out.contains("a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host\r\n"));
        assert_eq!(
            out.matches(&format!("a=ice-ufrag:{}\r\n", local.ufrag.as_str()))
                .count(),
            2
        );
        assert_eq!(out.matches("a=ice-lite\r\n").count(), 1);
        assert!(out.find("a=ice-lite").unwrap() < out.find("m=audio").unwrap());
        assert!(
            !out.contains("192.0.2.1 9") && !out.contains("virtual") && !out.contains("trickle")
        );
    }
}
