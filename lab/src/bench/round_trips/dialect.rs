//! What a client must say before a relay carries its media, and how a media packet is wrapped.
//!
//! ```text
//! media packet, 160 bytes
//!  0      1     2       4        8        16
//!  +------+-----+-------+--------+--------+------------
//!  | 0x80 | 111 | hold  | client | stamp  | zeros           like RTP; all big endian, the stamp is the sender's
//!  +------+-----+-------+--------+--------+------------
//! ```
//!
//! Transaction ids of requests end in the stage and the client, so that answers of many clients at once find theirs.

use std::net::SocketAddr;

use crate::raw::Request;

/// Bytes of a media packet: 20 ms of voice at its usual rate, protected.
pub(crate) const MEDIA_LEN: usize = 160;
/// The first channel number there is (RFC 8656 §12).
const CHANNEL: u16 = 0x4000;
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// How clients speak to a relay.
#[derive(Clone, Debug)]
pub(crate) enum Dialect {
    /// Media at once: a NAT-style proxy.
    Plain,
    /// TURN (RFC 8656) without credentials: an allocation and a channel to `peer`, media as ChannelData.
    Turn {
        /// Whom the relay sends to.
        peer: SocketAddr,
    },
    /// A connectivity check first, with the server ufrag of a session: a PoP.
    Hint {
        /// Of sessions that clients belong to in turn; each names the owner.
        ufrags: Vec<String>,
    },
}

/// What a media packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Which hold it belongs to; packets of an earlier one may still arrive.
    pub(crate) hold: u16,
    /// Who sent it.
    pub(crate) client: u32,
    /// When, as the sender counts.
    pub(crate) stamp: u64,
}

impl Dialect {
    /// Requests that must be answered one after the other before media flows.
    pub(crate) const fn stages(&self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Hint { .. } => 1,
            Self::Turn { .. } => 2,
        }
    }

    /// The request of a stage, from 0.
    pub(crate) fn request(&self, stage: u8, client: u32) -> Vec<u8> {
        match self {
            Self::Plain => Vec::new(),
            Self::Hint { ufrags } => {
                let session = usize::try_from(client).unwrap_or(0) % ufrags.len().max(1);
                let ufrag = ufrags.get(session).map_or("", String::as_str);
                // Nobody on the way knows the password.
                let check = Request::check(transaction(stage, client), ufrag.as_bytes());
                check.sign(b"password").bytes().to_vec()
            }
            Self::Turn { peer } => match stage {
                // Allocate, REQUESTED-TRANSPORT: UDP.
                0 => stun(0x0003, stage, client, &[(0x0019, vec![17, 0, 0, 0])]),
                // ChannelBind, CHANNEL-NUMBER and XOR-PEER-ADDRESS.
                _ => {
                    let [high, low] = CHANNEL.to_be_bytes();
                    let channel = (0x000c, vec![high, low, 0, 0]);
                    stun(0x0009, stage, client, &[channel, (0x0012, xored(*peer))])
                }
            },
        }
    }

    /// The client whose request of this stage these bytes grant.
    pub(crate) fn granted(&self, stage: u8, bytes: &[u8]) -> Option<u32> {
        let [first, second] = *bytes.first_chunk()?;
        // Class success (RFC 8489 §5).
        let success = first & 0xc1 == 1 && second & 0x10 == 0;
        let id: [u8; 12] = *bytes.get(8..)?.first_chunk()?;
        let [.., of, a, b, c, d] = id;
        let client = u32::from_be_bytes([a, b, c, d]);
        (success && of == stage && id == transaction(stage, client)).then_some(client)
    }

    /// Writes a media packet in place of what `out` held.
    pub(crate) fn write(&self, mark: Mark, out: &mut Vec<u8>) {
        out.clear();
        if let Self::Turn { .. } = self {
            let len = u16::try_from(MEDIA_LEN).unwrap_or(u16::MAX);
            out.extend(CHANNEL.to_be_bytes());
            out.extend(len.to_be_bytes());
        }
        let end = out.len() + MEDIA_LEN;
        out.extend([0x80, 111]);
        out.extend(mark.hold.to_be_bytes());
        out.extend(mark.client.to_be_bytes());
        out.extend(mark.stamp.to_be_bytes());
        out.resize(end, 0);
    }

    /// Reads a media packet as a client gets it.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<Mark> {
        let packet = match self {
            Self::Plain | Self::Hint { .. } => bytes,
            Self::Turn { .. } => bytes.strip_prefix(&CHANNEL.to_be_bytes())?.get(2..)?,
        };
        read(packet)
    }
}

