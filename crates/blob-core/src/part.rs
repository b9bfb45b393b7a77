//! `Part`: some neighbouring elements of one of a blob's memories, and every way to get at them.
//! It relies on `typed` for the guards and on `synced-mem` for the bytes; it knows no shape. An access borrows, and
//! moves, the bytes of the part and no others.

use std::ops::Range;
use std::sync::Arc;

use synced_mem::{DeviceMut, DeviceRef, Queue, SharedMem};

use crate::{AnyBlob, DType, Element, Error, Ref, RefMut};

/// Elements of the data, or of the diff. `'a` is how long the blob is borrowed, exclusively by whoever writes.
pub(crate) struct Part<'a> {
    memory: &'a SharedMem,
    dtype: DType,
    /// Invariant: the blob has these elements.
    elements: Range<usize>,
}

impl<'a> Part<'a> {
    /// All elements of the data.
    pub(crate) fn of_data(blob: &'a AnyBlob) -> Self {
        Self { memory: blob.data_memory(), dtype: blob.dtype(), elements: 0..blob.count() }
    }

    /// All elements of the diff.
    pub(crate) fn of_diff(blob: &'a AnyBlob) -> Self {
        Self { memory: blob.diff_memory(), ..Self::of_data(blob) }
    }

    /// Some of the elements, counted from the first one of this part.
    pub(crate) fn elements(self, range: Range<usize>) -> Result<Self, Error> {
        let count = self.elements.len();
        if range.start > range.end || range.end > count {
            return Err(Error::ElementsOutOfRange { range, count });
        }
        Ok(self.trusted(range))
    }

    /// The same for a range that is known to lie within the part: that of a window, whose position was checked.
    pub(crate) fn trusted(self, elements: Range<usize>) -> Self {
        debug_assert!(elements.start <= elements.end && elements.end <= self.elements.len());
        let start = self.elements.start;
        Self { elements: start + elements.start..start + elements.end, ..self }
    }

    pub(crate) fn read<T: Element>(self) -> Result<Ref<'a, [T]>, Error> {
        self.expect(T::DTYPE)?;
        Ref::new(self.memory.host(self.bytes())?)
    }

    pub(crate) fn write<T: Element>(self) -> Result<RefMut<'a, [T]>, Error> {
        self.expect(T::DTYPE)?;
        RefMut::write(self.memory, self.bytes())
    }

    pub(crate) fn overwrite<T: Element>(self) -> Result<RefMut<'a, [T]>, Error> {
        self.expect(T::DTYPE)?;
        RefMut::overwrite(self.memory, self.bytes())
    }

    pub(crate) fn device(self, queue: &Arc<dyn Queue>) -> Result<DeviceRef<'a>, Error> {
        Ok(self.memory.device(queue, self.bytes())?)
    }

    pub(crate) fn device_mut(self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'a>, Error> {
        Ok(self.memory.device_mut(queue, self.bytes())?)
    }

    pub(crate) fn device_overwrite(self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'a>, Error> {
        Ok(self.memory.device_overwrite(queue, self.bytes())?)
    }

    /// Copies a part of as many elements of the same dtype, where its newest bytes are.
    pub(crate) fn copy_from(self, source: &Part<'_>) -> Result<(), Error> {
        // Zeros to zeros: neither has to take memory for that.
        if !self.memory.is_initialized() && !source.memory.is_initialized() {
            return Ok(());
        }
        let to = self.bytes().start;
        Ok(self.memory.copy_from(to, source.memory, source.bytes())?)
    }

    /// Where the elements lie in the memory. Nothing overflows: the blob's bytes fit in memory.
    pub(crate) fn bytes(&self) -> Range<usize> {
        let size = self.dtype.size();
        self.elements.start * size..self.elements.end * size
    }

    fn expect(&self, wanted: DType) -> Result<(), Error> {
        let got = self.dtype;
        match got == wanted {
            true => Ok(()),
            false => Err(Error::WrongDType { wanted, got }),
        }
    }
}
