//! Advice on pages.

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
