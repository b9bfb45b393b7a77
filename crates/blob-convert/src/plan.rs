//! What a conversion will do, decided from headers alone: which tensors, under which names, with which changes.

use std::borrow::Cow;
use std::collections::HashSet;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Format, Kind, Layout, TensorSpec, file_names, member_names};

use crate::receipt::Receipt;

/// What a change says first where bf16 is kept as the bits of a u16; verification looks for it.
pub(crate) const BF16: &str = "bf16 bits stored as u2";

/// What to convert to, and how.
#[derive(Clone, Debug)]
pub struct Options {
    to: Format,
    dense: bool,
    sha256: bool,
}

impl Options {
    /// Conversion to a format, with names, values and shapes kept bit for bit.
    #[must_use]
    pub fn new(to: Format) -> Self {
        Self { to, dense: false, sha256: false }
    }

    /// Expands sparse arrays instead of writing their parts.
    #[must_use]
    pub fn dense(mut self, dense: bool) -> Self {
        self.dense = dense;
        self
    }

    /// Puts the source's SHA-256 into the receipt, beside its BLAKE3.
    #[must_use]
    pub fn sha256(mut self, sha256: bool) -> Self {
        self.sha256 = sha256;
        self
    }
}

/// One tensor of the output.
#[derive(Clone, Debug)]
pub struct Planned {
    pub(crate) spec: TensorSpec,
    pub(crate) entry: usize,
    pub(crate) how: How,
    pub(crate) changes: Vec<Cow<'static, str>>,
}

impl Planned {
    /// The name in the output.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.spec.dtype()
    }

    /// The shape, row-major.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.spec.shape()
    }

    /// Bytes of data in the output.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.spec.byte_len()
    }

    /// The source's entry that the data come from, as an index into [`Checkpoint::entries`].
    #[must_use]
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// What is changed on the way, in words; empty where the name and the bytes are kept as they are.
    #[must_use]
    pub fn changes(&self) -> &[Cow<'static, str>] {
        &self.changes
    }
}

/// How a tensor's bytes are had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Copied from the source's segments while the pass goes over them.
    Copy,
    /// Read on their own after the pass: unpacked, inflated, reordered.
    Stream,
    /// A sparse array, expanded.
    Dense,
}

/// What a conversion will do.
#[derive(Debug)]
pub struct Plan {
    pub(crate) to: Format,
    pub(crate) tensors: Vec<Planned>,
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) receipt: Receipt,
    pub(crate) layout: Option<Layout>,
    /// A folder's file for each tensor; empty for one file.
    pub(crate) files: Vec<String>,
    output_len: u64,
}

impl Plan {
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
        self.output_len
    }

    /// The format that will be written.
    #[must_use]
    pub fn to(&self) -> Format {
        self.to
    }
}

/// Decides what a conversion of `checkpoint` will do. Nothing is read or written.
///
/// # Errors
/// The fault of an entry, an output format that cannot hold the tensors, or one that this crate does not write.
pub fn plan(checkpoint: &Checkpoint, options: &Options) -> Result<Plan, Error> {
    plan_for(checkpoint, options, false)
}

/// As [`plan`], for a folder with one `.npy` file a tensor.
///
/// # Errors
/// As [`plan`].
pub fn plan_folder(checkpoint: &Checkpoint, options: &Options) -> Result<Plan, Error> {
    plan_for(checkpoint, options, true)
}

fn plan_for(checkpoint: &Checkpoint, options: &Options, folder: bool) -> Result<Plan, Error> {
    checkpoint.whole()?;
    let mut tensors = Vec::new();
    let mut left_out = Vec::new();
    let mut taken = HashSet::new();
    for (index, entry) in checkpoint.entries().iter().enumerate() {
        if let Some(fault) = entry.fault() {
            return Err(refuse(checkpoint, format!("array {:?}: {fault}", entry.name())));
        }
        if entry.foreign_dtype().is_some() {
            // Says which dtype it is.
            checkpoint.view(entry)?;
        }
        let Some(dtype) = entry.dtype() else {
            left_out.push((entry.name().to_owned(), "none: a place without an array".to_owned()));
            continue;
        };
        if options.dense && entry.sparse().is_some() && entry.kind() != Kind::Values {
            continue;
        }
        tensors.push(planned(index, entry, dtype, options, &mut taken));
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|t| t.spec.clone()).collect();
    let files = stored(&mut tensors, options.to, folder);
    let written = (options.to, &files[..]);
    let receipt = Receipt::new(checkpoint, options.sha256, &tensors, &left_out, written)?;
    let (layout, output_len) = if folder {
        (None, specs.iter().map(TensorSpec::byte_len).sum())
    } else {
        let layout = layout(checkpoint, options.to, &specs, &receipt)?;
        let len = layout.len();
        (Some(layout), len)
    };
    Ok(Plan { to: options.to, tensors, left_out, receipt, layout, files, output_len })
}

/// A folder's file for each tensor, and none otherwise. Says of each tensor where it is stored under another name.
fn stored(tensors: &mut [Planned], to: Format, folder: bool) -> Vec<String> {
    let names: Vec<&str> = tensors.iter().map(Planned::name).collect();
    let stored = match to {
        _ if folder => file_names(&names),
        Format::Npz => member_names(&names),
        _ => return Vec::new(),
    };
    for (tensor, stored) in tensors.iter_mut().zip(&stored) {
        if stored != tensor.name() {
            tensor.changes.push(format!("stored as {stored:?}").into());
        }
    }
    match folder {
        true => stored.into_iter().map(|path| path + ".npy").collect(),
        false => Vec::new(),
    }
}

fn planned(index: usize, entry: &Entry, dtype: DType, options: &Options, taken: &mut HashSet<String>) -> Planned {
    let (mut name, shape, how) = match entry.sparse() {
        Some(sparse) if options.dense => (sparse.name().to_owned(), sparse.shape().clone(), How::Dense),
        _ if entry.is_plain() => (entry.name().to_owned(), entry.shape().clone(), How::Copy),
        _ => (entry.name().to_owned(), entry.shape().clone(), How::Stream),
    };
    // Only a sparse array's own name can be taken: entries have unique ones.
    while !taken.insert(name.clone()) {
        name = format!("{name}@{}", entry.position());
    }
    let mut changes = Vec::new();
    match how {
        How::Copy => {}
        How::Stream => changes.push("unpacked to row-major little-endian".into()),
        How::Dense => changes.push("expanded from sparse to dense".into()),
    }
    if dtype == DType::BF16 && options.to != Format::Safetensors {
        changes.push(format!("{BF16}: NumPy has no bfloat16").into());
    }
    Planned { spec: TensorSpec::new(name, dtype, shape), entry: index, how, changes }
}

fn layout(checkpoint: &Checkpoint, to: Format, specs: &[TensorSpec], receipt: &Receipt) -> Result<Layout, Error> {
    match to {
        Format::Safetensors => Layout::safetensors(specs, &[receipt.placeholder()]),
        Format::Npz => Layout::npz(specs, &[receipt.placeholder()]),
        Format::Npy => match specs {
            [one] => Layout::npy(one),
            _ => Err(refuse(
                checkpoint,
                format!(
                    "holds {} tensors, and an .npy file one; extract one of them, or convert to npz or to a folder (-o dir/)",
                    specs.len()
                ),
            )),
        },
        other => Err(refuse(checkpoint, format!("cannot be converted to {}: it is read, not written", other.name()))),
    }
}

fn refuse(checkpoint: &Checkpoint, message: String) -> Error {
    Error::Request { file: checkpoint.name().to_owned(), message }
}
