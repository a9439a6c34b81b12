//! The sealed flow record: what a PoP keeps in the flow cache so that the PoP that takes over knows the owner of
//! a client it has never seen.
//!
//! This module only makes and opens the bytes; who stores them, where and for how long is the server's business.
//!
//! ```text
//! K        a live hint key
//! K_value  = AES(K, "firsthop flow-v1")      K_mac = AES(K, "firsthop flow-m1")
//!
//! message (48 bytes)
//!  0        1                 17            19                35         37          48
//!  +--------+-----------------+-------------+-----------------+----------+-----------+
//!  | domain | client IP       | client port | VIP             | VIP port | zero      |     IPv4 as ::ffff:a.b.c.d
//!  +--------+-----------------+-------------+-----------------+----------+-----------+
//!
//! lookup key (16 bytes) = CBC-MAC(K_mac, message with domain 1)
//! tweak T    (16 bytes) = CBC-MAC(K_mac, message with domain 2)
//!
//! value (17 bytes) = 1 byte (format << 4 | key id), then AES(K_value, block xor T) xor T
//!
//! block
//!  0        2                 6        8                                 16
//!  +--------+-----------------+--------+----------------------------------+
//!  | region | transceiver     | minute | zero                             |
//!  +--------+-----------------+--------+----------------------------------+
//! ```
//!
//! The cache sees neither client addresses nor the topology. A value opens only for the client address and VIP it was
//! sealed for (T binds it), so entries cannot be swapped; 64 zero bits authenticate it. Messages have one fixed
//! length, for which CBC-MAC is a pseudo-random function. A replayed value is as old as its minute says.

use std::net::{IpAddr, SocketAddr};

use aes::Aes128;
use aes::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use crate::hint::{Key, KeyId, KeyRing, Minute};
use crate::ids::{ClientAddr, Owner, RegionId, TransceiverId};

/// Bytes of a sealed value.
pub const VALUE_LEN: usize = 17;
/// Bytes of a lookup key.
pub const LOOKUP_KEY_LEN: usize = 16;
/// The only format there is.
const FORMAT: u8 = 0;
const DERIVE_VALUE: [u8; 16] = *b"firsthop flow-v1";
const DERIVE_MAC: [u8; 16] = *b"firsthop flow-m1";
const DOMAIN_LOOKUP: u8 = 1;
const DOMAIN_TWEAK: u8 = 2;

/// Names a flow to every PoP that can take it over: the client and the anycast address it spoke to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// The client.
    pub client: ClientAddr,
    /// The anycast address and port.
    pub vip: SocketAddr,
}

/// What a flow record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// The committed owner.
    pub owner: Owner,
    /// When the flow was last known to be alive.
    pub seen: Minute,
}

/// Keyed hash of a [`FlowId`]: the key a value is stored under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookupKey(pub [u8; LOOKUP_KEY_LEN]);

/// A sealed [`FlowRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowValue(pub [u8; VALUE_LEN]);

/// Why bytes from the flow cache are not a flow record for this flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowRecordError {
    /// Wrong length or format, or it names an owner that cannot exist.
    #[error("not a flow record")]
    Malformed,
    /// The key id is not one of the live keys.
    #[error("unknown key id")]
    UnknownKey,
    /// Forged, corrupted, or sealed for another client address or VIP.
    #[error("forged")]
    Forged,
}

impl KeyRing {
    /// The key to store a flow under, by the current hint key.
    #[must_use]
    pub fn flow_lookup(&self, flow: FlowId) -> LookupKey {
        self.current().flow.lookup(flow)
    }

    /// Every key a flow may be stored under while keys rotate, the current one first: at most
    /// [`crate::hint::KEYS_MAX`].
    pub fn flow_lookups(&self, flow: FlowId) -> impl Iterator<Item = LookupKey> {
        self.current_first().map(move |key| key.flow.lookup(flow))
    }

    /// Seals a flow record with the current hint key.
    #[must_use]
    pub fn seal_flow(&self, flow: FlowId, record: FlowRecord) -> FlowValue {
        let Key {
            id, flow: ciphers, ..
        } = self.current();
        let block = ciphers.seal(flow, record);
        let mut value = [FORMAT << 4 | id.get(); VALUE_LEN];
        if let Some((_, sealed)) = value.split_first_chunk_mut::<1>() {
            sealed.copy_from_slice(&block);
        }
        FlowValue(value)
    }

