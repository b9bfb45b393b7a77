//! Launches for work on each element: arithmetic, fill, conversion and its check, and sums of blocks.
//!
//! Elements in whole pieces of 16 bytes, or groups of 2 or 4, go by vector loads where the addresses allow; the others
//! one by one, in the same launch.

use super::{Limits, Span, blocks};
use crate::cpu::lanes::{BLOCK, Bool, with_element};
use crate::device::params::{Arithmetic, Check, Convert, Fill, Joins, Launch, Params, Sums, THREADS};
use crate::work::{Bounds, Op};
use blob_core::DType;
use half::{bf16, f16};

/// The bytes of a piece.
const PIECE: usize = 16;

/// The operation in the kernels' bits: multiply by alpha, add x, subtract x, flush.
fn bits(op: Op) -> u32 {
    let (times, plus, minus, flush) = (1, 2, 4, 8);
    match op {
        Op::Add => plus,
        Op::FlushedAdd => plus | flush,
        Op::Subtract => minus,
        Op::Axpy => times | plus,
        Op::Scale => times,
    }
}

/// Arithmetic in place; `x` is as long as `y`, and `y` itself where nothing is added.
pub(crate) fn arithmetic(op: Op, dtype: DType, alpha: u64, y: Span, x: Span, limits: Limits) -> Vec<Launch> {
    let size = dtype.size();
    let kernel = match dtype {
        DType::F16 => "arithmetic_f16",
        DType::BF16 => "arithmetic_bf16",
        DType::F32 => "arithmetic_f32",
        DType::F64 => "arithmetic_f64",
        _ => ["arithmetic_w8", "arithmetic_w16", "arithmetic_w32", "arithmetic_w64"][size.ilog2() as usize],
    };
    in_launches(y.len / size, limits.words, |start, count| {
        let (pieces, rest) = if y.is_aligned(PIECE) && x.is_aligned(PIECE) {
            (count * size / PIECE, count % (PIECE / size))
        } else {
            (0, count)
        };
        let at = |span: Span| span.address + (start * size) as u64;
        let params = Params::Arithmetic(Arithmetic {
            y: at(y),
            x: at(x),
            alpha,
            pieces: pieces as u32,
            rest: rest as u32,
            op: bits(op),
            bytes: u32::from(!(y.is_aligned(size) && x.is_aligned(size))),
        });
        Launch { kernel, blocks: blocks(pieces + rest), params }
    })
}

/// The same element, whose bytes are given, over and over.
pub(crate) fn fill(element: &[u8], span: Span, limits: Limits) -> Vec<Launch> {
    in_launches(span.len, limits.words, |start, count| {
        let address = span.address + start as u64;
        let head = (address.wrapping_neg() % PIECE as u64) as usize;
        let head = head.min(count);
        let (pieces, tail) = ((count - head) / PIECE, (count - head) % PIECE);
        let mut pattern = [0; PIECE];
        for (at, byte) in pattern.iter_mut().enumerate() {
            *byte = element[(start + head + at) % element.len()];
        }
        let (low, high) = pattern.split_at(PIECE / 2);
        let word = |half: &[u8]| half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let params = Params::Fill(Fill {
            at: address + head as u64,
            pattern: [word(low), word(high)],
            pieces: pieces as u32,
            head: head as u32,
            tail: tail as u32,
            pad: 0,
        });
        Launch { kernel: "fill", blocks: blocks(pieces + head + tail), params }
    })
}

/// Elements of one dtype to as many of another.
pub(crate) fn convert(source: DType, target: DType, from: Span, to: Span, limits: Limits) -> Vec<Launch> {
    let (wide, narrow) = (source.size(), target.size());
    let group = if wide == 8 || narrow == 8 { 2 } else { 4 };
    let aligned = from.is_aligned(wide * group) && to.is_aligned(narrow * group);
    in_launches(from.len / wide, limits.words, |start, count| {
        let groups = if aligned { count / group } else { 0 };
        let rest = count - groups * group;
        // Four elements a thread.
        let first = blocks((groups * group).div_ceil(4));
        let params = Params::Convert(Convert {
            from: from.address + (start * wide) as u64,
            to: to.address + (start * narrow) as u64,
            groups: groups as u32,
            rest: rest as u32,
            blocks: first,
            source: code(source),
            target: code(target),
            is_long: u32::from(narrow == 8),
            bytes: u32::from(!(from.is_aligned(wide) && to.is_aligned(narrow))),
            pad: 0,
        });
        let kernel =
            of_lane(source, ["convert_i32", "convert_u32", "convert_i64", "convert_u64", "convert_f32", "convert_f64"]);
        Launch { kernel, blocks: first + blocks(rest), params }
    })
}

