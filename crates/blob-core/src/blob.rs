//! `AnyBlob`: a shape, a dtype, and two memories of the same length, data and diff.
//! Always contiguous and row-major, in the machine's byte order. It relies on `synced-mem` for where the bytes are.

use synced_mem::SharedMem;

use crate::{DType, Element, Error, Ref, RefMut, Shape};

/// A tensor whose dtype is known at run time, with a second memory of the same shape for its gradient.
///
/// Neither memory is allocated until it is touched; untouched memory reads as zeros. Memories may be shared with other
/// blobs through their handles, so an access can fail with a conflict when a guard of another blob is alive.
#[derive(Debug)]
pub struct AnyBlob {
    shape: Shape,
    dtype: DType,
    /// Invariant: both memories have `shape.count() * dtype.size()` bytes.
    data: SharedMem,
    diff: SharedMem,
}

impl AnyBlob {
    /// A blob of zeros. Allocates nothing until it is touched.
    ///
    /// # Errors
    /// [`Error::BlobTooLarge`] when no memory can be that long.
    pub fn new(shape: Shape, dtype: DType) -> Result<Self, Error> {
        let len = byte_len(&shape, dtype)?;
        Ok(Self {
            shape,
            dtype,
            data: SharedMem::new(len),
            diff: SharedMem::new(len),
        })
    }

    /// A blob over these memories; without a diff, it gets an untouched one.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when a memory is not `count × size` bytes long; [`Error::BlobTooLarge`].
    pub fn from_parts(
        shape: Shape,
        dtype: DType,
        data: SharedMem,
        diff: Option<SharedMem>,
    ) -> Result<Self, Error> {
        let len = byte_len(&shape, dtype)?;
        let diff = diff.unwrap_or_else(|| SharedMem::new(len));
        check_length("data", len, &data)?;
        check_length("diff", len, &diff)?;
        Ok(Self {
            shape,
            dtype,
            data,
            diff,
        })
    }

