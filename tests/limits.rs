//! Files that Caffe's reader silently accepts and should not (the table in caffe.md §3.7), and models of many pieces.

use blob_convert::stats::measure_channels;
use blob_convert::{Options, Place, Silent, plan};
use blob_io::{Bytes, Checkpoint, Error, Format, IfExists, Limits, OpenOptions};

use crate::support::alloc::peak;
use crate::support::archive::{ints, npy, theirs};
use crate::support::conversion::to_file;
use crate::support::data;
use crate::support::message::{self, floats, len, shape};

fn open(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    Checkpoint::from_source("net.caffemodel", Box::new(Bytes(bytes)))
}

fn golden() -> Vec<u8> {
    std::fs::read(data("caffe/net/f32_v2.caffemodel")).expect("readable")
}

/// A golden, then bytes.
fn followed_by(bytes: &[u8]) -> Vec<u8> {
    [golden(), bytes.to_vec()].concat()
}

/// Bytes, then a golden.
fn preceded_by(bytes: &[u8]) -> Vec<u8> {
    [bytes.to_vec(), golden()].concat()
}

#[test]
fn hostile_top_levels_of_a_net_are_refused() {
    let end = golden().len() as u64;
    // Caffe stops at these bytes and accepts the file.
    for (bytes, what) in [
        (followed_by(&[0]), "field number of 1 or more"),
        (followed_by(&[0; 16]), "field number of 1 or more"),
        (followed_by(&[0x0C]), "END_GROUP of field 1"),
        (followed_by(b"\x0Cgarbage"), "END_GROUP of field 1"),
        (followed_by(b"abc"), "needs"),
    ] {
        let error = open(bytes).expect_err(what);
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.offset().is_some_and(|at| at >= end), "{error}");
    }
    for (bytes, what) in [
        (preceded_by(b"\xEF\xBB\xBF"), "wire type"),
        (preceded_by(b"\x1F\x8B\x01\x00"), "a gzip file"),
        (preceded_by(b"\x89HDF\r\n\x1A\n"), "HDF5"),
    ] {
        let error = open(bytes).expect_err(what);
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// An npz of row_sparse arrays of 1 GiB each, of which one row is stored.
fn of_sparse_rows(count: usize, limits: Limits) -> Checkpoint {
    let names: Vec<[String; 4]> =
        (0..count).map(|i| ["data", "format", "indices", "shape"].map(|part| format!("w{i}/{part}.npy"))).collect();
    let content =
        [npy("'<i4'", "(1, 256)", &[1; 1024]), npy("'|S10'", "()", b"row_sparse"), ints(&[5]), ints(&[1 << 20, 256])];
    let members: Vec<(&str, &[u8])> =
        names.iter().flat_map(|names| names.iter().map(|name| &**name).zip(content.iter().map(|c| &**c))).collect();
    let bytes = theirs(zip::CompressionMethod::Stored, &members);
    OpenOptions::new().limits(limits).open_source("rows.npz", Box::new(Bytes(bytes))).expect("opens")
}

/// Each is within the limit of an array; the bound is the file's.
#[test]
fn sparse_arrays_are_expanded_up_to_one_limit_for_all_of_a_file() {
    let dense = |file: &Checkpoint| {
        let options = Options::new(Format::Safetensors).with(|o| o.dense = true);
        plan(file, &options, &Place::Stdout).map(|plan| plan.tensors().len())
    };
    assert_eq!(dense(&of_sparse_rows(1, Limits::default())).expect("1 GiB"), 1);
    let error = dense(&of_sparse_rows(3, Limits::default())).expect_err("3 GiB");
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error:?}");
    let (text, _) = (error.to_string(), assert_eq!(error.reason(), blob_io::Reason::Limit));
    assert!(text.contains("bytes of all dense arrays together") && text.contains("w1"), "{text}");
    assert_eq!(dense(&of_sparse_rows(3, Limits { max_alloc: 4 << 30, ..Limits::default() })).expect("raised"), 3);
}

