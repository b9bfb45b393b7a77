//! ONNX models that are made to cost a reader most: many tensors, names, axes, separate numbers, pairs.

use crate::support::message::{len, var, varint};

fn filled(size: usize, part: &[u8]) -> Vec<u8> {
    part.repeat(size / part.len())
}

/// A model of these fields of a graph.
fn model(fields: Vec<u8>) -> Vec<u8> {
    [var(1, 8), len(7, &[len(1, &len(4, b"Conv")), fields].concat())].concat()
}

/// Tensors of a type that blobs do not have, with a place in another file.
pub(crate) fn onnx_of_tensors(size: usize) -> Vec<u8> {
    let place = |key: &[u8], value: &[u8]| len(13, &[len(1, key), len(2, value)].concat());
    let outside = [var(2, 1), var(14, 1), place(b"location", b"w"), place(b"offset", b"9")].concat();
    model([filled(size / 2, &len(5, &outside)), filled(size / 2, &len(5, &var(2, 14)))].concat())
}

/// Tensors whose names are those that a repeated name gets.
pub(crate) fn onnx_of_names(size: usize) -> Vec<u8> {
    model(
        (0..size / 220)
            .flat_map(|i: usize| len(5, &[var(2, 1), len(8, format!("a{}", "@9".repeat(i % 200)).as_bytes())].concat()))
            .collect(),
    )
}

pub(crate) fn onnx_of_dims(size: usize) -> Vec<u8> {
    let dims = [var(1, 1).repeat(16), len(1, &[1; 16])].concat();
    model(filled(size, &len(5, &[var(2, 1), dims].concat())))
}

/// A tensor with a key before each number, of each kind of field.
pub(crate) fn onnx_of_numbers(size: usize) -> Vec<u8> {
    let float = [varint(4 << 3 | 5), vec![0; 4]].concat();
    let tensors = [
        [var(2, 7), var(1, size as u64 / 9), filled(size / 9 * 2, &var(7, 1))].concat(),
        [var(2, 1), filled(size / 3, &[&float[..], &len(15, b"")].concat())].concat(),
        [var(2, 6), filled(size / 3, &[len(5, &[1; 3]), len(5, b"")].concat())].concat(),
    ];
    model(tensors.iter().flat_map(|tensor| len(5, tensor)).collect())
}

pub(crate) fn onnx_of_metadata(size: usize) -> Vec<u8> {
    let pair = |i: usize| len(14, &[len(1, format!("{i:x}").as_bytes()), len(2, b"")].concat());
    [model(Vec::new()), (0..size / 24).flat_map(|i| [pair(i), pair(i / 2)].concat()).collect()].concat()
}
