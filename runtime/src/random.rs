//! Unpredictable numbers, drawn when a worker is made and never after.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// 32 bytes nobody can guess.
///
/// # Errors
/// The kernel has none to give.
pub fn bytes() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
    Ok(seed)
}

/// The same as a number.
///
/// # Errors
/// See [`bytes()`].
pub fn number() -> io::Result<u64> {
    let [a, b, c, d, e, f, g, h, ..] = bytes()?;
    Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_draws_are_the_same() {
        assert_ne!(super::bytes().unwrap(), super::bytes().unwrap());
        assert_ne!(super::number().unwrap(), super::number().unwrap());
    }
}
