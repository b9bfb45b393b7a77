//! HDF5 files: Caffe's weights equal the protobuf files of the same nets, tensor by tensor; solver states; every layout
//! and filter that h5py writes; cyclic links.

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Format, Kind, Reason};

use crate::support::alloc::peak;
use crate::support::hdf5::{File, floats, link, message};
use crate::support::{changed, data, find, open, real, report};

fn bytes(file: &Checkpoint, entry: &Entry) -> Vec<u8> {
    file.load(entry).unwrap_or_else(|e| panic!("{e}")).data().bytes().expect("bytes").to_vec()
}

/// Compares a net's HDF5 weights with the protobuf file. Returns the number of equal arrays.
fn compare(hdf5: &Checkpoint, proto: &Checkpoint) -> usize {
    assert_eq!((hdf5.format(), hdf5.dialect()), (Format::Hdf5, "Caffe weights"));
    for entry in hdf5.entries() {
        let same = proto.entry(entry.name()).unwrap_or_else(|| panic!("no {}", entry.name()));
        assert_eq!((entry.dtype(), entry.shape()), (same.dtype(), same.shape()), "{}", entry.name());
        assert_eq!((entry.kind(), entry.index()), (same.kind(), same.index()), "{}", entry.name());
        assert!(bytes(hdf5, entry) == bytes(proto, same), "{}", entry.name());
    }
    hdf5.entries().len()
}

#[test]
fn caffes_weights_are_those_of_its_protobuf_files() {
    for (name, diffs) in [("f32", 0), ("f32_diff", 12), ("f64", 0), ("f64_diff", 12)] {
        let hdf5 = Checkpoint::open(data(&format!("caffe/net/{name}.caffemodel.h5"))).expect("opens");
        let proto = name.replace("_diff", "");
        let proto = if diffs > 0 { format!("{proto}_v2_diff") } else { format!("{proto}_v2") };
        let proto = Checkpoint::open(data(&format!("caffe/net/{proto}.caffemodel"))).expect("opens");
        // The blob that conv2 shares with conv1 is stored once, but each diff is stored.
        let stored = proto.names().filter(|name| *name != "conv2/0").count();
        assert_eq!(compare(&hdf5, &proto), stored, "{name}");
        assert_eq!(hdf5.entries().iter().filter(|e| e.kind() == Kind::Diff).count(), diffs, "{name}");
        for entry in hdf5.entries().iter().filter(|e| e.kind() == Kind::Data) {
            assert_eq!(hdf5.diff_of(entry).is_some(), diffs > 0, "{}", entry.name());
            assert_eq!(hdf5.load_pair(entry).expect("loads").has_diff(), diffs > 0);
        }
        assert_eq!(hdf5.positions(), 10, "layers without blobs too");
    }
}

#[test]
fn real_files_are_read() {
    let Some(folder) = real("caffe/real") else {
        return report("NOT TESTED: real HDF5 files (BLOB_REAL_DATA)");
    };
    let state = Checkpoint::open(folder.join("cifar10_quick_2018.solverstate.h5")).expect("opens");
    let notes = [
        ("current_step", "0"),
        ("iter", "5000"),
        ("learned_net", "examples/cifar10/cifar10_quick_iter_5000.caffemodel.h5"),
    ];
    let notes = notes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!((state.dialect(), state.metadata()), ("Caffe solver state", &notes[..]));
    let net = Checkpoint::open(folder.join("cifar10_quick_2018.caffemodel.h5")).expect("opens");
    // A momentum for each blob, with the blob's shape.
    let shapes = |file: &Checkpoint| file.entries().iter().map(|e| e.shape().clone()).collect::<Vec<_>>();
    assert_eq!(shapes(&state), shapes(&net));
    assert_eq!(state.names().collect::<Vec<_>>(), (0..10).map(|i| format!("@{i}")).collect::<Vec<_>>());
    // Caffe's own test documents the content: values 0 to 2399, the labels of each row, and one more dataset.
    let plain = Checkpoint::open(folder.join("sample_data.h5")).expect("opens");
    let packed = Checkpoint::open(folder.join("sample_data_2_gzip.h5")).expect("opens");
    for (file, first) in [(&plain, 0), (&packed, 2400)] {
        assert_eq!(file.names().collect::<Vec<_>>(), ["data", "label", "label2"]);
        let values = file.load(&file.entries()[0]).expect("loads");
        let expected: Vec<f32> = (first..first + 2400).map(|i| i as f32).collect();
        assert_eq!(*values.data().elements::<f32>().expect("floats"), expected[..], "{}", file.name());
    }
    report("HDF5: 4 real files");
}

