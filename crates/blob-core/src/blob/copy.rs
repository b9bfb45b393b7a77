//! From blob to blob: copies of data and diff, and sharing instead of copying.
//! Relies on `SharedMem::copy_from` for the side on which a copy runs; checks dtype, shape and count before.

use super::AnyBlob;
use crate::error::Error;
use crate::extents::Shape;
use crate::part::Part;

impl AnyBlob {
    /// Copies the data, the diff or both ([`Part::BOTH`]) of a blob of the same shape and dtype (`CopyFrom` of Caffe
    /// and NeoML).
    ///
    /// Each is copied where its newest bytes are: on the host, or on a device that holds these when the host does not,
    /// or when this blob is there already. The old contents are not moved. A memory that was never touched
    /// copies as zeros and stays untouched. Copying a memory onto itself changes nothing.
    ///
    /// # Errors
    /// [`Error::WrongDType`]; [`Error::ShapeMismatch`], which names the first axis that differs; [`Error::Memory`] for
    /// a conflict with a guard of another blob, out of memory, or a failed device. The blob is then as it was, but that
    /// of [`Part::BOTH`] the data may have been copied when the diff fails.
    #[doc(alias = "CopyFrom")]
    pub fn copy_from(&mut self, source: &AnyBlob, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        source.expect_dtype(self.dtype)?;
        expect_shape(&self.shape, &source.shape)?;
        parts.as_ref().iter().try_for_each(|&part| self.part_mut(part).copy_from(source.part(part)))
    }

    /// As [`copy_from`](Self::copy_from), taking over the source's shape too, as [`reshape`](Self::reshape) does: where
    /// that makes the blob grow, the part that is not copied is lost.
    ///
    /// # Errors
    /// As [`copy_from`](Self::copy_from), without `ShapeMismatch`; the shape then stays as well.
    pub fn copy_from_reshaped(&mut self, source: &AnyBlob, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        source.expect_dtype(self.dtype)?;
        let (data, diff) = self.memories_for(&source.shape)?;
        let mut target = Self { shape: source.shape.clone(), dtype: self.dtype, data, diff };
        target.copy_from(source, parts)?;
        *self = target;
        Ok(())
    }

    /// Makes the data, the diff or both the very memory of another blob's, with all capacity (Caffe's `ShareData` and
    /// `ShareDiff`): both blobs read the writes of either. The shapes may differ. Reshaping one of them beyond the
    /// capacity ends the sharing.
    ///
    /// ```
    /// use blob_core::{Blob, Part, Shape};
    ///
    /// let mut a = Blob::from_slice(Shape::new([2, 2])?, &[1u8, 2, 3, 4])?;
    /// let mut b = Blob::<u8>::new(Shape::new([4])?)?;
    /// b.share(&a, Part::Data)?;
    /// b.data_mut()?[3] = 9;
    /// assert_eq!(a.part(Part::Data).at::<u8>(&[1, 1])?, 9);
    /// let reading = a.data()?;
    /// assert!(b.data_mut().is_err()); // a conflict, at once
    /// # Ok::<(), blob_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDType`]; [`Error::CountMismatch`].
    #[doc(alias = "ShareData", alias = "ShareDiff")]
    pub fn share(&mut self, other: &AnyBlob, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        other.expect_dtype(self.dtype)?;
        self.expect_count(&other.shape)?;
        for &part in parts.as_ref() {
            *self.slot(part) = other.memory(part).clone();
        }
        Ok(())
    }

    /// A blob of the same shape, dtype and elements, in memories of its own, without spare capacity (NeoML's
    /// `GetCopy`). A part that is untouched here is untouched there.
    ///
    /// # Errors
    /// [`Error::Memory`], as [`copy_from`](Self::copy_from).
    #[doc(alias = "GetCopy")]
    pub fn try_clone(&self) -> Result<Self, Error> {
        let mut clone = Self::new(self.shape.clone(), self.dtype)?;
        clone.copy_from(self, Part::BOTH)?;
        Ok(clone)
    }
}

