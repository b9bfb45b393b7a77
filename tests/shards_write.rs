//! Safetensors are written in Hugging Face's shards (`data/shards/make.py`), and no existing file is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use blob_convert::{Options, Place, Silent, Watch, plan, verify};
use blob_io::{Checkpoint, Error, Format, IfExists};

use crate::shards::{INDEX, copied, ramp};
use crate::support::archive::safetensors;
use crate::support::data;

/// Converts the golden shards to shards of 120 bytes. Returns the index.
fn written(folder: &Path, if_exists: IfExists) -> Result<PathBuf, Error> {
    let source = Checkpoint::open(data("shards").join(INDEX))?;
    let path = folder.join("model.safetensors");
    let target = Place::File { path: &path, if_exists };
    let options = shards_of(120);
    let plan = plan(&source, &options, &target)?;
    let (index, count) = plan.index().expect("shards");
    assert_eq!((index, count), (&*folder.join(INDEX), 3));
    plan.check(&Silent)?;
    let done = plan.run(&Silent)?;
    assert_eq!(done.bytes_out, bytes_of(folder).values().map(|bytes| bytes.len() as u64).sum::<u64>());
    Ok(index.to_owned())
}

/// The options for shards of this many bytes.
fn shards_of(size: u64) -> Options {
    Options::new(Format::Safetensors).with(|o| o.shard_size = Some(size))
}

/// The content of every file of a folder.
fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).expect("listed").map(|file| file.expect("listed").path());
    files
        .map(|path| {
            (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("readable"))
        })
        .collect()
}

/// An index without the receipt, in the form of `json.dumps(…, indent=2, sort_keys=True)`.
fn without_receipt(index: &[u8]) -> String {
    let text = String::from_utf8(index.to_vec()).expect("text");
    assert!(text.is_ascii());
    text.lines()
        .filter(|line| !line.contains("blob.receipt") && !line.contains("\"note\""))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn shards_are_written_as_hugging_face_writes_them_and_prove_their_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = written(folder.path(), IfExists::Refuse).expect("written");
    let ours = bytes_of(folder.path());
    let golden = bytes_of(copied().path());
    assert!(ours.keys().eq(golden.keys()), "{:?}", ours.keys());
    // Their tensors are in the order of make.py, ours in that of the files, so a tensor can be in another shard than
    // theirs.
    let theirs = without_receipt(&golden[INDEX]);
    let written = without_receipt(&ours[INDEX]);
    assert_eq!(written.lines().count(), theirs.lines().count());
    assert!(written.contains("\"total_size\": 329") && written.contains("\"gr\\u00f6\\u00dfe/\\u5c64\""), "{written}");
    for (name, bytes) in ours.iter().filter(|(name, _)| *name != INDEX) {
        let (_, header) = safetensors::SafeTensors::read_metadata(bytes).expect("the safetensors crate reads it");
        assert_eq!(header.metadata().as_ref().and_then(|m| m.get("format")).map(String::as_str), Some("pt"), "{name}");
        assert!(header.tensors().values().map(|info| info.data_offsets.1).max() <= Some(200), "{name}");
    }
    let back = Checkpoint::open(&index).expect("opens");
    let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    assert!(back.names().collect::<BTreeSet<_>>() == source.names().collect());
    for entry in back.entries() {
        assert_eq!(*back.view(entry).expect("readable"), ramp(&back, entry.name()));
    }
    let mut findings = Vec::new();
    let right = verify::receipt(&back, &Silent, &mut |finding| findings.push(finding)).expect("readable");
    assert_eq!((right, findings.len()), (Some(6), 0), "{findings:?}");
    verify::against(&back, &source, &Silent, &mut |remark| panic!("{remark:?}")).expect("compared");
}

