//! What the WHIP tests share: a network of transceivers on loopback with certificates of their own, a fake engine that
//! keeps sessions the way the real one promises to, and an HTTP client that shows every byte.

#![expect(
    dead_code,
    reason = "each test file is its own crate and uses its part of this"
)]

pub(crate) mod client;
pub(crate) mod engine;
pub(crate) mod node;

/// An offer with audio; the fake engine looks for the m-line.
pub(crate) const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=ice-ufrag:EsAw\r\n\
                         m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n";
/// An offer with nothing but video.
pub(crate) const VIDEO_OFFER: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n";
/// An `ice-pwd` of legal length.
pub(crate) const PWD: &str = "P2uYro0UCOQ4zxjKXaWCBui1";

/// `Content-Type` of offers.
pub(crate) const SDP: (&str, &str) = ("Content-Type", "application/sdp");
/// `Content-Type` of fragments.
pub(crate) const SDPFRAG: (&str, &str) = ("Content-Type", "application/trickle-ice-sdpfrag");

/// A fragment with these credentials.
pub(crate) fn fragment(ufrag: &str) -> String {
    format!(
        "a=ice-ufrag:{ufrag}\r\na=ice-pwd:{PWD}\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
         a=candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host\r\n"
    )
}
