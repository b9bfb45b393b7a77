//! `blob merge`: merges the tensors of several files into one file, or several tensors of a file into one tensor.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use blob_convert::regroup::{Gathered, Gatherer, name_beside};
use blob_convert::{Selection, Watch};
use blob_io::{Checkpoint, Entry, Format, Group, Kind, TensorName};
use serde_json::json;

use crate::args::{Merge, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{Document, Field, Fields, STRINGS, Type, field};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::{Content, check_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::regroup::{self, File, abridged, format_of, losses};
use crate::render::Text;
use crate::select::select;
use crate::units;

pub(crate) fn run(args: &Merge, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    if args.output.is_dir() || args.output.to_string_lossy().ends_with(std::path::is_separator) {
        let failure = Failure::new(format!("{}: is a folder, and one file is written", args.output.display()));
        return Err(failure.help("name the file: -o FOLDER/net.safetensors"));
    }
    let to = format_of(&args.output, args.to)?;
    check_stdout(&args.output, Content::Binary, args.dry_run, &context.global)?;
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
    let mut warnings = Vec::new();
    let tensors = match args.axis {
        None => union(files, &sources, args.prefix, &progress)?,
        Some(axis) => concatenated(args, axis, &sources[0], &progress, &mut warnings)?,
    };
    let out = [File { path: args.output.clone(), tensors }];
    let read: Vec<&Checkpoint> = sources.iter().collect();
    warnings.extend(losses(&read, &out, to));
    warnings.iter().for_each(|warning| context.terminal.warning(warning));
    let if_exists = if_exists(args.force);
    regroup::check(&out, &read, to, if_exists, None)?;
    let bytes_out = out[0].file_len(to).map_err(regroup::refused)?;
    if !args.dry_run {
        regroup::write(&out, &read, (to, if_exists), &progress)?;
    }
    progress.end();
    let [file] = out;
    let bytes_in = sources.iter().map(|source| source.stored().len()).sum();
    let written = Written::new(&args.output, to.name(), bytes_out, begun);
    let written = written.tensors(file.tensors.len()).of_bytes(bytes_in);
    context.print(Merged { written, sources: &sources, bytes: file.bytes(), warnings })?;
    Ok(Status::Yes)
}

/// All tensors of all files. Fails if two of them have the same name.
fn union<'a>(
    paths: &[PathBuf],
    sources: &'a [Checkpoint],
    with_prefix: bool,
    watch: &'a dyn Watch,
) -> Result<Vec<(String, Gathered<'a>)>, Failure> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    sources.iter().flat_map(Checkpoint::names).for_each(|name| *counts.entry(name).or_default() += 1);
    let mut tensors: Vec<(String, Gathered<'a>)> = Vec::new();
    let mut names: HashMap<String, &Path> = HashMap::new();
    let mut clashes = Vec::new();
    let prefixes = if with_prefix { prefixes(paths) } else { paths.iter().map(|path| stem(path)).collect() };
    for ((path, prefix), source) in paths.iter().zip(prefixes).zip(sources) {
        let gatherer = Gatherer::new(source, watch);
        for entry in source.entries().iter().filter(|entry| entry.kind() != Kind::None) {
            let name = match sources {
                [_] => entry.name().to_owned(),
                _ if with_prefix
                    && !entry.name().starts_with('@')
                    && counts.get(entry.name()).is_some_and(|count| *count > 1) =>
                {
                    prefixed(entry.name(), &prefix)
                }
                _ => name_beside(source, entry, &prefix),
            };
            match names.get(&name) {
                Some(other) => clashes.push(format!("{name:?} in {} and {}", other.display(), path.display())),
                None => {
                    names.insert(name.clone(), path);
                    tensors.push((name, gatherer.whole(entry)?));
                }
            }
        }
    }
    if clashes.is_empty() {
        return Ok(tensors);
    }
    let tensors = units::plural(clashes.len() as u64, "tensor");
    let failure = Failure::new(format!("{tensors} would have the name of another: {}", abridged(&clashes)));
    Err(failure.help(if with_prefix {
        "`blob rename` gives the tensors of one of the files other names"
    } else {
        "`blob diff` says whether they are equal; --prefix puts the file's name before them"
    }))
}

/// What tells the files apart: their names without extension; else with it; else with as many folders as that takes.
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

/// A name behind that of its file; `arg:` and `aux:`, by which MXNet sorts them, stay in front.
fn prefixed(name: &str, stem: &str) -> String {
    let (group, name) = Group::split(name);
    format!("{}{stem}/{name}", group.map_or("", Group::prefix))
}

/// The tensors of a file, with the chosen ones concatenated into one. If all of these have diffs, the diffs are
/// concatenated too; otherwise a warning says that they are lost.
fn concatenated<'a>(
    args: &Merge,
    axis: i64,
    source: &'a Checkpoint,
    watch: &'a dyn Watch,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, Gathered<'a>)>, Failure> {
    let (entries, gatherer) = (source.entries(), Gatherer::new(source, watch));
    let chosen = chosen(args, source)?;
    let Some(first) = chosen.first().map(|entry| entry.name()) else {
        return Err(Failure::new("--axis needs the tensors that are to become one")
            .help("for instance: blob merge FILE q k v --axis 0 --into qkv -o OUT"));
    };
    let diffs: Vec<&Entry> = chosen.iter().filter_map(|entry| diff_of(source, entry)).collect();
    let chosen_names: HashSet<&str> = chosen.iter().chain(&diffs).map(|entry| entry.name()).collect();
    // The new tensor takes the position of the first of them in the file.
    let position = entries.iter().find(|entry| chosen_names.contains(entry.name())).map_or(first, Entry::name);
    let into = args.into.as_deref().unwrap_or_default();
    let mut tensors = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kind() != Kind::None) {
        if entry.name() == position {
            tensors.push((into.to_owned(), gatherer.merged(&chosen, axis)?));
            if diffs.len() == chosen.len() {
                tensors.push((TensorName::diff_of(into), gatherer.merged(&diffs, axis)?));
            }
        } else if !chosen_names.contains(entry.name()) {
            if entry.name() == into {
                return Err(Failure::new(format!("{}: there is a tensor {into:?} already", source.name())));
            }
            tensors.push((entry.name().to_owned(), gatherer.whole(entry)?));
        }
    }
    if !diffs.is_empty() && diffs.len() < chosen.len() {
        let lost = units::plural(diffs.len() as u64, "diff");
        warnings.push(format!("{}: left out {lost}: not every tensor of {into:?} has one", source.name()));
    }
    Ok(tensors)
}

