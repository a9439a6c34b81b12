//! A global allocator that counts, for tests that must see what a thread of the packet path allocates.
//!
//! No program uses it; it lies here because an allocator cannot be written without `unsafe`.

pub use crate::sys::allocator::{CountingAllocator, allocations_of};
