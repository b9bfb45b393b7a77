//! Values that lie in a producer's memory by strides, copied row after row. Knows nothing of DLPack's structs.

use std::ptr::{self, NonNull};

use blob_convert::Watch;
use blob_io::Error;

/// How much is copied between two looks at signals.
const PIECE: usize = 1 << 20;

/// Runs of bytes at equal distances along each of some axes, the outermost first.
pub(super) struct Strided {
    start: NonNull<u8>,
    axes: Vec<Axis>,
    /// The bytes of a run.
    run: usize,
}

/// `count` places, 2 or more, that lie `step` bytes apart.
struct Axis {
    count: usize,
    step: isize,
}

// SAFETY: an address and numbers; `Strided::new` has the promise that any thread may read the elements.
unsafe impl Send for Strided {}
// SAFETY: an address and numbers; `Strided::new` has the promise that any thread may read the elements.
unsafe impl Sync for Strided {}

impl Strided {
    /// Elements of `size` bytes, one or more, with their strides in elements; row-major without strides. `None` where
    /// an address wraps.
    ///
    /// # Safety
    /// An element lies at each place that the strides lead to from `start` within the extents. Any thread may read
    /// the elements, until the value was used for the last time.
    pub(super) unsafe fn new(start: NonNull<u8>, dims: &[usize], strides: Option<&[i64]>, size: usize) -> Option<Self> {
        let (mut axes, mut run, mut is_run) = (Vec::new(), size, true);
        let (mut lowest, mut highest, mut row) = (0_isize, 0_isize, size);
        for (axis, count) in dims.iter().enumerate().rev().filter(|(_, count)| **count > 1) {
            let step = match strides {
                Some(strides) => isize::try_from(strides[axis]).ok()?.checked_mul(isize::try_from(size).ok()?)?,
                None => isize::try_from(row).ok()?,
            };
            row = row.checked_mul(*count)?;
            let reach = isize::try_from(count - 1).ok()?.checked_mul(step)?;
            lowest = lowest.checked_add(reach.min(0))?;
            highest = highest.checked_add(reach.max(0))?;
            is_run &= usize::try_from(step) == Ok(run);
            if is_run {
                run = run.checked_mul(*count)?;
            } else {
                axes.push(Axis { count: *count, step });
            }
        }
        axes.reverse();
        let end = highest.checked_add(isize::try_from(size).ok()?)?;
        start.addr().get().checked_add_signed(lowest)?;
        start.addr().get().checked_add_signed(end)?;
        Some(Self { start, axes, run })
    }

    /// Whether all elements are one run.
    pub(super) fn is_plain(&self) -> bool {
        self.axes.is_empty()
    }

    /// Copies the elements into `out`, which has their length.
    pub(super) fn copy(&self, watch: &dyn Watch, out: &mut [u8]) -> Result<(), Error> {
        let (mut index, mut at, mut unseen) = (vec![0; self.axes.len()], 0_isize, 0);
        let count = self.axes.iter().try_fold(self.run, |len, axis| len.checked_mul(axis.count));
        assert_eq!(Some(out.len()), count, "the length of all elements");
        for run in out.chunks_exact_mut(self.run) {
            for (number, piece) in run.chunks_mut(PIECE).enumerate() {
                // SAFETY: `at` is the way to the element that the index names, which is within the extents, and the
                // rest of the run lies behind, by the strides of the inner axes. `new` has proved that no such way
                // wraps, and has the promise that the elements may be read. `out` is ours alone.
                unsafe {
                    let from = self.start.as_ptr().offset(at).add(number * PIECE);
                    ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), piece.len());
                }
                unseen += piece.len();
                if unseen >= PIECE {
                    watch.step(unseen as u64)?;
                    unseen = 0;
                }
            }
            for (axis, index) in self.axes.iter().zip(&mut index).rev() {
                if *index + 1 < axis.count {
                    *index += 1;
                    at += axis.step;
                    break;
                }
                at -= axis.step * *index as isize;
                *index = 0;
            }
        }
        Ok(())
    }
}
