//! Windows that borrow a blob: `WindowRef`, `WindowMut`, and the iterator over all windows of a size.
//! Each is a reference and two numbers; the compiler checks the borrow of the blob. Reads and writes go through `View`;
//! windows that keep a blob alive, and move, are left to `window`.

use std::fmt;
use std::ops::{Range, RangeBounds};

use crate::blob::AnyBlob;
use crate::blob::copy::expect_shape;
use crate::error::Error;
use crate::extents::Shape;
use crate::part::Part;
use crate::shape::bounds;
use crate::view::{View, ViewMut};

/// Some steps of a blob along its outermost axis, for reading. Made by [`AnyBlob::window`].
#[derive(Clone, Copy)]
pub struct WindowRef<'a> {
    blob: &'a AnyBlob,
    /// Invariant: the outermost axis of the blob has the steps `pos..pos + len`.
    pos: usize,
    len: usize,
}

/// Some steps of a blob along its outermost axis, for writing. Made by [`AnyBlob::window_mut`].
///
/// To read, or to ask for the shape, see [`as_ref`](Self::as_ref).
///
/// While one lives, the compiler refuses any other access to the blob; [`split_at_mut`](Self::split_at_mut) makes two:
///
/// ```compile_fail
/// # let shape = blob_core::Shape::new([2])?;
/// let mut blob = blob_core::AnyBlob::new(shape, blob_core::DType::F32)?;
/// let mut first = blob.window_mut(0..1)?;
/// let mut second = blob.window_mut(1..2)?; // borrowed already
/// first.part_mut(blob_core::Part::Data).elements::<f32>()?[0] = 1.0;
/// # Ok::<(), blob_core::Error>(())
/// ```
/// ```
/// # let shape = blob_core::Shape::new([2])?;
/// let mut blob = blob_core::AnyBlob::new(shape, blob_core::DType::F32)?;
/// let (mut first, mut second) = blob.window_mut(0..2)?.split_at_mut(1)?;
/// let mut a = first.part_mut(blob_core::Part::Data).elements::<f32>()?;
/// let mut b = second.part_mut(blob_core::Part::Data).elements::<f32>()?;
/// (a[0], b[0]) = (1.0, 2.0);
/// # Ok::<(), blob_core::Error>(())
/// ```
#[derive(Debug)]
pub struct WindowMut<'a> {
    /// Invariant: these steps are borrowed exclusively for `'a`.
    window: WindowRef<'a>,
}

/// Every window of a number of steps, from the first to the last. Made by [`AnyBlob::windows`].
#[derive(Debug, Clone)]
pub struct Windows<'a> {
    blob: &'a AnyBlob,
    len: usize,
    positions: Range<usize>,
}

impl<'a> WindowRef<'a> {
    /// These steps, all there. The blob has an outermost axis.
    pub(super) fn new(blob: &'a AnyBlob, steps: impl RangeBounds<usize>) -> Result<Self, Error> {
        let extent = blob.shape().extent(0)?;
        let steps = check(steps, extent)?;
        Ok(Self { blob, pos: steps.start, len: steps.len() })
    }

    /// Steps that are known to be there: those of an owned window, whose positions were checked.
    pub(super) fn trusted(blob: &'a AnyBlob, pos: usize, len: usize) -> Self {
        debug_assert!(pos + len <= blob.shape().dims()[0]);
        Self { blob, pos, len }
    }

    /// The blob that this is a window of.
    pub fn owner(&self) -> &'a AnyBlob {
        self.blob
    }

    /// Which steps of the blob these are.
    pub fn steps(&self) -> Range<usize> {
        self.pos..self.pos + self.len
    }

    /// The extents: those of the blob, with the number of steps for the outermost.
    pub fn shape(&self) -> Shape {
        self.part(Part::Data).shape()
    }

    /// Some steps of this window, counted from its first one.
    ///
    /// # Errors
    /// [`Error::StepsOutOfRange`].
    pub fn window(&self, steps: impl RangeBounds<usize>) -> Result<WindowRef<'a>, Error> {
        let steps = check(steps, self.len)?;
        Ok(Self { pos: self.pos + steps.start, len: steps.len(), ..*self })
    }

    /// The data of these steps, for reading.
    pub fn data(&self) -> View<'a> {
        self.part(Part::Data)
    }

    /// The diff of these steps, for reading.
    pub fn diff(&self) -> View<'a> {
        self.part(Part::Diff)
    }

    /// The data or the diff of these steps, for reading.
    pub fn part(&self, part: Part) -> View<'a> {
        self.blob.part(part).steps(self.pos, self.len)
    }

    /// A new blob with a copy of the elements, each part copied where its newest bytes are. A part that was never
    /// touched is not copied, and stays untouched in the new blob.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn to_blob(&self) -> Result<AnyBlob, Error> {
        let mut copy = AnyBlob::new(self.shape(), self.blob.dtype())?;
        for part in Part::BOTH {
            copy.part_mut(part).copy_from(self.part(part))?;
        }
        Ok(copy)
    }
}