/// The values that `make.py` beside the files wrote: `i * 7 % 251` in row-major order.
fn ramp(entry: &Entry) -> Vec<f64> {
    (0..entry.shape().count()).map(|i| (i * 7 % 251) as f64).collect()
}

/// An array's values as doubles.
pub(crate) fn values(file: &Checkpoint, name: &str) -> Vec<f64> {
    let entry = file.entry(name).unwrap_or_else(|| panic!("no {name}"));
    let blob = file.load(entry).unwrap_or_else(|e| panic!("{e}"));
    let blob = blob_ops::convert(&blob, DType::F64).expect("converts");
    blob.data().elements::<f64>().expect("doubles").to_vec()
}

#[test]
fn what_h5py_writes_is_read_whatever_the_index_of_the_chunks() {
    for name in ["earliest", "latest"] {
        let file = Checkpoint::open(data(&format!("hdf5/{name}.h5"))).expect("opens");
        assert_eq!(file.dialect(), "datasets");
        let ramps = ["deflate", "plain", "single", "growing", "tree", "early"].map(|n| format!("chunks/{n}"));
        let kinds = ["be_f8", "le_f2", "le_i1", "le_i8", "be_u4", "le_u8"].map(|n| format!("kinds/{n}"));
        for name in ramps.iter().chain(&kinds) {
            assert_eq!(values(&file, name), ramp(file.entry(name).expect("listed")), "{name}");
        }
        let mut holes = [-5.0; 36];
        holes[16..24].copy_from_slice(&[0.0, 7.0, 14.0, 21.0, 28.0, 35.0, 42.0, 49.0]);
        assert_eq!(values(&file, "chunks/holes"), holes);
        assert_eq!(values(&file, "kinds/scalar"), [2.5]);
        assert_eq!(values(&file, "kinds/bool"), [1.0, 0.0, 1.0]);
        assert_eq!(file.entry("kinds/bool").expect("listed").dtype(), Some(DType::Bool));
        assert_eq!(file.entry("kinds/empty").expect("listed").shape().dims(), [3, 0, 2]);
        assert_eq!(file.entry("kinds/null").expect("listed").kind(), Kind::None);
        assert_eq!(values(&file, "many/é11"), [11.0]);
        let foreign = |name: &str| file.entry(name).expect("listed").foreign_dtype().map(str::to_owned);
        assert_eq!(foreign("kinds/text").as_deref(), Some("string"));
        assert_eq!(foreign("kinds/complex").as_deref(), Some("compound"));
        let fault = file.entry("chunks/lzf").and_then(Entry::fault).expect("a fault");
        assert_eq!(fault.reason(), Reason::Unsupported, "{fault}");
        assert_eq!(values(&file, "kinds/unwritten"), [0.0; 4]);
        // `loop` is another name of `kinds`; `kinds/up` leads back to the root, which is not listed again.
        assert_eq!(values(&file, "hard"), [2.5]);
        assert_eq!(values(&file, "loop/scalar"), [2.5]);
        assert_eq!(file.entries().len(), 8 + 2 * 13 + 12 + 2, "{:?}", file.names().collect::<Vec<_>>());
    }
}

