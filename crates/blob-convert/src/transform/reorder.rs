//! Reorders the values of a tensor: permutes the axes, or reverses one axis.
//!
//! If the first axis stays first, rows are reordered block by block; otherwise the whole tensor is held in memory.

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::Error;

use super::step::{Made, Spec};
use super::values::{Compute, Inputs, Stream, ready};

/// The bytes per block, if the first axis stays first.
const BLOCK: usize = 1 << 20;

/// A new order for the values of one tensor.
#[derive(Clone, Debug)]
pub(crate) struct Reorder {
    /// The extents before the reordering.
    dims: Vec<usize>,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    /// Axis `i` of the result is axis `axes[i]`.
    Permuted(Vec<usize>),
    /// This axis is reversed.
    Backwards(usize),
}

impl Reorder {
    /// Permutes the axes, as `numpy.transpose` does.
    pub(crate) fn permuted(dims: &[usize], axes: &[usize]) -> Self {
        Self { dims: dims.to_vec(), order: Order::Permuted(axes.to_vec()) }
    }

    /// Reverses an axis.
    pub(crate) fn backwards(dims: &[usize], axis: usize) -> Self {
        Self { dims: dims.to_vec(), order: Order::Backwards(axis) }
    }

    /// The number of rows per block.
    fn rows(&self, row: usize) -> usize {
        match &self.order {
            Order::Permuted(axes) if axes.first() != Some(&0) => self.dims.first().copied().unwrap_or(1),
            _ => (BLOCK / row.max(1)).max(1),
        }
    }

    /// Reorders whole rows.
    fn block(&self, bytes: Vec<u8>, row: usize, width: usize) -> Result<Vec<u8>, Error> {
        match &self.order {
            Order::Permuted(axes) => {
                let mut dims = self.dims.clone();
                if let Some(first) = dims.first_mut() {
                    *first = bytes.len() / row.max(1);
                }
                let blob = AnyBlob::from_vec(Shape::new(dims)?, dtype(width), bytes)?;
                let permuted = blob_ops::permute(&blob, axes);
                let permuted = permuted.map_err(|e| Error::Memory { file: String::new(), message: e.to_string() })?;
                Ok(permuted.data().bytes()?.to_vec())
            }
            Order::Backwards(axis) => {
                let part = self.dims[axis + 1..].iter().product::<usize>() * width;
                let whole = part * self.dims[*axis];
                let parts = bytes.chunks_exact(whole.max(1));
                Ok(parts.flat_map(|parts| parts.chunks_exact(part.max(1)).rev().flatten().copied()).collect())
            }
        }
    }
}

/// An integer dtype of this width: only the positions of the bytes matter, not the meaning.
fn dtype(width: usize) -> DType {
    match width {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// A tensor with permuted axes; `dims` are the extents before.
pub(super) fn permuted(place: usize, spec: &Spec<'_>, dims: &[usize], axes: &[usize]) -> Made {
    let mut tensor = spec.tensor.clone();
    // Permuting the extents of a valid shape gives a valid shape.
    tensor.shape = Shape::new(axes.iter().map(|axis| dims[*axis]).collect::<Vec<_>>()).unwrap_or(tensor.shape);
    Made::computed(tensor, vec![place], Reorder::permuted(dims, axes))
}

impl Compute for Reorder {
    fn undone(&self) -> Option<Arc<dyn Compute>> {
        let Order::Permuted(axes) = &self.order else { return Some(Arc::new(self.clone())) };
        let dims: Vec<usize> = axes.iter().map(|axis| self.dims[*axis]).collect();
        let back: Vec<usize> = (0..axes.len()).filter_map(|axis| axes.iter().position(|from| *from == axis)).collect();
        Some(Arc::new(Self::permuted(&dims, &back)))
    }

    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let width = inputs.specs[0].dtype.size();
        // The extents of a tensor without values may have any product.
        if inputs.specs[0].byte_len() == 0 {
            return Ok(ready(Vec::new()));
        }
        let row = self.dims.iter().skip(1).product::<usize>() * width;
        let len = (self.rows(row) * row).min(inputs.specs[0].byte_len() as usize);
        inputs.fits(len as u64)?;
        let mut values = inputs.open(0)?;
        let (mut block, mut done) = (Vec::new(), 0);
        Ok(Box::new(move |out: &mut [u8]| {
            let mut filled = 0;
            while filled < out.len() {
                if done == block.len() {
                    let mut read = std::mem::take(&mut block);
                    read.resize(len, 0);
                    let n = values.pull(&mut read)?;
                    read.truncate(n);
                    block = self.block(read, row, width).map_err(|e| inputs.error(e))?;
                    done = 0;
                    if block.is_empty() {
                        break;
                    }
                }
                let n = (block.len() - done).min(out.len() - filled);
                out[filled..filled + n].copy_from_slice(&block[done..done + n]);
                (filled, done) = (filled + n, done + n);
            }
            Ok(filled)
        }))
    }
}
