//! Groups of tensors that go into one file together, and the names of tensors there. Reads headers only.

use std::collections::HashMap;

use blob_io::{Checkpoint, Entry, Kind, TensorName};

use crate::layers::layer;
use crate::pairing::is_unnamed;
use crate::shards;

/// The layers in the file's order: each with a name, and with the tensors as indices into [`Checkpoint::entries`].
///
/// A layer's name is a tensor's name without the last part: from the last `/` on, else from the last `.`; for MXNet's
/// names without `arg:` or `aux:` and without `_weight` and the like. A tensor whose name has one part makes a separate
/// layer.
#[must_use]
pub fn by_layer(checkpoint: &Checkpoint) -> Vec<(String, Vec<usize>)> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (index, entry) in arrays(checkpoint) {
        let layer = layer(entry.sparse().map_or(entry.name(), |sparse| &sparse.name));
        let group = *known.entry(layer).or_insert_with(|| {
            groups.push((layer.to_owned(), Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(index);
    }
    groups
}

/// Joins groups of tensors, in order, into larger ones of at most `most` bytes; a group with more bytes stays alone.
pub(crate) fn by_size(checkpoint: &Checkpoint, groups: &[Vec<usize>], most: u64) -> Vec<Vec<usize>> {
    let sizes = groups.iter().map(|group| group.iter().map(|index| checkpoint.entries()[*index].byte_len()).sum());
    let sizes: Vec<u64> = sizes.collect();
    let filled = shards::split(&sizes, most).into_iter();
    let filled = filled.map(|some| some.into_iter().flat_map(|group| groups[group].iter().copied()).collect());
    filled.collect()
}

/// Each tensor alone, as an index into [`Checkpoint::entries`]; the parts of a sparse array together, and a Caffe blob
/// with the blob's diff.
pub(crate) fn singles(checkpoint: &Checkpoint) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<(usize, usize), usize> = HashMap::new();
    for (index, entry) in arrays(checkpoint) {
        let is_joined = entry.sparse().is_some() || entry.kind() == Kind::Diff || checkpoint.diff_of(entry).is_some();
        let place = (entry.position(), if entry.sparse().is_some() { 0 } else { entry.index() });
        let group = if is_joined { *known.entry(place).or_insert(groups.len()) } else { groups.len() };
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(index);
    }
    groups
}

/// The entries that hold an array.
fn arrays(checkpoint: &Checkpoint) -> impl Iterator<Item = (usize, &Entry)> {
    checkpoint.entries().iter().enumerate().filter(|(_, entry)| entry.kind() != Kind::None)
}

/// The names of a file's tensors among tensors of other files: the entry's name, or, where the file stores no names,
/// one made from `stem`.
pub(crate) fn names_beside(checkpoint: &Checkpoint, stem: String) -> impl Fn(&Entry) -> String + use<> {
    let (is_unnamed, entries) = (is_unnamed(checkpoint), checkpoint.entries());
    let is_single = entries.iter().all(|entry| entry.position() == entries[0].position());
    move |entry| {
        if !is_unnamed {
            entry.name().to_owned()
        } else if is_single {
            TensorName::new(&stem, TensorName::of(entry.name()).kind).to_string()
        } else {
            format!("{stem}{}", entry.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_name_without_its_last_part() {
        for (name, expected) in [
            ("conv1/0", "conv1"),
            ("conv1/0.diff", "conv1"),
            ("inception_3a/1x1/1", "inception_3a/1x1"),
            ("layer1.0.conv1.weight", "layer1.0.conv1"),
            ("arg:conv0_weight", "conv0"),
            ("aux:bn0_moving_mean", "bn0"),
            ("aux:stage1_bn0_running_var", "stage1_bn0"),
            ("arg:_weight", "_weight"),
            ("weight", "weight"),
            ("", ""),
        ] {
            assert_eq!(layer(name), expected, "{name}");
        }
    }
}
