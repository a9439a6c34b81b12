//! `application/trickle-ice-sdpfrag` (RFC 8840 §9): reads a client's fragment, writes ours.
//!
//! ```text
//! a=ice-ufrag:EsAw                     credentials: at the head, or in the media section (RFC 9725 §4.3.3 shows both)
//! a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1
//! m=audio 9 UDP/TLS/RTP/SAVPF 111      the offerer-tagged section of the bundle
//! a=mid:0
//! a=candidate:...                      counted, not looked at: we are ICE-lite and never contact a candidate
//! a=end-of-candidates
//! ```
//!
//! Whether credentials mean a restart is not decided here: only the session knows the current ones. Unknown attributes
//! are extensions and skipped (RFC 8840 §9.2). The caller bounds the size of the body, this module what is in it.

use std::net::SocketAddr;

use crate::engine::sdp;

/// Lines in a fragment at most.
pub const LINES_MAX: usize = 512;
/// Candidates in a fragment at most.
pub const CANDIDATES_MAX: usize = 128;
/// `ice-ufrag`: 4 to 256 ice-chars (RFC 8839 §5.4).
const UFRAG_LEN: std::ops::RangeInclusive<usize> = 4..=256;
/// `ice-pwd`: 22 to 256 ice-chars (RFC 8839 §5.4).
const PWD_LEN: std::ops::RangeInclusive<usize> = 22..=256;
/// Bytes of an m-line or a mid that we are willing to repeat.
const ECHO_LEN_MAX: usize = 256;

/// What a client's fragment says.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// `ice-ufrag` and `ice-pwd`.
    pub credentials: Option<Credentials<'a>>,
    /// First media section: the m-line's value and its mid.
    pub media: Option<(&'a str, &'a str)>,
    /// How many candidates there are.
    pub candidates: usize,
    /// The client has no more.
    pub end_of_candidates: bool,
}

/// `ice-ufrag` and `ice-pwd` of a fragment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// `ice-ufrag`.
    pub ufrag: &'a str,
    /// `ice-pwd`.
    pub pwd: &'a str,
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Without credentials and addresses.
impl std::fmt::Debug for Fragment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fragment")
            .field("credentials", &self.credentials)
            .field("candidates", &self.candidates)
            .field("end_of_candidates", &self.end_of_candidates)
            .finish_non_exhaustive()
    }
}

/// Why a body is not a usable fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// Not UTF-8, holds a NUL, or a line is not `<letter>=<value>`.
    #[error("the body is not an SDP fragment")]
    Malformed,
    /// No line at all.
    #[error("the fragment is empty")]
    Empty,
    /// Too many lines or candidates.
    #[error("the fragment is too long")]
    TooLong,
    /// `ice-ufrag` or `ice-pwd` alone, of a bad length, with a bad character, or differing between sections.
    #[error("ice-ufrag and ice-pwd are not usable")]
    BadCredentials,
}

/// Parses a fragment. Lines end in CRLF; a bare LF is taken too.
///
/// # Errors
/// See [`FragmentError`].
pub fn parse(body: &[u8]) -> Result<Fragment<'_>, FragmentError> {
    let text = std::str::from_utf8(body).map_err(|_| FragmentError::Malformed)?;
    if text.contains('\0') {
        return Err(FragmentError::Malformed);
    }
    let mut parser = Parser::default();
    for (index, line) in text.lines().filter(|line| !line.is_empty()).enumerate() {
        if index == LINES_MAX {
            return Err(FragmentError::TooLong);
        }
        parser.line(line)?;
    }
    parser.finish()
}

#[derive(Default)]
struct Parser<'a> {
    any_line: bool,
    ufrag: Option<&'a str>,
    pwd: Option<&'a str>,
    media: Option<&'a str>,
    mid: Option<&'a str>,
    candidates: usize,
    end_of_candidates: bool,
}

