//! Reads NeoML's golden tables (`data/neoml`), whose rows are JSON, and generates the blobs from their seeds.

use blob_core::{AnyBlob, DType, Shape};
use serde_json::Value;

use super::blobs::shape;
use super::{data, sha256};
use crate::element::mix;

/// The rows of a table.
pub(crate) fn table(path: &str) -> Vec<Value> {
    let path = data("neoml").join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"))).collect()
}

/// Element `index` of the blob with this seed, by the rule in the README of the tables.
fn cell(seed: u64, index: usize, dtype: DType) -> u32 {
    let state = seed.wrapping_mul(0x100_0000_01B3).wrapping_add(index as u64);
    let z = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
    match dtype {
        DType::I32 => (z >> 32) as u32,
        _ => (((z >> 40) as f32 - 8_388_608.0) / 256.0).to_bits(),
    }
}

/// The blob with this seed.
pub(crate) fn blob(shape: &Shape, dtype: DType, seed: u64) -> AnyBlob {
    let cells = (0..shape.count()).flat_map(|index| cell(seed, index, dtype).to_ne_bytes());
    AnyBlob::from_vec(shape.clone(), dtype, cells.collect()).expect("a blob of its length")
}

/// The dtype of a row; the one row without a type has floats.
pub(crate) fn dtype(row: &Value) -> DType {
    match row["type"].as_str() {
        Some("int") => DType::I32,
        Some("float") | None => DType::F32,
        other => panic!("type {other:?}"),
    }
}

/// The input blobs of a row.
pub(crate) fn inputs(row: &Value) -> Vec<AnyBlob> {
    let (shapes, seeds) = (row["in"].as_array().expect("inputs"), row["seeds"].as_array().expect("seeds"));
    let pairs = shapes.iter().zip(seeds);
    pairs.map(|(of, seed)| blob(&shape(&dims(of)), dtype(row), seed.as_u64().expect("a seed"))).collect()
}

/// A list of extents in a table.
pub(crate) fn dims(value: &Value) -> Vec<usize> {
    let list = value.as_array().expect("a list of extents");
    list.iter().map(number).collect()
}

/// A number in a table.
pub(crate) fn number(value: &Value) -> usize {
    let number = value.as_u64().expect("a number");
    usize::try_from(number).expect("a small one")
}

/// The elements of a blob as 32-bit words.
pub(crate) fn words(blob: &AnyBlob) -> Vec<u32> {
    let bytes = blob.data().bytes().expect("data");
    bytes.chunks(4).map(|cell| u32::from_ne_bytes(cell.try_into().expect("whole cells"))).collect()
}

/// Asserts that a blob has the expected shape, and its elements as little-endian bytes the expected checksum.
#[track_caller]
pub(crate) fn expect(blob: &AnyBlob, wanted: &Value, row: &Value) {
    assert_eq!(blob.shape().dims(), dims(&wanted["dims"]), "{row}");
    let little: Vec<u8> = words(blob).into_iter().flat_map(u32::to_le_bytes).collect();
    assert_eq!(sha256(&little), wanted["sha256"].as_str().expect("a checksum"), "{row}");
}
