//! Reorders the values of a tensor: permutes the axes, or reverses one axis.
//!
//! If the first axis stays first, rows are reordered block by block. A large matrix is transposed panel by panel.
//! Otherwise the whole tensor is held in memory.

use std::sync::Arc;

use blob_core::Shape;
use blob_io::Error;

use super::panels::{self, Matrix, Panels};
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
        let (dims, axes) = merged(dims, axes);
        Self { dims, order: Order::Permuted(axes) }
    }

    /// Reverses an axis.
    pub(crate) fn backwards(dims: &[usize], axis: usize) -> Self {
        Self { dims: dims.to_vec(), order: Order::Backwards(axis) }
    }

    /// The matrix that is transposed, if the tensor is one that a block need not hold whole.
    fn matrix(&self, width: usize) -> Option<Matrix> {
        match (&self.order, &self.dims[..]) {
            (Order::Permuted(axes), [rows, columns]) if axes == &[1, 0] => {
                Some(Matrix { rows: *rows, columns: *columns, width })
            }
            _ => None,
        }
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
                Ok(panels::permuted(bytes, dims, axes, width)?.data().bytes()?.to_vec())
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

/// The same permutation of fewer axes: without those of one index, and with those that stay behind each other as one.
/// At least one axis is left. Where the product of two overflows, the tensor has no values.
fn merged(dims: &[usize], axes: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut last = None;
    for axis in axes.iter().copied().filter(|axis| dims[*axis] != 1) {
        let between = last.map(|last: usize| dims.get(last + 1..axis).is_some_and(|dims| dims.iter().all(|n| *n == 1)));
        match runs.last_mut().filter(|_| between == Some(true)) {
            Some((_, extent)) => *extent = extent.saturating_mul(dims[axis]),
            None => runs.push((axis, dims[axis])),
        }
        last = Some(axis);
    }
    if runs.is_empty() {
        runs.push((0, 1));
    }
    let mut before = runs.clone();
    before.sort_unstable();
    let axes = runs.iter().map(|(axis, _)| before.partition_point(|(other, _)| other < axis)).collect();
    (before.into_iter().map(|(_, extent)| extent).collect(), axes)
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
        if let Some(matrix) = self.matrix(width) {
            return Ok(Box::new(Panels::new(inputs, matrix)?));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::values::computed;
    use blob_core::DType;
    use blob_io::layout::TensorSpec;

    /// The permutation, one element after the other, by the formula alone.
    fn naive(bytes: &[u8], dims: &[usize], axes: &[usize], width: usize) -> Vec<u8> {
        let strides: Vec<usize> = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect();
        let mut made = Vec::new();
        for index in 0..dims.iter().product() {
            let (mut rest, mut from) = (index, 0);
            for axis in axes.iter().rev() {
                from += rest % dims[*axis] * strides[*axis];
                rest /= dims[*axis];
            }
            made.extend_from_slice(&bytes[from * width..][..width]);
        }
        made
    }

    fn reordered(bytes: &[u8], dims: &[usize], axes: &[usize], dtype: DType) -> Vec<u8> {
        let spec = |dims: Vec<usize>| TensorSpec::new("w", dtype, Shape::new(dims).unwrap());
        let made = spec(axes.iter().map(|axis| dims[*axis]).collect());
        let order = Reorder::permuted(dims, axes);
        let there = computed(&order, &made, &[(spec(dims.to_vec()), bytes.to_vec())]).unwrap().0;
        let back = order.undone().unwrap();
        let again = computed(&*back, &spec(dims.to_vec()), &[(made, there.clone())]).unwrap().0;
        assert_eq!(again, bytes, "{dims:?} by {axes:?}, and back");
        there
    }

    /// Bytes that differ from their neighbours in every order.
    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn every_permutation_of_small_extents_is_the_formula() {
        let orders: Vec<Vec<usize>> = (0..256usize)
            .map(|code| (0..4).map(|axis| code >> (2 * axis) & 3).collect::<Vec<_>>())
            .filter(|axes| (0..4).all(|axis| axes.contains(&axis)))
            .collect();
        let mut tried = 0;
        for extents in 0..81 {
            let dims: Vec<usize> = (0..4).map(|axis| [1, 2, 3][extents / 3usize.pow(axis) % 3]).collect();
            for axes in &orders {
                let given = bytes(dims.iter().product::<usize>() * 2);
                assert_eq!(
                    reordered(&given, &dims, axes, DType::F16),
                    naive(&given, &dims, axes, 2),
                    "{dims:?} {axes:?}"
                );
                tried += 1;
            }
        }
        assert_eq!(tried, 81 * 24);
    }

    #[test]
    fn a_large_matrix_is_transposed_panel_by_panel() {
        for (dims, axes, dtype) in [
            (vec![500, 2_201], vec![1, 0], DType::F64),
            (vec![1, 1, 60, 20_001], vec![0, 1, 3, 2], DType::F64),
            (vec![550_001, 2], vec![1, 0], DType::F64),
            (vec![100, 2, 75, 75], vec![1, 2, 3, 0], DType::F64),
        ] {
            let width = dtype.size();
            let given = bytes(dims.iter().product::<usize>() * width);
            assert!(reordered(&given, &dims, &axes, dtype) == naive(&given, &dims, &axes, width), "{dims:?}");
        }
    }
}
