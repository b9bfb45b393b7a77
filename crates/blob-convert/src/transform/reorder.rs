//! Reorders the values of a tensor: permutes the axes, or reverses one axis.
//!
//! If the first axis stays first, rows are reordered block by block, otherwise panel by panel. Two permutations, one
//! after the other, are one.

use std::any::Any;
use std::sync::Arc;

use blob_core::Shape;
use blob_io::Error;

use super::panels::{self, Panels, Permutation};
use super::step::{Made, Spec};
use super::values::{Compute, Inputs, Stream, blocks, ready};

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

    /// The permutation that does both, `first` and then `then`, if both permute axes and no value lies between.
    pub(crate) fn both(first: &dyn Compute, then: &dyn Compute) -> Option<Self> {
        let [first, then] = [first, then].map(|compute| (compute as &dyn Any).downcast_ref::<Self>());
        let (first, then) = (first?, then?);
        let (Order::Permuted(first_axes), Order::Permuted(then_axes)) = (&first.order, &then.order) else {
            return None;
        };
        let between: Vec<usize> = first_axes.iter().map(|axis| first.dims[*axis]).collect();
        let factors = common(&between, &then.dims)?;
        // The factors in the order before the first permutation, and behind the second one.
        let mut before: Vec<usize> = (0..factors.len()).collect();
        before.sort_by_key(|factor| first_axes[factors[*factor].axes.0]);
        let behind = then_axes.iter().flat_map(|axis| (0..factors.len()).filter(|at| factors[*at].axes.1 == *axis));
        let dims: Vec<usize> = before.iter().map(|factor| factors[*factor].extent).collect();
        let axes: Vec<usize> = behind.filter_map(|factor| before.iter().position(|own| *own == factor)).collect();
        Some(Self::permuted(&dims, &axes))
    }

    /// Panels in an order in which each byte of the only input is read once; `None` where [`Compute::open`] reads each
    /// byte once.
    ///
    /// # Errors
    /// [`Error::Memory`] where a panel is larger than allowed.
    pub(crate) fn panels<'a>(compute: &dyn Compute, inputs: Inputs<'a>) -> Result<Option<Panels<'a>>, Error> {
        let order = (compute as &dyn Any).downcast_ref::<Self>().and_then(|order| order.permutation(&inputs));
        order.map_or(Ok(None), |order| Panels::in_any_order(inputs, order))
    }

    /// The permutation of a tensor with values whose first axis does not stay first.
    fn permutation(&self, inputs: &Inputs<'_>) -> Option<Permutation> {
        let Order::Permuted(axes) = &self.order else { return None };
        let is_by_panels = axes.first() != Some(&0) && inputs.specs[0].byte_len() > 0;
        let width = inputs.specs[0].dtype.size();
        is_by_panels.then(|| Permutation { dims: self.dims.clone(), axes: axes.clone(), width })
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
        if let Some(order) = self.permutation(&inputs) {
            let mut panels = Panels::in_order(inputs, order)?;
            return Ok(blocks(move |panel| panels.advance(panel)));
        }
        let row = self.dims.iter().skip(1).product::<usize>() * width;
        let len = ((BLOCK / row.max(1)).max(1) * row).min(inputs.specs[0].byte_len() as usize);
        inputs.fits(len as u64)?;
        let mut values = inputs.open(0)?;
        Ok(blocks(move |block| {
            let mut read = std::mem::take(block);
            read.resize(len, 0);
            let n = values.pull(&mut read)?;
            read.truncate(n);
            *block = self.block(read, row, width).map_err(|error| inputs.error(error))?;
            Ok(())
        }))
    }
}

/// A factor of two axes: of one of the first extents, and of one of the second.
struct Factor {
    extent: usize,
    axes: (usize, usize),
}

