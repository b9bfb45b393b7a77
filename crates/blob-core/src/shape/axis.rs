//! `Axis`: the ways to say which axis of a shape is meant. By number, from the end, or by the names of Caffe or NeoML.
//! Relies on the number of axes alone; names of other layouts, and the meaning of an axis to a layer, are left out.

use std::fmt;

use crate::error::Error;
use crate::extents::Shape;
use crate::names::{BlobDim, Nchw};

/// A name of an axis of a shape: `2usize`, `2`, `-1`, [`Nchw::Channels`], [`BlobDim::Height`]. Sealed.
///
/// ```
/// use blob_core::{Nchw, Shape};
///
/// let shape = Shape::new([2, 3, 4, 5])?;
/// assert_eq!((shape.axis(1)?, shape.axis(-1)?, shape.axis(Nchw::Height)?), (1, 3, 2));
/// let error = shape.axis(4).unwrap_err().to_string();
/// assert_eq!(error, "axis 4 out of range for 4-D Blob with shape 2 3 4 5 (120); wanted -4 to 3");
/// # Ok::<(), blob_core::Error>(())
/// ```
pub trait Axis: sealed::Sealed + Copy + fmt::Debug {
    /// The axis as a number from the left; [`Shape::axis`] is the usual way to call this.
    ///
    /// # Errors
    /// [`Error::AxisOutOfRange`], [`Error::NoNchwAxis`], [`Error::TooManyAxesForLegacy`] or [`Error::NotSevenAxes`]:
    /// the shape has no such axis.
    fn resolve(self, shape: &Shape) -> Result<usize, Error>;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for usize {}
    impl Sealed for i32 {}
    impl Sealed for super::Nchw {}
    impl Sealed for super::BlobDim {}
}

/// From the left, `0 <= axis < n`.
impl Axis for usize {
    fn resolve(self, shape: &Shape) -> Result<usize, Error> {
        if self < shape.num_axes() {
            return Ok(self);
        }
        Err(Error::AxisOutOfRange { axis: i64::try_from(self).unwrap_or(i64::MAX), shape: shape.clone() })
    }
}

/// From the left, or from the end where it is negative: `-n <= axis < n`, as Caffe's `CanonicalAxisIndex`.
/// The type of a literal.
impl Axis for i32 {
    fn resolve(self, shape: &Shape) -> Result<usize, Error> {
        let distance = self.unsigned_abs() as usize;
        let found = if self < 0 {
            shape.num_axes().checked_sub(distance)
        } else {
            Some(distance).filter(|&axis| axis < shape.num_axes())
        };
        found.ok_or_else(|| Error::AxisOutOfRange { axis: self.into(), shape: shape.clone() })
    }
}

/// In shapes of up to four axes.
impl Axis for Nchw {
    fn resolve(self, shape: &Shape) -> Result<usize, Error> {
        if shape.num_axes() > Self::ALL.len() {
            return Err(Error::TooManyAxesForLegacy { shape: shape.clone() });
        }
        let axis = self as usize;
        if axis < shape.num_axes() {
            return Ok(axis);
        }
        Err(Error::NoNchwAxis { axis: self, shape: shape.clone() })
    }
}

/// In shapes of exactly seven axes.
impl Axis for BlobDim {
    fn resolve(self, shape: &Shape) -> Result<usize, Error> {
        if shape.num_axes() == Self::ALL.len() {
            return Ok(self as usize);
        }
        Err(Error::NotSevenAxes { axis: Some(self), shape: shape.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones(num_axes: usize) -> Shape {
        Shape::new(vec![1; num_axes]).unwrap()
    }

    #[test]
    fn the_largest_and_smallest_numbers_are_errors_that_name_them() {
        let shape = ones(3);
        for (error, named) in [
            (shape.axis(i32::MIN), i64::from(i32::MIN)),
            (shape.axis(i32::MAX), i64::from(i32::MAX)),
            (shape.axis(usize::MAX), i64::MAX),
        ] {
            match error {
                Err(Error::AxisOutOfRange { axis, shape: of }) => {
                    assert_eq!((axis, &of), (named, &shape));
                }
                other => panic!("{named}: {other:?}"),
            }
        }
    }

    #[test]
    fn caffes_names_go_from_the_left_in_up_to_four_axes() {
        for n in 0..=8 {
            let shape = ones(n);
            for (number, name) in Nchw::ALL.into_iter().enumerate() {
                match shape.axis(name) {
                    Ok(axis) => assert!(axis == number && number < n && n <= 4),
                    Err(Error::TooManyAxesForLegacy { shape: of }) => assert!(n > 4 && of == shape),
                    Err(Error::NoNchwAxis { axis, shape: of }) => {
                        assert!(axis == name && of == shape && n <= 4 && number >= n);
                    }
                    Err(other) => panic!("{name} of {n}: {other}"),
                }
            }
        }
    }

    #[test]
    fn neomls_names_need_seven_axes() {
        for n in 0..=8 {
            let shape = ones(n);
            for (number, name) in BlobDim::ALL.into_iter().enumerate() {
                match shape.axis(name) {
                    Ok(axis) => assert_eq!((axis, n), (number, 7)),
                    Err(Error::NotSevenAxes { axis, shape: of }) => {
                        assert!(n != 7 && axis == Some(name) && of == shape);
                    }
                    Err(other) => panic!("{name} of {n}: {other}"),
                }
            }
        }
    }

    #[test]
    fn names_are_shown_as_they_are_written() {
        for name in Nchw::ALL {
            assert_eq!(name.to_string(), format!("{name:?}"));
        }
        for name in BlobDim::ALL {
            assert_eq!(name.to_string(), format!("{name:?}"));
        }
        assert_eq!(format!("{:>6}|{:<6}|", Nchw::Num, BlobDim::Depth), "   Num|Depth |");
    }
}
