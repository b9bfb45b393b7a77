//! Buffers: guards over a range of a blob's elements on the host, in NeoML's three modes (`CDnnBlobBuffer`).
//! Reading and updating bring the range to the host and nothing else; writing brings nothing. Whatever was written is
//! the newest everywhere from then on, so there is no mode for giving back. It relies on `part` for the access.

use std::ops::Range;

use crate::part::Part;
use crate::{AnyBlob, Blob, Element, Error, Ref, RefMut};

/// # Buffers
///
/// A range counts elements of the whole blob, and is honoured wherever the bytes are. Guards are given back by dropping
/// them, in any order. For several that write at once, split one (`split_at_mut`) or use a [`Window`](crate::Window)
/// each.
///
/// ```
/// use blob_core::{AnyBlob, DType, Shape};
///
/// let mut blob = AnyBlob::new(Shape::new([2, 3])?, DType::F32)?;
/// blob.write::<f32>(3..6)?.copy_from_slice(&[1.0, 2.0, 3.0]);
/// blob.update::<f32>(4..5)?[0] += 10.0;
/// assert_eq!(*blob.read::<f32>(2..6)?, [0.0, 1.0, 12.0, 3.0]);
/// let error = blob.read::<f32>(4..7).unwrap_err().to_string();
/// assert_eq!(error, "elements 4..7 out of range; there are 6");
/// # Ok::<(), blob_core::Error>(())
/// ```
impl AnyBlob {
    /// Some elements of the data, for reading.
    ///
    /// # Errors
    /// [`Error::ElementsOutOfRange`]; as [`data`](Self::data).
    pub fn read<T: Element>(&self, range: Range<usize>) -> Result<Ref<'_, [T]>, Error> {
        Part::of_data(self).elements(range)?.read()
    }

    /// Some elements of the data, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// [`Error::ElementsOutOfRange`]; as [`data_overwrite`](Self::data_overwrite).
    pub fn write<T: Element>(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_data(self).elements(range)?.overwrite()
    }

    /// Some elements of the data, for reading and writing.
    ///
    /// # Errors
    /// [`Error::ElementsOutOfRange`]; as [`data_mut`](Self::data_mut).
    pub fn update<T: Element>(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_data(self).elements(range)?.write()
    }

    /// Some elements of the diff, for reading.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_diff<T: Element>(&self, range: Range<usize>) -> Result<Ref<'_, [T]>, Error> {
        Part::of_diff(self).elements(range)?.read()
    }

    /// Some elements of the diff, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_diff<T: Element>(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_diff(self).elements(range)?.overwrite()
    }

    /// Some elements of the diff, for reading and writing.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_diff<T: Element>(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_diff(self).elements(range)?.write()
    }
}

/// # Buffers
///
/// As those of [`AnyBlob`](AnyBlob#buffers).
impl<T: Element> Blob<T> {
    /// Some elements of the data, for reading.
    ///
    /// # Errors
    /// As [`AnyBlob::read`].
    pub fn read(&self, range: Range<usize>) -> Result<Ref<'_, [T]>, Error> {
        Part::of_data(self).elements(range)?.read()
    }

    /// Some elements of the data, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`AnyBlob::write`].
    pub fn write(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_data(self).elements(range)?.overwrite()
    }

    /// Some elements of the data, for reading and writing.
    ///
    /// # Errors
    /// As [`AnyBlob::update`].
    pub fn update(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_data(self).elements(range)?.write()
    }

    /// Some elements of the diff, for reading.
    ///
    /// # Errors
    /// As [`AnyBlob::read`].
    pub fn read_diff(&self, range: Range<usize>) -> Result<Ref<'_, [T]>, Error> {
        Part::of_diff(self).elements(range)?.read()
    }

    /// Some elements of the diff, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`AnyBlob::write`].
    pub fn write_diff(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_diff(self).elements(range)?.overwrite()
    }

    /// Some elements of the diff, for reading and writing.
    ///
    /// # Errors
    /// As [`AnyBlob::update`].
    pub fn update_diff(&mut self, range: Range<usize>) -> Result<RefMut<'_, [T]>, Error> {
        Part::of_diff(self).elements(range)?.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Shape};

    fn blob() -> Blob<i16> {
        let mut blob = Blob::from_slice(Shape::new([2, 3]).unwrap(), &[1, 2, 3, 4, 5, 6]).unwrap();
        blob.diff_mut().unwrap().copy_from_slice(&[10, 20, 30, 40, 50, 60]);
        blob
    }

    #[test]
    fn every_mode_reaches_its_range_of_its_memory() {
        let mut typed = blob();
        assert_eq!((&*typed.read(1..4).unwrap(), &*typed.read_diff(4..6).unwrap()), (&[2, 3, 4][..], &[50, 60][..]));
        typed.write(0..2).unwrap().fill(7);
        typed.write_diff(5..6).unwrap().fill(8);
        typed.update(1..3).unwrap().iter_mut().for_each(|x| *x += 1);
        typed.update_diff(0..2).unwrap()[1] -= 1;
        let mut any = typed.into_any();
        assert_eq!(*any.data::<i16>().unwrap(), [7, 8, 4, 4, 5, 6]);
        assert_eq!(*any.diff::<i16>().unwrap(), [10, 19, 30, 40, 50, 8]);

        assert_eq!(*any.read::<i16>(2..3).unwrap(), [4]);
        assert_eq!(*any.read_diff::<i16>(3..5).unwrap(), [40, 50]);
        any.write::<i16>(5..6).unwrap().fill(-1);
        any.write_diff::<i16>(0..1).unwrap().fill(-2);
        any.update::<i16>(4..6).unwrap()[1] *= 3;
        any.update_diff::<i16>(0..6).unwrap()[2] /= 3;
        assert_eq!(*any.data::<i16>().unwrap(), [7, 8, 4, 4, 5, -3]);
        assert_eq!(*any.diff::<i16>().unwrap(), [-2, 19, 10, 40, 50, 8]);
    }

    #[test]
    fn a_range_outside_or_another_type_is_an_error() {
        let mut any = blob().into_any();
        for range in [0..7, 6..7, 7..7, 5..usize::MAX] {
            match any.read::<i16>(range.clone()) {
                Err(Error::ElementsOutOfRange { range: named, count }) => {
                    assert_eq!((named, count), (range.clone(), 6));
                }
                other => panic!("{range:?}: {other:?}"),
            }
            assert!(any.write_diff::<i16>(range).is_err());
        }
        assert!(any.read::<i16>(6..6).unwrap().is_empty());
        assert!(matches!(any.update::<u16>(0..1), Err(Error::WrongDType { .. })));
        assert!(matches!(any.read_diff::<f32>(0..1), Err(Error::WrongDType { .. })));
    }

    #[test]
    fn bools_are_checked_where_they_are_read_and_cleared_where_they_are_overwritten() {
        let shape = Shape::new([4]).unwrap();
        let mut any = AnyBlob::from_vec(shape, DType::Bool, vec![1, 0, 5, 1]).unwrap();
        assert_eq!(*any.read::<bool>(0..2).unwrap(), [true, false]);
        assert!(matches!(any.read::<bool>(1..4), Err(Error::InvalidBool { index: 1, byte: 5 })));
        assert!(any.update::<bool>(2..3).is_err());
        assert_eq!(*any.write::<bool>(1..3).unwrap(), [false, false]);
        assert_eq!(*any.data::<bool>().unwrap(), [true, false, false, true]);
    }
}
