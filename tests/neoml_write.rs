//! Writing NeoML files: the bytes are those that NeoML wrote for the same arrays, also around other values.

use std::path::PathBuf;

use blob_convert::{Options, Silent, verify};
use blob_core::{AnyBlob, DType, Dims7, Shape};
use blob_io::layout::{Frame, Layout, TensorSpec};
use blob_io::neoml::Archive;
use blob_io::{Checkpoint, Error, Format, IfExists, Writer};

use crate::support::conversion::to_bytes;
use crate::support::neoml::{blob as made, words};
use crate::support::{blob, data, files, find, open, real};

/// Files of NeoML's wheel, of the C++ library and, if available, those that NeoML's own tests read.
pub(crate) fn sources() -> Vec<PathBuf> {
    let archives = |name: &str| !name.ends_with(".json") && !name.ends_with(".jsonl") && !name.ends_with(".tsv");
    let mut found: Vec<PathBuf> = ["neoml/cpp", "neoml/py"].iter().flat_map(|f| files(&data(f), archives)).collect();
    for folder in ["neoml/real", "neoml/real/LayersSerializationTestData", "neoml/real/SerializationTestData"] {
        found.extend(real(folder).map(|folder| files(&folder, archives)).unwrap_or_default());
    }
    found
}

fn bytes(path: &str) -> Vec<u8> {
    std::fs::read(data("neoml").join(path)).expect("readable")
}

#[test]
fn numbered_tensors_become_the_blobs_of_their_numbers() {
    // In the order of names, as in files of Python's safetensors.
    let mut numbers: Vec<i32> = (0..12).collect();
    numbers.sort_by_key(|number| format!("@{number}"));
    let number =
        |number: &i32| AnyBlob::from_vec(Shape::new([1]).expect("fits"), DType::I32, number.to_le_bytes().to_vec());
    let tensors: Vec<_> = numbers.iter().map(|n| (format!("@{n}"), number(n).expect("a number"))).collect();
    let writer = Writer::new(Format::Safetensors);
    let writer = tensors.iter().fold(writer, |writer, (name, tensor)| writer.tensor(name, tensor));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    writer.write(&path, IfExists::Refuse).expect("written");
    let source = Checkpoint::open(&path).expect("opens");
    assert_eq!(source.names().nth(2), Some("@10"));
    let array =
        open("x.neoml", &to_bytes(&source, &Options::new(Format::NeomlArray)).expect("written")).expect("opens");
    for (place, entry) in array.entries().iter().enumerate() {
        assert_eq!(*array.load(entry).expect("loads").data().elements::<i32>().expect("numbers"), [place as i32]);
    }
}

#[test]
fn a_blob_is_written_as_neoml_stores_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("blob.neoml");
    for (file, dims, dtype, seed) in [
        ("py/blob_7x6x5x4x3x2x1_float.neoml", [7, 6, 5, 4, 3, 2, 1], DType::F32, 1007),
        ("py/blob_300x1x1x1x1x1x1_int.neoml", [300, 1, 1, 1, 1, 1, 1], DType::I32, 1016),
    ] {
        let shape = Shape::from(Dims7::new(dims).expect("fits"));
        let tensor = made(&shape, dtype, seed);
        let writer = Writer::new(Format::NeomlBlob).tensor("w", &tensor);
        writer.write(&path, IfExists::Replace).unwrap_or_else(|e| panic!("{e}"));
        assert!(std::fs::read(&path).expect("written") == bytes(file), "{file}");
    }
    // NeoML's own array contains a null blob, which a list of tensors cannot have.
    let source = Checkpoint::open(data("neoml/cpp/cpp_blobs_array.arch")).expect("opens");
    let tensors: Vec<AnyBlob> = [0, 1, 3].iter().map(|i| source.load(&source.entries()[*i]).expect("loads")).collect();
    let writer = tensors.iter().fold(Writer::new(Format::NeomlArray), |writer, tensor| writer.tensor("w", tensor));
    writer.write(&path, IfExists::Replace).unwrap_or_else(|e| panic!("{e}"));
    let golden = bytes("cpp/cpp_blobs_array.arch");
    let null = 198 - 45 - 1;
    assert_eq!(golden[null], 1);
    let without = [&[3][..], &golden[1..null], &golden[null + 1..]].concat();
    assert!(std::fs::read(&path).expect("written") == without);
}

