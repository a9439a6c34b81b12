//! The system's allocator, counting by thread and size on the way.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts what each thread allocates. For tests: `#[global_allocator] static COUNTING: CountingAllocator = CountingAllocator;`
#[derive(Debug)]
pub struct CountingAllocator;

/// Threads that are told apart; later ones are counted together with the last of them.
const THREADS_MAX: usize = 64;
/// Sizes that are told apart; larger ones are counted together with the last of them.
const SIZES_MAX: usize = 4096;

/// What one thread has allocated.
struct Count {
    thread: AtomicU64,
    by_size: [AtomicU64; SIZES_MAX],
}

static COUNTS: [Count; THREADS_MAX] = [const {
    Count {
        thread: AtomicU64::new(0),
        by_size: [const { AtomicU64::new(0) }; SIZES_MAX],
    }
}; THREADS_MAX];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's place in `COUNTS`.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn count(size: usize) {
    let place = PLACE.try_with(|place| {
        if place.get() == usize::MAX {
            place.set(take_place());
        }
        place.get()
    });
    let count = place.ok().and_then(|place| COUNTS.get(place));
    if let Some(cell) = count.and_then(|count| count.by_size.get(size.min(SIZES_MAX - 1))) {
        cell.fetch_add(1, Ordering::Relaxed);
    }
}

fn take_place() -> usize {
    let place = THREADS.fetch_add(1, Ordering::Relaxed).min(THREADS_MAX - 1);
    // SAFETY: takes no argument and cannot fail.
    let thread = unsafe { libc::gettid() };
    if let Some(count) = COUNTS.get(place) {
        let thread = u64::try_from(thread).unwrap_or(0);
        count.thread.store(thread, Ordering::Relaxed);
    }
    place
}

/// How often the thread of this kernel id has allocated each size, by size. Sizes it never asked for are left out.
#[must_use]
pub fn allocations_of(thread: u32) -> Vec<(usize, u64)> {
    let of = |count: &&Count| count.thread.load(Ordering::Relaxed) == u64::from(thread);
    let Some(count) = COUNTS.iter().find(of) else {
        return Vec::new();
    };
    let by_size = count
        .by_size
        .iter()
        .map(|cell| cell.load(Ordering::Relaxed));
    by_size
        .enumerate()
        .filter(|(_, times)| *times > 0)
        .collect()
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of the caller's and
// allocates nothing, because its tables are static and its thread-local value needs neither initialisation nor drop.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise that `memory` came from here with `layout`, which is to say from the system.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise about all three.
        unsafe { System.realloc(memory, layout, size) }
    }
}
