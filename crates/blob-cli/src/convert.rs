//! `blob convert`: asks `blob_convert` for a plan, carries it out, and says what happened.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use blob_convert::{Options, Plan, Planned, Silent, Summary, Target, plan, plan_into};
use blob_io::caffe::Form;
use blob_io::{Checkpoint, Format};
use serde_json::json;

use crate::args::{CaffeForm, Convert, Global, if_exists};
use crate::context::Context;
use crate::escape::escape;
use crate::failure::{Failure, Status};
use crate::info::odd;
use crate::json::{self, FILE, Field, Fields, Is, NAME, Says, TEXTS, field, or_null, shapes, sometimes};
use crate::open::open;
use crate::output::progress::Progress;
use crate::output::{Out, Terminal};
use crate::render::Render;
use crate::render::table::{Column, Table};
use crate::source;
use crate::transforms;
use crate::units;

/// How many warnings and left-out arrays are told one by one.
const TOLD: usize = 20;

/// What to say of a conversion within one format.
const KEPT: &str = "same format: the bytes are kept, no receipt is added; --anew writes it anew";

/// `add` is what another command adds to the options, once it knows the source.
pub(crate) fn run(
    args: &Convert,
    context: &Context,
    add: &dyn Fn(&Checkpoint, Options) -> Result<Options, Failure>,
) -> Result<Status, Failure> {
    let begun = Instant::now();
    let target = target(args)?;
    if context.global.json && matches!(target, Target::Stdout) && !args.dry_run {
        return Err(Failure::new("--json and -o - would both write to standard output"));
    }
    source::keep(&args.input, &args.output, if_exists(args.force))?;
    let checkpoint = open(&args.input, &context.global)?;
    source::keep_shards(&checkpoint, &args.output)?;
    let base = match &args.into {
        Some(path) => {
            source::keep(path, &args.output, if_exists(args.force))?;
            // `--from` is the format of what is put in.
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
    tell(&checkpoint, &plan, context);
    if args.dry_run {
        plan.check(&Silent)?;
        context.say(Facts { args, checkpoint: &checkpoint, plan: &plan, came_up: Vec::new(), done: None })?;
        return Ok(Status::Yes);
    }
    let progress = Progress::begin(&context.terminal, checkpoint.file_len());
    let done = plan.run(&progress)?;
    progress.end();
    let contradicted = done.contradicted.iter().map(|name| contradicts(&checkpoint, name));
    let came_up: Vec<String> = contradicted.chain(done.found.iter().map(ToString::to_string)).collect();
    warn(&came_up, "--json prints them all", context);
    // With listing and planning, which take long for a million arrays.
    let seconds = begun.elapsed().as_secs_f64();
    context.say(Facts { args, checkpoint: &checkpoint, plan: &plan, came_up, done: Some((&done, seconds)) })?;
    if !context.global.json {
        prove_it(args, &target, &plan, &checkpoint, context);
    }
    Ok(Status::Yes)
}

/// How to convert; an option of another format than the output's is refused.
fn options(args: &Convert, to: Format, checkpoint: &Checkpoint) -> Result<Options, Failure> {
    let mut options = transforms::options(&args.transforms, to, checkpoint)?;
    (options.dense, options.sha256, options.anew) = (args.dense, args.sha256, args.anew);
    (options.params_version, options.shard_size) = (args.params_version, args.shard_size);
    if args.params_version.is_some() && !to.is_mxnet() {
        return Err(Failure::new(format!("--params-version is of MXNet's files, and the output is {}", to.name())));
    }
    if !args.form.is_empty() {
        if !to.is_caffe() {
            return Err(Failure::new(format!("--form is of Caffe's files, and the output is {}", to.name())));
        }
        let has = |form| args.form.contains(&form);
        let form = Form { legacy: has(CaffeForm::Legacy), raw: has(CaffeForm::Raw), v1: has(CaffeForm::V1) };
        options.form = Some(form);
    }
    Ok(options)
}

/// What to say of an array that is not what its file's receipt says.
fn contradicts(checkpoint: &Checkpoint, name: &str) -> String {
    let whose = format!("what the receipt in {} says was written", checkpoint.name());
    match name {
        "" => format!("the arrays together are not {whose}"),
        name => format!("array {name:?} is not {whose}"),
    }
}

/// Where the output goes.
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

/// The format to write. A file stays what it is where its format is one of several with the extension, as NeoML's are, or
/// where the extension is of no format and its own.
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
            let stays = match known {
                Some(_) => extension.is_some_and(|extension| source.is_usual(extension)),
                None => extension.is_some() && args.input.extension() == args.output.extension(),
            };
            let format = if stays { Some(source) } else { known };
            format.ok_or_else(|| {
                Failure::new(no_format(&args.output))
                    .help(format!("name a format with --to: {}; a folder's name ends with /", written()))
            })
        }
    }
}

