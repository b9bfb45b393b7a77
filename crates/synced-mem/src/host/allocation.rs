//! One block of the global allocator: aligned, zeroed, freed when dropped. Its use is unknown here.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use crate::error::Error;

/// Alignment of every block we allocate: a cache line, and the widest vector register.
pub(crate) const ALIGN: usize = 64;
/// Alignment of large blocks: the one that DLPack asks of a tensor's first byte.
const ALIGN_LARGE: usize = 256;
/// From this length a block counts as large: a page, so the padding is at most 6 %.
const LARGE: usize = 4096;
/// The size of a huge page on x86-64: blocks of at least one begin in the first bytes of one. First touch of 256 MiB
/// took 26 ms in huge pages and 139 ms in small ones; 300 arrays of 3.2 MiB were read in 0.24 s, and in 0.50 s where
/// half of each lay in huge pages.
pub(crate) const HUGE: usize = 2 << 20;
/// Where in its first page such a block begins: at one of this many multiples of a page and a large block's alignment.
/// If all began at the same place, streams through several of them would meet in the same sets of a cache.
const PLACES: usize = 16;
const PLACE: usize = 4096 + ALIGN_LARGE;
/// The alignment asked of the allocator. Above 16, std's `alloc_zeroed` takes aligned memory and clears it
/// (125 ms for 256 MiB) where `calloc` hands out pages that the kernel has already zeroed (0.013 ms).
const ALIGN_ALLOCATOR: usize = 16;

/// A block of the global allocator, freed when dropped: `capacity` bytes from `start`, zero until they are written.
pub(crate) struct Allocation {
    pub(crate) start: NonNull<u8>,
    capacity: usize,
    /// The allocation, made with `layout`: `start` is its first aligned byte.
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is owned alone and has no thread of its own; its bytes are plain data.
unsafe impl Send for Allocation {}
// SAFETY: through a shared reference only a copy of the pointer is to be had; who uses the bytes proves the right
// where they are used.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Fails when the allocator refuses, or no block can be this large.
    pub(crate) fn zeroed(capacity: usize) -> Result<Self, Error> {
        let out_of_memory = || Error::OutOfMemory { bytes: capacity };
        let align = match capacity {
            ..LARGE => ALIGN,
            LARGE..HUGE => ALIGN_LARGE,
            HUGE.. => HUGE,
        };
        let latest = if align == HUGE { PLACE * (PLACES - 1) } else { 0 };
        let most = capacity.checked_add(latest).ok_or_else(out_of_memory)?;
        let layout = padded(most.max(in_huge_pages(most)), align).ok_or_else(out_of_memory)?;
        // SAFETY: `layout` is not zero-sized: it has the padding at least, because `align > ALIGN_ALLOCATOR`.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        let address = base.addr().get();
        // At most `align - ALIGN_ALLOCATOR`, because `address` is a multiple of ALIGN_ALLOCATOR.
        let before = address.next_multiple_of(align) - address;
        // SAFETY: within the padding.
        let page = unsafe { base.add(before) };
        let place = if align == HUGE { place(page) } else { 0 };
        // SAFETY: `place <= latest`, so `place + capacity <= most`, for which there is room from `page` on.
        let start = unsafe { page.add(place) };
        if align == HUGE {
            advise_huge_pages(page, in_huge_pages(place + capacity));
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

/// The layout of an allocation that has `capacity` bytes from a multiple of `align`.
fn padded(capacity: usize, align: usize) -> Option<Layout> {
    let padded = capacity.checked_add(align - ALIGN_ALLOCATOR)?;
    Layout::from_size_align(padded, ALIGN_ALLOCATOR).ok()
}

/// How many of these bytes, the first of which begins a huge page, are to lie in huge pages: also those of the last
/// page if they fill half of it, and then the rest of it is taken as well. A tail in small pages costs a page fault for
/// every 4 KiB.
fn in_huge_pages(bytes: usize) -> usize {
    let tail = bytes % HUGE;
    let whole = bytes - tail;
    match whole.checked_add(HUGE) {
        Some(more) if whole > 0 && tail >= HUGE / 2 => more,
        _ => whole,
    }
}

/// Where a block begins in this page; blocks in a row have all places, however many pages lie between them.
fn place(page: NonNull<u8>) -> usize {
    let number = (page.addr().get() / HUGE) as u64;
    // The upper bits of a multiple of the golden ratio.
    PLACE * (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES.trailing_zeros())) as usize
}

/// Asks for huge pages. A refusal costs time only, and is no error.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages(start: NonNull<u8>, len: usize) {
    // SAFETY: the range begins with a page and lies within our block; this advice changes no contents and no
    // protection.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_page_is_huge_where_the_block_fills_half_of_it() {
        let page = HUGE;
        for (capacity, huge) in [
            (0, 0),
            (page - 1, 0),
            (page, page),
            (page + page / 2 - 1, page),
            (page + page / 2, 2 * page),
            (2 * page - 1, 2 * page),
            (2 * page, 2 * page),
            (2 * page + 1, 2 * page),
            (usize::MAX, usize::MAX - (page - 1)),
        ] {
            assert_eq!(in_huge_pages(capacity), huge, "{capacity}");
        }
    }

    #[test]
    fn large_blocks_begin_early_in_a_huge_page_and_not_all_at_one_place() {
        for capacity in [HUGE, HUGE + 1, HUGE / 2 * 3, 2 * HUGE - 1] {
            let blocks: Vec<_> = (0..8).map(|_| Allocation::zeroed(capacity).expect("memory")).collect();
            let mut places: Vec<usize> = blocks.iter().map(|block| block.start.addr().get() % HUGE).collect();
            for (block, place) in blocks.iter().zip(&places) {
                assert!((*place).is_multiple_of(PLACE) && *place < PLACES * PLACE, "{place}");
                assert_eq!(block.capacity(), capacity);
                let begin = block.start.addr().get() - place;
                let end = begin + in_huge_pages(place + capacity).max(place + capacity);
                let base = block.base.addr().get();
                assert!(base <= begin && end <= base + block.layout.size(), "what is advised is the block's own");
            }
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > 1, "{places:?}");
        }
    }
}
