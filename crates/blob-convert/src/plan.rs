//! What a conversion will do, decided from headers alone: which tensors go out, under which names, what the transforms
//! and the output's format change about them, and where each goes.

use std::collections::HashSet;
use std::path::Path;

use blob_core::{BlobDim, DType};
use blob_io::{Checkpoint, Entry, Error, Format, IfExists, Kind, Layout, TensorSpec, file_names, member_names};

use crate::base::Base;
use crate::chain::{Chained, chain};
use crate::done::to_do;
use crate::frame;
use crate::layout;
use crate::options::{Options, refuse};
use crate::planned::{How, Planned};
use crate::receipt::{BITS_OF_BF16, Receipt};
use crate::shards::{self, Shards};

/// Where the output goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A file: written under a temporary name beside it, and renamed when it is complete.
    File {
        /// The file.
        path: &'a Path,
        /// What happens to an existing file.
        if_exists: IfExists,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files, whatever the options' format.
    Folder {
        /// The folder.
        path: &'a Path,
        /// What happens to an existing folder; only one that holds just what an earlier conversion wrote is replaced.
        if_exists: IfExists,
    },
}

impl<'a> Target<'a> {
    /// If it is a file: its path, and what happens to an existing file.
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
    /// Whether lost values are an error.
    pub(crate) strict: bool,
    pub(crate) output: Destination<'a>,
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

    /// What the user should know before it is carried out, in words.
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

    /// If the output is in shards: the index that opens it, and the number of shards.
    #[must_use]
    pub fn index(&self) -> Option<(&Path, usize)> {
        match &self.output {
            Destination::Shards { shards, .. } => Some((&shards.index, shards.files.len())),
            _ => None,
        }
    }

    /// Whether the output says where it came from: files of Caffe and MXNet and a single `.npy` have no place for a
    /// receipt.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        match self.output {
            Destination::Folder { .. } => true,
            _ => is_with_receipt(&self.base, self.to),
        }
    }

    /// Whether no transform changes the source's tensors.
    #[must_use]
    pub fn is_untransformed(&self) -> bool {
        self.receipt.is_untransformed
    }

    /// Whether the output is the source, byte for byte, without a receipt: the format stays and no option changes
    /// anything.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        matches!(self.base, Base::Same)
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
/// The fault of an entry, or an output format that cannot hold the tensors.
pub fn plan<'a>(checkpoint: &'a Checkpoint, options: &Options, target: &Target<'a>) -> Result<Plan<'a>, Error> {
    let is_folder = matches!(target, Target::Folder { .. });
    let options = &to_do(checkpoint, options)?;
    let chosen = chosen(checkpoint, options, is_folder)?;
    let (base, notes) = Base::of(checkpoint, options, &chosen.tensors, is_folder);
    let mut plan = planned_for(checkpoint, base, chosen, options, target)?;
    plan.notes.splice(0..0, notes);
    Ok(plan)
}

/// Decides how the tensors of `checkpoint` replace those of the same names and shapes in `base`, a file of Caffe, NeoML
/// or HDF5. Every other byte of `base` is kept. The output has the format of `base`, whatever the options say.
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
    let options = Options { to: base.format(), ..to_do(checkpoint, options)? };
    let chosen = chosen(checkpoint, &options, false)?;
    planned_for(checkpoint, Base::File(base), chosen, &options, target)
}

/// Chooses the tensors and plans the transforms. A folder gets an npy file for each.
pub(crate) fn chosen(checkpoint: &Checkpoint, options: &Options, is_folder: bool) -> Result<Chained, Error> {
    checkpoint.whole()?;
    let to = if is_folder { Format::Npy } else { options.to };
    // A missing array is an empty record in MXNet's files, and a flag in arrays of NeoML blobs.
    let has_nulls = |format: Format| format.is_mxnet() || format == Format::NeomlArray;
    let keeps_all = has_nulls(to) && has_nulls(checkpoint.format()) && to.is_mxnet() == checkpoint.format().is_mxnet();
    let (mut tensors, mut left_out) = (Vec::new(), Vec::new());
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
        tensors.push(read_entry(index, entry, dtype, options.dense, &mut taken));
    }
    let mut chained = chain(checkpoint, &options.transforms, tensors)?;
    chained.left_out.splice(0..0, left_out);
    for tensor in &mut chained.tensors {
        note_format_changes(tensor, &checkpoint.entries()[tensor.entry], to, is_folder);
    }
    Ok(chained)
}

