//! Fresh secrets, from the operating system's generator.

use anyhow::anyhow;
use ring::rand::{SecureRandom, SystemRandom};

/// `N` fresh random bytes as lower-case hex.
///
/// # Errors
/// When the operating system has no randomness to give.
pub(crate) fn hex<const N: usize>() -> anyhow::Result<String> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the operating system gave no random bytes"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn secrets_are_fresh_hex() {
        let (a, b) = (super::hex::<16>().unwrap(), super::hex::<16>().unwrap());
        assert_eq!(a.len(), 32);
        assert!(a.bytes().all(|c| c.is_ascii_hexdigit()));
        assert_ne!(a, b);
    }
}
