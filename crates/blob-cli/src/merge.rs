//! `blob merge`: the tensors of several files in one, or several tensors of a file as one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use blob_convert::Watch;
use blob_convert::regroup::{Made, name_beside};
use blob_io::{Checkpoint, Entry, Format, Kind};
use serde_json::json;

use crate::anew::{self, File, first, format_of, losses};
use crate::args::{Merge, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{self, Field, Fields, Is, Says, TEXTS, field};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::render::Render;
use crate::select::select;
use crate::units;

pub(crate) fn run(args: &Merge, context: &Context) -> Result<Status, Failure> {
    let to = format_of(&args.output, args.to)?;
    let files = match args.axis {
        None => &args.inputs[..],
        Some(_) => &args.inputs[..1],
    };
    let sources = files.iter().map(|path| Ok(open(path, &context.global)?));
    let sources: Vec<Checkpoint> = sources.collect::<Result<_, Failure>>()?;
    for source in &sources {
        source.whole()?;
    }
    let bytes = sources.iter().flat_map(Checkpoint::entries).map(Entry::byte_len).sum::<u64>();
    let progress = Progress::begin(&context.terminal, if to == Format::Npz { 2 * bytes } else { bytes });
    let tensors = match args.axis {
        None => union(files, &sources, &progress)?,
        Some(axis) => along(args, axis, &sources[0], &progress)?,
    };
    let out = [File { path: args.output.clone(), tensors }];
    let read: Vec<&Checkpoint> = sources.iter().collect();
    let warnings = losses(&read, &out, to);
    warnings.iter().for_each(|warning| context.terminal.warning(warning));
    let if_exists = if_exists(args.force);
    anew::check(&out, &read, if_exists)?;
    if !args.dry_run {
        anew::write(&out, to, if_exists, &progress)?;
    }
    progress.end();
    let [file] = out;
    context.say(Merged { args, sources: &sources, to, file, warnings })?;
    Ok(Status::Yes)
}

/// All tensors of all files.
fn union<'a>(
    paths: &[PathBuf],
    sources: &'a [Checkpoint],
    watch: &'a dyn Watch,
) -> Result<Vec<(String, Made<'a>)>, Failure> {
    let mut tensors: Vec<(String, Made<'a>)> = Vec::new();
    let mut known: HashMap<String, &Path> = HashMap::new();
    let mut clashes = Vec::new();
    for (path, source) in paths.iter().zip(sources) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        for entry in source.entries().iter().filter(|entry| entry.kind() != Kind::None) {
            let name = match sources {
                [_] => entry.name().to_owned(),
                _ => name_beside(source, entry, &stem),
            };
            match known.get(&name) {
                Some(other) => clashes.push(format!("{name:?} in {} and {}", other.display(), path.display())),
                None => {
                    known.insert(name.clone(), path);
                    tensors.push((name, Made::whole(source, entry, watch)?));
                }
            }
        }
    }
    if clashes.is_empty() {
        return Ok(tensors);
    }
    let names = units::plural(clashes.len() as u64, "tensor");
    let failure = Failure::new(format!("{names} would have the name of another: {}", first(&clashes)));
    Err(failure.help("`blob diff` says whether they are equal; files of which one has them merge"))
}

/// The tensors of a file with some of them as one.
fn along<'a>(
    args: &Merge,
    axis: i64,
    source: &'a Checkpoint,
    watch: &'a dyn Watch,
) -> Result<Vec<(String, Made<'a>)>, Failure> {
    let mut chosen: Vec<usize> = Vec::new();
    for tensor in &args.inputs[1..] {
        for index in select(source, &[tensor.to_string_lossy().into_owned()], false)? {
            if chosen.contains(&index) {
                let name = source.entries()[index].name();
                return Err(Failure::new(format!("{name:?} is named twice")));
            }
            chosen.push(index);
        }
    }
    let Some(place) = chosen.iter().min() else {
        return Err(Failure::new("--axis needs the tensors that are to become one")
            .help("for instance: blob merge FILE q k v --axis 0 --into qkv -o OUT"));
    };
    let into = args.into.as_deref().unwrap_or_default();
    let mut tensors = Vec::new();
    for (index, entry) in source.entries().iter().enumerate().filter(|(_, entry)| entry.kind() != Kind::None) {
        if index == *place {
            let entries: Vec<&Entry> = chosen.iter().map(|index| &source.entries()[*index]).collect();
            tensors.push((into.to_owned(), Made::merged(source, &entries, axis, watch)?));
        } else if !chosen.contains(&index) {
            if entry.name() == into {
                return Err(Failure::new(format!("{}: there is a tensor {into:?} already", source.name())));
            }
            tensors.push((entry.name().to_owned(), Made::whole(source, entry, watch)?));
        }
    }
    Ok(tensors)
}

/// What was written.
pub(crate) struct Merged<'a> {
    args: &'a Merge,
    sources: &'a [Checkpoint],
    to: Format,
    file: File<'a>,
    warnings: Vec<String>,
}

impl Render for Merged<'_> {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &self)?)
    }

    fn text(self, context: &Context, _: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        let (mark, arrow) = terminal.marks();
        let lead = if self.args.dry_run { "would write" } else { mark };
        let files = units::plural(self.sources.len() as u64, "file");
        let tensors = units::plural(self.file.tensors.len() as u64, "tensor");
        let (bytes, output) = (units::bytes(self.file.bytes()), self.args.output.to_string_lossy());
        terminal.note(format!(
            "{lead} {tensors} of {files}, {bytes} as {} {arrow} {}",
            self.to.name(),
            terminal.name(&output)
        ));
        Ok(())
    }
}

impl Says for Merged<'_> {
    const SCHEMA: &'static str = "blob.merge/1";
    const COMMAND: &'static str = "blob merge --json FILE... -o OUT";
    const WHAT: &'static str = "what was put together";
}

impl Fields for Merged<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("files", TEXTS, "the files that were read", |m| m.sources.iter().map(|s| json!(s.name())).collect()),
            field("output", Is::Text, "where to", |m| json!(m.file.path.to_string_lossy())),
            field("to", Is::Text, "the format that was written", |m| json!(m.to.name())),
            field("dry_run", Is::Flag, "whether nothing was written", |m| json!(m.args.dry_run)),
            field("tensors", Is::Whole, "how many tensors", |m| json!(m.file.tensors.len())),
            field("bytes", Is::Whole, "the bytes of the tensors", |m| json!(m.file.bytes())),
            field("warnings", TEXTS, "what is lost on the way", |m| json!(m.warnings)),
        ]
    }
}
