//! `blob split`: splits the tensors of a file into several files, or one tensor into parts.

use std::io;
use std::path::{Path, PathBuf};

use blob_convert::change::Group;
use blob_convert::recipe::Divide;
use blob_convert::report::json::{self, Document, FILE, Field, Fields, STRINGS, Type, field, properties};
use blob_convert::transform::{Registry, Split as Divided};
use blob_convert::{Folders, Plan, Plans, Selection, Silent};
use blob_io::{Checkpoint, Error, Format, Nets};
use serde_json::json;

use crate::args::{Split, is_written};
use crate::context::Context;
use crate::convert::{Conversion, changes_field, listed_changes, notices, recipe_of, warn_of_changes, warnings};
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::Out;
use crate::output::format::format_of;
use crate::output::progress::Progress;
use crate::output::signals;
use crate::output::sink::{Content, check_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::render::Text;
use crate::render::table::{Column, Table};
use crate::select::{by_names, select, select_one};
use crate::units;

pub(crate) fn run(args: &Split, context: &Context) -> Result<Status, Failure> {
    let is_folder = args.output.to_string_lossy().ends_with(std::path::is_separator) || args.output.is_dir();
    match args.axis {
        Some(axis) if !is_folder && !args.output.to_string_lossy().contains("{}") => in_one(args, axis, context),
        _ => in_several(args, context),
    }
}

/// Puts the parts of a tensor in its place: a conversion, with a receipt.
fn in_one(args: &Split, axis: i64, context: &Context) -> Result<Status, Failure> {
    let mut recipe = recipe_of(&args.file, Some(&args.output), context).selecting(args.only.selection());
    args.writing.set(Some(format_of(&args.output, args.to)?), args.skip, &mut recipe.target);
    let mut conversion = Conversion::begin(recipe, args.writing.dry_run, context)?;
    let tensor = select_one(conversion.source(), &Selection::matching(args.tensor.clone()))?;
    let step = step(args, axis, tensor.name(), args.into.clone())?;
    conversion.recipe.steps.push(step.into());
    let plan = conversion.plan(context)?;
    let found = conversion.run(&plan, context)?;
    let written = conversion.written(&plan, &found);
    let warnings = warnings(&found.changes);
    let files = vec![File::of(&args.output, &plan)];
    let (checkpoint, changes) = (conversion.source(), &*found.changes);
    context.print(Parts { written, checkpoint, files, changes, warnings })?;
    notices(&found.changes, context);
    conversion.prove(&plan, &found, context);
    Ok(Status::Yes)
}

/// The step that divides a tensor.
fn step(args: &Split, axis: i64, tensor: &str, into: Vec<String>) -> Result<Divided, Failure> {
    let (names, parts) = (args.into.len() as u64, args.sizes.len() as u64);
    if names > 0 && names != parts {
        let (names, parts) = (units::plural(names, "name"), units::plural(parts, "part"));
        return Err(Failure::new(format!("--into has {names}, and there are {parts}")));
    }
    Ok(Divided::new(tensor, axis, args.sizes.clone(), into))
}

/// Writes a file for each layer, files up to a size, or a file for each part of a tensor.
fn in_several(args: &Split, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.writing.dry_run);
    let checkpoint = open(&args.file, &context.global)?;
    checkpoint.check_whole()?;
    let destination = Destination::of(args, &checkpoint)?;
    check_stdout(&args.output, Content::Binary, args.writing.dry_run, &context.global)?;
    let selection = by_names(&checkpoint, &args.only.selection())?;
    // A pattern without a match gets its help here.
    select(&checkpoint, &selection)?;
    let mut recipe = recipe_of(&args.file, Some(Path::new(&destination.pattern)), context).selecting(selection);
    args.writing.set(Some(destination.to), args.skip, &mut recipe.target);
    recipe.target.divide = Some(match (args.axis, args.max_size) {
        (Some(axis), _) => {
            let tensor = select_one(&checkpoint, &Selection::matching(args.tensor.clone()))?;
            let names =
                if args.into.is_empty() { vec![tensor.name().to_owned(); args.sizes.len()] } else { args.into.clone() };
            recipe = recipe.step(step(args, axis, tensor.name(), names)?);
            Divide::ByPart
        }
        (None, Some(most)) => Divide::MaxSize(most),
        (None, None) => Divide::ByLayer,
    });
    let plans = recipe.plan_several(&checkpoint, &Registry::default())?;
    if plans.plans().iter().all(|plan| plan.tensors().is_empty()) {
        return Err(Failure::new(format!("{}: there are no tensors, and nothing to write", checkpoint.name())));
    }
    let new_folder = destination.folder.as_deref().filter(|folder| !folder.exists());
    match new_folder {
        Some(folder) => check_parent(folder)?,
        None => signals::checked(|| plans.check(&Silent))?,
    }
    let changes = plans.changes();
    warn_of_changes(&changes, context);
    let bytes_out =
        if args.writing.dry_run { plans.output_len() } else { written_bytes(&plans, new_folder.is_some(), context)? };
    let files: Vec<File> = plans.plans().iter().filter_map(|plan| Some(File::of(plan.path()?, plan))).collect();
    let written = Written::new(&args.output, destination.to.name(), bytes_out, begun);
    let written = written.tensors(files.iter().map(|file| file.tensors).sum());
    let written = Written { files: files.len() as u64, ..written.of_bytes(checkpoint.stored().len()) };
    context.print(Parts {
        written,
        checkpoint: &checkpoint,
        files,
        changes: &changes,
        warnings: warnings(&changes),
    })?;
    notices(&changes, context);
    Ok(Status::Yes)
}

