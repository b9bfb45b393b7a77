//! `blob hash`: prints the digest of a file or of the tensors, which `blob_convert::digest` computes.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use blob_convert::digest::{Algorithm, Hashed, Subject, digest};
use blob_convert::report::json::{Document, FILE, Field, Fields, Type, field, optional};
use blob_convert::{Selection, readable};
use blob_io::words::listed_problems;
use blob_io::{Checkpoint, Entry, Error, FileSource, Source};
use serde_json::json;

use crate::args::Hash;
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::inputs::is_stdin;
use crate::open::{name, open_some};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::render::Text;

pub(crate) fn run(args: &Hash, context: &Context) -> Result<Status, Failure> {
    let algorithm = if args.sha256 { Algorithm::Sha256 } else { Algorithm::Blake3 };
    let (mut status, selection) = (Status::Yes, args.only.selection());
    if !args.content && (!selection.is_all() || args.skip.skip_unsupported) {
        return Err(Failure::new("tensors are chosen for --content; without it the whole file is hashed"));
    }
    for path in &args.files {
        let hashed = if args.content {
            content(path, &selection, algorithm, args.skip.skip_unsupported, context)
                .map(|(hashed, file)| (hashed, Some(file)))
        } else {
            file(path, algorithm, context).map(|hashed| (hashed, None)).map_err(Failure::from)
        };
        match hashed {
            Ok((hashed, checkpoint)) => context.print(HashLine { path, algorithm, hashed, checkpoint })?,
            Err(failure) if failure.is_last() => return Err(failure),
            Err(failure) => {
                context.failed(Some(&name(path)), &failure);
                status = Status::Trouble;
            }
        }
    }
    Ok(status)
}

fn content(
    path: &Path,
    selection: &Selection,
    algorithm: Algorithm,
    skip_unsupported: bool,
    context: &Context,
) -> Result<(Hashed, Checkpoint), Failure> {
    let checkpoint = open_some(path, selection, &context.global)?;
    let (places, left_out) = readable(&checkpoint, skip_unsupported)?;
    let checkpoint = checkpoint.only(&places);
    let left_out: Vec<String> = left_out.iter().map(|left| context.terminal.name(&left.name).into_owned()).collect();
    if !left_out.is_empty() {
        context.terminal.note(format!("{}: left out of the digest: {}", name(path), listed_problems(left_out)));
    }
    let work = checkpoint.entries().iter().map(Entry::byte_len).sum();
    let progress = Progress::begin(&context.terminal, work);
    let hashed = digest(Subject::Tensors(&checkpoint), algorithm, &progress)?;
    Ok((hashed, checkpoint))
}

fn file(path: &Path, algorithm: Algorithm, context: &Context) -> Result<Hashed, Error> {
    let name = name(path);
    if is_stdin(path) {
        if context.global.member.is_some() {
            let message = "without --content the hash is that of the whole archive, not of --member".to_owned();
            return Err(Error::Request { file: name, message });
        }
        let progress = Progress::begin(&context.terminal, 0);
        return digest(Subject::Stream { name: &name, from: &mut io::stdin() }, algorithm, &progress);
    }
    let failed = |source| Error::Open { file: name.clone(), source };
    let file = File::open(path).map_err(|source| member(path).unwrap_or_else(|| failed(source)))?;
    let meta = file.metadata().map_err(failed)?;
    // Files in /proc have content although of length 0.
    if !meta.is_file() || meta.len() == 0 {
        let progress = Progress::begin(&context.terminal, 0);
        return digest(Subject::Stream { name: &name, from: &mut &file }, algorithm, &progress);
    }
    let source = FileSource::try_from(file).map_err(failed)?;
    let progress = Progress::begin(&context.terminal, source.len());
    digest(Subject::File { name: &name, source: &source }, algorithm, &progress)
}

/// The refusal of a file in an archive, whose bytes no other tool would hash under this name.
fn member(path: &Path) -> Option<Error> {
    let archive = path.ancestors().skip(1).find(|above| above.is_file())?;
    let archive = name(archive);
    let message = format!(
        "is in {archive}, and without --content the hash is that of a whole file: hash {archive}, or --content of the \
         tensors in it"
    );
    Some(Error::Request { file: name(path), message })
}

/// The digest of one file.
pub(crate) struct HashLine<'a> {
    path: &'a Path,
    algorithm: Algorithm,
    hashed: Hashed,
    /// The open file, where tensors were hashed.
    checkpoint: Option<Checkpoint>,
}

impl Text for HashLine<'_> {
    /// Prints the format of b3sum. A digest of tensors is marked, unlike that of a file.
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let mark = match (self.hashed.tensors, self.algorithm) {
            (None, _) => String::new(),
            (Some(_), Algorithm::Blake3) => "content-1:".to_owned(),
            (Some(_), algorithm) => format!("content-1-{}:", algorithm.name()),
        };
        if io::stdout().is_terminal() {
            let file = self.path.to_string_lossy();
            return Ok(writeln!(out, "{mark}{}  {}", self.hashed.digest, context.terminal.name(&file))?);
        }
        let (escape, file) = coreutils_name(self.path.as_os_str().as_encoded_bytes());
        write!(out, "{escape}{mark}{}  ", self.hashed.digest)?;
        out.write_all(&file)?;
        Ok(out.write_all(b"\n")?)
    }
}

/// A name as coreutils print: backslash, newline and carriage return are escaped, and then the line begins with a
/// backslash, the first value. `b3sum --check` and `sha256sum --check` read that.
fn coreutils_name(name: &[u8]) -> (&'static str, Vec<u8>) {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'\\' => escaped.extend(br"\\"),
            b'\n' => escaped.extend(br"\n"),
            b'\r' => escaped.extend(br"\r"),
            byte => escaped.push(*byte),
        }
    }
    (if escaped.len() > name.len() { "\\" } else { "" }, escaped)
}

impl Document for HashLine<'_> {
    const SCHEMA: &'static str = "blob.hash/1";
    const COMMAND: &'static str = "blob hash --json FILE...";
    const DESCRIPTION: &'static str = "the digest of a file, or of its tensors";

    fn sources(&self) -> Vec<&Checkpoint> {
        self.checkpoint.iter().collect()
    }
}

impl Fields for HashLine<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Type::String, FILE, |l| json!(name(l.path))),
            field("of", Type::Enum(&["file", "content-1"]), "what was hashed: its bytes, or its tensors", |l| {
                json!(if l.hashed.tensors.is_some() { "content-1" } else { "file" })
            }),
            field("algorithm", Type::Enum(&["blake3", "sha256"]), "the hash function", |l| json!(l.algorithm.name())),
            field("digest", Type::String, "the digest in hexadecimal", |l| json!(l.hashed.digest)),
            field("bytes", Type::Integer, "how many bytes it covers: the file's, or those of all tensors", |l| {
                json!(l.hashed.bytes)
            }),
            optional("tensors", Type::Integer, "how many tensors it covers", |l| json!(l.hashed.tensors)),
        ]
    }
}
