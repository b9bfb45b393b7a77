//! The pull reader of an array gives the bytes that `load` gives, with any size of reads and skips, for every format
//! and for sparse arrays expanded to dense ones. Wrong bytes give an error before the last byte.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use blob_io::{Bytes, Checkpoint, Entry, Error, FileSource, Format, Reader, Reason};
use proptest::prelude::*;
use zip::CompressionMethod::{Deflated, Stored};

use crate::support::archive::{csr, ints, npy, theirs};
use crate::support::{data, open};

/// Files of every format, with both byte orders, both element orders, gaps between elements, and several runs.
fn every_format() -> Vec<Checkpoint> {
    let paths = [
        "caffe/net/v1.caffemodel",
        "caffe/blobproto/unpacked.binaryproto",
        "caffe/blobproto/chunked_merged_shape.binaryproto",
        "caffe/blobproto/f64_2x3x4x5_diff.binaryproto",
        "caffe/misc/vector3.blobprotovector",
        "caffe/misc/state.solverstate",
        "caffe/misc/u8.datum",
        "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params",
        "other/two.safetensors",
        "other/fortran_big_endian.npy",
        "other/numpy_savez.npz",
        "caffe/net/f32_diff.caffemodel.h5",
        "hdf5/earliest.h5",
        "hdf5/latest.h5",
        "neoml/py/blob_2x3x1x4x1x1x5_int.neoml",
        "neoml/cpp/cpp_blobs_array.arch",
        "neoml/py/net_fc.cnnarch",
        "onnx/raw.onnx",
        "onnx/typed.onnx",
    ];
    let mut files: Vec<Checkpoint> = paths.iter().map(|path| Checkpoint::open(data(path)).unwrap()).collect();
    files.push(Checkpoint::open(data("mxnet/golden/mxnet-1.9.1/raw_record.bin")).unwrap());
    let values: Vec<u8> = (0..120_000_u32).map(|i| (i % 251) as u8).collect();
    let swapped = npy("'>f8'", "(15000,)", &values);
    let columns = npy("'<f4'", "(3, 10000)", &values);
    let turned = columns.windows(5).position(|w| w == b"False").unwrap();
    let columns = [&columns[..turned], b"True ", &columns[turned + 5..]].concat();
    for method in [Stored, Deflated] {
        let bytes = theirs(method, &[("swapped.npy", &swapped), ("columns.npy", &columns), ("u1.npy", &values_u1())]);
        files.push(open("x.npz", &bytes).unwrap());
    }
    files
}

fn values_u1() -> Vec<u8> {
    npy("'|u1'", "(1001,)", &[5; 1001])
}

/// Reads everything, with reads of `size` bytes.
fn read(mut reader: Reader<'_>, size: usize) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; size]);
    let len = reader.left();
    loop {
        assert_eq!(reader.left(), len - all.len() as u64);
        match reader.read(&mut buf).unwrap() {
            0 => return all,
            n => all.extend(&buf[..n]),
        }
    }
}

#[test]
fn any_number_of_bytes_at_a_time_gives_the_bytes_that_load_gives() {
    let mut formats = std::collections::HashSet::new();
    for file in every_format() {
        formats.insert(file.format());
        for entry in file.entries().iter().filter(|entry| entry.fault().is_none() && entry.dtype().is_some()) {
            let whole = file.load(entry).unwrap();
            let whole = whole.data().bytes().unwrap();
            for size in [1, 3, 7, 8, 13, 4096, 1 << 20] {
                let read = read(file.reader(entry).unwrap(), size);
                assert!(read == *whole, "{}: {:?} by {size}", file.name(), entry.name());
            }
        }
    }
    assert_eq!(formats.len(), Format::ALL.len(), "{formats:?}");
}