/// Reads a media packet as the far end gets it.
pub(crate) fn read(packet: &[u8]) -> Option<Mark> {
    let (head, _) = packet.split_first_chunk::<16>()?;
    let [0x80, 111, h0, h1, c0, c1, c2, c3, stamp @ ..] = *head else {
        return None;
    };
    (packet.len() == MEDIA_LEN).then_some(Mark {
        hold: u16::from_be_bytes([h0, h1]),
        client: u32::from_be_bytes([c0, c1, c2, c3]),
        stamp: u64::from_be_bytes(stamp),
    })
}

fn transaction(stage: u8, client: u32) -> [u8; 12] {
    let [a, b, c, d] = client.to_be_bytes();
    [b'r', b'o', b'u', b'n', b'd', b'-', b't', stage, a, b, c, d]
}

/// A STUN request of attributes whose values need no padding (RFC 8489 §5).
fn stun(method: u16, stage: u8, client: u32, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in attributes {
        body.extend(kind.to_be_bytes());
        body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        body.extend(value);
    }
    let len = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let head = [method.to_be_bytes(), len.to_be_bytes()].concat();
    [&head[..], &COOKIE, &transaction(stage, client), &body].concat()
}

/// XOR-PEER-ADDRESS of an IPv4 address (RFC 8489 §14.2).
fn xored(address: SocketAddr) -> Vec<u8> {
    let plain = match address {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(_) => Vec::new(),
    };
    let port = address.port().to_be_bytes();
    let xor = |bytes: &[u8]| -> Vec<u8> {
        let pairs = bytes.iter().zip(&COOKIE);
        pairs.map(|(byte, mask)| byte ^ mask).collect()
    };
    [vec![0, 1], xor(&port), xor(&plain)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        hold: 7,
        client: 70_000,
        stamp: 1 << 40,
    };

    fn turn() -> Dialect {
        let peer = "192.0.2.1:32853".parse().unwrap();
        Dialect::Turn { peer }
    }

    #[test]
    fn media_says_who_sent_it_when() {
        let mut packet = Vec::new();
        Dialect::Plain.write(MARK, &mut packet);
        assert_eq!((packet.len(), read(&packet)), (MEDIA_LEN, Some(MARK)));
        assert_eq!(read(&packet[1..]), None);
        turn().write(MARK, &mut packet);
        assert_eq!(&packet[..4], &[0x40, 0, 0, 160]);
        assert_eq!((turn().read(&packet), read(&packet)), (Some(MARK), None));
    }

    #[test]
    fn a_grant_is_a_success_of_that_stage() {
        let dialect = turn();
        for stage in 0..dialect.stages() {
            let mut answer = dialect.request(stage, 70_000);
            assert_eq!(dialect.granted(stage, &answer), None, "a request");
            answer[0] |= 1;
            assert_eq!(dialect.granted(stage, &answer), Some(70_000));
            assert_eq!(dialect.granted(stage ^ 1, &answer), None, "another stage");
            answer[1] |= 0x10;
            assert_eq!(dialect.granted(stage, &answer), None, "an error");
        }
    }

    #[test]
    fn addresses_are_xored_as_rfc_5769_has_them() {
        // Its sample response: 192.0.2.1:32853.
        let expected = [0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43];
        assert_eq!(xored("192.0.2.1:32853".parse().unwrap()), expected);
    }
}
