//! Advice on memory that will be read.

/// Begins to load the cache line of `word`.
#[inline]
pub(crate) fn fetch_ahead(word: &u32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

/// Size of a huge page where it matters; smaller memory is left alone.
const HUGE: usize = 2 << 20;

/// Asks for huge pages behind `memory`. It changes nothing that can be read from it, and may be ignored.
pub(crate) fn advise_huge(memory: &[u32]) {
    let start = memory.as_ptr().addr();
    let end = start + size_of_val(memory);
    let first = start.next_multiple_of(HUGE);
    let last = end - end % HUGE;
    if last <= first {
        return;
    }
    let inside = memory
        .as_ptr()
        .cast::<libc::c_void>()
        .wrapping_byte_add(first - start);
    // SAFETY: the range lies inside `memory`, and MADV_HUGEPAGE changes no content.
    let _ = unsafe { libc::madvise(inside.cast_mut(), last - first, libc::MADV_HUGEPAGE) };
}
