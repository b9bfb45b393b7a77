//! BlobProtos of every writer are compared with the real Caffe's reading; ShapeEquals with its table.

use blob_core::{AnyBlob, DType, Shape};
use blob_io::caffe::decode_blob;
use blob_io::caffe::proto::BlobProto;
use blob_io::{Checkpoint, Format, Kind, OpenOptions};
use prost::Message;

use crate::caffe::{crc_as, dims};
use crate::support::message::{floats, len, shape, var, varint};
use crate::support::{data, files, open, report, rows};

fn open_blob(name: &str) -> Result<Checkpoint, blob_io::Error> {
    let path = data("caffe/blobproto").join(format!("{name}.binaryproto"));
    OpenOptions::new().from(Format::BlobProto).open(path)
}

/// A BlobProto that Caffe refuses, and its row of `OURS.tsv`.
fn check_refused(name: &str, ours: &[Vec<String>]) {
    let row = ours.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: Caffe refuses it, and we?"));
    let got = open_blob(name).and_then(|c| c.load_pair(&c.entries()[0]).map(drop));
    match (&*row[1], got) {
        ("opens", Ok(())) => {}
        ("error", Err(error)) => assert!(error.to_string().contains(&row[2]), "{name}: {error}"),
        (expected, got) => panic!("{name}: {expected}, got {got:?}"),
    }
}

#[test]
fn messages_become_blobs_and_back() {
    let mut compared = 0;
    for path in files(&data("caffe/blobproto"), |name| name.ends_with(".binaryproto")) {
        let bytes = std::fs::read(&path).expect("readable");
        let (Ok(blob), Ok(proto)) = (decode_blob(&bytes), BlobProto::decode(&bytes[..])) else { continue };
        // Caffe's own message does not have the raw values of the forks.
        if proto.data.len().max(proto.double_data.len()) != blob.shape().count() {
            continue;
        }
        let same = |a: &AnyBlob, b: &AnyBlob| {
            assert_eq!((a.shape(), a.dtype(), a.has_diff()), (b.shape(), b.dtype(), b.has_diff()), "{path:?}");
            assert_eq!(*a.data().bytes().unwrap(), *b.data().bytes().unwrap(), "{path:?}");
            assert_eq!(
                a.has_diff().then(|| a.diff().bytes().unwrap().to_vec()),
                b.has_diff().then(|| b.diff().bytes().unwrap().to_vec())
            );
        };
        same(&AnyBlob::try_from(&proto).expect("a blob"), &blob);
        let written = BlobProto::try_from(&blob).expect("floats or doubles");
        same(&decode_blob(&written.encode_to_vec()).expect("it reads back"), &blob);
        let values = if blob.dtype() == DType::F64 { written.double_data.len() } else { written.data.len() };
        assert_eq!(values, blob.shape().count());
        compared += 1;
    }
    assert!(compared >= 20, "{compared}");
    let halves = AnyBlob::new(Shape::new([2]).unwrap(), DType::F16).unwrap();
    assert!(BlobProto::try_from(&halves).unwrap_err().to_string().contains("not f"));
}