#[test]
fn a_short_shape_is_aligned_as_create_tensor_does() {
    let tensor = AnyBlob::from_vec(Shape::new([2, 3]).expect("fits"), DType::F32, vec![0; 24]).expect("a blob");
    let folder = tempfile::tempdir().expect("a folder");
    let (npy, neoml) = (folder.path().join("w.npy"), folder.path().join("w.neoml"));
    Writer::new(Format::Npy).tensor("w", &tensor).write(&npy, IfExists::Refuse).expect("written");
    let (from, to) = (npy.to_str().expect("UTF-8"), neoml.to_str().expect("UTF-8"));
    let ran = blob(&["convert", from, "-o", to, "--json"]).ok();
    assert_eq!(ran.json()[0]["changes"][0]["message"], "1 tensor is stored with 7 axes, ones behind their own: \"@0\"");
    let file = Checkpoint::open(&neoml).expect("opens");
    assert_eq!(file.entries()[0].shape().dims(), [2, 3, 1, 1, 1, 1, 1]);
    let (npy, mut notes) = (Checkpoint::open(&npy).expect("opens"), 0);
    let equal = verify::against(&file, &npy, &Silent, &mut |remark| {
        assert!(matches!(remark, verify::Remark::Note(_)), "{remark:?}");
        notes += 1;
    });
    assert_eq!((equal.expect("read").equal, notes), (1, 1));
}

#[test]
fn what_neoml_cannot_hold_is_refused_before_anything_is_written() {
    let spec = |dtype, dims: &[usize]| TensorSpec::new("w", dtype, Shape::new(dims).expect("fits"));
    for (spec, problem) in [
        (spec(DType::F64, &[2]), "is f64, and NeoML's blobs are of f32 or i32"),
        (spec(DType::F32, &[1; 8]), "has 8 axes, and a NeoML blob seven"),
        // NeoML writes the first one as 45 bytes, and can read neither.
        (spec(DType::F32, &[1 << 30]), "has 4294967296 bytes; NeoML reads no blob over 2147483647"),
        (spec(DType::F32, &[1 << 29]), "has 2147483648 bytes; NeoML reads no blob over 2147483647"),
        (spec(DType::F32, &[0, 1 << 31]), "has an extent of 2147483648; NeoML's go up to 2147483647"),
    ] {
        let error = Layout::new(&[spec], Frame::Neoml(&Archive::blob())).expect_err("refused");
        assert_eq!(error.to_string(), format!("as neoml: does not fit: \"w\" {problem}"));
    }
    let error = Layout::new(&[], Frame::Neoml(&Archive::blob())).expect_err("refused").to_string();
    assert_eq!(error, "as neoml: the archive holds 1 blobs, not 0");
    let net = Checkpoint::open(data("neoml/py/net_fc.cnnarch")).expect("opens");
    let error = to_bytes(&net, &Options::new(Format::NeomlBlob)).expect_err("refused").to_string();
    let problem = "holds 4 tensors, and a NeoML blob is one; extract one of them, or convert to neoml-array, or \
                   to neoml-net what came from a net (--to neoml-net)";
    assert!(error.ends_with(problem), "{error}");
    let caffe = Checkpoint::open(data("caffe/net/v1.caffemodel")).expect("opens");
    let error = to_bytes(&caffe, &Options::new(Format::NeomlNet)).expect_err("refused").to_string();
    assert!(error.ends_with("cannot be converted to a NeoML net: its layers are not known"), "{error}");
}

