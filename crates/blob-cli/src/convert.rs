//! `blob convert`: runs a plan of `blob_convert` and prints the result.

mod proof;
mod said;

use std::io::Write;
use std::path::Path;

use blob_convert::change::Group;
use blob_convert::transform::NetOrigin;
use blob_convert::{LeftOut, Options, Plan, Planned, RECEIPT_KEY, Silent, Summary, Target, plan, plan_into};
use blob_io::caffe::Form;
use blob_io::{Checkpoint, Error, Format, Remedy, Warning};
use serde_json::{Value, json};

use crate::args::{CaffeForm, Convert, Global, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{self, Document, FILE, Field, Fields, NAME, STRINGS, Type, field, nullable, optional, properties};
use crate::open::open;
use crate::output::progress::Progress;
use crate::output::sink::{Content, check_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::output::{Out, Terminal};
use crate::regroup::no_format;
use crate::render::Text;
use crate::render::table::{Column, Table};
use crate::transforms;
use crate::units;
use proof::print_proof;
pub(crate) use proof::quoted;
use said::{asked, is_among, notices, of_arrays, warn, warn_of_changes, warn_of_source};

/// The note if the format stays the same and the output is a copy.
const KEPT: &str = "same format: the bytes are kept, no receipt is added; --anew writes it anew";

/// Converts a file. `add` lets another command change the options once the source is open.
pub(crate) fn run(
    args: &Convert,
    context: &Context,
    add: &dyn Fn(&Checkpoint, Options) -> Result<Options, Failure>,
) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    let target = target(args)?;
    if args.no_receipt && matches!(target, Target::Folder { .. }) {
        let message = format!("{}: the receipt of a folder names its files, and stays", args.output.display());
        return Err(Failure::new(message).help("write to a file, or leave --no-receipt out"));
    }
    check_stdout(&args.output, Content::Binary, args.dry_run, &context.global)?;
    for read in args.transforms.names.as_deref().into_iter().chain(args.transforms.nets.paths()) {
        blob_convert::check_output(read, &args.output, if_exists(args.force))?;
    }
    let checkpoint = open(&args.input, &context.global)?;
    let base = match &args.into {
        // `--from` is the format of the input, not of the base.
        Some(path) => Some(open(path, &Global { from: None, ..context.global.clone() })?),
        None => None,
    };
    let to = match &base {
        Some(base) => format_into(&args.output, base)?,
        None => format_of(args, &target, checkpoint.format())?,
    };
    let options = add(&checkpoint, options(args, to, &checkpoint)?)?;
    let plan = match &base {
        Some(base) => plan_into(&checkpoint, base, &options, &target),
        None => plan(&checkpoint, &options, &target),
    };
    let plan = plan.map_err(|error| refused(error, &checkpoint))?;
    if args.sha256 && !plan.has_receipt() && !context.global.json {
        let message = format!("--sha256 is for the receipt, and a file of {} has none", to.name());
        return Err(Failure::new(message).help("--json prints the digest, where the output is a file"));
    }
    let mut changes = plan.changes();
    warn_of_source(&checkpoint, &changes, context);
    warn_of_changes(&changes, context);
    if args.dry_run {
        plan.check(&Silent)?;
        let progress = Progress::begin(&context.terminal, plan.output_len());
        let lost = plan.lost_values(&progress)?;
        progress.end();
        warn_of_changes(&lost, context);
        changes.extend(lost);
        let written = written(args, &checkpoint, &plan, plan.output_len(), begun);
        let found = Found { reports: Vec::new(), changes };
        context.print(Converted { written, checkpoint: &checkpoint, plan: &plan, found, done: None })?;
        return Ok(Status::Yes);
    }
    let progress = Progress::begin(&context.terminal, checkpoint.file_len());
    let done = plan.run(&progress)?;
    progress.end();
    let reports: Vec<String> = done.contradicted.iter().map(|name| contradicts(&checkpoint, name)).collect();
    warn(reports.clone(), "--json prints them all", context);
    let lost = done.changes();
    warn_of_changes(&lost, context);
    changes.extend(lost);
    let written = written(args, &checkpoint, &plan, done.bytes_out, begun);
    let found = Found { reports, changes };
    context.print(Converted { written, checkpoint: &checkpoint, plan: &plan, found, done: Some(&done) })?;
    if let Some(bytes) = plan.frame_bytes() {
        let bytes = units::bytes(bytes);
        context.terminal.note(format!("  {bytes} around the tensors come from the receipt of the input"));
    }
    if !done.is_recognised {
        let to = plan.to().name();
        context.terminal.note(format!("  its content does not show its format: --from {to} reads it"));
    }
    if !context.global.json {
        print_proof(args, &target, &plan, (&checkpoint, &done), context);
    }
    Ok(Status::Yes)
}

/// What is written. The time includes listing and planning, which take long for a million arrays.
fn written<'a>(
    args: &'a Convert,
    checkpoint: &Checkpoint,
    plan: &'a Plan<'_>,
    bytes_out: u64,
    begun: Begun,
) -> Written<'a> {
    let (index, files) = plan.index().map_or((None, 1), |(index, count)| (Some(index), count as u64));
    let written = Written::new(&args.output, plan.to().name(), bytes_out, begun);
    let output = written.output.filter(|_| !args.is_unnamed);
    Written { output, index, files, ..written.tensors(plan.tensors().len()).of_bytes(checkpoint.stored().len()) }
}

