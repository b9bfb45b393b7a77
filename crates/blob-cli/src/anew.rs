//! Files that are written anew from tensors of open ones: what `merge` and `split` have in common.
//!
//! Which tensors go where, those decide, and `blob_convert::regroup` gathers the bytes.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use blob_convert::Watch;
use blob_convert::regroup::Made;
use blob_core::DType;
use blob_io::{Checkpoint, Error, Format, IfExists, Kind, Output, Tensor, Writer};
use serde_json::json;

use crate::convert::no_format;
use crate::failure::Failure;
use crate::json::{Field, Fields, Is, field};
use crate::source;
use crate::units;

/// How many warnings are told one by one.
const TOLD: usize = 20;

/// A file to be written: its tensors with their names.
pub(crate) struct File<'a> {
    pub(crate) path: PathBuf,
    pub(crate) tensors: Vec<(String, Made<'a>)>,
}

impl File<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|(_, tensor)| tensor.byte_len()).sum()
    }
}

impl Fields for File<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("path", Is::Text, "the file", |f| json!(f.path.to_string_lossy())),
            field("tensors", Is::Whole, "how many tensors it has", |f| json!(f.tensors.len())),
            field("bytes", Is::Whole, "the bytes of its tensors", |f| json!(f.bytes())),
        ]
    }
}

/// The format that a file's extension promises, unless `to` names one.
pub(crate) fn format_of(path: &Path, to: Option<Format>) -> Result<Format, Failure> {
    let extension = || path.extension().and_then(|e| e.to_str()).and_then(Format::from_extension);
    to.or_else(extension).ok_or_else(|| {
        let written: Vec<&str> = Format::ALL.iter().filter(|f| f.is_written()).map(|f| f.name()).collect();
        Failure::new(no_format(path)).help(format!("name a format with --to: {}", written.join(", ")))
    })
}

/// Refuses files that cannot be written, or are among those that are read.
pub(crate) fn check(files: &[File<'_>], sources: &[&Checkpoint], if_exists: IfExists) -> Result<(), Failure> {
    for file in files {
        let mut names = HashSet::new();
        if let Some((name, _)) = file.tensors.iter().find(|(name, _)| !names.insert(name)) {
            let message = format!("{}: two tensors would be called {name:?}", file.path.display());
            return Err(Failure::new(message));
        }
        for checkpoint in sources {
            source::keep(Path::new(checkpoint.file()), &file.path, if_exists)?;
            source::keep_shards(checkpoint, &file.path)?;
        }
        Output::check(&file.path, if_exists)?;
    }
    Ok(())
}

/// Writes the files, one after the other. Where one fails, those that are new go again.
pub(crate) fn write(files: &[File<'_>], to: Format, if_exists: IfExists, watch: &dyn Watch) -> Result<(), Failure> {
    let mut written: Vec<&Path> = Vec::new();
    for file in files {
        let writer = file.tensors.iter().fold(Writer::new(to), |writer, (name, made)| writer.tensor(name, made));
        let done = match watch.cancelled() {
            true => Err(Error::Interrupted),
            false => writer.write(&file.path, if_exists),
        };
        if let Err(error) = done {
            if if_exists == IfExists::Refuse {
                // None of them was there before.
                written.into_iter().for_each(|path| drop(fs::remove_file(path)));
            }
            return Err(error.into());
        }
        written.push(&file.path);
    }
    Ok(())
}

/// What is lost on the way, in words.
pub(crate) fn losses(sources: &[&Checkpoint], files: &[File<'_>], to: Format) -> Vec<String> {
    let mut losses = Vec::new();
    for source in sources {
        let count = |kind| source.entries().iter().filter(|entry| entry.kind() == kind).count() as u64;
        for (n, what, becomes) in [
            (count(Kind::None), "place without an array", "left out"),
            (count(Kind::Values), "sparse array", "written in parts"),
        ] {
            if n > 0 {
                let (noun, are) = (units::plural(n, what), if n == 1 { "is" } else { "are" });
                losses.push(format!("{}: {noun} {are} {becomes}", source.name()));
            }
        }
    }
    let is_bf16 = |(_, tensor): &&(String, Made<'_>)| tensor.dtype() == DType::BF16;
    let bf16 = files.iter().flat_map(|file| &file.tensors).filter(is_bf16).count() as u64;
    if bf16 > 0 && matches!(to, Format::Npy | Format::Npz) {
        let tensors = units::plural(bf16, "bf16 tensor");
        losses.push(format!("the bits of {tensors} are stored as u2: NumPy has no bfloat16"));
    }
    losses
}

/// The first of many lines, and how many there are more.
pub(crate) fn first(lines: &[String]) -> String {
    let more = match lines.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    lines[..lines.len().min(TOLD)].join("; ") + &more
}
