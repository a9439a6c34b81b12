//! SipHash-2-4 (Aumasson and Bernstein), which RFC 9018 makes server cookies with.

/// Of `data`, with a key of 128 bits.
pub(crate) fn siphash24(key: [u64; 2], data: &[u8]) -> u64 {
    let [k0, k1] = key;
    let mut state = State([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        state.absorb(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let [.., len] = data.len().to_be_bytes();
    state.absorb(u64::from_le_bytes(last) | u64::from(len) << 56);
    state.finish()
}

struct State([u64; 4]);

impl State {
    #[inline]
    fn absorb(&mut self, word: u64) {
        let Self([_, _, _, v3]) = self;
        *v3 ^= word;
        self.round();
        self.round();
        let Self([v0, ..]) = self;
        *v0 ^= word;
    }

    fn finish(mut self) -> u64 {
        let Self([_, _, v2, _]) = &mut self;
        *v2 ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let Self([v0, v1, v2, v3]) = self;
        v0 ^ v1 ^ v2 ^ v3
    }

    #[inline]
    const fn round(&mut self) {
        let Self([v0, v1, v2, v3]) = self;
        *v0 = v0.wrapping_add(*v1);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v3);
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.wrapping_add(*v3);
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v2 = v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vectors of the reference implementation: key 00..0f, data of 0, 1, 2 ... bytes.
    #[test]
    fn vectors_of_the_reference() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let data: Vec<u8> = (0..15).collect();
        let expected = [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ];
        for (len, hash) in expected {
            assert_eq!(siphash24(key, &data[..len]), hash, "{len} bytes");
        }
    }
}
