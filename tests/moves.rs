//! Merge, split and transpose as NeoML computes them: every row of the tables of its library and of its Python wheel,
//! and what it does when it is misused, which here is a typed error before a byte moves.

mod misuse;

use blob_core::{AnyBlob, DType, Shape};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::{data, report};

fn table(path: &str) -> Vec<Value> {
    let path = data("neoml").join(path);
    let text = std::fs::read_to_string(&path).expect("the table can be read");
    let rows = text.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().expect("a row is JSON")
}

/// The tables' own generator: element `i` of the blob with seed `s` (data/neoml/README.md).
fn cell(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_mul(0x100_0000_01B3).wrapping_add(index);
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn dtype(row: &Value) -> DType {
    match row["type"].as_str() {
        Some("int") => DType::I32,
        // The one row without a type is of floats.
        Some("float") | None => DType::F32,
        other => panic!("type {other:?}"),
    }
}

fn extents(dims: &Value) -> Vec<usize> {
    let dims = dims.as_array().expect("extents").iter();
    dims.map(|n| n.as_u64().expect("an extent") as usize).collect()
}

fn input(dims: &[usize], seed: u64, dtype: DType) -> AnyBlob {
    let shape = Shape::new(dims).expect("a shape");
    let cells = (0..shape.count() as u64).map(|index| cell(seed, index));
    let bytes = cells.flat_map(|c| match dtype {
        DType::I32 => ((c >> 32) as i32).to_ne_bytes(),
        _ => (((c >> 40) as i64 - (1 << 23)) as f32 / 256.0).to_ne_bytes(),
    });
    AnyBlob::from_vec(shape, dtype, bytes.collect()).expect("a blob")
}

fn inputs(row: &Value) -> Vec<AnyBlob> {
    let (dims, seeds) = (row["in"].as_array(), row["seeds"].as_array());
    let pairs = dims.expect("inputs").iter().zip(seeds.expect("seeds"));
    pairs.map(|(dims, seed)| input(&extents(dims), seed.as_u64().expect("a seed"), dtype(row))).collect()
}

#[track_caller]
fn expect(got: &AnyBlob, want: &Value, row: &Value) {
    assert_eq!(got.shape().dims(), extents(&want["dims"]), "{row}");
    let bytes = got.data().bytes().expect("bytes");
    let little: Vec<u8> = bytes.chunks(4).flat_map(little).collect();
    let hash: String = Sha256::digest(&little).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(Some(hash.as_str()), want["sha256"].as_str(), "{row}");
}

/// The tables hold little-endian cells.
fn little(cell: &[u8]) -> [u8; 4] {
    u32::from_ne_bytes(cell.try_into().expect("a cell")).to_le_bytes()
}

fn zeros(dims: &Value, dtype: DType) -> AnyBlob {
    AnyBlob::new(Shape::new(extents(dims)).expect("a shape"), dtype).expect("a blob")
}

/// Both forms of the operation that the row names; `false` for a row of another kind.
fn check(row: &Value) -> bool {
    let blobs = inputs(row);
    let parts: Vec<&AnyBlob> = blobs.iter().collect();
    let axis = |name: &str| row[name].as_u64().expect("an axis") as usize;
    match row["op"].as_str().expect("an operation") {
        "merge" | "concat" => {
            expect(&blob_ops::merge(&parts, axis("d")).expect("merged"), &row["out"], row);
            let mut out = zeros(&row["out"]["dims"], dtype(row));
            blob_ops::merge_into(&parts, axis("d"), &mut out).expect("merged");
            expect(&out, &row["out"], row);
        }
        "merge_object" | "concat_object" => {
            expect(&blob_ops::merge_objects(&parts).expect("merged"), &row["out"], row);
            let mut out = zeros(&row["out"]["dims"], dtype(row));
            blob_ops::merge_objects_into(&parts, &mut out).expect("merged");
            expect(&out, &row["out"], row);
        }
        "split" => check_split(row, &blobs[0], axis("d")),
        "split_object" => check_split_objects(row, &blobs[0]),
        "transpose" => {
            let (d1, d2) = (axis("d1"), axis("d2"));
            expect(&blob_ops::transpose(&blobs[0], d1, d2).expect("transposed"), &row["out"], row);
            let mut out = zeros(&row["out"]["dims"], dtype(row));
            blob_ops::transpose_into(&blobs[0], d1, d2, &mut out).expect("transposed");
            expect(&out, &row["out"], row);
        }
        _ => return false,
    }
    true
}

fn check_split(row: &Value, blob: &AnyBlob, axis: usize) {
    let outs = row["outs"].as_array().expect("outputs");
    let lens: Vec<usize> = outs.iter().map(|out| extents(&out["dims"])[axis]).collect();
    let parts = blob_ops::split(blob, axis, &lens).expect("split");
    let mut again: Vec<_> = outs.iter().map(|out| zeros(&out["dims"], dtype(row))).collect();
    let mut slots: Vec<&mut AnyBlob> = again.iter_mut().collect();
    blob_ops::split_into(blob, axis, &mut slots).expect("split");
    for ((part, again), want) in parts.iter().zip(&again).zip(outs) {
        expect(part, want, row);
        expect(again, want, row);
    }
}

fn check_split_objects(row: &Value, blob: &AnyBlob) {
    let outs = row["outs"].as_array().expect("outputs");
    let mut parts: Vec<_> = outs.iter().map(|out| zeros(&out["dims"], dtype(row))).collect();
    let mut slots: Vec<&mut AnyBlob> = parts.iter_mut().collect();
    blob_ops::split_objects_into(blob, &mut slots).expect("split");
    for (part, want) in parts.iter().zip(outs) {
        expect(part, want, row);
    }
    let size = |part: &AnyBlob| part.shape().dims()[3..].iter().product();
    let sizes: Vec<usize> = parts.iter().map(size).collect();
    for (flat, part) in blob_ops::split_objects(blob, &sizes).expect("split").iter().zip(&parts) {
        assert_eq!(*flat.data().bytes().expect("bytes"), *part.data().bytes().expect("bytes"), "{row}");
    }
}

fn check_table(path: &str, wanted: usize) {
    let rows = table(path);
    let checked = rows.iter().filter(|row| check(row)).count();
    assert_eq!(checked, wanted, "rows of {path}");
    report(&format!("neoml {path}: {checked} rows"));
}

#[test]
fn merge_and_split_rows() {
    check_table("cpp/merge_split.jsonl", 526);
}

#[test]
fn transpose_rows() {
    check_table("cpp/transpose.jsonl", 262);
}

/// The wheel's ConcatObject forgets ListSize and loses cells; ours does not.
#[test]
fn rows_of_the_python_layers() {
    check_table("py/layer_oracle.jsonl", 181);
    for row in table("py/layer_oracle.jsonl") {
        if row["op"] == "concat_object_layer_drops_list" {
            let blobs = inputs(&row);
            let merged = blob_ops::merge_objects(&blobs.iter().collect::<Vec<_>>());
            let cells: usize = blobs.iter().map(AnyBlob::count).sum();
            assert_eq!(merged.expect("merged").count(), cells, "{row}");
        }
    }
}

fn blob(dims: &[usize]) -> AnyBlob {
    input(dims, 1, DType::F32)
}

fn seven(axis: usize, extent: usize) -> Vec<usize> {
    let mut dims = vec![1; 7];
    dims[axis] = extent;
    dims
}

/// A sequence of BatchLength `n`.
fn long(n: usize) -> AnyBlob {
    blob(&seven(0, n))
}
