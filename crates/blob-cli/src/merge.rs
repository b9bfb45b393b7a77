//! `blob merge`: merges the tensors of several files into one file, or several tensors of a file into one tensor.

use std::collections::HashSet;

use blob_convert::change::{Effect, Group};
use blob_convert::regroup::{Clash, Union};
use blob_convert::report::json::{Document, Field, Fields, STRINGS, Type, field};
use blob_convert::transform::Merge as Joined;
use blob_convert::{Place, Selection};
use blob_io::words::listed_problems;
use blob_io::{Checkpoint, Entry, Format, Kind};
use serde_json::json;

use crate::args::Merge;
use crate::context::Context;
use crate::convert::{
    Conversion, NO_ROOM, WHOLE, asked, changes_field, contradicts, listed_changes, no_proof, notices, quoted,
    recipe_of, warn, warn_of_changes, warnings,
};
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::Out;
use crate::output::format::format_of;
use crate::output::progress::Progress;
use crate::output::signals;
use crate::output::sink::{Content, check_stdout, is_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::render::Text;
use crate::select::{found, select};
use crate::units;

pub(crate) fn run(args: &Merge, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.writing.dry_run);
    if args.output.is_dir() || args.output.to_string_lossy().ends_with(std::path::is_separator) {
        let failure = Failure::new(format!("{}: is a folder, and one file is written", args.output.display()));
        return Err(failure.help("name the file: -o FOLDER/net.safetensors"));
    }
    let to = format_of(&args.output, args.to)?;
    check_stdout(&args.output, Content::Binary, args.writing.dry_run, &context.global)?;
    if let Some(axis) = args.axis {
        return concatenate(args, axis, to, context);
    }
    let sources = args.inputs.iter().map(|path| Ok(open(path, &context.global)?));
    let sources: Vec<Checkpoint> = sources.collect::<Result<_, Failure>>()?;
    let target = if is_stdout(&args.output) {
        Place::Stdout
    } else {
        Place::File { path: &args.output, if_exists: args.writing.if_exists() }
    };
    let plan = union(args, &sources)?.plan(to, &target)?;
    let plan = if args.writing.strict { plan.strict()? } else { plan };
    let changes = plan.changes();
    let mut warned = warnings(&changes);
    signals::checked(|| plan.check())?;
    warn_of_changes(&changes, context);
    if !args.writing.dry_run {
        let progress = Progress::begin(&context.terminal, sources.iter().map(Checkpoint::file_len).sum());
        let contradicted = plan.run(&progress)?;
        progress.end();
        let of_files = sources.iter().zip(contradicted);
        let reports: Vec<String> = of_files.flat_map(|(file, names)| contradicts(file, &names)).collect();
        warn(reports.clone(), "--json prints them all", context);
        warned.extend(reports);
    }
    let bytes_in = sources.iter().map(|source| source.stored().len()).sum();
    let written = Written::new(&args.output, to.name(), plan.output_len(), begun);
    let written = written.tensors(plan.tensors().len()).of_bytes(bytes_in);
    let bytes = plan.tensors().iter().map(|tensor| tensor.spec.byte_len()).sum();
    context.print(Merged { written, sources: sources.iter().collect(), bytes, changes: &changes, warnings: warned })?;
    notices(&changes, context);
    let is_read_again = !args.writing.dry_run && !context.global.json && !is_stdout(&args.output);
    let mut files = args.inputs.iter().zip(&sources);
    if is_read_again && files.all(|(path, source)| path.is_file() && source.salvaged().is_none()) {
        let is_partial = changes.iter().any(|group| matches!(group.change.effect, Effect::LeftOut { .. }));
        match is_partial.then_some(WHOLE).or((!plan.has_receipt()).then_some(NO_ROOM)) {
            Some(why) => no_proof(why, context),
            None => prove(args, context),
        }
    }
    Ok(Status::Yes)
}

/// Prints how the output is proved.
fn prove(args: &Merge, context: &Context) {
    let others: String = args.inputs.iter().map(|input| format!(" --against {}", quoted(input))).collect();
    context.terminal.note(format!("  prove it:  blob verify {}{others}", quoted(&args.output)));
}

