//! Tensors that are written each to a file of its own, without a receipt: what that changes. Knows no file.

use std::collections::HashSet;

use blob_io::{Checkpoint, Error, Format};

use crate::change::{Change, Group, Groups};
use crate::chosen::read_entry;
use crate::planned::Planned;
use crate::stored::{Storage, unlisted_beside};

/// One of the tensors that are written each to a file of its own, with the changes on the way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Alone {
    /// The index in [`Checkpoint::entries`].
    pub entry: usize,
    /// The changes.
    pub changes: Vec<Change>,
}

/// The tensors of a file that are written each to a file of its own: as npy, or their values alone, of which nobody
/// reads a dtype. The file's name, which the caller gives, is no change.
///
/// # Errors
/// The fault of an entry; an entry that has no array.
pub fn alone(checkpoint: &Checkpoint, entries: &[usize], to: Option<Format>) -> Result<Vec<Alone>, Error> {
    let mut tensors: Vec<Planned> = Vec::with_capacity(entries.len());
    for index in entries {
        let entry = &checkpoint.entries()[*index];
        let dtype = checkpoint.spec(entry)?.dtype;
        tensors.push(read_entry(*index, entry, dtype, false, &mut HashSet::new()));
    }
    match to {
        // A folder's files have the tensors' names, and here the caller names each file.
        Some(to) => Storage { to, is_folder: true, has_receipt: false }.note(checkpoint, &mut tensors),
        None => tensors
            .iter_mut()
            .for_each(|tensor| tensor.changes.extend(unlisted_beside(&checkpoint.entries()[tensor.entry]))),
    }
    Ok(tensors.into_iter().map(|tensor| Alone { entry: tensor.entry, changes: tensor.changes }).collect())
}

impl Alone {
    /// The changes of some tensors, one group for each kind.
    pub fn changes<'a>(checkpoint: &Checkpoint, tensors: impl IntoIterator<Item = &'a Self>) -> Vec<Group> {
        let mut groups = Groups::default();
        for tensor in tensors {
            let name = checkpoint.entries()[tensor.entry].name();
            tensor.changes.iter().for_each(|change| groups.of_tensor(name, change));
        }
        groups.finish()
    }
}