#[test]
fn one_shard_is_the_plain_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    let mut written = Vec::new();
    for (name, size) in [("a", Some(329)), ("b", None)] {
        let path = folder.path().join(format!("{name}.safetensors"));
        let options = size.map_or(Options::new(Format::Safetensors), shards_of);
        let target = Place::File { path: &path, if_exists: IfExists::Refuse };
        let plan = plan(&source, &options, &target).expect("planned");
        assert!(plan.index().is_none());
        plan.run(&Silent).expect("written");
        written.push(fs::read(&path).expect("readable"));
    }
    assert_eq!(written[0], written[1]);
    assert_eq!(bytes_of(folder.path()).len(), 2);
}

#[test]
fn nothing_is_lost_where_shards_are_written() {
    // If any of the files exists, nothing is written.
    for name in ["model-00002-of-00003.safetensors", INDEX] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(name), "mine").expect("written");
        let error = written(folder.path(), IfExists::Refuse).expect_err("exists");
        assert!(matches!(&error, Error::Exists { path, .. } if path.ends_with(name)), "{error}");
        assert_eq!(bytes_of(folder.path()), BTreeMap::from([(name.to_owned(), b"mine".to_vec())]));
    }
    // With force, only the files of the output are replaced.
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["model-00002-of-00003.safetensors", "model-00001-of-00009.safetensors", "model.safetensors"] {
        fs::write(folder.path().join(name), "mine").expect("written");
    }
    let plain = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    let path = folder.path().join("model.safetensors");
    let options = shards_of(120);
    let target = Place::File { path: &path, if_exists: IfExists::Replace };
    plan(&plain, &options, &target).and_then(|plan| plan.run(&Silent)).expect("written");
    let after = bytes_of(folder.path());
    assert_eq!(after.len(), 6, "{:?}", after.keys());
    assert!(after["model-00001-of-00009.safetensors"] == b"mine" && after["model.safetensors"] == b"mine");
    assert!(after["model-00002-of-00003.safetensors"] != b"mine");
    // A source is never replaced, whatever the names of the shards.
    let copy = copied();
    let index = copy.path().join("b.safetensors.index.json");
    fs::rename(copy.path().join(INDEX), &index).expect("renamed");
    let source = Checkpoint::open(index).expect("opens");
    let path = copy.path().join("model.safetensors");
    let target = Place::File { path: &path, if_exists: IfExists::Replace };
    let before = bytes_of(copy.path());
    let planned = plan(&source, &options, &target).expect("planned");
    for error in [planned.check(&Silent).expect_err("a source"), planned.run(&Silent).expect_err("a source")] {
        assert!(error.to_string().contains("is read, and a source is never replaced by its copy"), "{error}");
    }
    assert_eq!(bytes_of(copy.path()), before);
}

/// Through a link, a shard would be written to another shard's file, or over a file that is not part of the output.
#[cfg(unix)]
#[test]
fn links_pipes_and_devices_are_no_places_for_shards() {
    use std::os::unix::fs::symlink;
    let other = "model-00002-of-00003.safetensors";
    for (name, to) in [("model-00001-of-00003.safetensors", other), (other, "mine"), (INDEX, "mine"), (other, "none")] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("mine"), "mine").expect("written");
        symlink(to, folder.path().join(name)).expect("linked");
        let error = written(folder.path(), IfExists::Replace).expect_err("a link").to_string();
        assert!(error.contains(name) && error.contains("is a link, and no place for a shard"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2);
        assert_eq!(fs::read(folder.path().join("mine")).expect("readable"), b"mine");
    }
    for name in [other, INDEX] {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(std::process::Command::new("mkfifo").arg(folder.path().join(name)).status().expect("ran").success());
        // Opening it would wait for a reader.
        let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
        let target = Place::File { path: &folder.path().join("model.safetensors"), if_exists: IfExists::Replace };
        let planned = plan(&source, &shards_of(120), &target).expect("planned");
        for error in [planned.check(&Silent).expect_err("a pipe"), planned.run(&Silent).expect_err("a pipe")] {
            assert!(error.to_string().contains("is a pipe or a device"), "{error}");
        }
    }
}

