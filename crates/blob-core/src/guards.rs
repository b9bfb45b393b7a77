//! The guards of typed access: bytes borrowed from a memory, dereferencing to slices of elements.
//! The bytes of a guard are checked when it is made, so dereferencing costs nothing. Relies on the guards of
//! `synced-mem` to dereference to the same bytes each time.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::slice;

use synced_mem::{HostMut, HostRef, SharedMem};

use crate::dtype::Element;
use crate::error::Error;

/// Elements borrowed for reading: `Ref<'_, [T]>` dereferences to `[T]`.
pub struct Ref<'a, S: ?Sized> {
    /// Invariant: aligned for the element, a whole number of elements, each a value of the type.
    bytes: HostRef,
    borrow: PhantomData<&'a S>,
}

/// Elements borrowed for writing: `RefMut<'_, [T]>` dereferences to `[T]`.
pub struct RefMut<'a, S: ?Sized> {
    /// Invariant: as in `Ref`. Writing keeps this true, because only a `&mut [T]` writes.
    bytes: HostMut,
    borrow: PhantomData<&'a mut S>,
}

impl<T: Element> Ref<'_, [T]> {
    pub(crate) fn new(bytes: HostRef) -> Result<Self, Error> {
        check_layout::<T>(&bytes)?;
        check_values::<T>(&bytes)?;
        let borrow = PhantomData;
        Ok(Self { bytes, borrow })
    }
}

impl<T: Element> RefMut<'_, [T]> {
    /// Borrows bytes for writing. Every refusal comes before any other copy becomes stale.
    pub(crate) fn write(memory: &SharedMem, range: Range<usize>) -> Result<Self, Error> {
        check_destination::<T>(memory, range.start)?;
        if !T::ANY_BYTES {
            check_values::<T>(&memory.host(range.clone())?)?;
        }
        let bytes = memory.host_mut(range)?;
        check_layout::<T>(&bytes)?;
        check_values::<T>(&bytes)?;
        let borrow = PhantomData;
        Ok(Self { bytes, borrow })
    }

    /// As `write`, for bytes whose contents are unspecified: where not all contents are values, the bytes become zeros.
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

fn check_values<T: Element>(bytes: &[u8]) -> Result<(), Error> {
    match T::first_invalid(bytes) {
        None => Ok(()),
        Some(index) => Err(Error::InvalidBool { index, byte: bytes[index] }),
    }
}

fn check_address<T: Element>(address: usize) -> Result<(), Error> {
    if address.is_multiple_of(align_of::<T>()) {
        return Ok(());
    }
    Err(Error::Misaligned { dtype: T::DTYPE, wanted: align_of::<T>(), address })
}

impl<T: Element> Deref for Ref<'_, [T]> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes: &[u8] = &self.bytes;
        // SAFETY: the invariant of `bytes`, checked by `new`; the guard yields the same place each time and nothing
        // writes there while it lives. The division rounds down, so the slice lies within the bytes.
        unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
    }
}

impl<T: Element> Deref for RefMut<'_, [T]> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes: &[u8] = &self.bytes;
        // SAFETY: the invariant of `bytes`, which `write` has checked, and `overwrite` made true: zeros are values of
        // every element type. The guard yields the same place each time, and nothing else writes there while the guard
        // lives. The division rounds down, so the slice lies within the bytes.
        unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
    }
}