    /// Opens what the cache returned for `flow`.
    ///
    /// # Errors
    /// See [`FlowRecordError`].
    pub fn open_flow(&self, flow: FlowId, value: &[u8]) -> Result<FlowRecord, FlowRecordError> {
        let value: &[u8; VALUE_LEN] = value.try_into().map_err(|_| FlowRecordError::Malformed)?;
        let [head, block @ ..] = *value;
        if head >> 4 != FORMAT {
            return Err(FlowRecordError::Malformed);
        }
        let id = KeyId::new(head & 0b1111).ok_or(FlowRecordError::Malformed)?;
        let key = self.key(id).ok_or(FlowRecordError::UnknownKey)?;
        key.flow.open(flow, block)
    }
}

/// The two ciphers that one hint key gives to flow records.
#[derive(Clone)]
pub(crate) struct FlowCiphers {
    value: Aes128,
    mac: Aes128,
}

impl FlowCiphers {
    pub(crate) fn derive(hint_cipher: &Aes128) -> Self {
        let derived = |label: [u8; 16]| {
            let mut block: Block<Aes128> = label.into();
            hint_cipher.encrypt_block(&mut block);
            Aes128::new(&block)
        };
        Self {
            value: derived(DERIVE_VALUE),
            mac: derived(DERIVE_MAC),
        }
    }

    fn lookup(&self, flow: FlowId) -> LookupKey {
        LookupKey(self.mac(DOMAIN_LOOKUP, flow))
    }

