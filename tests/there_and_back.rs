//! Every file within the same format, and to safetensors, npz and folders and back: values, bytes, frames of receipts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blob_convert::{Options, Place, Silent, plan};
use blob_core::DType;
use blob_io::{Checkpoint, Error, Format, IfExists, Remedy, Source};
use serde_json::{Value, json};

use crate::convert::{by_safetensors, contents, folders, named};
use crate::neoml_write;
use crate::support::message::len;
use crate::support::receipt::{deflated, inflated, receipt, with_receipt};
use crate::support::{Folder, data, files, open, open_any, report};
use crate::transform::float;
use crate::transform_order::net;

/// Converts to a file or, if the path ends with a slash, to a folder. Returns the notes of the plan.
pub(crate) fn convert(source: &Checkpoint, options: &Options, path: &Path) -> Result<Vec<String>, Error> {
    let if_exists = IfExists::Refuse;
    let is_folder = path.to_string_lossy().ends_with('/');
    let target = if is_folder { Place::Folder { path, if_exists } } else { Place::File { path, if_exists } };
    let plan = plan(source, options, &target)?;
    plan.run(&Silent)?;
    // Here the notes are about frames; `sessions::names` and `matrix` have the others.
    let others = ["layers get no type", "its content does not show its format"];
    Ok(plan.notes().iter().filter(|note| !others.iter().any(|other| note.starts_with(other))).cloned().collect())
}

/// Every golden and real file of a format that can be written.
pub(crate) fn sources() -> Vec<(PathBuf, Checkpoint)> {
    let mut found = Vec::new();
    let mut paths: Vec<PathBuf> = folders().iter().flat_map(|folder| files(folder, |_| true)).collect();
    paths.extend(neoml_write::sources());
    for path in paths {
        if let Ok(file) = open_any(&path) {
            found.push((path, file));
        }
    }
    found
}

/// Files of formats that no receipt restores.
fn unframed() -> Vec<(PathBuf, Checkpoint)> {
    let folders = ["other", "hdf5", "hdf5/tiny", "shards", "onnx"].map(data);
    let paths =
        folders.iter().flat_map(|folder| files(folder, |name| !name.ends_with(".json") && !name.ends_with(".py")));
    paths.filter_map(|path| Some((path.clone(), Checkpoint::open(&path).ok()?))).collect()
}

/// The formats without a frame, with the reason: values are compressed or chunked, a pickle, a zip with other members.
const WITHOUT: [(Format, &str); 4] = [
    (Format::NeomlNet, "the file holds more than its tensors"),
    (Format::Npz, "the file holds more than its tensors"),
    (Format::Npz, "values do not lie in runs of row-major bytes"),
    (Format::Hdf5, "values do not lie in runs of row-major bytes"),
];

/// A file that counts the bytes read.
struct Counted(Vec<u8>, Arc<AtomicU64>);

