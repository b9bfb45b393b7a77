//! One block of the global allocator: aligned, zeroed, freed when dropped. It knows nothing of its use.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use crate::error::Error;

/// Alignment of every block we allocate: a cache line, and the widest vector register.
pub(crate) const ALIGN: usize = 64;
/// Alignment of large blocks: what DLPack asks of a tensor's first byte.
const ALIGN_LARGE: usize = 256;
/// From this length a block counts as large: a page, so the padding is at most 6 %.
const LARGE: usize = 4096;
/// From this length huge pages are asked for: first touch of 256 MiB took 139 ms without and 26 ms with them. It is the size
/// of one on x86-64; 125 arrays of 4 MB were read into memory in 0.34 s with them, and in 0.48 s without.
pub(crate) const HUGE: usize = 2 << 20;
/// The alignment asked of the allocator. Above 16, std's `alloc_zeroed` takes aligned memory and clears it
/// (125 ms for 256 MiB) where `calloc` hands out pages that the kernel has already zeroed (0.013 ms).
const ALIGN_ALLOCATOR: usize = 16;

/// A block of the global allocator, freed when dropped: `capacity` bytes from `start`, zero until they are written.
pub(crate) struct Allocation {
    pub(crate) start: NonNull<u8>,
    capacity: usize,
    /// What the allocator handed out, asked for with `layout`: `start` is its first aligned byte.
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is owned alone and has no thread of its own; its bytes are plain data.
unsafe impl Send for Allocation {}
// SAFETY: as above; through a shared reference, only a copy of the pointer is to be had.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Fails when the allocator refuses, or no block can be this large.
    pub(crate) fn zeroed(capacity: usize) -> Result<Self, Error> {
        let out_of_memory = || Error::OutOfMemory { bytes: capacity };
        let align = if capacity < LARGE { ALIGN } else { ALIGN_LARGE };
        let layout = padded(capacity, align).ok_or_else(out_of_memory)?;
        // SAFETY: `layout` is not zero-sized: it has the padding at least, because `align > ALIGN_ALLOCATOR`.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        let address = base.addr().get();
        // At most `align - ALIGN_ALLOCATOR`, because `address` is a multiple of ALIGN_ALLOCATOR.
        let offset = address.next_multiple_of(align) - address;
        // SAFETY: `offset <= align - ALIGN_ALLOCATOR`, so `offset + capacity <= layout.size()`: within the block.
        let start = unsafe { base.add(offset) };
        if capacity >= HUGE {
            advise_huge_pages(start, capacity);
        }
        Ok(Self { start, capacity, base, layout })
    }

    /// The number of bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this `layout`, and is freed only here.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// What to ask the allocator for, so that it holds `capacity` bytes from a multiple of `align`.
fn padded(capacity: usize, align: usize) -> Option<Layout> {
    let padded = capacity.checked_add(align - ALIGN_ALLOCATOR)?;
    Layout::from_size_align(padded, ALIGN_ALLOCATOR).ok()
}

/// Asks for huge pages within the block. A refusal costs time only, so it is not an error.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages(ptr: NonNull<u8>, len: usize) {
    /// A multiple of every page size that Linux runs with: the advice must start on a page.
    const PAGE: usize = 64 << 10;
    let skip = ptr.addr().get().next_multiple_of(PAGE) - ptr.addr().get();
    let Some(len) = len.checked_sub(skip) else {
        return;
    };
    let start = ptr.as_ptr().wrapping_add(skip).cast();
    // SAFETY: the range lies within our block; this advice changes no contents and no protection.
    unsafe { libc::madvise(start, len & !(PAGE - 1), libc::MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}
