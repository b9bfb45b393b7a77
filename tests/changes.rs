//! A conversion tells its changes, and no others: the list of changes against the output, read again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use blob_convert::change::{Effect, Group};
use blob_convert::transform::{Context, Made, Misfit, Outcome, Spec, Transform};
use blob_convert::{Options, Place, RECEIPT_KEY, Silent, plan};
use blob_core::DType;
use blob_io::{Checkpoint, Entry, Format, IfExists};
use serde_json::{Value, json};

use crate::support::archive::theirs;
use crate::support::{Folder, blob, data, open};

/// Names of the kinds of change that must, or must not, be among those said for a conversion without any option.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kinds(BTreeSet<&'static str>);

impl Kinds {
    fn add(&mut self, kind: &'static str, is_so: bool) {
        if is_so {
            self.0.insert(kind);
        }
    }
}

/// Checks that the changes which a conversion warns of are those that the output shows.
pub(crate) fn check_said(source: &Checkpoint, written: &Checkpoint, said: &[Group]) {
    let what = format!("{} to {}", source.name(), written.format());
    let warned: BTreeSet<&str> =
        said.iter().filter(|group| group.change.is_warned()).map(|group| group.change.effect.name()).collect();
    // Names that blob reads back, and bits that its receipt makes bf16 again, are of interest to other readers alone.
    let for_others = ["name-encoded", "bits-stored", "new-dtype", "remark", "taken-otherwise"];
    let warned: BTreeSet<&str> = warned.into_iter().filter(|kind| !for_others.contains(kind)).collect();
    let shown = shown(source, written);
    assert_eq!(warned, shown.0, "{what}: {:?}", said.iter().map(ToString::to_string).collect::<Vec<_>>());
    for group in said.iter().filter(|group| group.change.is_warned()) {
        let text = group.to_string();
        let names = group.tensors.iter().take(1).all(|name| text.contains(&format!("{name:?}")) || name.len() > 100);
        assert!(names && text.lines().count() == 1, "{what}: {text}");
    }
}

/// The kinds of change that a comparison of the files shows.
fn shown(source: &Checkpoint, written: &Checkpoint) -> Kinds {
    let mut kinds = Kinds::default();
    let arrays = |file: &Checkpoint| -> Vec<usize> {
        (0..file.entries().len()).filter(|i: &usize| file.entries()[*i].dtype().is_some()).collect()
    };
    let nulls = |file: &Checkpoint| file.entries().len() - arrays(file).len();
    kinds.add("left-out", nulls(written) < nulls(source));
    let lacks = |file: &Checkpoint| {
        let mut beside = file.entries().iter().flat_map(Entry::warnings);
        file.warnings().iter().any(|warning| warning.is_loss) || beside.any(|warning| warning.is_loss)
    };
    // A name that the source's reader gave is a name of the written file's own.
    let mut named = source.entries().iter().filter(|entry| entry.name_warning().is_some());
    let is_named_anew =
        named.any(|entry| written.entry(entry.name()).is_some_and(|entry| entry.name_warning().is_none()));
    kinds.add("unlisted", lacks(source) && !lacks(written) || is_named_anew);
    let of = |file: &Checkpoint| -> BTreeSet<String> {
        arrays(file).into_iter().map(|i| file.entries()[i].name().to_owned()).collect()
    };
    let (here, there) = (of(source), of(written));
    kinds.add("name-lost", here != there);
    let count = |file: &Checkpoint, dtype| file.entries().iter().filter(|entry| entry.dtype() == Some(dtype)).count();
    let lacks_bf16 = count(source, DType::BF16) > 0 && count(written, DType::BF16) == 0;
    kinds.add("bits-untold", lacks_bf16 && count(written, DType::U16) > count(source, DType::U16));
    // Two names of one place in the file.
    let is_tied = |file: &Checkpoint| {
        let full = file.entries().iter().filter(|entry| entry.byte_len() > 0);
        let places: Vec<u64> = full.filter_map(Entry::offset).collect();
        places.iter().collect::<BTreeSet<_>>().len() < places.len()
    };
    kinds.add("untied", is_tied(source) && !is_tied(written));
    let pairs = source.entries().iter().filter(|entry| entry.dtype().is_some());
    let pairs = pairs.filter_map(|entry| {
        Some((entry.shape().num_axes(), written.entry(entry.name()).map(|other| other.shape().clone())?.num_axes()))
    });
    kinds.add(
        "padded",
        if here == there {
            pairs.clone().any(|(ours, theirs)| ours != theirs)
        } else {
            // Without names, the number of axes tells.
            written.format().is_neoml()
                && source.entries().iter().any(|e| e.dtype().is_some() && e.shape().num_axes() < 7)
        },
    );
    // Every file of NeoML has the same axes, and safetensors name a framework.
    let of_all = [("axes", source.format().is_neoml()), ("format", source.format() == Format::Safetensors)];
    let receipt = written.metadata().iter().find(|(known, _)| known == RECEIPT_KEY);
    let receipt: serde_json::Value = receipt.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut lost = source.metadata().iter().map(|(key, _)| key).filter(|key| {
        *key != RECEIPT_KEY
            && !of_all.contains(&(key, true))
            && !written.metadata().iter().any(|(known, _)| known == *key)
            && receipt["source"]["metadata"].get(key).is_none()
    });
    kinds.add("metadata-dropped", lost.next().is_some());
    kinds
}