impl Source for Counted {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// The pass that writes the tensors proves the frame, too.
#[test]
fn a_file_with_a_frame_is_read_once() {
    let folder = Folder::new();
    let net = net(&[("a", "InnerProduct", &[&[700, 1000], &[700]]), ("b", "InnerProduct", &[&[9, 70_001]])]);
    let copy = folder.file("copy.safetensors");
    convert(&net, &Options::new(Format::Safetensors), Path::new(&copy)).expect("written");
    let bytes = std::fs::read(&copy).expect("there");
    for (to, name) in [(Format::CaffeModel, "back.caffemodel"), (Format::Npz, "next.npz")] {
        let read = Arc::new(AtomicU64::new(0));
        let source = Counted(bytes.clone(), Arc::clone(&read));
        let source = Checkpoint::from_source("copy.safetensors", Box::new(source)).expect("opens");
        let path = folder.file(name);
        let place = Place::File { path: Path::new(&path), if_exists: IfExists::Refuse };
        let plan = plan(&source, &Options::new(to), &place).expect("planned");
        read.store(0, Ordering::Relaxed);
        plan.run(&Silent).expect("written");
        let (read, len) = (read.load(Ordering::Relaxed), bytes.len() as u64);
        assert!((len..len + len / 50).contains(&read), "{name}: {read} bytes of {len} read");
    }
    let next = Checkpoint::open(folder.file("next.npz")).expect("opens");
    assert!(receipt(&next)["frame"].is_object());
}

/// How many files of each format passed.
type Counts = BTreeMap<&'static str, usize>;

/// Converts the file within the same format; false if the file is broken and refused.
fn stays(path: &Path, source: &Checkpoint, out: &Path) -> bool {
    if let Err(error) = convert(source, &Options::new(source.format()), out) {
        let is_broken = source.entries().iter().any(|entry| entry.fault().is_some() || entry.foreign_dtype().is_some())
            || path.ends_with("broken-deflate.npz");
        assert!(is_broken && !out.exists(), "{}: {error}", path.display());
        return false;
    }
    assert!(read(out) == read(path), "{}", path.display());
    true
}

/// Each file, converted three ways: within its format every byte stays; safetensors, npz and folders hold the same
/// values, also for the safetensors crate; from there the file comes back byte for byte by the receipt's frame.
#[test]
fn every_file_stays_holds_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut stayed, mut back, mut anew] = [Counts::new(), Counts::new(), Counts::new()];
    let all = sources();
    let framed = all.len();
    for (i, (path, source)) in all.into_iter().chain(unframed()).enumerate() {
        let format = source.format();
        if stays(&path, &source, &folder.path().join(i.to_string())) {
            *stayed.entry(format.name()).or_default() += 1;
        }
        if i >= framed {
            continue;
        }
        let is_whole = source.entries().iter().all(|entry| entry.fault().is_none());
        for (via, to) in [("x.safetensors", Format::Safetensors), ("x.npz", Format::Npz), ("x/", Format::Npy)] {
            let place = folder.path().join(i.to_string() + via);
            if to == format && !via.ends_with('/') {
                continue;
            }
            if let Err(e) = convert(&source, &Options::new(to), &place) {
                assert!(!is_whole, "{e}");
                continue;
            }
            let carrier = Checkpoint::open(&place).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            match to {
                Format::Safetensors => assert_eq!(by_safetensors(&place), contents(&source), "{}", path.display()),
                _ => assert_eq!(contents(&carrier), contents(&source), "{}", path.display()),
            }
            let receipt = receipt(&carrier);
            if receipt["frame"].is_null() {
                assert!(
                    WITHOUT.iter().any(|(of, why)| *of == format && receipt["frame_left_out"] == *why),
                    "{}: {receipt}",
                    path.display()
                );
                *anew.entry(format.name()).or_default() += 1;
                continue;
            }
            let out = folder.path().join(format!("{i}{}.back", via.replace('/', "")));
            let notes = convert(&carrier, &Options::new(format), &out).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(notes, [""; 0]);
            assert!(read(&out) == read(&path), "{} through {via}", path.display());
            *back.entry(format.name()).or_default() += 1;
        }
    }
    let without = Format::ALL.iter().map(|format| format.name()).filter(|name| !stayed.contains_key(name));
    assert_eq!(without.collect::<Vec<_>>(), [""; 0], "formats without a file");
    let count = |format: Format| back.get(format.name()).copied().unwrap_or(0);
    assert!(
        count(Format::MxnetList) > 500 && count(Format::NeomlNet) >= 15 && count(Format::CaffeModel) >= 30,
        "{back:?}"
    );
    report(&format!("the same bytes within one format: {stayed:?}"));
    report(&format!("there and back through safetensors, npz and folders: {back:?}, written anew {anew:?}"));
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("readable")
}

/// A Caffe net with fields besides its tensors, converted to safetensors with a receipt: its path, its bytes, and the
/// folder.
fn lenet() -> (PathBuf, Vec<u8>, tempfile::TempDir) {
    let (path, folder) = (data("caffe/net/f32_v2_diff.caffemodel"), tempfile::tempdir().expect("a folder"));
    let carrier = folder.path().join("x.safetensors");
    convert(&Checkpoint::open(&path).expect("opens"), &Options::new(Format::Safetensors), &carrier).expect("converts");
    (path, read(&carrier), folder)
}

/// Converts these bytes back to a Caffe net. Returns the file and the notes of the plan.
fn back(bytes: &[u8], folder: &tempfile::TempDir) -> (Vec<u8>, Vec<String>) {
    let (out, options) = (folder.path().join("back"), Options::new(Format::CaffeModel));
    let notes =
        convert(&open("x.safetensors", bytes).expect("opens"), &options, &out).unwrap_or_else(|e| panic!("{e}"));
    let found = read(&out);
    std::fs::remove_file(&out).expect("removable");
    (found, notes)
}