impl<'a> WindowMut<'a> {
    /// Of a window that is borrowed exclusively for `'a`.
    pub(super) fn new(window: WindowRef<'a>) -> Self {
        Self { window }
    }

    /// The same window, for reading, while this one is not written through.
    pub fn as_ref(&self) -> WindowRef<'_> {
        self.window
    }

    /// Some steps of this window, counted from its first one.
    ///
    /// # Errors
    /// [`Error::StepsOutOfRange`].
    pub fn window_mut(&mut self, steps: impl RangeBounds<usize>) -> Result<WindowMut<'_>, Error> {
        self.window.window(steps).map(WindowMut::new)
    }

    /// The steps before `mid`, and those from it on: to read one step and write the next.
    ///
    /// # Errors
    /// [`Error::StepsOutOfRange`].
    pub fn split_at_mut(self, mid: usize) -> Result<(WindowMut<'a>, WindowMut<'a>), Error> {
        let back = self.window.window(mid..self.window.len)?;
        let front = self.window.window(0..mid)?;
        Ok((WindowMut::new(front), WindowMut::new(back)))
    }

    /// Copies the data, the diff or both of a window of the same shape and dtype, of this blob or another; as
    /// [`AnyBlob::copy_from`]. Two windows of a blob may not overlap, unless equal.
    ///
    /// # Errors
    /// As [`AnyBlob::copy_from`].
    pub fn copy_from(&mut self, source: WindowRef<'_>, parts: impl AsRef<[Part]>) -> Result<(), Error> {
        source.owner().expect_dtype(self.window.blob.dtype())?;
        expect_shape(&self.window.shape(), &source.shape())?;
        parts.as_ref().iter().try_for_each(|&part| self.part_mut(part).copy_from(source.part(part)))
    }

    /// The data of these steps, for writing.
    pub fn data_mut(&mut self) -> ViewMut<'_> {
        self.part_mut(Part::Data)
    }

    /// The diff of these steps, for writing.
    pub fn diff_mut(&mut self) -> ViewMut<'_> {
        self.part_mut(Part::Diff)
    }

    /// The data or the diff of these steps, for writing.
    pub fn part_mut(&mut self, part: Part) -> ViewMut<'_> {
        ViewMut::new(self.window.part(part))
    }
}

impl<'a> Windows<'a> {
    pub(super) fn new(blob: &'a AnyBlob, len: usize) -> Result<Self, Error> {
        let extent = blob.shape().extent(0)?;
        let last = extent.checked_sub(len);
        let positions = 0..last.map_or(0, |last| last + 1);
        Ok(Self { blob, len, positions })
    }

    fn at(&self, pos: usize) -> WindowRef<'a> {
        let (blob, len) = (self.blob, self.len);
        WindowRef { blob, pos, len }
    }
}

impl<'a> Iterator for Windows<'a> {
    type Item = WindowRef<'a>;

    fn next(&mut self) -> Option<WindowRef<'a>> {
        let pos = self.positions.next()?;
        Some(self.at(pos))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.positions.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<WindowRef<'a>> {
        let pos = self.positions.nth(n)?;
        Some(self.at(pos))
    }

    fn count(self) -> usize {
        self.positions.len()
    }

    fn last(mut self) -> Option<WindowRef<'a>> {
        self.next_back()
    }
}

impl DoubleEndedIterator for Windows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let pos = self.positions.next_back()?;
        Some(self.at(pos))
    }
}

impl ExactSizeIterator for Windows<'_> {}

impl fmt::Debug for WindowRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowRef")
            .field("steps", &self.steps())
            .field("shape", &self.shape())
            .field("dtype", &self.blob.dtype())
            .finish()
    }
}

/// Some steps, where an axis of this extent has these.
pub(super) fn check(steps: impl RangeBounds<usize>, extent: usize) -> Result<Range<usize>, Error> {
    let steps = bounds(steps, extent);
    if steps.start <= steps.end && steps.end <= extent {
        return Ok(steps);
    }
    let number = |step: usize| i64::try_from(step).unwrap_or(i64::MAX);
    Err(Error::StepsOutOfRange { start: number(steps.start), end: number(steps.end), extent })
}
