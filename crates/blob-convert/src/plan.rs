//! What a conversion will do, decided from headers alone: which tensors, under which names, with which changes.

use std::collections::HashSet;
use std::path::Path;

use blob_core::{BlobDim, DType};
use blob_io::caffe::Form;
use blob_io::{Checkpoint, Entry, Error, Format, IfExists, Kind, Layout, TensorSpec, file_names, member_names};

use crate::caffe;
use crate::frame;
use crate::hdf5;
use crate::layout::{is_mxnet, layout, refilled};
use crate::neoml;
use crate::options::{Options, refuse};
use crate::planned::{How, Planned};
use crate::receipt::{Receipt, own};
use crate::shards::{self, Shards};

/// Where the output goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A file: made beside its place and put there when it is complete.
    File {
        /// The file.
        path: &'a Path,
        /// What happens to an existing file.
        if_exists: IfExists,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files; whatever format the options name.
    Folder {
        /// The folder.
        path: &'a Path,
        /// What happens to an existing folder; only one that holds just what an earlier conversion wrote is replaced.
        if_exists: IfExists,
    },
}

impl<'a> Target<'a> {
    /// The file, where it is one, and what happens to an existing one.
    fn file(&self) -> Option<(&'a Path, IfExists)> {
        match *self {
            Self::File { path, if_exists } => Some((path, if_exists)),
            _ => None,
        }
    }
}

/// What a conversion will do: [`check`](Plan::check) looks ahead, [`run`](Plan::run) carries it out.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) base: Base<'a>,
    pub(crate) to: Format,
    pub(crate) tensors: Vec<Planned>,
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
    pub(crate) receipt: Receipt,
    pub(crate) output: Destination<'a>,
}

/// The file whose bytes the output has where it is not changed.
#[derive(Debug)]
pub(crate) enum Base<'a> {
    None,
    File(&'a Checkpoint),
    /// What the source's receipt has of it.
    Frame(Box<Checkpoint>),
}

impl Base<'_> {
    pub(crate) fn file(&self) -> Option<&Checkpoint> {
        match self {
            Self::None => None,
            Self::File(file) => Some(file),
            Self::Frame(file) => Some(file),
        }
    }
}

/// Where the output goes, with what only that kind of output needs.
#[derive(Debug)]
pub(crate) enum Destination<'a> {
    File {
        path: &'a Path,
        if_exists: IfExists,
        layout: Layout,
    },
    Stdout {
        layout: Layout,
    },
    Shards {
        if_exists: IfExists,
        shards: Shards,
    },
    /// `files` has the path of each tensor's file.
    Folder {
        path: &'a Path,
        if_exists: IfExists,
        files: Vec<String>,
    },
}

impl Plan<'_> {
    /// The output's tensors, in the source's order.
    #[must_use]
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// What will not be in the output, as (name, reason).
    #[must_use]
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// What else is to be known before it is carried out, in words.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The output's size in bytes; for a folder the sum of its arrays' sizes.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        match &self.output {
            Destination::File { layout, .. } | Destination::Stdout { layout } => layout.len(),
            Destination::Folder { .. } => self.tensors.iter().map(|tensor| tensor.spec.byte_len()).sum(),
            Destination::Shards { shards, .. } => shards.len(),
        }
    }

    /// The index that opens the output, where it is in shards, and how many they are.
    #[must_use]
    pub fn index(&self) -> Option<(&Path, usize)> {
        match &self.output {
            Destination::Shards { shards, .. } => Some((&shards.index, shards.files.len())),
            _ => None,
        }
    }

    /// Whether the output says where it came from: files of Caffe and MXNet and a single `.npy` have no place for a receipt.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        match self.output {
            Destination::Folder { .. } => true,
            _ => is_with_receipt(&self.base, self.to),
        }
    }

    /// The format that will be written.
    #[must_use]
    pub fn to(&self) -> Format {
        self.to
    }
}