#[test]
fn other_values_go_into_the_same_file() {
    let (path, mut bytes, folder) = lenet();
    let (source, carrier) = (Checkpoint::open(&path).expect("opens"), open("x.safetensors", &bytes).expect("opens"));
    let mut wanted = read(&path);
    for name in ["conv1/0", "ip/1.diff"] {
        let at = |file: &Checkpoint| file.entry(name).and_then(|entry| entry.offset()).expect(name) as usize;
        bytes[at(&carrier)..][..4].copy_from_slice(&[1, 2, 3, 4]);
        wanted[at(&source)..][..4].copy_from_slice(&[1, 2, 3, 4]);
    }
    let (found, notes) = back(&bytes, &folder);
    assert!(found == wanted && notes.is_empty(), "{notes:?}");
}

#[test]
fn other_tensors_are_written_anew_and_it_is_said() {
    let (path, bytes, folder) = lenet();
    let receipt = receipt(&open("x.safetensors", &bytes).expect("opens"));
    for (without, extra, count) in
        [("ip/1.diff", None, 23), ("", Some("ip2/0"), 25), ("ip/1.diff", Some("prelu1/1"), 24)]
    {
        let (found, notes) = back(&with_receipt(&bytes, &receipt, without, extra), &folder);
        assert!(
            notes[0].starts_with("the caffemodel is written anew; the receipt's original bytes are not reused: t"),
            "{notes:?}"
        );
        assert_eq!(open("x.caffemodel", &found).expect("opens").entries().len(), count);
    }
    // There is no note if `anew` or a transform is requested.
    let carrier = open("x.safetensors", &bytes).expect("opens");
    for (name, options) in [
        ("anew", Options::new(Format::CaffeModel).with(|o| o.anew = true)),
        ("wide", Options::new(Format::CaffeModel).transform(float(DType::F64))),
    ] {
        let out = folder.path().join(name);
        assert_eq!(convert(&carrier, &options, &out).expect("converts"), [""; 0]);
        assert!(read(&out) != read(&path));
    }
}

/// A receipt can come from anyone. Whatever its frame contains, the written net has the tensors of the file, or the
/// conversion fails.
#[test]
fn a_frame_that_lies_is_not_used() {
    let (path, bytes, folder) = lenet();
    let (honest, wanted) = (receipt(&open("x.safetensors", &bytes).expect("opens")), read(&path));
    let (same, _) = back(&with_receipt(&bytes, &honest, "", None), &folder);
    assert!(same == wanted);
    let holes = honest["frame"]["holes"].as_array().expect("holes").clone();
    let changed = |key: &str, value: Value| {
        let mut receipt = honest.clone();
        receipt["frame"][key] = value;
        receipt
    };
    let whole = |frame: Value| {
        let mut receipt = honest.clone();
        receipt["frame"] = frame;
        receipt
    };
    let hole = |i: usize, value: Value| {
        let mut holes = holes.clone();
        holes[i] = value;
        changed("holes", Value::Array(holes))
    };
    let (at, len) = (holes[0][0].as_u64().expect("a place"), holes[0][1].as_u64().expect("a length"));
    let zeros = deflated(&vec![0; 64 << 20]);
    let lies = [
        changed("bytes", json!(wanted.len() + 1)),
        changed("bytes", json!(u64::MAX)),
        changed("bytes", json!(0)),
        changed("bytes", json!(-1)),
        changed("bytes", json!(1.5)),
        changed("bytes", json!("1")),
        changed("bytes", json!([])),
        changed("format", json!(5)),
        whole(json!("text")),
        whole(json!({})),
        changed("holes", json!([])),
        changed("holes", json!([[0, u64::MAX], [1, 1]])),
        changed("holes", json!([[0, wanted.len()]])),
        changed("blake3", json!("")),
        changed("deflate", json!("")),
        changed("deflate", json!("!!!!")),
        changed("deflate", json!(zeros)),
        hole(0, json!([at + 1, len])),
        hole(0, json!([at, len + 1])),
        hole(0, json!([u64::MAX, u64::MAX])),
        hole(1, holes[0].clone()),
    ];
    for lie in lies {
        let (found, notes) = back(&with_receipt(&bytes, &lie, "", None), &folder);
        let whys = ["it is damaged", "there are other tensors"];
        assert!(notes.len() == 1 && whys.iter().any(|why| notes[0].ends_with(why)), "{notes:?}: {lie}");
        assert_eq!(open("x.caffemodel", &found).expect("opens").entries().len(), 24);
    }
    // There is no note if the frame is missing or of another format.
    let mut other = changed("bytes", json!(-1));
    other["frame"]["format"] = json!("npy");
    for silent in [whole(Value::Null), other] {
        assert_eq!(back(&with_receipt(&bytes, &silent, "", None), &folder).1, [""; 0]);
    }
    // The frame's holes are not where the tensors are: six bytes of a tensor are in the frame, and the net's name is
    // not.
    let mut odd = holes.clone();
    odd[0] = json!([at + 6, len - 6]);
    odd.insert(0, json!([2, 6]));
    let kept = [&wanted[..2], &wanted[8..at as usize + 6]].concat();
    let rest: Vec<u8> = inflated(honest["frame"]["deflate"].as_str().expect("text")).split_off(at as usize);
    let kept = [kept, rest].concat();
    let mut lie = changed("holes", Value::Array(odd));
    lie["frame"]["blake3"] = json!(blake3::hash(&kept).to_hex().as_str());
    lie["frame"]["deflate"] = json!(deflated(&kept));
    let (_, notes) = back(&with_receipt(&bytes, &lie, "", None), &folder);
    assert_eq!(notes, ["the caffemodel is written anew; the receipt's original bytes are not reused: it is damaged"]);
}