/// Writes the files, and their folder where that is new; returns their bytes.
fn written_bytes(plans: &Plans<'_>, is_new: bool, context: &Context) -> Result<u64, Failure> {
    let paths = plans.plans().iter().filter_map(Plan::path).filter(|_| is_new);
    let folders = Folders::of(paths)?;
    let bytes = plans.plans().iter().flat_map(Plan::tensors).map(|tensor| tensor.spec.byte_len()).sum();
    let progress = Progress::begin(&context.terminal, bytes);
    let done = plans.run(&progress)?;
    progress.end();
    folders.keep();
    Ok(done.bytes_out)
}

/// Refuses a folder that cannot be made, because the one around it is missing.
fn check_parent(folder: &Path) -> Result<(), Failure> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if parent.is_dir() {
        return Ok(());
    }
    let text = format!("the folder {} is missing", parent.display());
    let (file, source) = (folder.display().to_string(), io::Error::new(io::ErrorKind::NotFound, text));
    Err(Error::Io { file, action: "write".to_owned(), source }.into())
}

/// The paths and the format of the output files.
struct Destination {
    to: Format,
    folder: Option<PathBuf>,
    /// The path, in which `{}` stands for a file's name or number; without `{}` there is only one file.
    pattern: String,
}

impl Destination {
    fn of(args: &Split, checkpoint: &Checkpoint) -> Result<Self, Failure> {
        let Some(output) = args.output.to_str() else {
            return Err(Failure::new(format!("{}: is not UTF-8", args.output.display())));
        };
        if !output.ends_with(std::path::is_separator) && !args.output.is_dir() {
            let to = format_of(&args.output, args.to)?;
            if !output.contains("{}") && args.axis.is_none() {
                let failure = Failure::new(format!("{output}: would be one file, and several are written"));
                return Err(failure
                    .help("a folder's name ends with /; in the names of files `{}` stands for the layer or number"));
            }
            return Ok(Self { to, folder: folder_before(output), pattern: output.to_owned() });
        }
        let to = args.to.unwrap_or(checkpoint.format());
        if !is_written(to) {
            let name = checkpoint.name();
            let (what, others) = match to.holds().net {
                Nets::Graph => ("an ONNX model", "safetensors, npz"),
                _ => ("a NeoML net", "neoml-array, safetensors, npz"),
            };
            let failure = Failure::new(format!("{name}: {what} is not written anew"));
            return Err(failure.help(format!("name another format with --to: {others}")));
        }
        let extension = to.extensions().first().copied().unwrap_or(to.name());
        let path = args.output.join(format!("{{}}.{extension}"));
        Ok(Self { to, folder: Some(args.output.clone()), pattern: path.to_string_lossy().into_owned() })
    }
}

/// The folder of a pattern's files, which is made as the one that `-o DIR/` names: the folders before the first with a
/// `{}` in the name.
fn folder_before(pattern: &str) -> Option<PathBuf> {
    let before = pattern.split("{}").next().filter(|before| before.len() < pattern.len())?;
    let (folder, _) = before.rsplit_once(std::path::is_separator)?;
    Some(folder).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// One of the files.
pub(crate) struct File {
    path: PathBuf,
    tensors: usize,
    bytes: u64,
}

impl File {
    fn of(path: &Path, plan: &Plan<'_>) -> Self {
        let bytes = plan.tensors().iter().map(|tensor| tensor.spec.byte_len()).sum();
        Self { path: path.to_owned(), tensors: plan.tensors().len(), bytes }
    }
}

impl Fields for File {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("path", Type::String, "the file", |f| json!(f.path.to_string_lossy())),
            field("tensors", Type::Integer, "how many tensors it has", |f| json!(f.tensors)),
            field("bytes", Type::Integer, "the bytes of its tensors", |f| json!(f.bytes)),
        ]
    }
}

/// The result of the command.
pub(crate) struct Parts<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    files: Vec<File>,
    changes: &'a [Group],
    warnings: Vec<String>,
}

impl Writes for Parts<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Text for Parts<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if self.written.took.is_none() {
            let columns = vec![
                Column::name("FILE", 24).of(|f: &File, terminal| terminal.name(&f.path.to_string_lossy()).into_owned()),
                Column::right("TENSORS").of(|f, _| units::grouped(f.tensors as u64)),
                Column::right("BYTES").drop_order(1).of(|f, _| units::bytes(f.bytes)),
            ];
            let mut table = Table::new(terminal, columns);
            for file in &self.files {
                table.row(out, file)?;
            }
            table.finish(out)?;
            std::io::Write::flush(out)?;
        }
        terminal.written(&self.written, &[]);
        Ok(())
    }
}

impl Document for Parts<'_> {
    const SCHEMA: &'static str = "blob.split/1";
    const COMMAND: &'static str = "blob split --json FILE -o OUT";
    const DESCRIPTION: &'static str = "which files were written";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Parts<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("file", Type::String, FILE, |p: &Self| json!(p.checkpoint.name())),
            field("files", Type::Array(&Type::Object(properties::<File>)), "the files", |p| {
                p.files.iter().map(json::value).collect()
            }),
            changes_field(|p| listed_changes(p.changes)),
            field("warnings", STRINGS, "what is lost on the way", |p| json!(p.warnings)),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}