/// A row_sparse array of 7 rows and a csr matrix with an empty row and an empty last row, with the dense values of
/// both.
fn sparse(method: zip::CompressionMethod) -> (Checkpoint, [Vec<i32>; 2]) {
    let i32s = |values: &[i32], shape: &str| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        npy("'<i4'", shape, &bytes)
    };
    let (rows, csr) = (npy("'|S10'", "()", b"row_sparse"), npy("'|S3'", "()", b"csr"));
    let members: [(&str, Vec<u8>); 9] = [
        ("r/data.npy", i32s(&[1, 2, 3, 4, 5, 6], "(2, 3)")),
        ("r/format.npy", rows),
        ("r/indices.npy", ints(&[2, 5])),
        ("r/shape.npy", ints(&[7, 3])),
        ("c/data.npy", i32s(&[7, 8, 9], "(3,)")),
        ("c/format.npy", csr),
        ("c/indices.npy", ints(&[1, 3, 0])),
        ("c/indptr.npy", ints(&[0, 2, 2, 3, 3])),
        ("c/shape.npy", ints(&[4, 5])),
    ];
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    let mut dense = [vec![0; 21], vec![0; 20]];
    for (k, row) in [2, 5].into_iter().enumerate() {
        (0..3).for_each(|j| dense[0][row * 3 + j] = (k * 3 + j + 1) as i32);
    }
    for (row, column, value) in [(0, 1, 7), (0, 3, 8), (2, 0, 9)] {
        dense[1][row * 5 + column] = value;
    }
    (open("x.npz", &theirs(method, &members)).unwrap(), dense)
}

fn part<'a>(file: &'a Checkpoint, name: &str) -> &'a Entry {
    file.entry(name).unwrap()
}

#[test]
fn a_sparse_array_is_read_as_the_dense_one() {
    for method in [Stored, Deflated] {
        let (file, dense) = sparse(method);
        for (name, values) in ["r#values", "c#indices"].into_iter().zip(dense) {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            for size in [1, 3, 4, 6, 13, 100] {
                assert_eq!(read(file.dense_reader(part(&file, name)).unwrap(), size), bytes, "{name} by {size}");
            }
            let loaded = file.load_dense(part(&file, name)).unwrap();
            assert_eq!(*loaded.data().elements::<i32>().unwrap(), values);
        }
    }
    let file = Checkpoint::open(data("other/two.safetensors")).unwrap();
    assert!(matches!(file.dense_reader(&file.entries()[0]), Err(Error::Request { .. })));
}