/// The least index of an element out of these bounds, to the eight bytes at `found`.
pub(crate) fn check(dtype: DType, bounds: Bounds, from: Span, found: u64, limits: Limits) -> Vec<Launch> {
    let size = dtype.size();
    let group = if size == 8 { 2 } else { 4 };
    let aligned = from.is_aligned(size * group);
    in_launches(from.len / size, limits.words, |start, count| {
        let groups = if aligned { count / group } else { 0 };
        let rest = count - groups * group;
        let params = Params::Check(Check {
            from: from.address + (start * size) as u64,
            found,
            start: start as u64,
            low: bounds.low,
            high: bounds.high,
            groups: groups as u32,
            rest: rest as u32,
            source: code(dtype),
            is_whole: bounds.is_whole.into(),
            bytes: u32::from(!from.is_aligned(size)),
            pad: 0,
        });
        let kernel = of_lane(dtype, ["check_i32", "check_u32", "check_i64", "check_u64", "check_f32", "check_f64"]);
        Launch { kernel, blocks: blocks(groups + rest), params }
    })
}

/// The bytes that the sum of a block has.
pub(crate) fn sum_len(dtype: DType) -> usize {
    if dtype.is_float() { 8 } else { 16 }
}

/// The sums of many blocks become as many as this: one for each [`THREADS`] of them, in the host's tree. Few are left
/// alone, `None`: a launch takes longer than the host's additions.
pub(crate) fn joined(blocks: usize) -> Option<usize> {
    (blocks > THREADS as usize).then(|| blocks.div_ceil(THREADS as usize))
}

/// The sums of the blocks of some elements, one behind the other; behind them these joined, where there are many.
pub(crate) fn sums(dtype: DType, square: bool, from: Span, to: Span, limits: Limits) -> Vec<Launch> {
    let size = dtype.size();
    let kernel = match dtype {
        DType::F16 => "sums_f16",
        DType::BF16 => "sums_bf16",
        DType::F32 => "sums_f32",
        DType::F64 => "sums_f64",
        _ => ["sums_w8", "sums_w16", "sums_w32", "sums_w64"][size.ilog2() as usize],
    };
    // Blocks that one block of threads sums, and the bytes that a load takes.
    let (each, load) = match (dtype.is_float(), size) {
        (true, 2) => (2, 4),
        (true, _) => (1, size),
        (false, _) => (1, PIECE),
    };
    let count = from.len / size;
    let mut all = in_launches(count, limits.words.next_multiple_of(2 * BLOCK), |start, count| {
        let params = Params::Sums(Sums {
            from: from.address + (start * size) as u64,
            to: to.address + (start / BLOCK * sum_len(dtype)) as u64,
            count: count as u64,
            square: square.into(),
            scattered: u32::from(!from.is_aligned(load)),
            bytes: u32::from(!from.is_aligned(size)),
            is_signed: u32::from(matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)),
        });
        Launch { kernel, blocks: count.div_ceil(BLOCK * each) as u32, params }
    });
    let blocks = count.div_ceil(BLOCK);
    all.extend(joined(blocks).map(|results| {
        let kernel = if dtype.is_float() { "join_floats" } else { "join_integers" };
        let behind = to.address + (blocks * sum_len(dtype)) as u64;
        let params = Params::Joins(Joins { from: to.address, to: behind, count: blocks as u64 });
        Launch { kernel, blocks: results as u32, params }
    }));
    all
}

/// Launches for at most `most` elements each, made of the first and the number; starts are multiples of `most`.
fn in_launches(count: usize, most: usize, launch: impl Fn(usize, usize) -> Launch) -> Vec<Launch> {
    (0..count).step_by(most).map(|start| launch(start, most.min(count - start))).collect()
}

/// A dtype as the kernels know one.
trait Coded {
    /// The number in `kernels/common.cuh`.
    const CODE: u32;
    /// The lane that holds the dtype exactly: i32, u32, i64, u64, f32 or f64.
    const LANE: usize;
}

macro_rules! coded {
    ($($element:ty: $code:literal, $lane:literal;)*) => { $(
        impl Coded for $element {
            const CODE: u32 = $code;
            const LANE: usize = $lane;
        }
    )* };
}
coded! {
    Bool: 0, 0;
    u8: 1, 0;
    i8: 2, 0;
    u16: 3, 0;
    i16: 4, 0;
    u32: 5, 1;
    i32: 6, 0;
    u64: 7, 3;
    i64: 8, 2;
    f16: 9, 4;
    bf16: 10, 4;
    f32: 11, 4;
    f64: 12, 5;
}

fn code(dtype: DType) -> u32 {
    with_element!(dtype, E => E::CODE)
}

fn of_lane(dtype: DType, names: [&'static str; 6]) -> &'static str {
    names[with_element!(dtype, E => E::LANE)]
}