/// The plan for an entry before any transform.
fn read_entry(index: usize, entry: &Entry, dtype: DType, is_dense: bool, taken: &mut HashSet<String>) -> Planned {
    let (mut name, shape, how) = match entry.sparse() {
        Some(sparse) if is_dense => (sparse.name.to_string(), sparse.shape.clone(), How::Dense),
        _ if entry.is_plain() => (entry.name().to_owned(), entry.shape().clone(), How::Copy),
        _ => (entry.name().to_owned(), entry.shape().clone(), How::Stream),
    };
    // Entries have unique names; only the name of a whole sparse array can be taken already.
    while !taken.insert(name.clone()) {
        name = format!("{name}@{}", entry.position());
    }
    let changes = match how {
        How::Stream => vec!["unpacked to row-major little-endian".into()],
        How::Dense => vec!["expanded from sparse to dense".into()],
        How::Copy | How::Kept | How::Computed(_) => Vec::new(),
    };
    Planned { how, changes, ..Planned::new(TensorSpec::new(name, dtype, shape), index) }
}

/// Notes what the output's format changes about a tensor.
fn note_format_changes(tensor: &mut Planned, entry: &Entry, to: Format, is_folder: bool) {
    use Format::{BlobProto, Datum, MxnetRecord, NeomlArray, NeomlBlob, Npy};
    let changes = &mut tensor.changes;
    tensor.keeps_bf16 = tensor.spec.dtype == DType::BF16 && matches!(to, Npy | Format::Npz);
    if tensor.keeps_bf16 {
        changes.push(BITS_OF_BF16.into());
    }
    if matches!(to, NeomlBlob | NeomlArray) {
        let axes = tensor.spec.shape.num_axes();
        if axes < BlobDim::ALL.len() {
            changes.push(format!("stored as seven axes, with ones after its {axes}").into());
        }
    }
    // A folder's files have the tensors' names, and are planned as npy.
    let nameless = matches!(to, BlobProto | Datum | MxnetRecord | NeomlBlob | NeomlArray | Npy) && !is_folder;
    let name = &tensor.spec.name;
    if nameless && name.strip_suffix(".diff").unwrap_or(name) != format!("@{}", entry.position()) {
        changes.push("stored without its name".into());
    }
}

fn planned_for<'a>(
    checkpoint: &'a Checkpoint,
    base: Base<'a>,
    chosen: Chained,
    options: &Options,
    target: &Target<'a>,
) -> Result<Plan<'a>, Error> {
    let Chained { mut tensors, mut left_out, mut notes, removed_layers, .. } = chosen;
    if matches!(base, Base::Same) {
        left_out.clear();
    }
    let is_folder = matches!(target, Target::Folder { .. });
    let to = if is_folder { Format::Npy } else { options.to };
    let options = &Options { to, ..options.clone() };
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
    let frame = match has_receipt {
        false => Err("the output has no receipt"),
        true if !options.transforms.is_empty() => Err("tensors were transformed"),
        true => frame::of(checkpoint, &tensors)?,
    };
    let receipt = Receipt::new(checkpoint, options, &tensors, &left_out, &files, frame)?;
    tensors.iter_mut().enumerate().for_each(|(place, tensor)| tensor.slot = Some(place));
    let in_shards = shards::planned(checkpoint, options, target.file(), &tensors, &mut notes)?;
    if matches!(base, Base::File(_)) && to.is_caffe() && !removed_layers.is_empty() {
        notes.push("fold: the output's own description of the net says so; a prototxt has to be changed".to_owned());
    }
    let path = target.file().map(|(path, _)| path);
    let mut layout = || layout::of(checkpoint, &base, options, (&mut tensors, &removed_layers), (&receipt, path));
    let output = match (*target, in_shards) {
        (Target::File { if_exists, .. }, Some(shards)) => Destination::Shards { if_exists, shards },
        (Target::File { path, if_exists }, None) => Destination::File { path, if_exists, layout: layout()? },
        (Target::Stdout, _) => Destination::Stdout { layout: layout()? },
        (Target::Folder { path, if_exists }, _) => Destination::Folder { path, if_exists, files },
    };
    let strict = options.strict;
    Ok(Plan { checkpoint, base, to, tensors, left_out, notes, receipt, strict, output })
}

/// Whether a file gets a receipt. An output with a base keeps the base's bytes, and so gets none.
fn is_with_receipt(base: &Base<'_>, to: Format) -> bool {
    matches!(base, Base::None) && matches!(to, Format::Safetensors | Format::Npz | Format::Hdf5)
}
