//! A blob's data and diff on a device: borrowed for work on a queue, moved there when they are missing.
//! It relies on the tokens of `synced-mem`; it knows no kernel, and checks no element: a device writes bytes.

use std::sync::Arc;

use synced_mem::{DeviceMut, DeviceRef, Queue};

use super::AnyBlob;
use crate::Error;

impl AnyBlob {
    /// The data's bytes on the queue's device, for work on that queue. Uploads what is missing there.
    ///
    /// ```
    /// use blob_core::{AnyBlob, DType, Shape};
    /// use synced_mem::Device;
    /// use synced_mem::loopback::{self, Loopback, Mode};
    ///
    /// let queue = Loopback::new(Mode::Deferred).queue()?; // host memory that plays a device
    /// let mut blob = AnyBlob::new(Shape::new([3])?, DType::U8)?;
    /// blob.data_overwrite()?.copy_from_slice(&[1u8, 2, 3]);
    /// let mut token = blob.data_device_mut(&queue)?;
    /// loopback::launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut()[2] = 9)?;
    /// drop(token);
    /// assert_eq!(*blob.data::<u8>()?, [1, 2, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Memory`]: a conflict with a guard of another blob, no room on the device, or a failure of the device.
    pub fn data_device(&self, queue: &Arc<dyn Queue>) -> Result<DeviceRef<'_>, Error> {
        Ok(self.data.device(queue, 0..self.byte_len())?)
    }

    /// The data's bytes on the queue's device, to be written by work on that queue: no other copy is valid afterwards.
    ///
    /// # Errors
    /// As [`data_device`](Self::data_device).
    pub fn data_device_mut(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        Ok(self.data.device_mut(queue, 0..self.byte_len())?)
    }

    /// The data's bytes on the queue's device, for work that writes all of them: nothing is moved for its sake, and what
    /// they hold before that is unspecified.
    ///
    /// # Errors
    /// As [`data_device`](Self::data_device).
    pub fn data_device_overwrite(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        Ok(self.data.device_overwrite(queue, 0..self.byte_len())?)
    }

    /// The diff's bytes on the queue's device. See [`data_device`](Self::data_device).
    ///
    /// # Errors
    /// As [`data_device`](Self::data_device).
    pub fn diff_device(&self, queue: &Arc<dyn Queue>) -> Result<DeviceRef<'_>, Error> {
        Ok(self.diff.device(queue, 0..self.byte_len())?)
    }

    /// The diff's bytes on the queue's device, to be written. See [`data_device_mut`](Self::data_device_mut).
    ///
    /// # Errors
    /// As [`data_device`](Self::data_device).
    pub fn diff_device_mut(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        Ok(self.diff.device_mut(queue, 0..self.byte_len())?)
    }

    /// The diff's bytes on the queue's device, all to be written. See
    /// [`data_device_overwrite`](Self::data_device_overwrite).
    ///
    /// # Errors
    /// As [`data_device`](Self::data_device).
    pub fn diff_device_overwrite(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        Ok(self.diff.device_overwrite(queue, 0..self.byte_len())?)
    }
}

#[cfg(test)]
mod tests {
    use synced_mem::loopback::{Loopback, Mode, launch};
    use synced_mem::{Device, Head, SharedMem};

    use super::*;
    use crate::{Blob, Shape};

    fn queue() -> Arc<dyn Queue> {
        Loopback::new(Mode::Deferred).queue().unwrap()
    }

    /// Adds `more` to every byte.
    fn add(mut token: DeviceMut<'_>, more: u8) {
        let queue = Arc::clone(token.queue());
        let kernel = move |args: &mut [synced_mem::loopback::KernelArg<'_>]| {
            args[0].bytes_mut().iter_mut().for_each(|b| *b += more);
        };
        launch(&*queue, [token.arg_mut()], kernel).unwrap();
    }

