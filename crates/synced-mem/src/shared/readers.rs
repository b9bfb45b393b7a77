//! Readers of all bytes of a memory on the host that take no lock: a count, and a way in that the writers close.
//!
//! The way is open only while all bytes are valid at `start`, no queue writes them, and nothing is borrowed to be
//! written. The way is opened and closed under the memory's lock. A change that ends such a state closes the way first,
//! which fails while there is a reader. This file holds the orderings and the proof; the callers open and close.

use std::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Of the word: readers may enter.
const OPEN: usize = 1;
/// A thread waits for borrows to end, so that the last reader tells it.
const AWAITED: usize = 2;
/// A reader has entered since this was last asked.
const ENTERED: usize = 4;
/// One reader: the rest of the word counts them.
const ONE: usize = 8;
/// From here on no reader enters without the lock: forgotten guards do not overflow the count.
const FULL: usize = usize::MAX / 2;

/// The proof. All changes of the word are read-modify-writes, so they have one order, and each continues the release
/// sequence of those before it.
///
/// * *A reader and a writer never meet.* A reader that enters before the way is closed makes the closing fail, until it
///   leaves; behind the closing, no reader enters before the way is opened, by then for readers only.
/// * *A reader sees the bytes.* Its Acquire reads the Release of the opening or something later in its release
///   sequence, so all changes before the opening, to the bytes and to `start`, happen before its reads. A later
///   store of `start` happens after a closing, and that after the reader has left, so the reader does not load it.
/// * *A writer disturbs no read.* The Acquire of its closing reads the Release of every reader that has left, so their
///   reads happen before its writes. One that finds the way closed has the lock from the thread that closed it.
/// * *No waiter sleeps through the end it waits for.* It sets `AWAITED` under the lock and then tries once more. A last
///   reader that left before that is not in the way of this try; one that leaves behind it sees the bit, and counts its
///   end under the lock.
pub(crate) struct Readers {
    word: AtomicUsize,
    /// Set while the way is closed; where all bytes are while it is open.
    start: AtomicPtr<u8>,
}

impl Readers {
    /// Closed.
    pub(crate) fn new() -> Self {
        Self { word: AtomicUsize::new(0), start: AtomicPtr::new(ptr::null_mut()) }
    }

    /// One more reader, if the way is open. A reader calls [`leave`](Self::leave) when done with the bytes.
    #[inline]
    pub(crate) fn enter(&self) -> Option<NonNull<u8>> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & OPEN != 0 && word < FULL {
            match self.word.compare_exchange_weak(word, (word | ENTERED) + ONE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return NonNull::new(self.start.load(Ordering::Relaxed)),
                Err(newer) => word = newer,
            }
        }
        None
    }

    /// A reader is done. Returns whether it was the last one and a thread waits for that.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        let word = self.word.fetch_sub(ONE, Ordering::Release);
        word < 2 * ONE && word & AWAITED != 0
    }

    /// Whether a reader has entered since this was last asked. Needs no lock.
    pub(crate) fn has_one_entered(&self) -> bool {
        // Relaxed: the mark orders nothing. As a read-modify-write it leaves the release sequences whole.
        self.word.fetch_and(!ENTERED, Ordering::Relaxed) & ENTERED != 0
    }

    // ---- under the lock ----

    /// Lets readers in, to all bytes at `start`.
    pub(crate) fn open(&self, start: NonNull<u8>) {
        if self.word.load(Ordering::Relaxed) & OPEN == 0 {
            self.start.store(start.as_ptr(), Ordering::Relaxed);
            self.word.fetch_or(OPEN, Ordering::Release);
        }
    }

    /// Keeps readers out, unless there is one: then the way stays open.
    pub(crate) fn close(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & OPEN != 0 {
            if word >= ONE {
                return false;
            }
            match self.word.compare_exchange_weak(word, word & !OPEN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(newer) => word = newer,
            }
        }
        true
    }

    /// Whether there is one now.
    pub(crate) fn are_there(&self) -> bool {
        self.word.load(Ordering::Relaxed) >= ONE
    }

    /// Whether a thread waits for borrows to end.
    pub(crate) fn set_awaited(&self, awaited: bool) {
        if awaited {
            self.word.fetch_or(AWAITED, Ordering::Relaxed)
        } else {
            self.word.fetch_and(!AWAITED, Ordering::Relaxed)
        };
    }
}