pub(crate) fn expect_shape(wanted: &Shape, got: &Shape) -> Result<(), Error> {
    if wanted == got {
        return Ok(());
    }
    let pairs = wanted.dims().iter().zip(got.dims());
    let equal = pairs.take_while(|(wanted, got)| wanted == got).count();
    Err(Error::ShapeMismatch { axis: equal, wanted: wanted.clone(), got: got.clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use synced_mem::loopback::{Loopback, Mode, launch};
    use synced_mem::{Device, DeviceMut, Head, Queue};

    use super::*;
    use crate::Blob;
    use crate::DType;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn queue() -> Arc<dyn Queue> {
        Loopback::new(Mode::Deferred).queue().unwrap()
    }

    fn fill(mut token: DeviceMut<'_>, value: u8) {
        let queue = Arc::clone(token.queue());
        launch(&*queue, [token.arg_mut()], move |args| {
            args[0].bytes_mut().fill(value);
        })
        .unwrap();
    }

    /// Data `[1, 2]` and diff `[3, 4]`, on the host.
    fn pair() -> Blob<u8> {
        let mut blob = Blob::from_slice(shape(&[2]), &[1, 2]).unwrap();
        blob.diff_mut().unwrap().copy_from_slice(&[3, 4]);
        blob
    }

    fn elements(blob: &Blob<u8>) -> (Vec<u8>, Vec<u8>) {
        (blob.data().unwrap().to_vec(), blob.diff().unwrap().to_vec())
    }

    /// Uploads, downloads, copies between blocks of a device.
    fn moves(memory: &synced_mem::SharedMem) -> [u64; 3] {
        let stats = memory.stats();
        [stats.uploads, stats.downloads, stats.device_copies].map(|traffic| traffic.count)
    }

    #[test]
    fn each_part_is_copied_where_it_is_asked_for() {
        for (parts, expected) in
            [(&[Part::Data][..], ([1, 2], [9, 9])), (&[Part::Diff], ([9, 9], [3, 4])), (&Part::BOTH, ([1, 2], [3, 4]))]
        {
            let mut to = Blob::from_slice(shape(&[2]), &[9, 9]).unwrap();
            to.diff_mut().unwrap().fill(9);
            to.copy_from(&pair(), parts).unwrap();
            assert_eq!(elements(&to), (expected.0.to_vec(), expected.1.to_vec()), "{parts:?}");
        }
    }

    #[test]
    fn another_shape_or_dtype_is_an_error_that_changes_nothing() {
        for (wanted, got, differ) in [
            (&[2, 3][..], &[2, 4][..], 1),
            (&[2, 3], &[3, 2], 0),
            (&[2, 3], &[2, 3, 1], 2),
            (&[2, 3, 4], &[5, 3, 4], 0),
            (&[6], &[], 0),
        ] {
            let mut to = Blob::<u8>::new(shape(wanted)).unwrap();
            let from = Blob::<u8>::new(shape(got)).unwrap();
            match to.copy_from(&from, Part::BOTH) {
                Err(Error::ShapeMismatch { axis, wanted, got }) => {
                    assert_eq!(axis, differ);
                    assert_eq!((&wanted, &got), (to.shape(), from.shape()));
                }
                other => panic!("{other:?}"),
            }
        }
        let mut to = pair();
        let from = AnyBlob::new(shape(&[2]), DType::I8).unwrap();
        for refused in [
            to.copy_from(&from, Part::BOTH),
            to.copy_from_reshaped(&from, Part::BOTH),
            to.share(&from, Part::Data),
            to.share(&from, Part::Diff),
        ] {
            match refused {
                Err(Error::WrongDType { wanted, got }) => {
                    assert_eq!((wanted, got), (DType::U8, DType::I8));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(elements(&to), (vec![1, 2], vec![3, 4]));
    }

    #[test]
    fn a_copy_runs_where_the_newest_bytes_are() {
        let queue = queue();
        // On a device alone: between blocks, though the destination was on the host.
        let (mut from, mut to) = (pair(), pair());
        fill(from.part_mut(Part::Data).overwrite_device(&queue).unwrap(), 7);
        to.copy_from(&from, Part::Data).unwrap();
        assert_eq!(to.memory(Part::Data).head(), Head::AtDevice);
        assert_eq!(moves(to.memory(Part::Data)), [0, 0, 1]);
        assert_eq!(moves(from.memory(Part::Data)), [0, 0, 0]);
        assert_eq!(elements(&to), (vec![7, 7], vec![3, 4]));
        // On the host alone: there, though the destination was on the device.
        let from = pair();
        fill(to.part_mut(Part::Data).overwrite_device(&queue).unwrap(), 8);
        let before = moves(to.memory(Part::Data));
        to.copy_from(&from, Part::Data).unwrap();
        assert_eq!(to.memory(Part::Data).head(), Head::AtHost);
        assert_eq!(moves(to.memory(Part::Data)), before);
        assert_eq!(elements(&to), (vec![1, 2], vec![3, 4]));
        // On both: where the destination is.
        from.part(Part::Data).device(&queue).unwrap();
        fill(to.part_mut(Part::Data).overwrite_device(&queue).unwrap(), 9);
        let before = moves(from.memory(Part::Data));
        to.copy_from(&from, Part::Data).unwrap();
        assert_eq!(to.memory(Part::Data).head(), Head::AtDevice);
        assert_eq!(moves(from.memory(Part::Data)), before);
        assert_eq!(elements(&to), (vec![1, 2], vec![3, 4]));
    }

    #[test]
    fn untouched_memory_copies_as_zeros_and_takes_no_room() {
        let untouched = Blob::<u8>::new(shape(&[2])).unwrap();
        let mut to = AnyBlob::new(untouched.shape().clone(), untouched.dtype()).unwrap();
        to.copy_from(&untouched, Part::BOTH).unwrap();
        assert!(!to.memory(Part::Data).is_initialized() && !to.has_diff());
        let mut to = pair();
        to.copy_from(&untouched, Part::Diff).unwrap();
        assert_eq!(elements(&to), (vec![1, 2], vec![0, 0]));
        assert!(!untouched.memory(Part::Data).is_initialized() && !untouched.has_diff());
    }

    #[test]
    fn a_memory_onto_itself_changes_nothing_even_while_it_is_read() {
        let mut to = pair();
        let mut from = Blob::<u8>::new(shape(&[2])).unwrap();
        from.share(&to, Part::Data).unwrap();
        from.share(&to, Part::Diff).unwrap();
        let reading = from.memory(Part::Data).host(0..2).unwrap();
        to.copy_from(&from, Part::BOTH).unwrap();
        assert_eq!(*reading, [1, 2]);
        assert_eq!(elements(&to), (vec![1, 2], vec![3, 4]));
    }

    #[test]
    fn a_conflict_leaves_elements_and_shape() {
        let from = Blob::from_slice(shape(&[1, 1]), &[9u8]).unwrap();
        let mut to = pair();
        let memory = to.memory(Part::Data).clone();
        let reading = memory.host(1..2).unwrap();
        to.copy_from_reshaped(&from, Part::Data).unwrap();
        assert_eq!(*to.data().unwrap(), [9], "what is read lies behind it");
        drop(reading);
        let reading = memory.host(0..1).unwrap();
        let other = pair();
        let refused = to.copy_from_reshaped(&other, Part::Data);
        assert!(matches!(refused, Err(Error::Memory(synced_mem::Error::Conflict { .. }))));
        assert_eq!(to.shape().dims(), [1, 1]);
        assert_eq!(*reading, [9]);
    }

    #[test]
    fn copying_with_the_shape_keeps_the_rest_within_the_capacity_and_loses_it_beyond() {
        let mut to = pair();
        let from = Blob::from_slice(shape(&[1, 2]), &[5u8, 6]).unwrap();
        to.copy_from_reshaped(&from, Part::Data).unwrap();
        assert_eq!(to.shape().dims(), [1, 2]);
        assert_eq!(elements(&to), (vec![5, 6], vec![3, 4]));
        let from = Blob::from_slice(shape(&[3]), &[7u8, 8, 9]).unwrap();
        to.copy_from_reshaped(&from, Part::Data).unwrap();
        assert!(!to.has_diff());
        assert_eq!(elements(&to), (vec![7, 8, 9], vec![0, 0, 0]));
    }

    #[test]
    fn sharing_goes_both_ways_and_needs_the_count() {
        let mut a = pair();
        let mut b = Blob::<u8>::new(shape(&[2, 1])).unwrap();
        b.share(&a, Part::Data).unwrap();
        b.data_mut().unwrap()[0] = 8;
        a.diff_mut().unwrap()[0] = 7;
        assert_eq!(elements(&a), (vec![8, 2], vec![7, 4]));
        assert_eq!(elements(&b), (vec![8, 2], vec![0, 0]));
        b.share(&a, Part::Diff).unwrap();
        assert_eq!(*b.diff().unwrap(), [7, 4]);
        let mut c = Blob::<u8>::new(shape(&[3])).unwrap();
        for refused in [c.share(&a, Part::Data), c.share(&a, Part::Diff)] {
            match refused {
                Err(Error::CountMismatch { wanted, got }) => {
                    assert_eq!((wanted.count(), got.count()), (3, 2));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(!c.memory(Part::Data).ptr_eq(a.memory(Part::Data)));
        assert!(!c.memory(Part::Diff).ptr_eq(a.memory(Part::Diff)));
    }

    #[test]
    fn clones_have_their_own_memories_and_no_spare_capacity() {
        let mut blob = Blob::<u8>::new(shape(&[9])).unwrap();
        blob.data_mut().unwrap().fill(1);
        blob.reshape(shape(&[2, 2])).unwrap();
        let mut clone = blob.try_clone().unwrap();
        assert_eq!((clone.shape(), clone.capacity()), (blob.shape(), 4));
        assert!(!clone.has_diff());
        clone.data_mut().unwrap()[0] = 9;
        assert_eq!(*blob.data().unwrap(), [1; 4]);
        assert_eq!(*clone.data().unwrap(), [9, 1, 1, 1]);
        blob.diff_mut().unwrap().fill(2);
        assert_eq!(*blob.try_clone().unwrap().diff().unwrap(), [2; 4]);
    }
}
