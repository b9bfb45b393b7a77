//! Shapes: extents of a tensor, row-major, with a count that is known to fit; all that can fail stands here.
//! Relies on `extents` for the type and on `axis` for the ways to name an axis; knows no element type and no
//! memory.

pub(crate) mod axis;
pub(crate) mod dims7;
mod legacy;

use std::ops::{Bound, Range, RangeBounds};

use axis::Axis;

use crate::error::Error;
use crate::extents::{MAX_AXES, Shape};

impl Shape {
    /// A shape of these extents.
    ///
    /// # Errors
    /// [`Error::TooManyAxes`]; [`Error::ShapeTooLarge`] when the nonzero extents multiply to more than `isize::MAX`.
    pub fn new(dims: impl AsRef<[usize]>) -> Result<Self, Error> {
        let dims = dims.as_ref();
        if dims.len() > MAX_AXES {
            return Err(Error::TooManyAxes { got: dims.len() });
        }
        let count = checked_count(dims)?;
        Ok(Self { dims: dims.into(), count })
    }

    /// The axis as a number from the left: Caffe's `CanonicalAxisIndex`, also for names.
    ///
    /// # Errors
    /// That of [`Axis::resolve`]: the shape has no such axis.
    pub fn axis(&self, axis: impl Axis) -> Result<usize, Error> {
        axis.resolve(self)
    }

    /// The extent of an axis.
    ///
    /// # Errors
    /// That of [`Axis::resolve`]: the shape has no such axis.
    pub fn extent(&self, axis: impl Axis) -> Result<usize, Error> {
        Ok(self.dims[axis.resolve(self)?])
    }

    /// How many elements lie between one index of an axis and the next: the product of the later extents.
    /// So 1 for the last axis, and 0 where a later axis is empty.
    ///
    /// # Errors
    /// That of [`Axis::resolve`]: the shape has no such axis.
    pub fn stride(&self, axis: impl Axis) -> Result<usize, Error> {
        let behind = axis.resolve(self)? + 1;
        Ok(self.dims[behind..].iter().product())
    }