#[test]
fn what_was_never_written_is_fill_values() {
    for name in ["unwritten-earliest", "unwritten-latest"] {
        let file = Checkpoint::open(data(&format!("hdf5/{name}.h5"))).expect("opens");
        assert_eq!(values(&file, "seven"), [7.0; 12], "{name}");
        assert_eq!(values(&file, "scalar"), [-2.5], "{name}");
        assert_eq!(values(&file, "zeros"), [0.0; 3], "{name}");
        assert_eq!(values(&file, "swapped"), [258.0; 2], "{name}");
    }
}

#[test]
fn chunks_are_numbered_by_the_largest_shape() {
    for name in ["bounded-earliest", "bounded-latest"] {
        let file = Checkpoint::open(data(&format!("hdf5/{name}.h5"))).expect("opens behind its user block");
        for name in ["early", "fixed", "packed", "shrunk"] {
            assert_eq!(values(&file, name), ramp(file.entry(name).expect("listed")), "{name}");
        }
    }
}

#[test]
fn a_damaged_chunk_is_said_with_its_place() {
    let file = std::fs::read(data("hdf5/earliest.h5")).expect("readable");
    let good = open("x.h5", &file).expect("opens");
    let at = good.entry("chunks/deflate").and_then(Entry::offset).expect("a place");
    for change in 0..8 {
        let bad = changed(&file, at as usize + change, &[file[at as usize + change] ^ 0x55]);
        let bad = open("x.h5", &bad).expect("opens");
        let error = bad.load(bad.entry("chunks/deflate").expect("listed")).expect_err("damaged");
        assert!(matches!(error.reason(), Reason::Malformed | Reason::Checksum), "{error}");
        assert_eq!(error.offset(), Some(at), "{error}");
        assert_eq!(error.subject(), Some(r#"array "chunks/deflate""#));
        let checked = bad.check(bad.entry("chunks/deflate").expect("listed"), &mut |_| Ok(()));
        assert_eq!(checked.expect_err("damaged").to_string(), error.to_string());
    }
}

#[test]
fn a_file_that_ends_early_is_truncated() {
    let file = std::fs::read(data("caffe/net/f32.caffemodel.h5")).expect("readable");
    let error = open("x.h5", &file[..file.len() - 1]).expect_err("truncated");
    assert_eq!(error.reason(), Reason::Truncated);
    assert!(error.to_string().contains("the HDF5 file needs 16632 bytes, but 16631 are left"), "{error}");
}

#[test]
fn a_shape_larger_than_its_values_is_refused() {
    let file = std::fs::read(data("caffe/net/f32.caffemodel.h5")).expect("readable");
    // ip's weights: 7×36, as two lengths of eight bytes.
    let dims = [7_u64.to_le_bytes(), 36_u64.to_le_bytes()].concat();
    let bad = changed(&file, find(&file, &dims), &8_u64.to_le_bytes());
    let bad = open("x.h5", &bad).expect("opens");
    let fault = bad.entry("ip/0").and_then(Entry::fault).expect("a fault");
    assert!(fault.to_string().contains("expected 1152, found 1008"), "{fault}");
}

#[test]
fn groups_in_a_circle_end() {
    let mut file = File::new();
    let at = file.add(&[1.0_f32, 2.0].map(f32::to_le_bytes).concat());
    let dataset = file.object(&floats(at));
    // The root's header comes last, at an address known before the writing.
    let root = file.0.len() as u64;
    assert_eq!(file.object(&[link("x", dataset), link("me", root)]), root);
    let file = open("x.h5", &file.finish(root)).expect("opens");
    assert_eq!(file.names().collect::<Vec<_>>(), ["x"]);
    assert_eq!(values(&file, "x"), [1.0, 2.0]);
}

#[test]
fn a_chunk_of_over_four_gigabytes_is_refused_with_its_limit() {
    let mut file = File::new();
    let mut messages = floats(0);
    // Layout 3, chunks, of one axis and the element; no chunk is stored.
    let layout = [&[3, 2, 2][..], &[0xFF; 8], &(1_u32 << 30).to_le_bytes(), &4_u32.to_le_bytes()].concat();
    messages[2] = message(8, &layout);
    let dataset = file.object(&messages);
    let root = file.object(&[link("x", dataset)]);
    let file = open("x.h5", &file.finish(root)).expect("opens");
    let fault = file.entry("x").and_then(Entry::fault).expect("a fault").to_string();
    assert!(fault.contains("the bytes of a chunk: expected at most 4294967295, found 4294967296"), "{fault}");
}

#[test]
fn a_row_of_chunks_stays_within_what_may_be_allocated() {
    // Two floats in one deflated chunk of 1,024, stored in 20 bytes: layout 4, a single chunk; filters of version 2.
    let mut file = File::new();
    let at = file.add(&[0; 20]);
    let dims = [1024_u32, 4].map(u32::to_le_bytes).concat();
    let chunk = [&20_u64.to_le_bytes()[..], &[0; 4], &at.to_le_bytes()].concat();
    let mut messages = floats(0);
    messages[2] = message(8, &[&[4, 2, 2, 2, 4][..], &dims, &[1], &chunk].concat());
    messages.push(message(11, &[2, 1, 1, 0, 0, 0, 1, 0, 6, 0, 0, 0]));
    let dataset = file.object(&messages);
    let root = file.object(&[link("x", dataset)]);
    let bytes = file.finish(root);
    let error = |most| {
        let options =
            blob_io::OpenOptions::new().limits(blob_io::Limits { max_alloc: most, ..blob_io::Limits::default() });
        let file = options.open_source("x.h5", Box::new(blob_io::Bytes(bytes.clone()))).expect("opens");
        file.load(&file.entries()[0]).expect_err("no zlib stream").to_string()
    };
    assert!(error(4095).contains("the bytes of a row of chunks: expected at most 4095, found 4096"), "{}", error(4095));
    assert!(error(4096).contains("expected a zlib stream"), "{}", error(4096));
}

#[test]
fn a_band_of_chunks_is_held_at_a_time() {
    let open = |most| {
        let options =
            blob_io::OpenOptions::new().limits(blob_io::Limits { max_alloc: most, ..blob_io::Limits::default() });
        options.open(data("hdf5/earliest.h5")).expect("opens")
    };
    // 180 bytes in nine chunks of 32: a band of three chunks needs 96 bytes.
    let file = open(96);
    assert_eq!(values(&file, "chunks/plain"), ramp(file.entry("chunks/plain").expect("listed")));
    for (most, name, said) in [
        (95, "chunks/plain", "the bytes of a row of chunks: expected at most 95, found 96"),
        // 144 bytes, of which two chunks of 24 are stored.
        (47, "chunks/holes", "bytes to inflate or reorder: expected at most 47, found 96"),
        (15, "kinds/unwritten", "bytes to inflate or reorder: expected at most 15, found 16"),
    ] {
        let file = open(most);
        let error = file.load(file.entry(name).expect("listed")).expect_err(name).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn headers_of_a_hostile_file_are_not_kept() {
    // Each header has 8,000 empty messages; a list would take much more memory than the messages.
    let mut file = File::new();
    let padding = vec![message(0, &[]); 8000];
    let groups: Vec<u64> = (0..20).map(|_| file.object(&padding)).collect();
    let links = |file: &mut File, to: &[u64]| {
        let links: Vec<Vec<u8>> = to.iter().enumerate().map(|(i, to)| link(&i.to_string(), *to)).collect();
        file.object(&links)
    };
    let inner: Vec<u64> = (0..40).map(|_| links(&mut file, &groups)).collect();
    let root = links(&mut file, &inner);
    let file = file.finish(root);
    let used = peak(|| drop(open("x.h5", &file)));
    assert!(used < file.len() as u64 + (16 << 20), "{used}");
}
