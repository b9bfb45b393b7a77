//! Pairs the tensors of two files: tensors of one name, a sparse array and the dense array of the same name, and, where
//! a file stores no names, tensors in the same position.
//!
//! Reads headers only. `verify` and `diff` compare the pairs.

use blob_core::Shape;
use blob_io::{Checkpoint, Entry, Error, Kind, Sparse, TensorName};

use crate::stored::in_order;
use crate::watch::{Watch, Watched};

/// An event of the walk over two files.
pub(crate) enum Event<'a> {
    /// How tensors are paired, if not by name.
    Note(String),
    /// A tensor without a partner in the other file.
    Unpaired { entry: &'a Entry, missing_from: &'a Checkpoint },
    /// A pair: the first file's tensor and the second file's.
    Pair(Side<'a>, Side<'a>),
}

/// Walks over two files: the tensors without a partner come first, those of the second file before those of the first.
pub(crate) fn walk<'a, E>(
    ours: &'a Checkpoint,
    theirs: &'a Checkpoint,
    take: &mut dyn FnMut(Event<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let both = |a, b| Event::Pair(Side::stored(ours, a), Side::stored(theirs, b));
    if let ([a], [b]) = (ours.entries(), theirs.entries())
        && a.name() != b.name()
        && a.dtype().is_some()
    {
        take(Event::Note(format!("named {:?} here and {:?} there; each file holds one tensor", a.name(), b.name())))?;
        return take(both(a, b));
    }
    let (here, there) = (ByName::of(ours), ByName::of(theirs));
    if let Some(unnamed) = [ours, theirs].into_iter().find(|file| is_unnamed(file))
        && ours.format() != theirs.format()
        && arrays(ours).count() == arrays(theirs).count()
        && arrays(ours).any(|entry| there.get(entry.name()).is_none_or(|other| other.kind() == Kind::None))
    {
        take(Event::Note(format!("the tensors of {} have no names; compared in their order", unnamed.name())))?;
        return pairs(ours, theirs).into_iter().try_for_each(|(a, b)| take(both(a, b)));
    }
    unpaired(&there, &here, take)?;
    unpaired(&here, &there, take)?;
    for entry in ours.entries() {
        if let Some(other) = there.get(entry.name()) {
            take(both(entry, other))?;
        } else if let Some(other) = there.dense_for(entry) {
            take(Event::Pair(Side::dense(ours, entry), Side::stored(theirs, other)))?;
        }
    }
    for entry in theirs.entries() {
        if let (None, Some(other)) = (here.get(entry.name()), here.dense_for(entry)) {
            take(Event::Pair(Side::stored(ours, other), Side::dense(theirs, entry)))?;
        }
    }
    Ok(())
}

/// One tensor of one of the files.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) file: &'a Checkpoint,
    pub(crate) entry: &'a Entry,
    /// The whole sparse array that the entry is a part of, if compared as a dense one.
    pub(crate) dense: Option<&'a Sparse>,
}

impl<'a> Side<'a> {
    pub(crate) fn stored(file: &'a Checkpoint, entry: &'a Entry) -> Self {
        Self { file, entry, dense: None }
    }

    pub(crate) fn dense(file: &'a Checkpoint, entry: &'a Entry) -> Self {
        Self { file, entry, dense: entry.sparse() }
    }

    pub(crate) fn shape(&self) -> &'a Shape {
        self.dense.map_or(self.entry.shape(), |sparse| &sparse.shape)
    }

    pub(crate) fn name(&self) -> &'a str {
        self.dense.map_or(self.entry.name(), |sparse| &sparse.name)
    }

    /// Reads the tensor's bytes, row-major.
    pub(crate) fn reader<'r>(&self, watch: &'r dyn Watch) -> Result<Watched<'r>, Error>
    where
        'a: 'r,
    {
        let reader = match self.dense {
            Some(_) => self.file.dense_reader(self.entry),
            None => self.file.reader(self.entry),
        };
        Ok(Watched::new(reader?, watch))
    }
}

/// A file's tensors, sorted by name. Indices take 4 bytes a tensor; a map would take 32.
struct ByName<'a> {
    file: &'a Checkpoint,
    by_name: Vec<u32>,
    /// The values of each sparse array, sorted by the name of the whole array.
    sparse: Vec<u32>,
}

