//! Socket buffers of programs that ask for none: nginx towards the far end, boringtun between its ends. With the kernel's
//! default they lose packets long before their processor is busy, and an operator who cares raises it. So does the benchmark,
//! for as long as such a program runs; without the right to, it goes on, and they do what they can.

use std::fs;

/// As large as our own programs ask for.
const BYTES: u32 = 4 << 20;
const SETTINGS: [&str; 2] = [
    "/proc/sys/net/core/rmem_default",
    "/proc/sys/net/core/wmem_default",
];

/// The machine's defaults, raised until dropped.
#[derive(Debug)]
pub(crate) struct Buffers {
    before: Vec<(&'static str, u32)>,
}

impl Buffers {
    /// Raises those that are lower.
    pub(crate) fn raise() -> Self {
        let mut before = Vec::new();
        for setting in SETTINGS {
            let found = fs::read_to_string(setting).unwrap_or_default();
            let found = found.trim().parse().unwrap_or(BYTES);
            if found < BYTES && fs::write(setting, BYTES.to_string()).is_ok() {
                before.push((setting, found));
            }
        }
        Self { before }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for (setting, before) in &self.before {
            // What could be raised can be put back.
            let _ = fs::write(setting, before.to_string());
        }
    }
}
