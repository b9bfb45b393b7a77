//! Parts of one name that are of different files: what a process leaves that is killed between the names of a new set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blob_io::Checkpoint;
use blob_io::words::{NAMED_PROBLEMS, joined, quoted};

use crate::change::{Change, Effect};
use crate::history::{Origin, receipt_text};
use crate::shards::whole_of;

/// So many digits of a digest tell two files of one name apart.
const DIGITS: usize = 8;

/// For each set of parts whose receipts name more than one file, how many are of which.
pub(super) fn mixed(sources: &[&Checkpoint]) -> Vec<Change> {
    let mut sets: BTreeMap<PathBuf, BTreeMap<String, (String, usize)>> = BTreeMap::new();
    for source in sources {
        let origins = receipt_text(source).map(Origin::of_receipt);
        if let (Some(whole), Some([origin])) = (whole_of(Path::new(source.name())), origins.as_deref()) {
            let of = sets.entry(whole).or_default().entry(origin.blake3.clone());
            of.or_insert_with(|| (origin.name.clone(), 0)).1 += 1;
        }
    }
    sets.retain(|_, files| files.len() > 1);
    sets.into_iter().map(|(whole, files)| Change::unasked(Effect::Remark(in_words(&whole, &files)))).collect()
}

fn in_words(whole: &Path, files: &BTreeMap<String, (String, usize)>) -> String {
    let each = files.iter().map(|(blake3, (name, parts))| {
        let digits: String = blake3.chars().take(DIGITS).collect();
        format!("{parts} of {} ({digits}…)", quoted(name))
    });
    let whole = quoted(&whole.display().to_string());
    format!("the parts of {whole} are of different files: {}", joined(NAMED_PROBLEMS, &each.collect::<Vec<_>>()))
}
