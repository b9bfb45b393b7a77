//! Typed access: the guards that dereference to slices, and `Blob<T>`, a blob whose dtype is proven.
//! The bytes of a guard are checked when it is made, so dereferencing costs nothing; it relies on the guards of
//! `synced-mem` to dereference to the same bytes each time.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::slice;
use std::sync::Arc;

use synced_mem::{DeviceMut, HostMut, HostRef, Queue, SharedMem};

use crate::{AnyBlob, Element, Error, Parts, Shape};

/// Elements borrowed for reading: `Ref<'_, [T]>` dereferences to `[T]`.
pub struct Ref<'a, S: ?Sized> {
    /// Invariant: aligned for the element, a whole number of elements, each a value of the type.
    bytes: HostRef,
    borrow: PhantomData<&'a S>,
}

/// Elements borrowed for writing: `RefMut<'_, [T]>` dereferences to `[T]`.
pub struct RefMut<'a, S: ?Sized> {
    /// Invariant: as in `Ref`; it survives writing, because only a `&mut [T]` writes.
    bytes: HostMut,
    borrow: PhantomData<&'a mut S>,
}

impl<T: Element> Ref<'_, [T]> {
    pub(crate) fn new(bytes: HostRef) -> Result<Self, Error> {
        check_layout::<T>(&bytes)?;
        T::check(&bytes)?;
        let borrow = PhantomData;
        Ok(Self { bytes, borrow })
    }
}

impl<T: Element> RefMut<'_, [T]> {
    /// Borrows bytes for writing. What has to be refused is refused before any other copy becomes stale.
    pub(crate) fn write(memory: &SharedMem, range: Range<usize>) -> Result<Self, Error> {
        check_destination::<T>(memory, range.start)?;
        if !T::ANY_BYTES {
            T::check(&memory.host(range.clone())?)?;
        }
        let bytes = memory.host_mut(range)?;
        check_layout::<T>(&bytes)?;
        T::check(&bytes)?;
        let borrow = PhantomData;
        Ok(Self { bytes, borrow })
    }

    /// As `write`, for bytes whose contents are unspecified: where not all contents are values, they become zeros.
    pub(crate) fn overwrite(memory: &SharedMem, range: Range<usize>) -> Result<Self, Error> {
        check_destination::<T>(memory, range.start)?;
        let mut bytes = memory.host_overwrite(range)?;
        check_layout::<T>(&bytes)?;
        if !T::ANY_BYTES {
            bytes.fill(0);
        }
        let borrow = PhantomData;
        Ok(Self { bytes, borrow })
    }
}

/// Whether writers will get an address that the type allows.
fn check_destination<T: Element>(memory: &SharedMem, at: usize) -> Result<(), Error> {
    match memory.write_address(at) {
        Some(address) => check_address::<T>(address),
        None => Ok(()),
    }
}

fn check_layout<T: Element>(bytes: &[u8]) -> Result<(), Error> {
    debug_assert_eq!(bytes.len() % size_of::<T>(), 0, "the blob knew its length");
    check_address::<T>(bytes.as_ptr().addr())
}

fn check_address<T: Element>(address: usize) -> Result<(), Error> {
    if address.is_multiple_of(align_of::<T>()) {
        return Ok(());
    }
    Err(Error::Misaligned {
        dtype: T::DTYPE,
        wanted: align_of::<T>(),
        address,
    })
}

impl<T: Element> Deref for Ref<'_, [T]> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes: &[u8] = &self.bytes;
        // SAFETY: the invariant of `bytes`, checked by `new`; the guard yields the same place each time and nobody
        // writes there while it lives. The division rounds down, so the slice lies within the bytes.
        unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
    }
}

impl<T: Element> Deref for RefMut<'_, [T]> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes: &[u8] = &self.bytes;
        // SAFETY: as for `Ref`; `overwrite` establishes the invariant too: zeros are values of every element type.
        unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
    }
}

impl<T: Element> DerefMut for RefMut<'_, [T]> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = &mut self.bytes;
        let count = bytes.len() / size_of::<T>();
        // SAFETY: as above; the reference is unique because `bytes` was, and what a `&mut [T]` leaves behind are values
        // without uninitialised bytes (`NoUninit`), so the guard's bytes stay initialised.
        unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), count) }
    }
}

