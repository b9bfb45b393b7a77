//! `blob ls -r`: every file of tensors in a folder and in its folders, in the order of their names.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use blob_convert::RECEIPT_KEY;
use blob_io::{Checkpoint, Error};

use super::list;
use crate::args::{Ls, Selection};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::open::{name, open_to_list};
use crate::output::Out;
use crate::render::Render;
use crate::select::select;
use crate::units;

pub(super) fn run(args: &Ls, context: &Context) -> Result<Status, Failure> {
    let (selection, mut status, mut total) = (&args.selection, Status::Yes, Total::default());
    if !selection.file.is_dir() {
        // A file that is missing has its own error.
        let file = open_to_list(&selection.file, &context.global)?;
        return Err(Failure::new(format!("{} is a file, and -r lists a folder", file.name())));
    }
    for path in Files::of(&selection.file) {
        let start = Instant::now();
        let listed = match path.and_then(|path| open_to_list(&path, &context.global)) {
            Err(Error::NotTensors { .. }) => {
                total.others += 1;
                continue;
            }
            Err(error) => Err(error.into()),
            Ok(checkpoint) => {
                let chosen = matching(&checkpoint, selection)?;
                if chosen.is_empty() && !selection.patterns.is_empty() {
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
    if total.files == 0 && status == Status::Yes {
        let what = if selection.patterns.is_empty() { "file of tensors" } else { "tensor that matches" };
        return Err(Failure::no(format!("{} holds no {what}", name(&selection.file))));
    }
    context.say(total)?;
    Ok(status)
}

/// The tensors that any of the patterns matches: one that matches none in this file may in another.
fn matching(checkpoint: &Checkpoint, selection: &Selection) -> Result<Vec<usize>, Failure> {
    if selection.patterns.is_empty() {
        return select(checkpoint, &[], selection.regex);
    }
    let mut chosen = Vec::new();
    for pattern in &selection.patterns {
        match select(checkpoint, std::slice::from_ref(pattern), selection.regex) {
            Ok(found) => chosen.extend(found),
            Err(Failure::No(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// What was listed of all files.
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

/// For people alone: a program adds up the lines.
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
struct Files {
    /// What is still to be looked at, the next one last.
    left: Vec<PathBuf>,
}

impl Files {
    fn of(folder: &Path) -> Self {
        Self { left: vec![folder.to_owned()] }
    }

    /// What stands in a folder, the last name first.
    fn within(folder: &Path) -> io::Result<Vec<PathBuf>> {
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

/// A folder that cannot be read is an error, and the others go on.
impl Iterator for Files {
    type Item = Result<PathBuf, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(path) = self.left.pop() {
            let is_folder = path.is_dir();
            if is_folder && !path.join(format!("{RECEIPT_KEY}.json")).is_file() {
                match Self::within(&path) {
                    Ok(all) => self.left.extend(all),
                    Err(source) => {
                        return Some(Err(Error::Io { file: name(&path), action: "list".to_owned(), source }));
                    }
                }
            } else if is_folder || path.is_file() && !is_index(&path) {
                return Some(Ok(path));
            }
        }
        None
    }
}

/// Whether it is the index of shards, which are listed by themselves.
fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b".safetensors.index.json"))
}
