//! `blob split`: splits the tensors of a file into several files, or one tensor into parts.

use std::path::{Path, PathBuf};

use blob_convert::regroup::{Gathered, Gatherer, by_layer, by_size, singles};
use blob_convert::{Selection, Watch};
use blob_io::layout::file_names;
use blob_io::{Checkpoint, Entry, Format, Kind, TensorName, hdf5};
use serde_json::json;

use crate::args::{Split, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{self, Document, FILE, Field, Fields, STRINGS, Type, field, properties};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::{Content, check_stdout};
use crate::output::together::Folders;
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::regroup::{self, File, format_of, losses};
use crate::render::Text;
use crate::render::table::{Column, Table};
use crate::select::select_one;
use crate::units;

/// At most this many files are written; more would be a mistake.
const MAX_FILES: usize = 100_000;

pub(crate) fn run(args: &Split, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    let checkpoint = open(&args.file, &context.global)?;
    checkpoint.whole()?;
    let destination = Destination::of(args, &checkpoint)?;
    check_stdout(&args.output, Content::Binary, args.dry_run, &context.global)?;
    let bytes = checkpoint.entries().iter().map(Entry::byte_len).sum::<u64>();
    let progress = Progress::begin(&context.terminal, if destination.to == Format::Npz { 2 * bytes } else { bytes });
    let (files, warning) = match args.axis {
        Some(axis) => parts(args, axis, &checkpoint, &destination, &progress)?,
        None => (groups(args, &checkpoint, &destination, &progress)?, None),
    };
    let mut warnings = losses(&[&checkpoint], &files, destination.to);
    warnings.extend(warning);
    warnings.iter().for_each(|warning| context.terminal.warning(warning));
    let if_exists = if_exists(args.force);
    let new_folder = destination.folder.as_deref().filter(|folder| !folder.exists());
    regroup::check(&files, &[&checkpoint], destination.to, if_exists, new_folder)?;
    let lens = files.iter().map(|file| file.file_len(destination.to).map_err(regroup::refused));
    let bytes_out = lens.sum::<Result<u64, _>>()?;
    if !args.dry_run {
        let folders = Folders::of(new_folder.iter().flat_map(|_| &files).map(|file| &*file.path))?;
        regroup::write(&files, &[&checkpoint], (destination.to, if_exists), &progress)?;
        folders.keep();
    }
    progress.end();
    let written = Written::new(&args.output, destination.to.name(), bytes_out, begun);
    let written = written.tensors(files.iter().map(|file| file.tensors.len()).sum());
    let written = Written { files: files.len() as u64, ..written.of_bytes(checkpoint.stored().len()) };
    context.print(Parts { written, checkpoint: &checkpoint, files, warnings })?;
    Ok(Status::Yes)
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
            return Ok(Self { to, folder: None, pattern: output.to_owned() });
        }
        let to = args.to.unwrap_or(checkpoint.format());
        if to == Format::NeomlNet {
            let failure = Failure::new(format!("{}: a NeoML net is not written anew", checkpoint.name()));
            return Err(failure.help("name another format with --to: neoml-array, safetensors, npz"));
        }
        let extension = to.extensions().first().copied().unwrap_or(to.name());
        let path = args.output.join(format!("{{}}.{extension}"));
        Ok(Self { to, folder: Some(args.output.clone()), pattern: path.to_string_lossy().into_owned() })
    }

    /// Whether the files are Caffe nets, in which each layer contains its blobs.
    fn has_layers(&self) -> bool {
        let form = || hdf5::Form::of_name(&self.path(""));
        self.to == Format::CaffeModel || self.to == Format::Hdf5 && form() == Some(hdf5::Form::Weights)
    }

    fn path(&self, name: &str) -> PathBuf {
        // The name goes into the last component if that contains `{}`.
        let path = Path::new(&self.pattern);
        match path.file_name().and_then(|last| last.to_str()).filter(|last| last.contains("{}")) {
            Some(last) => path.with_file_name(last.replacen("{}", name, 1)),
            None => PathBuf::from(self.pattern.replacen("{}", name, 1)),
        }
    }
}

