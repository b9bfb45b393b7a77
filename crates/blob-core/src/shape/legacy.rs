//! Caffe's legacy accessors: a shape of up to four axes, padded with ones to num, channels, height and width.
//! Relies on the shape's bounds, and does not repeat upstream's, which let an index one past the end through.

use crate::error::Error;
use crate::extents::Shape;
use crate::names::Nchw;

/// The axes of a legacy blob.
const LEGACY_AXES: usize = Nchw::ALL.len();

impl Shape {
    /// The extents with ones put behind them: `num()`, `channels()`, `height()` and `width()` of a Caffe blob. Of a
    /// shape of these [`offset`](Self::offset) is Caffe's `offset(n, c, h, w)`, but every index must lie inside: Caffe
    /// also takes negative ones and one past the end of an axis. Where code walks with that, as `offset(0, 1)` does,
    /// [`stride`](Self::stride) is meant.
    ///
    /// ```
    /// let bias = blob_core::Shape::new([7, 6])?;
    /// assert_eq!(bias.legacy_pad_right()?, [7, 6, 1, 1]);
    /// assert_eq!(bias.legacy_pad_left()?, [1, 1, 7, 6]);
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyAxesForLegacy`]: more than four axes.
    pub fn legacy_pad_right(&self) -> Result<[usize; 4], Error> {
        let dims = self.legacy_dims()?;
        let mut padded = [1; LEGACY_AXES];
        padded[..dims.len()].copy_from_slice(dims);
        Ok(padded)
    }

    /// The extents with ones put in front, as Caffe compares with a legacy `BlobProto` (`ShapeEquals`), whose
    /// bias of 6 values is 1 × 1 × 1 × 6.
    ///
    /// # Errors
    /// [`Error::TooManyAxesForLegacy`]: more than four axes.
    pub fn legacy_pad_left(&self) -> Result<[usize; 4], Error> {
        let dims = self.legacy_dims()?;
        let mut padded = [1; LEGACY_AXES];
        padded[LEGACY_AXES - dims.len()..].copy_from_slice(dims);
        Ok(padded)
    }

    /// Caffe's `LegacyShape`, whose padding depends on the sign: an index of 0 to 3 is of
    /// [`legacy_pad_right`](Self::legacy_pad_right), one of −4 to −1 of [`legacy_pad_left`](Self::legacy_pad_left).
    ///
    /// # Errors
    /// [`Error::TooManyAxesForLegacy`]; [`Error::LegacyAxisOutOfRange`]: an index outside of −4 to 3.
    pub fn legacy_extent(&self, axis: i32) -> Result<usize, Error> {
        self.legacy_dims()?;
        match axis {
            0..4 => Ok(self.legacy_pad_right()?[axis as usize]),
            -4..0 => Ok(self.legacy_pad_left()?[(axis + 4) as usize]),
            _ => Err(Error::LegacyAxisOutOfRange { axis }),
        }
    }

    fn legacy_dims(&self) -> Result<&[usize], Error> {
        if self.num_axes() <= LEGACY_AXES {
            return Ok(self.dims());
        }
        Err(Error::TooManyAxesForLegacy { shape: self.clone() })
    }
}
