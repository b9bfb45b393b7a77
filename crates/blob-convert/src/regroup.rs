//! Tensors made of other tensors, and the grouping of tensors into files, for `blob merge` and `blob split`.
//!
//! Nothing is loaded: a tensor's bytes are gathered during writing. Memory stays at about 8 MiB, plus 4 KiB for each
//! tensor that is joined along an axis after the first, and each array that must be unpacked to be cut.

mod array;
mod gather;
mod groups;

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::rc::Rc;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Tensor};

use crate::hash::PIECE;
use crate::options::refuse;
use crate::receipt::bf16_receipt;
use crate::watch::Watch;
use array::Array;
use gather::Gather;
pub use groups::{by_layer, by_size, name_beside, singles};

/// Gathers tensors from an open file.
pub struct Gatherer<'a> {
    checkpoint: &'a Checkpoint,
    watch: &'a dyn Watch,
}

/// A tensor made of tensors of open files, each whole or a range, concatenated along an axis.
pub struct Gathered<'a> {
    dtype: DType,
    shape: Shape,
    axis: usize,
    parts: Vec<Part<'a>>,
    watch: &'a dyn Watch,
}

struct Part<'a> {
    array: Rc<Array<'a>>,
    /// Along the axis.
    range: Range<usize>,
}

impl<'a> Gatherer<'a> {
    /// Gathers the tensors of an open file.
    #[must_use]
    pub fn new(checkpoint: &'a Checkpoint, watch: &'a dyn Watch) -> Self {
        Self { checkpoint, watch }
    }