impl<T: Element> fmt::Debug for Ref<'_, [T]> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Element> fmt::Debug for RefMut<'_, [T]> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A blob whose elements are known to be `T`. Everything that does not depend on the type is [`AnyBlob`]'s.
///
/// ```
/// use blob_core::{AnyBlob, Blob, Shape};
///
/// let mut blob = Blob::from_slice(Shape::new([3])?, &[1i32, 2, 3])?;
/// blob.data_mut()?[2] = 30;
/// assert_eq!((&blob.data()?[..], blob.count()), (&[1, 2, 30][..], 3));
/// let any: AnyBlob = blob.into_any();
/// assert!(Blob::<f32>::try_from(any).is_err());
/// # Ok::<(), blob_core::Error>(())
/// ```
///
/// Nobody writes through one guard while another is read:
///
/// ```compile_fail,E0502
/// # use blob_core::{Blob, Shape};
/// let mut blob = Blob::<f32>::new(Shape::new([3]).unwrap()).unwrap();
/// let data = blob.data().unwrap();
/// blob.data_mut().unwrap()[0] = 1.0;
/// drop(data);
/// ```
pub struct Blob<T> {
    /// Invariant: its dtype is `T::DTYPE`.
    any: AnyBlob,
    element: PhantomData<T>,
}

impl<T: Element> Blob<T> {
    /// A blob of zeros. Allocates nothing until it is touched.
    ///
    /// # Errors
    /// [`Error::BlobTooLarge`].
    pub fn new(shape: Shape) -> Result<Self, Error> {
        Ok(Self::wrap(AnyBlob::new(shape, T::DTYPE)?))
    }

    /// A blob with a copy of these elements, in row-major order.
    ///
    /// # Errors
    /// [`Error::WrongCount`] when there are not as many as the shape counts; out of memory.
    pub fn from_slice(shape: Shape, elements: &[T]) -> Result<Self, Error> {
        if elements.len() != shape.count() {
            return Err(Error::WrongCount {
                wanted: shape.count(),
                got: elements.len(),
            });
        }
        let mut blob = Self::new(shape)?;
        blob.data_overwrite()?.copy_from_slice(elements);
        Ok(blob)
    }

    fn wrap(any: AnyBlob) -> Self {
        let element = PhantomData;
        Self { any, element }
    }

    /// The same blob with its dtype known at run time only.
    pub fn into_any(self) -> AnyBlob {
        self.any
    }

