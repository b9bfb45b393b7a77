//! Transposes a matrix that is larger than the memory for it: a panel of columns at a time, each by one pass over the
//! rows.
//!
//! ```text
//! for each panel of columns:          the rows of the result
//!     for 64 rows at a time:          skip to the panel, read its part of each row; transpose; copy the runs
//! ```
//! Knows no tensors and no axes but the two of the matrix.

use blob_core::{AnyBlob, DType, Shape};
use blob_io::Error;

use super::values::{Inputs, Stream};

/// The least bytes of a panel: below, one pass is as good as several.
const PANEL: usize = 8 << 20;

/// The most passes over the input, which may have to be inflated or computed for each.
const PASSES: usize = 8;

/// Rows that are transposed together.
const ROWS: usize = 64;

/// A row-major matrix of `width` bytes an element; no extent is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) width: usize,
}

impl Matrix {
    fn byte_len(self) -> usize {
        self.rows * self.columns * self.width
    }

    /// The columns of each panel but the last.
    fn step(self) -> usize {
        let panel = PANEL.max(self.byte_len().div_ceil(PASSES));
        (panel / (self.rows * self.width)).clamp(1, self.columns)
    }
}

/// The columns of the only input, one after the other.
pub(super) struct Panels<'a> {
    inputs: Inputs<'a>,
    matrix: Matrix,
    /// The first column behind the panel.
    next: usize,
    /// Whole columns, and how many bytes of them were given.
    panel: Vec<u8>,
    given: usize,
}

impl<'a> Panels<'a> {
    /// # Errors
    /// [`Error::Memory`] where a panel is larger than allowed.
    pub(super) fn new(inputs: Inputs<'a>, matrix: Matrix) -> Result<Self, Error> {
        inputs.fits((matrix.step() * matrix.rows * matrix.width) as u64)?;
        Ok(Self { inputs, matrix, next: 0, panel: Vec::new(), given: 0 })
    }

    /// Reads the next panel, empty behind the last column.
    fn advance(&mut self) -> Result<(), Error> {
        let Matrix { rows, columns, width } = self.matrix;
        let count = self.matrix.step().min(columns - self.next);
        let (part, row) = (count * width, columns * width);
        self.panel.resize(rows * part, 0);
        self.given = 0;
        if count == 0 {
            return Ok(());
        }
        let mut values = self.inputs.open(0)?;
        values.skip((self.next * width) as u64)?;
        for first in (0..rows).step_by(ROWS) {
            let some = ROWS.min(rows - first);
            let mut parts = vec![0; some * part];
            for (at, part_of_row) in (first..).zip(parts.chunks_exact_mut(part)) {
                if at > 0 {
                    values.skip((row - part) as u64)?;
                }
                if values.pull(part_of_row)? < part {
                    return Err(self.inputs.error("has fewer values than its shape"));
                }
            }
            let turned = transposed(parts, (some, count), width).map_err(|error| self.inputs.error(error))?;
            let turned = turned.data().bytes()?;
            for (column, run) in turned.chunks_exact(some * width).enumerate() {
                self.panel[(column * rows + first) * width..][..run.len()].copy_from_slice(run);
            }
        }
        self.next += count;
        Ok(())
    }
}

impl Stream for Panels<'_> {
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < out.len() {
            if self.given == self.panel.len() {
                self.advance()?;
                if self.panel.is_empty() {
                    break;
                }
            }
            let n = (self.panel.len() - self.given).min(out.len() - filled);
            out[filled..filled + n].copy_from_slice(&self.panel[self.given..][..n]);
            (filled, self.given) = (filled + n, self.given + n);
        }
        Ok(filled)
    }
}

/// The transposed matrix.
fn transposed(bytes: Vec<u8>, (rows, columns): (usize, usize), width: usize) -> Result<AnyBlob, Error> {
    permuted(bytes, vec![rows, columns], &[1, 0], width)
}

/// Permutes the axes of a tensor in memory.
pub(super) fn permuted(bytes: Vec<u8>, dims: Vec<usize>, axes: &[usize], width: usize) -> Result<AnyBlob, Error> {
    let blob = AnyBlob::from_vec(Shape::new(dims)?, dtype(width), bytes)?;
    let message = |error: blob_ops::Error| Error::Memory { file: String::new(), message: error.to_string() };
    blob_ops::permute(&blob, axes).map_err(message)
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
