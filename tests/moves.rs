//! Merge, split and transpose as NeoML computes them: every row of the tables of its library and of its Python wheel,
//! and what it does when it is misused, which here is a typed error before a byte moves.

use blob_core::{AnyBlob, DType, Shape};
use blob_ops::Error;
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
    dims.map(|n| n.as_u64().expect("an extent") as usize)
        .collect()
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
    pairs
        .map(|(dims, seed)| input(&extents(dims), seed.as_u64().expect("a seed"), dtype(row)))
        .collect()
}

#[track_caller]
fn expect(got: &AnyBlob, want: &Value, row: &Value) {
    assert_eq!(got.shape().dims(), extents(&want["dims"]), "{row}");
    let bytes = got.data_bytes().expect("bytes");
    let little: Vec<u8> = bytes.chunks(4).flat_map(little).collect();
    let hash: String = Sha256::digest(&little)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
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
            expect(
                &blob_ops::merge(&parts, axis("d")).expect("merged"),
                &row["out"],
                row,
            );
            let mut out = zeros(&row["out"]["dims"], dtype(row));
            blob_ops::merge_into(&parts, axis("d"), &mut out).expect("merged");
            expect(&out, &row["out"], row);
        }
        "merge_object" | "concat_object" => {
            expect(
                &blob_ops::merge_objects(&parts).expect("merged"),
                &row["out"],
                row,
            );
            let mut out = zeros(&row["out"]["dims"], dtype(row));
            blob_ops::merge_objects_into(&parts, &mut out).expect("merged");
            expect(&out, &row["out"], row);
        }
        "split" => check_split(row, &blobs[0], axis("d")),
        "split_object" => check_split_objects(row, &blobs[0]),
        "transpose" => {
            let (d1, d2) = (axis("d1"), axis("d2"));
            expect(
                &blob_ops::transpose(&blobs[0], d1, d2).expect("transposed"),
                &row["out"],
                row,
            );
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
    let mut again: Vec<_> = outs
        .iter()
        .map(|out| zeros(&out["dims"], dtype(row)))
        .collect();
    let mut slots: Vec<&mut AnyBlob> = again.iter_mut().collect();
    blob_ops::split_into(blob, axis, &mut slots).expect("split");
    for ((part, again), want) in parts.iter().zip(&again).zip(outs) {
        expect(part, want, row);
        expect(again, want, row);
    }
}