/// Each channel has statistics of its own: 65,536 of two values each took 2 GiB.
#[test]
fn statistics_of_many_channels_take_memory_of_the_size_of_the_file() {
    for (shape, axis) in [("(65536, 2)", 0), ("(2, 65536)", 1)] {
        let bytes = npy("'<f2'", shape, &[0x3C; 262_144]);
        let len = bytes.len() as u64;
        let file = Checkpoint::from_source("x.npy", Box::new(Bytes(bytes))).expect("opens");
        for bins in [None, Some(16)] {
            let used = peak(|| {
                let all = measure_channels(&file, &file.entries()[0], axis, bins, &Silent).expect("measured");
                assert_eq!((all.len(), all[65_535].stats.count), (65_536, 2));
            });
            assert!(used < 64 * len + (16 << 20), "{shape}, {bins:?}: {used} bytes for {len}");
        }
    }
}

/// The largest number below the normal ones, which as a text takes a dozen times its bytes, in a field that repeats;
/// and the name of an enum in a field that does not, of which the last value counts.
#[test]
fn the_settings_of_a_net_are_bounded_as_texts() {
    let packed = f32::from_bits(0x007F_FFFF).to_le_bytes().repeat(5 << 18);
    let coeff = len(100, &[len(1, b"sum"), len(110, &len(2, &packed))].concat());
    let (normalised, at) =
        (len(100, &[len(1, b"lrn"), len(118, &b"\x20\x01".repeat(5 << 19))].concat()), golden().len());
    let open = |bytes: Vec<u8>, limits: Limits| {
        OpenOptions::new().limits(limits).open_source("net.caffemodel", Box::new(Bytes(bytes))).expect("opens")
    };
    let summed = followed_by(&coeff);
    for (limits, allowed) in
        [(Limits::default(), 32 << 20), (Limits { max_alloc: 1 << 20, ..Limits::default() }, 1 << 20)]
    {
        let mut refused = None;
        let used = peak(|| refused = open(summed.clone(), limits).net().err());
        let error = refused.expect("too many");
        assert!(matches!(error, Error::LimitExceeded { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("net.caffemodel: layer #10 \"sum\"") && text.contains(&allowed.to_string()), "{text}");
        assert_eq!(error.offset(), Some(at as u64), "{text}");
        assert!(used < 3 * allowed + 3 * summed.len() as u64, "{used} bytes for {allowed}");
    }
    let normalised = followed_by(&normalised);
    let mut net = None;
    let used = peak(|| net = open(normalised.clone(), Limits::default()).net().expect("a net"));
    let net = net.expect("a net");
    let layer = net.layers().last().expect("a layer");
    assert_eq!(layer.attributes().collect::<Vec<_>>(), [("lrn_param.norm_region", "WITHIN_CHANNEL")]);
    assert!(used < 2 * normalised.len() as u64, "{used} bytes for {}", normalised.len());
}

/// A byte becomes eight, which no byte of the file pays for.
#[test]
fn values_of_another_type_are_bounded() {
    let bytes = npy("'|u1'", "(1048576,)", &[7; 1 << 20]);
    let open = |max_alloc: u64| {
        let limits = Limits { max_alloc, ..Limits::default() };
        OpenOptions::new().limits(limits).open_source("x.npy", Box::new(Bytes(bytes.clone()))).expect("opens")
    };
    let error = open(8 << 19).read::<f64>("@0").map(|_| ()).expect_err("8 MiB");
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("\"@0\"") && text.contains("expected at most 4194304, found 8388608"), "{text}");
    assert_eq!(open(8 << 20).read::<f64>("@0").expect("allowed").1.len(), 1 << 20);
    // The file itself has so many.
    assert_eq!(open(1).read::<u8>("@0").expect("its own").1.len(), 1 << 20);
}

#[test]
fn a_file_twice_has_its_layers_twice_with_a_warning_each() {
    let twice = open(followed_by(&golden())).expect("protobuf joins messages so");
    assert_eq!(twice.entries().len(), 24);
    assert_eq!(twice.entries()[12].name(), "conv1@12/0");
}

/// A layer whose blob has `n` floats and a diff, data and diff in `chunks` alternating pieces.
fn in_pieces(name: &str, n: usize, chunks: usize) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let value = |i: usize, salt: usize| ((i * 7 + salt) as f32).to_le_bytes();
    let data: Vec<u8> = (0..n).flat_map(|i| value(i, 1)).collect();
    let diff: Vec<u8> = (0..n).flat_map(|i| value(i, 2)).collect();
    let step = n.div_ceil(chunks) * 4;
    let mut blob = Vec::new();
    for (a, b) in data.chunks(step).zip(diff.chunks(step)) {
        blob.extend(len(5, a));
        blob.extend(len(6, b));
    }
    blob.extend(shape(&[n as u64]));
    (message::layer(name, &blob), data, diff)
}

