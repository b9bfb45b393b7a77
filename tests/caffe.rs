//! Reading Caffe files: shapes, dtypes and checksums of every parameter blob are compared with those of the real Caffe.
//!
//! The tables were written by BVLC/caffe `9b891540`; `tests/data/README.md` says how.

use std::collections::BTreeMap;
use std::path::Path;

use blob_core::{DType, Shape};
use blob_io::layout::{Splice, TensorSpec};
use blob_io::{Checkpoint, Entry, Format, Kind};

use crate::caffe_splice::spliced;
use crate::support::message::{floats, layer, len, shape, var};
use crate::support::{data, open, real, report, rows};

/// `1,1,3,2`, or `-` for no axes.
pub(crate) fn dims(text: &str) -> Vec<i64> {
    match text {
        "-" => Vec::new(),
        _ => text.split(',').map(|d| d.parse().expect("a dimension")).collect(),
    }
}

fn crc(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}

/// The checksum of an entry's values as Caffe's Blob<float> or Blob<double> would hold them.
pub(crate) fn crc_as(checkpoint: &Checkpoint, entry: &Entry, read_as: &str) -> String {
    let blob = checkpoint.load(entry).expect("the entry loads");
    let bytes: Vec<u8> = match (blob.dtype(), read_as) {
        (DType::F32, "f32") | (DType::F64, "f64") => blob.data().bytes().expect("bytes").to_vec(),
        (DType::F32, _) => {
            let values = blob.data().elements::<f32>().expect("floats");
            values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect()
        }
        (DType::F64, _) => {
            let values = blob.data().elements::<f64>().expect("doubles");
            values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect()
        }
        (other, _) => panic!("{}: Caffe has no {other}", entry.name()),
    };
    crc(&bytes)
}

/// Compares one row of PARAMS.tsv or real_params.tsv with a data entry and its diff.
fn check_row(checkpoint: &Checkpoint, entry: &Entry, row: &[String]) {
    let at = format!("{} {}", row[0], entry.name());
    if checkpoint.format() == Format::CaffeModel {
        assert_eq!(entry.layer_type().unwrap_or(""), row[3], "{at}: type");
        assert_eq!(entry.index().to_string(), row[4], "{at}: index");
    } else {
        assert_eq!(entry.position().to_string(), row[4], "{at}: position");
    }
    let dims: Vec<usize> = dims(&row[6]).iter().map(|d| *d as usize).collect();
    assert_eq!(entry.shape().dims(), dims, "{at}: shape");
    assert_eq!(crc_as(checkpoint, entry, &row[5]), row[8], "{at}: data");
    let diff = checkpoint.diff_of(entry);
    match row[9].as_str() {
        "-" => assert!(diff.is_none(), "{at}: a diff that Caffe does not see"),
        expected => {
            let diff = diff.unwrap_or_else(|| panic!("{at}: no diff"));
            assert_eq!(diff.name(), format!("{}.diff", entry.name()));
            assert_eq!(crc_as(checkpoint, diff, &row[5]), expected, "{at}: diff");
            let pair = checkpoint.load_pair(entry).expect("the pair loads");
            assert!(pair.has_diff());
            assert_eq!(crc(&pair.diff().bytes().expect("bytes")), expected, "{at}: pair");
        }
    }
}

/// Checks every file of a table; returns how many files and blobs.
fn check_table(table: &Path, folder: &Path) -> (usize, usize) {
    let mut by_file: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for row in rows(table) {
        by_file.entry(row[0].clone()).or_default().push(row);
    }
    let mut blobs = 0;
    let mut count = 0;
    for (file, rows) in &by_file {
        if rows[0][1] == "DIE" {
            continue;
        }
        let checkpoint = Checkpoint::open(folder.join(file)).expect("the file opens");
        // Caffe drops the weights of a V1 layer between V0 ones; we read them, with a warning.
        let mixed = file == "v0_with_v1_layer.caffemodel";
        assert_eq!(mixed, !checkpoint.warnings().is_empty(), "{file}: warnings");
        let entries: Vec<&Entry> = checkpoint
            .entries()
            .iter()
            .filter(|e| e.kind() == Kind::Data)
            .filter(|e| !mixed || rows.iter().any(|r| e.name().starts_with(&format!("{}/", r[2]))))
            .collect();
        assert_eq!(entries.len(), rows.len(), "{file}: number of blobs");
        for (entry, row) in entries.iter().zip(rows) {
            check_row(&checkpoint, entry, row);
            blobs += 1;
        }
        count += 1;
    }
    (count, blobs)
}

