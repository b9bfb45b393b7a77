//! A value in the model, and the arithmetic of shapes.

use blob_core::DType;

use crate::unsupported::Refusal;

/// The largest number of elements of a value: Caffe's and MXNet's, whose counts are 32-bit integers.
const MAX_ELEMENTS: u64 = i32::MAX as u64;

/// A value in the model. An extent of 0 is one that only a run knows: how many boxes were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: DType,
    /// Whether the framework has integers here. The model has them as f32.
    pub(crate) is_whole: bool,
}

/// The axis from the left.
pub(crate) fn canonical(axis: i64, shape: &[u64]) -> Result<usize, Refusal> {
    let rank = shape.len() as i64;
    let place = if axis < 0 { axis + rank } else { axis };
    let place = usize::try_from(place).ok().filter(|place| *place < shape.len());
    place.ok_or_else(|| Refusal::shape(format!("axis {axis} of {}", shown(shape))))
}

/// The number of elements, which fits.
pub(crate) fn count(shape: &[u64]) -> Result<u64, Refusal> {
    let product = shape.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
    let product = product.filter(|product| *product <= MAX_ELEMENTS && shape.len() <= blob_core::MAX_AXES);
    product.ok_or_else(|| Refusal::shape(format!("{} has more elements or axes than are supported", shown(shape))))
}

/// The shape for people.
pub(crate) fn shown(shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    if extents.is_empty() { "a scalar".to_owned() } else { extents.join("×") }
}