/// Decides what a conversion of `checkpoint` to `target` will do. Reads no tensor and writes nothing.
///
/// # Errors
/// The fault of an entry, an output format that cannot hold the tensors, or one that this crate does not write.
pub fn plan<'a>(checkpoint: &'a Checkpoint, options: &Options, target: &Target<'a>) -> Result<Plan<'a>, Error> {
    // A Caffe file written as the same message keeps all that is no blob. V1 and V2 have other layers.
    let is_same = options.to.is_caffe() && options.to == checkpoint.format();
    let mut notes = Vec::new();
    let base = if is_same && !options.form.is_some_and(Form::is_v1) {
        Base::File(checkpoint)
    } else if matches!(target, Target::Folder { .. }) || !options.keeps_frame() {
        Base::None
    } else {
        match frame::source(checkpoint, options.to) {
            Some(Ok(made)) => Base::Frame(Box::new(made)),
            Some(Err(why)) => {
                let format = options.to.name();
                notes.push(format!("the {format} is written anew, not as the receipt has it: {why}"));
                Base::None
            }
            None => Base::None,
        }
    };
    if caffe::lacks_iter(checkpoint, options.to) && base.file().is_none() {
        notes.push("iter is written as 0: the source does not say how far the solver was".to_owned());
    }
    let is_hdf5 = (checkpoint.format(), options.to) == (Format::Hdf5, Format::Hdf5);
    let is_anew = is_hdf5 && base.file().is_none() && !matches!(target, Target::Folder { .. });
    // Ours holds tensors and its receipt alone.
    if is_anew && !options.anew && notes.is_empty() && own(checkpoint).is_none() {
        notes.push(
            "the hdf5 is written anew: attributes, links, chunks and compression of the source are lost".to_owned(),
        );
    }
    let mut plan = planned_for(checkpoint, base, options, target)?;
    plan.notes.splice(0..0, notes);
    Ok(plan)
}

/// Decides how the tensors of `checkpoint` replace those of the same names and shapes in the file `base` of Caffe's or NeoML's,
/// or of HDF5, of which every other byte is kept. The options' format is that of `base`.
///
/// # Errors
/// As [`plan`]; [`Error::Request`] with the list of the tensors that have no place in `base`.
pub fn plan_into<'a>(
    checkpoint: &'a Checkpoint,
    base: &'a Checkpoint,
    options: &Options,
    target: &Target<'a>,
) -> Result<Plan<'a>, Error> {
    if let Target::Folder { path, .. } = target {
        return Err(refuse(base, format!("is one file, and {} a folder", path.display())));
    }
    let format = base.format();
    if !(format.is_caffe() || format.is_neoml() || format == Format::Hdf5) {
        let message = format!("is {}, and arrays are put into files of Caffe, NeoML and HDF5 only", format.title());
        return Err(refuse(base, message));
    }
    let options = Options { to: base.format(), ..options.clone() };
    planned_for(checkpoint, Base::File(base), &options, target)
}

fn planned_for<'a>(
    checkpoint: &'a Checkpoint,
    base: Base<'a>,
    options: &Options,
    target: &Target<'a>,
) -> Result<Plan<'a>, Error> {
    checkpoint.whole()?;
    let is_folder = matches!(target, Target::Folder { .. });
    let to = if is_folder { Format::Npy } else { options.to };
    let options = &Options { to, ..options.clone() };
    // An MXNet file has a record where an array is lacking, an array of NeoML blobs a flag.
    let has_nulls = |format| is_mxnet(format) || format == Format::NeomlArray;
    let keeps_all = has_nulls(to) && has_nulls(checkpoint.format()) && is_mxnet(to) == is_mxnet(checkpoint.format());
    let mut tensors = Vec::new();
    let mut left_out = Vec::new();
    let mut taken = HashSet::new();
    for (index, entry) in checkpoint.entries().iter().enumerate() {
        if let Some(fault) = entry.fault() {
            return Err(refuse(checkpoint, format!("array {:?}: {fault}", entry.name())));
        }
        if entry.foreign_dtype().is_some() {
            // `view` returns the error that names the dtype.
            checkpoint.view(entry)?;
        }
        let Some(dtype) = entry.dtype() else {
            if keeps_all {
                continue;
            }
            left_out.push((entry.name().to_owned(), "none: a place without an array".to_owned()));
            continue;
        };
        if options.dense && entry.sparse().is_some() && entry.kind() != Kind::Values {
            continue;
        }
        if !options.diffs && is_diff(checkpoint, entry) {
            left_out.push((entry.name().to_owned(), "a diff".to_owned()));
            continue;
        }
        tensors.push(planned(index, entry, dtype, (options, is_folder), &mut taken));
    }
    let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    let stored = match to {
        _ if is_folder => file_names(&names),
        Format::Npz => member_names(&names),
        _ => Vec::new(),
    };
    for (tensor, stored) in tensors.iter_mut().zip(&stored) {
        if *stored != tensor.spec.name {
            tensor.changes.push(format!("stored as {stored:?}").into());
        }
    }
    let stored = stored.into_iter().filter(|_| is_folder);
    let files: Vec<String> = stored.map(|path| path + ".npy").collect();
    let has_receipt = is_folder || is_with_receipt(&base, to);
    let frame = if has_receipt { frame::of(checkpoint, &tensors)? } else { Err("the output has no receipt") };
    let receipt = Receipt::new(checkpoint, options.sha256, &tensors, &left_out, &files, frame)?;
    tensors.iter_mut().enumerate().for_each(|(place, tensor)| tensor.slot = Some(place));
    let mut notes = Vec::new();
    let in_shards = shards::planned(checkpoint, options, target.file(), &tensors, &mut notes)?;
    let mut layout = || match (&base, to.is_caffe()) {
        (Base::Frame(base), _) => refilled(base, &mut tensors),
        (Base::File(base), _) if base.format() == Format::Hdf5 => hdf5::into(checkpoint, base, &mut tensors),
        (Base::File(base), _) if base.format().is_neoml() => neoml::spliced(checkpoint, base, &mut tensors),
        (Base::File(base), _) => caffe::spliced(checkpoint, base, options, &mut tensors),
        (Base::None, true) => caffe::new(checkpoint, options, &tensors),
        _ if to == Format::Hdf5 => hdf5::new(checkpoint, &tensors, &receipt, target.file().map(|(path, _)| path)),
        _ => layout(checkpoint, options, &tensors, &receipt),
    };
    let mut layout = || layout().map_err(|e| e.about(checkpoint.name()));
    let output = match (*target, in_shards) {
        (Target::File { if_exists, .. }, Some(shards)) => Destination::Shards { if_exists, shards },
        (Target::File { path, if_exists }, None) => Destination::File { path, if_exists, layout: layout()? },
        (Target::Stdout, _) => Destination::Stdout { layout: layout()? },
        (Target::Folder { path, if_exists }, _) => Destination::Folder { path, if_exists, files },
    };
    Ok(Plan { checkpoint, base, to, tensors, left_out, notes, receipt, output })
}

