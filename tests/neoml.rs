//! NeoML's golden tables (`data/neoml/cpp`): rows as JSON, and the blobs that their seeds stand for.

use blob_core::{AnyBlob, DType, Shape};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::data;

/// The rows of a table.
pub(crate) fn table(name: &str) -> Vec<Value> {
    let path = data("neoml/cpp").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"))).collect()
}

/// Cell `index` of the blob with this seed, as the README of the tables makes it.
fn cell(seed: u64, index: usize, dtype: DType) -> u32 {
    let mut z = seed.wrapping_mul(0x100_0000_01B3).wrapping_add(index as u64);
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    match dtype {
        DType::I32 => (z >> 32) as u32,
        _ => (((z >> 40) as f32 - 8_388_608.0) / 256.0).to_bits(),
    }
}

/// The blob that a seed stands for.
pub(crate) fn blob(shape: &Shape, dtype: DType, seed: u64) -> AnyBlob {
    let cells = (0..shape.count()).flat_map(|index| cell(seed, index, dtype).to_ne_bytes());
    AnyBlob::from_vec(shape.clone(), dtype, cells.collect()).expect("a blob of its length")
}

/// Extents as the tables write them.
pub(crate) fn dims(value: &Value) -> Vec<usize> {
    let list = value.as_array().expect("a list of extents");
    list.iter().map(number).collect()
}

/// A count as the tables write it.
pub(crate) fn number(value: &Value) -> usize {
    let number = value.as_u64().expect("a number");
    usize::try_from(number).expect("a small one")
}

/// The checksum of cells, as the tables write it.
pub(crate) fn sha256(cells: &[u8]) -> String {
    let little = cells.chunks(4).flat_map(|cell| {
        let cell = u32::from_ne_bytes(cell.try_into().expect("whole cells"));
        cell.to_le_bytes()
    });
    let digest = Sha256::digest(little.collect::<Vec<u8>>());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