#[test]
fn wider_values_do_not_contradict_the_receipt() {
    let (_, bytes, folder) = lenet();
    let carrier = open("x.safetensors", &bytes).expect("opens");
    let options = Options::new(Format::Safetensors).transform(float(DType::F64));
    let target = Place::File { path: &folder.path().join("wide"), if_exists: IfExists::Refuse };
    let done = plan(&carrier, &options, &target).and_then(|plan| plan.run(&Silent)).expect("written");
    assert_eq!(done.contradicted, [""; 0]);
}

#[test]
fn a_sound_frame_of_other_bytes_is_refused_or_not_used() {
    let (_, bytes, folder) = lenet();
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    let frame = &honest["frame"];
    let kept = inflated(frame["deflate"].as_str().expect("text"));
    assert_eq!(blake3::hash(&kept).to_hex().as_str(), frame["blake3"].as_str().expect("text"));
    let mut refused = 0;
    for at in (0..kept.len()).step_by(5) {
        let mut other = kept.clone();
        other[at] ^= 0x11;
        let mut receipt = honest.clone();
        receipt["frame"]["deflate"] = json!(deflated(&other));
        receipt["frame"]["blake3"] = json!(blake3::hash(&other).to_hex().as_str());
        let carrier = open("x.safetensors", &with_receipt(&bytes, &receipt, "", None)).expect("opens");
        let out = folder.path().join("other");
        match convert(&carrier, &Options::new(Format::CaffeModel), &out) {
            Err(Error::Misfit { remedy: Some(Remedy::Anew), .. }) => {
                assert!(!out.exists(), "{at}");
                refused += 1;
            }
            Err(e) => panic!("{at}: {e}"),
            Ok(notes) => {
                assert!(!notes.is_empty(), "{at}");
                std::fs::remove_file(&out).expect("removable");
            }
        }
    }
    assert!(refused > 0 && refused < kept.len() / 5, "{refused} of {}", kept.len());
}

#[test]
fn a_frame_of_more_than_four_megabytes_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let net = |unknown: usize| [named(b"w"), len(500, &vec![b'n'; unknown])].concat();
    for (unknown, kept) in [(4 << 20, false), (4 << 19, true)] {
        let (out, back) = (folder.path().join(format!("{unknown}")), folder.path().join(format!("{unknown}.back")));
        let source = open("x.caffemodel", &net(unknown)).expect("opens");
        convert(&source, &Options::new(Format::Npz), &out).expect("converts");
        let carrier = Checkpoint::open(&out).expect("opens");
        let frame = receipt(&carrier);
        assert_eq!(frame["frame"].is_object(), kept, "{}", frame["frame_left_out"]);
        convert(&carrier, &Options::new(Format::CaffeModel), &back).expect("converts");
        assert_eq!(read(&back) == net(unknown), kept);
    }
}