/// Whether a file has a receipt; one that is an existing file with other values is as that one is.
fn is_with_receipt(base: &Base<'_>, to: Format) -> bool {
    matches!(base, Base::None) && matches!(to, Format::Safetensors | Format::Npz | Format::Hdf5)
}

/// Whether it is the diff of another array: by its name in a format that has no diffs.
fn is_diff(checkpoint: &Checkpoint, entry: &Entry) -> bool {
    let has_data = |data| checkpoint.entry(data).is_some();
    let is_named = || !checkpoint.format().is_caffe() && entry.name().strip_suffix(".diff").is_some_and(has_data);
    entry.kind() == Kind::Diff || is_named()
}

fn planned(
    index: usize,
    entry: &Entry,
    dtype: DType,
    (options, is_folder): (&Options, bool),
    taken: &mut HashSet<String>,
) -> Planned {
    use Format::{BlobProto, Datum, MxnetRecord, NeomlArray, NeomlBlob, Npy};
    let (mut name, shape, how) = match entry.sparse() {
        Some(sparse) if options.dense => (sparse.name.to_string(), sparse.shape.clone(), How::Dense),
        _ if entry.is_plain() => (entry.name().to_owned(), entry.shape().clone(), How::Copy),
        _ => (entry.name().to_owned(), entry.shape().clone(), How::Stream),
    };
    // Entries have unique names; only the name of a whole sparse array can be taken already.
    while !taken.insert(name.clone()) {
        name = format!("{name}@{}", entry.position());
    }
    let mut changes = Vec::new();
    let is_widened = options.double && matches!(dtype, DType::F16 | DType::BF16 | DType::F32) && how != How::Dense;
    let (how, dtype) = if is_widened { (How::Double, DType::F64) } else { (how, dtype) };
    match how {
        How::Copy | How::Kept => {}
        How::Double => changes.push("written as f64".into()),
        How::Stream => changes.push("unpacked to row-major little-endian".into()),
        How::Dense => changes.push("expanded from sparse to dense".into()),
    }
    let keeps_bf16 = dtype == DType::BF16 && matches!(options.to, Npy | Format::Npz);
    if keeps_bf16 {
        changes.push("bf16 bits stored as u2: NumPy has no bfloat16".into());
    }
    if matches!(options.to, NeomlBlob | NeomlArray) {
        let axes = shape.num_axes();
        if axes < BlobDim::ALL.len() {
            changes.push(format!("stored as seven axes, with ones behind its {axes}").into());
        }
    }
    // A folder's files have the tensors' names, and are planned as npy.
    let nameless = matches!(options.to, BlobProto | Datum | MxnetRecord | NeomlBlob | NeomlArray | Npy) && !is_folder;
    if nameless && name.strip_suffix(".diff").unwrap_or(&name) != format!("@{}", entry.position()) {
        changes.push("stored without its name".into());
    }
    Planned { spec: TensorSpec::new(name, dtype, shape), entry: index, how, slot: None, changes, keeps_bf16 }
}
