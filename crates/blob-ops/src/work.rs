//! Work to do to bytes, as plain data that any place can carry out. Knows no blobs, addresses or devices.

use crate::plan::Permutation;
use blob_core::DType;

/// One piece of work, from some inputs to some outputs. Arithmetic and squares are done in place: the output is read
/// too.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// Rows of one run of each part: to one output, or with `split` from one input.
    Rows { rows: usize, split: bool },
    /// One input, one output.
    Permute(Permutation),
    /// Matrices of this side, each transposed in place.
    Squares { side: usize, width: usize },
    /// One input but for [`Op::Scale`]. `alpha` are the bits of a number that the dtype computes in.
    Arithmetic { op: Op, dtype: DType, alpha: u64 },
    /// The first `size` bytes over and over.
    Fill { element: [u8; 8], size: usize },
    /// One input, one output.
    Convert { source: DType, target: DType },
    /// The least index that is out of bounds, as a u64 that is there already and only becomes less.
    Check { dtype: DType, bounds: Bounds },
    /// The sum of each block: an f64, or the low and the high half of the terms of integers, each summed, all ones
    /// where a term does not fit.
    Sums { dtype: DType, square: bool },
}

/// The new value of `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// y + x.
    Add,
    /// y + x, subnormal numbers as zeros.
    FlushedAdd,
    /// y − x.
    Subtract,
    /// y + x·alpha.
    Axpy,
    /// y·alpha.
    Scale,
}

/// The values of one dtype that another holds, as bits of the type in which the first is compared: whole numbers from
/// `low` to `high`, of floats without `high` itself; or, of floats, with fractions, every magnitude below `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) is_whole: bool,
}
