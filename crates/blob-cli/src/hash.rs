//! `blob hash`: the digest of a file, or of its tensors. `blob_convert::digest` computes; here are the lines.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use blob_convert::digest::{self, Algorithm, Hashed};
use blob_io::{Entry, Error, FileSource, Source};
use serde_json::json;

use crate::args::Hash;
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{self, FILE, Field, Fields, Is, Says, field, sometimes};
use crate::open::{name, open};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::render::Render;

pub(crate) fn run(args: &Hash, context: &Context) -> Result<Status, Failure> {
    let algorithm = if args.sha256 { Algorithm::Sha256 } else { Algorithm::Blake3 };
    let mut status = Status::Yes;
    for path in &args.files {
        let hashed = match args.content {
            true => content(path, algorithm, context),
            false => file(path, algorithm, context).map_err(Failure::from),
        };
        match hashed {
            Ok(hashed) => context.say(Line { file: &name(path), algorithm, hashed })?,
            Err(failure) if failure.problem().is_none() => return Err(failure),
            Err(failure) => {
                context.failed(Some(&name(path)), &failure);
                status = Status::Trouble;
            }
        }
    }
    Ok(status)
}

fn content(path: &Path, algorithm: Algorithm, context: &Context) -> Result<Hashed, Failure> {
    let checkpoint = open(path, &context.global)?;
    let work = checkpoint.entries().iter().map(Entry::byte_len).sum();
    let progress = Progress::begin(&context.terminal, work);
    Ok(digest::content(&checkpoint, algorithm, &progress)?)
}

fn file(path: &Path, algorithm: Algorithm, context: &Context) -> Result<Hashed, Error> {
    let name = name(path);
    if path == Path::new("-") {
        let progress = Progress::begin(&context.terminal, 0);
        return digest::stream(&name, io::stdin().lock(), algorithm, &progress);
    }
    let failed = |source| Error::Io { file: name.clone(), action: "open".to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        let progress = Progress::begin(&context.terminal, 0);
        return digest::stream(&name, file, algorithm, &progress);
    }
    let source = FileSource::new(file).map_err(failed)?;
    let progress = Progress::begin(&context.terminal, source.len());
    digest::file(&name, &source, algorithm, &progress)
}

/// The digest of one file.
pub(crate) struct Line<'a> {
    file: &'a str,
    algorithm: Algorithm,
    hashed: Hashed,
}

impl Render for Line<'_> {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &self)?)
    }

    /// As b3sum has it. What is a digest of tensors says so: it must not be taken for that of a file.
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let mark = match (self.hashed.tensors, self.algorithm) {
            (None, _) => String::new(),
            (Some(_), Algorithm::Blake3) => "content-1:".to_owned(),
            (Some(_), algorithm) => format!("content-1-{}:", algorithm.name()),
        };
        let file = context.terminal.name(self.file);
        Ok(writeln!(out, "{mark}{}  {file}", self.hashed.digest)?)
    }
}

impl Says for Line<'_> {
    const SCHEMA: &'static str = "blob.hash/1";
    const COMMAND: &'static str = "blob hash --json FILE...";
    const WHAT: &'static str = "the digest of a file, or of its tensors";
}

impl Fields for Line<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Is::Text, FILE, |l| json!(l.file)),
            field("of", Is::OneOf(&["file", "content-1"]), "what was hashed: its bytes, or its tensors", |l| {
                json!(if l.hashed.tensors.is_some() { "content-1" } else { "file" })
            }),
            field("algorithm", Is::OneOf(&["blake3", "sha256"]), "the hash function", |l| json!(l.algorithm.name())),
            field("digest", Is::Text, "the digest in hexadecimal", |l| json!(l.hashed.digest)),
            field("bytes", Is::Whole, "how many bytes it covers: the file's, or those of all tensors", |l| {
                json!(l.hashed.bytes)
            }),
            sometimes("tensors", Is::Whole, "how many tensors it covers", |l| json!(l.hashed.tensors)),
        ]
    }
}
