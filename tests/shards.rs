//! Shards with an index are read as one file (`data/shards/make.py`); hostile indices are refused.

use std::fs;
use std::path::{Path, PathBuf};

use blob_io::{Checkpoint, Error, Format, OpenOptions, Reason};
use tempfile::TempDir;

use crate::support::alloc::peak;
use crate::support::archive::safetensors;
use crate::support::{changed, data};

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

/// Rewrites the index with `from` replaced by `to`.
fn mended(folder: &Path, from: &str, to: &str) -> PathBuf {
    let path = folder.join(INDEX);
    let text = fs::read_to_string(data("shards").join(INDEX)).expect("readable");
    assert!(text.contains(from), "{from}");
    fs::write(&path, text.replacen(from, to, 1)).expect("written");
    path
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
    assert_eq!(error.reason(), Reason::Directory, "{error}");
    check(&open(&folder.path().join("b.safetensors.index.json")));
}

#[test]
fn an_index_that_lies_is_a_fault_or_a_warning() {
    let folder = copied();
    let open = |from: &str, to: &str| Checkpoint::open(mended(folder.path(), from, to));
    let warning = |file: &Checkpoint| file.warnings()[0].to_string();
    let file = open("329", "330").expect("opens");
    assert_eq!(warning(&file), "the index says that the tensors have 330 bytes; they have 329");
    for number in ["329.0", "-1", "1e9", "\"329\"", "null", "[329]"] {
        open("329", number).expect(number);
    }
    // The index has a tensor that no shard has.
    let more = open("\"none\"", "\"more\": \"model-00001-of-00003.safetensors\",\n    \"none\"").expect("opens");
    let fault = more.entry("more").and_then(|entry| entry.fault()).expect("a fault").to_string();
    assert!(fault.ends_with("expected a tensor in the shard that the index names, found none of this name"), "{fault}");
    assert_eq!(fault.split(':').next(), Some("at byte 376"), "{fault}");
    assert_eq!(more.entries().len(), 7);
    // The index lacks a tensor.
    let less = open("    \"conv1.bias\": \"model-00002-of-00003.safetensors\",\n", "").expect("opens");
    assert!(warning(&less).contains("a shard holds tensors that the index does not name"), "{}", warning(&less));
    assert!(less.entries().len() == 6 && less.warnings().len() == 1, "{:?}", less.warnings());
    // The index assigns a tensor to the wrong shard.
    let moved = open("\"conv1.bias\": \"model-00002", "\"conv1.bias\": \"model-00001").expect("opens");
    assert!(warning(&moved).contains("tensors that lie in another file by the index"), "{}", warning(&moved));
    assert!(moved.entry("conv1.bias").expect("listed").fault().is_some());
}

#[test]
fn an_index_leads_to_no_other_place() {
    let folder = copied();
    let shard = "model-00003-of-00003.safetensors";
    for other in ["/etc/passwd", "../x", "a/b", "..", ".", "", "C:x", "a\\\\b", "\\u0000"] {
        let error = Checkpoint::open(mended(folder.path(), shard, other)).expect_err(other);
        let said = error.to_string();
        assert!(said.contains("at byte 217: expected the name of a file beside the index, found"), "{said}");
    }
    let error = |why: &str| Checkpoint::open(folder.path().join(INDEX)).expect_err(why);
    mended(folder.path(), "329", "329");
    fs::write(folder.path().join(shard), b"\x80\x02}q\x00.").expect("written");
    assert!(error("a pickle").to_string().contains(&format!("{shard} is a Python pickle")), "{}", error(""));
    fs::copy(data("other/numpy_savez.npz"), folder.path().join(shard)).expect("copied");
    assert!(error("an npz").to_string().contains("is NumPy archive, not a shard of safetensors"), "{}", error(""));
    fs::remove_file(folder.path().join(shard)).expect("removed");
    let missing = error("a missing shard");
    assert!(
        missing.to_string().contains(&format!("{shard}: cannot open it, a shard that the index names")),
        "{missing}"
    );
    assert_eq!(missing.reason(), Reason::Missing);
    #[cfg(unix)]
    {
        let link = folder.path().join(shard);
        std::os::unix::fs::symlink("/dev/null", &link).expect("linked");
        assert!(error("a device").to_string().contains("is no ordinary file"), "{}", error(""));
        fs::remove_file(&link).expect("removed");
        // Symbolic links, as in Hugging Face's cache.
        std::os::unix::fs::symlink(data("shards").join(shard), &link).expect("linked");
        let file = Checkpoint::open(folder.path().join(INDEX)).expect("links are followed");
        file.entries().iter().for_each(|entry| drop(file.load(entry).expect("loads")));
    }
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
    for (text, expected) in [
        ("{}", "is a JSON file, not weights"),
        ("{\"metadata\": {}}", "is a JSON file, not weights"),
        ("{\"weight_map\": 3}", "at byte 15: expected a JSON object, found '3'"),
        ("{\"weight_map\": {\"a\": 3}}", "at byte 21: expected a JSON string, found '3'"),
        ("{\"weight_map\": {\"a\": \"x\", \"a\": \"x\"}}", "at byte 26: expected each key once, found \"a\" again"),
        ("{\"weight_map\": {}, \"weight_map\": {}}", "at byte 33: expected each key once"),
    ] {
        fs::write(&path, text).expect("written");
        let error = Checkpoint::open(&path).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
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
    // Besides the entries, the index stores each name with its shard.
    assert!(used < (16 << 20) + 512 * count, "{used}");
}