/// The file with another shape and generated values for the first array.
fn rewritten(file: &Checkpoint, dims: [usize; 7], seed: u64) -> Result<Vec<u8>, Error> {
    let archive = file.neoml_archive()?.expect("a NeoML file");
    let first = made(&Shape::from(Dims7::new(dims)?), DType::F32, seed);
    let blobs: Vec<AnyBlob> = file.entries()[1..].iter().map(|entry| file.load(entry)).collect::<Result<_, _>>()?;
    let blobs: Vec<&AnyBlob> = std::iter::once(&first).chain(&blobs).collect();
    let specs: Vec<TensorSpec> = blobs.iter().map(|b| TensorSpec::new("w", b.dtype(), b.shape().clone())).collect();
    let layout = Layout::new(&specs, Frame::Neoml(&archive))?;
    let mut bytes = vec![0; layout.len() as usize];
    let mut put = |at: u64, part: &[u8]| bytes[at as usize..][..part.len()].copy_from_slice(part);
    for (at, part) in layout.frame(&[], &[])? {
        put(at, &part);
    }
    for (at, blob) in layout.offsets().iter().zip(blobs) {
        let cells: Vec<u8> = words(blob).into_iter().flat_map(u32::to_le_bytes).collect();
        put(*at, &cells);
    }
    Ok(bytes)
}

#[test]
fn weights_of_a_net_are_replaced_in_place_and_around_another_size() {
    let golden = bytes("py/net_fc.cnnarch");
    let net = open("net.cnnarch", &golden).expect("opens");
    let at = net.entries()[0].offset().expect("cells") as usize;
    let same = rewritten(&net, [1, 5, 1, 1, 1, 1, 7], 9).expect("written");
    assert_eq!((same.len(), &same[..at], &same[at + 140..]), (golden.len(), &golden[..at], &golden[at + 140..]));
    assert!(same[at..at + 140] != golden[at..at + 140]);
    // Two elements more: extents and count change, and the later bytes move.
    let other = rewritten(&net, [1, 1, 1, 1, 1, 1, 37], 9).expect("written");
    assert_eq!(&other[at + 148..], &golden[at + 140..]);
    assert_eq!(&other[..at - 32], &golden[..at - 32]);
    let read = open("net.cnnarch", &other).expect("opens");
    assert_eq!(read.names().collect::<Vec<_>>(), net.names().collect::<Vec<_>>());
    assert_eq!(read.entries()[0].shape().dims(), [1, 1, 1, 1, 1, 1, 37]);
    for (entry, old) in read.entries()[1..].iter().zip(&net.entries()[1..]) {
        assert_eq!(words(&read.load(entry).expect("loads")), words(&net.load(old).expect("loads")));
    }
    // A pickle stores the length of the archive inside.
    let pickle = open("blob.pickle", &bytes("py/blob.pickle")).expect("opens");
    assert!(rewritten(&pickle, [1, 2, 1, 1, 1, 1, 3], 9).is_ok());
    let error = rewritten(&pickle, [1, 2, 1, 1, 1, 1, 4], 9).expect_err("refused").to_string();
    assert_eq!(error, "as neoml: does not fit: \"w\" is of another shape, and a pickle counts its bytes");
}

#[test]
fn the_tool_keeps_the_kind_of_an_archive_whose_extension_several_have() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in sources() {
        let name = path.file_name().expect("a name").to_str().expect("UTF-8");
        let out = folder.path().join(name);
        blob(&["convert", path.to_str().expect("UTF-8"), "-o", out.to_str().expect("UTF-8")]).ok();
        assert!(std::fs::read(&out).expect("written") == std::fs::read(&path).expect("readable"), "{name}");
    }
    let net = bytes("py/net_conv_bn_checkpoint.cnnarch");
    assert!(find(&net, b"NesterovGradientSolver") > 2000, "the solver is behind the net, and stays");
}