/// All tensors of all files. Fails if two of them have the same name.
fn union<'a>(args: &Merge, sources: &'a [Checkpoint]) -> Result<Union<'a>, Failure> {
    let selection = chosen_of_all(args, sources)?;
    let mut union = Union::of_some(&args.inputs, sources, args.prefix, &selection)?;
    union.skip_unsupported = args.skip.skip_unsupported;
    if union.clashes.is_empty() {
        return Ok(union);
    }
    let tensors = units::plural(union.clashes.len() as u64, "tensor");
    let failure = Failure::new(format!(
        "{tensors} would have the name of another: {}",
        listed_problems(Clash::in_words(&union.clashes))
    ));
    Err(failure.help(if args.prefix {
        "`blob rename` gives the tensors of one of the files other names"
    } else {
        "`blob diff` says whether they are equal; --prefix puts the file's name before them"
    }))
}

/// The selection, each pattern of which takes a tensor of one of the files.
fn chosen_of_all(args: &Merge, sources: &[Checkpoint]) -> Result<Selection, Failure> {
    let selection = args.only.selection();
    let mut unmatched: Vec<&String> = selection.patterns.iter().chain(&selection.exclude).collect();
    for source in sources {
        let here = found(source, &selection)?.unmatched;
        unmatched.retain(|pattern| here.contains(pattern));
    }
    match unmatched.first() {
        Some(pattern) => Err(Failure::no(format!("no tensor of the {} files matches {pattern:?}", sources.len()))),
        None => Ok(selection),
    }
}

/// Concatenates tensors of a file: a conversion, with a receipt.
fn concatenate(args: &Merge, axis: i64, to: Format, context: &Context) -> Result<Status, Failure> {
    let mut recipe = recipe_of(&args.inputs[0], Some(&args.output), context).selecting(args.only.selection());
    args.writing.set(Some(to), args.skip, &mut recipe.target);
    let mut conversion = Conversion::begin(recipe, args.writing.dry_run, context)?;
    let names = chosen(args, conversion.source())?;
    if names.is_empty() {
        return Err(Failure::new("--axis needs the tensors that are to become one")
            .help("for instance: blob merge FILE q k v --axis 0 --into qkv -o OUT"));
    }
    conversion.recipe.steps.push(Joined::new(names, axis, args.into.clone().unwrap_or_default()).into());
    let plan = conversion.plan(context)?;
    let found = conversion.run(&plan, context)?;
    let written = conversion.written(&plan, &found);
    let bytes = plan.tensors().iter().map(|tensor| tensor.spec.byte_len()).sum();
    let (sources, changes, warnings) = (vec![conversion.source()], &*found.changes, warnings(&found.changes));
    context.print(Merged { written, sources, bytes, changes, warnings })?;
    notices(&found.changes, context);
    conversion.prove(&plan, &found, context);
    Ok(Status::Yes)
}

/// The tensors to concatenate, in the order of the arguments. A diff is left out if its blob is among them.
fn chosen(args: &Merge, source: &Checkpoint) -> Result<Vec<String>, Failure> {
    let (entries, mut all, mut seen) = (source.entries(), Vec::new(), HashSet::new());
    for tensor in &args.inputs[1..] {
        for index in select(source, &Selection::matching([tensor.to_string_lossy()]))? {
            if !seen.insert(index) {
                return Err(Failure::new(format!("{:?} is named twice", entries[index].name())));
            }
            all.push(&entries[index]);
        }
    }
    let tensors = all.iter().filter(|entry| entry.kind() != Kind::Diff);
    let diffs: HashSet<&str> = tensors.filter_map(|entry| source.diff_of(entry)).map(Entry::name).collect();
    all.retain(|entry| entry.kind() != Kind::Diff || !diffs.contains(entry.name()));
    Ok(all.into_iter().map(|entry| entry.name().to_owned()).collect())
}

/// The result of the command.
pub(crate) struct Merged<'a> {
    written: Written<'a>,
    sources: Vec<&'a Checkpoint>,
    /// The bytes of the tensors.
    bytes: u64,
    changes: &'a [Group],
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
        let said: Vec<String> = std::iter::once(format!("from {files}")).chain(asked(self.changes)).collect();
        context.terminal.written(&self.written, &said);
        Ok(())
    }
}

impl Document for Merged<'_> {
    const SCHEMA: &'static str = "blob.merge/1";
    const COMMAND: &'static str = "blob merge --json FILE... -o OUT";
    const DESCRIPTION: &'static str = "what was put together";

    fn sources(&self) -> Vec<&Checkpoint> {
        self.sources.clone()
    }
}

impl Fields for Merged<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("files", STRINGS, "the files that were read", |m: &Self| {
                m.sources.iter().map(|s| json!(s.name())).collect()
            }),
            field("bytes", Type::Integer, "the bytes of the tensors", |m| json!(m.bytes)),
            changes_field(|m| listed_changes(m.changes)),
            field("warnings", STRINGS, "what is lost on the way", |m| json!(m.warnings)),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}