/// One file for each layer, or files up to a size.
fn groups<'a>(
    args: &Split,
    checkpoint: &'a Checkpoint,
    destination: &Destination,
    watch: &'a dyn Watch,
) -> Result<Vec<File<'a>>, Failure> {
    let groups = match args.max_size {
        Some(0) => return Err(Failure::new("--max-size: files of no bytes hold no tensors")),
        Some(most) => {
            // The blobs of a layer must stay in one file.
            let groups = if destination.has_layers() {
                by_layer(checkpoint).into_iter().map(|(_, group)| group).collect()
            } else {
                singles(checkpoint)
            };
            let groups = by_size(checkpoint, &groups, most);
            let count = groups.len();
            groups.into_iter().enumerate().map(|(i, group)| (format!("{:05}-of-{count:05}", i + 1), group)).collect()
        }
        None => {
            let layers = by_layer(checkpoint);
            // A `/` in a layer's name must not become a folder.
            let names: Vec<String> = layers.iter().map(|(name, _)| name.replace('/', ".")).collect();
            let names = file_names(&names.iter().map(String::as_str).collect::<Vec<_>>());
            names.into_iter().zip(layers).map(|(name, (_, group))| (name, group)).collect::<Vec<_>>()
        }
    };
    if groups.len() > MAX_FILES {
        return Err(Failure::new(format!("there would be {} files; at most {MAX_FILES} are written", groups.len())));
    }
    let gatherer = Gatherer::new(checkpoint, watch);
    let file = |(name, group): (String, Vec<usize>)| {
        let whole = |index: usize| {
            let entry = &checkpoint.entries()[index];
            Ok((entry.name().to_owned(), gatherer.whole(entry)?))
        };
        let tensors = group.into_iter().map(whole).collect::<Result<_, Failure>>()?;
        Ok(File { path: destination.path(&name), tensors })
    };
    groups.into_iter().map(file).collect()
}

/// Splits one tensor: each part into its own file, or all parts into one file in the tensor's position. Its diff is
/// split too, if the format can hold it.
fn parts<'a>(
    args: &Split,
    axis: i64,
    checkpoint: &'a Checkpoint,
    destination: &Destination,
    watch: &'a dyn Watch,
) -> Result<(Vec<File<'a>>, Option<String>), Failure> {
    let tensor = select_one(checkpoint, &Selection::matching(args.tensor.clone()))?;
    let gatherer = Gatherer::new(checkpoint, watch);
    let parts = gatherer.split(tensor, axis, &args.sizes)?;
    let is_separate = destination.pattern.contains("{}");
    if !args.into.is_empty() && args.into.len() != parts.len() {
        let (names, parts) = (args.into.len() as u64, parts.len() as u64);
        return Err(Failure::new(format!(
            "--into has {}, and there are {}",
            units::plural(names, "name"),
            units::plural(parts, "part")
        )));
    }
    let name = |i: usize| match args.into.get(i) {
        Some(name) => name.clone(),
        None if is_separate => tensor.name().to_owned(),
        None => format!("{}_{i}", tensor.name()),
    };
    let diff = checkpoint.diff_of(tensor).filter(|_| tensor.kind() == Kind::Data);
    let holds = destination.to.holds();
    let holds_diffs = !is_separate || holds.many || holds.diffs;
    let lost = diff.filter(|_| !holds_diffs).map(|diff| {
        format!(
            "{}: left out {:?}: a file of {} holds one tensor",
            checkpoint.name(),
            diff.name(),
            destination.to.name()
        )
    });
    let mut parts: Vec<Vec<(String, Gathered<'a>)>> =
        parts.into_iter().enumerate().map(|(i, part)| vec![(name(i), part)]).collect();
    if let Some(diff) = diff.filter(|_| holds_diffs) {
        for (i, part) in gatherer.split(diff, axis, &args.sizes)?.into_iter().enumerate() {
            parts[i].push((TensorName::diff_of(&name(i)), part));
        }
    }
    if is_separate {
        let file = |(i, tensors)| File { path: destination.path(&format!("{i}")), tensors };
        return Ok((parts.into_iter().enumerate().map(file).collect(), lost));
    }
    let mut tensors: Vec<(String, Gathered<'a>)> = Vec::new();
    for entry in checkpoint.entries().iter().filter(|entry| entry.kind() != Kind::None) {
        if entry.name() == tensor.name() {
            tensors.extend(std::mem::take(&mut parts).into_iter().flatten());
        } else if diff.is_none_or(|diff| diff.name() != entry.name()) {
            tensors.push((entry.name().to_owned(), gatherer.whole(entry)?));
        }
    }
    Ok((vec![File { path: destination.path(""), tensors }], lost))
}

/// The result of the command.
pub(crate) struct Parts<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    files: Vec<File<'a>>,
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
                Column::name("FILE", 24)
                    .of(|f: &File<'_>, terminal| terminal.name(&f.path.to_string_lossy()).into_owned()),
                Column::right("TENSORS").of(|f, _| units::grouped(f.tensors.len() as u64)),
                Column::right("BYTES").drop_order(1).of(|f, _| units::bytes(f.bytes())),
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
            field("files", Type::Array(&Type::Object(properties::<File<'_>>)), "the files", |p| {
                p.files.iter().map(json::value).collect()
            }),
            field("warnings", STRINGS, "what is lost on the way", |p| json!(p.warnings)),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}
