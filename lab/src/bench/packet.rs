//! What benchmarks send: packets that look like media, say whose they are and when they left, and can be told from broken ones.
//!
//! ```text
//!  0      1         4         8            16
//!  +------+---------+---------+------------+----------
//!  | 0x80 | filler  | client  | time of    | filler ..
//!  |      |         |         | leaving ns |
//!  +------+---------+---------+------------+----------
//! ```

/// Looks like RTP (RFC 7983 §7), so that it passes on a committed flow.
const FIRST_BYTE: u8 = 0x80;
const FILLER: u8 = 0x5a;
/// The shortest packet that holds all of it.
pub const LEN_MIN: usize = 17;

/// Writes the packet of `client` into all of `slot`.
///
/// # Panics
/// `slot` is shorter than [`LEN_MIN`].
pub fn write(slot: &mut [u8], client: u32, left_ns: u64) {
    slot.fill(FILLER);
    mark(slot, client, left_ns);
}

/// Writes what differs from packet to packet into one that [`write()`] has made.
///
/// # Panics
/// `slot` is shorter than [`LEN_MIN`].
pub fn mark(slot: &mut [u8], client: u32, left_ns: u64) {
    let (head, _) = slot
        .split_first_chunk_mut::<16>()
        .expect("a packet holds its own description");
    let [a, b, c, d] = client.to_be_bytes();
    let [e, f, g, h, i, j, k, l] = left_ns.to_be_bytes();
    *head = [
        FIRST_BYTE, FILLER, FILLER, FILLER, a, b, c, d, e, f, g, h, i, j, k, l,
    ];
}

/// The client and the time of leaving; `None` when it is not whole.
#[must_use]
pub fn read(packet: &[u8], len: usize) -> Option<(u32, u64)> {
    let (head, _) = packet.split_first_chunk::<16>()?;
    let [first, _, _, _, a, b, c, d, time @ ..] = *head;
    let whole = packet.len() == len && first == FIRST_BYTE && packet.last() == Some(&FILLER);
    whole.then_some((u32::from_be_bytes([a, b, c, d]), u64::from_be_bytes(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_tells_what_was_written_and_a_broken_one_nothing() {
        let mut packet = [0; 100];
        write(&mut packet, 7, 1 << 40);
        assert_eq!(read(&packet, 100), Some((7, 1 << 40)));
        mark(&mut packet, 8, 9);
        assert_eq!(read(&packet, 100), Some((8, 9)));
        assert_eq!(read(&packet[..99], 100), None);
        assert_eq!(read(&packet[1..], 99), None);
        packet[99] = 0;
        assert_eq!(read(&packet, 100), None);
    }
}
