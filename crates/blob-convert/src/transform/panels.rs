//! Permutes the axes of a tensor that is larger than the memory for it: a panel at a time, with some indices of one
//! axis, each by one pass over the rows.
//!
//! ```text
//! for each panel, some indices of axis `cut`:      a part of each row of the input
//!     for 64 rows at a time:                       skip to the part, read it; permute; copy the runs
//! ```
//! In the order of the result a panel has indices of its first axis, and `cut` is that axis. In any order `cut` is the
//! input's second axis, whose parts of a row are not taken apart: each byte is read once. Knows no tensors.

use std::ops::Range;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::Error;

use super::values::{Inputs, Stream};

/// The least bytes of a panel: below, one pass is as good as several.
const PANEL: usize = 8 << 20;

/// The most passes over the input, which may have to be inflated or computed for each.
const PASSES: usize = 8;

/// Rows that are permuted together.
const ROWS: usize = 64;

/// Gaps between shorter runs are read, too, so many bytes at once.
const LEAST_RUN: usize = 4 << 10;
const BUFFER: usize = 1 << 20;

/// Shorter pieces are not worth their own place in the result.
const LEAST_PIECE: usize = 16 << 10;

/// A permutation of axes whose first axis does not stay first; no extent is 0.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    /// The extents before.
    pub(super) dims: Vec<usize>,
    /// Axis `i` of the result is axis `axes[i]`.
    pub(super) axes: Vec<usize>,
    /// The bytes of an element.
    pub(super) width: usize,
}

impl Permutation {
    /// The bytes of one index of axis `cut`, over all others.
    fn each(&self, cut: usize) -> usize {
        self.dims.iter().product::<usize>() / self.dims[cut] * self.width
    }

    /// The bytes that a panel has at most, unless one index has more.
    fn most(&self) -> usize {
        PANEL.max((self.each(0) * self.dims[0]).div_ceil(PASSES))
    }

    /// The indices of axis `cut` in each panel but the last.
    fn step(&self, cut: usize) -> usize {
        (self.most() / self.each(cut)).clamp(1, self.dims[cut])
    }

    /// The extents of a part of the result: `count` indices of axis `cut`, and `rows` of the first axis.
    fn part(&self, rows: usize, cut: usize, count: usize) -> Vec<usize> {
        let mut dims = self.dims.clone();
        (dims[0], dims[cut]) = (rows, count);
        dims
    }

    /// The bytes of one index of an axis in a result of the extents `dims`: the product of the extents behind.
    fn behind(&self, axis: usize, dims: &[usize]) -> usize {
        let behind = self.axes.iter().rev().take_while(|from| **from != axis).map(|axis| dims[*axis]);
        behind.product::<usize>() * self.width
    }

    /// The axis whose parts are read once each, if panels of it come in another order than the result's and in long
    /// pieces; a tensor of one panel is read once in any case.
    fn other_cut(&self) -> Option<usize> {
        let (first, cut) = (self.axes[0], 1);
        let piece = self.step(cut) * self.behind(cut, &self.dims);
        let is_small = self.each(cut) <= self.most();
        (first != cut && is_small && self.step(first) < self.dims[first] && piece >= LEAST_PIECE).then_some(cut)
    }
}

/// The panels of the only input, one after the other.
pub(crate) struct Panels<'a> {
    inputs: Inputs<'a>,
    order: Permutation,
    cut: usize,
    /// The first index behind the last panel, along the axis that is cut.
    next: usize,
}

impl<'a> Panels<'a> {
    /// Panels in the order of the result.
    ///
    /// # Errors
    /// [`Error::Memory`] where a panel is larger than allowed.
    pub(super) fn in_order(inputs: Inputs<'a>, order: Permutation) -> Result<Self, Error> {
        let cut = order.axes[0];
        Self::along(inputs, order, cut)
    }

    /// Panels that read each byte of the input once; `None` where panels in the order of the result do.
    ///
    /// # Errors
    /// [`Error::Memory`] where a panel is larger than allowed.
    pub(super) fn in_any_order(inputs: Inputs<'a>, order: Permutation) -> Result<Option<Self>, Error> {
        order.other_cut().map(|cut| Self::along(inputs, order, cut)).transpose()
    }

    fn along(inputs: Inputs<'a>, order: Permutation, cut: usize) -> Result<Self, Error> {
        inputs
            .fits((order.part(order.dims[0], cut, order.step(cut)).iter().product::<usize>() * order.width) as u64)?;
        Ok(Self { inputs, order, cut, next: 0 })
    }

