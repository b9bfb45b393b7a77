//! Truncated files: the complete arrays can be listed, the error names the layer, and no truncated file passes as
//! whole.

use blob_convert::{Options, Place, Silent, plan, verify};
use blob_io::{Bytes, Checkpoint, Error, Format, OpenOptions};

use crate::support::archive::safetensors;
use crate::support::data;
use crate::support::message::{floats, len, shape};

const NET: &str = "caffe/net/v1.caffemodel";
const V2: &str = "caffe/net/f32_v2.caffemodel";
const SPARSE: &str = "mxnet/golden/mxnet-1.9.1/sparse_dtypes.nd";

fn read(path: &str) -> Vec<u8> {
    std::fs::read(data(path)).unwrap()
}

fn open(options: &OpenOptions, name: &str, bytes: &[u8]) -> Result<Checkpoint, Error> {
    options.open_source(name, Box::new(Bytes(bytes.to_vec())))
}

/// The first `n` arrays: names if wanted, shapes and bytes.
fn arrays(file: &Checkpoint, n: usize, with_names: bool) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    file.entries()[..n]
        .iter()
        .map(|entry| {
            let entry: &blob_io::Entry = entry;
            let bytes = match entry.dtype() {
                Some(_) => file.view(entry).unwrap().into_owned(),
                None => Vec::new(),
            };
            let name = if with_names { entry.name() } else { "" };
            (name.to_owned(), entry.shape().dims().to_vec(), bytes)
        })
        .collect()
}

/// Truncates the file at each byte. Returns the number of truncated files that have arrays to list.
fn every_cut(path: &str, format: Format, has_names: bool) -> usize {
    let bytes = read(path);
    let whole = open(&OpenOptions::new(), path, &bytes).unwrap();
    whole.check_whole().expect("not cut");
    let (strict, salvage) = (OpenOptions::new().from(format), OpenOptions::new().from(format).salvage());
    let mut listed = 0;
    for len in 0..bytes.len() {
        let cut = &bytes[..len];
        let Err(expected) = open(&strict, path, cut) else {
            // A net may end between two layers.
            continue;
        };
        let Ok(file) = open(&salvage, path, cut) else {
            continue;
        };
        let n = file.entries().len();
        assert!(n > 0, "{len}");
        listed += 1;
        assert_eq!(arrays(&file, n, has_names), arrays(&whole, n, has_names), "{len}");
        let broken = file.check_whole().expect_err("cut");
        assert_eq!(broken.to_string(), expected.to_string());
        let planned = plan(&file, &Options::new(Format::Npz), &Place::Stdout).expect_err("not whole");
        assert_eq!(planned.to_string(), expected.to_string());
        let mut findings = 0;
        verify::arrays(&file, &Silent, &mut |remark| {
            findings += usize::from(matches!(remark, verify::Remark::Finding(_)));
        })
        .unwrap();
        assert!(findings > 0, "{len}");
        assert!(verify::against(&whole, &file, &Silent, &mut |_| {}).is_err());
    }
    listed
}

#[test]
fn what_stands_before_a_break_is_listed_and_never_taken_for_whole() {
    assert!(every_cut(NET, Format::CaffeModel, true) > 1000);
    assert!(every_cut(V2, Format::CaffeModel, true) > 100);
    assert!(every_cut("neoml/py/net_conv_bn.cnnarch", Format::NeomlNet, true) > 1000);
    assert!(every_cut("neoml/cpp/cpp_blobs_array.arch", Format::NeomlArray, true) > 100);
    assert!(every_cut("onnx/raw.onnx", Format::Onnx, true) > 400);
    // In a list, the names follow all arrays.
    assert!(every_cut(SPARSE, Format::MxnetList, false) > 100);
}

#[test]
fn the_layer_that_is_cut_is_named() {
    for (path, layer) in [(NET, "layer #1 \"ip\""), (V2, "layer #8 \"ip\"")] {
        let bytes = read(path);
        let whole = open(&OpenOptions::new(), path, &bytes).unwrap();
        let last = whole.entries().last().unwrap();
        let cut = last.offset().unwrap() as usize + 2;
        let error = open(&OpenOptions::new(), path, &bytes[..cut]).expect_err("cut");
        assert!(error.to_string().contains(layer), "{error}");
        assert!(error.offset().is_some());
    }
}

