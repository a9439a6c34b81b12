//! A client that speaks STUN byte by byte: what no browser would send, and how often.
//!
//! The encoder is the lab's own (RFC 8489 §5, §14.5, §14.7), so that a mistake in `wire` cannot hide behind itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use ring::hmac;
use runtime::clock;

const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;
const ATTR_USERNAME: u16 = 0x0006;
const ATTR_MESSAGE_INTEGRITY: u16 = 0x0008;
const ATTR_PRIORITY: u16 = 0x0024;
const ATTR_USE_CANDIDATE: u16 = 0x0025;
const ATTR_FINGERPRINT: u16 = 0x8028;
const ATTR_ICE_CONTROLLING: u16 = 0x802a;
const INTEGRITY_LEN: u16 = 20;
const FINGERPRINT_LEN: u16 = 4;
/// Characters a ufrag may have (RFC 8839 §5.4).
pub const ICE_CHARACTERS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A Binding request in the making.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Without any attribute.
    #[must_use]
    pub fn bare(transaction_id: [u8; 12]) -> Self {
        let mut bytes = Vec::with_capacity(160);
        bytes.extend(BINDING_REQUEST.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(COOKIE);
        bytes.extend(transaction_id);
        Self { bytes }
    }

    /// What a controlling ICE agent sends: USERNAME `server:client`, PRIORITY, ICE-CONTROLLING, USE-CANDIDATE.
    #[must_use]
    pub fn check(transaction_id: [u8; 12], server_ufrag: &[u8]) -> Self {
        let username = [server_ufrag, b":clnt"].concat();
        Self::bare(transaction_id)
            .attribute(ATTR_USERNAME, &username)
            .attribute(ATTR_PRIORITY, &0x6e00_1eff_u32.to_be_bytes())
            .attribute(ATTR_ICE_CONTROLLING, &7_u64.to_be_bytes())
            .attribute(ATTR_USE_CANDIDATE, &[])
    }

    /// Adds MESSAGE-INTEGRITY with this password, and FINGERPRINT.
    #[must_use]
    pub fn sign(mut self, password: &[u8]) -> Self {
        self.set_length(4 + INTEGRITY_LEN);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password);
        let tag = hmac::sign(&key, &self.bytes);
        let signed = self.attribute(ATTR_MESSAGE_INTEGRITY, tag.as_ref());
        signed.fingerprint()
    }

    /// The datagram.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn fingerprint(mut self) -> Self {
        self.set_length(4 + FINGERPRINT_LEN);
        let crc = crc32(&self.bytes) ^ 0x5354_554e;
        self.attribute(ATTR_FINGERPRINT, &crc.to_be_bytes())
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(len.to_be_bytes());
        self.bytes.extend(value);
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self.set_length(0);
        self
    }

    /// Writes the length of the attributes, `more` bytes of which are still to come.
    fn set_length(&mut self, more: u16) {
        let attributes = self.bytes.len().saturating_sub(20);
        let len = u16::try_from(attributes).unwrap_or(u16::MAX) + more;
        for (slot, byte) in self.bytes.iter_mut().skip(2).zip(len.to_be_bytes()) {
            *slot = byte;
        }
    }
}

/// CRC-32 of ISO 3309, as FINGERPRINT wants it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            let carry = if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            crc >> 1 ^ carry
        })
    })
}

/// A socket on loopback that speaks to one ingress.
#[derive(Debug)]
pub struct RawClient {
    socket: UdpSocket,
    /// Begins every transaction id: the port, and whether it is IPv6, so that no two clients share one.
    prefix: [u8; 4],
    transactions: u64,
    /// Answers to proper checks that were said more than once and may still come.
    repeated: Vec<[u8; 12]>,
}

