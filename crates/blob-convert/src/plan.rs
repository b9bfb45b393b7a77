//! What a conversion will do, decided from headers alone: which tensors, under which names, with which changes.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use blob_core::{BlobDim, DType};
use blob_io::mxnet::{List, Version};
use blob_io::neoml::Archive;
use blob_io::{Checkpoint, Entry, Error, Format, IfExists, Kind, Layout, TensorSpec, file_names, member_names};

use crate::planned::{How, Planned};
use crate::receipt::Receipt;

/// What to convert to, and how.
#[derive(Clone, Debug)]
pub struct Options {
    to: Format,
    dense: bool,
    sha256: bool,
    params_version: Option<Version>,
}

impl Options {
    /// Conversion to a format, with names, values and shapes kept bit for bit.
    #[must_use]
    pub fn new(to: Format) -> Self {
        Self { to, dense: false, sha256: false, params_version: None }
    }

    /// Expands sparse arrays instead of writing their parts.
    #[must_use]
    pub fn dense(mut self, dense: bool) -> Self {
        self.dense = dense;
        self
    }

    /// Puts the source's SHA-256 beside its BLAKE3: into the receipt, where the output has one, and the summary.
    #[must_use]
    pub fn sha256(mut self, sha256: bool) -> Self {
        self.sha256 = sha256;
        self
    }

    /// Writes MXNet records of this version; otherwise they are the source's, or V2 where the source has none. The other
    /// formats have no records, and this changes nothing for them.
    #[must_use]
    pub fn params_version(mut self, version: Version) -> Self {
        self.params_version = Some(version);
        self
    }
}

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

/// What a conversion will do: [`check`](Plan::check) looks ahead, [`run`](Plan::run) carries it out.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) to: Format,
    pub(crate) tensors: Vec<Planned>,
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) receipt: Receipt,
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

    /// The output's size in bytes; for a folder the sum of its arrays' sizes.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        match &self.output {
            Destination::File { layout, .. } | Destination::Stdout { layout } => layout.len(),
            Destination::Folder { .. } => self.tensors.iter().map(|tensor| tensor.spec.byte_len()).sum(),
        }
    }

    /// Whether the output says where it came from: MXNet's files and a single `.npy` have no place for a receipt.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        match self.output {
            Destination::Folder { .. } => true,
            _ => matches!(self.to, Format::Safetensors | Format::Npz),
        }
    }

    /// The format that will be written.
    #[must_use]
    pub fn to(&self) -> Format {
        self.to
    }
}

/// Decides what a conversion of `checkpoint` to `target` will do. Nothing is read or written.
///
/// # Errors
/// The fault of an entry, an output format that cannot hold the tensors, or one that this crate does not write.
pub fn plan<'a>(checkpoint: &'a Checkpoint, options: &Options, target: &Target<'a>) -> Result<Plan<'a>, Error> {
    checkpoint.whole()?;
    let is_folder = matches!(target, Target::Folder { .. });
    let to = if is_folder { Format::Npy } else { options.to };
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
        tensors.push(planned(index, entry, dtype, to, options.dense, &mut taken));
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
    let files: Vec<String> = match is_folder {
        true => stored.into_iter().map(|path| path + ".npy").collect(),
        false => Vec::new(),
    };
    let receipt = Receipt::new(checkpoint, options.sha256, &tensors, &left_out, &files)?;
    let layout = || layout(checkpoint, options, &tensors, &receipt);
    let output = match *target {
        Target::File { path, if_exists } => Destination::File { path, if_exists, layout: layout()? },
        Target::Stdout => Destination::Stdout { layout: layout()? },
        Target::Folder { path, if_exists } => Destination::Folder { path, if_exists, files },
    };
    Ok(Plan { checkpoint, to, tensors, left_out, receipt, output })
}

fn planned(index: usize, entry: &Entry, dtype: DType, to: Format, dense: bool, taken: &mut HashSet<String>) -> Planned {
    let (mut name, shape, how) = match entry.sparse() {
        Some(sparse) if dense => (sparse.name.to_string(), sparse.shape.clone(), How::Dense),
        _ if entry.is_plain() => (entry.name().to_owned(), entry.shape().clone(), How::Copy),
        _ => (entry.name().to_owned(), entry.shape().clone(), How::Stream),
    };
    // Entries have unique names; only the name of a whole sparse array can be taken already.
    while !taken.insert(name.clone()) {
        name = format!("{name}@{}", entry.position());
    }
    let mut changes = Vec::new();
    match how {
        How::Copy => {}
        How::Stream => changes.push("unpacked to row-major little-endian".into()),
        How::Dense => changes.push("expanded from sparse to dense".into()),
    }
    let keeps_bf16 = dtype == DType::BF16 && matches!(to, Format::Npy | Format::Npz);
    if keeps_bf16 {
        changes.push("bf16 bits stored as u2: NumPy has no bfloat16".into());
    }
    if matches!(to, Format::NeomlBlob | Format::NeomlArray) {
        let axes = shape.num_axes();
        if axes < BlobDim::ALL.len() {
            changes.push(format!("stored as seven axes, with ones behind its {axes}").into());
        }
        if name != format!("@{}", entry.position()) {
            changes.push("stored without its name".into());
        }
    }
    Planned { spec: TensorSpec::new(name, dtype, shape), entry: index, how, changes, keeps_bf16 }
}

