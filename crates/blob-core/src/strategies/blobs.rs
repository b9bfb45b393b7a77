//! Strategies for blobs with contents, and for windows of them.
//! Relies on `shapes` for the extents, and makes the contents from a seed, so that a blob is drawn and shrunk
//! quickly; the least contents are zeros. Devices are left out: the bytes are on the host.

use std::ops::Range;

use proptest::option;
use proptest::prelude::*;

use super::{dtypes, shapes};
use crate::blob::AnyBlob;
use crate::dtype::DType;
use crate::extents::Shape;

/// Blobs of the shapes of [`shapes`] and of every dtype, with data of arbitrary bytes that are values of the dtype, and
/// with a diff like that or an untouched one.
///
/// A blob shrinks to zeros without a diff, then as the shape does.
///
/// # Panics
/// As [`shapes`]; when a blob cannot be allocated, so `max_count` should be small.
pub fn blobs(max_axes: usize, max_count: usize) -> impl Strategy<Value = AnyBlob> {
    drawn(shapes(max_axes, max_count))
}

/// Blobs as those of [`blobs`], of one axis or more, each with steps of its outermost axis, for
/// [`AnyBlob::window`] and the like.
///
/// ```
/// use blob_core::strategies::windows;
/// use proptest::prelude::*;
///
/// proptest!(|((blob, steps) in windows(3, 100))| {
///     prop_assert_eq!(blob.window(steps.clone())?.steps(), steps);
/// });
/// ```
///
/// # Panics
/// As [`blobs`]; when `max_axes` is 0.
pub fn windows(max_axes: usize, max_count: usize) -> impl Strategy<Value = (AnyBlob, Range<usize>)> {
    assert!(max_axes > 0, "a scalar has no windows");
    let shapes = shapes(max_axes, max_count).prop_map(|shape| match shape.num_axes() {
        0 => Shape::new([1]).expect("one element"),
        _ => shape,
    });
    let cuts = any::<[u32; 2]>();
    (drawn(shapes), cuts).prop_map(|(blob, cuts)| {
        let steps = steps(blob.shape().dims()[0], cuts);
        (blob, steps)
    })
}

/// Two cuts of an axis, each uniform over all places, in order.
fn steps(extent: usize, cuts: [u32; 2]) -> Range<usize> {
    let places = extent as u64 + 1;
    let [a, b] = cuts.map(|cut| (u64::from(cut) % places) as usize);
    a.min(b)..a.max(b)
}

fn drawn(shapes: impl Strategy<Value = Shape>) -> impl Strategy<Value = AnyBlob> {
    let diff = option::of(any::<u64>());
    (shapes, dtypes(), any::<u64>(), diff).prop_map(|(shape, dtype, data, diff)| {
        let bytes = contents(shape.count(), dtype, data);
        let mut blob = AnyBlob::from_vec(shape, dtype, bytes).expect("a blob of its length");
        if let Some(seed) = diff {
            let bytes = contents(blob.count(), dtype, seed);
            let mut diff = blob.diff_mut().overwrite_bytes().expect("no other handle exists");
            diff.copy_from_slice(&bytes);
        }
        blob
    })
}

/// Bytes that are values of the dtype: an xorshift sequence, which from zero stays zero.
fn contents(count: usize, dtype: DType, seed: u64) -> Vec<u8> {
    let mask = if dtype == DType::Bool { 1 } else { 0xFF };
    let mut state = seed;
    let bytes = (0..count * dtype.size()).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & mask
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    fn drawn<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>) -> Vec<T> {
        let mut runner = TestRunner::deterministic();
        (0..1000).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
    }

    #[test]
    fn blobs_of_every_dtype_with_and_without_diffs_hold_values() {
        let blobs = drawn(&blobs(3, 60));
        let dtypes: HashSet<DType> = blobs.iter().map(AnyBlob::dtype).collect();
        assert_eq!(dtypes.len(), DType::ALL.len());
        let diffs = blobs.iter().filter(|blob| blob.has_diff()).count();
        assert!((300..700).contains(&diffs), "{diffs}");
        assert!(blobs.iter().any(|blob| blob.shape().num_axes() == 0));
        let bools = blobs.iter().filter(|blob| blob.dtype() == DType::Bool);
        let trues = bools.map(|blob| blob.data().elements::<bool>().unwrap().iter().filter(|b| **b).count());
        assert!(trues.sum::<usize>() > 100);
        let bytes: HashSet<u8> = blobs.iter().flat_map(|b| b.data().bytes().unwrap().to_vec()).collect();
        assert_eq!(bytes.len(), 256);
    }

    #[test]
    fn windows_lie_in_their_blobs_and_reach_both_ends() {
        let windows = drawn(&windows(3, 60));
        assert!(windows.iter().all(|(blob, steps)| blob.window(steps.clone()).is_ok()));
        let share = |holds: fn(&(AnyBlob, Range<usize>)) -> bool| windows.iter().filter(|w| holds(w)).count();
        assert!(share(|(_, steps)| steps.is_empty()) > 50);
        assert!(share(|(blob, steps)| steps.len() == blob.shape().dims()[0]) > 50);
        assert!(share(|(blob, steps)| steps.start > 0 && steps.end < blob.shape().dims()[0]) > 50);
    }

    #[test]
    fn contents_shrink_to_zeros_and_blobs_to_one_element() {
        let mut runner = TestRunner::deterministic();
        let windows = windows(4, 100);
        let mut tree = windows.new_tree(&mut runner).unwrap();
        while tree.simplify() {}
        let (blob, steps) = tree.current();
        assert_eq!((blob.shape().dims(), steps), (&[1][..], 0..0));
        assert!(!blob.has_diff() && blob.data().bytes().unwrap().iter().all(|byte| *byte == 0));
    }
}
