//! An allocator that overwrites what is freed, so that a queue which still uses it is seen to: its bytes are 0xDD then.
//! A test binary names it as its global allocator. It keeps nothing back, and relies on the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// How many bytes this thread has allocated and not freed, where no other thread frees them.
#[allow(dead_code, reason = "not every test binary asks")]
pub(crate) fn held() -> isize {
    HELD.get()
}

fn add(bytes: isize) {
    // The counter of a thread that is ending is gone, and no test reads it.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

/// What freed bytes become.
pub(crate) const FREED: u8 = 0xDD;

/// How many bytes of a block are overwritten, at most.
const MAX_FILLED: usize = 1 << 16;

pub(crate) struct Poisoning;

// SAFETY: every call is passed on to the system's allocator as it is; a block is overwritten within its size, while it
// is still ours. What grows or shrinks is allocated anew (the default), so the old block is overwritten too.
unsafe impl GlobalAlloc for Poisoning {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller promises a layout with a size that is not 0, as the system's allocator asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller promises a layout with a size that is not 0, as the system's allocator asks.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the block is the caller's until the second call, which gets his promises.
        unsafe {
            block.write_bytes(FREED, layout.size().min(MAX_FILLED));
            System.dealloc(block, layout);
        }
    }
}
