//! Rendezvous hashing with weights: which of several equals a client gets, the same at every node, by DNS and by HTTP.
//!
//! Each candidate draws a number for each client group, and the least of `-ln(number) / weight` wins. Who leaves takes only its
//! own clients along; a weight that changes moves only the share that changed. The draw is a hash without a secret: equal at
//! all nodes, and a client that picks its address picks only among equals.

use std::net::IpAddr;

use crate::databases::special::{canonical, carried};

/// Groups of clients that choose among equals together.
pub const SLOTS: u8 = 64;
/// Bits of an IPv4 address that choose among equals.
pub const SHARE_PREFIX_V4: u8 = 20;
/// Bits of an IPv6 address that choose among equals.
pub const SHARE_PREFIX_V6: u8 = 40;

/// The slot of a client, `0..SLOTS`.
#[must_use]
pub fn slot_of(address: IpAddr) -> u8 {
    match canonical(address) {
        IpAddr::V4(ip) => slot_of_v4(u32::from(ip)),
        IpAddr::V6(ip) => slot_of_v6(u128::from(ip)),
    }
}

/// Bits of `address`, as it was asked, that its slot depends on: an IPv6 address that carries an IPv4 address has the slot of that.
#[must_use]
pub fn share_prefix(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => SHARE_PREFIX_V4,
        IpAddr::V6(v6) => carried(u128::from(v6)).map_or(SHARE_PREFIX_V6, |carried| {
            carried.bits_before + SHARE_PREFIX_V4
        }),
    }
}

/// The slot of an IPv4 client; only its first [`SHARE_PREFIX_V4`] bits count.
#[must_use]
pub const fn slot_of_v4(address: u32) -> u8 {
    let prefix = address >> (32 - SHARE_PREFIX_V4);
    slot(mix(prefix as u64))
}

/// The slot of an IPv6 client; only its first [`SHARE_PREFIX_V6`] bits count.
#[must_use]
pub const fn slot_of_v6(address: u128) -> u8 {
    let [.., a, b, c, d, e] = (address >> (128 - SHARE_PREFIX_V6)).to_be_bytes();
    let prefix = u64::from_be_bytes([0, 0, 6, a, b, c, d, e]);
    slot(mix(prefix))
}

const fn slot(hash: u64) -> u8 {
    let [first, ..] = hash.to_be_bytes();
    first % SLOTS
}

/// What a candidate's name draws with.
pub(crate) fn key_of(name: &str) -> u64 {
    let fnv = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(fnv)
}

/// How much a candidate of `weight` wants the clients of `group`: the least wins. Infinite for weight 0.
pub(crate) fn draw(key: u64, group: u64, weight: u16) -> f64 {
    let bits = mix(key ^ mix(group.wrapping_add(1))) >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds")]
    let uniform = (bits as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() / f64::from(weight)
}

/// The finaliser of SplitMix64.
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
