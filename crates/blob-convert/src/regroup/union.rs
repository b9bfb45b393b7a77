//! The tensors of several files under names of which no two are the same. Reads headers only.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use blob_io::{Checkpoint, Error, Group, Kind, TensorName};

use super::names_beside;
use crate::change::{Change, Effect, listed};
use crate::chosen::{read_entry, unsupported};
use crate::pairing::is_unnamed;
use crate::planned::{LeftOut, Planned, SourceFile};
use crate::transform::Selection;

/// The tensors of several files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Union<'a> {
    pub(crate) sources: Vec<SourceFile<'a>>,
    /// All tensors, in the order of the files.
    pub(crate) tensors: Vec<Planned>,
    /// Whether there are names that several files have, and that got the file's prefix.
    pub(crate) is_prefixed: bool,
    /// The tensors that are taken of each file.
    pub(crate) selection: Selection,
    /// The tensors that would have the name of another one.
    pub clashes: Vec<Clash>,
    /// The sound arrays that are not read, each with the place of its file among the sources.
    pub(crate) unread: Vec<(usize, LeftOut)>,
    /// Whether arrays that are not read are left out of a new file. Otherwise they are an error of its plan.
    pub skip_unsupported: bool,
}

/// A tensor that would have the name of a tensor of a file before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clash {
    /// The name that both would have.
    pub name: String,
    /// The file of the first tensor, and the file of the other one.
    pub files: [String; 2],
}

impl Clash {
    /// The clashes in words, one text for each pair of files.
    #[must_use]
    pub fn in_words(clashes: &[Self]) -> Vec<String> {
        let mut pairs: Vec<(&[String; 2], Vec<String>)> = Vec::new();
        for clash in clashes {
            match pairs.iter_mut().find(|(files, _)| **files == clash.files) {
                Some((_, names)) => names.push(clash.name.clone()),
                None => pairs.push((&clash.files, vec![clash.name.clone()])),
            }
        }
        pairs.iter().map(|([first, second], names)| format!("{} in {first} and {second}", listed(names))).collect()
    }
}

impl<'a> Union<'a> {
    /// The tensors of files that lie at these paths. The tensors of a file that stores no names, or none but such as
    /// `@0`, are called after the file; with prefixes, so are tensors whose names several files have.
    ///
    /// # Errors
    /// As [`Checkpoint::check_whole`] and [`Checkpoint::spec`].
    pub fn of(paths: &[PathBuf], sources: &'a [Checkpoint], with_prefixes: bool) -> Result<Self, Error> {
        Self::of_some(paths, sources, with_prefixes, &Selection::default())
    }

    /// As [`Union::of`], of those tensors alone that the selection takes of each file.
    ///
    /// # Errors
    /// As [`Union::of`]; a pattern that is wrong.
    pub fn of_some(
        paths: &[PathBuf],
        sources: &'a [Checkpoint],
        with_prefixes: bool,
        selection: &Selection,
    ) -> Result<Self, Error> {
        let prefixes = if with_prefixes { prefixes(paths) } else { paths.iter().map(|path| stem(path)).collect() };
        Self::with(sources.iter().zip(prefixes).collect(), with_prefixes, selection)
    }

