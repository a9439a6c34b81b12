//! The only source of chance in a simulation: a seeded generator, and where its seed comes from.

/// Names the seed of every simulation instead of the one a test has.
pub const SEED_VARIABLE: &str = "FIRSTHOP_SIM_SEED";

/// The seed to use: that of the environment if it has one, else `default`.
///
/// # Panics
/// The environment names something that is no number.
#[must_use]
pub fn seed(default: u64) -> u64 {
    std::env::var(SEED_VARIABLE).map_or(default, |text| {
        let number = text.parse();
        number.expect("the seed in the environment is a decimal number")
    })
}

/// `SplitMix64`: good enough for chance, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator of its own for each seed and purpose.
    #[must_use]
    pub const fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(0xa076_1d64_78bd_642f));
        random.next();
        random
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`; 0 when there is none.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// Whether something happens that happens `ppm` times in a million.
    pub const fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < ppm as u64
    }

    /// 32 bytes, for what wants a seed of its own.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes());
        }
        bytes
    }
}
