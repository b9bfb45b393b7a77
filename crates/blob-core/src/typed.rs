//! `Blob<T>`: a blob whose dtype the compiler knows. Everything here is a call of `AnyBlob`'s with the type put in:
//! no unsafe, no decisions.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, RangeBounds};

use synced_mem::{HostBuffer, HostPool, SharedMem};

use crate::blob::AnyBlob;
use crate::dtype::Element;
use crate::error::Error;
use crate::extents::Shape;
use crate::guards::{Ref, RefMut};
use crate::part::Part;
use crate::view::ViewMut;
use crate::window::WindowMut;

/// A blob whose elements are known to be `T`. Everything that does not depend on the type is [`AnyBlob`]'s.
///
/// ```
/// use blob_core::{AnyBlob, Blob, Shape};
///
/// let mut blob = Blob::from_slice(Shape::new([3])?, &[1i32, 2, 3])?;
/// blob.data_mut()?[2] = 30;
/// assert_eq!((&blob.data()?[..], blob.count()), (&[1, 2, 30][..], 3));
/// let any = AnyBlob::from(blob);
/// assert!(Blob::<f32>::try_from(any).is_err());
/// # Ok::<(), blob_core::Error>(())
/// ```
///
/// The compiler refuses to write through one guard while another is read:
///
/// ```compile_fail,E0502
/// # use blob_core::{Blob, Shape};
/// let mut blob = Blob::<f32>::new(Shape::new([3]).unwrap()).unwrap();
/// let data = blob.data().unwrap();
/// blob.data_mut().unwrap()[0] = 1.0;
/// drop(data);
/// ```
pub struct Blob<T> {
    /// Invariant: of dtype `T::DTYPE`. No `&mut` of this field leaves the type.
    any: AnyBlob,
    element: PhantomData<T>,
}

/// A vector, read as bytes.
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl<T: Element> Blob<T> {
    /// A blob of zeros. Allocates nothing before the first touch.
    ///
    /// # Errors
    /// [`Error::BlobTooLarge`].
    pub fn new(shape: Shape) -> Result<Self, Error> {
        Ok(Self::wrap(AnyBlob::new(shape, T::DTYPE)?))
    }

    /// A blob of zeros in blocks of a pool. See [`AnyBlob::new_in`].
    ///
    /// # Errors
    /// [`Error::BlobTooLarge`].
    pub fn new_in(shape: Shape, pool: &HostPool) -> Result<Self, Error> {
        Ok(Self::wrap(AnyBlob::new_in(shape, T::DTYPE, pool)?))
    }

    /// A blob with a copy of these elements, in row-major order.
    ///
    /// # Errors
    /// [`Error::WrongCount`] when there are not as many as the shape counts; out of memory.
    pub fn from_slice(shape: Shape, elements: &[T]) -> Result<Self, Error> {
        if elements.len() != shape.count() {
            return Err(Error::WrongCount { wanted: shape.count(), got: elements.len() });
        }
        let mut blob = Self::new(shape)?;
        blob.data_overwrite()?.copy_from_slice(elements);
        Ok(blob)
    }

    /// A blob over a vector's elements, in row-major order. Reads find them in place; the first write copies.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn from_vec(shape: Shape, elements: Vec<T>) -> Result<Self, Error> {
        if elements.len() != shape.count() {
            return Err(Error::WrongCount { wanted: shape.count(), got: elements.len() });
        }
        let data = SharedMem::from(HostBuffer::from_owner(Elements(elements)));
        Ok(Self::wrap(AnyBlob::from_parts(shape, T::DTYPE, data, None)?))
    }

    fn wrap(any: AnyBlob) -> Self {
        let element = PhantomData;
        Self { any, element }
    }

    /// The data's elements, for reading. See [`View::elements`](crate::View::elements).
    ///
    /// # Errors
    /// As [`View::elements`](crate::View::elements).
    pub fn data(&self) -> Result<Ref<'_, [T]>, Error> {
        self.any.data().elements()
    }

    /// The data's elements, for writing. See [`ViewMut::elements`](crate::ViewMut::elements).
    ///
    /// # Errors
    /// As [`View::elements`](crate::View::elements).
    pub fn data_mut(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.data_mut().elements()
    }

    /// The data's elements, for a caller who writes all of them. See [`ViewMut::overwrite`](crate::ViewMut::overwrite).
    ///
    /// # Errors
    /// As [`View::elements`](crate::View::elements).
    pub fn data_overwrite(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.data_mut().overwrite()
    }

    /// The diff's elements, for reading. See [`View::elements`](crate::View::elements).
    ///
    /// # Errors
    /// As [`View::elements`](crate::View::elements).
    pub fn diff(&self) -> Result<Ref<'_, [T]>, Error> {
        self.any.diff().elements()
    }

    /// The diff's elements, for writing. See [`ViewMut::elements`](crate::ViewMut::elements).
    ///
    /// # Errors
    /// As [`View::elements`](crate::View::elements).
    pub fn diff_mut(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.diff_mut().elements()
    }

    /// The diff's elements, for a caller who writes all of them. See [`ViewMut::overwrite`](crate::ViewMut::overwrite).
    ///
    /// # Errors
    /// As [`View::elements`](crate::View::elements).
    pub fn diff_overwrite(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.diff_mut().overwrite()
    }

    /// A copy in fresh memories. See [`AnyBlob::try_clone`].
    ///
    /// # Errors
    /// As [`AnyBlob::try_clone`].
    pub fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self::wrap(self.any.try_clone()?))
    }
}

impl<T: Element> TryFrom<AnyBlob> for Blob<T> {
    type Error = Error;

    /// [`Error::WrongDType`] when the blob holds another type.
    fn try_from(any: AnyBlob) -> Result<Self, Error> {
        any.expect_dtype(T::DTYPE)?;
        Ok(Self::wrap(any))
    }
}

