//! `AnyBlob`: a shape, a dtype, and two memories, data and diff, each as long as these ask for, or longer.
//! Always contiguous and row-major, in the machine's byte order. Relies on `synced-mem` for where the bytes are.

use std::sync::Arc;

use synced_mem::{HostPool, Queue, SharedMem};

use crate::dtype::DType;
use crate::error::Error;
use crate::extents::Shape;
use crate::part::Part;
use crate::view::{View, ViewMut};

/// A tensor whose dtype is known at run time, with a second memory of the same shape for its gradient.
///
/// Neither memory is allocated before the first touch; untouched memory reads as zeros. Memories may be shared with
/// other blobs through handles, so an access can fail with a conflict when a guard of another blob is alive.
///
/// A memory may be longer than the shape asks for: the length is the capacity, and goes with the memory when that
/// is shared. Every access borrows, and every transfer moves, the first `count × size` bytes and no others.
///
/// ```
/// use blob_core::{AnyBlob, DType, Nchw, Part, Shape};
///
/// let mut blob = AnyBlob::new(Shape::new([2, 3, 4, 4])?, DType::F32)?;
/// blob.data_mut().overwrite::<f32>()?.fill(0.5);
/// blob.diff_mut().elements::<f32>()?[0] = 1.0;
/// assert_eq!((blob.shape().extent(Nchw::Channels)?, blob.data().at::<f32>(&[1, 2, 3, 3])?), (3, 0.5));
/// let mut other = AnyBlob::new(blob.shape().clone(), DType::F32)?;
/// other.share(&blob, Part::Data)?; // the same memory
/// other.copy_from(&blob, Part::Diff)?; // a copy
/// other.data_mut().elements::<f32>()?[0] = 2.0;
/// assert_eq!((blob.data().at::<f32>(&[])?, other.diff().at::<f32>(&[])?), (2.0, 1.0));
/// blob.reshape(Shape::new([3, 4])?)?; // within the capacity: the elements stay
/// assert_eq!(blob.data().elements::<f32>()?[0], 2.0);
/// # Ok::<(), blob_core::Error>(())
/// ```
#[derive(Debug)]
pub struct AnyBlob {
    shape: Shape,
    dtype: DType,
    /// Invariant: both memories have at least `shape.count() * dtype.size()` bytes, which is at most `isize::MAX`.
    data: SharedMem,
    diff: SharedMem,
}

impl AnyBlob {
    /// A blob of zeros. Allocates nothing until it is touched. Of another blob's shape and dtype it is NeoML's
    /// `GetClone`.
    ///
    /// # Errors
    /// [`Error::BlobTooLarge`] when no memory can be that long.
    #[doc(alias = "GetClone")]
    pub fn new(shape: Shape, dtype: DType) -> Result<Self, Error> {
        let len = byte_len(&shape, dtype)?;
        Ok(Self { shape, dtype, data: SharedMem::new(len), diff: SharedMem::new(len) })
    }

