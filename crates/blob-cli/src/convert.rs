//! `blob convert`: runs a plan of `blob_convert` and prints the result.

mod proof;

use std::io::Write;
use std::path::Path;

use blob_convert::{Options, Plan, Planned, Silent, Summary, Target, plan, plan_into};
use blob_io::caffe::Form;
use blob_io::{Checkpoint, Format};
use serde_json::json;

use crate::args::{CaffeForm, Convert, Global, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::info::file_warnings;
use crate::json::{self, Document, FILE, Field, Fields, NAME, STRINGS, Type, field, nullable, optional, properties};
use crate::open::open;
use crate::output::progress::Progress;
use crate::output::sink::{Content, check_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::output::{Out, Terminal};
use crate::regroup::no_format;
use crate::render::Text;
use crate::render::table::{Column, Table};
use crate::source;
use crate::transforms;
use crate::units;
use proof::print_proof;

/// At most this many warnings and left-out arrays are printed one by one.
const MAX_LISTED: usize = 20;

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
    check_stdout(&args.output, Content::Binary, args.dry_run, context)?;
    source::check_output(&args.input, &args.output, if_exists(args.force))?;
    let checkpoint = open(&args.input, &context.global)?;
    source::check_shards(&checkpoint, &args.output)?;
    let base = match &args.into {
        Some(path) => {
            source::check_output(path, &args.output, if_exists(args.force))?;
            // `--from` is the format of the input, not of the base.
            Some(open(path, &Global { from: None, ..context.global.clone() })?)
        }
        None => None,
    };
    let to = match &base {
        Some(base) => format_into(&args.output, base)?,
        None => format_of(args, &target, checkpoint.format())?,
    };
    let options = add(&checkpoint, options(args, to, &checkpoint)?)?;
    let plan = match &base {
        Some(base) => plan_into(&checkpoint, base, &options, &target)?,
        None => plan(&checkpoint, &options, &target)?,
    };
    if args.sha256 && !plan.has_receipt() && !context.global.json {
        let message = format!("--sha256 is for the receipt, and a file of {} has none", to.name());
        return Err(Failure::new(message).help("--json prints the digest, where the output is a file"));
    }
    print_warnings(&checkpoint, &plan, context);
    if args.dry_run {
        plan.check(&Silent)?;
        let written = written(args, &checkpoint, &plan, plan.output_len(), begun);
        context.print(Converted { written, checkpoint: &checkpoint, plan: &plan, reports: Vec::new(), done: None })?;
        return Ok(Status::Yes);
    }
    let progress = Progress::begin(&context.terminal, checkpoint.file_len());
    let done = plan.run(&progress)?;
    progress.end();
    let contradicted = done.contradicted.iter().map(|name| contradicts(&checkpoint, name));
    let reports: Vec<String> = contradicted.chain(done.found.iter().map(ToString::to_string)).collect();
    warn(&reports, "--json prints them all", context);
    let written = written(args, &checkpoint, &plan, done.bytes_out, begun);
    context.print(Converted { written, checkpoint: &checkpoint, plan: &plan, reports, done: Some(&done) })?;
    if !context.global.json {
        print_proof(args, &target, &plan, &checkpoint, context);
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
    Written { index, files, ..written.tensors(plan.tensors().len()).from_bytes(checkpoint.stored().len()) }
}

/// The options of the conversion. Refuses options that do not apply to the output's format.
fn options(args: &Convert, to: Format, checkpoint: &Checkpoint) -> Result<Options, Failure> {
    let mut options = transforms::options(&args.transforms, to, checkpoint)?;
    (options.dense, options.sha256, options.anew) = (args.dense, args.sha256, args.anew);
    (options.params_version, options.shard_size) = (args.params_version, args.shard_size);
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
    let written = || {
        let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
        names.join(", ")
    };
    match target {
        Target::Folder { .. } => Ok(Format::Npy),
        Target::Stdout => Err(Failure::new("-o - needs --to, because standard output has no extension")
            .help(format!("formats: {}", written()))),
        _ => {
            let extension = args.output.extension().and_then(|e| e.to_str());
            let known = extension.and_then(Format::from_extension);
            let is_kept = match known {
                Some(_) => extension.is_some_and(|extension| source.is_usual(extension)),
                None => extension.is_some() && args.input.extension() == args.output.extension(),
            };
            let format = if is_kept { Some(source) } else { known };
            format.ok_or_else(|| {
                Failure::new(no_format(&args.output))
                    .help(format!("name a format with --to: {}; a folder's name ends with /", written()))
            })
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

/// Prints the warnings about the source, and the tensors that will be left out.
fn print_warnings(checkpoint: &Checkpoint, plan: &Plan<'_>, context: &Context) {
    let left_out = plan.left_out().iter().map(|(name, reason)| format!("left out {name:?}: {reason}"));
    let notes = plan.notes().iter().cloned();
    let lines: Vec<String> = file_warnings(checkpoint).chain(notes).chain(left_out).collect();
    let rest = if plan.has_receipt() { "the receipt has them all" } else { "--dry-run --json prints them all" };
    warn(&lines, rest, context);
}

fn warn(lines: &[String], rest: &str, context: &Context) {
    for line in lines.iter().take(MAX_LISTED) {
        context.terminal.warning(line);
    }
    if lines.len() > MAX_LISTED {
        context.terminal.warning(format!("and {} more; {rest}", lines.len() - MAX_LISTED));
    }
}

/// The result of a conversion, or of a dry run.
pub(crate) struct Converted<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    plan: &'a Plan<'a>,
    /// The warnings that arose during the conversion.
    reports: Vec<String>,
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
                Type::Array(&Type::Object(properties::<Planned>)),
                "what was changed about tensors",
                |f| f.plan.tensors().iter().filter(|t| !t.changes.is_empty()).map(json::value).collect(),
            ),
            field("left_out", Type::Array(&Type::Object(properties::<LeftOut<'_>>)), "what was not written", |f| {
                f.plan.left_out().iter().map(|(name, reason)| json::value(&LeftOut { name, reason })).collect()
            }),
            field("warnings", STRINGS, "what is odd about the input", |f| {
                file_warnings(f.checkpoint)
                    .chain(f.plan.notes().iter().cloned())
                    .chain(f.reports.iter().cloned())
                    .collect()
            }),
            optional("blake3", Type::String, BLAKE3, |f| json!(f.done.map(|done| &done.blake3))),
            optional("sha256", Type::String, "the input's SHA-256, with --sha256", |f| {
                json!(f.done.and_then(|done| done.sha256.as_ref()))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

impl Fields for Planned {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |t| json!(t.spec.name)),
            field("changes", STRINGS, "what was changed", |t| json!(t.changes)),
        ]
    }
}

/// A tensor that is not in the output.
struct LeftOut<'a> {
    name: &'a str,
    reason: &'a str,
}

impl Fields for LeftOut<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |l| json!(l.name)),
            field("reason", Type::String, "why, in words", |l| json!(l.reason)),
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
        terminal.written(&self.written, &[]);
        if self.plan.is_copy() {
            terminal.note(KEPT);
        }
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
                changes => terminal.text(&changes.join("; ")).into_owned(),
            }),
        ];
        let mut table = Table::new(terminal, columns);
        for tensor in self.plan.tensors() {
            table.row(out, tensor)?;
        }
        Ok(table.finish(out)?)
    }
}
