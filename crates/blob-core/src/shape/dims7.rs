//! `Dims7`: the seven extents of a NeoML blob, and the ways in which NeoML fills them.
//! Relies on the bounds of `Shape`. Element types and NeoML's archive are left out.

use std::fmt;
use std::ops::Index;

use super::checked_count;
use crate::error::Error;
use crate::extents::Shape;
use crate::names::BlobDim;

/// The axes of every NeoML blob.
const AXES: usize = BlobDim::ALL.len();

/// The first axis of an object; the axes in front count objects (`CBlobDesc::FirstObjectDim`).
const FIRST_OBJECT_AXIS: usize = BlobDim::Height as usize;

/// The extents of a NeoML blob: batch length, batch width, list size, height, width, depth, channels, the last one
/// varying fastest. Products are bounded as in [`Shape`], so that no size overflows.
///
/// Beware of short lists: NeoML aligns those of `CreateTensor`, `CreateVector` and `CreateMatrix` to the left, towards
/// the batch, and that of `CBlobDesc` to the right, towards the channels. Here the names say which.
///
/// ```
/// use blob_core::{BlobDim, Dims7, Shape};
///
/// let images = Dims7::new([2, 3, 1, 4, 5, 1, 6])?; // Create2DImageBlob(2, 3, 4, 5, 6)
/// assert_eq!(images[BlobDim::Height], 4);
/// assert_eq!((images.object_count(), images.object_size(), images.geometric_size()), (6, 120, 20));
/// assert_eq!(Dims7::from_leading(&[2, 3])?.dims(), &[2, 3, 1, 1, 1, 1, 1]);
/// assert_eq!(Dims7::from_trailing(&[2, 3])?.dims(), &[1, 1, 1, 1, 1, 2, 3]);
/// assert_eq!(Shape::from(images).extent(BlobDim::Channels)?, 6);
/// # Ok::<(), blob_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dims7([usize; AXES]);

impl Dims7 {
    /// These extents, in the order of [`BlobDim`]:
    ///
    /// | NeoML | extents |
    /// |---|---|
    /// | `CreateDataBlob(a, b, c)` | `[a, b, 1, 1, 1, 1, c]` |
    /// | `CreateListBlob(a, b, list, c)` | `[a, b, list, 1, 1, 1, c]` |
    /// | `Create2DImageBlob(a, b, height, width, c)` | `[a, b, 1, height, width, 1, c]` |
    /// | `Create3DImageBlob(a, b, height, width, depth, c)` | `[a, b, 1, height, width, depth, c]` |
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`] when the nonzero extents multiply to more than `isize::MAX`.
    #[doc(alias = "CreateDataBlob", alias = "CreateListBlob", alias = "Create2DImageBlob", alias = "Create3DImageBlob")]
    pub fn new(dims: [usize; AXES]) -> Result<Self, Error> {
        checked_count(&dims)?;
        Ok(Self(dims))
    }

    /// These extents from the batch length on, and ones behind them: NeoML's `CreateTensor`, `CreateVector` of one
    /// extent, `CreateMatrix` of two. An empty list is one element.
    ///
    /// # Errors
    /// [`Error::TooManyExtents`]: more than seven; [`Error::ShapeTooLarge`].
    #[doc(alias = "CreateTensor", alias = "CreateVector", alias = "CreateMatrix")]
    pub fn from_leading(extents: &[usize]) -> Result<Self, Error> {
        let mut dims = [1; AXES];
        let leading = dims.get_mut(..extents.len()).ok_or_else(|| too_many(extents))?;
        leading.copy_from_slice(extents);
        Self::new(dims)
    }

    /// These extents up to the channels, and ones in front of them: NeoML's `CBlobDesc({…})`. Of a list of more than
    /// seven NeoML silently keeps the last seven; here that is an error.
    ///
    /// # Errors
    /// [`Error::TooManyExtents`]: more than seven; [`Error::ShapeTooLarge`].
    #[doc(alias = "CBlobDesc")]
    pub fn from_trailing(extents: &[usize]) -> Result<Self, Error> {
        let mut dims = [1; AXES];
        let start = AXES.checked_sub(extents.len()).ok_or_else(|| too_many(extents))?;
        dims[start..].copy_from_slice(extents);
        Self::new(dims)
    }

    /// The same with another extent at one axis (`SetDimSize`).
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`].
    #[doc(alias = "SetDimSize")]
    pub fn with(mut self, axis: BlobDim, extent: usize) -> Result<Self, Error> {
        self.0[axis as usize] = extent;
        Self::new(self.0)
    }

    /// The extents, in the order of [`BlobDim`].
    pub const fn dims(&self) -> &[usize; AXES] {
        &self.0
    }

    /// The number of elements (`BlobSize`).
    #[doc(alias = "BlobSize")]
    pub fn count(&self) -> usize {
        self.0.iter().product()
    }

    /// The number of objects: batch length × batch width × list size.
    #[doc(alias = "ObjectCount")]
    pub fn object_count(&self) -> usize {
        self.0[..FIRST_OBJECT_AXIS].iter().product()
    }

    /// The elements of one object: height × width × depth × channels.
    #[doc(alias = "ObjectSize")]
    pub fn object_size(&self) -> usize {
        self.0[FIRST_OBJECT_AXIS..].iter().product()
    }

    /// The positions of one object: height × width × depth.
    #[doc(alias = "GeometricalSize")]
    pub fn geometric_size(&self) -> usize {
        self.0[FIRST_OBJECT_AXIS..BlobDim::Channels as usize].iter().product()
    }
}

