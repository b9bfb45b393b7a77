//! Shards with an index are read as one file (`data/shards/make.py`); hostile indices are refused, more of them in
//! `sessions/shards.txt`.

use std::fs;
use std::path::Path;

use blob_io::{Checkpoint, Error, Format, OpenOptions, Reason};
use tempfile::TempDir;

use crate::support::alloc::peak;
use crate::support::archive::safetensors;
use crate::support::{changed, compare_cases, data};

pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// A folder with a copy of the shards that Hugging Face's library wrote.
pub(crate) fn copied() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in fs::read_dir(data("shards")).expect("listed") {
        let file = file.expect("listed").path();
        let name = file.file_name().expect("a name");
        if name.to_string_lossy().starts_with("model") {
            fs::copy(&file, folder.path().join(name)).expect("copied");
        }
    }
    folder
}

/// The bytes of a tensor whose element `i` is `i * 7 % 251`, as in `make.py`.
pub(crate) fn ramp(file: &Checkpoint, name: &str) -> Vec<u8> {
    let entry = file.entry(name).expect(name);
    let values = (0..entry.shape().count()).map(|i| i * 7 % 251);
    match entry.dtype().expect("a dtype").name() {
        "f64" => values.flat_map(|i| (i as f64).to_le_bytes()).collect(),
        "f32" => values.flat_map(|i| (i as f32).to_le_bytes()).collect(),
        "f16" => values.flat_map(|i| half::f16::from_f32(i as f32).to_le_bytes()).collect(),
        "i8" => values.map(|i| i as u8).collect(),
        other => panic!("{other}"),
    }
}

fn check(file: &Checkpoint) {
    let mut names: Vec<&str> = file.names().collect();
    names.sort_unstable();
    assert_eq!(names, ["conv1.bias", "conv1.weight", "fc.bias", "fc.weight", "größe/層", "none"]);
    for name in names {
        let bytes = file.view(file.entry(name).expect(name)).expect("readable");
        assert_eq!(*bytes, ramp(file, name), "{name}");
    }
    assert_eq!((file.format(), file.dialect()), (Format::Safetensors, "3 shards"));
    assert!(file.warnings().is_empty() && file.faults().is_empty(), "{:?}", file.warnings());
    let metadata = [("note", "by \"hand\"\n"), ("format", "pt")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(file.metadata(), metadata);
}

#[test]
fn the_shards_of_an_index_are_one_file() {
    let open = |path: &Path| Checkpoint::open(path).expect("opens");
    let file = open(&data("shards").join(INDEX));
    check(&file);
    check(&OpenOptions::new().from(Format::Safetensors).open(data("shards").join(INDEX)).expect("opens"));
    let shards: u64 = (1..4)
        .map(|i| fs::metadata(data(&format!("shards/model-0000{i}-of-00003.safetensors"))).expect("there").len())
        .sum();
    assert_eq!((file.file_len(), file.stored().len(), file.shards().len()), (shards, shards, 3));
    // A folder with one index is opened; one with two is refused.
    let folder = copied();
    check(&open(folder.path()));
    fs::copy(folder.path().join(INDEX), folder.path().join("b.safetensors.index.json")).expect("copied");
    let error = Checkpoint::open(folder.path()).expect_err("two");
    assert_eq!(error.reason(), Reason::Request, "{error}");
    assert!(error.to_string().contains("b.safetensors.index.json") && error.to_string().contains(INDEX), "{error}");
    check(&open(&folder.path().join("b.safetensors.index.json")));
}

#[test]
fn a_shard_that_changes_while_it_is_read_is_noticed() {
    let folder = copied();
    let file = Checkpoint::open(folder.path().join(INDEX)).expect("opens");
    let shard = folder.path().join("model-00002-of-00003.safetensors");
    let whole = fs::read(&shard).expect("readable");
    fs::write(&shard, &whole[..whole.len() - 1]).expect("written");
    let error = file.load(file.entry("conv1.weight").expect("listed")).expect_err("shorter").to_string();
    assert!(
        error.contains("model-00002-of-00003.safetensors: is of another length than when it was listed"),
        "{error}"
    );
}

#[test]
fn other_json_is_no_index() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.index.json");
    compare_cases("cases/index.txt", |text| {
        fs::write(&path, text).expect("written");
        let error = Checkpoint::open(&path).expect_err(text).to_string();
        error.replace(&folder.path().display().to_string(), "FOLDER")
    });
    fs::write(&path, "{\"weight_map\": {}}").expect("written");
    assert_eq!(Checkpoint::open(&path).expect("empty").entries().len(), 0);
    let index = fs::read(data("shards").join(INDEX)).expect("readable");
    let error = Checkpoint::from_bytes(INDEX, index).expect_err("no folder").to_string();
    assert!(error.contains("is an index of shards: which tensor lies in which file"), "{error}");
}

/// Opens the index and loads all tensors. Any error must name a file of the folder.
fn exercise(folder: &Path) {
    let mut listed = 0;
    let used = peak(|| match Checkpoint::open(folder.join(INDEX)) {
        Ok(file) => {
            for entry in file.entries() {
                listed += 1;
                if let Err(error) = file.load(entry) {
                    named(folder, &error);
                }
            }
        }
        Err(error) => named(folder, &error),
    });
    assert!(used <= (16 << 20) + 256 * listed, "{used}");
}

fn named(folder: &Path, error: &Error) {
    assert!(error.to_string().starts_with(&folder.display().to_string()), "{error}");
}

#[test]
fn every_prefix_byte_and_length_of_an_index_and_its_shards_is_survived() {
    let folder = copied();
    for name in [INDEX, "model-00001-of-00003.safetensors"] {
        let path = folder.path().join(name);
        let whole = fs::read(&path).expect("readable");
        let trial = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            exercise(folder.path());
        };
        for at in 0..whole.len() {
            trial(&whole[..at]);
            for new in [0, 0xFF, whole[at] ^ 1, b'"', b'9', b'/'] {
                trial(&changed(&whole, at, &[new]));
            }
        }
        for at in 0..whole.len().saturating_sub(8) {
            for value in [u64::MAX, 1 << 63, u64::from(u32::MAX), 1 << 40] {
                trial(&changed(&whole, at, &value.to_le_bytes()));
            }
        }
        trial(&whole);
    }
    check(&Checkpoint::open(folder.path().join(INDEX)).expect("as it was"));
}

#[test]
fn a_million_names_that_no_shard_has_stay_within_their_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a"), safetensors("{}", b"")).expect("written");
    let names: Vec<String> = (0..1 << 20).map(|i| format!("\"{i:x}\":\"a\"")).collect();
    let count = names.len() as u64;
    fs::write(folder.path().join(INDEX), format!("{{\"weight_map\":{{{}}}}}", names.join(","))).expect("written");
    let mut opened = None;
    let used = peak(|| opened = Some(Checkpoint::open(folder.path().join(INDEX)).expect("opens")));
    assert_eq!(opened.map(|file| file.entries().len() as u64), Some(count));
    // Besides the entries, the index stores each name with the shard.
    assert!(used < (16 << 20) + 512 * count, "{used}");
}