/// The options of the conversion. Refuses options that do not apply to the output's format.
fn options(args: &Convert, to: Format, checkpoint: &Checkpoint) -> Result<Options, Failure> {
    let mut options = transforms::options(&args.transforms, to, checkpoint)?;
    (options.dense, options.sha256, options.anew) = (args.dense, args.sha256, args.anew);
    (options.params_version, options.shard_size) = (args.params_version, args.shard_size);
    (options.skip_unsupported, options.without_receipt) = (args.skip_unsupported, args.no_receipt);
    if args.params_version.is_some() && !to.is_mxnet() {
        return Err(Failure::new(format!("--params-version is of MXNet's files, and the output is {}", to.name())));
    }
    if !args.form.is_empty() {
        if !to.is_caffe() {
            return Err(Failure::new(format!("--form applies to Caffe's files, and the output is {}", to.name())));
        }
        let has = |form| args.form.contains(&form);
        let form = Form { legacy: has(CaffeForm::Legacy), raw: has(CaffeForm::Raw), v1: has(CaffeForm::V1) };
        options.form = Some(form);
    }
    Ok(options)
}

/// The warning for an array that differs from its digest in the source's receipt.
fn contradicts(checkpoint: &Checkpoint, name: &str) -> String {
    let whose = format!("what the receipt in {} says was written", checkpoint.name());
    match name {
        "" => format!("the arrays together are not {whose}"),
        name => format!("array {name:?} is not {whose}"),
    }
}

/// The refusal of a conversion; names that do not fit may have had a receipt, which leads back to those that do.
fn refused(error: Error, source: &Checkpoint) -> Failure {
    let is_of_names = matches!(&error, Error::Misfit { remedy: Some(Remedy::Names), .. });
    let has_receipt = source.metadata().iter().any(|(key, _)| key == RECEIPT_KEY);
    let failure = Failure::from(error);
    if !is_of_names || has_receipt || source.format() != Format::Safetensors {
        return failure;
    }
    failure.help(format!(
        "{} has no receipt, by which names of before go back; in Python save_file(…, metadata=…) keeps what \
         safe_open(…).metadata() has of it. `blob rename --map FILE` gives other names, by lines `OLD NEW`",
        source.name()
    ))
}

/// The output's file or folder, or standard output.
fn target(args: &Convert) -> Result<Target<'_>, Failure> {
    let (path, if_exists) = (&*args.output, if_exists(args.force));
    let text = path.to_string_lossy();
    if text == "-" {
        return Ok(Target::Stdout);
    }
    if !text.ends_with(std::path::is_separator) && !path.is_dir() {
        return Ok(Target::File { path, if_exists });
    }
    match args.to {
        None | Some(Format::Npy) => Ok(Target::Folder { path, if_exists }),
        Some(other) => Err(Failure::new(format!("{text} is a folder, and holds npy files, not {}", other.name()))),
    }
}

/// The format to write. The source's format is kept if it is one of several with the output's extension, as for NeoML,
/// or if input and output have the same unknown extension.
fn format_of(args: &Convert, target: &Target<'_>, source: Format) -> Result<Format, Failure> {
    if let Some(format) = args.to {
        return Ok(format);
    }
    let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    match target {
        Target::Folder { .. } => Ok(Format::Npy),
        Target::Stdout if args.is_unnamed => Ok(source),
        Target::Stdout => Err(Failure::new("-o - needs --to, because standard output has no extension")
            .help(format!("formats: {}", names.join(", ")))),
        _ => {
            let extension = args.output.extension().and_then(|e| e.to_str());
            let known = extension.and_then(Format::from_extension);
            let is_kept = match known {
                Some(_) => extension.is_some_and(|extension| source.is_usual(extension)),
                None => extension.is_some() && args.input.extension() == args.output.extension(),
            };
            let format = if is_kept { Some(source) } else { known };
            format.ok_or_else(|| no_format(&args.output, &names))
        }
    }
}

/// The format of the base that arrays are put into. Refuses an output with the extension of another format.
fn format_into(output: &Path, base: &Checkpoint) -> Result<Format, Failure> {
    let format = base.format();
    let extension = output.extension().and_then(|extension| extension.to_str());
    match extension.and_then(Format::from_extension) {
        Some(promised) if !extension.is_some_and(|extension| format.is_usual(extension)) => {
            let (output, name) = (output.display(), base.name());
            let message = format!("{output}: would be {}, as {name} is, not {}", format.name(), promised.name());
            Err(Failure::new(message).help("--into changes values alone; convert the result to another format"))
        }
        _ => Ok(format),
    }
}

