//! Memory for large tables that are read at random: on huge pages where the kernel has them, so that a read costs one miss and not
//! one more for the page table.
//!
//! It is advice: without huge pages (`/sys/kernel/mm/transparent_hugepage/enabled` says `never`) everything is the same, slower.

use crate::sys::pages;

/// Has the processor fetch `word`, without waiting for it: for somebody who has other work before reading it.
#[inline]
pub fn fetch_ahead(word: &u32) {
    pages::fetch_ahead(word);
}

/// Zeros, not touched yet: pages are taken when they are first written.
#[must_use]
pub fn zeros(words: usize) -> Vec<u32> {
    let memory = vec![0; words];
    pages::advise_huge(&memory);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zeros_whatever_the_size() {
        for words in [0, 1, 1023, 1 << 10, (1 << 20) + 7] {
            let mut memory = zeros(words);
            assert!(memory.len() == words && memory.iter().all(|word| *word == 0));
            memory.fill(7);
            assert!(memory.iter().all(|word| *word == 7));
        }
    }

    /// What the kernel says of the pages of a large table.
    #[test]
    fn large_memory_is_advised() {
        let memory = zeros(8 << 20);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let address = memory.as_ptr() as usize + (4 << 20);
        let mut inside = false;
        for line in smaps.lines() {
            if let Some((first, last)) = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'))
            {
                let parse = |text| usize::from_str_radix(text, 16);
                if let (Ok(first), Ok(last)) = (parse(first), parse(last)) {
                    inside = (first..last).contains(&address);
                }
            }
            if inside && line.starts_with("VmFlags:") {
                assert!(line.split(' ').any(|flag| flag == "hg"), "{line}");
                return;
            }
        }
        panic!("the memory is not in the list");
    }
}
