//! Strategies for property tests, here and downstream, behind feature `proptest`: shapes, dims and dtypes.
//! Relies on proptest alone. Failures shrink to fewer axes and to extents of 1; blobs are left to `blobs`.

mod blobs;

use proptest::prelude::*;
use proptest::sample;

use crate::dtype::DType;
use crate::extents::{MAX_AXES, Shape};
use crate::shape::dims7::Dims7;

pub use blobs::{blobs, windows};

/// The extents that most axes get: enough to tell an axis from its neighbours, few enough to have many axes.
const SMALL: usize = 8;

/// Shapes of 0 to `max_axes` axes with a count of at most `max_count`, extents of zero among them. The extents that are
/// not zero multiply to at most `max_count` as well.
///
/// A shape shrinks to fewer axes, then to lesser extents; one of zero to an ordinary one, if that fails too.
///
/// ```
/// use blob_core::strategies::shapes;
/// use proptest::prelude::*;
///
/// proptest!(|(shape in shapes(5, 1000))| {
///     prop_assert!(shape.num_axes() <= 5 && shape.count() <= 1000);
/// });
/// ```
///
/// # Panics
/// When `max_axes` is more than [`MAX_AXES`]; when `max_count` is 0, which not every shape can keep, or more than
/// `isize::MAX`.
pub fn shapes(max_axes: usize, max_count: usize) -> impl Strategy<Value = Shape> {
    assert!(max_axes <= MAX_AXES, "a shape has at most {MAX_AXES} axes");
    let wishes = proptest::collection::vec(extents(max_count), 0..=max_axes);
    wishes.prop_map(move |mut dims| {
        bound(&mut dims, max_count);
        Shape::new(dims).expect("its product is bounded")
    })
}

/// [`Dims7`] with a count of at most `max_count`; drawn, bounded and shrunk as [`shapes`] are.
///
/// # Panics
/// When `max_count` is 0, or more than `isize::MAX`.
pub fn dims7(max_count: usize) -> impl Strategy<Value = Dims7> {
    proptest::array::uniform7(extents(max_count)).prop_map(move |mut dims| {
        bound(&mut dims, max_count);
        Dims7::new(dims).expect("its product is bounded")
    })
}

/// Every [`DType`], shrinking to the first of [`DType::ALL`].
pub fn dtypes() -> impl Strategy<Value = DType> {
    sample::select(DType::ALL)
}

/// Extents before the common bound: small ones first, since a strategy shrinks to its first choice.
fn extents(max_count: usize) -> impl Strategy<Value = usize> + Clone {
    assert!((1..=isize::MAX as usize).contains(&max_count), "the greatest count is 1 to isize::MAX, not {max_count}");
    prop_oneof![
        12 => 1..=SMALL,
        2 => Just(0),
        2 => 1..=max_count,
    ]
}

/// Cuts each extent to the rest that the extents in front leave of the count. A lesser extent stays lesser or equal, so
/// a shape that shrinks before the cut does not grow behind the cut, but for axes that have more room then.
fn bound(dims: &mut [usize], max_count: usize) {
    let mut room = max_count;
    for extent in dims {
        *extent = (*extent).min(room);
        room /= (*extent).max(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::catch_unwind;

    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    const CASES: usize = 2000;

    fn drawn<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>) -> Vec<T> {
        let mut runner = TestRunner::deterministic();
        (0..CASES).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
    }

    /// The least failing value that shrinking finds, for the first value drawn that fails.
    fn least<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>, fails: fn(&T) -> bool) -> T {
        let mut runner = TestRunner::deterministic();
        let mut trees = (0..CASES).map(|_| strategy.new_tree(&mut runner).unwrap());
        let mut tree = trees.find(|tree| fails(&tree.current())).expect("one fails");
        let mut least = tree.current();
        loop {
            let simpler = if fails(&tree.current()) {
                least = tree.current();
                tree.simplify()
            } else {
                tree.complicate()
            };
            if !simpler {
                return least;
            }
        }
    }

    #[test]
    fn shapes_keep_their_bounds_and_reach_them() {
        let shapes = drawn(&shapes(4, 24));
        for shape in &shapes {
            let nonzero: usize = shape.dims().iter().map(|d| d.max(&1)).product();
            assert!(shape.num_axes() <= 4 && nonzero <= 24, "{shape:?}");
        }
        let axes: HashSet<usize> = shapes.iter().map(Shape::num_axes).collect();
        let counts: HashSet<usize> = shapes.iter().map(Shape::count).collect();
        assert_eq!(axes.len(), 5);
        assert!([0, 1, 23, 24].iter().all(|count| counts.contains(count)));
    }

    #[test]
    fn the_widest_bounds_give_valid_shapes() {
        let shapes = drawn(&shapes(MAX_AXES, isize::MAX as usize));
        assert!(shapes.iter().any(|s| s.num_axes() == MAX_AXES));
        assert!(shapes.iter().any(|s| s.count() > usize::MAX / 8));
        assert!(drawn(&super::shapes(3, 1)).iter().all(|s| s.count() <= 1));
    }

    #[test]
    fn shapes_shrink_to_the_fewest_axes_and_the_least_extents() {
        let shapes = shapes(6, 10_000);
        let shape = |dims: &[usize]| Shape::new(dims).unwrap();
        assert_eq!(least(&shapes, |_| true), Shape::default());
        assert_eq!(least(&shapes, |s| s.num_axes() >= 2), shape(&[1, 1]));
        assert_eq!(least(&shapes, |s| s.count() >= 100).count(), 100);
        assert_eq!(least(&shapes, |s| s.count() == 0), shape(&[0]));
        assert_eq!(least(&shapes, |s| s.dims().contains(&5)), shape(&[5]));
    }

    #[test]
    fn dims_keep_their_bounds_and_shrink_to_ones() {
        let dims = dims7(100);
        let drawn = drawn(&dims);
        assert!(drawn.iter().all(|d| d.count() <= 100));
        assert!(drawn.iter().any(|d| d.count() == 100) && drawn.iter().any(|d| d.count() == 0));
        assert_eq!(least(&dims, |_| true), Dims7::default());
        let channels = least(&dims, |d| d[crate::BlobDim::Channels] > 2);
        assert_eq!(channels, Dims7::from_trailing(&[3]).unwrap());
    }

    #[test]
    fn every_dtype_is_drawn() {
        let drawn: HashSet<DType> = drawn(&dtypes()).into_iter().collect();
        assert_eq!(drawn.len(), DType::ALL.len());
        assert_eq!(least(&dtypes(), |_| true), DType::ALL[0]);
    }

    #[test]
    fn bounds_that_no_shape_can_keep_are_refused() {
        let is_refused = |axes, count| catch_unwind(|| drop(shapes(axes, count))).is_err();
        assert!(is_refused(3, 0) && is_refused(3, usize::MAX) && is_refused(MAX_AXES + 1, 1));
        assert!(!is_refused(0, 1));
    }
}
