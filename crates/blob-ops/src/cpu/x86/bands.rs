//! Blocks whose places are equally far apart on both sides, in bands of a line of the destination.
//!
//! ```text
//! for each band of a line of entries y: for each lane of C entries x:
//!     load the lanes of the rows, turn them, store C lines
//! ```
//! Tiles one below the other touch the lines of rows that straddle them twice, the second time when the first-level
//! cache has lost them; rows of a band stay there, and no place is looked up. Over the time of tiles (AMD EPYC Zen 4):
//! 127 × 129 of f32 0.63, f64 0.66, f16 0.68, u8 0.93, 1000² 0.66, 0.74, 0.65, 0.74, 128² 0.80, 0.75, 0.72, 0.91, but
//! bytes whose rows share sets 1.4. Other processors were not measured (benches/record/2026-11-28-moves.md).

#![allow(unsafe_code)]

use super::super::machine::{Block, Fetch, Store};
use super::super::tiles::{LANE, Vector, check, share_sets, start, turn};
use crate::plan::LINE;

/// The whole block; `false`, and nothing is moved, where it is smaller than a band and a lane, or a band gains nothing.
/// A register has `R` entries of `W` bytes, a lane has `C`.
///
/// # Safety
/// The machine has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn bands<V: Vector, const W: usize, const R: usize, const C: usize>(block: &mut Block<'_>) -> bool {
    const { assert!(W * R == V::BYTES && C * W == LANE && C <= 16 && LINE.is_multiple_of(V::BYTES)) };
    let band = const { LINE / W };
    let (xs, ys) = (block.to.len(), block.from.len());
    let (Some(step), Some(apart)) = (stride(block.from), stride(block.to)) else {
        return false;
    };
    let gains = block.store == Store::Cached && block.fetch != Fetch::Asked;
    if xs < C || ys < band || !gains || share_sets::<W>(block.from) || share_sets::<W>(block.to) {
        return false;
    }
    check(block.from, block.src, xs * W);
    check(block.to, block.dst, ys * W);
    let (src, dst) = (block.src.as_ptr().wrapping_add(block.from[0]), block.dst.as_mut_ptr().wrapping_add(block.to[0]));
    for y in 0..ys.div_ceil(band) {
        let y = start(y, ys, band);
        for x in 0..xs.div_ceil(C) {
            let x = start(x, xs, C);
            for register in 0..LINE / V::BYTES {
                // SAFETY: the caller promises the set; `check` has seen both sides, whose places are `step` and `apart`
                // from each other, as `stride` has seen; the block has a line of entries from `y` on, of which this
                // register is a part, and `C` from `x` on.
                unsafe {
                    let rows = src.add((y + register * R) * step + x * W);
                    let lines = turn::<V, W, C>(load_strided::<V, C>(rows, step));
                    let place = dst.add(x * apart + y * W + register * V::BYTES);
                    for (i, line) in lines.into_iter().enumerate() {
                        line.store(place.add(i * apart));
                    }
                }
            }
        }
    }
    true
}

/// How far apart all places are, each behind the one before: kernels go on from the first one.
fn stride(places: &[usize]) -> Option<usize> {
    let &[first, second, ..] = places else {
        return None;
    };
    let step = second.checked_sub(first)?;
    let differs = places.iter().zip(&places[1..]).fold(0, |all, (one, next)| all | (next.wrapping_sub(*one) ^ step));
    (differs == 0).then_some(step)
}

/// A lane from each row, `step` bytes apart, so that lane `l` of register `i` is row `l · C + i`.
///
/// # Safety
/// The machine has the set, and a lane can be read from each of as many rows as a register has entries, from `src` on.
#[inline(always)]
unsafe fn load_strided<V: Vector, const C: usize>(src: *const u8, step: usize) -> [V; C] {
    let row = |i: usize| {
        let i = i % C;
        // SAFETY: the caller promises the set, and a lane to read in row `l · C + i` of each lane `l`.
        unsafe { V::gather(|lane| src.add(lane * C * step).add(i * step)) }
    };
    // As in `load`.
    let all = [
        [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)],
        [row(8), row(9), row(10), row(11), row(12), row(13), row(14), row(15)],
    ];
    *all.as_flattened().first_chunk().expect("at most 16 registers")
}
