//! `View` and `ViewMut`: some neighbouring elements of a blob's data or diff, and every way to read and write them.
//! Blobs and windows make views, which rely on `guards` and on `synced-mem` for the bytes; an access
//! borrows, and moves, the bytes of the view and no others.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use synced_mem::{DeviceMut, DeviceRef, Queue, SharedMem};

use crate::dtype::{DType, Element};
use crate::error::Error;
use crate::extents::{MAX_AXES, Shape};
use crate::guards::{Ref, RefMut};
use crate::shape::{bounds, linear};

/// Elements of a blob's data, or of its diff, for reading: all of them, those of a window, or a [`range`](Self::range).
///
/// Making one borrows the blob and touches no memory. [`elements`](Self::elements), [`bytes`](Self::bytes),
/// [`at`](Self::at) and [`device`](Self::device) bring the elements where and as you want them.
///
/// ```
/// use blob_core::{AnyBlob, DType, Shape};
///
/// let mut blob = AnyBlob::new(Shape::new([2, 3])?, DType::F32)?;
/// blob.data_mut().range(3..)?.overwrite::<f32>()?.copy_from_slice(&[1.0, 2.0, 3.0]);
/// blob.data_mut().range(4..5)?.elements::<f32>()?[0] += 10.0;
/// assert_eq!(*blob.data().range(2..6)?.elements::<f32>()?, [0.0, 1.0, 12.0, 3.0]);
/// assert_eq!(blob.data().at::<f32>(&[1, 1])?, 12.0);
/// assert_eq!(blob.data().bytes()?.len(), 24);
/// let error = blob.data().range(4..7).unwrap_err().to_string();
/// assert_eq!(error, "elements 4..7 out of range; there are 6");
/// # Ok::<(), blob_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a> {
    memory: &'a SharedMem,
    dtype: DType,
    /// Invariant: the memory has the elements `start..start + count`.
    start: usize,
    count: usize,
    /// The extents of the blob; of the outermost axis this has `steps`. Invariant: their product is `count`.
    dims: &'a [usize],
    steps: usize,
}

/// Elements of a blob's data, or of its diff, for writing. To read, see [`view`](Self::view).
///
/// `elements`, `bytes` and `device` keep the elements; the twins `overwrite…` are for a caller who
/// writes all of them, and move nothing. Each takes the view; [`reborrow`](Self::reborrow) gives one to use and keep
/// this.
#[derive(Debug)]
pub struct ViewMut<'a> {
    /// Invariant: made from a blob that is borrowed exclusively for `'a`.
    view: View<'a>,
}