impl<'a> Parser<'a> {
    fn line(&mut self, line: &'a str) -> Result<(), FragmentError> {
        self.any_line = true;
        let (kind, value) = line.split_once('=').ok_or(FragmentError::Malformed)?;
        match kind {
            "a" => self.attribute(value),
            "m" => {
                self.media = self.media.or(Some(value));
                Ok(())
            }
            other if other.len() == 1 && other.bytes().all(|b| b.is_ascii_lowercase()) => Ok(()),
            _ => Err(FragmentError::Malformed),
        }
    }

    fn attribute(&mut self, attribute: &'a str) -> Result<(), FragmentError> {
        let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
        match name {
            "ice-ufrag" => same(&mut self.ufrag, value),
            "ice-pwd" => same(&mut self.pwd, value),
            "mid" => {
                self.mid = self.mid.or(Some(value));
                Ok(())
            }
            "candidate" => {
                self.candidates += 1;
                if self.candidates > CANDIDATES_MAX {
                    return Err(FragmentError::TooLong);
                }
                Ok(())
            }
            "end-of-candidates" => {
                self.end_of_candidates = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(self) -> Result<Fragment<'a>, FragmentError> {
        if !self.any_line {
            return Err(FragmentError::Empty);
        }
        let credentials = match (self.ufrag, self.pwd) {
            (None, None) => None,
            (Some(ufrag), Some(pwd))
                if ice_chars(ufrag, &UFRAG_LEN) && ice_chars(pwd, &PWD_LEN) =>
            {
                Some(Credentials { ufrag, pwd })
            }
            (Some(_), Some(_)) | (Some(_), None) | (None, Some(_)) => {
                return Err(FragmentError::BadCredentials);
            }
        };
        let media = match (self.media, self.mid) {
            (Some(media), Some(mid)) if repeatable(media) && repeatable(mid) => Some((media, mid)),
            (Some(_) | None, Some(_) | None) => None,
        };
        Ok(Fragment {
            credentials,
            media,
            candidates: self.candidates,
            end_of_candidates: self.end_of_candidates,
        })
    }
}

/// One bundle has one set of credentials: a section may repeat them, not change them.
fn same<'a>(slot: &mut Option<&'a str>, value: &'a str) -> Result<(), FragmentError> {
    match *slot {
        Some(known) if known != value => Err(FragmentError::BadCredentials),
        Some(_) | None => {
            *slot = Some(value);
            Ok(())
        }
    }
}

fn ice_chars(text: &str, len: &std::ops::RangeInclusive<usize>) -> bool {
    len.contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn repeatable(text: &str) -> bool {
    text.len() <= ECHO_LEN_MAX && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// Our fragment after an ICE restart: `ice-lite` as in the answer, our credentials, and all candidates again, because
/// the client replaces the old set by this one (RFC 9725 §4.3.3). `media` repeats the client's section.
#[must_use]
pub fn render(
    credentials: Credentials<'_>,
    media: Option<(&str, &str)>,
    ingress: &[SocketAddr],
) -> String {
    let (media, mid) = media.unwrap_or(("audio 9 UDP/TLS/RTP/SAVPF 0", "0"));
    let Credentials { ufrag, pwd } = credentials;
    let mut text = format!(
        "a=ice-lite\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:{pwd}\r\nm={media}\r\na=mid:{mid}\r\n"
    );
    sdp::candidates(&mut text, ingress);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PWD: &str = "P2uYro0UCOQ4zxjKXaWCBui1";

    #[test]
    fn trickle() {
        let body = format!(
            "a=ice-ufrag:EsAw\r\na=ice-pwd:{PWD}\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
             a=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0\r\n\
             a=candidate:473322822 1 tcp 1518280447 192.0.2.1 9 typ host tcptype active\r\na=end-of-candidates\r\n"
        );
        let fragment = parse(body.as_bytes()).unwrap();
        let expected = Fragment {
            credentials: Some(Credentials {
                ufrag: "EsAw",
                pwd: PWD,
            }),
            media: Some(("audio 9 UDP/TLS/RTP/SAVPF 111", "0")),
            candidates: 2,
            end_of_candidates: true,
        };
        assert_eq!(fragment, expected);
        assert_eq!(parse(body.replace('\r', "").as_bytes()), Ok(expected));
    }

    #[test]
    fn credentials_in_the_media_section() {
        let body = format!(
            "a=ice-options:trickle ice2\r\na=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
             a=mid:0\r\na=ice-pwd:{PWD}\r\na=ice-ufrag:ysXw\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\n\
             a=ice-ufrag:ysXw\r\na=ice-pwd:{PWD}\r\n"
        );
        let fragment = parse(body.as_bytes()).unwrap();
        assert_eq!(fragment.credentials.unwrap().ufrag, "ysXw");
        assert_eq!(fragment.media, Some(("audio 9 UDP/TLS/RTP/SAVPF 111", "0")));
    }

    #[test]
    fn refusals() {
        use FragmentError::{BadCredentials, Empty, Malformed, TooLong};
        let many = |line: &str, n: usize| line.repeat(n).into_bytes();
        let pair = |ufrag: &str, pwd: &str| {
            format!("a=ice-ufrag:{ufrag}\r\na=ice-pwd:{pwd}\r\n").into_bytes()
        };
        for (name, body, expected) in [
            ("empty", vec![], Empty),
            ("blank", b"\r\n\r\n".to_vec(), Empty),
            ("not UTF-8", vec![b'a', b'=', 0xff], Malformed),
            ("NUL", b"a=x\0".to_vec(), Malformed),
            ("JSON", br#"{"candidate":"a=b"}"#.to_vec(), Malformed),
            ("no equals sign", b"hello".to_vec(), Malformed),
            ("upper case", b"A=x".to_vec(), Malformed),
            ("too many lines", many("a=x\n", LINES_MAX + 1), TooLong),
            (
                "too many candidates",
                many("a=candidate:1\n", CANDIDATES_MAX + 1),
                TooLong,
            ),
            ("ufrag alone", b"a=ice-ufrag:EsAw".to_vec(), BadCredentials),
            (
                "pwd alone",
                format!("a=ice-pwd:{PWD}").into_bytes(),
                BadCredentials,
            ),
            ("short ufrag", pair("abc", PWD), BadCredentials),
            ("long ufrag", pair(&"a".repeat(257), PWD), BadCredentials),
            ("ufrag with a colon", pair("ab:cd", PWD), BadCredentials),
            ("short pwd", pair("EsAw", &PWD[..21]), BadCredentials),
            (
                "two ufrags",
                [pair("EsAw", PWD), pair("EsAx", PWD)].concat(),
                BadCredentials,
            ),
        ] {
            assert_eq!(parse(&body), Err(expected), "{name}");
        }
        assert!(parse(&many("a=x\n", LINES_MAX)).is_ok());
        assert!(parse(&many("a=candidate:1\n", CANDIDATES_MAX)).is_ok());
    }

    #[test]
    fn our_fragment() {
        let credentials = Credentials {
            ufrag: "289b31b754eaa438",
            pwd: PWD,
        };
        let ingress = [
            "198.51.100.1:3478".parse().unwrap(),
            "[2001:db8::1]:3478".parse().unwrap(),
        ];
        assert_eq!(
            render(
                credentials,
                Some(("audio 9 UDP/TLS/RTP/SAVPF 111", "a0")),
                &ingress
            ),
            format!(
                "a=ice-lite\r\na=ice-ufrag:289b31b754eaa438\r\na=ice-pwd:{PWD}\r\n\
                 m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:a0\r\n\
                 a=candidate:1 1 udp 2130706431 198.51.100.1 3478 typ host\r\n\
                 a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host\r\na=end-of-candidates\r\n"
            )
        );
    }

    #[test]
    fn nothing_hostile_is_repeated() {
        let body = format!("m={}\r\na=mid:0\r\n", "x".repeat(ECHO_LEN_MAX + 1));
        assert_eq!(parse(body.as_bytes()).unwrap().media, None);
        assert_eq!(
            parse("m=audio\u{e9}\r\na=mid:0".as_bytes()).unwrap().media,
            None
        );
    }
}
