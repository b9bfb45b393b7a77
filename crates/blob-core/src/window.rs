//! Windows: some steps of a blob along its outermost axis, in place. Borrowed ones lie in `window/borrowed.rs`; here
//! are the blob's doors to them, and `Window`, which keeps a blob alive and moves (NeoML's `CreateWindowBlob`).
//! Positions of nested windows are added up at each access, so none goes stale. Relies on the memory for conflicts.

mod borrowed;
mod frame;

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::blob::AnyBlob;
use crate::error::Error;
use crate::part::Part;
use crate::view::{View, ViewMut};

use frame::{Frame, Outer};

pub use borrowed::{WindowMut, WindowRef, Windows};

/// # Windows
///
/// A window is some *steps* of a blob: neighbouring indices of its outermost axis, in place. It has the blob's shape,
/// with the number of steps for the outermost extent, and touches no byte of any other step.
///
/// ```
/// use blob_core::{AnyBlob, DType, Shape};
///
/// let mut blob = AnyBlob::new(Shape::new([3, 2])?, DType::F32)?;
/// blob.window_mut(1..2)?.data_mut().elements::<f32>()?.fill(7.0);
/// assert_eq!(*blob.data().elements::<f32>()?, [0.0, 0.0, 7.0, 7.0, 0.0, 0.0]);
/// let sums = blob.windows(2)?.map(|pair| Ok(pair.data().elements::<f32>()?.iter().sum()));
/// assert_eq!(sums.collect::<Result<Vec<f32>, blob_core::Error>>()?, [14.0, 14.0]);
/// # Ok::<(), blob_core::Error>(())
/// ```
impl AnyBlob {
    /// Some steps, for reading.
    ///
    /// # Errors
    /// [`Error::StepsOutOfRange`]; [`Error::AxisOutOfRange`] for a scalar, which has no axis.
    pub fn window(&self, steps: impl RangeBounds<usize>) -> Result<WindowRef<'_>, Error> {
        WindowRef::new(self, steps)
    }

    /// Some steps, for writing.
    ///
    /// # Errors
    /// As [`window`](Self::window).
    pub fn window_mut(&mut self, steps: impl RangeBounds<usize>) -> Result<WindowMut<'_>, Error> {
        WindowRef::new(self, steps).map(WindowMut::new)
    }

    /// Every window of `len` steps, first to last, each one step further, as `slice::windows`. There
    /// are none where `len` is more than all steps; of no steps, there is one in front of each step and one at the end.
    ///
    /// # Errors
    /// [`Error::AxisOutOfRange`] for a scalar, which has no axis.
    pub fn windows(&self, len: usize) -> Result<Windows<'_>, Error> {
        Windows::new(self, len)
    }

    /// A window of `len` steps at position 0, which moves and keeps the memories of this blob alive. Later
    /// changes of this blob's shape or memories (`reshape`, `share`, …) do not reach the window.
    ///
    /// # Errors
    /// As [`window`](Self::window).
    pub fn make_window(&self, len: usize) -> Result<Window, Error> {
        borrowed::check(0..len, self.shape().extent(0)?)?;
        Ok(Window::new(Outer::Owner(self.alias()), len))
    }
}

/// Some steps of a blob, or of another window, that can be moved along it. Keeps the blob's memories alive.
///
/// Windows may lie over each other. Each is read and written through a handle of its own; two accesses that overlap,
/// one of which writes, are a conflict while both guards live. So a recurrent step reads step *t* − 1 and writes step
/// *t*:
///
/// ```
/// use blob_core::{AnyBlob, DType, Shape};
///
/// let blob = AnyBlob::new(Shape::new([4, 2])?, DType::F32)?;
/// let (mut last, mut step) = (blob.make_window(1)?, blob.make_window(1)?);
/// step.data_mut().elements::<f32>()?.fill(1.0);
/// for t in 1..4 {
///     last.set_pos(t - 1)?;
///     step.shift(1)?;
///     let (from, mut to) = (last.data().elements::<f32>()?, step.data_mut().overwrite::<f32>()?);
///     to.iter_mut().zip(&*from).for_each(|(to, from)| *to = from * 2.0);
/// }
/// assert_eq!(*blob.data().elements::<f32>()?, [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0]);
/// # Ok::<(), blob_core::Error>(())
/// ```
pub struct Window {
    frame: Arc<Frame>,
}

