//! Unpredictable numbers, drawn when a worker is made and never after.

use anyhow::anyhow;
use ring::rand::{SecureRandom as _, SystemRandom};

/// 32 bytes nobody can guess.
pub(crate) fn bytes() -> anyhow::Result<[u8; 32]> {
    let mut seed = [0; 32];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| anyhow!("the kernel gives no random numbers"))?;
    Ok(seed)
}
