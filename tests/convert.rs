//! Conversions: receipts, pipes, interruptions, hostile names, arrays in other pieces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use blob_convert::{Options, Place, Silent, Watch, plan, verify};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Bytes, Checkpoint, Error, Format, IfExists, Writer};

use crate::support::conversion::to_file;
use crate::support::message::{floats, layer, len, shape};
use crate::support::{data, files, real, sha256};

/// Every file in these folders that opens and has no broken array.
pub(crate) fn readable(folders: &[PathBuf]) -> Vec<(PathBuf, Checkpoint)> {
    let mut found = Vec::new();
    for folder in folders {
        for path in files(folder, |f| !f.ends_with(".json") && !f.ends_with(".tsv")) {
            if let Ok(checkpoint) = Checkpoint::open(&path)
                && checkpoint.entries().iter().all(|e| e.fault().is_none())
            {
                found.push((path, checkpoint));
            }
        }
    }
    found
}

pub(crate) fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["caffe/net", "caffe/misc", "caffe/blobproto"].map(data).into();
    let golden = std::fs::read_dir(data("mxnet/golden")).expect("a folder");
    for version in golden.map(|entry| entry.expect("an entry").path()) {
        for sub in ["", "checkpoints", "npz"] {
            let folder = version.join(sub);
            if folder.is_dir() {
                folders.push(folder);
            }
        }
    }
    folders.extend(real("caffe/real"));
    folders.extend(real("mxnet/real"));
    folders
}

/// Shape and bytes of every array that has elements, by name.
pub(crate) fn contents(checkpoint: &Checkpoint) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    checkpoint
        .entries()
        .iter()
        .filter(|e| e.dtype().is_some())
        .map(|e| {
            let bytes = checkpoint.view(e).expect("views").into_owned();
            (e.name().to_owned(), (e.shape().dims().to_vec(), bytes))
        })
        .collect()
}

pub(crate) fn convert(checkpoint: &Checkpoint, to: Format, path: &Path) -> Result<(), Error> {
    let target = Place::File { path, if_exists: IfExists::Refuse };
    let plan = plan(checkpoint, &Options::new(to), &target)?;
    let summary = plan.run(&Silent)?;
    let len = path.metadata().expect("written").len();
    assert_eq!((summary.bytes_out, plan.output_len()), (len, len));
    Ok(())
}

/// The shapes and bytes that the `safetensors` crate reads from a file.
pub(crate) fn by_safetensors(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("readable");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("the safetensors crate reads it");
    file.tensors().into_iter().map(|(name, view)| (name, (view.shape().to_vec(), view.data().to_vec()))).collect()
}

pub(crate) fn lenet() -> Checkpoint {
    Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens")
}

#[test]
fn the_receipt_names_source_and_digests() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let checkpoint = lenet();
    to_file(&checkpoint, &Options::new(Format::Safetensors).with(|o| o.sha256 = true), &path).expect("converts");
    let bytes = std::fs::read(&path).expect("readable");
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("a header");
    let metadata = header.metadata().as_ref().expect("metadata");
    let receipt: serde_json::Value = serde_json::from_str(&metadata[blob_convert::RECEIPT_KEY]).expect("JSON");
    let source = std::fs::read(data("caffe/net/f32_v2_diff.caffemodel")).expect("readable");
    let sha256 = sha256(&source);
    assert_eq!(receipt["schema"], "blob.receipt/1");
    assert_eq!(receipt["source"]["sha256"], sha256);
    assert_eq!(receipt["source"]["blake3"], blake3::hash(&source).to_hex().to_string());
    assert_eq!(receipt["source"]["bytes"], source.len());
    assert_eq!(receipt["source"]["format"], "caffemodel");
    assert_eq!(receipt["source"]["name"], "f32_v2_diff.caffemodel");
    // The data begin at a 64-byte boundary, for readers that map the file.
    let header_len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert_eq!((8 + header_len) % 64, 0);
}

#[test]
fn a_pipe_gets_the_same_bytes_as_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for to in [Format::Safetensors, Format::Npz] {
        let file = folder.path().join(format!("file.{}", to.name()));
        convert(&lenet(), to, &file).expect("converts");
        let pipe = folder.path().join(format!("pipe.{}", to.name()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).expect("the pipe reads")
        });
        let checkpoint = lenet();
        to_file(&checkpoint, &Options::new(to), &pipe).expect("converts");
        let through = reader.join().expect("the reader ends");
        assert!(through == std::fs::read(&file).expect("readable"), "{}", to.name());
    }
}

/// Cancels after a number of bytes.
struct StopAfter(AtomicU64);