#[test]
fn nets_have_the_parameters_that_caffe_reads() {
    let folder = data("caffe/net");
    let (goldens, blobs) = check_table(&folder.join("PARAMS.tsv"), &folder);
    assert_eq!((goldens, blobs), (11, 100));
    let mut line = format!("caffe nets: {goldens} files, {blobs} blobs");
    match real("caffe/real_params.tsv") {
        Some(table) => {
            let folder = table.parent().expect("a folder").join("real");
            let (real, blobs) = check_table(&table, &folder);
            assert_eq!(real, 12);
            line += &format!("; {real} real files, {blobs} blobs");
        }
        None => report("NOT TESTED: real Caffe files (BLOB_REAL_DATA)"),
    }
    report(&line);
}

#[test]
fn names_follow_layers_and_positions() {
    let names = |file: &str| -> Vec<String> {
        let checkpoint = Checkpoint::open(data("caffe/net").join(file)).expect("opens");
        checkpoint.entries().iter().map(|e| e.name().to_owned()).collect()
    };
    let twice = names("duplicate_layer_name.caffemodel");
    assert_eq!(twice[0], "conv1/0");
    assert_eq!(twice[12..], ["conv1@10/0", "conv1@10/1"]);
    let diffs = names("f32_v2_diff.caffemodel");
    assert_eq!(diffs[..4], ["conv1/0", "conv1/0.diff", "conv1/1", "conv1/1.diff"]);
    assert!(names("slash_name.caffemodel")[0].ends_with("/0"));
}

#[test]
fn broken_and_odd_nets_say_what_they_are() {
    let open = |file: &str| Checkpoint::open(data("caffe/net").join(file));
    let error = open("truncated.caffemodel").expect_err("truncated");
    assert!(error.offset().is_some(), "{error}");
    assert!(error.to_string().contains("bytes, but"), "{error}");
    let error = open("empty.caffemodel").expect_err("empty");
    assert!(error.to_string().contains("empty (0 bytes)"), "{error}");
    let mixed = open("mixed_layer_and_layers.caffemodel").expect("read all the same");
    assert_eq!(mixed.dialect(), "V1 and V2 layers");
    assert_eq!(mixed.warnings().len(), 1);
    let v0 = open("v0.caffemodel").expect("V0");
    assert_eq!(v0.dialect(), "V0 layers");
    assert_eq!(open("v1.caffemodel").expect("V1").dialect(), "V1 layers");
    assert_eq!(open("v0.upgraded.caffemodel").expect("V2").dialect(), "V2 layers");
}

#[test]
fn vectors_datums_and_solver_states_are_read() {
    let open = |file: &str| Checkpoint::open(data("caffe/misc").join(file)).expect("opens");
    let vector = open("vector3.blobprotovector");
    assert_eq!(vector.format(), Format::BlobProtoVector);
    let listed: Vec<_> = vector.entries().iter().map(|e| (e.name(), e.shape().dims().to_vec())).collect();
    assert_eq!(listed, [("@0", vec![1, 2]), ("@1", vec![3]), ("@1.diff", vec![3]), ("@2", vec![3, 2])]);
    assert_eq!(vector.entries()[1].dtype(), Some(DType::F64));
    let state = open("state.solverstate");
    assert_eq!(state.format(), Format::SolverState);
    assert!(state.metadata().iter().any(|(k, _)| k == "iter"));
    assert!(!state.entries().is_empty());
    let bytes = open("u8.datum");
    assert_eq!((bytes.format(), bytes.entries()[0].dtype()), (Format::Datum, Some(DType::U8)));
    let floats = open("float.datum");
    let blob = floats.load(&floats.entries()[0]).expect("loads");
    let values = blob.data().elements::<f32>().expect("floats");
    assert_eq!(*values, *floats_from(62, values.len()));
    assert_eq!(values.len(), 12);
    assert_eq!(open("encoded.datum").entries()[0].shape().num_axes(), 1);
}