/// What a conversion has to say.
struct Found {
    /// The warnings that arose during the conversion.
    reports: Vec<String>,
    changes: Vec<Group>,
}

/// The result of a conversion, or of a dry run.
pub(crate) struct Converted<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    plan: &'a Plan<'a>,
    found: Found,
    /// `None` in a dry run.
    done: Option<&'a Summary>,
}

impl Writes for Converted<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Document for Converted<'_> {
    const SCHEMA: &'static str = "blob.convert/1";
    const COMMAND: &'static str = "blob convert --json IN -o OUT";
    const DESCRIPTION: &'static str = "what was written";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Converted<'_> {
    fn fields() -> Vec<Field<Self>> {
        const BLAKE3: &str = "the input's BLAKE3; not in a dry run";
        let own = vec![
            field("file", Type::String, FILE, |f: &Self| json!(f.checkpoint.name())),
            nullable(
                "index",
                Type::String,
                "the index that opens the output, with --shard-size where it is in shards",
                |f| json!(f.plan.index().map(|(index, _)| index.to_string_lossy())),
            ),
            field("from", Type::String, "the format that was read", |f| json!(f.checkpoint.format().name())),
            field(
                "copy",
                Type::Boolean,
                "whether the output is the input, byte for byte, as formats with a receipt are kept",
                |f| json!(f.plan.is_copy()),
            ),
            field(
                "changes",
                Type::Array(&Type::Object(properties::<Group>)),
                "what was changed, one item a kind",
                |f| f.found.changes.iter().map(json::value).collect(),
            ),
            field("left_out", Type::Array(&Type::Object(properties::<LeftOut>)), "what was not written", |f| {
                f.plan.left_out().iter().map(json::value).collect()
            }),
            nullable("net", Type::Object(properties::<NetOrigin>), "the net that was followed", |f| {
                f.plan.net().map_or(Value::Null, json::value)
            }),
            field("warnings", STRINGS, "what is odd about the input, and changes that nobody asked for", |f| {
                let warned = f.found.changes.iter().filter(|group| group.change.is_warned());
                let is_kept = |warning: &&Warning| !is_among(&f.found.changes, warning);
                let whole = f.checkpoint.warnings().iter().filter(is_kept).map(ToString::to_string);
                whole
                    .chain(of_arrays(f.checkpoint, &f.found.changes).map(|(name, w)| format!("{name:?}: {w}")))
                    .chain(f.found.reports.iter().cloned())
                    .chain(warned.map(ToString::to_string))
                    .collect()
            }),
            field(
                "frame_bytes",
                Type::Integer,
                "how many bytes come from the receipt of the input, which had the file around its tensors",
                |f| json!(f.plan.frame_bytes().unwrap_or(0)),
            ),
            optional(
                "recognised",
                Type::Boolean,
                "whether the output's content shows its format; otherwise `--from` reads it",
                |f| json!(f.done.map(|done| done.is_recognised)),
            ),
            optional("blake3", Type::String, BLAKE3, |f| json!(f.done.map(|done| &done.blake3))),
            optional("sha256", Type::String, "the input's SHA-256, with --sha256", |f| {
                json!(f.done.and_then(|done| done.sha256.as_ref()))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

impl Fields for LeftOut {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |l| json!(l.name)),
            field("reason", Type::String, "why, in words", |l| json!(l.reason)),
            field("asked", Type::Boolean, "whether an option asks for it", |l| json!(l.is_asked)),
        ]
    }
}

impl Text for Converted<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if self.done.is_none() {
            self.table(terminal, out)?;
            // The table comes before the message on standard error.
            out.flush()?;
        }
        terminal.written(&self.written, &asked(&self.found.changes));
        if self.plan.is_copy() {
            terminal.note(KEPT);
        }
        notices(&self.found.changes, context);
        Ok(())
    }
}

impl Converted<'_> {
    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let columns = vec![
            Column::name("NAME", 24).of(|t: &Planned, terminal| terminal.name(&t.spec.name).into_owned()),
            Column::left("DTYPE").drop_order(1).of(|t, _| t.spec.dtype.to_string()),
            Column::left("SHAPE").drop_order(2).of(|t, terminal| terminal.shape(&t.spec.shape)),
            Column::right("BYTES").drop_order(3).of(|t, _| units::bytes(t.spec.byte_len())),
            Column::text("CHANGES").of(|t, terminal| match &t.changes[..] {
                [] => "-".to_owned(),
                changes => {
                    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
                    terminal.text(&words.join("; ")).into_owned()
                }
            }),
        ];
        let names = |each: &mut dyn FnMut(&str)| {
            self.plan.tensors().iter().for_each(|tensor| each(&terminal.name(&tensor.spec.name)));
        };
        let mut table = Table::new(terminal, columns).named(names);
        for tensor in self.plan.tensors() {
            table.row(out, tensor)?;
        }
        Ok(table.finish(out)?)
    }
}
