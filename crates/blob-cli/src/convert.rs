//! `blob convert`: asks `blob_convert` for a plan, carries it out, and says what happened.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use blob_convert::{Options, Plan, Silent, Target, plan};
use blob_io::{Checkpoint, Format};
use serde_json::json;

use crate::args::{Convert, if_exists};
use crate::context::Context;
use crate::escape::escape;
use crate::failure::{Failure, Status};
use crate::info::warnings;
use crate::open::open;
use crate::output::progress::Progress;
use crate::render::json::{self, Object};
use crate::render::table::{Column, Table};
use crate::source;
use crate::units;

/// How many warnings and left-out arrays are told one by one.
const TOLD: usize = 20;

pub(crate) fn run(args: &Convert, context: &Context) -> Result<Status, Failure> {
    let begun = Instant::now();
    let target = target(args)?;
    if context.global.json && matches!(target, Target::Stdout) && !args.dry_run {
        return Err(Failure::new("--json and -o - would both write to standard output"));
    }
    source::keep(&args.input, &args.output, if_exists(args.force))?;
    let checkpoint = open(&args.input, &context.global)?;
    let options = Options::new(format_of(args, &target)?).dense(args.dense).sha256(args.sha256);
    let plan = plan(&checkpoint, &options, &target)?;
    tell(&checkpoint, &plan, context);
    if args.dry_run {
        plan.check(&Silent)?;
        return dry_run(args, &checkpoint, &plan, context);
    }
    let progress = Progress::begin(&context.terminal, checkpoint.file_len());
    let done = plan.run(&progress)?;
    progress.end();
    let contradicted: Vec<String> = done.contradicted().iter().map(|name| contradicts(&checkpoint, name)).collect();
    warn(&contradicted, "blob verify has them all", context);
    // Listing and planning too: a million arrays take their time.
    let seconds = begun.elapsed().as_secs_f64();
    if context.global.json {
        let mut facts = facts(args, &checkpoint, &plan, contradicted)
            .with("bytes_out", done.bytes_out())
            .with("blake3", done.blake3());
        if let Some(sha256) = done.sha256() {
            facts = facts.with("sha256", sha256);
        }
        let facts = facts.with("seconds", seconds);
        let mut out = context.terminal.out();
        json::line(&mut out, &facts)?;
        out.flush()?;
        return Ok(Status::Yes);
    }
    let (mark, arrow) = context.terminal.marks();
    context.terminal.note(format!(
        "{mark} {}  {} {arrow} {}  in {}",
        units::plural(plan.tensors().len() as u64, "tensor"),
        units::bytes(done.bytes_in()),
        units::bytes(done.bytes_out()),
        units::seconds(seconds)
    ));
    prove_it(args, &target, context);
    Ok(Status::Yes)
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

fn format_of(args: &Convert, target: &Target<'_>) -> Result<Format, Failure> {
    if let Some(format) = args.to {
        return Ok(format);
    }
    let written = || {
        let names: Vec<&str> = Format::ALL.iter().filter(|f| f.is_written()).map(|f| f.name()).collect();
        names.join(", ")
    };
    match target {
        Target::Folder { .. } => Ok(Format::Npy),
        Target::Stdout => Err(Failure::new("-o - needs --to, because standard output has no extension")
            .help(format!("formats: {}", written()))),
        _ => {
            let extension = args.output.extension().and_then(|e| e.to_str());
            extension.and_then(Format::from_extension).ok_or_else(|| {
                Failure::new(no_format(&args.output))
                    .help(format!("name a format with --to: {}; a folder's name ends with /", written()))
            })
        }
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
    let lines: Vec<String> = warnings(checkpoint).into_iter().chain(left_out).collect();
    warn(&lines, "the receipt has them all", context);
}

fn warn(lines: &[String], rest: &str, context: &Context) {
    for line in lines.iter().take(TOLD) {
        context.terminal.warning(line);
    }
    if lines.len() > TOLD {
        context.terminal.warning(format!("and {} more; {rest}", lines.len() - TOLD));
    }
}

fn dry_run(args: &Convert, checkpoint: &Checkpoint, plan: &Plan<'_>, context: &Context) -> Result<Status, Failure> {
    let mut out = context.terminal.out();
    if context.global.json {
        let facts = facts(args, checkpoint, plan, Vec::new()).with("bytes_out", plan.output_len());
        json::line(&mut out, &facts)?;
        out.flush()?;
        return Ok(Status::Yes);
    }
    let columns = vec![
        Column::name("NAME", 24),
        Column::left("DTYPE").leaves(1),
        Column::left("SHAPE").leaves(2),
        Column::right("BYTES").leaves(3),
        Column::text("CHANGES"),
    ];
    let mut table = Table::new(&context.terminal, columns);
    for tensor in plan.tensors() {
        let changes = match tensor.changes() {
            [] => "-".to_owned(),
            changes => changes.join("; "),
        };
        table.row(
            &mut out,
            vec![
                context.terminal.name(tensor.name()).into_owned(),
                tensor.dtype().to_string(),
                context.terminal.shape(tensor.shape()),
                units::bytes(tensor.byte_len()),
                context.terminal.text(&changes).into_owned(),
            ],
        )?;
    }
    table.finish(&mut out)?;
    out.flush()?;
    context.terminal.note(format!(
        "would write {}, {} as {}, to {}",
        units::plural(plan.tensors().len() as u64, "tensor"),
        units::bytes(plan.output_len()),
        plan.to().name(),
        context.terminal.name(&args.output.to_string_lossy())
    ));
    Ok(Status::Yes)
}

/// `blob.convert/1`, as far as it is known before the work, and what came up during it.
fn facts(args: &Convert, checkpoint: &Checkpoint, plan: &Plan<'_>, came_up: Vec<String>) -> Object {
    let left_out = plan.left_out().iter().map(|(name, reason)| json!({"name": name, "reason": reason}));
    let changed = plan.tensors().iter().filter(|t| !t.changes().is_empty());
    let changed = changed.map(|t| json!({"name": t.name(), "changes": t.changes()}));
    Object::of("blob.convert/1")
        .with("file", checkpoint.name())
        .with("output", args.output.to_string_lossy())
        .with("from", checkpoint.format().name())
        .with("to", plan.to().name())
        .with("dry_run", args.dry_run)
        .with("tensors", plan.tensors().len())
        .with("bytes_in", checkpoint.stored().len())
        .with("changes", changed.collect::<Vec<_>>())
        .with("left_out", left_out.collect::<Vec<_>>())
        .with("warnings", [warnings(checkpoint), came_up].concat())
}

/// The command that proves the conversion, where there are two sides that can be read again.
fn prove_it(args: &Convert, target: &Target<'_>, context: &Context) {
    let stays = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    if matches!(target, Target::Stdout) || args.dense || !(stays(&args.input) && stays(&args.output)) {
        return;
    }
    let (output, input) = (quoted(&args.output), quoted(&args.input));
    context.terminal.command(format!("  prove it:  blob verify {output} --against {input}"));
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
        // What a terminal should not show, byte by byte.
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