    fn blob() -> Blob<u8> {
        let mut blob = Blob::from_slice(Shape::new([4]).unwrap(), &[1, 2, 3, 4]).unwrap();
        blob.diff_mut().unwrap().fill(5);
        blob
    }

    fn moved(memory: &SharedMem) -> (u64, u64) {
        let stats = memory.stats();
        (stats.uploads().bytes(), stats.downloads().bytes())
    }

    #[test]
    fn data_and_diff_go_to_a_device_and_back_each_by_itself() {
        let queue = queue();
        let mut blob = blob();
        add(blob.data_device_mut(&queue).unwrap(), 10);
        assert_eq!(*blob.diff().unwrap(), [5; 4]);
        assert_eq!(moved(blob.diff_memory()), (0, 0));
        add(blob.diff_device_mut(&queue).unwrap(), 20);
        assert_eq!(*blob.data().unwrap(), [11, 12, 13, 14]);
        assert_eq!(*blob.diff().unwrap(), [25; 4]);
        assert_eq!(moved(blob.data_memory()), (4, 4));
        assert_eq!(moved(blob.diff_memory()), (4, 4));
    }

    #[test]
    fn reading_on_a_device_leaves_the_host_valid_and_overwriting_uploads_nothing() {
        let queue = queue();
        let blob = blob();
        assert_eq!(blob.data_device(&queue).unwrap().len(), 4);
        assert_eq!(blob.diff_device(&queue).unwrap().len(), 4);
        let heads = |blob: &Blob<u8>| (blob.data_memory().head(), blob.diff_memory().head());
        assert_eq!(heads(&blob), (Head::Synced, Head::Synced));
        assert_eq!(*blob.data().unwrap(), [1, 2, 3, 4]);
        assert_eq!(moved(blob.data_memory()), (4, 0));
        let mut blob = Blob::<u8>::new(Shape::new([4]).unwrap()).unwrap();
        assert_eq!(blob.data_device_overwrite(&queue).unwrap().len(), 4);
        assert_eq!(blob.diff_device_overwrite(&queue).unwrap().len(), 4);
        assert_eq!(heads(&blob), (Head::AtDevice, Head::AtDevice));
        assert_eq!(moved(blob.data_memory()), (0, 0));
        assert_eq!(moved(blob.diff_memory()), (0, 0));
        assert_eq!(blob.data_memory().stats().fills().count(), 0);
    }

    #[test]
    fn count_bytes_are_moved_and_not_the_capacity() {
        let queue = queue();
        let mut blob = Blob::<u8>::new(Shape::new([1000]).unwrap()).unwrap();
        blob.data_mut().unwrap().fill(1);
        blob.diff_mut().unwrap().fill(1);
        blob.reshape(Shape::new([10]).unwrap()).unwrap();
        add(blob.data_device_mut(&queue).unwrap(), 1);
        add(blob.diff_device_mut(&queue).unwrap(), 2);
        assert_eq!(*blob.data().unwrap(), [2; 10]);
        assert_eq!(*blob.diff().unwrap(), [3; 10]);
        assert_eq!(moved(blob.data_memory()), (10, 10));
        assert_eq!(moved(blob.diff_memory()), (10, 10));
        blob.reshape(Shape::new([20]).unwrap()).unwrap();
        let expected = [[2u8; 10], [1; 10]].concat();
        assert_eq!(*blob.data().unwrap(), expected[..]);
        assert_eq!(moved(blob.data_memory()), (10, 10));
    }

    #[test]
    fn a_blob_without_elements_is_borrowed_and_moves_nothing() {
        let queue = queue();
        let mut blob = AnyBlob::new(Shape::new([0, 3]).unwrap(), crate::DType::F32).unwrap();
        assert!(blob.data_device(&queue).unwrap().is_empty());
        assert!(blob.diff_device_mut(&queue).unwrap().is_empty());
        assert_eq!(moved(blob.data_memory()), (0, 0));
        assert_eq!(blob.data_memory().stats().in_use(), 0);
    }
}
