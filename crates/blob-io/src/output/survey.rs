//! Checks whether a folder to be replaced holds only the files of the list.
//!
//! Checks names, lengths and times; reads only the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::error::ReadError;
use crate::folder::listing;
use crate::notes::FOLDER_LIST;
use crate::output::disk::{self, optional};
use crate::wire::source::FileSource;
use crate::words::and_more;

/// How many foreign files are searched for, and how many an error names.
const MAX_FOREIGN: usize = 1000;
const NAMED: usize = 3;

/// The files that exist where a folder is to be written.
#[derive(Debug)]
pub(super) enum Survey {
    /// Nothing, or an empty folder.
    Free,
    /// Only files that the list names, with the listed lengths.
    Ours(Snapshot),
    /// Other files too.
    Foreign(Foreign),
}

/// The files of a folder at one point in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    files: BTreeMap<String, Stamp>,
    /// The subfolders that hold listed files or did.
    folders: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    id: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self { len: meta.len(), modified: meta.modified().ok(), id: id(meta) }
    }
}

impl Snapshot {
    /// A file that has changed since. `None` if the list has changed, because another conversion has put a folder
    /// there. Missing files are ignored: another process may be removing the folder.
    pub(super) fn changed(&self, now: &Self) -> Option<String> {
        let list = |of: &Self| of.files.get(FOLDER_LIST).cloned();
        if list(self) != list(now) {
            return None;
        }
        let mut differing = now.files.iter().filter(|(file, stamp)| self.files.get(*file) != Some(*stamp));
        differing.next().map(|(file, _)| file.clone())
    }

    /// Whether the folder at `root` still has this list.
    pub(super) fn is_current(&self, root: &Path) -> bool {
        let list = fs::metadata(root.join(FOLDER_LIST)).ok();
        list.map(|meta| Stamp::of(&meta)) == self.files.get(FOLDER_LIST).cloned()
    }

    /// Removes these files and the folders that become empty. The list is removed last, so that the rest is still
    /// recognised as ours after an interruption or an error.
    pub(super) fn remove(&self, root: &Path) -> io::Result<()> {
        for file in self.files.keys().filter(|file| *file != FOLDER_LIST) {
            optional(disk::remove_file(&root.join(file)))?;
        }
        // A folder comes before the subfolders.
        for folder in self.folders.iter().rev() {
            optional(disk::remove_dir(&root.join(folder)))?;
        }
        optional(disk::remove_file(&root.join(FOLDER_LIST)))?;
        optional(disk::remove_dir(root))
    }
}

/// Files that no list names.
#[derive(Debug, Default)]
pub(super) struct Foreign(Vec<String>);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.0.iter().take(NAMED).map(|name| name.escape_debug().to_string()).collect();
        f.write_str(&named.join(", "))?;
        match self.0.len() {
            MAX_FOREIGN => f.write_str(" and many more"),
            n => f.write_str(&and_more(n - named.len())),
        }
    }
}

/// Checks a folder. An error of kind `Interrupted` means that the folder changed meanwhile.
pub(super) fn survey(folder: &Path) -> io::Result<Survey> {
    let before = match fs::symlink_metadata(folder) {
        Ok(meta) => Stamp::of(&meta),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Survey::Free),
        Err(e) => return Err(e),
    };
    let found = survey_once(folder);
    let after = fs::symlink_metadata(folder).map(|meta| Stamp::of(&meta));
    if after.is_ok_and(|after| after == before) {
        // A listed entry that is missing was removed from a subfolder meanwhile.
        return found.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::ErrorKind::Interrupted.into(),
            _ => e,
        });
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn survey_once(folder: &Path) -> io::Result<Survey> {
    if fs::read_dir(folder)?.next().is_none() {
        return Ok(Survey::Free);
    }
    let listed = listed(folder);
    let mut walk = Walk { listed: &listed, snapshot: Snapshot::default(), foreign: Foreign::default() };
    walk.folder(folder, "")?;
    walk.foreign.0.sort_unstable();
    Ok(if walk.foreign.0.is_empty() { Survey::Ours(walk.snapshot) } else { Survey::Foreign(walk.foreign) })
}

/// The files that the list names, and the list itself; empty if no list can be read.
fn listed(folder: &Path) -> BTreeMap<String, Option<u64>> {
    let path = folder.join(FOLDER_LIST);
    let mut all = BTreeMap::new();
    if !fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
        return all;
    }
    let Ok(source) = FileSource::open(&path) else {
        return all;
    };
    let read = listing::files(&source, &mut |file, _| {
        all.insert(file.file, Some(file.bytes));
        Ok::<(), ReadError>(())
    });
    match read {
        Ok(true) => {
            all.insert(FOLDER_LIST.to_owned(), None);
            all
        }
        _ => BTreeMap::new(),
    }
}

struct Walk<'a> {
    /// Files, with the lengths if known.
    listed: &'a BTreeMap<String, Option<u64>>,
    snapshot: Snapshot,
    foreign: Foreign,
}

impl Walk<'_> {
    /// Whether a listed file lies in a folder. Only folders that exist are asked for: a list can name a thousand
    /// folders with each file.
    fn has_files_in(&self, folder: &str) -> bool {
        let within = format!("{folder}/");
        self.listed.range(within.clone()..).next().is_some_and(|(file, _)| file.starts_with(&within))
    }

    fn folder(&mut self, path: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            if self.foreign.0.len() == MAX_FOREIGN {
                return Ok(());
            }
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if entry.file_name().to_str().is_none() {
                // Such a name cannot be in the list, whose names are UTF-8.
                self.foreign.0.push(name);
            } else if kind.is_dir() && self.has_files_in(&name) {
                self.folder(&entry.path(), &format!("{name}/"))?;
                self.snapshot.folders.insert(name);
            } else if kind.is_dir() {
                self.foreign.0.push(name + "/");
            } else if let (true, Some(len)) = (kind.is_file(), self.listed.get(&name)) {
                let meta = entry.metadata()?;
                if len.is_some_and(|len| len != meta.len()) {
                    self.foreign.0.push(format!("{name} (changed since)"));
                } else {
                    self.snapshot.files.insert(name, Stamp::of(&meta));
                }
            } else {
                self.foreign.0.push(name);
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn id(meta: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
fn id(_: &Metadata) -> u64 {
    0
}
