//! An allocator that counts the bytes that each thread holds, and their peak.
//!
//! A reallocated block counts only by its growth, not old and new block together, because the system moves large blocks
//! by remapping their pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    /// Zeroed blocks of this size and above are refused.
    static REFUSED: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn add(bytes: i64) {
    // The counters of a thread that is ending are gone, and no test reads them.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller says that the layout has bytes, which is all that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= REFUSED.try_with(Cell::get).unwrap_or(usize::MAX) {
            return std::ptr::null_mut();
        }
        add(layout.size() as i64);
        // SAFETY: the caller says that the layout has bytes, which is all that the system's allocator asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller says that `block` is one of this allocator, which is one of the system's, made with this
        // layout, and that it is used no more.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as i64 - layout.size() as i64);
        // SAFETY: the caller says that `block` is one of this allocator, which is one of the system's, made with this
        // layout, that it is used no more, and that `size` is not 0 and has a layout.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// The peak of the bytes that this thread holds during `run`, beyond those that it held before.
pub(crate) fn peak(run: impl FnOnce()) -> u64 {
    let before = HELD.get();
    PEAK.set(before);
    run();
    u64::try_from(PEAK.get() - before).unwrap_or(0)
}

/// Runs `run` while zeroed allocations of `size` bytes or more fail on this thread. Host memory is allocated zeroed.
pub(crate) fn refusing<R>(size: usize, run: impl FnOnce() -> R) -> R {
    let before = REFUSED.replace(size);
    let result = run();
    REFUSED.set(before);
    result
}

#[test]
fn the_peak_is_counted() {
    let used = peak(|| {
        let block = std::hint::black_box(vec![1_u8; 1 << 20]);
        drop(block);
        drop(std::hint::black_box(vec![0_u8; 1 << 19]));
    });
    assert!((1 << 20..1 << 21).contains(&used), "{used}");
}
