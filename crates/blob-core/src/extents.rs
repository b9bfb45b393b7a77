//! The extents themselves: the type `Shape`, the count, and the texts. All that can fail is left to `shape`.

use std::fmt;
use std::sync::Arc;

/// The most axes a shape may have (Caffe's `kMaxBlobAxes`).
pub const MAX_AXES: usize = 32;

/// The extents of 0 to [`MAX_AXES`] axes, the last one varying fastest.
///
/// The count is at most `isize::MAX`, and so is the product of the nonzero extents: no stride and no partial product
/// of a shape overflows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Shared by the clones of a shape: blobs and windows make many.
    pub(crate) dims: Arc<[usize]>,
    /// Invariant: the product of `dims`.
    pub(crate) count: usize,
}

impl Shape {
    /// The extents.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The number of axes.
    pub fn num_axes(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements: the product of the extents, 1 without axes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The shape as Caffe logs it (`Blob::shape_string`): `2 3 4 5 (120)`, `(1)` without axes.
    pub fn shape_string(&self) -> String {
        let mut text = String::new();
        for extent in self.dims() {
            text += &format!("{extent} ");
        }
        text + &format!("({})", self.count)
    }
}

/// The shape without axes, of one element: a scalar's.
impl Default for Shape {
    fn default() -> Self {
        Self { dims: Arc::default(), count: 1 }
    }
}

impl fmt::Display for Shape {
    /// `2×3×4×5`, or `scalar` without axes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<_> = self.dims.iter().map(usize::to_string).collect();
        f.pad(&if extents.is_empty() { "scalar".into() } else { extents.join("×") })
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({self})")
    }
}