fn is_mxnet(format: Format) -> bool {
    matches!(format, Format::MxnetList | Format::MxnetRecord)
}

fn layout(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned], receipt: &Receipt) -> Result<Layout, Error> {
    let specs: Vec<TensorSpec> = tensors.iter().map(|t| t.spec.clone()).collect();
    match options.to {
        Format::MxnetList => Layout::mxnet(&specs, &list(checkpoint, options, tensors)?.into_list()),
        Format::MxnetRecord => Layout::mxnet(&specs, &list(checkpoint, options, tensors)?.into_bare()),
        Format::Safetensors => Layout::safetensors(&specs, &[receipt.placeholder()]),
        Format::Npz => Layout::npz(&specs, &[receipt.placeholder()]),
        Format::Npy => match &specs[..] {
            [one] => Layout::npy(one),
            _ => Err(refuse(
                checkpoint,
                format!(
                    "holds {} tensors, and an .npy file one; extract one of them, or convert to npz or to a folder (-o dir/)",
                    specs.len()
                ),
            )),
        },
        Format::NeomlBlob | Format::NeomlArray | Format::NeomlNet => {
            Layout::neoml(&specs, &archive(checkpoint, options.to, specs.len())?)
        }
        other => Err(refuse(checkpoint, format!("cannot be converted to {}: it is read, not written", other.name()))),
    }
}

/// The arrays of an MXNet file: as the source has them, where it is one, or all as they are named here.
fn list(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned]) -> Result<List, Error> {
    let version = options.params_version;
    if let Some(found) = checkpoint.mxnet_list()? {
        let list = if options.dense { found.into_dense() } else { found };
        return Ok(match version {
            Some(version) => list.with_version(version),
            None => list,
        });
    }
    let sparse = |tensor: &Planned| match tensor.how {
        How::Dense => None,
        _ => checkpoint.entries()[tensor.entry].sparse(),
    };
    let mut parts: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, tensor) in tensors.iter().enumerate() {
        if let Some(sparse) = sparse(tensor) {
            parts.entry(&sparse.name).or_default().push(index);
        }
    }
    let mut list = List::new(version.unwrap_or(Version::V2));
    let taken: HashSet<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    for (index, tensor) in tensors.iter().enumerate() {
        let Some(sparse) = sparse(tensor) else {
            list.push(&tensor.spec.name, index);
            continue;
        };
        // Its first part stands for all of them.
        let parts = &parts[&*sparse.name];
        if parts[0] == index {
            let kind = |at: &usize| checkpoint.entries()[tensors[*at].entry].kind();
            let part = |wanted: &Kind| parts.iter().copied().find(|at| kind(at) == *wanted);
            let ordered: Vec<usize> = sparse.kind.parts().iter().filter_map(part).collect();
            let mut name = sparse.name.to_string();
            while taken.contains(&*name) {
                name = format!("{name}@{}", checkpoint.entries()[tensor.entry].position());
            }
            list.push_sparse(&name, sparse.kind, sparse.shape.clone(), &ordered);
        }
    }
    Ok(list)
}

/// The archive around the tensors: the source's own, where it is of the format, or a new one.
fn archive(checkpoint: &Checkpoint, to: Format, tensors: usize) -> Result<Archive, Error> {
    if checkpoint.format() == to
        && let Some(found) = checkpoint.neoml_archive()?
    {
        return Ok(found);
    }
    match (to, tensors) {
        (Format::NeomlArray, tensors) => Ok(Archive::array(tensors)),
        (Format::NeomlBlob, 1) => Ok(Archive::blob()),
        (Format::NeomlBlob, tensors) => Err(refuse(
            checkpoint,
            format!("holds {tensors} tensors, and a NeoML blob is one; extract one of them, or convert to neoml-array"),
        )),
        _ => Err(refuse(checkpoint, "cannot be converted to a NeoML net: its layers are not known".to_owned())),
    }
}

fn refuse(checkpoint: &Checkpoint, message: String) -> Error {
    Error::Request { file: checkpoint.name().to_owned(), message }
}