/// The diff of a blob; a diff itself has none.
fn diff_of<'a>(source: &'a Checkpoint, entry: &Entry) -> Option<&'a Entry> {
    source.diff_of(entry).filter(|_| entry.kind() != Kind::Diff)
}

/// The tensors to concatenate, in the order of the arguments. A diff is left out if its blob is among them.
fn chosen<'a>(args: &Merge, source: &'a Checkpoint) -> Result<Vec<&'a Entry>, Failure> {
    let (entries, mut all, mut seen) = (source.entries(), Vec::new(), HashSet::new());
    for tensor in &args.inputs[1..] {
        for index in select(source, &Selection::matching([tensor.to_string_lossy()]))? {
            if !seen.insert(index) {
                return Err(Failure::new(format!("{:?} is named twice", entries[index].name())));
            }
            all.push(&entries[index]);
        }
    }
    let diffs: HashSet<&str> = all.iter().filter_map(|entry| diff_of(source, entry)).map(Entry::name).collect();
    let is_diff = |entry: &Entry| entry.kind() == Kind::Diff && diffs.contains(entry.name());
    all.retain(|entry| !is_diff(entry));
    Ok(all)
}

/// The result of the command.
pub(crate) struct Merged<'a> {
    written: Written<'a>,
    sources: &'a [Checkpoint],
    /// The bytes of the tensors.
    bytes: u64,
    warnings: Vec<String>,
}

impl Writes for Merged<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Text for Merged<'_> {
    fn text(self, context: &Context, _: &mut Out) -> Result<(), Failure> {
        let files = units::plural(self.sources.len() as u64, "file");
        context.terminal.written(&self.written, &[format!("from {files}")]);
        Ok(())
    }
}

impl Document for Merged<'_> {
    const SCHEMA: &'static str = "blob.merge/1";
    const COMMAND: &'static str = "blob merge --json FILE... -o OUT";
    const DESCRIPTION: &'static str = "what was put together";

    fn sources(&self) -> Vec<&Checkpoint> {
        self.sources.iter().collect()
    }
}

impl Fields for Merged<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("files", STRINGS, "the files that were read", |m: &Self| {
                m.sources.iter().map(|s| json!(s.name())).collect()
            }),
            field("bytes", Type::Integer, "the bytes of the tensors", |m| json!(m.bytes)),
            field("warnings", STRINGS, "what is lost on the way", |m| json!(m.warnings)),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}