impl RawClient {
    /// A socket of its own, so a client of its own.
    ///
    /// # Errors
    /// No socket is left, or the address is unreachable.
    pub fn connect(ingress: SocketAddr) -> anyhow::Result<Self> {
        let own: IpAddr = match ingress {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let socket = UdpSocket::bind((own, 0)).context("binding a raw client")?;
        socket.connect(ingress)?;
        let [high, low] = socket.local_addr()?.port().to_be_bytes();
        Ok(Self {
            socket,
            prefix: [b'l', u8::from(own.is_ipv6()), high, low],
            transactions: 0,
            repeated: Vec::new(),
        })
    }

    /// A transaction id that neither this client nor another has used.
    pub fn transaction_id(&mut self) -> [u8; 12] {
        self.transactions += 1;
        let [a, b, c, d, e, f, g, h] = self.transactions.to_be_bytes();
        let [p, q, r, s] = self.prefix;
        [p, q, r, s, a, b, c, d, e, f, g, h]
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn send(&self, datagram: &[u8]) -> anyhow::Result<()> {
        self.socket.send(datagram).context("sending")?;
        Ok(())
    }

    /// Sends a proper connectivity check until it is answered, and returns every datagram that came on this socket
    /// meanwhile. What was sent before it goes the same way, so whatever that was to bring has arrived by then. A check that was
    /// repeated has as many answers; those that come later are nobody's.
    ///
    /// # Errors
    /// No answer within `deadline`.
    pub fn answers_until_check(
        &mut self,
        ufrag: &str,
        password: &str,
        deadline: Duration,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let id = self.transaction_id();
        let check = Request::check(id, ufrag.as_bytes()).sign(password.as_bytes());
        self.socket
            .set_read_timeout(Some(Duration::from_millis(500)))?;
        let end = clock::now() + deadline;
        let mut answers = Vec::new();
        let mut buffer = [0; 2048];
        let mut said = 0;
        while clock::now() < end {
            self.send(check.bytes())?;
            said += 1;
            while let Ok(len) = self.socket.recv(&mut buffer) {
                let answer = buffer.get(..len).unwrap_or_default().to_vec();
                if self.take_repeated(&answer) {
                    continue;
                }
                let done = is_success(&answer, id);
                answers.push(answer);
                if done {
                    self.repeated.extend((1..said).map(|_| id));
                    return Ok(answers);
                }
            }
        }
        anyhow::bail!("no answer to a proper connectivity check within {deadline:?}")
    }

    /// Whether it is the answer to an earlier check that was repeated: one for each time.
    fn take_repeated(&mut self, answer: &[u8]) -> bool {
        let mut repeated = self.repeated.iter();
        let known = repeated.position(|id| is_success(answer, *id));
        known
            .map(|index| self.repeated.swap_remove(index))
            .is_some()
    }
}

/// Whether this is the Binding success of that transaction.
#[must_use]
pub fn is_success(datagram: &[u8], transaction_id: [u8; 12]) -> bool {
    let head = [
        &BINDING_SUCCESS.to_be_bytes()[..],
        datagram.get(2..4).unwrap_or_default(),
        &COOKIE,
        &transaction_id,
    ]
    .concat();
    datagram.starts_with(&head)
}

/// A seeded source of ufrags that no transceiver has issued: random ones, and valid ones with one bit flipped.
#[derive(Clone, Debug)]
pub struct Forger {
    state: u64,
    valid: Vec<u8>,
}

impl Forger {
    /// Flips bits of `valid`.
    #[must_use]
    pub fn new(seed: u64, valid: &str) -> Self {
        Self {
            state: seed,
            valid: valid.as_bytes().to_vec(),
        }
    }

    /// The next ufrag, as long as a real one, or up to 32 characters.
    pub fn next_ufrag(&mut self) -> Vec<u8> {
        let choice = self.random();
        if choice & 1 == 0 {
            return self.flipped(choice >> 1);
        }
        let len = if choice & 2 == 0 {
            self.valid.len()
        } else {
            4 + usize::try_from(choice >> 2 & 31).unwrap_or(0).min(28)
        };
        (0..len).map(|_| self.ice_character()).collect()
    }

    /// One bit of the sealed 6-bit characters flipped, so that it stays an ICE character.
    fn flipped(&mut self, choice: u64) -> Vec<u8> {
        let mut ufrag = self.valid.clone();
        let bits = u64::try_from(ufrag.len() * 6).unwrap_or(1).max(1);
        let bit = choice % bits;
        let at = usize::try_from(bit / 6).unwrap_or(0);
        if let Some(slot) = ufrag.get_mut(at) {
            let value = ICE_CHARACTERS
                .iter()
                .position(|own| own == slot)
                .unwrap_or(0);
            let flipped = value ^ 1 << (bit % 6);
            *slot = ICE_CHARACTERS.get(flipped).copied().unwrap_or(b'A');
        }
        ufrag
    }

    fn ice_character(&mut self) -> u8 {
        let index = usize::try_from(self.random() >> 58).unwrap_or(0);
        ICE_CHARACTERS.get(index).copied().unwrap_or(b'A')
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5769 §2.1: the sample request, rebuilt attribute by attribute.
    #[test]
    fn signs_as_rfc_5769_does() {
        let id = *b"\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae";
        let mut request = Request::bare(id)
            .attribute(0x8022, b"STUN test client")
            .attribute(ATTR_PRIORITY, &0x6e00_01ff_u32.to_be_bytes())
            .attribute(0x8029, &0x932f_f9b1_5126_3b36_u64.to_be_bytes())
            .attribute(ATTR_USERNAME, b"evtj:h6vY");
        // The sample pads with spaces.
        let padding = request.bytes.len() - 3;
        request.bytes[padding..].fill(b' ');
        let signed = request.sign(b"VOkJxbRl1RmTxUk/WvJxBt");
        let end = &signed.bytes()[signed.bytes().len() - 32..];
        assert_eq!(
            end,
            b"\x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\x80\x28\x00\x04\xe5\x7a\x3b\xcf"
        );
    }

    #[test]
    fn an_answer_more_for_each_time_a_check_was_repeated_is_nobodys() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = RawClient::connect(server.local_addr().unwrap()).unwrap();
        let success = |id: [u8; 12]| [&[1, 1, 0, 0][..], &COOKIE, &id].concat();
        let (first, second) = (client.transaction_id(), client.transaction_id());
        client.repeated = vec![first, first];
        assert!(!client.take_repeated(&success(second)));
        assert!(client.take_repeated(&success(first)));
        assert!(client.take_repeated(&success(first)));
        assert!(!client.take_repeated(&success(first)), "a third one");
    }

    #[test]
    fn forged_ufrags_are_ice_characters_and_never_the_valid_one() {
        let valid = "BDsPGhEFuX+1OTBZgGdyfWA";
        let mut forger = Forger::new(7, valid);
        for _ in 0..10_000 {
            let ufrag = forger.next_ufrag();
            assert!((4..=32).contains(&ufrag.len()));
            assert!(ufrag.iter().all(|own| ICE_CHARACTERS.contains(own)));
            assert_ne!(ufrag, valid.as_bytes());
        }
    }
}