    /// A blob over a vector of bytes in the machine's byte order. They are copied only if they lie at an address that
    /// the dtype does not allow.
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::BlobTooLarge`]; out of memory for that copy.
    pub fn from_vec(shape: Shape, dtype: DType, bytes: Vec<u8>) -> Result<Self, Error> {
        // No element type needs more alignment than its size.
        if bytes.as_ptr().addr().is_multiple_of(dtype.size()) {
            return Self::from_parts(shape, dtype, SharedMem::from_vec(bytes), None);
        }
        Self::from_unaligned(shape, dtype, &bytes)
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.shape.count()
    }

    /// The length of the data, and of the diff, in bytes.
    pub fn byte_len(&self) -> usize {
        self.data.len()
    }

    /// Whether the diff was ever touched or given; otherwise it is all zeros and takes no memory.
    pub fn has_diff(&self) -> bool {
        self.diff.is_initialized()
    }

    /// The data's elements, for reading.
    ///
    /// # Errors
    /// [`Error::WrongDType`]; [`Error::Misaligned`] over adopted memory; [`Error::InvalidBool`], which costs one pass
    /// over a bool blob; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
    pub fn data<T: Element>(&self) -> Result<Ref<'_, [T]>, Error> {
        self.read(&self.data)
    }

    /// The data's elements, for writing.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn data_mut<T: Element>(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.write(&self.data)
    }

    /// The data's elements, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`data`](Self::data), without `InvalidBool`.
    pub fn data_overwrite<T: Element>(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.overwrite(&self.data)
    }

    /// The diff's elements, for reading.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn diff<T: Element>(&self) -> Result<Ref<'_, [T]>, Error> {
        self.read(&self.diff)
    }

    /// The diff's elements, for writing.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn diff_mut<T: Element>(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.write(&self.diff)
    }

    /// The diff's elements, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`data`](Self::data), without `InvalidBool`.
    pub fn diff_overwrite<T: Element>(&mut self) -> Result<RefMut<'_, [T]>, Error> {
        self.overwrite(&self.diff)
    }

    /// The data's bytes in the machine's byte order, for reading, whatever the dtype.
    ///
    /// # Errors
    /// [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
    pub fn data_bytes(&self) -> Result<Ref<'_, [u8]>, Error> {
        Ref::new(self.data.host(0..self.byte_len())?)
    }

    /// The data's bytes, for writing.
    ///
    /// # Errors
    /// As [`data_bytes`](Self::data_bytes).
    pub fn data_bytes_mut(&mut self) -> Result<RefMut<'_, [u8]>, Error> {
        RefMut::new(self.data.host_mut(0..self.byte_len())?)
    }

    /// The data's bytes, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`data_bytes`](Self::data_bytes).
    pub fn data_bytes_overwrite(&mut self) -> Result<RefMut<'_, [u8]>, Error> {
        RefMut::overwrite(self.data.host_overwrite(0..self.byte_len())?)
    }

    /// The diff's bytes, for reading.
    ///
    /// # Errors
    /// As [`data_bytes`](Self::data_bytes).
    pub fn diff_bytes(&self) -> Result<Ref<'_, [u8]>, Error> {
        Ref::new(self.diff.host(0..self.byte_len())?)
    }

    /// The diff's bytes, for writing.
    ///
    /// # Errors
    /// As [`data_bytes`](Self::data_bytes).
    pub fn diff_bytes_mut(&mut self) -> Result<RefMut<'_, [u8]>, Error> {
        RefMut::new(self.diff.host_mut(0..self.byte_len())?)
    }

    /// The diff's bytes, for a caller who writes all of them; what they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`data_bytes`](Self::data_bytes).
    pub fn diff_bytes_overwrite(&mut self) -> Result<RefMut<'_, [u8]>, Error> {
        RefMut::overwrite(self.diff.host_overwrite(0..self.byte_len())?)
    }

    /// The memory of the data. Cloning the handle shares it.
    pub fn data_memory(&self) -> &SharedMem {
        &self.data
    }

    /// The memory of the diff. Cloning the handle shares it.
    pub fn diff_memory(&self) -> &SharedMem {
        &self.diff
    }

    /// Puts another memory in the place of the data and returns the old one.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when it is not as long as the old one.
    pub fn replace_data(&mut self, memory: SharedMem) -> Result<SharedMem, Error> {
        check_length("data", self.byte_len(), &memory)?;
        Ok(std::mem::replace(&mut self.data, memory))
    }

    /// Puts another memory in the place of the diff and returns the old one.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when it is not as long as the old one.
    pub fn replace_diff(&mut self, memory: SharedMem) -> Result<SharedMem, Error> {
        check_length("diff", self.byte_len(), &memory)?;
        Ok(std::mem::replace(&mut self.diff, memory))
    }

    pub(crate) fn expect_dtype(&self, wanted: DType) -> Result<(), Error> {
        let got = self.dtype;
        match got == wanted {
            true => Ok(()),
            false => Err(Error::WrongDType { wanted, got }),
        }
    }

    fn from_unaligned(shape: Shape, dtype: DType, bytes: &[u8]) -> Result<Self, Error> {
        // Lengths are checked before anything is allocated.
        let data = SharedMem::new(bytes.len());
        let mut blob = Self::from_parts(shape, dtype, data, None)?;
        blob.data_bytes_overwrite()?.copy_from_slice(bytes);
        Ok(blob)
    }

    fn read<T: Element>(&self, memory: &SharedMem) -> Result<Ref<'_, [T]>, Error> {
        self.expect_dtype(T::DTYPE)?;
        Ref::new(memory.host(0..memory.len())?)
    }

    fn write<T: Element>(&self, memory: &SharedMem) -> Result<RefMut<'_, [T]>, Error> {
        self.expect_dtype(T::DTYPE)?;
        RefMut::new(memory.host_mut(0..memory.len())?)
    }

    fn overwrite<T: Element>(&self, memory: &SharedMem) -> Result<RefMut<'_, [T]>, Error> {
        self.expect_dtype(T::DTYPE)?;
        RefMut::overwrite(memory.host_overwrite(0..memory.len())?)
    }
}

fn byte_len(shape: &Shape, dtype: DType) -> Result<usize, Error> {
    let len = shape.count().checked_mul(dtype.size());
    len.filter(|&len| len <= isize::MAX as usize)
        .ok_or_else(|| Error::BlobTooLarge {
            shape: shape.clone(),
            dtype,
        })
}

fn check_length(part: &'static str, wanted: usize, memory: &SharedMem) -> Result<(), Error> {
    let got = memory.len();
    match got == wanted {
        true => Ok(()),
        false => Err(Error::WrongLength { part, wanted, got }),
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<AnyBlob>();

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn a_new_blob_is_zeros_of_its_dtype_and_takes_no_memory() {
        for &dtype in DType::ALL {
            for dims in [&[][..], &[0], &[3, 5], &[2, 0, 7]] {
                let blob = AnyBlob::new(shape(dims), dtype).unwrap();
                assert_eq!((blob.shape().dims(), blob.dtype()), (dims, dtype));
                assert_eq!(blob.byte_len(), blob.count() * dtype.size());
                assert!(!blob.data_memory().is_initialized() && !blob.has_diff());
                assert_eq!(*blob.data_bytes().unwrap(), vec![0; blob.byte_len()]);
                assert!(blob.data_memory().is_initialized() && !blob.has_diff());
                assert_eq!(*blob.diff_bytes().unwrap(), vec![0; blob.byte_len()]);
                assert!(blob.has_diff());
            }
        }
    }

    #[test]
    fn more_bytes_than_memory_are_an_error() {
        let most = isize::MAX as usize / 4;
        assert!(AnyBlob::new(shape(&[most]), DType::F32).is_ok());
        match AnyBlob::new(shape(&[most + 1]), DType::F32) {
            Err(Error::BlobTooLarge { shape, dtype }) => {
                assert_eq!((shape.count(), dtype), (most + 1, DType::F32));
            }
            other => panic!("{other:?}"),
        }
        // Eight times this count is 0 in 64 bits.
        let wrapping = shape(&[1 << (usize::BITS - 3)]);
        let result = AnyBlob::from_parts(wrapping, DType::U64, SharedMem::new(0), None);
        assert!(matches!(result, Err(Error::BlobTooLarge { .. })));
    }

    /// Writes and reads through every typed and untyped door, of data and of diff.
    fn round_trip<T: Element>(values: [T; 3]) {
        let mut blob = AnyBlob::new(shape(&[3]), T::DTYPE).unwrap();
        assert_eq!(*blob.data::<T>().unwrap(), [T::default(); 3]);
        blob.data_overwrite::<T>().unwrap().copy_from_slice(&values);
        assert_eq!(*blob.data::<T>().unwrap(), values);
        assert!(!blob.has_diff());
        blob.diff_mut::<T>().unwrap()[1] = values[1];
        assert!(blob.has_diff());
        let zero = T::default();
        assert_eq!(*blob.diff::<T>().unwrap(), [zero, values[1], zero]);
        blob.diff_overwrite::<T>().unwrap().copy_from_slice(&values);
        assert_eq!(*blob.diff::<T>().unwrap(), values);
        blob.data_mut::<T>().unwrap().reverse();
        let reversed = [values[2], values[1], values[0]];
        assert_eq!(
            *blob.data_bytes().unwrap(),
            *bytemuck::cast_slice(&reversed)
        );
        blob.data_bytes_mut().unwrap().fill(0);
        assert_eq!(*blob.data::<T>().unwrap(), [zero; 3]);
        blob.data_bytes_overwrite()
            .unwrap()
            .copy_from_slice(bytemuck::cast_slice(&values));
        assert_eq!(*blob.data::<T>().unwrap(), values);
        blob.diff_bytes_mut().unwrap().fill(0);
        assert_eq!(*blob.diff::<T>().unwrap(), [zero; 3]);
        blob.diff_bytes_overwrite()
            .unwrap()
            .copy_from_slice(bytemuck::cast_slice(&values));
        assert_eq!(*blob.diff_bytes().unwrap(), *bytemuck::cast_slice(&values));
    }

    #[test]
    fn every_dtype_goes_in_and_out() {
        round_trip([1u8, 2, 255]);
        round_trip([-128i8, 2, 127]);
        round_trip([i16::MIN, 2, i16::MAX]);
        round_trip([1u16, 2, u16::MAX]);
        round_trip([i32::MIN, 2, i32::MAX]);
        round_trip([1u32, 2, u32::MAX]);
        round_trip([i64::MIN, 2, i64::MAX]);
        round_trip([1u64, 2, u64::MAX]);
        round_trip([1.5, -2.0, 3.0].map(f16::from_f32));
        round_trip([1.5, -2.0, 3.0].map(bf16::from_f32));
        round_trip([1.5f32, -2.0, f32::INFINITY]);
        round_trip([1.5f64, -2.0, f64::MIN]);
        round_trip([true, true, false]);
    }

    #[test]
    fn another_dtype_is_an_error_that_touches_nothing() {
        fn expect<T: std::fmt::Debug>(result: Result<T, Error>) {
            match result {
                Err(Error::WrongDType { wanted, got }) => {
                    assert_eq!((wanted, got), (DType::U32, DType::F32));
                }
                other => panic!("{other:?}"),
            }
        }
        let mut blob = AnyBlob::new(shape(&[2]), DType::F32).unwrap();
        expect(blob.data::<u32>());
        expect(blob.data_mut::<u32>());
        expect(blob.data_overwrite::<u32>());
        expect(blob.diff::<u32>());
        expect(blob.diff_mut::<u32>());
        expect(blob.diff_overwrite::<u32>());
        assert!(!blob.data_memory().is_initialized() && !blob.has_diff());
    }

    #[test]
    fn parts_must_have_the_length() {
        let memory = SharedMem::new;
        let parts = |data, diff| AnyBlob::from_parts(shape(&[3]), DType::I16, data, diff);
        assert!(parts(memory(6), Some(memory(6))).is_ok());
        for (result, expected) in [
            (parts(memory(7), None), ("data", 6, 7)),
            (parts(memory(6), Some(memory(5))), ("diff", 6, 5)),
            (
                AnyBlob::from_vec(shape(&[3]), DType::I16, vec![0; 3]),
                ("data", 6, 3),
            ),
        ] {
            match result {
                Err(Error::WrongLength { part, wanted, got }) => {
                    assert_eq!((part, wanted, got), expected);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn replacing_a_memory_checks_and_returns_the_old() {
        let mut blob = AnyBlob::new(shape(&[2]), DType::U8).unwrap();
        let (data, diff) = (blob.data_memory().clone(), blob.diff_memory().clone());
        assert!(blob.replace_data(SharedMem::new(3)).is_err());
        assert!(blob.replace_diff(SharedMem::new(1)).is_err());
        assert!(blob.data_memory().ptr_eq(&data) && blob.diff_memory().ptr_eq(&diff));
        let old = blob.replace_data(SharedMem::from_vec(vec![1, 2])).unwrap();
        assert!(old.ptr_eq(&data));
        let old = blob.replace_diff(SharedMem::from_vec(vec![3, 4])).unwrap();
        assert!(old.ptr_eq(&diff) && blob.has_diff());
        assert_eq!(*blob.data::<u8>().unwrap(), [1, 2]);
        assert_eq!(*blob.diff::<u8>().unwrap(), [3, 4]);
    }

    #[test]
    fn bytes_are_adopted_in_the_machines_order() {
        let bytes: Vec<u8> = [1.0f32, -2.0]
            .iter()
            .flat_map(|x| x.to_ne_bytes())
            .collect();
        let address = bytes.as_ptr();
        let blob = AnyBlob::from_vec(shape(&[2]), DType::F32, bytes.clone()).unwrap();
        assert_eq!(*blob.data::<f32>().unwrap(), [1.0, -2.0]);
        let copied = AnyBlob::from_unaligned(shape(&[2]), DType::F32, &bytes).unwrap();
        assert_eq!(*copied.data::<f32>().unwrap(), [1.0, -2.0]);
        if address.addr().is_multiple_of(4) {
            let blob = AnyBlob::from_vec(shape(&[2]), DType::F32, bytes).unwrap();
            assert_eq!(blob.data_bytes().unwrap().as_ptr(), address);
        }
        let empty = AnyBlob::from_vec(shape(&[0]), DType::F64, Vec::new()).unwrap();
        assert_eq!(empty.data::<f64>().unwrap().len(), 0);
    }

    #[test]
    fn blobs_that_share_a_memory_see_each_other_and_conflict() {
        let mut a = AnyBlob::new(shape(&[2, 2]), DType::I32).unwrap();
        let memory = a.data_memory().clone();
        let mut b = AnyBlob::from_parts(shape(&[4]), DType::I32, memory, None).unwrap();
        a.data_mut::<i32>().unwrap()[3] = 9;
        let reading = b.data::<i32>().unwrap();
        assert_eq!(*reading, [0, 0, 0, 9]);
        assert!(a.data::<i32>().is_ok());
        let refused = a.data_mut::<i32>();
        assert!(matches!(
            refused,
            Err(Error::Memory(synced_mem::Error::Conflict { .. }))
        ));
        drop((refused, reading));
        b.data_mut::<i32>().unwrap()[0] = 5;
        assert_eq!(a.data::<i32>().unwrap()[0], 5);
    }
}
