//! The system's allocator with huge pages for large blocks, as our blobs and numpy have them: kernels are to be
//! compared, not pages. glibc's tunable `malloc.hugetlb` would do the same, but in glibc 2.36 it takes effect only in
//! some runs.

use std::alloc::{GlobalAlloc, Layout, System};

/// The minimum size of a block on huge pages, as in `synced-mem`.
const LARGE: usize = 4 << 20;

pub(crate) struct Huge;

// SAFETY: every block is the system's, given back to it with the layout that it was asked for; the advice changes
// neither contents nor protection.
unsafe impl GlobalAlloc for Huge {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller says that the layout has bytes, which is all that the system's allocator asks for.
        advised(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller says that the layout has bytes, which is all that the system's allocator asks for.
        advised(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller says that the block, which is the system's, was made with this layout and is used no more,
        // and that `size` is not 0 and has a layout.
        advised(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller says that the block, which is the system's, was made with this layout and is used no more.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Advises huge pages for the whole pages within a block, and returns the block. Null is returned as it is.
#[cfg(target_os = "linux")]
fn advised(block: *mut u8, size: usize) -> *mut u8 {
    /// A multiple of every page size that Linux runs with.
    const PAGE: usize = 64 << 10;
    if size >= LARGE && !block.is_null() {
        let skip = block.addr().next_multiple_of(PAGE) - block.addr();
        let start = block.wrapping_add(skip).cast();
        // SAFETY: the range lies within the block of `size` bytes, which is longer than a page. A refusal costs time
        // only.
        unsafe { libc::madvise(start, (size - skip) & !(PAGE - 1), libc::MADV_HUGEPAGE) };
    }
    block
}

#[cfg(not(target_os = "linux"))]
fn advised(block: *mut u8, _: usize) -> *mut u8 {
    block
}