/// Reads and skips alternately, and checks the bytes read.
fn steps(mut reader: Reader<'_>, whole: &[u8], steps: &[(bool, usize)]) -> Result<(), TestCaseError> {
    let mut at = 0;
    for (skip, n) in steps {
        let n = *n;
        if *skip {
            reader.skip(n as u64).unwrap();
            at = (at + n).min(whole.len());
        } else {
            let mut part = Vec::new();
            let read = reader.by_ref().take(n as u64).read_to_end(&mut part).unwrap();
            prop_assert_eq!(&part, &whole[at..(at + n).min(whole.len())]);
            at += read;
        }
        prop_assert_eq!(reader.left(), (whole.len() - at) as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_passed_over_does_not_come(plan in prop::collection::vec((any::<bool>(), 0..50_usize), 1..20)) {
        for file in every_format() {
            for entry in file.entries().iter().filter(|entry| entry.dtype().is_some()).take(4) {
                let whole = file.view(entry).unwrap().into_owned();
                steps(file.reader(entry).unwrap(), &whole, &plan)?;
                let far: Vec<_> = plan.iter().map(|(skip, n)| (*skip, n * 1000)).collect();
                steps(file.reader(entry).unwrap(), &whole, &far)?;
            }
        }
        for method in [Stored, Deflated] {
            let (file, dense) = sparse(method);
            for (name, values) in ["r#values", "c#values"].into_iter().zip(dense) {
                let whole: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                steps(file.dense_reader(part(&file, name)).unwrap(), &whole, &plan)?;
            }
        }
    }
}

/// Reads to the end in odd pieces. Returns the number of bytes before the error, and the error.
fn failing(mut reader: Reader<'_>) -> (usize, std::io::Error) {
    let mut came = 0;
    let error = loop {
        match reader.read(&mut [0; 1013]) {
            Ok(0) => panic!("the end, without an error"),
            Ok(n) => came += n,
            Err(error) => break error,
        }
    };
    assert!(reader.pull(&mut [0; 8]).is_err() && reader.skip(8).is_err(), "it failed before");
    (came, error)
}

fn reason(error: std::io::Error) -> Reason {
    error.downcast::<Error>().expect("this crate's").reason()
}

#[test]
fn a_wrong_checksum_keeps_the_last_bytes_back() {
    let content = npy("'<f4'", "(5000,)", &[3; 20_000]);
    for method in [Stored, Deflated] {
        let mut bytes = theirs(method, &[("a.npy", &content)]);
        let record = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
        bytes[record + 16] ^= 1;
        let file = open("x.npz", &bytes).unwrap();
        let (came, error) = failing(file.reader(&file.entries()[0]).unwrap());
        assert!(came < 20_000, "{came}");
        assert_eq!((error.kind(), reason(error)), (ErrorKind::InvalidData, Reason::Checksum));
        let passed = file.reader(&file.entries()[0]).unwrap().skip(20_000);
        assert_eq!(passed.unwrap_err().reason(), Reason::Checksum);
    }
}

#[test]
fn a_member_shorter_than_its_array_is_an_error_where_it_ends() {
    let content = npy("'<f4'", "(5000,)", &[3; 20_000]);
    // The stream of a shorter array replaces that of the longer one.
    let long = theirs(Deflated, &[("a.npy", &content)]);
    let record = long.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let packed = u32::from_le_bytes(long[record + 20..][..4].try_into().unwrap()) as usize;
    let mut short = deflated(&content[..content.len() - 4000]);
    assert!(short.len() <= packed);
    short.resize(packed, 0);
    let begin = 30 + "a.npy".len();
    let mut bytes = long.clone();
    bytes[begin..begin + packed].copy_from_slice(&short);
    let file = open("x.npz", &bytes).unwrap();
    let (came, error) = failing(file.reader(&file.entries()[0]).unwrap());
    assert!(came <= 16_000, "{came}");
    assert_eq!(reason(error), Reason::Malformed);
}

/// A deflate stream, taken out of an archive.
fn deflated(content: &[u8]) -> Vec<u8> {
    let zip = theirs(Deflated, &[("a.npy", content)]);
    let record = zip.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let packed = u32::from_le_bytes(zip[record + 20..][..4].try_into().unwrap()) as usize;
    zip[30 + "a.npy".len()..][..packed].to_vec()
}

#[test]
fn a_file_that_became_shorter_is_an_error_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("x.npy");
    std::fs::write(&path, npy("'<f4'", "(5000,)", &[3; 20_000])).unwrap();
    let file = Checkpoint::from_source("x.npy", Box::new(FileSource::open(&path).unwrap())).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8000).unwrap();
    let (came, error) = failing(file.reader(&file.entries()[0]).unwrap());
    assert!(came < 8000, "{came}");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let text = error.to_string();
    assert!(text.contains("array \"@0\" at byte") && text.contains("became shorter"), "{text}");
}

#[test]
fn a_wrong_value_of_a_sparse_array_is_an_error_of_the_dense_one() {
    let values = npy("'<i8'", "(3,)", &[7; 24]);
    let zip = csr(&values);
    let mut wrong = zip.clone();
    let last = zip.windows(values.len()).position(|w| w == values).unwrap() + values.len() - 1;
    wrong[last] ^= 1;
    let file = Checkpoint::from_source("x.npz", Box::new(Bytes(wrong))).unwrap();
    let (_, error) = failing(file.dense_reader(&file.entries()[0]).unwrap());
    assert_eq!(reason(error), Reason::Checksum);
}