    /// The data, for reading. See [`AnyBlob::data`].
    ///
    /// # Errors
    /// As [`AnyBlob::data`].
    pub fn data(&self) -> Result<Ref<'_, [T]>, Error> {
        self.any.data()
    }

    /// The data, for writing.
    ///
    /// # Errors
    /// As [`AnyBlob::data`].
    pub fn data_mut(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.data_mut()
    }

    /// The data, for a caller who writes all of it; what it holds before that is unspecified.
    ///
    /// # Errors
    /// As [`AnyBlob::data`].
    pub fn data_overwrite(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.data_overwrite()
    }

    /// The diff, for reading.
    ///
    /// # Errors
    /// As [`AnyBlob::data`].
    pub fn diff(&self) -> Result<Ref<'_, [T]>, Error> {
        self.any.diff()
    }

    /// The diff, for writing.
    ///
    /// # Errors
    /// As [`AnyBlob::data`].
    pub fn diff_mut(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.diff_mut()
    }

    /// The diff, for a caller who writes all of it; what it holds before that is unspecified.
    ///
    /// # Errors
    /// As [`AnyBlob::data`].
    pub fn diff_overwrite(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.any.diff_overwrite()
    }

    /// One element of the data. See [`AnyBlob::data_at`].
    ///
    /// # Errors
    /// As [`AnyBlob::data_at`].
    pub fn data_at(&self, index: &[usize]) -> Result<T, Error> {
        self.any.data_at(index)
    }

    /// One element of the diff.
    ///
    /// # Errors
    /// As [`AnyBlob::data_at`].
    pub fn diff_at(&self, index: &[usize]) -> Result<T, Error> {
        self.any.diff_at(index)
    }

    /// The data on a device, to be written. See [`AnyBlob::data_device_mut`].
    ///
    /// # Errors
    /// As [`AnyBlob::data_device`].
    pub fn data_device_mut(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        self.any.data_device_mut(queue)
    }

    /// The data on a device, all to be written. See [`AnyBlob::data_device_overwrite`].
    ///
    /// # Errors
    /// As [`AnyBlob::data_device`].
    pub fn data_device_overwrite(
        &mut self,
        queue: &Arc<dyn Queue>,
    ) -> Result<DeviceMut<'_>, Error> {
        self.any.data_device_overwrite(queue)
    }

    /// The diff on a device, to be written.
    ///
    /// # Errors
    /// As [`AnyBlob::data_device`].
    pub fn diff_device_mut(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        self.any.diff_device_mut(queue)
    }

    /// The diff on a device, all to be written.
    ///
    /// # Errors
    /// As [`AnyBlob::data_device`].
    pub fn diff_device_overwrite(
        &mut self,
        queue: &Arc<dyn Queue>,
    ) -> Result<DeviceMut<'_>, Error> {
        self.any.diff_device_overwrite(queue)
    }

    /// Another shape. See [`AnyBlob::reshape`].
    ///
    /// # Errors
    /// As [`AnyBlob::reshape`].
    pub fn reshape(&mut self, shape: Shape) -> Result<(), Error> {
        self.any.reshape(shape)
    }

    /// The shape of another blob.
    ///
    /// # Errors
    /// As [`AnyBlob::reshape_like`].
    pub fn reshape_like(&mut self, other: &AnyBlob) -> Result<(), Error> {
        self.any.reshape_like(other)
    }

    /// Another shape of the same count. See [`AnyBlob::reinterpret`].
    ///
    /// # Errors
    /// As [`AnyBlob::reinterpret`].
    pub fn reinterpret(&mut self, shape: Shape) -> Result<(), Error> {
        self.any.reinterpret(shape)
    }

    /// Copies another blob's elements. See [`AnyBlob::copy_from`].
    ///
    /// # Errors
    /// As [`AnyBlob::copy_from`].
    pub fn copy_from(&mut self, source: &AnyBlob, parts: Parts) -> Result<(), Error> {
        self.any.copy_from(source, parts)
    }

    /// Copies another blob's elements and its shape. See [`AnyBlob::copy_from_reshaped`].
    ///
    /// # Errors
    /// As [`AnyBlob::copy_from_reshaped`].
    pub fn copy_from_reshaped(&mut self, source: &AnyBlob, parts: Parts) -> Result<(), Error> {
        self.any.copy_from_reshaped(source, parts)
    }

    /// Another memory in the place of the data. See [`AnyBlob::replace_data`].
    ///
    /// # Errors
    /// As [`AnyBlob::replace_data`].
    pub fn replace_data(&mut self, memory: SharedMem) -> Result<SharedMem, Error> {
        self.any.replace_data(memory)
    }

    /// Another memory in the place of the diff.
    ///
    /// # Errors
    /// As [`AnyBlob::replace_data`].
    pub fn replace_diff(&mut self, memory: SharedMem) -> Result<SharedMem, Error> {
        self.any.replace_diff(memory)
    }

    /// Shares another blob's data. See [`AnyBlob::share_data`].
    ///
    /// # Errors
    /// As [`AnyBlob::share_data`].
    pub fn share_data(&mut self, other: &AnyBlob) -> Result<(), Error> {
        self.any.share_data(other)
    }

    /// Shares another blob's diff.
    ///
    /// # Errors
    /// As [`AnyBlob::share_data`].
    pub fn share_diff(&mut self, other: &AnyBlob) -> Result<(), Error> {
        self.any.share_diff(other)
    }

    /// A copy in memories of its own. See [`AnyBlob::try_clone`].
    ///
    /// # Errors
    /// As [`AnyBlob::try_clone`].
    pub fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self::wrap(self.any.try_clone()?))
    }

    /// An untouched blob of the same shape.
    pub fn clone_empty(&self) -> Self {
        Self::wrap(self.any.clone_empty())
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
        blob.into_any()
    }
}

