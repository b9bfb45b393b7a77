//! Sums and statistics of a blob: Caffe's `asum` and `sumsq`, and everything that one pass can know.
//!
//! Cuts a tensor into pieces of equal length and joins the results as a tree, so that the number of threads
//! changes no bit. The arithmetic is in `cpu/sums.rs` and `stats.rs`.

use crate::argument::Argument;
use crate::at::{At, Operand, WITH_THE_DATA};
use crate::cpu::lanes::{BLOCK, Scratch};
use crate::cpu::sums::{Term, Total};
use crate::cpu::{self, Isa, reduce};
use crate::device_op::DeviceOp;
use crate::error::Error;
use crate::scalar::Scalar;
use crate::stats::Stats;
use crate::tree::{Join, Tree};
use crate::work::Work;
use crate::{place, threads};
use blob_core::{AnyBlob, DType, Part};

/// Blocks in a piece, a power of two: then a tree over pieces is the upper part of the tree over blocks. 64 are 1 MiB
/// of f32, a few dozen microseconds.
const PIECE_BLOCKS: usize = 64;

/// Σ|x| over one part of a blob, Caffe's `asum_data` and `asum_diff`.
///
/// Floats give a [`Scalar::F`], summed in f64 whatever the dtype; NaN and Inf take part. Integers give an exact
/// [`Scalar::U`]. A part that was never touched is 0 and stays untouched.
///
/// **Accuracy.** As no term is negative, the relative error is at most d·u/(1 − d·u) with u = 2⁻⁵³ and
/// d = 34 + ⌈log₂ B⌉ for B blocks of 4096 elements: 15 additions in a lane of a group of 256, 15 between groups, 4
/// between 16 lanes, the rest between blocks (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §4.2).
/// That is 6·10⁻¹⁵ for four billion elements and below 10⁻¹⁴ for anything that fits in memory; in practice, as the
/// tests measure, it is below 10⁻¹⁵.
///
/// # Errors
/// [`Error::NoArithmetic`] for bools; [`Error::Overflow`] if an integer sum is no u64; [`Error::Memory`] for a conflict
/// with a guard of another blob, or out of memory.
pub fn asum(blob: &AnyBlob, part: Part) -> Result<Scalar, Error> {
    WITH_THE_DATA.asum(blob, part)
}

/// Σx² over one part of a blob, Caffe's `sumsq_data` and `sumsq_diff`.
///
/// As [`asum`], with the square of an f32, f16 or bf16 exact before it is added and one more rounding for f64: d is
/// one greater there. The squares of f64 beyond about ±10¹⁵⁴ are Inf, those below 10⁻¹⁵⁴ lose bits, and below 10⁻¹⁶²
/// are 0.
///
/// # Errors
/// As [`asum`].
pub fn sumsq(blob: &AnyBlob, part: Part) -> Result<Scalar, Error> {
    WITH_THE_DATA.sumsq(blob, part)
}

/// Minimum, maximum, mean, deviation, norms and the counts of zeros, NaN and Inf of one part of a blob, in one pass.
///
/// The same bits as a [`StatsAccumulator`](crate::StatsAccumulator) gives. Bools are 0 and 1.
///
/// # Errors
/// [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn stats(blob: &AnyBlob, part: Part) -> Result<Stats, Error> {
    WITH_THE_DATA.stats(blob, part)
}

/// # Sums and statistics
impl At {
    /// [`asum`](crate::asum), at this place.
    pub fn asum(&self, blob: &AnyBlob, part: Part) -> Result<Scalar, Error> {
        sum(self, "asum", Term::Absolute, blob, part)
    }

    /// [`sumsq`](crate::sumsq), at this place.
    pub fn sumsq(&self, blob: &AnyBlob, part: Part) -> Result<Scalar, Error> {
        sum(self, "sumsq", Term::Square, blob, part)
    }

    /// [`stats`](crate::stats), at this place.
    pub fn stats(&self, blob: &AnyBlob, part: Part) -> Result<Stats, Error> {
        let (isa, dtype) = (Isa::detect(), blob.dtype());
        let bytes = place::read("stats", Argument::In, blob, part)?;
        let total = in_pieces(&bytes, dtype, |block, ahead, scratch| reduce::block(isa, dtype, block, ahead, scratch));
        Ok(Stats::new(total, 0))
    }
}

fn sum(at: &At, op: &'static str, term: Term, blob: &AnyBlob, part: Part) -> Result<Scalar, Error> {
    let (isa, dtype) = (Isa::detect(), blob.dtype());
    if dtype == DType::Bool {
        return Err(Error::NoArithmetic { op, dtype });
    }
    let total = if place::is_untouched(blob, part) {
        None
    } else if let Some(queue) = at.queue([Operand::all(blob, part)], []) {
        DeviceOp::new(op, queue, Work::Sums { dtype, square: term == Term::Square })?.sum(blob, part)?
    } else {
        let bytes = place::read(op, Argument::In, blob, part)?;
        in_pieces(&bytes, dtype, |block, _, scratch| cpu::sums::block(isa, term, dtype, block, scratch))
    };
    match total {
        None if dtype.is_float() => Ok(Scalar::F(0.0)),
        None => Ok(Scalar::U(0)),
        // Which NaN came through would depend on the order of operands.
        Some(Total::Float(sum)) if sum.is_nan() => Ok(Scalar::F(f64::NAN)),
        Some(Total::Float(sum)) => Ok(Scalar::F(sum)),
        Some(Total::Whole(sum)) => match u64::try_from(sum) {
            Ok(sum) => Ok(Scalar::U(sum)),
            Err(_) => Err(Error::Overflow { op, dtype }),
        },
    }
}

/// The results of `block` for the blocks of some whole elements, each given with the bytes that follow, joined in
/// pieces of a fixed length; `None` of no bytes.
fn in_pieces<P: Join + Send>(
    bytes: &[u8],
    dtype: DType,
    block: impl Fn(&[u8], &[u8], &mut Scratch) -> P + Sync,
) -> Option<P> {
    let len = PIECE_BLOCKS * BLOCK * dtype.size();
    let piece = |index: usize| {
        let bytes = &bytes[index * len..];
        of_piece(&bytes[..len.min(bytes.len())], dtype, &block)
    };
    let count = bytes.len().div_ceil(len);
    // A tree of few pieces is on the stack; small work stays on one thread.
    if threads::pieces(bytes.len()) > 1 || count > MAX_STACK_PIECES {
        return threads::fold(count, piece, Join::join).flatten();
    }
    let mut tree = Tree::default();
    (0..count).for_each(|index| tree.push(piece(index)));
    tree.total().flatten()
}

/// Pieces whose tree needs no list on the heap.
const MAX_STACK_PIECES: usize = 64;

fn of_piece<P: Join>(bytes: &[u8], dtype: DType, block: &impl Fn(&[u8], &[u8], &mut Scratch) -> P) -> Option<P> {
    let mut scratch = Scratch::default();
    let mut tree = Tree::default();
    let mut blocks = bytes.chunks(BLOCK * dtype.size()).peekable();
    while let Some(bytes) = blocks.next() {
        let ahead = blocks.peek().copied().unwrap_or(&[]);
        tree.push(block(bytes, ahead, &mut scratch));
    }
    tree.total()
}
