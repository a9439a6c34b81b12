//! Unpredictable bytes for ufrags, passwords, keys and SSRCs. Drawn per session, never per packet.

use ring::rand::{SecureRandom as _, SystemRandom};

/// The kernel's generator, asked through *ring*.
pub(crate) struct Random(SystemRandom);

impl Random {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }

    /// `None` when the kernel has none to give; whoever asked is told to come back.
    pub(crate) fn bytes<const N: usize>(&self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes).ok()?;
        Some(bytes)
    }
}
