//! Another shape for a blob: in the memories where these are long enough, else in fresh ones.
//! Relies on the lengths of the memories to be the capacity, so that shared memory is never outgrown.

use synced_mem::SharedMem;

use super::{AnyBlob, byte_len};
use crate::error::Error;
use crate::extents::Shape;

impl AnyBlob {
    /// How many elements [`reshape`](Self::reshape) can grow to without fresh memories.
    pub fn capacity(&self) -> usize {
        self.data.len().min(self.diff.len()) / self.dtype.size()
    }

    /// Gives the blob another shape (Caffe's `Reshape`).
    ///
    /// Up to the [`capacity`](Self::capacity) both memories stay: the elements are the same in the new shape, and
    /// elements that a lesser shape has hidden are seen again. Where either memory is too short, *both* are replaced by
    /// untouched ones of the same pool, which read as zeros; blobs that shared them keep the old ones. Nothing is
    /// allocated or moved.
    ///
    /// ```
    /// use blob_core::{Blob, Shape};
    ///
    /// let mut blob = Blob::from_slice(Shape::new([2, 3])?, &[1u8, 2, 3, 4, 5, 6])?;
    /// blob.reshape(Shape::new([2])?)?;
    /// assert_eq!(*blob.data()?, [1, 2]);
    /// blob.reshape(Shape::new([3, 2])?)?;
    /// assert_eq!(*blob.data()?, [1, 2, 3, 4, 5, 6]);
    /// blob.reshape(Shape::new([7])?)?; // grows
    /// assert_eq!(*blob.data()?, [0; 7]);
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BlobTooLarge`]; the blob is then as it was.
    pub fn reshape(&mut self, shape: Shape) -> Result<(), Error> {
        (self.data, self.diff) = self.memories_for(&shape)?;
        self.shape = shape;
        Ok(())
    }

    /// Gives the blob another shape of the same count (NeoML's `ReinterpretDimensions`); the memories stay.
    ///
    /// # Errors
    /// [`Error::CountMismatch`]; the blob is then as it was.
    #[doc(alias = "ReinterpretDimensions")]
    pub fn reinterpret(&mut self, shape: Shape) -> Result<(), Error> {
        self.expect_count(&shape)?;
        self.shape = shape;
        Ok(())
    }

    pub(super) fn expect_count(&self, got: &Shape) -> Result<(), Error> {
        if self.count() == got.count() {
            return Ok(());
        }
        Err(Error::CountMismatch { wanted: self.shape.clone(), got: got.clone() })
    }

    /// The data and the diff that the blob would have in another shape.
    pub(super) fn memories_for(&self, shape: &Shape) -> Result<(SharedMem, SharedMem), Error> {
        let len = byte_len(shape, self.dtype)?;
        Ok(if len <= self.data.len() && len <= self.diff.len() {
            (self.data.clone(), self.diff.clone())
        } else {
            (self.data.new_alike(len), self.diff.new_alike(len))
        })
    }
}

#[cfg(test)]
mod tests {
    use synced_mem::HostPool;

    use super::*;
    use crate::{Blob, DType, Part};

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn six() -> Blob<u16> {
        let mut blob = Blob::from_slice(shape(&[2, 3]), &[1, 2, 3, 4, 5, 6]).unwrap();
        blob.diff_mut().unwrap().fill(10);
        blob
    }

    #[test]
    fn growing_replaces_both_memories_by_untouched_ones() {
        let mut blob = six();
        blob.reshape(shape(&[7])).unwrap();
        assert_eq!((blob.count(), blob.byte_len(), blob.capacity()), (7, 14, 7));
        assert!(!blob.memory(Part::Data).is_initialized() && !blob.has_diff());
        assert_eq!(*blob.data().unwrap(), [0; 7]);
        assert_eq!(*blob.diff().unwrap(), [0; 7]);
    }

    #[test]
    fn growing_keeps_the_pool() {
        let pool = HostPool::new(1 << 20);
        let mut blob = Blob::<f32>::new_in(shape(&[1024]), &pool).unwrap();
        for (extent, misses) in [(1024, 2), (2048, 4)] {
            blob.reshape(shape(&[extent])).unwrap();
            blob.data_overwrite().unwrap().fill(1.0);
            blob.diff_overwrite().unwrap().fill(1.0);
            assert_eq!(pool.stats().misses, misses, "{extent} elements of each part");
        }
    }

    /// Each of the two capacities counts, and alone is too little.
    #[test]
    fn either_memory_that_is_too_short_replaces_both() {
        for (data, diff, stays) in [(8, 8, true), (8, 7, false), (7, 8, false)] {
            let (data, diff) = (SharedMem::new(data), SharedMem::new(diff));
            let parts = (data.clone(), Some(diff.clone()));
            let mut blob = AnyBlob::from_parts(shape(&[1]), DType::U32, parts.0, parts.1).unwrap();
            assert_eq!(blob.capacity(), if stays { 2 } else { 1 });
            blob.reshape(shape(&[2])).unwrap();
            assert_eq!(blob.memory(Part::Data).ptr_eq(&data), stays);
            assert_eq!(blob.memory(Part::Diff).ptr_eq(&diff), stays);
        }
    }

    #[test]
    fn a_shape_too_large_changes_nothing() {
        let mut blob = six();
        let huge = shape(&[isize::MAX as usize]);
        assert!(matches!(blob.reshape(huge), Err(Error::BlobTooLarge { .. })));
        assert_eq!(blob.shape().dims(), [2, 3]);
        assert_eq!(*blob.data().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn reinterpreting_needs_the_same_count() {
        let mut blob = six();
        blob.reinterpret(shape(&[6, 1])).unwrap();
        assert_eq!(blob.shape().dims(), [6, 1]);
        assert_eq!(*blob.data().unwrap(), [1, 2, 3, 4, 5, 6]);
        for dims in [&[5][..], &[7], &[], &[0]] {
            match blob.reinterpret(shape(dims)) {
                Err(Error::CountMismatch { wanted, got }) => {
                    assert_eq!((wanted.dims(), got.dims()), (&[6, 1][..], dims));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(blob.shape().dims(), [6, 1]);
        let like = AnyBlob::new(shape(&[3]), DType::F64).unwrap();
        blob.reshape(like.shape().clone()).unwrap();
        assert_eq!(*blob.data().unwrap(), [1, 2, 3]);
    }
}