/// The extents into which both lists of extents can be taken apart, the product being the same; `None` where there are
/// none, or no values.
fn common(first: &[usize], second: &[usize]) -> Option<Vec<Factor>> {
    let (mut factors, mut axes) = (Vec::new(), (0, 0));
    let (mut left, mut right) = (*first.first()?, *second.first()?);
    loop {
        let extent = left.min(right);
        if extent == 0 || !left.is_multiple_of(extent) || !right.is_multiple_of(extent) {
            return None;
        }
        factors.push(Factor { extent, axes });
        (left, right) = (left / extent, right / extent);
        let goes_on = (left == 1 && axes.0 + 1 < first.len(), right == 1 && axes.1 + 1 < second.len());
        if goes_on == (false, false) {
            return (left == right).then_some(factors);
        }
        if goes_on.0 {
            axes.0 += 1;
            left = first[axes.0];
        }
        if goes_on.1 {
            axes.1 += 1;
            right = second[axes.1];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use blob_core::DType;
    use blob_io::layout::TensorSpec;

    use super::*;
    use crate::transform::Reports;
    use crate::transform::values::computed;

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

    /// Values in memory, and how many bytes of them were read.
    struct Counted {
        bytes: Rc<Vec<u8>>,
        at: usize,
        read: Rc<Cell<usize>>,
    }

    impl Stream for Counted {
        fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
            let n = out.len().min(self.bytes.len() - self.at);
            out[..n].copy_from_slice(&self.bytes[self.at..][..n]);
            self.at += n;
            self.read.set(self.read.get() + n);
            Ok(n)
        }

        fn skip(&mut self, bytes: u64) -> Result<(), Error> {
            self.at += bytes as usize;
            Ok(())
        }
    }

    /// The result from pieces in any order, and how many bytes of the input were read; `None` where only the order of
    /// the result is used.
    fn in_pieces(bytes: &[u8], dims: &[usize], axes: &[usize], dtype: DType) -> Option<(Vec<u8>, usize)> {
        let spec = TensorSpec::new("w", dtype, Shape::new([bytes.len() / dtype.size()]).unwrap());
        let (tally, given, read) = (Reports::default(), Rc::new(bytes.to_vec()), Rc::new(Cell::new(0)));
        let open = |_| -> Result<Box<dyn Stream + '_>, Error> {
            Ok(Box::new(Counted { bytes: Rc::clone(&given), at: 0, read: Rc::clone(&read) }))
        };
        let inputs = Inputs::new("", "w", &spec, vec![&spec], Box::new(open), u64::MAX, &tally);
        let panels = Reorder::panels(&Reorder::permuted(dims, axes), inputs).unwrap()?;
        let (mut made, mut len) = (vec![0; bytes.len()], 0);
        panels
            .each(|at, piece| {
                made[at as usize..][..piece.len()].copy_from_slice(piece);
                len += piece.len();
                Ok(())
            })
            .unwrap();
        assert_eq!(len, bytes.len(), "{dims:?} by {axes:?}");
        Some((made, read.get()))
    }

    #[test]
    fn a_large_tensor_is_permuted_panel_by_panel() {
        for (dims, axes, has_pieces) in [
            (vec![500, 2_201], vec![1, 0], false),
            (vec![1, 1, 60, 20_001], vec![0, 1, 3, 2], false),
            (vec![550_001, 2], vec![1, 0], false),
            (vec![100, 2, 75, 75], vec![1, 2, 3, 0], false),
            (vec![300, 96, 7, 7], vec![2, 3, 1, 0], true),
            (vec![70, 3, 5_003], vec![2, 0, 1], false),
            (vec![90, 301, 43], vec![1, 0, 2], false),
            (vec![67, 130, 131], vec![2, 0, 1], false),
            (vec![67, 131, 130], vec![2, 1, 0], true),
            (vec![33, 50, 70, 11], vec![3, 1, 0, 2], true),
            (vec![3, 2, 3, 500, 301], vec![4, 3, 1, 2, 0], false),
            (vec![2, 2, 280_001], vec![2, 1, 0], false),
        ] {
            let (dtype, width) = (DType::F64, 8);
            let given = bytes(dims.iter().product::<usize>() * width);
            let expected = naive(&given, &dims, &axes, width);
            assert!(reordered(&given, &dims, &axes, dtype) == expected, "{dims:?} by {axes:?}");
            let pieces = in_pieces(&given, &dims, &axes, dtype);
            assert_eq!(pieces.is_some(), has_pieces, "{dims:?} by {axes:?}");
            if let Some((made, read)) = pieces {
                assert!(made == expected, "{dims:?} by {axes:?}, in pieces");
                assert_eq!(read, given.len(), "{dims:?} by {axes:?}: each byte is read once");
            }
        }
    }

    #[test]
    fn two_permutations_are_one() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let dims = [4, 6, 10];
        let given = bytes(240);
        for first in orders {
            let between: Vec<usize> = first.iter().map(|axis| dims[*axis]).collect();
            let [a, b, c] = between[..] else { unreachable!() };
            for second in [vec![a, b, c], vec![a * b, c], vec![a, b * c], vec![a, 1, b, 1, c], vec![2, a / 2 * b, c]] {
                let mut axes: Vec<usize> = (0..second.len()).rev().collect();
                for _ in 0..second.len() {
                    axes.rotate_left(1);
                    let expected = naive(&naive(&given, &dims, &first, 1), &second, &axes, 1);
                    let [one, then] = [Reorder::permuted(&dims, &first), Reorder::permuted(&second, &axes)];
                    let both = Reorder::both(&one, &then).unwrap();
                    let spec = TensorSpec::new("w", DType::U8, Shape::new([240]).unwrap());
                    let made = computed(&both, &spec, &[(spec.clone(), given.clone())]).unwrap().0;
                    assert_eq!(made, expected, "{first:?}, then {second:?} by {axes:?}");
                }
            }
        }
        let transposed = |dims: [usize; 2]| Reorder::permuted(&dims, &[1, 0]);
        assert!(Reorder::both(&transposed([4, 6]), &transposed([4, 6])).is_none(), "6 × 4 is not 4 × 6");
        assert!(Reorder::both(&Reorder::backwards(&[4, 6], 1), &transposed([4, 6])).is_none());
    }
}