impl<T: Element> From<Blob<T>> for AnyBlob {
    fn from(blob: Blob<T>) -> Self {
        blob.any
    }
}

/// To [`AnyBlob`], which has everything that does not depend on the type.
impl<T> Deref for Blob<T> {
    type Target = AnyBlob;

    fn deref(&self) -> &AnyBlob {
        &self.any
    }
}

/// # Changes
///
/// As of [`AnyBlob`], for all that leaves the dtype. No `&mut AnyBlob` is handed out, in whose place one of another
/// dtype could be put:
///
/// ```compile_fail,E0596
/// use blob_core::{AnyBlob, Blob, DType, Shape};
///
/// let mut blob = Blob::<u32>::new(Shape::new([2]).unwrap()).unwrap();
/// let mut other = AnyBlob::new(Shape::new([2]).unwrap(), DType::F32).unwrap();
/// std::mem::swap(&mut *blob, &mut other);
/// ```
impl<T> Blob<T> {
    /// See [`AnyBlob::part_mut`].
    pub fn part_mut(&mut self, part: Part) -> ViewMut<'_> {
        self.any.part_mut(part)
    }

    /// See [`AnyBlob::window_mut`].
    ///
    /// # Errors
    /// As there.
    pub fn window_mut(&mut self, steps: impl RangeBounds<usize>) -> Result<WindowMut<'_>, Error> {
        self.any.window_mut(steps)
    }

    /// See [`AnyBlob::reshape`].
    ///
    /// # Errors
    /// As there.
    pub fn reshape(&mut self, shape: Shape) -> Result<(), Error> {
        self.any.reshape(shape)
    }

    /// See [`AnyBlob::reinterpret`].
    ///
    /// # Errors
    /// As there.
    pub fn reinterpret(&mut self, shape: Shape) -> Result<(), Error> {
        self.any.reinterpret(shape)
    }

    /// See [`AnyBlob::copy_from`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from(&mut self, source: &AnyBlob, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        self.any.copy_from(source, parts)
    }

    /// See [`AnyBlob::copy_from_reshaped`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_reshaped(&mut self, source: &AnyBlob, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        self.any.copy_from_reshaped(source, parts)
    }

    /// See [`AnyBlob::share`].
    ///
    /// # Errors
    /// As there.
    pub fn share(&mut self, other: &AnyBlob, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        self.any.share(other, parts)
    }

    /// See [`AnyBlob::replace_memory`].
    ///
    /// # Errors
    /// As there.
    pub fn replace_memory(&mut self, memory: SharedMem, part: Part) -> Result<SharedMem, Error> {
        self.any.replace_memory(memory, part)
    }
}

impl<T> fmt::Debug for Blob<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn from_slice_copies_and_counts() {
        let blob = Blob::from_slice(shape(&[2, 2]), &[1i64, 2, 3, 4]).unwrap();
        assert_eq!(*blob.data().unwrap(), [1, 2, 3, 4]);
        assert_eq!((blob.dtype(), blob.shape().num_axes()), (DType::I64, 2));
        for wrong in [0, 3, 5] {
            match Blob::from_slice(shape(&[2, 2]), &vec![0u8; wrong]) {
                Err(Error::WrongCount { wanted: 4, got }) => assert_eq!(got, wrong),
                other => panic!("{other:?}"),
            }
        }
        let scalar = Blob::from_slice(Shape::default(), &[2.5f64]).unwrap();
        assert_eq!(*scalar.data().unwrap(), [2.5]);
        let none = Blob::<f64>::from_slice(shape(&[0, 4]), &[]).unwrap();
        assert!(none.data().unwrap().is_empty());
    }

    #[test]
    fn from_vec_reads_in_place_and_counts() {
        let elements = vec![1.5f64, 2.5, 3.5, 4.5, 5.5, 6.5];
        let address = elements.as_ptr();
        let mut blob = Blob::from_vec(shape(&[2, 3]), elements).unwrap();
        assert_eq!(blob.data().unwrap().as_ptr(), address);
        blob.data_mut().unwrap()[0] = 0.5;
        assert_eq!(*blob.data().unwrap(), [0.5, 2.5, 3.5, 4.5, 5.5, 6.5]);
        let error = Blob::from_vec(shape(&[2, 3]), vec![true; 5]).unwrap_err();
        assert!(matches!(error, Error::WrongCount { wanted: 6, got: 5 }));
        assert!(Blob::<u8>::from_vec(shape(&[0]), vec![]).unwrap().data().unwrap().is_empty());
    }

    #[test]
    fn typed_and_untyped_are_the_same_blob() {
        let mut blob = Blob::<f32>::new(shape(&[3])).unwrap();
        assert!(!blob.memory(Part::Data).is_initialized());
        blob.data_mut().unwrap()[0] = 1.0;
        blob.diff_mut().unwrap()[1] = 2.0;
        let memory = blob.memory(Part::Data).clone();
        let any = AnyBlob::from(blob);
        assert!(any.memory(Part::Data).ptr_eq(&memory));
        let mut blob = Blob::<f32>::try_from(any).unwrap();
        assert_eq!(*blob.data().unwrap(), [1.0, 0.0, 0.0]);
        assert_eq!(*blob.diff().unwrap(), [0.0, 2.0, 0.0]);
        blob.diff_overwrite().unwrap().fill(3.0);
        assert_eq!(format!("{:?}", blob.diff().unwrap()), "[3.0, 3.0, 3.0]");
        let error = Blob::<u32>::try_from(AnyBlob::from(blob)).unwrap_err();
        assert!(matches!(error, Error::WrongDType { wanted: DType::U32, got: DType::F32 }));
    }
}