impl<T: Element> DerefMut for RefMut<'_, [T]> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = &mut self.bytes;
        let count = bytes.len() / size_of::<T>();
        // SAFETY: the invariant of `bytes`: aligned, whole elements, all values, at the same place each time. The
        // reference is unique because `bytes` was borrowed uniquely, and a `&mut [T]` leaves values behind, without
        // uninitialised bytes (`NoUninit`), so the guard's bytes stay initialised.
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

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use synced_mem::loopback::{Loopback, Mode, launch};
    use synced_mem::{Access, Device, HostBuffer, Queue, SharedMem};

    use super::*;
    use crate::{AnyBlob, Blob, DType, Part, Shape};

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
        assert_eq!(*blob.data().elements::<bool>().unwrap(), [false, true, true]);
        for (bytes, index, byte) in
            [(vec![2], 0, 2), (vec![0, 1, 0xFF, 7], 2, 0xFF), (vec![1; 5000].into_iter().chain([3]).collect(), 5000, 3)]
        {
            let mut blob = bools(bytes);
            for error in [
                blob.data().elements::<bool>().map(drop).unwrap_err(),
                blob.data_mut().elements::<bool>().map(drop).unwrap_err(),
            ] {
                match error {
                    Error::InvalidBool { index: i, byte: b } => assert_eq!((i, b), (index, byte)),
                    other => panic!("{other}"),
                }
            }
            assert_eq!(blob.data().bytes().unwrap()[index], byte);
            let mut data = blob.data_mut().overwrite::<bool>().unwrap();
            assert!(data.iter().all(|&value| !value), "no stale byte is seen");
            data.fill(true);
            drop(data);
            assert!(blob.data().elements::<bool>().unwrap().iter().all(|&value| value));
        }
    }

    #[test]
    fn bools_are_checked_at_each_access() {
        let mut blob = bools(vec![1, 1]);
        assert!(blob.data().elements::<bool>().is_ok());
        blob.data_mut().bytes().unwrap()[1] = 9;
        assert!(blob.data().elements::<bool>().is_err());
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
            let memory = SharedMem::from(HostBuffer::from_owner(Skip { words, skip }));
            let count = (24 - skip) / 4;
            let data = match memory.len() % 4 {
                0 => memory,
                // Cut to whole elements.
                _ => SharedMem::from(HostBuffer::from_owner(memory.host(0..count * 4).unwrap())),
            };
            let mut blob = AnyBlob::from_parts(shape(&[count]), DType::U32, data, None).unwrap();
            let (address, expected) = (blob.data().bytes().unwrap().as_ptr().addr(), 0x0101_0101);
            match blob.data().elements::<u32>() {
                Ok(data) => {
                    assert_eq!(skip % 4, 0);
                    assert_eq!(*data, vec![expected; count]);
                }
                Err(Error::Misaligned { dtype, wanted, address: named }) => {
                    assert_ne!(skip % 4, 0);
                    assert_eq!((dtype, wanted, named), (DType::U32, 4, address));
                }
                Err(other) => panic!("{other}"),
            }
            blob.data_mut().elements::<u32>().unwrap()[0] = 7;
            let data = blob.data().elements::<u32>().unwrap();
            assert_eq!((data[0], data[count - 1]), (7, expected));
        }
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
        let mut token = blob.data_mut().overwrite_device(&queue).unwrap();
        launch(&*queue, [token.arg_mut()], move |args| args[0].bytes_mut().fill(byte)).unwrap();
        queue
    }

    #[test]
    fn a_misaligned_write_is_refused_before_the_device_becomes_stale() {
        // No vector of ours starts at an odd address, so the memory is a part of another blob's bytes, lent by raw
        // parts.
        let mut words = vec![0u64; 4];
        let start = NonNull::new(words.as_mut_ptr().cast::<u8>().wrapping_add(1)).unwrap();
        // SAFETY: eight bytes from the second on lie within the 32 of `words`, which lives to the end of this test,
        // behind the memory's last use, and is not touched otherwise.
        let memory = unsafe { HostBuffer::from_raw(start, 8, Access::Write, Box::new(())) };
        let memory = SharedMem::from(memory);
        let shape = Shape::new([2]).unwrap();
        let mut blob = AnyBlob::from_parts(shape, DType::U32, memory, None).unwrap();
        painted(&mut blob, 7);
        for result in [blob.data_mut().overwrite::<u32>().map(drop), blob.data_mut().elements::<u32>().map(drop)] {
            assert!(matches!(result, Err(Error::Misaligned { .. })));
        }
        assert_eq!(*blob.data().bytes().unwrap(), [7; 8]);
        drop(blob);
        drop(words);
    }

    #[test]
    fn values_that_are_refused_leave_the_device_as_it_was() {
        let mut blob = AnyBlob::new(Shape::new([4]).unwrap(), DType::Bool).unwrap();
        let queue = painted(&mut blob, 2);
        assert!(matches!(blob.data_mut().elements::<bool>(), Err(Error::InvalidBool { .. })));
        drop(blob.data().device(&queue).unwrap());
        assert_eq!(blob.memory(Part::Data).stats().uploads.bytes, 0);
    }
}