#[test]
fn old_files_of_the_same_name_are_told_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = written(folder.path(), IfExists::Refuse).expect("written");
    for name in ["model-00001-of-0009.safetensors", "models-00001-of-00009.safetensors", "other.safetensors"] {
        fs::write(folder.path().join(name), "mine").expect("written");
    }
    let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    let path = folder.path().join("model.safetensors");
    let planned = |size: u64, if_exists| plan(&source, &shards_of(size), &Place::File { path: &path, if_exists });
    let notes = |size: u64| {
        let changes = planned(size, IfExists::Replace).expect("planned").changes();
        let warned = changes.iter().filter(|group| group.change.is_warned());
        warned.map(ToString::to_string).collect::<Vec<_>>()
    };
    // As one file: the old index would still lead to the old tensors.
    let error = planned(1000, IfExists::Refuse).expect_err("an index").to_string();
    assert!(error.starts_with(&format!("{}: is an index of shards", index.display())), "{error}");
    let shard = |number: u32| format!("\"model-0000{number}-of-00003.safetensors\"");
    let stay = "old files of the same name stay beside the new output: ";
    assert_eq!(notes(1000), [format!("{stay}{}, {}, {} and 1 more", shard(1), shard(2), shard(3))]);
    // As the same number of shards: all are replaced. As another number: the old shards stay, and so does a single
    // file.
    assert_eq!(notes(120), [""; 0]);
    fs::write(&path, "mine").expect("written");
    assert_eq!(notes(120), [format!("{stay}\"model.safetensors\"")]);
    assert_eq!(notes(200), [format!("{stay}{}, {}, {} and 1 more", shard(1), shard(2), shard(3))]);
}

#[test]
fn what_an_index_cannot_name_is_refused() {
    let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    let refused = |path: &Path, size: u64| {
        let target = Place::File { path, if_exists: IfExists::Refuse };
        plan(&source, &shards_of(size), &target).expect_err("refused").to_string()
    };
    assert!(refused(Path::new("x.safetensors"), 0).contains("cannot be written as shards of no bytes"));
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"m\xFF.safetensors"));
        assert!(refused(path, 120).contains("is a name that is not UTF-8"));
    }
}

#[test]
fn what_is_no_file_of_safetensors_is_not_written_in_shards() {
    let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    let refused = |format: Format, target: &Place<'_>, size: u64| {
        let options = Options::new(format).with(|o| o.shard_size = Some(size));
        plan(&source, &options, target).expect_err("refused").to_string()
    };
    let path = Path::new("/nowhere/x");
    let target = Place::File { path, if_exists: IfExists::Refuse };
    assert!(refused(Format::Npz, &target, 1).contains("cannot be written as shards of npz"));
    assert!(refused(Format::Safetensors, &Place::Stdout, 1).contains("can be written as shards to files only"));
    let folder = tempfile::tempdir().expect("a folder");
    let many: Vec<String> =
        (0..501).map(|i| format!(r#""{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, i + 1)).collect();
    let path = folder.path().join("many.safetensors");
    fs::write(&path, safetensors(&format!("{{{}}}", many.join(",")), &[0; 501])).expect("written");
    let source = Checkpoint::open(&path).expect("opens");
    let error = plan(&source, &shards_of(1), &target).expect_err("too many");
    assert!(error.to_string().contains("would be 501 shards; at most 500 are written"), "{error}");
}

#[test]
fn a_killed_or_failed_conversion_leaves_nothing_under_the_names() {
    let folder = copied();
    let source = Checkpoint::open(folder.path().join(INDEX)).expect("opens");
    let out = tempfile::tempdir().expect("a folder");
    let path = out.path().join("model.safetensors");
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let options = shards_of(120);
    let planned = plan(&source, &options, &target).expect("planned");
    fs::write(folder.path().join("model-00003-of-00003.safetensors"), "cut").expect("written");
    planned.run(&Silent).expect_err("a source that was cut");
    assert!(bytes_of(out.path()).is_empty(), "{:?}", bytes_of(out.path()).keys());
}

/// Creates a folder with the name of an output file while the conversion runs, so that the file cannot be named.
struct Spoils(PathBuf);

impl Watch for Spoils {
    fn advanced(&self, _: u64) {
        if self.0.is_file() {
            fs::remove_file(&self.0).and_then(|()| fs::create_dir(&self.0)).expect("replaced");
        }
    }

    fn cancelled(&self) -> bool {
        false
    }
}

/// A folder has no second name, so the old set cannot be kept readable.
#[test]
fn a_set_that_is_replaced_in_part_has_no_index() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = written(folder.path(), IfExists::Refuse).expect("written");
    let source = Checkpoint::open(data("shards").join(INDEX)).expect("opens");
    let path = folder.path().join("model.safetensors");
    let target = Place::File { path: &path, if_exists: IfExists::Replace };
    let options = shards_of(120);
    let second = folder.path().join("model-00002-of-00003.safetensors");
    let planned = plan(&source, &options, &target).expect("planned");
    let error = planned.run(&Spoils(second.clone())).expect_err("a folder is in the way").to_string();
    assert!(error.contains("model-00002-of-00003.safetensors"), "{error}");
    assert!(!index.exists() && folder.path().join("model-00001-of-00003.safetensors").is_file());
    // If the existing set must stay, nothing there is lost.
    fs::remove_dir(&second).expect("removable");
    let index = written(folder.path(), IfExists::Replace).expect("written");
    let before = bytes_of(folder.path());
    written(folder.path(), IfExists::Refuse).expect_err("it exists");
    assert_eq!((bytes_of(folder.path()), index.is_file()), (before, true));
}