/// The names and bytes of a file's tensors.
fn contents(checkpoint: &Checkpoint) -> Vec<(String, Vec<u8>)> {
    let all =
        checkpoint.entries().iter().map(|e| (e.name().to_owned(), checkpoint.view(e).expect("views").into_owned()));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

#[test]
fn a_model_of_many_pieces_converts() {
    // Over five MiB, so that tensors begin in, end in and cross the pieces of a read; one is in mixed chunks.
    let mut file = Vec::new();
    let mut expected = Vec::new();
    for (name, n, chunks) in [("a", 3, 1), ("b", 700_001, 5), ("c", 1, 1), ("d", 77_777, 3)] {
        let (layer, data, diff) = in_pieces(name, n, chunks);
        file.extend(layer);
        expected.push((format!("{name}/0"), data));
        expected.push((format!("{name}/0.diff"), diff));
    }
    let checkpoint = open(file).expect("opens");
    assert_eq!(contents(&checkpoint), expected);
    let folder = tempfile::tempdir().expect("a folder");
    for to in [Format::Safetensors, Format::Npz] {
        let path = folder.path().join("out");
        to_file(&checkpoint, &Options::new(to), &path).expect("converts");
        assert_eq!(contents(&Checkpoint::open(&path).expect("opens")), expected);
        if to == Format::Npz {
            // The zip crate checks every member's CRC-32.
            let file = std::fs::File::open(&path).expect("opens");
            let mut zip = zip::ZipArchive::new(file).expect("a zip");
            for i in 0..zip.len() {
                let mut member = zip.by_index(i).expect("a member");
                std::io::copy(&mut member, &mut std::io::sink()).expect("its checksum holds");
            }
        }
    }
    let path = folder.path().join("dir");
    let target = Place::Folder { path: &path, if_exists: IfExists::Refuse };
    let plan = plan(&checkpoint, &Options::new(Format::Npy), &target).expect("a plan");
    plan.run(&Silent).expect("converts");
    for (name, bytes) in expected {
        let npy = Checkpoint::open(path.join(format!("{name}.npy"))).expect("opens");
        assert_eq!(npy.view(&npy.entries()[0]).expect("views"), bytes, "{name}");
    }
}

#[test]
fn arrays_in_many_pieces_stay_within_the_file_s_bound() {
    let pieces = floats(&[1.0, 2.0]).repeat(60_000);
    let blob = [shape(&[120_000]), pieces].concat();
    let file: Vec<u8> = (0..60).flat_map(|i| message::layer(&format!("l{i}"), &blob)).collect();
    let mut checkpoint = None;
    let used = peak(|| checkpoint = Some(open(file).expect("opens")));
    let checkpoint = checkpoint.expect("opened");
    assert!(used < (16 << 20) + 256 * 60, "{used}");
    // The first two are within the limit; the others are listed with a fault.
    assert!(checkpoint.load(&checkpoint.entries()[1]).is_ok());
    let error = checkpoint.load(&checkpoint.entries()[59]).expect_err("too many pieces");
    assert!(error.to_string().contains("separate runs"), "{error}");
}

#[test]
fn a_million_faults_stay_within_their_bound() {
    let blobs = [0x3A, 0x02, 0x62, 0x00].repeat(1 << 20);
    let file = len(100, &[len(1, b"x"), blobs].concat());
    let used = peak(|| {
        let checkpoint = open(file).expect("opens");
        assert!(checkpoint.entries().iter().all(|e| e.fault().is_some()));
    });
    assert!(used < (16 << 20) + (256 << 20), "{used}");
}