fn check_split_objects(row: &Value, blob: &AnyBlob) {
    let outs = row["outs"].as_array().expect("outputs");
    let mut parts: Vec<_> = outs
        .iter()
        .map(|out| zeros(&out["dims"], dtype(row)))
        .collect();
    let mut slots: Vec<&mut AnyBlob> = parts.iter_mut().collect();
    blob_ops::split_objects_into(blob, &mut slots).expect("split");
    for (part, want) in parts.iter().zip(outs) {
        expect(part, want, row);
    }
    let size = |part: &AnyBlob| part.shape().dims()[3..].iter().product();
    let sizes: Vec<usize> = parts.iter().map(size).collect();
    for (flat, part) in blob_ops::split_objects(blob, &sizes)
        .expect("split")
        .iter()
        .zip(&parts)
    {
        assert_eq!(
            *flat.data_bytes().expect("bytes"),
            *part.data_bytes().expect("bytes"),
            "{row}"
        );
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

/// What the rows of `malformed_release.jsonl` do, and what is then wrong.
type Misuse = fn(&mut AnyBlob) -> Result<(), Error>;

fn ints(n: usize) -> AnyBlob {
    input(&seven(0, n), 1, DType::I32)
}

/// `out` has BatchLength 4 and nothing else. Rows that the types rule out are named beside the count.
const MISUSES: &[(&str, Misuse)] = &[
    ("merge: other dim differs (from 2x3", |out| {
        let (a, b) = (blob(&[2, 3, 1, 1, 1, 1, 1]), blob(&[2, 4, 1, 1, 1, 1, 1]));
        blob_ops::merge_into(&[&a, &b], 0, out)
    }),
    ("merge: other dim differs along Channels", |out| {
        let (a, b) = (blob(&[1, 64, 1, 1, 1, 1, 1]), blob(&[1, 2, 1, 1, 1, 1, 1]));
        blob_ops::merge_into(&[&a, &b], 6, out)
    }),
    ("merge: sum of the parts greater", |out| {
        blob_ops::merge_into(&[&long(3), &long(3)], 0, out)
    }),
    ("merge: sum of the parts less", |out| {
        blob_ops::merge_into(&[&long(1), &long(1)], 0, out)
    }),
    ("merge: no parts at all", |out| {
        blob_ops::merge_into(&[], 0, out)
    }),
    ("merge: float part into int", |out| {
        blob_ops::merge_into(&[&ints(2), &long(2)], 0, out)
    }),
    ("merge: int part into float", |out| {
        blob_ops::merge_into(&[&long(2), &ints(2)], 0, out)
    }),
    ("merge: dim 7", |out| {
        blob_ops::merge_into(&[&long(4)], 7, out)
    }),
    ("merge: dim -1", |out| {
        blob_ops::merge_into(&[&long(4)], -8, out)
    }),
    ("merge: the result is also a part", |out| {
        let memory = out.data_memory().clone();
        let same = AnyBlob::from_parts(out.shape().clone(), out.dtype(), memory, None)?;
        blob_ops::merge_into(&[&same], 0, out)
    }),
    ("split: parts add up to more", |out| {
        blob_ops::split_into(&long(5), 0, &mut [out, &mut long(2)])
    }),
    ("split: parts add up to less", |out| {
        blob_ops::split_into(&long(7), 0, &mut [out, &mut long(2)])
    }),
    ("split: a part with a smaller outer dim", |out| {
        blob_ops::split_into(&blob(&[8, 1, 1, 1, 1, 1, 2]), 6, &mut [out, &mut long(8)])
    }),
    ("split: zero-sized source dim", |out| {
        blob_ops::split_into(&blob(&[0, 1, 1, 1, 1, 1, 2]), 6, &mut [out])
    }),
    ("merge_object: object counts differ", |out| {
        blob_ops::merge_objects_into(&[&long(2), &long(3)], out)
    }),
    ("transpose_from: result has the right size but", |out| {
        blob_ops::transpose_into(&long(4), 0, 1, out)
    }),
    ("transpose_from: other dims differ", |out| {
        blob_ops::transpose_into(&blob(&[1, 2, 2, 1, 1, 1, 1]), 0, 1, out)
    }),
    ("transpose_from: types differ", |out| {
        blob_ops::transpose_into(&ints(4), 1, 2, out)
    }),
    ("transpose_from: d2 = 7", |out| {
        blob_ops::transpose_into(&long(4), 0, 7, out)
    }),
    ("get_transposed: d2 = 7", |_| {
        blob_ops::transpose(&long(4), 5, 7).map(|_| ())
    }),
    ("get_transposed: d1 = -1", |_| {
        blob_ops::transpose(&long(4), -8, 1).map(|_| ())
    }),
    ("transpose_from: itself", |out| {
        let memory = out.data_memory().clone();
        let same = AnyBlob::from_parts(out.shape().clone(), out.dtype(), memory, None)?;
        blob_ops::transpose_into(&same, 1, 2, out)
    }),
];

/// A null part and parts of another engine have no counterpart; 33 parts are as good as any number here.
#[test]
fn misuse_is_an_error_before_a_byte_moves() {
    for (case, misuse) in MISUSES {
        let mut out = long(4);
        let before = out.data_bytes().expect("bytes").to_vec();
        let error = misuse(&mut out).expect_err(case);
        assert_eq!(*out.data_bytes().expect("bytes"), before, "{case}: {error}");
    }
    let many: Vec<AnyBlob> = (0..33).map(|_| long(1)).collect();
    let merged = blob_ops::merge(&many.iter().collect::<Vec<_>>(), 0).expect("33 parts");
    assert_eq!(merged.count(), 33);
    let rows = table("cpp/malformed_release.jsonl");
    let ours = [
        "merge",
        "split",
        "transpose_from",
        "get_transposed",
        "two engines: merge",
    ];
    let elsewhere = [
        "merge: a null part",
        "merge: 33 parts",
        "two engines: merge",
    ];
    let mut asserted = 0;
    for case in rows.iter().filter_map(|row| row["case"].as_str()) {
        if ours.iter().any(|name| case.starts_with(name)) {
            let known = MISUSES.iter().any(|(name, _)| case.starts_with(name));
            let other = elsewhere.iter().any(|name| case.starts_with(name));
            assert!(known || other, "no test for {case:?}");
            asserted += usize::from(known);
        }
    }
    assert_eq!(asserted, MISUSES.len());
    report(&format!(
        "neoml moves misused: {asserted} rows refused, 4 that have no counterpart"
    ));
}