/// A file of six tensors, every byte of which is `value`.
fn filled(folder: &Path, value: u8) -> PathBuf {
    let tensors: Vec<String> = (0..6)
        .map(|i| format!(r#""t{i}":{{"dtype":"U8","shape":[64],"data_offsets":[{},{}]}}"#, 64 * i, 64 * (i + 1)))
        .collect();
    let path = folder.join(format!("{value}.safetensors"));
    fs::write(&path, safetensors(&format!("{{{}}}", tensors.join(",")), &[value; 384])).expect("written");
    path
}

/// The values in the files that an index names.
fn values(index: &Path) -> BTreeSet<u8> {
    let set = Checkpoint::open(index).expect("opens");
    assert_eq!(set.entries().len(), 6);
    set.entries().iter().flat_map(|entry| set.view(entry).expect("readable").to_vec()).collect()
}

#[test]
fn four_writers_at_once_leave_the_files_of_one_of_them() {
    let sources = tempfile::tempdir().expect("a folder");
    let sources: Vec<Checkpoint> =
        (1..5).map(|value| Checkpoint::open(filled(sources.path(), value)).expect("opens")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    for round in 0..25 {
        let if_exists = if round == 0 { IfExists::Refuse } else { IfExists::Replace };
        let start = std::sync::Barrier::new(4);
        let done: Vec<Result<_, Error>> = std::thread::scope(|scope| {
            let threads = sources.iter().map(|source| {
                scope.spawn(|| {
                    let target = Place::File { path: &path, if_exists };
                    start.wait();
                    plan(source, &shards_of(64), &target).and_then(|plan| plan.run(&Silent))
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let written = done.iter().filter(|done| done.is_ok()).count();
        assert_eq!(written, if round == 0 { 1 } else { 4 }, "{done:?}");
        assert_eq!(values(&folder.path().join(INDEX)).len(), 1, "round {round}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 7);
    }
}

#[cfg(unix)]
#[test]
fn a_set_that_replaces_a_private_one_is_private_whatever_the_names_of_its_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let source = Checkpoint::open(filled(folder.path(), 7)).expect("opens");
    let path = folder.path().join("model.safetensors");
    let target = Place::File { path: &path, if_exists: IfExists::Replace };
    let write = |size| plan(&source, &shards_of(size), &target).and_then(|plan| plan.run(&Silent)).expect("written");
    write(64);
    fs::set_permissions(folder.path().join(INDEX), fs::Permissions::from_mode(0o600)).expect("set");
    write(128);
    let mode = |name: &str| fs::metadata(folder.path().join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(INDEX), mode("model-00001-of-00003.safetensors")), (0o600, 0o600));
}