    /// As [`Union::of`], of files with these prefixes.
    pub(crate) fn with(
        sources: Vec<(&'a Checkpoint, String)>,
        is_prefixed: bool,
        selection: &Selection,
    ) -> Result<Self, Error> {
        let taken = sources.iter().map(|(source, _)| match selection.of(source) {
            Ok(selected) => Ok(selected.places),
            Err(message) => Err(Error::Request { file: source.name().to_owned(), message }),
        });
        let taken = taken.collect::<Result<Vec<_>, Error>>()?;
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for ((source, _), places) in sources.iter().zip(&taken) {
            places.iter().for_each(|place| *counts.entry(source.entries()[*place].name()).or_default() += 1);
        }
        let is_single = sources.len() == 1;
        let (selection, clashes, unread) = (selection.clone(), Vec::new(), Vec::new());
        let (tensors, skip_unsupported) = (Vec::new(), false);
        let mut union =
            Self { sources: Vec::new(), tensors, is_prefixed: false, selection, clashes, unread, skip_unsupported };
        let mut names: HashMap<String, &str> = HashMap::new();
        for ((checkpoint, prefix), places) in sources.into_iter().zip(taken) {
            checkpoint.check_whole()?;
            let (first, mut has_prefix) = (union.tensors.len(), !is_single && is_unnamed(checkpoint));
            let name_beside = names_beside(checkpoint, prefix.clone());
            let entries = places.into_iter().map(|place| (place, &checkpoint.entries()[place]));
            for (place, entry) in entries.filter(|(_, entry)| entry.kind() != Kind::None) {
                let own = entry.name();
                if let Some(reason) = unsupported(entry) {
                    let left_out = LeftOut { name: own.to_owned(), reason, is_asked: true };
                    union.unread.push((union.sources.len(), left_out));
                    continue;
                }
                let name = if is_single {
                    own.to_owned()
                } else if is_prefixed
                    && !TensorName::of(own).is_given()
                    && counts.get(own).is_some_and(|count| *count > 1)
                {
                    (union.is_prefixed, has_prefix) = (true, true);
                    prefixed(own, &prefix)
                } else {
                    name_beside(entry)
                };
                if let Some(other) = names.get(&name) {
                    let files = [(*other).to_owned(), checkpoint.name().to_owned()];
                    union.clashes.push(Clash { name, files });
                    continue;
                }
                let mut tensor = read_entry(place, entry, checkpoint.spec(entry)?.dtype, false, &mut HashSet::new());
                if name != own {
                    tensor.changes.push(Change::asked(Effect::Renamed { was: own.to_owned() }));
                }
                names.insert(name.clone(), checkpoint.name());
                tensor.spec.name = name;
                union.tensors.push(tensor);
            }
            let tensors = first..union.tensors.len();
            // A prefix that no name has says nothing.
            let prefix = if has_prefix { prefix } else { String::new() };
            union.sources.push(SourceFile { checkpoint, prefix, tensors, told_by: None });
        }
        Ok(union)
    }

    /// The files, with the tensors of each.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&SourceFile<'a>, &[Planned])> {
        self.sources.iter().map(|source| (source, &self.tensors[source.tensors.clone()]))
    }

    /// The source of a tensor.
    pub(crate) fn source_of(&self, tensor: usize) -> &'a Checkpoint {
        self.sources[self.sources.partition_point(|source| source.tensors.end <= tensor)].checkpoint
    }
}

/// For each file a name that no other file has: without its extension; else with it; else with as many folders as that
/// takes.
fn prefixes(paths: &[PathBuf]) -> Vec<String> {
    let deepest = paths.iter().map(|path| path.ancestors().count()).max().unwrap_or_default();
    let names = paths.iter().map(|path| file_name(path)).collect();
    let deeper = (1..deepest).map(|folders| paths.iter().map(|path| stem_inside(path, folders)).collect());
    let mut all = std::iter::once(names).chain(deeper);
    let stems: Vec<String> = paths.iter().map(|path| stem(path)).collect();
    let differ = |names: &Vec<String>| names.iter().collect::<HashSet<_>>().len() == names.len();
    if differ(&stems) { stems } else { all.find(differ).unwrap_or(stems) }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The stem behind the names of so many folders around the file.
fn stem_inside(path: &Path, folders: usize) -> String {
    let mut parts = vec![stem(path)];
    parts.extend(path.ancestors().skip(1).take(folders).map(file_name).filter(|folder| !folder.is_empty()));
    parts.reverse();
    parts.join("/")
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A name behind the name of its file; `arg:` and `aux:`, by which MXNet sorts them, stay in front.
fn prefixed(name: &str, stem: &str) -> String {
    let (group, name) = Group::split(name);
    format!("{}{stem}/{name}", group.map_or("", Group::prefix))
}