#[test]
fn of_the_layer_that_is_cut_the_whole_arrays_are_taken() {
    for path in [NET, V2] {
        let bytes = read(path);
        let whole = open(&OpenOptions::new(), path, &bytes).unwrap();
        for (name, count_of_layer) in [("ip/0", 0), ("ip/1", 1)] {
            let place = whole.entries().iter().position(|entry| entry.name() == name).unwrap();
            let cut = whole.entries()[place].offset().unwrap() as usize + 2;
            let part = taken(path, Format::CaffeModel, &bytes[..cut]).expect("some are whole");
            assert!(part.salvaged().is_some(), "{path}: {name}");
            let of_layer = part.entries().iter().filter(|entry| entry.name().starts_with("ip/")).count();
            assert_eq!((of_layer, part.entries().len()), (count_of_layer, place), "{path}: {name}");
            assert_eq!(arrays(&part, place, true), arrays(&whole, place, true), "{path}: {name}");
        }
    }
    // Whose blobs they are is not known where the name stands behind them.
    let (blob, name) = (len(7, &[floats(&[1.0]), shape(&[1])].concat()), len(1, b"conv"));
    for (before, after, count) in [([&name[..], &blob].concat(), &[][..], 1), (blob.clone(), &name[..], 0)] {
        let net = len(100, &[&before[..], &len(7, &[0; 9]), after].concat());
        let net = &net[..net.len() - after.len() - 1];
        let file = open(&OpenOptions::new().salvage(), "x.caffemodel", net);
        assert_eq!(file.map_or(0, |file| file.entries().len()), count);
    }
}

/// Goldens of which a part can be had, and whether the names are known: an MXNet list has names at the end.
const GOLDENS: [(&str, Format, bool); 9] = [
    (NET, Format::CaffeModel, true),
    ("caffe/net/v0.caffemodel", Format::CaffeModel, true),
    ("caffe/net/f32_v2_diff.caffemodel", Format::CaffeModel, true),
    ("caffe/misc/state.solverstate", Format::SolverState, true),
    ("caffe/misc/vector3.blobprotovector", Format::BlobProtoVector, true),
    ("neoml/py/net_conv_bn.cnnarch", Format::NeomlNet, true),
    ("neoml/cpp/cpp_blobs_array.arch", Format::NeomlArray, true),
    ("onnx/net.onnx", Format::Onnx, true),
    (SPARSE, Format::MxnetList, false),
];

/// The whole arrays of a file that may break off; `None` where there is none.
fn taken(name: &str, format: Format, bytes: &[u8]) -> Option<Checkpoint> {
    open(&OpenOptions::new().from(format).salvage(), name, bytes).ok().map(Checkpoint::take_whole_arrays)
}

/// Cuts a file at some 300 places, and compares with the whole. Returns how many cut files give arrays.
fn takes_of_cuts(name: &str, format: Format, has_names: bool, bytes: &[u8]) -> usize {
    let whole = open(&OpenOptions::new().from(format), name, bytes).unwrap();
    let mut given = 0;
    for len in (0..bytes.len()).step_by((bytes.len() / 300).max(1)) {
        // A net may end between two layers, and is then no cut file.
        let Some(part) = taken(name, format, &bytes[..len]).filter(|part| part.salvaged().is_some()) else { continue };
        part.check_whole().expect("the arrays are taken for all");
        given += usize::from(!part.entries().is_empty());
        for (entry, other) in part.entries().iter().zip(whole.entries().iter().filter(|e| e.fault().is_none())) {
            let other = if has_names { whole.entry(entry.name()).expect("is in the whole file") } else { other };
            assert_eq!((entry.dtype(), entry.shape()), (other.dtype(), other.shape()), "{name} at {len}");
            if entry.dtype().is_some() {
                assert_eq!(part.view(entry).unwrap(), whole.view(other).unwrap(), "{name} at {len}");
            }
        }
        // No format needs more than the arrays to write them anew.
        if part.entries().iter().any(|entry| entry.dtype().is_some()) {
            let planned = plan(&part, &Options::new(Format::Npz), &Place::Stdout).expect("can be converted");
            assert!(planned.has_receipt());
        }
    }
    given
}

#[test]
fn what_is_taken_of_a_cut_file_is_what_the_whole_one_has() {
    for (path, format, has_names) in GOLDENS {
        let given = takes_of_cuts(path, format, has_names, &read(path));
        assert!(given > 3, "{path}: {given}");
    }
    // The header of a safetensors file comes first, so that each tensor that the file covers is whole.
    let bytes = safetensors(
        r#"{"c":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
            "b":{"dtype":"I8","shape":[1],"data_offsets":[4,5]}}"#,
        &[1, 2, 3, 4, 5, 6, 7, 8],
    );
    assert_eq!(takes_of_cuts("x.safetensors", Format::Safetensors, true, &bytes), 4);
    let cut = taken("x.safetensors", Format::Safetensors, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(cut.names().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_sound_file_is_taken_as_it_is() {
    for (path, format, _) in GOLDENS {
        let bytes = read(path);
        let (part, whole) = (taken(path, format, &bytes).unwrap(), Checkpoint::from_bytes(path, bytes).unwrap());
        assert!(part.salvaged().is_none(), "{path}");
        assert_eq!(part.names().collect::<Vec<_>>(), whole.names().collect::<Vec<_>>());
    }
}