/// To [`AnyBlob`], for reading only: through `&mut AnyBlob` another blob of another dtype could be put in place.
impl<T> Deref for Blob<T> {
    type Target = AnyBlob;

    fn deref(&self) -> &AnyBlob {
        &self.any
    }
}

impl<T> fmt::Debug for Blob<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use synced_mem::loopback::{KernelArg, Loopback, Mode, launch};
    use synced_mem::{Access, Device, Queue, SharedMem, SyncedMem};

    use super::*;
    use crate::DType;

    const fn assert_send_sync<T: Send + Sync>() {}
    const _: () = {
        assert_send_sync::<Blob<f32>>();
        assert_send_sync::<Ref<'_, [f32]>>();
        assert_send_sync::<RefMut<'_, [bool]>>();
    };

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn bools(bytes: Vec<u8>) -> AnyBlob {
        AnyBlob::from_vec(shape(&[bytes.len()]), DType::Bool, bytes).unwrap()
    }

    #[test]
    fn a_bool_is_a_byte_of_0_or_1() {
        let blob = bools(vec![0, 1, 1]);
        assert_eq!(*blob.data::<bool>().unwrap(), [false, true, true]);
        for (bytes, index, byte) in [
            (vec![2], 0, 2),
            (vec![0, 1, 0xFF, 7], 2, 0xFF),
            (vec![1; 5000].into_iter().chain([3]).collect(), 5000, 3),
        ] {
            let mut blob = bools(bytes);
            for error in [
                blob.data::<bool>().map(drop).unwrap_err(),
                blob.data_mut::<bool>().map(drop).unwrap_err(),
            ] {
                match error {
                    Error::InvalidBool { index: i, byte: b } => assert_eq!((i, b), (index, byte)),
                    other => panic!("{other}"),
                }
            }
            assert_eq!(blob.data_bytes().unwrap()[index], byte);
            let mut data = blob.data_overwrite::<bool>().unwrap();
            assert!(data.iter().all(|&value| !value), "no stale byte is seen");
            data.fill(true);
            drop(data);
            assert!(blob.data::<bool>().unwrap().iter().all(|&value| value));
        }
    }

    #[test]
    fn bools_are_checked_at_each_access() {
        let mut blob = bools(vec![1, 1]);
        assert!(blob.data::<bool>().is_ok());
        blob.data_bytes_mut().unwrap()[1] = 9;
        assert!(blob.data::<bool>().is_err());
    }

    /// The bytes of `words` from byte `skip` on.
    struct Skip {
        words: Vec<u64>,
        skip: usize,
    }

    impl AsRef<[u8]> for Skip {
        fn as_ref(&self) -> &[u8] {
            &bytemuck::cast_slice(&self.words)[self.skip..]
        }
    }

    #[test]
    fn misaligned_adopted_memory_is_an_error_until_it_is_written() {
        for skip in 0..8 {
            let words = vec![0x0101_0101_0101_0101; 3];
            let memory = SharedMem::from_owner(Skip { words, skip });
            let count = (24 - skip) / 4;
            let data = match memory.len() % 4 {
                0 => memory,
                // Cut to whole elements.
                _ => SharedMem::from_owner(memory.host(0..count * 4).unwrap()),
            };
            let mut blob = AnyBlob::from_parts(shape(&[count]), DType::U32, data, None).unwrap();
            let (address, expected) = (blob.data_bytes().unwrap().as_ptr().addr(), 0x0101_0101);
            match blob.data::<u32>() {
                Ok(data) => {
                    assert_eq!(skip % 4, 0);
                    assert_eq!(*data, vec![expected; count]);
                }
                Err(Error::Misaligned {
                    dtype,
                    wanted,
                    address: named,
                }) => {
                    assert_ne!(skip % 4, 0);
                    assert_eq!((dtype, wanted, named), (DType::U32, 4, address));
                }
                Err(other) => panic!("{other}"),
            }
            blob.data_mut::<u32>().unwrap()[0] = 7;
            let data = blob.data::<u32>().unwrap();
            assert_eq!((data[0], data[count - 1]), (7, expected));
        }
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
        let scalar = Blob::from_slice(Shape::scalar(), &[2.5f64]).unwrap();
        assert_eq!(*scalar.data().unwrap(), [2.5]);
        let none = Blob::<f64>::from_slice(shape(&[0, 4]), &[]).unwrap();
        assert!(none.data().unwrap().is_empty());
    }

    #[test]
    fn typed_and_untyped_are_the_same_blob() {
        let mut blob = Blob::<f32>::new(shape(&[3])).unwrap();
        assert!(!blob.data_memory().is_initialized());
        blob.data_mut().unwrap()[0] = 1.0;
        blob.diff_mut().unwrap()[1] = 2.0;
        let memory = blob.data_memory().clone();
        let any = AnyBlob::from(blob);
        assert!(any.data_memory().ptr_eq(&memory));
        let mut blob = Blob::<f32>::try_from(any).unwrap();
        assert_eq!(*blob.data().unwrap(), [1.0, 0.0, 0.0]);
        assert_eq!(*blob.diff().unwrap(), [0.0, 2.0, 0.0]);
        blob.diff_overwrite().unwrap().fill(3.0);
        assert_eq!(format!("{:?}", blob.diff().unwrap()), "[3.0, 3.0, 3.0]");
        let error = Blob::<u32>::try_from(blob.into_any()).unwrap_err();
        assert!(matches!(
            error,
            Error::WrongDType {
                wanted: DType::U32,
                got: DType::F32
            }
        ));
    }

    #[test]
    fn guards_go_to_other_threads() {
        let mut blob = Blob::<u16>::new(shape(&[8])).unwrap();
        let mut data = blob.data_mut().unwrap();
        std::thread::scope(|scope| {
            let (left, right) = data.split_at_mut(4);
            scope.spawn(move || left.fill(1));
            scope.spawn(move || right.fill(2));
        });
        std::thread::scope(|scope| {
            scope.spawn(move || assert_eq!(*data, [1, 1, 1, 1, 2, 2, 2, 2]));
        });
        assert!(blob.data().is_ok());
    }

    /// A queue that writes one value into all of a blob's data, which is then on the device alone.
    fn painted(blob: &mut AnyBlob, byte: u8) -> Arc<dyn Queue> {
        let queue = Loopback::new(Mode::Deferred).queue().unwrap();
        let mut token = blob.data_device_overwrite(&queue).unwrap();
        let paint = move |args: &mut [KernelArg<'_>]| args[0].bytes_mut().fill(byte);
        launch(&*queue, [token.arg_mut()], paint).unwrap();
        queue
    }

    #[test]
    fn a_misaligned_write_is_refused_before_the_device_becomes_stale() {
        // No vector of ours starts at an odd address, so the memory is a part of another blob's bytes, lent by raw parts.
        let mut words = vec![0u64; 4];
        let start = NonNull::new(words.as_mut_ptr().cast::<u8>().wrapping_add(1)).unwrap();
        // SAFETY: eight bytes from the second on lie within the 32 of `words`, which lives to the end of this test, behind
        // the memory's last use, and is not touched otherwise.
        let memory = unsafe { SyncedMem::from_raw_host(start, 8, Access::Write, Box::new(())) };
        let memory = memory.into_shared();
        let shape = Shape::new([2]).unwrap();
        let mut blob = AnyBlob::from_parts(shape, DType::U32, memory, None).unwrap();
        painted(&mut blob, 7);
        for result in [
            blob.data_overwrite::<u32>().map(drop),
            blob.data_mut::<u32>().map(drop),
        ] {
            assert!(matches!(result, Err(Error::Misaligned { .. })));
        }
        assert_eq!(*blob.data_bytes().unwrap(), [7; 8]);
        drop(blob);
        drop(words);
    }

    #[test]
    fn values_that_are_refused_leave_the_device_as_it_was() {
        let mut blob = AnyBlob::new(Shape::new([4]).unwrap(), DType::Bool).unwrap();
        let queue = painted(&mut blob, 2);
        assert!(matches!(
            blob.data_mut::<bool>(),
            Err(Error::InvalidBool { .. })
        ));
        drop(blob.data_device(&queue).unwrap());
        assert_eq!(blob.data_memory().stats().uploads().bytes(), 0);
    }
}