impl<'a> ByName<'a> {
    fn of(file: &'a Checkpoint) -> Self {
        let entries = file.entries();
        let mut by_name: Vec<u32> = (0..entries.len() as u32).collect();
        by_name.sort_unstable_by_key(|i| entries[*i as usize].name());
        let sparse = (0..entries.len() as u32).filter(|i| entries[*i as usize].kind() == Kind::Values);
        let mut sparse: Vec<u32> = sparse.collect();
        sparse.sort_unstable_by_key(|i| entries[*i as usize].sparse().map(|s| &*s.name));
        Self { file, by_name, sparse }
    }

    fn get(&self, name: &str) -> Option<&'a Entry> {
        let entry = |i: u32| &self.file.entries()[i as usize];
        let found = self.by_name.binary_search_by(|i| entry(*i).name().cmp(name));
        Some(entry(self.by_name[found.ok()?]))
    }

    /// The values of the sparse array of this name.
    fn sparse(&self, name: &str) -> Option<&'a Entry> {
        let entry = |i: u32| &self.file.entries()[i as usize];
        let found = self.sparse.binary_search_by_key(&Some(name), |i| entry(*i).sparse().map(|s| &*s.name));
        Some(entry(self.sparse[found.ok()?]))
    }

    /// The dense tensor that stands for the sparse array of these `values`.
    fn dense_for(&self, values: &Entry) -> Option<&'a Entry> {
        match values.kind() {
            Kind::Values => self.dense_of(values),
            _ => None,
        }
    }

    /// The dense tensor that has the name of the sparse array which `part` is a part of.
    fn dense_of(&self, part: &Entry) -> Option<&'a Entry> {
        let dense = self.get(&part.sparse()?.name)?;
        dense.sparse().is_none().then_some(dense)
    }
}

/// Hands over the tensors of one file that have no partner in the other.
fn unpaired<'a, E>(
    of: &ByName<'a>,
    other: &ByName<'a>,
    take: &mut dyn FnMut(Event<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for entry in of.file.entries() {
        if other.get(entry.name()).is_some() || other.dense_of(entry).is_some() {
            continue;
        }
        // A dense tensor is compared with the sparse array of the same name, unless the parts have other partners.
        let parts = other.sparse(entry.name());
        if entry.sparse().is_none() && parts.is_some_and(|part| of.get(part.name()).is_none()) {
            continue;
        }
        take(Event::Unpaired { entry, missing_from: other.file })?;
    }
    Ok(())
}

/// The entries of a file that hold an array.
fn arrays(file: &Checkpoint) -> impl Iterator<Item = &Entry> {
    file.entries().iter().filter(|entry| entry.kind() != Kind::None)
}

/// Pairs the tensors of two files in order: the order of a file's own, or that of the numbers where all names are
/// numbers, as a conversion writes them. Where both files store sparse arrays, parts of one kind make a pair: each
/// format has another order of parts.
fn pairs<'a>(ours: &'a Checkpoint, theirs: &'a Checkpoint) -> Vec<(&'a Entry, &'a Entry)> {
    let mut both = [ours, theirs].map(|file| in_order(arrays(file).collect(), |entry| entry.name()));
    if both.iter().all(|entries| entries.iter().any(|entry| entry.sparse().is_some())) {
        let whole = |entry: &Entry| entry.sparse().map(|sparse| sparse.name.clone());
        for entries in &mut both {
            let groups = entries.chunk_by_mut(|a, b| a.sparse().is_some() && whole(a) == whole(b));
            groups.for_each(|parts| parts.sort_by_key(|part| part.kind().name()));
        }
    }
    let [ours, theirs] = both;
    ours.into_iter().zip(theirs).collect()
}

/// Whether the file stores no names, so that tensors are called by position: `@0`, `@0.diff`, `@1#indices`. A copy in a
/// format of names stores these, and counts as one without names too.
pub(crate) fn is_unnamed(file: &Checkpoint) -> bool {
    !file.entries().is_empty() && file.names().all(|name| TensorName::of(name).position().is_some())
}
