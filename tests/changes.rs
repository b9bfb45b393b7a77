//! What a conversion changes is said, and nothing else is: the list of changes against the output as it is read again.

use std::collections::BTreeSet;

use blob_convert::RECEIPT_KEY;
use blob_convert::change::Group;
use blob_io::{Checkpoint, Entry};

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
    let for_others = ["name-encoded", "bits-stored", "new-dtype", "remark"];
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
        let is_array = |i: &usize| file.entries()[*i].dtype().is_some();
        (0..file.entries().len()).filter(is_array).collect()
    };
    let nulls = |file: &Checkpoint| file.entries().len() - arrays(file).len();
    kinds.add("left-out", nulls(written) < nulls(source));
    let of = |file: &Checkpoint| -> BTreeSet<String> {
        arrays(file).into_iter().map(|i| file.entries()[i].name().to_owned()).collect()
    };
    let (here, there) = (of(source), of(written));
    kinds.add("name-lost", here != there);
    let same_name = |entry: &Entry| written.entry(entry.name()).map(|other| other.shape().clone());
    let pairs = source.entries().iter().filter(|entry| entry.dtype().is_some());
    let pairs = pairs.filter_map(|entry| Some((entry.shape().num_axes(), same_name(entry)?.num_axes())));
    let is_padded = |file: &Checkpoint| file.format().is_neoml();
    kinds.add(
        "padded",
        match here == there {
            true => pairs.clone().any(|(ours, theirs)| ours != theirs),
            // Without names, the number of axes tells.
            false => {
                is_padded(written) && source.entries().iter().any(|e| e.dtype().is_some() && e.shape().num_axes() < 7)
            }
        },
    );
    // Every file of NeoML has the same axes.
    let said_of_all = |key: &str| key == RECEIPT_KEY || key == "axes" && source.format().is_neoml();
    let has = |key: &str| {
        let receipt = written.metadata().iter().find(|(known, _)| known == RECEIPT_KEY).map(|(_, text)| text);
        let in_receipt = || -> Option<bool> {
            let receipt: serde_json::Value = serde_json::from_str(receipt?).ok()?;
            Some(receipt["source"]["metadata"].get(key).is_some())
        };
        written.metadata().iter().any(|(known, _)| known == key) || in_receipt().unwrap_or(false)
    };
    kinds.add("metadata-dropped", source.metadata().iter().any(|(key, _)| !said_of_all(key) && !has(key)));
    kinds
}
