//! Where an owned window lies: a chain of frames up to the blob, each with its position in the next.
//! Positions are added up at each access, so that no window goes stale when one that it lies in moves.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::blob::AnyBlob;

/// A window, as the windows within see it.
pub(super) struct Frame {
    pub(super) outer: Outer,
    pub(super) len: usize,
    /// Invariant: the outer window or owner has the steps `pos..pos + len`. The position in the owner follows from the
    /// sum.
    pub(super) pos: AtomicUsize,
}

/// The window or blob that a window lies in.
pub(super) enum Outer {
    /// A blob over the memories of the one that the window was made from, with the shape that it had.
    Owner(AnyBlob),
    Window(Arc<Frame>),
    /// Nothing any more: the state of a frame within its own `drop`, and of no other.
    Dropped,
}

impl Frame {
    pub(super) fn pos(&self) -> usize {
        // Relaxed: a position orders nothing, and any that was ever stored lies within the outer extent.
        self.pos.load(Ordering::Relaxed)
    }

    /// The blob at the end of the chain, and the sum of the positions on the way.
    pub(super) fn owner_and_pos(&self) -> (&AnyBlob, usize) {
        let (mut frame, mut pos) = (self, self.pos());
        loop {
            match &frame.outer {
                Outer::Owner(owner) => return (owner, pos),
                Outer::Window(outer) => frame = outer,
                Outer::Dropped => unreachable!("a frame that is dropped lies in no chain"),
            }
            pos += frame.pos();
        }
    }
}

impl Drop for Frame {
    /// One by one: the chain may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut outer = mem::replace(&mut self.outer, Outer::Dropped);
        while let Outer::Window(frame) = outer {
            outer = match Arc::into_inner(frame) {
                Some(mut frame) => mem::replace(&mut frame.outer, Outer::Dropped),
                None => return,
            };
        }
    }
}