    /// The product of the extents of some axes, 1 where there are none: Caffe's `count(start, end)` and `count(start)`.
    ///
    /// ```
    /// let shape = blob_core::Shape::new([2, 3, 4, 5])?;
    /// assert_eq!((shape.count_range(1..3)?, shape.count_range(2..)?, shape.count_range(4..)?), (12, 20, 1));
    /// assert!(shape.count_range(3..5).is_err());
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AxesOutOfRange`]: the range starts behind its end, or ends behind the last axis.
    pub fn count_range(&self, axes: impl RangeBounds<usize>) -> Result<usize, Error> {
        Ok(self.dims[self.axes(axes)?].iter().product())
    }

    /// The offset of an element in memory, in elements. Indices that are not given are 0, as in Caffe, and are not
    /// checked: where the shape has no elements, where elements would begin.
    ///
    /// ```
    /// let shape = blob_core::Shape::new([2, 3, 4])?;
    /// assert_eq!((shape.offset(&[1, 2, 3])?, shape.offset(&[1])?), (23, 12));
    /// assert_eq!(shape.index(23)?, [1, 2, 3]);
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyIndices`]; [`Error::IndexOutOfRange`], which names the first axis where an index is too large.
    pub fn offset(&self, index: &[usize]) -> Result<usize, Error> {
        if index.len() > self.num_axes() {
            return Err(Error::TooManyIndices { got: index.len(), shape: self.clone() });
        }
        linear(self.dims.iter().copied(), index)
    }

    /// The index of the element at an offset, an entry for each axis: the inverse of [`offset`](Self::offset).
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`]: the offset is not below the count.
    pub fn index(&self, offset: usize) -> Result<Vec<usize>, Error> {
        if offset >= self.count {
            return Err(Error::OffsetOutOfRange { offset, shape: self.clone() });
        }
        let mut index = vec![0; self.num_axes()];
        let mut rest = offset;
        // The count is above 0, and so is every extent.
        for (index, extent) in index.iter_mut().zip(self.dims()).rev() {
            *index = rest % extent;
            rest /= extent;
        }
        Ok(index)
    }

    /// The shape with another extent at one axis.
    ///
    /// # Errors
    /// That of [`Axis::resolve`]; [`Error::ShapeTooLarge`].
    pub fn with_extent(&self, axis: impl Axis, extent: usize) -> Result<Self, Error> {
        let axis = axis.resolve(self)?;
        let mut dims = self.dims.to_vec();
        dims[axis] = extent;
        Self::new(dims)
    }

    /// The shape with one axis in place of some neighbours, as long as their product: of the same count and order.
    /// An empty range puts an axis of extent 1 there.
    ///
    /// ```
    /// let shape = blob_core::Shape::new([2, 3, 4, 5])?;
    /// assert_eq!(shape.collapse(..3)?.dims(), [24, 5]);
    /// assert_eq!(shape.collapse(4..)?.dims(), [2, 3, 4, 5, 1]);
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AxesOutOfRange`]; [`Error::TooManyAxes`], where an empty range would add one.
    pub fn collapse(&self, axes: impl RangeBounds<usize>) -> Result<Self, Error> {
        let axes = self.axes(axes)?;
        let collapsed: usize = self.dims[axes.clone()].iter().product();
        let (before, behind) = (&self.dims[..axes.start], &self.dims[axes.end..]);
        Self::new([before, &[collapsed], behind].concat())
    }

    /// The axes of a range, all there.
    fn axes(&self, axes: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let Range { start, end } = bounds(axes, self.num_axes());
        if start <= end && end <= self.num_axes() {
            return Ok(start..end);
        }
        Err(Error::AxesOutOfRange { start, end, shape: self.clone() })
    }
}

/// The product of the extents, where that of the nonzero ones is at most `isize::MAX`.
pub(crate) fn checked_count(dims: &[usize]) -> Result<usize, Error> {
    let mut product = 1usize;
    for (axis, &extent) in dims.iter().enumerate() {
        product = product
            .checked_mul(extent.max(1))
            .filter(|&product| product <= isize::MAX as usize)
            .ok_or_else(|| Error::ShapeTooLarge { axis, dims: dims.to_vec() })?;
    }
    Ok(if dims.contains(&0) { 0 } else { product })
}

/// The first of a range and the one behind its last, out of `count`. A bound past `usize::MAX` saturates.
pub(crate) fn bounds(range: impl RangeBounds<usize>, count: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&behind) => behind,
        Bound::Unbounded => count,
    };
    start..end
}

/// The offset of an index, row-major; entries behind the index's last are 0. The extents are those of a shape, so that
/// nothing overflows, and are no fewer than the indices.
pub(crate) fn linear(extents: impl Iterator<Item = usize>, index: &[usize]) -> Result<usize, Error> {
    let mut offset = 0;
    for (axis, extent) in extents.enumerate() {
        offset *= extent;
        match index.get(axis) {
            None => {}
            Some(&index) if index < extent => offset += index,
            Some(&index) => {
                return Err(Error::IndexOutOfRange { axis, index, extent });
            }
        }
    }
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::strategies::shapes;

    const _: () = assert!(size_of::<Shape>() <= 3 * size_of::<usize>());

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    /// Every triple of awkward extents, against arithmetic that cannot overflow.
    #[test]
    fn the_product_is_checked_also_past_a_zero() {
        let max = isize::MAX as usize;
        let extents = [0, 1, 2, 3, 1 << 16, 1 << 21, 1 << 31, max / 2, max, max + 1];
        for a in extents {
            for b in extents {
                for c in extents {
                    let dims = [a, b, c];
                    let mut product = 1u128;
                    let overflow = dims.iter().position(|&extent| {
                        product = product.saturating_mul(extent.max(1) as u128);
                        product > max as u128
                    });
                    match (Shape::new(dims), overflow) {
                        (Ok(shape), None) => {
                            assert_eq!(shape.count() as u128, dims.map(|d| d as u128).iter().product());
                        }
                        (Err(Error::ShapeTooLarge { axis, dims: named }), Some(expected)) => {
                            assert_eq!((axis, &named[..]), (expected, &dims[..]));
                        }
                        (result, overflow) => panic!("{dims:?}: {result:?}, {overflow:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn texts() {
        assert_eq!(shape(&[2, 3, 4, 5]).shape_string(), "2 3 4 5 (120)");
        assert_eq!(shape(&[]).shape_string(), "(1)");
        assert_eq!(shape(&[10, 0]).shape_string(), "10 0 (0)");
        assert_eq!(shape(&[2, 3, 4, 5]).to_string(), "2×3×4×5");
        assert_eq!(shape(&[9]).to_string(), "9");
        assert_eq!(shape(&[]).to_string(), "scalar");
        assert_eq!(format!("[{:>8}]", shape(&[2, 3])), "[     2×3]");
        assert_eq!(format!("{:?}", shape(&[2, 3])), "Shape(2×3)");
    }

    #[test]
    fn strides_by_hand() {
        for (dims, strides) in
            [(&[7][..], &[1][..]), (&[2, 3, 4, 5], &[60, 20, 5, 1]), (&[2, 0, 4], &[0, 4, 1]), (&[0, 0], &[0, 1])]
        {
            let shape = shape(dims);
            for (axis, &stride) in strides.iter().enumerate() {
                assert_eq!(shape.stride(axis).unwrap(), stride, "axis {axis} of {shape}");
                assert_eq!(shape.extent(axis).unwrap(), dims[axis]);
            }
        }
        assert!(Shape::default().stride(0).is_err() && Shape::default().extent(0).is_err());
        assert_eq!(shape(&[2, 3, 4]).stride(-2).unwrap(), 4);
    }

    #[test]
    fn ranges_of_axes_in_every_form() {
        let shape = shape(&[2, 3, 5, 7]);
        for (count, expected) in [
            (shape.count_range(..), 210),
            (shape.count_range(1..3), 15),
            (shape.count_range(1..=3), 105),
            (shape.count_range(..2), 6),
            (shape.count_range((Bound::Excluded(0), Bound::Unbounded)), 105),
            (shape.count_range(4..4), 1),
            (Shape::default().count_range(0..0), 1),
        ] {
            assert_eq!(count.unwrap(), expected);
        }
        let behind = (Bound::Excluded(usize::MAX), Bound::Unbounded);
        for (count, bounds) in [
            (shape.count_range(Range { start: 3, end: 2 }), (3, 2)),
            (shape.count_range(0..5), (0, 5)),
            (shape.count_range(5..), (5, 4)),
            (shape.count_range(..=usize::MAX), (0, usize::MAX)),
            (shape.count_range(behind), (usize::MAX, 4)),
        ] {
            match count {
                Err(Error::AxesOutOfRange { start, end, .. }) => assert_eq!((start, end), bounds),
                other => panic!("{bounds:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_shape_without_elements_has_no_index() {
        let empty = shape(&[3, 0, 1 << 31]);
        assert!(matches!(empty.index(0), Err(Error::OffsetOutOfRange { .. })));
        assert!(empty.offset(&[2, 0]).is_err());
        assert_eq!(empty.offset(&[2]).unwrap(), 0);
    }

    #[test]
    fn with_extent_checks_the_product_again() {
        let two = shape(&[2, 3]);
        assert_eq!(two.with_extent(-1, 7).unwrap(), shape(&[2, 7]));
        assert_eq!(two.with_extent(0usize, 0).unwrap().count(), 0);
        let error = two.with_extent(1, usize::MAX).unwrap_err();
        assert!(matches!(error, Error::ShapeTooLarge { axis: 1, .. }));
        assert!(two.with_extent(2, 1).is_err());
    }

    #[test]
    fn collapse_may_not_go_past_32_axes() {
        let full = shape(&[1; MAX_AXES]);
        assert!(matches!(full.collapse(5..5), Err(Error::TooManyAxes { got: 33 })));
        assert_eq!(full.collapse(5..6).unwrap(), full);
        assert_eq!(full.collapse(..).unwrap(), shape(&[1]));
    }

    proptest! {
        #[test]
        fn index_and_offset_are_inverse(
            (shape, offset) in shapes(6, 4096)
                .prop_filter("it has elements", |shape| shape.count() > 0)
                .prop_flat_map(|shape| { let count = shape.count(); (Just(shape), 0..count) }),
        ) {
            let index = shape.index(offset).unwrap();
            prop_assert_eq!(index.len(), shape.num_axes());
            prop_assert_eq!(shape.offset(&index).unwrap(), offset);
            let strides = (0..shape.num_axes()).map(|axis| shape.stride(axis).unwrap());
            prop_assert_eq!(index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>(), offset);
        }

        #[test]
        fn offsets_count_up_in_the_order_of_the_indices(shape in shapes(4, 300)) {
            let indices: Vec<_> = (0..shape.count()).map(|o| shape.index(o).unwrap()).collect();
            prop_assert!(indices.is_sorted_by(|a, b| a < b));
        }

        #[test]
        fn collapse_keeps_the_count_and_the_axes_around(
            shape in shapes(6, 4096), a in 0..7usize, b in 0..7usize,
        ) {
            let (start, end) = (a.min(b), a.max(b));
            match shape.collapse(start..end) {
                Ok(collapsed) => {
                    prop_assert_eq!(collapsed.count(), shape.count());
                    prop_assert_eq!(&collapsed.dims()[..start], &shape.dims()[..start]);
                    prop_assert_eq!(&collapsed.dims()[start + 1..], &shape.dims()[end..]);
                }
                Err(error) => {
                    let named = matches!(error, Error::AxesOutOfRange { .. });
                    prop_assert!(named && end > shape.num_axes());
                }
            }
        }
    }

    #[test]
    fn equality_is_of_extents_not_of_counts() {
        let shapes = [shape(&[6]), shape(&[2, 3]), shape(&[3, 2]), shape(&[6, 1])];
        assert_eq!(HashSet::from(shapes).len(), 4);
        assert_eq!(shape(&[2, 3]), shape(&[2, 3]).clone());
    }
}