    /// Calls `put` with each piece of the result, and the offset of the piece.
    ///
    /// # Errors
    /// Errors of reading, and the errors of `put`.
    pub(crate) fn each(mut self, mut put: impl FnMut(u64, &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let behind = self.order.behind(self.cut, &self.order.dims);
        let whole = self.order.dims[self.cut] * behind;
        let mut panel = Vec::new();
        loop {
            let first = self.next;
            self.advance(&mut panel)?;
            if panel.is_empty() {
                return Ok(());
            }
            for (outer, piece) in panel.chunks_exact((self.next - first) * behind).enumerate() {
                put((outer * whole + first * behind) as u64, piece)?;
            }
        }
    }

    /// Reads the next panel, empty behind the last index.
    ///
    /// # Errors
    /// Errors of reading; an input with fewer values than the shape.
    pub(super) fn advance(&mut self, panel: &mut Vec<u8>) -> Result<(), Error> {
        let (order, cut) = (&self.order, self.cut);
        let (rows, count) = (order.dims[0], order.step(cut).min(order.dims[cut] - self.next));
        let row = order.part(1, cut, count).iter().product::<usize>() * order.width;
        panel.resize(rows * row, 0);
        if count == 0 {
            return Ok(());
        }
        let mut parts = Parts::new(&self.inputs, order, cut, self.next..self.next + count)?;
        let at_once = ROWS.max(LEAST_RUN / row);
        for first in (0..rows).step_by(at_once) {
            let some = at_once.min(rows - first);
            let mut read = vec![0; some * row];
            if !parts.read(&mut read)? {
                return Err(self.inputs.error("has fewer values than its shape"));
            }
            let dims = order.part(some, cut, count);
            let behind = order.behind(0, &dims);
            let permuted = permuted(read, dims, &order.axes, order.width).map_err(|error| self.inputs.error(error))?;
            for (outer, run) in permuted.data().bytes()?.chunks_exact(some * behind).enumerate() {
                panel[(outer * rows + first) * behind..][..run.len()].copy_from_slice(run);
            }
        }
        self.next += count;
        Ok(())
    }
}

/// The same part of each row of the input, one row after the other.
struct Parts<'a> {
    values: Box<dyn Stream + 'a>,
    /// In bytes: a run that belongs to the part, and the distance from one run to the next.
    run: usize,
    pitch: usize,
    /// The bytes before the first run.
    before: usize,
    /// The bytes to skip before the next run.
    gap: usize,
    buffer: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn new(inputs: &Inputs<'a>, order: &Permutation, cut: usize, indices: Range<usize>) -> Result<Self, Error> {
        let inner = order.dims[cut + 1..].iter().product::<usize>() * order.width;
        let (run, pitch, before) = (indices.len() * inner, order.dims[cut] * inner, indices.start * inner);
        Ok(Self { values: inputs.open(0)?, run, pitch, before, gap: before, buffer: Vec::new() })
    }

    /// Fills `out` with the next runs; false where the input ends.
    fn read(&mut self, out: &mut [u8]) -> Result<bool, Error> {
        if self.run == self.pitch {
            return Ok(self.values.pull(out)? == out.len());
        }
        if self.run >= LEAST_RUN || self.pitch > BUFFER {
            for run in out.chunks_exact_mut(self.run) {
                self.values.skip(self.gap as u64)?;
                self.gap = self.pitch - self.run;
                if self.values.pull(run)? < run.len() {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for out in out.chunks_mut(BUFFER / self.pitch * self.run) {
            self.buffer.resize(out.len() / self.run * self.pitch, 0);
            if self.values.pull(&mut self.buffer)? < self.buffer.len() {
                return Ok(false);
            }
            for (run, pitch) in out.chunks_exact_mut(self.run).zip(self.buffer.chunks_exact(self.pitch)) {
                run.copy_from_slice(&pitch[self.before..][..run.len()]);
            }
        }
        Ok(true)
    }
}

/// Permutes the axes of a tensor in memory.
pub(super) fn permuted(bytes: Vec<u8>, dims: Vec<usize>, axes: &[usize], width: usize) -> Result<AnyBlob, Error> {
    let blob = AnyBlob::from_vec(Shape::new(dims)?, dtype(width), bytes)?;
    blob_ops::permute(&blob, axes).map_err(|e| Error::Memory { file: String::new(), message: e.to_string() })
}

/// An integer dtype of this width: only the positions of the bytes matter, not the meaning.
fn dtype(width: usize) -> DType {
    match width {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}