/// The extents of a range, which lies in one axis. The outermost extent is not read.
const FLAT: &[usize] = &[0];

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a SharedMem, dtype: DType, shape: &'a Shape) -> Self {
        let dims = shape.dims();
        let steps = dims.first().copied().unwrap_or(1);
        Self { memory, dtype, start: 0, count: shape.count(), dims, steps }
    }

    /// Steps of the outermost axis that are known to be there. Nothing overflows: the blob counts no fewer elements.
    pub(crate) fn steps(self, pos: usize, steps: usize) -> Self {
        debug_assert!(pos + steps <= self.steps);
        let step: usize = self.dims[1..].iter().product();
        Self { start: self.start + pos * step, count: steps * step, steps, ..self }
    }

    /// Some of the elements, counted from the first one here, along one axis, whatever the shape of the blob.
    ///
    /// # Errors
    /// [`Error::ElementsOutOfRange`].
    pub fn range(self, elements: impl RangeBounds<usize>) -> Result<Self, Error> {
        let range = bounds(elements, self.count);
        if range.start > range.end || range.end > self.count {
            return Err(Error::ElementsOutOfRange { range, count: self.count });
        }
        let count = range.end - range.start;
        Ok(Self { start: self.start + range.start, count, dims: FLAT, steps: count, ..self })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The extents: those of the blob, with the number of steps for the outermost of a window; of a range one, the
    /// length.
    pub fn shape(&self) -> Shape {
        let mut dims = [0; MAX_AXES];
        dims.iter_mut().zip(self.extents()).for_each(|(dim, extent)| *dim = extent);
        Shape::new(&dims[..self.dims.len()]).expect("no extent is greater than the blob's")
    }

    /// Where the elements lie in their memory, in bytes.
    #[inline]
    pub fn byte_range(&self) -> Range<usize> {
        // Nothing overflows: the blob's bytes fit in memory.
        let size = self.dtype.size();
        self.start * size..(self.start + self.count) * size
    }

    /// The elements on the host.
    ///
    /// # Errors
    /// [`Error::WrongDType`]; [`Error::Misaligned`] over adopted memory; [`Error::InvalidBool`], which costs one pass
    /// over bools; [`Error::Memory`] for a conflict with a guard of another blob or window, or out of memory.
    pub fn elements<T: Element>(self) -> Result<Ref<'a, [T]>, Error> {
        self.expect(T::DTYPE)?;
        Ref::new(self.memory.host(self.byte_range())?)
    }

    /// The elements' bytes on the host in the machine's byte order, whatever the dtype.
    ///
    /// # Errors
    /// [`Error::Memory`] for a conflict with a guard of another blob or window, or out of memory.
    pub fn bytes(self) -> Result<Ref<'a, [u8]>, Error> {
        Ref::new(self.memory.host(self.byte_range())?)
    }

    /// One element. Indices that are not given are 0, as in Caffe; all are checked, each against its axis.
    ///
    /// Brings all elements of the view to the host at once; to read many, take
    /// [`elements`](Self::elements).
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], [`Error::TooManyIndices`]; [`Error::OffsetOutOfRange`] when there are no elements;
    /// [`Error::WrongDType`]; [`Error::InvalidBool`] for that element; [`Error::Memory`] as
    /// [`elements`](Self::elements).
    pub fn at<T: Element>(self, index: &[usize]) -> Result<T, Error> {
        self.expect(T::DTYPE)?;
        if index.len() > self.dims.len() {
            return Err(Error::TooManyIndices { got: index.len(), shape: self.shape() });
        }
        let offset = linear(self.extents(), index)?;
        if offset >= self.count {
            // No index need be out of range where there are no elements: none has to be given.
            return Err(Error::OffsetOutOfRange { offset, shape: self.shape() });
        }
        let bytes = self.memory.host(self.byte_range())?;
        let bytes = &bytes[offset * size_of::<T>()..][..size_of::<T>()];
        bytemuck::checked::try_pod_read_unaligned(bytes)
            .map_err(|_| Error::InvalidBool { index: offset, byte: bytes[0] })
    }

    /// Starts bringing the elements to the queue's device; the host's copy stays valid (Caffe's `async_gpu_push`). Of
    /// two places that hold all that an operation reads, `blob-ops` works where a blob was last asked for.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    #[doc(alias = "async_gpu_push")]
    pub fn upload(self, queue: &Arc<dyn Queue>) -> Result<(), Error> {
        Ok(self.memory.upload(queue, self.byte_range())?)
    }

    /// The elements' bytes on the queue's device, for work on that queue that reads them. Uploads the bytes that are
    /// missing there.
    ///
    /// # Errors
    /// [`Error::Memory`]: a conflict with a guard of another blob or window, no room on the device, or a failed device.
    pub fn device(self, queue: &Arc<dyn Queue>) -> Result<DeviceRef<'a>, Error> {
        Ok(self.memory.device(queue, self.byte_range())?)
    }

    fn extents(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (steps, dims) = (self.steps, self.dims);
        dims.iter().enumerate().map(move |(axis, &extent)| if axis == 0 { steps } else { extent })
    }

    fn expect(&self, wanted: DType) -> Result<(), Error> {
        let got = self.dtype;
        if got == wanted { Ok(()) } else { Err(Error::WrongDType { wanted, got }) }
    }
}

impl<'a> ViewMut<'a> {
    /// Of a view that the caller borrows exclusively for `'a`.
    pub(crate) fn new(view: View<'a>) -> Self {
        Self { view }
    }

