//! The pieces of a permutation by their index: where each lies and which bytes it moves, without a list.
//!
//! Relies on `plan.rs` for where a permutation is cut.

use super::{Cut, ONE, Permutation, Stride, Strides};
use std::ops::Range;

/// A permutation in pieces: for each entry of the axes before the cut, the parts of the axis that is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    plan: Permutation,
    cut: Cut,
    axis: Stride,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.cut.outer * self.each()
    }

    /// Where a piece begins in the destination, in bytes.
    pub(crate) fn start(&self, piece: usize) -> usize {
        let (entry, part) = self.place(piece);
        (entry * self.axis.len + part.start) * self.axis.to
    }

    pub(crate) fn get(&self, piece: usize) -> Piece {
        let (entry, part) = self.place(piece);
        Piece {
            from: self.plan.source_of(entry, self.cut.axis) + part.start * self.axis.from,
            plan: self.plan.within(self.cut.axis, part),
        }
    }

    /// Parts of the axis that is cut.
    fn each(&self) -> usize {
        self.axis.len.div_ceil(self.cut.step)
    }

    /// The entry of the axes before the one that is cut, and which part of that one.
    fn place(&self, piece: usize) -> (usize, Range<usize>) {
        let start = piece % self.each() * self.cut.step;
        let end = (start + self.cut.step).min(self.axis.len);
        (piece / self.each(), start..end)
    }
}

/// A part of a permutation that is contiguous in the destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    /// Where its source starts, in bytes.
    pub(crate) from: usize,
    pub(crate) plan: Permutation,
}

impl Permutation {
    /// About `pieces` parts that lie one behind the other in the destination. One axis is cut, and all outside it.
    pub(crate) fn pieces(self, pieces: usize) -> Pieces {
        let cut = self.cut(pieces);
        let axis = self.axes.as_slice().get(cut.axis).copied();
        // Behind the last axis there are single runs.
        let axis = axis.unwrap_or(Stride { to: self.run, ..ONE });
        Pieces { plan: self, cut, axis }
    }

    /// Where in the source an entry of the axes before `cut` starts.
    fn source_of(&self, entry: usize, cut: usize) -> usize {
        let mut rest = entry;
        let mut from = 0;
        for axis in self.axes.as_slice()[..cut].iter().rev() {
            from += rest % axis.len * axis.from;
            rest /= axis.len;
        }
        from
    }

    /// Without the axes before `cut`, and with a part of that one.
    fn within(&self, cut: usize, part: Range<usize>) -> Permutation {
        let mut axes = Strides::default();
        for (at, axis) in self.axes.as_slice().iter().enumerate().skip(cut) {
            let len = if at == cut { part.len() } else { axis.len };
            axes.push(Stride { len, ..*axis });
        }
        Permutation { run: self.run, axes }
    }
}
