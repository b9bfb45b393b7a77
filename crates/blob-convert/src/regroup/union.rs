//! The tensors of several files under names of which no two are the same.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use blob_io::{Checkpoint, Error, Group, Kind};

use super::{Taken, name_beside};
use crate::watch::Watch;

/// The tensors of several files.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Union<'a> {
    /// All tensors, in the order of the files.
    pub tensors: Vec<(String, Taken<'a>)>,
    /// The tensors that would have the name of another one, in words.
    pub clashes: Vec<String>,
}

impl<'a> Union<'a> {
    /// The tensors of files that lie at these paths. Those of a file that stores no names are called after the file;
    /// with prefixes, so are those whose names several files have.
    ///
    /// # Errors
    /// As [`Checkpoint::array`].
    pub fn of(
        paths: &[PathBuf],
        sources: &'a [Checkpoint],
        with_prefixes: bool,
        watch: &'a dyn Watch,
    ) -> Result<Self, Error> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        sources.iter().flat_map(Checkpoint::names).for_each(|name| *counts.entry(name).or_default() += 1);
        let prefixes = if with_prefixes { prefixes(paths) } else { paths.iter().map(|path| stem(path)).collect() };
        let (mut union, mut names) = (Self::default(), HashMap::<String, &Path>::new());
        for ((path, prefix), source) in paths.iter().zip(prefixes).zip(sources) {
            for entry in source.entries().iter().filter(|entry| entry.kind() != Kind::None) {
                let own = entry.name();
                let is_shared = || counts.get(own).is_some_and(|count| *count > 1);
                let name = if sources.len() == 1 {
                    own.to_owned()
                } else if with_prefixes && !own.starts_with('@') && is_shared() {
                    prefixed(own, &prefix)
                } else {
                    name_beside(source, entry, &prefix)
                };
                match names.get(&name) {
                    Some(other) => {
                        union.clashes.push(format!("{name:?} in {} and {}", other.display(), path.display()));
                    }
                    None => {
                        names.insert(name.clone(), path);
                        union.tensors.push((name, Taken::new(source, entry, watch)?));
                    }
                }
            }
        }
        Ok(union)
    }
}

/// For each file a name that no other one has: without its extension; else with it; else with as many folders as that
/// takes.
fn prefixes(paths: &[PathBuf]) -> Vec<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let inside = |path: &Path, folders: usize| {
        let mut parts = vec![stem(path)];
        parts.extend(path.ancestors().skip(1).take(folders).map(name).filter(|folder| !folder.is_empty()));
        parts.reverse();
        parts.join("/")
    };
    let deepest = paths.iter().map(|path| path.ancestors().count()).max().unwrap_or_default();
    let names = paths.iter().map(|path| name(path)).collect();
    let deeper = (1..deepest).map(|folders| paths.iter().map(|path| inside(path, folders)).collect());
    let mut all = std::iter::once(names).chain(deeper);
    let stems: Vec<String> = paths.iter().map(|path| stem(path)).collect();
    let differ = |names: &Vec<String>| names.iter().collect::<HashSet<_>>().len() == names.len();
    if differ(&stems) { stems } else { all.find(differ).unwrap_or(stems) }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A name behind the name of its file; `arg:` and `aux:`, by which MXNet sorts them, stay in front.
fn prefixed(name: &str, stem: &str) -> String {
    let (group, name) = Group::split(name);
    format!("{}{stem}/{name}", group.map_or("", Group::prefix))
}