impl Window {
    fn new(outer: Outer, len: usize) -> Self {
        let pos = AtomicUsize::new(0);
        let frame = Arc::new(Frame { outer, len, pos });
        Self { frame }
    }

    /// The first step, counted in the parent, or else in the owner.
    pub fn pos(&self) -> usize {
        self.frame.pos()
    }

    /// Moves to a position, counted in the parent, or else in the owner. The windows that lie in this one move along.
    ///
    /// # Errors
    /// [`Error::StepsOutOfRange`]; the window stays where it is.
    pub fn set_pos(&mut self, pos: usize) -> Result<(), Error> {
        let steps = pos..pos.saturating_add(self.frame.len);
        borrowed::check(steps, self.outer_len())?;
        self.frame.pos.store(pos, Ordering::Relaxed);
        Ok(())
    }

    /// Moves by a number of steps, forward or back. The windows that lie in this one move along.
    ///
    /// # Errors
    /// As [`set_pos`](Self::set_pos).
    pub fn shift(&mut self, by: isize) -> Result<(), Error> {
        // In one step: another handle to this window may move the same window meanwhile.
        let extent = self.outer_len();
        let update = self.frame.pos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pos| {
            let pos = pos.checked_add_signed(by)?;
            let end = pos.checked_add(self.frame.len)?;
            (end <= extent).then_some(pos)
        });
        update.map(drop).map_err(|pos| self.outside(pos, by))
    }

    /// The error of a shift from `pos`.
    fn outside(&self, pos: usize, by: isize) -> Error {
        // No extent, hence no position or length, is above `isize::MAX`, so the sums fit an `i64`.
        let start = (pos as i64).saturating_add(by as i64);
        Error::StepsOutOfRange { start, end: start.saturating_add(self.frame.len as i64), extent: self.outer_len() }
    }

    /// The number of steps of the parent, or else of the owner.
    fn outer_len(&self) -> usize {
        match &self.frame.outer {
            Outer::Window(outer) => outer.len,
            _ => self.as_ref().owner().shape().dims()[0],
        }
    }

    /// A window of `len` steps at position 0 of this one, which moves along with it.
    ///
    /// # Errors
    /// [`Error::StepsOutOfRange`].
    pub fn make_window(&self, len: usize) -> Result<Window, Error> {
        borrowed::check(0..len, self.frame.len)?;
        let outer = Outer::Window(Arc::clone(&self.frame));
        Ok(Window::new(outer, len))
    }

    /// The window that this one lies in, if not in a blob: another handle to the same window, so that to
    /// move one is to move the other.
    pub fn parent(&self) -> Option<Window> {
        match &self.frame.outer {
            Outer::Window(frame) => Some(Window { frame: Arc::clone(frame) }),
            _ => None,
        }
    }

    /// The window where it is now, for reading. The owner, at whatever depth, is a blob over the memories of the one
    /// that the first window was made from, with the shape of then, in which steps are counted.
    pub fn as_ref(&self) -> WindowRef<'_> {
        let (owner, pos) = self.frame.owner_and_pos();
        WindowRef::trusted(owner, pos, self.frame.len)
    }

    /// The window where it is now, for writing.
    pub fn as_mut(&mut self) -> WindowMut<'_> {
        WindowMut::new(self.as_ref())
    }

    /// The data where the window is now, for reading.
    pub fn data(&self) -> View<'_> {
        self.part(Part::Data)
    }

    /// The data where the window is now, for writing.
    pub fn data_mut(&mut self) -> ViewMut<'_> {
        self.part_mut(Part::Data)
    }

    /// The diff where the window is now, for reading.
    pub fn diff(&self) -> View<'_> {
        self.part(Part::Diff)
    }

    /// The diff where the window is now, for writing.
    pub fn diff_mut(&mut self) -> ViewMut<'_> {
        self.part_mut(Part::Diff)
    }

    /// The data or the diff where the window is now, for reading.
    pub fn part(&self, part: Part) -> View<'_> {
        self.as_ref().part(part)
    }

    /// The data or the diff where the window is now, for writing.
    pub fn part_mut(&mut self, part: Part) -> ViewMut<'_> {
        ViewMut::new(self.part(part))
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("steps", &self.as_ref().steps())
            .field("shape", &self.as_ref().shape())
            .field("dtype", &self.as_ref().owner().dtype())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blob, DType, Shape};

    const fn assert_send_sync<T: Send + Sync>() {}
    const _: () = {
        assert_send_sync::<Window>();
        assert_send_sync::<WindowRef<'_>>();
        assert_send_sync::<WindowMut<'_>>();
        assert_send_sync::<Windows<'_>>();
    };

    /// Step t of the data holds t + 1, step t of the diff 10 t + 1.
    fn steps() -> Blob<u8> {
        let mut blob = Blob::new(Shape::new([4, 3]).unwrap()).unwrap();
        for t in 0..4 {
            let mut window = blob.window_mut(t..t + 1).unwrap();
            window.part_mut(Part::Data).elements::<u8>().unwrap().fill(t as u8 + 1);
            window.part_mut(Part::Diff).elements::<u8>().unwrap().fill(10 * t as u8 + 1);
        }
        blob
    }

    #[test]
    fn debug_shows_where_a_window_lies() {
        let blob = steps();
        let mut owned = blob.make_window(1).unwrap();
        owned.set_pos(2).unwrap();
        assert_eq!(format!("{owned:?}"), "Window { steps: 2..3, shape: Shape(1×3), dtype: U8, .. }");
        assert_eq!(format!("{:?}", owned.as_ref()), "WindowRef { steps: 2..3, shape: Shape(1×3), dtype: U8 }");
    }

    #[test]
    fn windows_that_are_split_lie_side_by_side() {
        let mut blob = steps();
        for mid in 0..=4 {
            let whole = blob.window_mut(0..4).unwrap();
            let (front, back) = whole.split_at_mut(mid).unwrap();
            assert_eq!(front.as_ref().steps(), 0..mid);
            assert_eq!(back.as_ref().steps(), mid..4);
        }
        let mut part = blob.window_mut(1..4).unwrap();
        let mut inner = part.window_mut(1..3).unwrap();
        assert_eq!(*inner.part_mut(Part::Data).elements::<u8>().unwrap(), [3, 3, 3, 4, 4, 4]);
        assert!(matches!(part.split_at_mut(4), Err(Error::StepsOutOfRange { start: 4, end: 3, extent: 3 })));
    }

    #[test]
    fn a_chain_of_windows_may_be_longer_than_the_stack_is_deep() {
        let blob = AnyBlob::new(Shape::new([2, 3]).unwrap(), DType::U8).unwrap();
        let mut window = blob.make_window(1).unwrap();
        for _ in 0..200_000 {
            window = window.make_window(1).unwrap();
        }
        drop(window);
    }

    #[test]
    fn moves_through_two_handles_are_not_lost() {
        let blob = AnyBlob::new(Shape::new([100_001]).unwrap(), DType::U8).unwrap();
        let window = blob.make_window(1).unwrap();
        let inner = window.make_window(1).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut handle = inner.parent().unwrap();
                scope.spawn(move || (0..50_000).for_each(|_| handle.shift(1).unwrap()));
            }
        });
        assert_eq!(window.pos(), 100_000);
        assert!(inner.parent().unwrap().shift(1).is_err());
        assert!(inner.parent().unwrap().shift(-100_001).is_err());
        assert_eq!(window.pos(), 100_000);
    }

    #[test]
    fn windows_of_a_vast_empty_blob_are_counted_at_once() {
        let blob = AnyBlob::new(Shape::new([1 << 40, 0]).unwrap(), DType::U8).unwrap();
        let windows = || blob.windows(2).unwrap();
        assert_eq!(windows().count(), (1 << 40) - 1);
        assert_eq!(windows().last().map(|window| window.steps().start), Some((1 << 40) - 2));
        assert_eq!(windows().nth(1 << 39).map(|window| window.steps().start), Some(1 << 39));
    }
}
