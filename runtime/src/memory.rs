//! Memory that is read at random: who knows early what will be read has it fetched while there is other work.

use crate::sys::pages;

/// Has the processor fetch `word`, without waiting for it: for somebody who has other work before reading it.
#[inline]
pub fn fetch_ahead(word: &u32) {
    pages::fetch_ahead(word);
}