impl Watch for StopAfter {
    fn advanced(&self, bytes: u64) {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn a_stopped_conversion_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.npz");
    let checkpoint = lenet();
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let plan = plan(&checkpoint, &Options::new(Format::Npz), &target).expect("a plan");
    let stop = StopAfter(AtomicU64::new(0));
    let error = plan.run(&stop).expect_err("stopped");
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

/// A NetParameter with one layer of this name, which has one blob of one float.
pub(crate) fn named(name: &[u8]) -> Vec<u8> {
    let blob = b"\x2A\x04\x00\x00\x80\x3F\x3A\x03\x0A\x01\x01";
    let mut layer = vec![0x0A, name.len() as u8];
    layer.extend(name);
    layer.extend([0x3A, blob.len() as u8]);
    layer.extend(blob);
    let mut net = vec![0xA2, 0x06, layer.len() as u8];
    net.extend(layer);
    net
}

#[test]
fn hostile_names_stay_within_the_target() {
    let names: [&[u8]; 11] = [
        b"../../escape", b"/etc/passwd", b"a/../../b", b"..", b".", b"", b"C:\\windows", b"nul\0byte",
        b"line\nbreak\x1b[31m", b"\xFF\xFE", b"UPPER/upper",
    ];
    let mut file = Vec::new();
    names.iter().for_each(|name| file.extend(named(name)));
    file.extend(named(b"upper/UPPER"));
    let checkpoint = Checkpoint::from_source("evil.caffemodel", Box::new(Bytes(file))).expect("opens");
    assert_eq!(checkpoint.entries().len(), 12);
    let outer = tempfile::tempdir().expect("a folder");
    let inner = outer.path().join("a/b/c");
    std::fs::create_dir_all(&inner).expect("a folder");
    let path = inner.join("out");
    let target = Place::Folder { path: &path, if_exists: IfExists::Refuse };
    let plan = plan(&checkpoint, &Options::new(Format::Npy), &target).expect("a plan");
    plan.run(&Silent).expect("converts");
    let mut found = Vec::new();
    let mut todo = vec![outer.path().to_owned()];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let listing = std::fs::read_dir(path).expect("a folder");
            todo.extend(listing.map(|entry| entry.expect("an entry").path()));
        } else {
            found.push(path);
        }
    }
    assert!(found.iter().all(|f| f.starts_with(&path)), "{found:?}");
    assert_eq!(found.len(), 13, "12 arrays and the receipt: {found:?}");
    for file in found.iter().filter(|f| f.extension().is_some_and(|e| e == "npy")) {
        let back = Checkpoint::open(file).expect("an npy");
        let blob = back.load(&back.entries()[0]).expect("loads");
        assert_eq!(*blob.data().elements::<f32>().expect("floats"), [1.0]);
    }
    let npz = inner.join("out.npz");
    convert(&checkpoint, Format::Npz, &npz).expect("converts");
    assert_eq!(contents(&Checkpoint::open(&npz).expect("opens")).len(), 12);
}

#[test]
fn an_array_called_like_the_receipt_stands_beside_it() {
    let names: [&[u8]; 3] = [b"blob.receipt.json", b"Blob.Receipt.JSON/x", b".blob-lock/x"];
    let file = names.map(named).concat();
    let checkpoint = Checkpoint::from_source("evil.caffemodel", Box::new(Bytes(file))).expect("opens");
    let outer = tempfile::tempdir().expect("a folder");
    let path = outer.path().join("out");
    let target = Place::Folder { path: &path, if_exists: IfExists::Refuse };
    let plan = plan(&checkpoint, &Options::new(Format::Npy), &target).expect("a plan");
    plan.run(&Silent).expect("converts");
    assert!(path.join("blob.receipt.json").is_file());
    assert_eq!(std::fs::read_dir(&path).expect("a folder").count(), 4);
    for folder in ["%62lob.receipt.json", "%42lob.Receipt.JSON", ".blob-lock"] {
        assert!(path.join(folder).is_dir(), "{folder}");
    }
}

/// A net with one layer `w`, which has one blob of f32 stored in runs of these lengths.
fn in_runs(runs: &[usize]) -> Checkpoint {
    let mut blob = shape(&[runs.iter().sum::<usize>() as u64]);
    let mut value = 0;
    for run in runs {
        blob.extend(floats(&(value..value + run).map(|v| v as f32).collect::<Vec<_>>()));
        value += run;
    }
    let net = [len(1, b"net"), layer("w", &blob)].concat();
    Checkpoint::from_source("net.caffemodel", Box::new(Bytes(net))).expect("opens")
}

#[test]
fn arrays_in_other_runs_are_compared_value_by_value() {
    let (one, two) = (in_runs(&[800_000]), in_runs(&[300_001, 499_999]));
    assert_eq!(two.entries()[0].segments().len(), 2);
    let other = in_runs(&[300_001, 499_998, 1]);
    for [a, b] in [[&one, &two], [&two, &one], [&two, &other]] {
        let mut remarks = Vec::new();
        let equal = verify::against(a, b, &Silent, &mut |remark| remarks.push(remark)).expect("compared");
        assert_eq!((equal.equal, remarks), (1, vec![]));
    }
}

#[test]
fn names_like_those_of_a_sparse_array_stay_tensors_of_their_own_in_an_npz() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts: [(&str, &[u8], DType); 5] = [
        ("e/data", &[0; 8], DType::F32),
        ("e/format", b"csr", DType::I8),
        ("e/indices", &[0; 8], DType::I32),
        ("e/indptr", &[0; 8], DType::I32),
        ("e/shape", &[1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0], DType::I64),
    ];
    let blobs = texts.map(|(name, bytes, dtype)| {
        let shape = Shape::new([bytes.len() / dtype.size()]).expect("a shape");
        (name, AnyBlob::from_vec(shape, dtype, bytes.to_vec()).expect("a blob"))
    });
    let (source, npz) = (folder.path().join("e.safetensors"), folder.path().join("e.npz"));
    let writer = blobs.iter().fold(Writer::new(Format::Safetensors), |writer, (name, blob)| writer.tensor(*name, blob));
    writer.write(&source, IfExists::Refuse).expect("written");
    let source = Checkpoint::open(&source).expect("opens");
    convert(&source, Format::Npz, &npz).expect("converts");
    let back = Checkpoint::open(&npz).expect("opens");
    assert_eq!(contents(&back), contents(&source));
    assert_eq!(
        verify::against(&back, &source, &Silent, &mut |remark| panic!("{remark:?}")).expect("compared").equal,
        5
    );
}
