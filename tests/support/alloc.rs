//! An allocator that counts what each thread holds, and the most it held.
//!
//! A block that grows counts its growth, not old and new together: the large ones are moved by remapping pages.

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
    // A thread that ends has no counters any more, and they are not asked for.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= REFUSED.try_with(Cell::get).unwrap_or(usize::MAX) {
            return std::ptr::null_mut();
        }
        add(layout.size() as i64);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller's promises are those of this call, and `block` came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are those of this call, and `block` came from the system's allocator.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// The most bytes that this thread held while `run` ran, beyond what it held before.
pub(crate) fn peak(run: impl FnOnce()) -> u64 {
    let before = HELD.get();
    PEAK.set(before);
    run();
    u64::try_from(PEAK.get() - before).unwrap_or(0)
}

/// Runs `run` while this thread gets no zeroed block of `size` bytes or more. That is how host memory is allocated.
pub(crate) fn refusing<R>(size: usize, run: impl FnOnce() -> R) -> R {
    let before = REFUSED.replace(size);
    let result = run();
    REFUSED.set(before);
    result
}

#[test]
fn the_peak_is_seen() {
    let used = peak(|| {
        let block = std::hint::black_box(vec![1_u8; 1 << 20]);
        drop(block);
        drop(std::hint::black_box(vec![0_u8; 1 << 19]));
    });
    assert!((1 << 20..1 << 21).contains(&used), "{used}");
}