/// The SplitMix64 stream that the goldens' values come from (README of the data).
fn floats_from(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((z >> 40) as f64 / 16_777_216.0 * 6.0 - 3.0) as f32
    })
    .take(n)
    .collect()
}

fn warnings(checkpoint: &Checkpoint) -> Vec<String> {
    let entries = checkpoint.entries().iter();
    entries.flat_map(|e| e.warnings().map(|w| w.text.to_string())).collect()
}

#[test]
fn a_repeated_layer_name_is_told() {
    let blob = [floats(&[1.0]), shape(&[1])].concat();
    let once = open("a.caffemodel", &layer("conv1", &blob)).expect("opens");
    assert_eq!(warnings(&once).len(), 0);
    let file = [layer("conv1", &blob), layer("conv1", &blob)].concat();
    let twice = open("a.caffemodel", &file).expect("opens");
    assert_eq!(twice.entries()[1].name(), "conv1@1/0");
    assert!(warnings(&twice)[0].contains("used before"));
}

#[test]
fn weights_around_a_v0_layer_are_told() {
    let nested = len(1, &[len(1, b"in"), len(2, b"conv")].concat());
    let blob = len(6, &[floats(&[3.0]), shape(&[1])].concat());
    let file = len(2, &[nested, len(4, b"out"), var(5, 4), blob].concat());
    let net = open("a.caffemodel", &file).expect("opens");
    assert_eq!(net.entries()[0].name(), "in/0");
    assert_eq!(net.entries()[0].layer_type(), Some("Convolution"));
    assert!(warnings(&net)[0].contains("V1 layer around a V0 layer"));
}

/// A shell of 2014 with several layers of 2013, which protobuf merges: each keeps its own fields.
#[test]
fn every_layer_of_2013_in_a_shell_is_rewritten() {
    let blob = |value: f32| len(50, &[shape(&[1]), floats(&[value])].concat());
    let shell = |name: &str, blobs: [Vec<u8>; 2]| {
        let [first, second] = blobs;
        let named = [len(1, name.as_bytes()), len(2, b"conv"), first].concat();
        let other = [second, var(4, 7)].concat();
        len(2, &[var(5, 4), len(1, &named), len(2, b"data"), len(1, &other), len(3, b"top")].concat())
    };
    let double = |value: f64| len(50, &[shape(&[1]), len(8, &value.to_le_bytes())].concat());
    let bytes = shell("in", [blob(1.0), blob(2.0)]);
    let base = Checkpoint::from_bytes("shell.caffemodel", bytes.clone()).expect("opens");
    assert_eq!(base.names().collect::<Vec<_>>(), ["in/0", "in/1"]);
    let one = |dtype| TensorSpec::new("t", dtype, Shape::new([1]).expect("a shape"));
    let mut splice = Splice::new(&base).expect("of Caffe");
    splice.replace("in/0", 0).expect("there");
    splice.replace("in/1", 1).expect("there");
    splice.rename("in", "other").expect("a layer");
    let values = [3.0_f64, 4.0].map(|value| value.to_le_bytes().to_vec());
    let changed = spliced(&bytes, &splice, &[one(DType::F64), one(DType::F64)], &values);
    let back = Checkpoint::from_bytes("back.caffemodel", changed.clone()).expect("opens");
    assert_eq!(back.names().collect::<Vec<_>>(), ["other/0", "other/1"]);
    assert!(changed == shell("other", [double(3.0), double(4.0)]), "{changed:?}");
    let mut splice = Splice::new(&base).expect("of Caffe");
    splice.remove("in/1").expect("there");
    splice.add("in/0.diff", 0).expect("has none");
    let kept = spliced(&bytes, &splice, &[one(DType::F32)], &[5.0_f32.to_le_bytes().to_vec()]);
    let back = Checkpoint::from_bytes("back.caffemodel", kept).expect("opens");
    assert_eq!(back.names().collect::<Vec<_>>(), ["in/0", "in/0.diff"]);
}