/// A transform of a user's own that happens to have the name and the settings of one of ours.
#[derive(Debug)]
struct OwnLayout;

impl Transform for OwnLayout {
    fn name(&self) -> &'static str {
        "layout"
    }

    fn settings(&self) -> Value {
        json!({ "to": "oihw" })
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        Ok(tensors
            .iter()
            .enumerate()
            .map(|(place, spec): (usize, &Spec<'_>)| {
                let mut made = Made::same(place, spec);
                made.tensor.name.push_str(".own");
                made
            })
            .collect())
    }

    fn only_once(&self) -> Option<String> {
        Some("laid out".to_owned())
    }
}

#[test]
fn a_transform_is_known_by_what_it_declares_not_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("once.safetensors");
    let source = Checkpoint::open(data("caffe/net/f32_v2.caffemodel")).expect("opens");
    let options = Options::new(Format::Safetensors).transform(OwnLayout);
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let planned = plan(&source, &options, &target).expect("plans");
    assert!(planned.tensors().iter().all(|tensor| tensor.spec.name.ends_with(".own")));
    planned.run(&Silent).expect("written");
    // Ours of the same name does nothing with these settings, and may be done any number of times.
    let once = Checkpoint::open(&path).expect("opens");
    let ours = Options::new(Format::Npz).transform(blob_convert::transform::Layout::Oihw);
    plan(&once, &ours, &Place::Stdout).expect("plans");
}

#[test]
fn the_library_never_replaces_what_it_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("net.caffemodel"), folder.path().join("link.npz"));
    let bytes = std::fs::read(data("caffe/net/f32_v2.caffemodel")).expect("readable");
    std::fs::write(&path, &bytes).expect("writable");
    std::fs::hard_link(&path, &link).expect("linked");
    let source = Checkpoint::open(&path).expect("opens");
    for (to, output) in [(Format::CaffeModel, &path), (Format::Npz, &link)] {
        let target = Place::File { path: output, if_exists: IfExists::Replace };
        let refused = plan(&source, &Options::new(to), &target).expect_err("its own source").to_string();
        assert!(refused.contains("a source is never replaced"), "{refused}");
    }
    let into = folder.path();
    let target = Place::Folder { path: into, if_exists: IfExists::Replace };
    let refused = plan(&source, &Options::new(Format::Npy), &target).expect_err("the folder around it").to_string();
    assert!(refused.contains("would be replaced"), "{refused}");
    assert!(std::fs::read(&path).expect("readable") == bytes);
}

#[test]
fn an_archive_of_other_members_says_that_they_are_left_out() {
    let npy = std::fs::read(data("other/fortran_big_endian.npy")).expect("readable");
    let members: [(&str, &[u8]); 2] = [("a.npy", &npy), ("note.bin", b"\xFF\xFE\x00")];
    let npz = theirs(zip::CompressionMethod::Deflated, &members);
    let source = open("x.npz", &npz).expect("opens");
    let said = plan(&source, &Options::new(Format::Safetensors), &Place::Stdout).expect("plans").changes();
    let losses: Vec<String> = said.iter().filter(|group| group.change.is_loss()).map(ToString::to_string).collect();
    assert_eq!(losses, ["members that are no npy files are left out: note.bin"]);
}

#[test]
fn metadata_that_a_file_of_the_same_format_lacks_without_a_receipt_is_said() {
    let folder = Folder::new();
    let npy = std::fs::read(data("other/fortran_big_endian.npy")).expect("readable");
    let npz = folder.with("a.npz", theirs(zip::CompressionMethod::Stored, &[("l.npy", &npy), ("b.txt", b"hello")]));
    let golden = data("caffe/misc/state.solverstate").display().to_string();
    // Of a solver's state the counters become datasets.
    let state = folder.file("s.solverstate.h5");
    let kept = blob(&["convert", &golden, "-o", &state, "--no-receipt"]).ok();
    assert!(!kept.err.contains("metadata left out"), "{}", kept.err);
    let state_keys = ["current_step", "iter", "learned_net"];
    for (source, out, keys) in
        [(&npz, "b.npz", &["b"][..]), (&state, "b.solverstate.h5", &[]), (&state, "b.h5", &state_keys)]
    {
        let source = Checkpoint::open(source).expect("opens");
        let mut options = Options::new(source.format());
        options.without_receipt = true;
        options.anew = true;
        let path = PathBuf::from(folder.file(out));
        let target = Place::File { path: &path, if_exists: IfExists::Refuse };
        let plan = plan(&source, &options, &target).expect("plans");
        let said = plan.changes();
        let dropped: Vec<&[String]> = said.iter().filter_map(|group| dropped(&group.change.effect)).collect();
        assert_eq!(dropped.concat(), keys, "{out}");
        plan.run(&Silent).expect("written");
        let written = Checkpoint::open(&path).expect("opens");
        let here = written.metadata().iter().filter(|pair| source.metadata().contains(pair)).count();
        assert_eq!(here + keys.len(), source.metadata().len(), "{out}");
    }
}

/// The keys of the metadata that a change leaves out.
fn dropped(effect: &Effect) -> Option<&[String]> {
    match effect {
        Effect::MetadataDropped { keys, .. } => Some(keys),
        _ => None,
    }
}
