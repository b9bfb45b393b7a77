//! `blob ls -r`: lists every tensor file in a folder and the subfolders, sorted by name.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use blob_convert::{Selected, Selection};
use blob_io::layout::FOLDER_LIST;
use blob_io::{Checkpoint, Error};

use super::list;
use crate::args::Ls;
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::open::{name, open_to_list};
use crate::output::{Out, signals};
use crate::render::Render;
use crate::select::{by_names, found};
use crate::units;

pub(super) fn run(args: &Ls, context: &Context) -> Result<Status, Failure> {
    let (file, selection) = (&args.selection.file, args.selection.selection());
    let (mut status, mut total) = (Status::Yes, Total::default());
    if !file.is_dir() {
        // A missing file gets an error of its own here.
        let file = open_to_list(file, &context.global)?;
        return Err(Failure::new(format!("{} is a file, and -r lists a folder", file.name())));
    }
    let mut matched = vec![false; selection.patterns.len() + selection.exclude.len()];
    let mut files = Files::of(file);
    while let Some(path) = files.next() {
        signals::check()?;
        let start = Instant::now();
        let opened = path.and_then(|path| {
            let opened = open_to_list(&path, &context.global);
            // A folder whose receipt is empty or unreadable is searched as an ordinary one.
            if path.is_dir() && opened.as_ref().map_or(true, |folder| folder.entries().is_empty()) {
                files.enter(&path)?;
            }
            opened
        });
        let listed = match opened {
            Err(Error::NotTensors { .. }) => {
                total.others += 1;
                continue;
            }
            Err(Error::Several { file, members, more, .. }) => {
                files.insert(members.iter().map(|member| Path::new(&file).join(member)).collect());
                if more == 0 {
                    continue;
                }
                let more = units::plural(more, "more tensor file");
                Err(Failure::new(format!("{file}: holds {more} than are listed; unpack it to list them all")))
            }
            Err(error) => Err(error.into()),
            Ok(checkpoint) => {
                let chosen = matching(&checkpoint, &selection, &mut matched)?;
                if chosen.is_empty() && (!selection.is_all() || Path::new(checkpoint.name()).is_dir()) {
                    continue;
                }
                total.add(&checkpoint, &chosen);
                list(args, context, &checkpoint, chosen, start)
            }
        };
        match listed {
            Ok(one) => status = status.max(one),
            Err(failure @ Failure::Trouble(_)) => {
                context.failed(None, &failure);
                status = Status::Trouble;
            }
            Err(failure) => return Err(failure),
        }
    }
    if total.files > 0 {
        context.print(total)?;
    } else if status == Status::Yes && selection.is_all() {
        return Err(Failure::no(format!("{} holds no file of tensors", name(file))));
    }
    let patterns = selection.patterns.iter().chain(&selection.exclude);
    for (pattern, _) in patterns.zip(matched).filter(|(_, matched)| !matched) {
        context.failed(None, &Failure::no(format!("no tensor in {} matches {pattern:?}", name(file))));
        status = status.max(Status::No);
    }
    Ok(status)
}

/// The tensors that are selected. A pattern without a match is no error: another file may have one.
fn matching(checkpoint: &Checkpoint, selection: &Selection, matched: &mut [bool]) -> Result<Vec<usize>, Failure> {
    let named = by_names(checkpoint, selection)?;
    let Selected { places, unmatched, .. } = found(checkpoint, &named)?;
    for (pattern, matched) in named.patterns.iter().chain(&named.exclude).zip(matched) {
        *matched |= !unmatched.contains(pattern);
    }
    // Where no pattern matches, the file was not asked for.
    Ok(places)
}

/// The totals of all listed files.
#[derive(Default)]
struct Total {
    files: u64,
    tensors: u64,
    bytes: u64,
    others: u64,
}

impl Total {
    fn add(&mut self, checkpoint: &Checkpoint, chosen: &[usize]) {
        self.files += 1;
        self.tensors += chosen.len() as u64;
        self.bytes += chosen.iter().map(|index| checkpoint.entries()[*index].byte_len()).sum::<u64>();
    }
}

/// Printed only as text; a program can add up the lines itself.
impl Render for Total {
    fn json(self, _: &Context, _: &mut Out) -> Result<(), Failure> {
        Ok(())
    }

    fn text(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        let (files, tensors) = (units::plural(self.files, "file"), units::plural(self.tensors, "tensor"));
        write!(out, "{files}, {tensors}, {}", units::bytes(self.bytes))?;
        match self.others {
            0 => writeln!(out)?,
            others => writeln!(out, "; {} without tensors passed over", units::plural(others, "file"))?,
        }
        Ok(())
    }

    fn lines(self, _: &Context, _: &mut Out) -> Result<(), Failure> {
        Ok(())
    }
}

/// The files under a folder that may hold tensors. A folder that a conversion wrote counts as one file.
pub(crate) struct Files {
    /// The paths to visit, the next one last.
    pending: Vec<PathBuf>,
    /// The files of an archive to visit before those, the next one last.
    members: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn of(folder: &Path) -> Self {
        Self { pending: vec![folder.to_owned()], members: Vec::new() }
    }

    /// Adds the contents of a folder to the paths to visit.
    pub(crate) fn enter(&mut self, folder: &Path) -> Result<(), Error> {
        let listed = Self::contents(folder);
        self.pending.extend(listed.map_err(|source| Error::Io {
            file: name(folder),
            action: "list".to_owned(),
            source,
        })?);
        Ok(())
    }

    /// Adds the files of an archive, which are visited next.
    pub(crate) fn insert(&mut self, members: Vec<PathBuf>) {
        self.members.extend(members.into_iter().rev());
    }

    /// The contents of a folder in reverse order.
    fn contents(folder: &Path) -> io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let is_linked_folder = entry.file_type()?.is_symlink() && entry.path().is_dir();
            if !is_hidden && !is_linked_folder {
                all.push(entry.path());
            }
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        Ok(all)
    }
}

/// An unreadable folder gives an error; the iteration continues with the others.
impl Iterator for Files {
    type Item = Result<PathBuf, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(member) = self.members.pop() {
            return Some(Ok(member));
        }
        while let Some(path) = self.pending.pop() {
            let is_folder = path.is_dir();
            if is_folder && !path.join(FOLDER_LIST).is_file() {
                if let Err(error) = self.enter(&path) {
                    return Some(Err(error));
                }
            } else if is_folder || path.is_file() && !is_index(&path) {
                return Some(Ok(path));
            }
        }
        None
    }
}

/// Whether the file is an index of shards. An index is skipped, because the shards themselves are listed.
fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b".safetensors.index.json"))
}