    /// The same elements, for reading, while they are not written through this.
    pub fn view(&self) -> View<'_> {
        self.view
    }

    /// The same elements, for writing, while this is not used.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { view: self.view }
    }

    /// Some of the elements. See [`View::range`].
    ///
    /// # Errors
    /// [`Error::ElementsOutOfRange`].
    pub fn range(self, elements: impl RangeBounds<usize>) -> Result<Self, Error> {
        self.view.range(elements).map(Self::new)
    }

    /// The elements on the host, to be read and written.
    ///
    /// # Errors
    /// As [`View::elements`].
    pub fn elements<T: Element>(self) -> Result<RefMut<'a, [T]>, Error> {
        self.view.expect(T::DTYPE)?;
        RefMut::write(self.view.memory, self.view.byte_range())
    }

    /// The elements on the host, for a caller who writes all of them. The contents before that are unspecified.
    ///
    /// # Errors
    /// As [`View::elements`], without `InvalidBool`.
    pub fn overwrite<T: Element>(self) -> Result<RefMut<'a, [T]>, Error> {
        self.view.expect(T::DTYPE)?;
        RefMut::overwrite(self.view.memory, self.view.byte_range())
    }

    /// The elements' bytes on the host, to be read and written.
    ///
    /// # Errors
    /// As [`View::bytes`].
    pub fn bytes(self) -> Result<RefMut<'a, [u8]>, Error> {
        RefMut::write(self.view.memory, self.view.byte_range())
    }

    /// The elements' bytes on the host, for a caller who writes all of them. The contents before that are unspecified.
    ///
    /// # Errors
    /// As [`View::bytes`].
    pub fn overwrite_bytes(self) -> Result<RefMut<'a, [u8]>, Error> {
        RefMut::overwrite(self.view.memory, self.view.byte_range())
    }

    /// The elements' bytes on the queue's device, to be written by work on that queue: no other copy is valid
    /// afterwards.
    ///
    /// ```
    /// use blob_core::{AnyBlob, DType, Shape};
    /// use synced_mem::Device;
    /// use synced_mem::loopback::{self, Loopback, Mode};
    ///
    /// let queue = Loopback::new(Mode::Deferred).queue()?; // host memory that plays a device
    /// let mut blob = AnyBlob::new(Shape::new([3])?, DType::U8)?;
    /// blob.data_mut().overwrite()?.copy_from_slice(&[1u8, 2, 3]);
    /// let mut token = blob.data_mut().device(&queue)?;
    /// loopback::launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut()[2] = 9)?;
    /// drop(token);
    /// assert_eq!(*blob.data().elements::<u8>()?, [1, 2, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`View::device`].
    pub fn device(self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'a>, Error> {
        Ok(self.view.memory.device_mut(queue, self.view.byte_range())?)
    }

    /// The elements' bytes on the queue's device, for work that writes all of them: nothing is moved, and the
    /// contents before that are unspecified.
    ///
    /// # Errors
    /// As [`View::device`].
    pub fn overwrite_device(self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'a>, Error> {
        Ok(self.view.memory.device_overwrite(queue, self.view.byte_range())?)
    }

    /// Copies as many elements of the same dtype, where their newest bytes are.
    pub(crate) fn copy_from(self, source: View<'_>) -> Result<(), Error> {
        let (to, from) = (self.view.memory, source.memory);
        // Zeros to zeros: neither has to take memory for that.
        if to.is_initialized() || from.is_initialized() {
            to.copy_from(self.view.byte_range().start, from, source.byte_range())?;
        }
        Ok(())
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("dtype", &self.dtype).field("bytes", &self.byte_range()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use synced_mem::loopback::{Loopback, Mode, launch};
    use synced_mem::{Device, Location};

    use super::*;
    use crate::{AnyBlob, Blob, Part};

    const fn assert_send_sync<T: Send + Sync>() {}
    const _: () = {
        assert_send_sync::<View<'_>>();
        assert_send_sync::<ViewMut<'_>>();
    };

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn queue() -> Arc<dyn Queue> {
        Loopback::new(Mode::Deferred).queue().unwrap()
    }

    /// Four steps of three elements: data of 1 to 12, diff of 101 to 112.
    fn blob() -> Blob<u16> {
        let mut blob = Blob::from_slice(shape(&[4, 3]), &(1..13).collect::<Vec<_>>()).unwrap();
        blob.diff_mut().unwrap().copy_from_slice(&(101..113).collect::<Vec<_>>());
        blob
    }

    fn values(blob: &Blob<u16>, part: Part) -> Vec<u16> {
        blob.part(part).elements().unwrap().to_vec()
    }

    fn fill(mut token: DeviceMut<'_>, byte: u8) -> Result<(), Error> {
        let queue = Arc::clone(token.queue());
        Ok(launch(&*queue, [token.arg_mut()], move |args| args[0].bytes_mut().fill(byte))?)
    }

    /// Uploads and downloads, in bytes.
    fn moved(blob: &AnyBlob, part: Part) -> (u64, u64) {
        let stats = blob.memory(part).stats();
        (stats.uploads.bytes, stats.downloads.bytes)
    }

    /// The ways to write: each fills the view with 7s, with 0x0707 for an element.
    type Write = fn(ViewMut<'_>, &Arc<dyn Queue>) -> Result<(), Error>;
    const WRITES: [(&str, Write); 6] = [
        ("elements", |view, _| view.elements::<u16>().map(|mut all| all.fill(0x0707))),
        ("overwrite", |view, _| view.overwrite::<u16>().map(|mut all| all.fill(0x0707))),
        ("bytes", |view, _| view.bytes().map(|mut all| all.fill(7))),
        ("overwrite_bytes", |view, _| view.overwrite_bytes().map(|mut all| all.fill(7))),
        ("device", |view, queue| fill(view.device(queue)?, 7)),
        ("overwrite_device", |view, queue| fill(view.overwrite_device(queue)?, 7)),
    ];

    /// A way to get a view, and which elements of the blob it has.
    type Use<'a> = &'a mut dyn FnMut(ViewMut<'_>);
    type Maker = fn(&mut Blob<u16>, Part, Use<'_>);
    const MAKERS: [(&str, Range<usize>, Maker); 9] = [
        ("blob", 0..12, |blob, part, each| each(blob.part_mut(part))),
        ("range", 2..7, |blob, part, each| each(blob.part_mut(part).range(2..7).unwrap())),
        ("range of a range", 3..5, |blob, part, each| {
            each(blob.part_mut(part).range(2..).unwrap().range(1..=2).unwrap());
        }),
        ("reborrowed", 0..12, |blob, part, each| each(blob.part_mut(part).reborrow())),
        ("window", 3..9, |blob, part, each| each(blob.window_mut(1..3).unwrap().part_mut(part))),
        ("window in a window", 6..9, |blob, part, each| {
            each(blob.window_mut(1..).unwrap().window_mut(1..2).unwrap().part_mut(part));
        }),
        ("range of a window", 7..9, |blob, part, each| {
            each(blob.window_mut(2..).unwrap().part_mut(part).range(1..3).unwrap());
        }),
        ("owned window", 3..9, |blob, part, each| {
            let mut window = blob.make_window(2).unwrap();
            window.set_pos(1).unwrap();
            each(window.part_mut(part));
        }),
        ("owned window, borrowed", 9..12, |blob, part, each| {
            let mut window = blob.make_window(1).unwrap();
            window.set_pos(3).unwrap();
            each(window.as_mut().part_mut(part));
        }),
    ];

    #[test]
    fn every_way_to_write_reaches_its_own_elements_of_its_own_part() {
        let queue = queue();
        for (maker, range, make) in MAKERS {
            for (write, run) in WRITES {
                for part in Part::BOTH {
                    let mut blob = blob();
                    let [mut data, mut diff] = Part::BOTH.map(|part| values(&blob, part));
                    match part {
                        Part::Data => data[range.clone()].fill(0x0707),
                        Part::Diff => diff[range.clone()].fill(0x0707),
                    }
                    make(&mut blob, part, &mut |view| run(view, &queue).unwrap());
                    assert_eq!(values(&blob, Part::Data), data, "{write} of the {part}'s {maker}");
                    assert_eq!(values(&blob, Part::Diff), diff, "{write} of the {part}'s {maker}");
                }
            }
        }
    }

    #[test]
    fn every_way_to_read_gives_the_views_own_elements() {
        let queue = queue();
        for (maker, range, make) in MAKERS {
            for part in Part::BOTH {
                let mut blob = blob();
                let expected = &values(&blob, part)[range.clone()];
                make(&mut blob, part, &mut |view| {
                    let view = view.view();
                    assert_eq!(*view.elements::<u16>().unwrap(), *expected, "{part} of the {maker}");
                    assert_eq!(
                        *view.bytes().unwrap(),
                        *bytemuck::cast_slice::<_, u8>(expected),
                        "{part} of the {maker}"
                    );
                    assert_eq!(view.device(&queue).unwrap().arg().range(), view.byte_range());
                    assert_eq!((view.count(), view.shape().count()), (range.len(), range.len()));
                    assert_eq!((view.dtype(), view.byte_range()), (DType::U16, range.start * 2..range.end * 2));
                    for (at, expected) in expected.iter().enumerate() {
                        let index = view.shape().index(at).unwrap();
                        assert_eq!(view.at::<u16>(&index).unwrap(), *expected, "{part} of the {maker} at {index:?}");
                    }
                });
                assert_eq!(moved(&blob, part), (range.len() as u64 * 2, 0), "its bytes alone are uploaded");
            }
        }
    }

    #[test]
    fn an_access_moves_what_it_reads_and_an_overwrite_moves_nothing() {
        let queue = queue();
        for (name, run) in WRITES {
            for on_device in [false, true] {
                let mut blob = Blob::<u16>::new(shape(&[4])).unwrap();
                if on_device {
                    fill(blob.part_mut(Part::Data).overwrite_device(&queue).unwrap(), 1).unwrap()
                } else {
                    blob.data_mut().unwrap().fill(1)
                }
                run(blob.part_mut(Part::Data).range(1..3).unwrap(), &queue).unwrap();
                let there = name.contains("device");
                let (up, down) = match (name.contains("overwrite") || there == on_device, there) {
                    (true, _) => (0, 0),
                    (_, true) => (4, 0),
                    _ => (0, 4),
                };
                assert_eq!(moved(&blob, Part::Data), (up, down), "{name}, on the device: {on_device}");
                assert_eq!(moved(&blob, Part::Diff), (0, 0), "{name}");
                assert!(!blob.has_diff());
            }
        }
    }

    #[test]
    fn an_upload_brings_its_own_elements_and_leaves_the_hosts() {
        let queue = queue();
        let (blob, there) = (blob(), Location::Device(queue.device().id()));
        blob.part(Part::Diff).range(2..5).unwrap().upload(&queue).unwrap();
        assert_eq!((moved(&blob, Part::Data), moved(&blob, Part::Diff)), ((0, 0), (6, 0)));
        blob.upload(&queue).unwrap();
        let memory = blob.memory(Part::Data);
        assert!(memory.valid_on(there, ..) && memory.valid_on(Location::Host, ..));
        assert_eq!(moved(&blob, Part::Diff), (6, 0), "the data alone");
    }

    #[test]
    fn a_blob_without_elements_is_borrowed_and_moves_nothing() {
        let queue = queue();
        let mut blob = AnyBlob::new(shape(&[0, 3]), DType::F32).unwrap();
        assert!(blob.data().device(&queue).unwrap().arg().block().is_none());
        assert!(blob.diff_mut().device(&queue).unwrap().arg().block().is_none());
        assert!(blob.data().range(..).unwrap().elements::<f32>().unwrap().is_empty());
        assert_eq!(moved(&blob, Part::Data), (0, 0));
        assert_eq!(blob.memory(Part::Data).stats().in_use, 0);
    }

    #[test]
    fn a_range_outside_is_an_error_that_names_it() {
        let mut blob = blob();
        let behind = (Bound::Excluded(usize::MAX), Bound::Unbounded);
        let (part, none) = (Part::Diff, Range { start: usize::MAX, end: 12 });
        for (refused, expected) in [
            (blob.part(part).range(0..13), 0..13),
            (blob.part(part).range(13..13), 13..13),
            (blob.part(part).range(Range { start: 5, end: 4 }), Range { start: 5, end: 4 }),
            (blob.part(part).range(5..usize::MAX), 5..usize::MAX),
            (blob.part(part).range(..=usize::MAX), 0..usize::MAX),
            (blob.part(part).range(behind), none),
        ] {
            match refused {
                Err(Error::ElementsOutOfRange { range, count }) => assert_eq!((range, count), (expected, 12)),
                other => panic!("{other:?}"),
            }
        }
        assert!(blob.part(part).range(4..8).unwrap().range(2..5).is_err(), "counted in the range");
        assert!(blob.window(1..2).unwrap().part(part).range(..4).is_err(), "counted in the window");
        assert!(blob.part_mut(part).range(12..13).is_err());
        assert_eq!(blob.part(part).range(12..).unwrap().count(), 0);
    }

    #[test]
    fn another_dtype_is_an_error_that_touches_nothing() {
        let mut blob = AnyBlob::new(shape(&[2]), DType::F32).unwrap();
        for part in Part::BOTH {
            for refused in [
                blob.part(part).elements::<u32>().map(drop),
                blob.part(part).at::<u32>(&[0]).map(drop),
                blob.part_mut(part).elements::<u32>().map(drop),
                blob.part_mut(part).overwrite::<u32>().map(drop),
            ] {
                assert!(matches!(refused, Err(Error::WrongDType { wanted: DType::U32, got: DType::F32 })));
            }
        }
        assert!(!blob.memory(Part::Data).is_initialized() && !blob.has_diff());
    }

    #[test]
    fn bools_are_checked_where_they_are_read_and_cleared_where_they_are_overwritten() {
        let mut any = AnyBlob::from_vec(shape(&[4]), DType::Bool, vec![1, 0, 5, 1]).unwrap();
        let read = |any: &AnyBlob, range| Ok::<_, Error>(any.data().range(range)?.elements::<bool>()?.to_vec());
        assert_eq!(read(&any, 0..2).unwrap(), [true, false]);
        assert!(matches!(read(&any, 1..4), Err(Error::InvalidBool { index: 1, byte: 5 })));
        assert!(any.data_mut().range(2..3).unwrap().elements::<bool>().is_err());
        assert_eq!(*any.data_mut().range(1..3).unwrap().overwrite::<bool>().unwrap(), [false, false]);
        assert_eq!(*any.data().elements::<bool>().unwrap(), [true, false, false, true]);
    }

    #[test]
    fn elements_are_found_by_strict_indices() {
        let blob = AnyBlob::from(blob());
        let at = |view: View<'_>, index: &[usize]| view.at::<u16>(index);
        assert_eq!(at(blob.data(), &[3, 2]).unwrap(), 12);
        assert_eq!((at(blob.data(), &[1]).unwrap(), at(blob.data(), &[]).unwrap()), (4, 1));
        let outside = at(blob.data(), &[0, 3]);
        assert!(matches!(outside, Err(Error::IndexOutOfRange { axis: 1, index: 3, extent: 3 })));
        assert!(matches!(at(blob.diff(), &[0, 0, 0]), Err(Error::TooManyIndices { got: 3, .. })));
        let window = blob.window(1..3).unwrap().part(Part::Data);
        assert!(matches!(at(window, &[2]), Err(Error::IndexOutOfRange { axis: 0, index: 2, extent: 2 })));
        let range = blob.data().range(5..9).unwrap();
        assert_eq!(at(range, &[3]).unwrap(), 9);
        assert!(matches!(at(range, &[4]), Err(Error::IndexOutOfRange { axis: 0, index: 4, extent: 4 })));
        assert!(matches!(at(range, &[0, 0]), Err(Error::TooManyIndices { got: 2, .. })));
        let scalar = AnyBlob::from_vec(Shape::default(), DType::U8, vec![7]).unwrap();
        assert_eq!(scalar.data().at::<u8>(&[]).unwrap(), 7);
        assert!(matches!(scalar.data().at::<u8>(&[0]), Err(Error::TooManyIndices { got: 1, .. })));
        // Caffe reads a stale element here, or dies.
        let empty = AnyBlob::new(shape(&[0, 5]), DType::U8).unwrap();
        assert!(matches!(empty.data().at::<u8>(&[]), Err(Error::OffsetOutOfRange { .. })));
    }

    #[test]
    fn a_part_is_a_list_of_itself() {
        assert_eq!((Part::Diff.as_ref(), Part::BOTH.as_ref()), (&[Part::Diff][..], &[Part::Data, Part::Diff][..]));
        assert_eq!(format!("{:>6}|{}", Part::Data, Part::Diff), "  data|diff");
    }
}