    /// A tensor, unchanged.
    ///
    /// # Errors
    /// As [`Checkpoint::array`].
    pub fn whole(&self, entry: &'a Entry) -> Result<Gathered<'a>, Error> {
        // A scalar is treated as one axis of extent 1.
        let range = 0..entry.shape().dims().first().copied().unwrap_or(1);
        let part = Part { array: self.array(entry), range };
        Ok(self.gathered(self.dtype(entry)?, entry.shape().clone(), 0, vec![part]))
    }

    /// Tensors of one dtype, concatenated along an axis; the shapes may differ only in this axis.
    ///
    /// # Errors
    /// As [`Checkpoint::array`]; an empty list, an axis that the tensors do not have, different dtypes or shapes, a
    /// part of a sparse array.
    pub fn merged(&self, entries: &[&'a Entry], axis: i64) -> Result<Gathered<'a>, Error> {
        let Some((first, others)) = entries.split_first() else {
            return Err(refuse(self.checkpoint, "there is no tensor to merge".to_owned()));
        };
        let dtype = self.dtype(first)?;
        let axis = self.axis_of(first, axis)?;
        let mut dims = first.shape().dims().to_vec();
        for other in others {
            self.axis_of(other, axis as i64)?;
            let (found, extents) = (self.dtype(other)?, other.shape().dims());
            let fits = |(i, extent): (usize, &usize)| i == axis || extent == &dims[i];
            if found != dtype || extents.len() != dims.len() || !extents.iter().enumerate().all(fits) {
                let (name, shape) = (other.name(), other.shape());
                let (one, kind) = (first.name(), format!("{dtype} {}", first.shape()));
                let message = format!(
                    "{name:?} is {found} {shape}, which does not fit behind {one:?}, {kind}, along axis {axis}"
                );
                return Err(refuse(self.checkpoint, message));
            }
            dims[axis] = dims[axis].saturating_add(extents[axis]);
        }
        let shape = self.shape(first, &dims)?;
        let whole = |entry: &&'a Entry| Part { array: self.array(entry), range: 0..entry.shape().dims()[axis] };
        Ok(self.gathered(dtype, shape, axis, entries.iter().map(whole).collect()))
    }

    /// A tensor in parts of these sizes along an axis. A checksum of the tensor in the file is compared after the last
    /// part was read.
    ///
    /// # Errors
    /// As [`Checkpoint::array`]; an axis that the tensor does not have, sizes that do not add up to the axis's extent,
    /// a part of a sparse array.
    pub fn split(&self, entry: &'a Entry, axis: i64, sizes: &[usize]) -> Result<Vec<Gathered<'a>>, Error> {
        let dtype = self.dtype(entry)?;
        let axis = self.axis_of(entry, axis)?;
        let mut dims = entry.shape().dims().to_vec();
        let extent = dims[axis];
        let sum = sizes.iter().try_fold(0, |sum: usize, size| sum.checked_add(*size));
        if sum != Some(extent) {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            let sum = sum.map_or("more".to_owned(), |sum| sum.to_string());
            let sizes = sizes.join(" + ");
            let message = format!("{:?} has {extent} indices on axis {axis}, and {sizes} is {sum}", entry.name());
            return Err(refuse(self.checkpoint, message));
        }
        let (array, mut from) = (self.array(entry), 0);
        let parts = sizes.iter().map(|size| {
            dims[axis] = *size;
            let range = from..from + size;
            from += size;
            Ok(self.gathered(dtype, self.shape(entry, &dims)?, axis, vec![Part { array: array.clone(), range }]))
        });
        parts.collect()
    }

    fn gathered(&self, dtype: DType, shape: Shape, axis: usize, parts: Vec<Part<'a>>) -> Gathered<'a> {
        Gathered { dtype, shape, axis, parts, watch: self.watch }
    }

    fn array(&self, entry: &'a Entry) -> Rc<Array<'a>> {
        Rc::new(Array::new(self.checkpoint, entry))
    }

    fn dtype(&self, entry: &Entry) -> Result<DType, Error> {
        Ok(self.checkpoint.array(entry)?.dtype)
    }

    fn shape(&self, entry: &Entry, dims: &[usize]) -> Result<Shape, Error> {
        Shape::new(dims).map_err(|e| refuse(self.checkpoint, format!("{:?}: {e}", entry.name())))
    }

    /// The index of the axis along which a tensor is cut or joined; an error for a part of a sparse array.
    fn axis_of(&self, entry: &Entry, axis: i64) -> Result<usize, Error> {
        if let Some(sparse) = entry.sparse() {
            let (name, whole) = (entry.name(), &sparse.name);
            let message = format!("{name:?} is a part of the sparse array {whole:?}, which is incomplete without it");
            return Err(refuse(self.checkpoint, message));
        }
        let axis = i32::try_from(axis).unwrap_or(i32::MAX);
        entry.shape().axis(axis).map_err(|e| refuse(self.checkpoint, format!("{:?}: {e}", entry.name())))
    }
}

impl<'a> Gathered<'a> {
    /// The tensor's length in bytes.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.shape.count() as u64 * self.dtype.size() as u64
    }

    /// The entry of the first part, which tells the layer, and whether the tensor is a diff or a part of a sparse
    /// array.
    #[must_use]
    pub fn first(&self) -> &'a Entry {
        self.parts[0].array.entry
    }
}

/// The receipt, as key and text, for an npz of these tensors. An npz stores bf16 as u16; with the receipt, a reader
/// finds bf16 again. `None` where there is no bf16.
///
/// # Errors
/// The receipt has no room for the names of so many arrays, in words that follow the file's name.
pub fn receipt(tensors: &[(String, Gathered<'_>)]) -> Result<Option<(String, String)>, &'static str> {
    bf16_receipt(tensors.iter().map(|(name, tensor)| (&**name, tensor.dtype)))
}

impl Tensor for Gathered<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(self.shape.clone())
    }

    fn layer_type(&self) -> Option<&str> {
        self.first().layer_type()
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        for part in &self.parts {
            if part.gap(self.axis) > 0 {
                part.array.unpack(self.watch)?;
            }
        }
        let capacity = self.byte_len().min(PIECE as u64) as usize;
        Ok(Box::new(BufReader::with_capacity(capacity, Gather::new(self))))
    }
}

impl std::fmt::Debug for Gathered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.parts.iter().map(|part| part.array.entry.name()).collect();
        f.debug_struct("Gathered").field("of", &names).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Gatherer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatherer").field("file", &self.checkpoint.name()).finish_non_exhaustive()
    }
}

impl Part<'_> {
    /// How many indices of the axis are left out.
    fn gap(&self, axis: usize) -> usize {
        self.array.entry.shape().dims().get(axis).copied().unwrap_or(1) - self.range.len()
    }
}