    /// As [`new`](Self::new), with the host's copies of data and diff in blocks of a pool, also after the blob has
    /// [grown](Self::reshape). Blocks of `HostPool::of` a GPU are pinned: transfers of them run in the background.
    ///
    /// ```
    /// use blob_core::{AnyBlob, DType, Shape};
    /// use std::sync::Arc;
    /// use synced_mem::loopback::{Loopback, Mode};
    /// use synced_mem::{Device, HostPool};
    ///
    /// let device: Arc<dyn Device> = Loopback::new(Mode::Deferred); // with `synced_mem::cuda::Cuda` a GPU
    /// let pool = HostPool::of(&device, 64 << 20);
    /// let mut batch = AnyBlob::new_in(Shape::new([16, 3, 8, 8])?, DType::F32, &pool)?;
    /// batch.data_mut().overwrite::<f32>()?.fill(0.5);
    /// batch.upload(&device.queue()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn new_in(shape: Shape, dtype: DType, pool: &HostPool) -> Result<Self, Error> {
        let len = byte_len(&shape, dtype)?;
        Ok(Self { shape, dtype, data: SharedMem::new_in(len, pool), diff: SharedMem::new_in(len, pool) })
    }

    /// A blob over these memories; the diff, if not given, is untouched and has the data's capacity.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when a memory has less than `count × size` bytes; [`Error::BlobTooLarge`].
    pub fn from_parts(shape: Shape, dtype: DType, data: SharedMem, diff: Option<SharedMem>) -> Result<Self, Error> {
        let len = byte_len(&shape, dtype)?;
        check_capacity(Part::Data, len, &data)?;
        let diff = diff.unwrap_or_else(|| SharedMem::new(data.len()));
        check_capacity(Part::Diff, len, &diff)?;
        Ok(Self { shape, dtype, data, diff })
    }

    /// A blob over a vector of exactly the bytes of its elements, in the machine's byte order. Copied only from an
    /// address that the dtype does not allow.
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::BlobTooLarge`]; out of memory for that copy.
    pub fn from_vec(shape: Shape, dtype: DType, bytes: Vec<u8>) -> Result<Self, Error> {
        let (wanted, got) = (byte_len(&shape, dtype)?, bytes.len());
        if got != wanted {
            let part = Part::Data;
            return Err(Error::WrongLength { part, wanted, got });
        }
        // No element type needs more alignment than its size.
        if bytes.as_ptr().addr().is_multiple_of(dtype.size()) {
            return Self::from_parts(shape, dtype, SharedMem::from(bytes), None);
        }
        Self::from_unaligned(shape, dtype, &bytes)
    }

    fn from_unaligned(shape: Shape, dtype: DType, bytes: &[u8]) -> Result<Self, Error> {
        let mut blob = Self::new(shape, dtype)?;
        blob.data_mut().overwrite_bytes()?.copy_from_slice(bytes);
        Ok(blob)
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

    /// The length of the data, and of the diff, in bytes: `count × size`, whatever the capacity.
    pub fn byte_len(&self) -> usize {
        self.count() * self.dtype.size()
    }

    /// Whether the diff was ever touched or given; otherwise all zeros, without memory.
    pub fn has_diff(&self) -> bool {
        self.diff.is_initialized()
    }

    /// The data, for reading.
    #[inline]
    pub fn data(&self) -> View<'_> {
        self.part(Part::Data)
    }

    /// The data, for writing.
    #[inline]
    pub fn data_mut(&mut self) -> ViewMut<'_> {
        self.part_mut(Part::Data)
    }

    /// The diff, for reading.
    #[inline]
    pub fn diff(&self) -> View<'_> {
        self.part(Part::Diff)
    }

    /// The diff, for writing.
    #[inline]
    pub fn diff_mut(&mut self) -> ViewMut<'_> {
        self.part_mut(Part::Diff)
    }

    /// Starts bringing the data to the queue's device; the host's copy stays valid. See [`View::upload`], which brings
    /// the diff, or a range.
    ///
    /// # Errors
    /// As [`View::device`].
    #[doc(alias = "async_gpu_push")]
    pub fn upload(&self, queue: &Arc<dyn Queue>) -> Result<(), Error> {
        self.data().upload(queue)
    }

    /// The data or the diff, for reading.
    #[inline]
    pub fn part(&self, part: Part) -> View<'_> {
        View::new(self.memory(part), self.dtype, &self.shape)
    }

    /// The data or the diff, for writing.
    #[inline]
    pub fn part_mut(&mut self, part: Part) -> ViewMut<'_> {
        ViewMut::new(self.part(part))
    }

    /// A blob over the same memories, with the shape of now.
    pub(crate) fn alias(&self) -> Self {
        Self { shape: self.shape.clone(), dtype: self.dtype, data: self.data.clone(), diff: self.diff.clone() }
    }

    /// The memory of the data, or of the diff. Cloning the handle shares it.
    #[inline]
    pub fn memory(&self, part: Part) -> &SharedMem {
        match part {
            Part::Data => &self.data,
            Part::Diff => &self.diff,
        }
    }

    /// Puts another memory in the place of the data, or of the diff, and returns the old one. Bytes beyond
    /// [`byte_len`](Self::byte_len) are capacity.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when it is shorter than [`byte_len`](Self::byte_len).
    pub fn replace_memory(&mut self, memory: SharedMem, part: Part) -> Result<SharedMem, Error> {
        check_capacity(part, self.byte_len(), &memory)?;
        Ok(std::mem::replace(self.slot(part), memory))
    }

    pub(crate) fn slot(&mut self, part: Part) -> &mut SharedMem {
        match part {
            Part::Data => &mut self.data,
            Part::Diff => &mut self.diff,
        }
    }

    pub(crate) fn expect_dtype(&self, wanted: DType) -> Result<(), Error> {
        let got = self.dtype;
        if got == wanted { Ok(()) } else { Err(Error::WrongDType { wanted, got }) }
    }
}

fn byte_len(shape: &Shape, dtype: DType) -> Result<usize, Error> {
    let len = shape.count().checked_mul(dtype.size());
    len.filter(|&len| len <= isize::MAX as usize).ok_or_else(|| Error::BlobTooLarge { shape: shape.clone(), dtype })
}

fn check_capacity(part: Part, wanted: usize, memory: &SharedMem) -> Result<(), Error> {
    let got = memory.len();
    if got >= wanted { Ok(()) } else { Err(Error::WrongLength { part, wanted, got }) }
}

// Behind the blob's own functions, which so come first on the page.
pub(crate) mod copy;
mod reshape;

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::Element;

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
                assert!(!blob.memory(Part::Data).is_initialized() && !blob.has_diff());
                assert_eq!(*blob.data().bytes().unwrap(), vec![0; blob.byte_len()]);
                // No elements are never touched.
                assert_eq!(blob.memory(Part::Data).is_initialized(), blob.count() > 0);
                assert!(!blob.has_diff());
                assert_eq!(*blob.diff().bytes().unwrap(), vec![0; blob.byte_len()]);
                assert_eq!(blob.has_diff(), blob.count() > 0);
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
        assert_eq!(*blob.data().elements::<T>().unwrap(), [T::default(); 3]);
        blob.data_mut().overwrite::<T>().unwrap().copy_from_slice(&values);
        assert_eq!(*blob.data().elements::<T>().unwrap(), values);
        assert!(!blob.has_diff());
        blob.diff_mut().elements::<T>().unwrap()[1] = values[1];
        assert!(blob.has_diff());
        let zero = T::default();
        assert_eq!(*blob.diff().elements::<T>().unwrap(), [zero, values[1], zero]);
        blob.diff_mut().overwrite::<T>().unwrap().copy_from_slice(&values);
        assert_eq!(*blob.diff().elements::<T>().unwrap(), values);
        blob.data_mut().elements::<T>().unwrap().reverse();
        let reversed = [values[2], values[1], values[0]];
        assert_eq!(*blob.data().bytes().unwrap(), *bytemuck::cast_slice(&reversed));
        blob.data_mut().bytes().unwrap().fill(0);
        assert_eq!(*blob.data().elements::<T>().unwrap(), [zero; 3]);
        blob.data_mut().overwrite_bytes().unwrap().copy_from_slice(bytemuck::cast_slice(&values));
        assert_eq!(*blob.data().elements::<T>().unwrap(), values);
        blob.diff_mut().bytes().unwrap().fill(0);
        assert_eq!(*blob.diff().elements::<T>().unwrap(), [zero; 3]);
        blob.diff_mut().overwrite_bytes().unwrap().copy_from_slice(bytemuck::cast_slice(&values));
        assert_eq!(*blob.diff().bytes().unwrap(), *bytemuck::cast_slice(&values));
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
    fn parts_must_have_the_length_or_more() {
        let memory = SharedMem::new;
        let parts = |data, diff| AnyBlob::from_parts(shape(&[3]), DType::I16, data, diff);
        let bytes = |len| AnyBlob::from_vec(shape(&[3]), DType::I16, vec![0; len]);
        assert!(parts(memory(6), Some(memory(6))).is_ok());
        for (result, expected) in [
            (parts(memory(5), None), (Part::Data, 6, 5)),
            (parts(memory(6), Some(memory(5))), (Part::Diff, 6, 5)),
            (bytes(3), (Part::Data, 6, 3)),
            (bytes(7), (Part::Data, 6, 7)),
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
        let (data, diff) = (blob.memory(Part::Data).clone(), blob.memory(Part::Diff).clone());
        assert!(blob.replace_memory(SharedMem::new(1), Part::Data).is_err());
        assert!(blob.replace_memory(SharedMem::new(1), Part::Diff).is_err());
        assert!(blob.memory(Part::Data).ptr_eq(&data) && blob.memory(Part::Diff).ptr_eq(&diff));
        let old = blob.replace_memory(SharedMem::from(vec![1, 2]), Part::Data).unwrap();
        assert!(old.ptr_eq(&data));
        let old = blob.replace_memory(SharedMem::from(vec![3, 4]), Part::Diff).unwrap();
        assert!(old.ptr_eq(&diff) && blob.has_diff());
        assert_eq!(*blob.data().elements::<u8>().unwrap(), [1, 2]);
        assert_eq!(*blob.diff().elements::<u8>().unwrap(), [3, 4]);
    }

    #[test]
    fn what_a_memory_has_beyond_the_shape_is_not_seen() {
        let data = SharedMem::from(vec![1, 0, 2, 0, 3, 0, 9, 9, 9]);
        let mut blob = AnyBlob::from_parts(shape(&[3]), DType::I16, data, None).unwrap();
        assert_eq!((blob.byte_len(), blob.memory(Part::Data).len()), (6, 9));
        assert_eq!(blob.memory(Part::Diff).len(), 9, "an untouched diff grows with it");
        assert_eq!(blob.data().bytes().unwrap().len(), 6);
        assert_eq!(blob.data().elements::<i16>().unwrap().len(), 3);
        blob.data_mut().overwrite::<i16>().unwrap().fill(-1);
        blob.data_mut().bytes().unwrap()[0] = 4;
        assert_eq!(*blob.memory(Part::Data).host(0..9).unwrap(), [4, 255, 255, 255, 255, 255, 9, 9, 9]);
        // A byte that no bool could be, behind the last element.
        let data = SharedMem::from(vec![0, 1, 7]);
        let blob = AnyBlob::from_parts(shape(&[2]), DType::Bool, data, None).unwrap();
        assert_eq!(*blob.data().elements::<bool>().unwrap(), [false, true]);
    }

    #[test]
    fn one_element_may_lie_anywhere_and_is_checked_alone() {
        let bytes = SharedMem::from(vec![1, 2, 0]);
        let blob = AnyBlob::from_parts(shape(&[3]), DType::Bool, bytes, None).unwrap();
        assert!(blob.data().at::<bool>(&[0]).unwrap() && !blob.data().at::<bool>(&[2]).unwrap());
        let refused = blob.data().at::<bool>(&[1]);
        assert!(matches!(refused, Err(Error::InvalidBool { index: 1, byte: 2 })));
        let values: Vec<u8> = [1.5f64, -2.5].iter().flat_map(|x| x.to_ne_bytes()).collect();
        for shift in 0..8 {
            let owner = [vec![0; shift], values.clone()].concat();
            let buffer = Shifted(owner, shift);
            let memory = SharedMem::from(synced_mem::HostBuffer::from_owner(buffer));
            let blob = AnyBlob::from_parts(shape(&[2]), DType::F64, memory, None).unwrap();
            assert_eq!(blob.data().at::<f64>(&[1]).unwrap(), -2.5);
        }
    }

    /// Bytes that start at an odd address, for seven of eight shifts.
    struct Shifted(Vec<u8>, usize);

    impl AsRef<[u8]> for Shifted {
        fn as_ref(&self) -> &[u8] {
            &self.0[self.1..]
        }
    }

    #[test]
    fn bytes_are_adopted_in_the_machines_order() {
        let bytes: Vec<u8> = [1.0f32, -2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        let address = bytes.as_ptr();
        let blob = AnyBlob::from_vec(shape(&[2]), DType::F32, bytes.clone()).unwrap();
        assert_eq!(*blob.data().elements::<f32>().unwrap(), [1.0, -2.0]);
        let copied = AnyBlob::from_unaligned(shape(&[2]), DType::F32, &bytes).unwrap();
        assert_eq!(*copied.data().elements::<f32>().unwrap(), [1.0, -2.0]);
        if address.addr().is_multiple_of(4) {
            let blob = AnyBlob::from_vec(shape(&[2]), DType::F32, bytes).unwrap();
            assert_eq!(blob.data().bytes().unwrap().as_ptr(), address);
        }
        let empty = AnyBlob::from_vec(shape(&[0]), DType::F64, Vec::new()).unwrap();
        assert_eq!(empty.data().elements::<f64>().unwrap().len(), 0);
    }
}
