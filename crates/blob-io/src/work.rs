//! Counts the work of reading: the bytes and the items that a thread visits, in builds with debug assertions.
//!
//! A test can hold a reader to linear work with it, whatever the machine's speed. Builds without debug assertions
//! count nothing.

/// The bytes and items that a thread has visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Bytes of a source or of a buffer; each time counts.
    pub bytes: u64,
    /// Calls, elements of lists, comparisons of names.
    pub items: u64,
}

impl Work {
    /// Bytes and items together, as one measure.
    #[must_use]
    pub fn sum(self) -> u64 {
        self.bytes.saturating_add(self.items)
    }
}

/// The counter of a thread.
#[cfg(debug_assertions)]
mod counter {
    use std::cell::Cell;

    use super::Work;

    thread_local! {
        static VISITED: Cell<Work> = const { Cell::new(Work { bytes: 0, items: 0 }) };
    }

    pub(super) fn add(bytes: u64, items: u64) {
        let now = VISITED.get();
        VISITED.set(Work { bytes: now.bytes.saturating_add(bytes), items: now.items.saturating_add(items) });
    }

    pub(super) fn now() -> Work {
        VISITED.get()
    }
}

/// No counter, and no cost.
#[cfg(not(debug_assertions))]
mod counter {
    use super::Work;

    #[inline]
    pub(super) fn add(_: u64, _: u64) {}

    pub(super) fn now() -> Work {
        Work::default()
    }
}

/// Counts a visit of `bytes` bytes and `items` items.
#[inline]
pub fn visit(bytes: u64, items: u64) {
    counter::add(bytes, items);
}

/// Runs `run`, and returns its result with the bytes and items that this thread visited meanwhile: none without debug
/// assertions.
pub fn measure<R>(run: impl FnOnce() -> R) -> (R, Work) {
    let before = counter::now();
    let result = run();
    let after = counter::now();
    (result, Work { bytes: after.bytes - before.bytes, items: after.items - before.items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_counted_on_its_own_thread() {
        let elsewhere = || std::thread::spawn(|| visit(100, 100)).join().expect("it ends");
        let (result, work) = measure(|| {
            visit(3, 1);
            elsewhere();
            visit(4, 0);
            "done"
        });
        assert_eq!(result, "done");
        // Nothing is counted without debug assertions.
        assert!([Work { bytes: 7, items: 1 }, Work::default()].contains(&work), "{work:?}");
        assert!([8, 0].contains(&work.sum()));
    }
}