/// The extent of an axis (`DimSize`): `dims[BlobDim::Height]`.
impl Index<BlobDim> for Dims7 {
    type Output = usize;

    fn index(&self, axis: BlobDim) -> &usize {
        &self.0[axis as usize]
    }
}

impl Default for Dims7 {
    /// All ones, as NeoML's `CBlobDesc()`.
    fn default() -> Self {
        Self([1; AXES])
    }
}

impl From<Dims7> for Shape {
    fn from(dims: Dims7) -> Self {
        Shape::new(dims.0).expect("its products were checked when it was made")
    }
}

impl TryFrom<&Shape> for Dims7 {
    type Error = Error;

    /// From a shape of exactly seven axes. For fewer, `Dims7::from_leading(shape.dims())` and
    /// `Dims7::from_trailing(shape.dims())` say where they belong.
    fn try_from(shape: &Shape) -> Result<Self, Error> {
        match shape.dims().try_into() {
            Ok(dims) => Ok(Self(dims)),
            Err(_) => Err(Error::NotSevenAxes { axis: None, shape: shape.clone() }),
        }
    }
}

impl fmt::Display for Dims7 {
    /// `2×3×1×4×5×1×6`, as a [`Shape`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shape::from(*self).fmt(f)
    }
}

impl fmt::Debug for Dims7 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dims7({self})")
    }
}

fn too_many(extents: &[usize]) -> Error {
    Error::TooManyExtents { got: extents.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(BlobDim::ALL.len() == 7 && FIRST_OBJECT_AXIS == 3);

    /// Extents whose every partial product is another number.
    const PRIMES: [usize; 7] = [2, 3, 5, 7, 11, 13, 17];

    fn primes() -> Dims7 {
        Dims7::new(PRIMES).unwrap()
    }

    #[test]
    fn every_name_is_its_axis() {
        let d = primes();
        assert_eq!(BlobDim::ALL.map(|axis| d[axis]), PRIMES);
        assert_eq!((d[BlobDim::BatchLength], d[BlobDim::Height], d[BlobDim::Channels]), (2, 7, 17));
        assert_eq!(d.dims(), &PRIMES);
    }

    #[test]
    fn sizes_are_products_of_their_axes() {
        let d = primes();
        assert_eq!(d.count(), 510_510);
        assert_eq!(d.object_count(), 2 * 3 * 5);
        assert_eq!(d.object_size(), 7 * 11 * 13 * 17);
        assert_eq!(d.geometric_size(), 7 * 11 * 13);
        assert_eq!(Dims7::default().count(), 1);
    }

    #[test]
    fn an_extent_of_zero_empties_the_sizes_that_it_is_in() {
        let d = primes().with(BlobDim::Channels, 0).unwrap();
        let sizes = (d.count(), d.object_count(), d.object_size());
        assert_eq!((sizes, d.geometric_size()), ((0, 30, 0), 7 * 11 * 13));
    }

    #[test]
    fn short_lists_go_where_their_name_says() {
        for len in 0..=7 {
            let list = &PRIMES[..len];
            let leading = Dims7::from_leading(list).unwrap();
            let trailing = Dims7::from_trailing(list).unwrap();
            assert_eq!(&leading.dims()[..len], list);
            assert_eq!(&trailing.dims()[7 - len..], list);
            assert!(leading.dims()[len..].iter().all(|&extent| extent == 1));
            assert!(trailing.dims()[..7 - len].iter().all(|&extent| extent == 1));
        }
        for (len, aligned) in [(8, Dims7::from_leading as fn(&_) -> _), (9, Dims7::from_trailing)] {
            let error = aligned(&vec![1; len]).unwrap_err();
            assert!(matches!(error, Error::TooManyExtents { got } if got == len));
        }
    }

    #[test]
    fn every_constructor_checks_the_product() {
        let max = isize::MAX as usize;
        let big = 1 << (usize::BITS / 2);
        let results = [
            Dims7::new([big, big, 0, 1, 1, 1, 1]),
            Dims7::from_leading(&[max + 1]),
            Dims7::from_leading(&[big, big]),
            Dims7::from_leading(&[big, big]),
            Dims7::from_trailing(&[0, big, big]),
            primes().with(BlobDim::Depth, max),
        ];
        for (number, result) in results.into_iter().enumerate() {
            assert!(matches!(result, Err(Error::ShapeTooLarge { .. })), "{number}");
        }
        assert_eq!(Dims7::from_leading(&[max]).unwrap().count(), max);
    }

    #[test]
    fn with_changes_one_axis_alone() {
        for axis in BlobDim::ALL {
            let mut expected = PRIMES;
            expected[axis as usize] = 19;
            assert_eq!(primes().with(axis, 19).unwrap().dims(), &expected);
        }
    }

    #[test]
    fn shapes_of_seven_axes_are_the_same() {
        let shape = Shape::from(primes());
        assert_eq!(shape.dims(), PRIMES);
        assert_eq!(Dims7::try_from(&shape).unwrap(), primes());
        for num_axes in [0, 6, 8] {
            let shape = Shape::new(vec![1; num_axes]).unwrap();
            match Dims7::try_from(&shape) {
                Err(Error::NotSevenAxes { axis, shape: of }) => {
                    assert!(axis.is_none() && of == shape);
                }
                other => panic!("{num_axes}: {other:?}"),
            }
        }
    }

    #[test]
    fn texts() {
        assert_eq!(format!("{:>14}|", Dims7::default()), " 1×1×1×1×1×1×1|");
        assert_eq!(format!("{:?}", primes()), "Dims7(2×3×5×7×11×13×17)");
    }
}