/// The format of the file that arrays are put into; an output whose extension promises another one is refused.
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

/// What to say of a file whose name does not tell what to write.
pub(crate) fn no_format(path: &Path) -> String {
    let name = path.display();
    match path.extension() {
        Some(extension) => format!("{name}: blob writes no .{} files", extension.display()),
        None => format!("{name}: a name without an extension does not say what to write"),
    }
}

/// Tells what is odd about the source and what will be left out, before the work begins.
fn tell(checkpoint: &Checkpoint, plan: &Plan<'_>, context: &Context) {
    let left_out = plan.left_out().iter().map(|(name, reason)| format!("left out {name:?}: {reason}"));
    let notes = plan.notes().iter().cloned();
    let lines: Vec<String> = odd(checkpoint).chain(notes).chain(left_out).collect();
    let rest = if plan.has_receipt() { "the receipt has them all" } else { "--dry-run --json prints them all" };
    warn(&lines, rest, context);
}

fn warn(lines: &[String], rest: &str, context: &Context) {
    for line in lines.iter().take(TOLD) {
        context.terminal.warning(line);
    }
    if lines.len() > TOLD {
        context.terminal.warning(format!("and {} more; {rest}", lines.len() - TOLD));
    }
}

/// What a conversion changes, or would change.
pub(crate) struct Facts<'a> {
    args: &'a Convert,
    checkpoint: &'a Checkpoint,
    plan: &'a Plan<'a>,
    /// What turned out to be odd during the work.
    came_up: Vec<String>,
    /// What was done, and in how many seconds; nothing in a dry run.
    done: Option<(&'a Summary, f64)>,
}

impl Says for Facts<'_> {
    const SCHEMA: &'static str = "blob.convert/1";
    const COMMAND: &'static str = "blob convert --json IN -o OUT";
    const WHAT: &'static str = "what was written";
}

impl Fields for Facts<'_> {
    fn fields() -> Vec<Field<Self>> {
        const BLAKE3: &str = "the input's BLAKE3; not in a dry run";
        vec![
            field("file", Is::Text, FILE, |f| json!(f.checkpoint.name())),
            field("output", Is::Text, "where to", |f| json!(f.args.output.to_string_lossy())),
            or_null(
                "index",
                Is::Text,
                "the index that opens the output, with --shard-size where it is in shards",
                |f| json!(f.plan.index().map(|(index, _)| index.to_string_lossy())),
            ),
            field("from", Is::Text, "the format that was read", |f| json!(f.checkpoint.format().name())),
            field("to", Is::Text, "the format that was written", |f| json!(f.plan.to().name())),
            field(
                "copy",
                Is::Flag,
                "whether the output is the input, byte for byte, as formats with a receipt are kept",
                |f| json!(f.plan.is_copy()),
            ),
            field("dry_run", Is::Flag, "whether nothing was written", |f| json!(f.args.dry_run)),
            field("tensors", Is::Whole, "how many tensors", |f| json!(f.plan.tensors().len())),
            field("bytes_in", Is::Whole, "the input's size", |f| json!(f.checkpoint.stored().len())),
            field("changes", Is::List(&Is::Object(shapes::<Planned>)), "what was changed about tensors", |f| {
                f.plan.tensors().iter().filter(|t| !t.changes.is_empty()).map(json::value).collect()
            }),
            field("left_out", Is::List(&Is::Object(shapes::<LeftOut<'_>>)), "what was not written", |f| {
                f.plan.left_out().iter().map(|(name, reason)| json::value(&LeftOut { name, reason })).collect()
            }),
            field("warnings", TEXTS, "what is odd about the input", |f| {
                odd(f.checkpoint).chain(f.plan.notes().iter().cloned()).chain(f.came_up.iter().cloned()).collect()
            }),
            field("bytes_out", Is::Whole, "the output's size", |f| {
                json!(f.done.map_or(f.plan.output_len(), |(done, _)| done.bytes_out))
            }),
            sometimes("blake3", Is::Text, BLAKE3, |f| json!(f.done.map(|(done, _)| &done.blake3))),
            sometimes("sha256", Is::Text, "the input's SHA-256, with --sha256", |f| {
                json!(f.done.and_then(|(done, _)| done.sha256.as_ref()))
            }),
            sometimes("seconds", Is::Real, "how long it took", |f| json!(f.done.map(|(_, seconds)| seconds))),
        ]
    }
}

