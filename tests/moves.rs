//! Merge, split and transpose in NeoML's own results: every row of the tables of the library and of the Python wheel.
//! NeoML's undefined cases are typed errors here, before a byte moves.

mod misuse;

use blob_core::{AnyBlob, DType};
use serde_json::Value;

use crate::support::blobs::shape;
use crate::support::neoml::{self, dims, dtype, expect, inputs, number, table};
use crate::support::report;

fn zeros(extents: &Value, dtype: DType) -> AnyBlob {
    AnyBlob::new(shape(&dims(extents)), dtype).expect("a blob")
}

/// Checks both forms of the operation that the row names. Returns false for a row of another kind.
fn check(row: &Value) -> bool {
    let blobs = inputs(row);
    let parts: Vec<&AnyBlob> = blobs.iter().collect();
    let axis = |name: &str| number(&row[name]);
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
    let lens: Vec<usize> = outs.iter().map(|out| dims(&out["dims"])[axis]).collect();
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
    let sizes: Vec<usize> = parts.iter().map(|part| part.shape().dims()[3..].iter().product()).collect();
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

/// The wheel's ConcatObject ignores ListSize and loses elements; ours does not.
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
    neoml::blob(&shape(dims), DType::F32, 1)
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