#[test]
fn every_blobproto_reads_as_caffe_reads_it_or_fails_with_a_reason() {
    let folder = data("caffe/blobproto");
    let ours = rows(&folder.join("OURS.tsv"));
    let mut seen = std::collections::BTreeSet::new();
    for row in rows(&folder.join("INDEX.tsv")) {
        let (name, read_as, upstream) = (&row[0], &row[2], &row[4]);
        seen.insert(name.clone());
        if name == "diff_short" {
            // Only the diff is broken: the data can be loaded, the pair cannot.
            let checkpoint = open_blob(name).expect("opens");
            checkpoint.load(&checkpoint.entries()[0]).expect("the data load");
            let error = checkpoint.load_pair(&checkpoint.entries()[0]).expect_err("the diff");
            assert!(error.to_string().contains("diff: expected 6 values for the shape, found 5"), "{error}");
            continue;
        }
        if upstream != "ok" || name == "dim_int64_overflow" {
            check_refused(name, &ours);
            continue;
        }
        let checkpoint = open_blob(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let entry = &checkpoint.entries()[0];
        assert_eq!(entry.shape().shape_string(), row[5], "{name}");
        let read_as = if read_as == "float" { "f32" } else { "f64" };
        assert_eq!(crc_as(&checkpoint, entry, read_as), row[7], "{name} as {read_as}");
        match (checkpoint.diff_of(entry), row[8].as_str()) {
            (None, "-") => {}
            (Some(diff), crc) => assert_eq!(crc_as(&checkpoint, diff, read_as), crc, "{name} diff"),
            (None, _) => panic!("{name}: no diff"),
        }
    }
    let on_disk = files(&folder, |f| f.ends_with(".binaryproto")).len();
    assert_eq!(seen.len(), on_disk);
    report(&format!("caffe blobprotos: {on_disk} files"));
}

/// A message with a shape and values is recognized. A message without them could be anything.
#[test]
fn blobprotos_are_found_by_content() {
    let mut found = 0;
    for path in files(&data("caffe/blobproto"), |f| f.ends_with(".binaryproto")) {
        let name = path.display().to_string();
        let bytes = std::fs::read(&path).expect("readable");
        let is_shown = Checkpoint::open(&path).is_ok_and(|checkpoint| {
            let first = &checkpoint.entries()[0];
            first.fault().is_none() && first.byte_len() > 0 && first.shape().num_axes() > 0
        });
        // With a file name that implies no format.
        let source = Box::new(blob_io::Bytes(bytes));
        match Checkpoint::from_source("x", source) {
            Ok(checkpoint) => assert_eq!(checkpoint.format(), Format::BlobProto, "{name}"),
            Err(error) => assert!(!is_shown, "{name}: {error}"),
        }
        found += usize::from(is_shown);
    }
    assert!(found >= 20, "{found}");
}

#[test]
fn fork_blobs_hold_the_values_that_their_writers_meant() {
    for (name, field, expected, dtype) in [
        ("nv_raw_f16", Kind::Data, "nv_raw_f16.expect.f32", DType::F16),
        ("nv_raw_f32", Kind::Data, "nv_raw_f32.expect.f32", DType::F32),
        ("nv_raw_f64_diff", Kind::Data, "nv_raw_f64_diff.expect.f64", DType::F64),
        ("nv_raw_f64_diff", Kind::Diff, "nv_raw_f64_diff.expect_diff.f64", DType::F64),
        ("ocl_packed_f16", Kind::Data, "ocl_packed_f16.expect.f32", DType::F16),
    ] {
        let checkpoint = open_blob(name).expect("opens");
        let entry = checkpoint.entries().iter().find(|e| e.kind() == field).expect("an entry");
        assert_eq!(entry.dtype(), Some(dtype), "{name}");
        let blob = checkpoint.load(entry).expect("loads");
        let expected = std::fs::read(data("caffe/blobproto").join(expected)).expect("readable");
        let got: Vec<u8> = match dtype {
            DType::F16 => {
                let halves = blob.data().elements::<half::f16>().expect("halves");
                halves.iter().flat_map(|h| h.to_f32().to_le_bytes()).collect()
            }
            _ => blob.data().bytes().expect("bytes").to_vec(),
        };
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn shapes_are_equal_where_caffe_says_so() {
    let mut count = 0;
    for row in rows(&data("caffe/tables/shape_equals.tsv")) {
        let [_, shape, kind, proto, equal] = &row[..] else { panic!("{row:?}") };
        if shape == "DEFAULT_CTOR" {
            continue; // Caffe's blob without a shape; ours always has one.
        }
        let shape: Vec<usize> = dims(shape).iter().map(|d| *d as usize).collect();
        let shape = Shape::new(&shape).expect("a shape");
        let bytes = proto_bytes(kind, &dims(proto));
        let got = blob_io::caffe::shape_matches(&bytes, &shape);
        if proto == "4294967299" {
            assert!(got.is_err(), "Caffe cuts 2^32+3 to 3; we do not");
        } else {
            assert_eq!(got.expect("a shape"), equal == "1", "{row:?}");
        }
        count += 1;
    }
    assert_eq!(count, 262);
    report(&format!("caffe ShapeEquals: {count} rows"));
}

/// A BlobProto that has only a shape.
fn proto_bytes(kind: &str, dims: &[i64]) -> Vec<u8> {
    let dims: Vec<u64> = dims.iter().map(|dim| *dim as u64).collect();
    match kind {
        "legacy" => dims.iter().zip(1..).flat_map(|(dim, number)| var(number, *dim)).collect(),
        "legacy_only_width" => var(4, dims[0]),
        "shape" => shape(&dims),
        _ => Vec::new(),
    }
}

#[test]
fn an_entry_of_another_file_is_an_error() {
    let small = open("a.binaryproto", &[floats(&[1.0]), shape(&[1])].concat()).expect("opens");
    let big = open("b.binaryproto", &[floats(&[1.0; 1000]), shape(&[1000])].concat()).expect("opens");
    assert!(small.view(&big.entries()[0]).is_err());
    assert!(small.load(&big.entries()[0]).is_err());
}

#[test]
fn empty_doubles_leave_room_for_raw_data() {
    let raw = [1.0_f32, 2.0].map(f32::to_le_bytes).concat();
    let blob = [shape(&[2]), len(8, b""), var(10, 1), len(12, &raw)].concat();
    let checkpoint = open("a.binaryproto", &blob).expect("opens");
    let loaded = checkpoint.load(&checkpoint.entries()[0]).expect("loads");
    assert_eq!(*loaded.data().elements::<f32>().expect("floats"), [1.0, 2.0]);
}

#[test]
fn interleaved_doubles_are_two_runs() {
    let mut blob = shape(&[70_000]);
    for i in 0..70_000_u32 {
        for (number, value) in [(8_u64, f64::from(i)), (9, -f64::from(i))] {
            blob.extend(varint(number << 3 | 1));
            blob.extend(value.to_le_bytes());
        }
    }
    let checkpoint = open("a.binaryproto", &blob).expect("opens");
    let pair = checkpoint.load_pair(&checkpoint.entries()[0]).expect("loads");
    assert_eq!(pair.data().elements::<f64>().expect("doubles")[69_999], 69_999.0);
    assert_eq!(pair.diff().elements::<f64>().expect("doubles")[69_999], -69_999.0);
    assert_eq!(checkpoint.entries()[1].kind(), Kind::Diff);
    assert_eq!(checkpoint.entries()[0].segments().len(), 1);
}
