//! Blobs of f32 that several tests start from.

use blob_core::{AnyBlob, Blob, Shape};

pub(crate) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a shape")
}

/// A blob of the elements 0, 1, 2, ….
pub(crate) fn counting(dims: &[usize]) -> AnyBlob {
    let shape = shape(dims);
    let elements: Vec<f32> = (0..shape.count()).map(|index| index as f32).collect();
    Blob::from_slice(shape, &elements).expect("a blob").into()
}

/// A blob of one axis with these elements.
pub(crate) fn of_f32(elements: &[f32]) -> AnyBlob {
    Blob::from_slice(shape(&[elements.len()]), elements).expect("a blob").into()
}