    fn seal(&self, flow: FlowId, record: FlowRecord) -> [u8; 16] {
        let tweak = self.mac(DOMAIN_TWEAK, flow);
        let [r0, r1] = record.owner.region.0.to_be_bytes();
        let [t0, t1, t2, t3] = record.owner.transceiver.0.to_be_bytes();
        let [m0, m1] = record.seen.0.to_be_bytes();
        let plain = [r0, r1, t0, t1, t2, t3, m0, m1, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut block: Block<Aes128> = xor(plain, tweak).into();
        self.value.encrypt_block(&mut block);
        xor(block.into(), tweak)
    }

    fn open(&self, flow: FlowId, sealed: [u8; 16]) -> Result<FlowRecord, FlowRecordError> {
        let tweak = self.mac(DOMAIN_TWEAK, flow);
        let mut block: Block<Aes128> = xor(sealed, tweak).into();
        self.value.decrypt_block(&mut block);
        let [r0, r1, t0, t1, t2, t3, m0, m1, zero @ ..] = xor(block.into(), tweak);
        if zero != [0; 8] {
            return Err(FlowRecordError::Forged);
        }
        let region = RegionId(u16::from_be_bytes([r0, r1]));
        let transceiver = TransceiverId(u32::from_be_bytes([t0, t1, t2, t3]));
        if region.0 == 0 || transceiver.0 == 0 {
            return Err(FlowRecordError::Malformed);
        }
        Ok(FlowRecord {
            owner: Owner {
                region,
                transceiver,
            },
            seen: Minute(u16::from_be_bytes([m0, m1])),
        })
    }

    fn mac(&self, domain: u8, flow: FlowId) -> [u8; 16] {
        let mut state = [0u8; 16];
        for chunk in message(domain, flow) {
            let mut block: Block<Aes128> = xor(state, chunk).into();
            self.mac.encrypt_block(&mut block);
            state = block.into();
        }
        state
    }
}

/// The message of the module head, as three AES blocks.
fn message(domain: u8, flow: FlowId) -> [[u8; 16]; 3] {
    let [c0, client_ip @ ..] = octets(flow.client.ip());
    let [p0, p1] = flow.client.port().to_be_bytes();
    let [
        v0,
        v1,
        v2,
        v3,
        v4,
        v5,
        v6,
        v7,
        v8,
        v9,
        v10,
        v11,
        v12,
        vip @ ..,
    ] = octets(flow.vip.ip());
    let [q0, q1] = flow.vip.port().to_be_bytes();
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, last] = client_ip;
    let [w0, w1, w2] = vip;
    [
        [domain, c0, a, b, c, d, e, f, g, h, i, j, k, l, m, n],
        [
            last, p0, p1, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12,
        ],
        [w0, w1, w2, q0, q1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
}

const fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

const fn xor(a: [u8; 16], b: [u8; 16]) -> [u8; 16] {
    (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: FlowRecord = FlowRecord {
        owner: Owner {
            region: RegionId(2),
            transceiver: TransceiverId(77),
        },
        seen: Minute(4711),
    };

    #[test]
    fn message_has_the_documented_offsets() {
        let flow = flow("203.0.113.7:50000", "[2001:db8::1]:3478");
        let bytes = message(9, flow).concat();
        assert_eq!(bytes[0], 9);
        assert_eq!(
            bytes[1..17],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 7]
        );
        assert_eq!(bytes[17..19], 50000u16.to_be_bytes());
        assert_eq!(
            bytes[19..35],
            [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(bytes[35..37], 3478u16.to_be_bytes());
        assert_eq!(bytes[37..], [0; 11]);
    }

    #[test]
    fn exact_bytes() {
        // Computed from the module head with `openssl enc -aes-128-ecb -nopad`.
        let ring = ring("current 5 000102030405060708090a0b0c0d0e0f");
        let here = flow("203.0.113.7:50000", "198.51.100.1:3478");
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(
            hex(&ring.flow_lookup(here).0),
            "b22df580f5602543300d7167a6f68ba4"
        );
        let value = ring.seal_flow(here, RECORD);
        assert_eq!(hex(&value.0), "053b14311051d47bb9749b7fe964f035a6");
    }

    #[test]
    fn opens_only_for_its_own_client_and_vip() {
        let ring = ring("current 1 000102030405060708090a0b0c0d0e0f");
        let here = flow("203.0.113.7:50000", "198.51.100.1:3478");
        let value = ring.seal_flow(here, RECORD);
        assert_eq!(ring.open_flow(here, &value.0), Ok(RECORD));
        for other in [
            flow("203.0.113.8:50000", "198.51.100.1:3478"),
            flow("203.0.113.7:50001", "198.51.100.1:3478"),
            flow("203.0.113.7:50000", "198.51.100.2:3478"),
            flow("203.0.113.7:50000", "198.51.100.1:3479"),
        ] {
            assert_eq!(
                ring.open_flow(other, &value.0),
                Err(FlowRecordError::Forged)
            );
            assert_ne!(ring.flow_lookup(other), ring.flow_lookup(here));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let ring = ring("current 1 000102030405060708090a0b0c0d0e0f");
        let here = flow("[2001:db8::9]:50000", "198.51.100.1:3478");
        let value = ring.seal_flow(here, RECORD).0;
        for bit in 0..VALUE_LEN * 8 {
            let mut bad = value;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(ring.open_flow(here, &bad).is_err(), "bit {bit}");
        }
        assert_eq!(
            ring.open_flow(here, &value[..16]),
            Err(FlowRecordError::Malformed)
        );
        assert_eq!(ring.open_flow(here, &[]), Err(FlowRecordError::Malformed));
    }

    #[test]
    fn survives_a_rotation() {
        let (a, b) = (
            "000102030405060708090a0b0c0d0e0f",
            "101112131415161718191a1b1c1d1e1f",
        );
        let before = ring(&format!("current 1 {a}\nnext 2 {b}"));
        let after = ring(&format!("previous 1 {a}\ncurrent 2 {b}"));
        let here = flow("203.0.113.7:50000", "198.51.100.1:3478");
        let value = before.seal_flow(here, RECORD);
        assert_eq!(after.open_flow(here, &value.0), Ok(RECORD));
        assert!(
            after
                .flow_lookups(here)
                .any(|key| key == before.flow_lookup(here))
        );
        assert_eq!(
            after.flow_lookups(here).next(),
            Some(after.flow_lookup(here))
        );
        assert_ne!(after.flow_lookup(here), before.flow_lookup(here));
    }

    #[test]
    fn a_hint_block_is_no_flow_record() {
        use crate::hint::Hint;
        let ring = ring("current 1 000102030405060708090a0b0c0d0e0f");
        let here = flow("203.0.113.7:50000", "198.51.100.1:3478");
        let value = ring.seal_flow(here, RECORD);
        let hint = Hint {
            owner: RECORD.owner,
            issued: RECORD.seen,
        };
        let ufrag = ring.seal(hint, [1, 2, 3]);
        assert!(ring.open_flow(here, ufrag.as_bytes()).is_err());
        assert!(ring.open(&value.0).is_err());
    }

    fn flow(client: &str, vip: &str) -> FlowId {
        FlowId {
            client: ClientAddr::new(client.parse().unwrap()),
            vip: vip.parse().unwrap(),
        }
    }

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse(text).unwrap()
    }
}