impl Fields for Planned {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Is::Text, NAME, |t| json!(t.spec.name)),
            field("changes", TEXTS, "what was changed", |t| json!(t.changes)),
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
            field("name", Is::Text, NAME, |l| json!(l.name)),
            field("reason", Is::Text, "why, in words", |l| json!(l.reason)),
        ]
    }
}

impl Render for Facts<'_> {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &self)?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        let tensors = units::plural(self.plan.tensors().len() as u64, "tensor");
        let shards = self.plan.index().map_or(String::new(), |(_, count)| format!(" in {count} shards"));
        let Some((done, seconds)) = self.done else {
            self.table(terminal, out)?;
            // The table comes before the message on standard error.
            out.flush()?;
            let (to, output) = (self.plan.to().name(), opened_by(self.args, self.plan).to_string_lossy());
            let bytes = units::bytes(self.plan.output_len());
            terminal.note(format!("would write {tensors}{shards}, {bytes} as {to}, to {}", terminal.name(&output)));
            if self.plan.is_copy() {
                terminal.note(KEPT);
            }
            return Ok(());
        };
        let (mark, arrow) = terminal.marks();
        let (bytes_in, bytes_out) = (units::bytes(done.bytes_in), units::bytes(done.bytes_out));
        terminal
            .note(format!("{mark} {tensors}{shards}  {bytes_in} {arrow} {bytes_out}  in {}", units::seconds(seconds)));
        if self.plan.is_copy() {
            terminal.note(KEPT);
        }
        Ok(())
    }
}

impl Facts<'_> {
    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let columns = vec![
            Column::name("NAME", 24).of(|t: &Planned, terminal| terminal.name(&t.spec.name).into_owned()),
            Column::left("DTYPE").leaves(1).of(|t, _| t.spec.dtype.to_string()),
            Column::left("SHAPE").leaves(2).of(|t, terminal| terminal.shape(&t.spec.shape)),
            Column::right("BYTES").leaves(3).of(|t, _| units::bytes(t.spec.byte_len())),
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

/// What opens the output: the file itself, or the index of its shards.
fn opened_by<'a>(args: &'a Convert, plan: &'a Plan<'_>) -> &'a Path {
    plan.index().map_or(&args.output, |(index, _)| index)
}

/// Prints the command that proves the conversion, where both files can be read again.
fn prove_it(args: &Convert, target: &Target<'_>, plan: &Plan<'_>, checkpoint: &Checkpoint, context: &Context) {
    let output = opened_by(args, plan);
    let stays = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    // What was put in, or is stored otherwise, is no other file bit for bit; transforms are done again by the receipt.
    let is_transformed = !plan.is_untransformed() && !plan.has_receipt();
    let differs = args.into.is_some() || is_transformed || !args.form.is_empty();
    if matches!(target, Target::Stdout) || args.dense || differs || !(stays(&args.input) && stays(output)) {
        return;
    }
    // What hides its format, as a bare MXNet record of V0 does: `--from` names the output's; `--against` has none.
    let undetected = Global { from: None, ..context.global.clone() };
    let hides = |path: &Path, format| !open(path, &undetected).is_ok_and(|file| file.format() == format);
    if context.global.from.is_some() && hides(&args.input, checkpoint.format()) {
        return;
    }
    let from = match plan.to() {
        to @ Format::MxnetRecord if hides(output, to) => format!(" --from {}", to.name()),
        _ => String::new(),
    };
    let (output, input) = (quoted(output), quoted(&args.input));
    context.terminal.command(format!("  prove it:  blob verify {output}{from} --against {input}"));
}

/// A path as a shell takes it, and as no option.
fn quoted(path: &Path) -> String {
    let path = match path.as_os_str().as_encoded_bytes() {
        [b'-', ..] => &Path::new(".").join(path),
        _ => path,
    };
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if escape(text) == text => format!("'{}'", text.replace('\'', "'\\''")),
        // A terminal must not show such characters: they are spelled byte by byte.
        _ => {
            let bytes = path.as_os_str().as_encoded_bytes().iter();
            let bytes = bytes.map(|byte| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", bytes.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_for_the_shell() {
        for (path, word) in [
            ("a/b-1.npz", "a/b-1.npz"),
            ("my model.npz", "'my model.npz'"),
            ("it's", "'it'\\''s'"),
            ("größe.npz", "größe.npz"),
            ("-dash.npz", "./-dash.npz"),
            ("-a b", "'./-a b'"),
            ("o\nn", "$'o\\x0an'"),
            ("o\n'n", "$'o\\x0a\\'n'"),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
