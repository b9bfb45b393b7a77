//! Which of the source's tensors go out, what the transforms make of them, and what the output's format changes about those.

use std::collections::HashSet;

use blob_core::{BlobDim, DType};
use blob_io::{Checkpoint, Entry, Error, Format, Kind, TensorSpec};

use crate::chain::{Chained, chain};
use crate::layout::is_mxnet;
use crate::options::{Options, refuse};
use crate::planned::{How, Planned};
use crate::receipt::{BITS_OF_BF16, kept_bits};

/// Chooses the tensors and plans the transforms. A folder gets an npy file for each.
pub(crate) fn chosen(checkpoint: &Checkpoint, options: &Options, is_folder: bool) -> Result<Chained, Error> {
    checkpoint.whole()?;
    let to = if is_folder { Format::Npy } else { options.to };
    // An MXNet file has a record where an array is lacking, an array of NeoML blobs a flag.
    let has_nulls = |format| is_mxnet(format) || format == Format::NeomlArray;
    let keeps_all = has_nulls(to) && has_nulls(checkpoint.format()) && is_mxnet(to) == is_mxnet(checkpoint.format());
    let (mut tensors, mut left_out) = (Vec::new(), Vec::new());
    let (mut taken, kept) = (HashSet::new(), kept_bits(checkpoint));
    for (index, entry) in checkpoint.entries().iter().enumerate() {
        if let Some(fault) = entry.fault() {
            return Err(refuse(checkpoint, format!("array {:?}: {fault}", entry.name())));
        }
        if entry.foreign_dtype().is_some() {
            // `view` returns the error that names the dtype.
            checkpoint.view(entry)?;
        }
        let Some(dtype) = kept.dtype(entry) else {
            if keeps_all {
                continue;
            }
            left_out.push((entry.name().to_owned(), "none: a place without an array".to_owned()));
            continue;
        };
        if options.dense && entry.sparse().is_some() && entry.kind() != Kind::Values {
            continue;
        }
        tensors.push(read(index, entry, dtype, options.dense, &mut taken));
    }
    let mut chained = chain(checkpoint, &options.transforms, tensors)?;
    chained.left_out.splice(0..0, left_out);
    for tensor in &mut chained.tensors {
        stored(tensor, &checkpoint.entries()[tensor.entry], to, is_folder);
    }
    Ok(chained)
}

/// A tensor as it is read.
fn read(index: usize, entry: &Entry, dtype: DType, is_dense: bool, taken: &mut HashSet<String>) -> Planned {
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

/// Notes what the output's format cannot hold of a tensor as it is.
fn stored(tensor: &mut Planned, entry: &Entry, to: Format, is_folder: bool) {
    use Format::{BlobProto, Datum, MxnetRecord, NeomlArray, NeomlBlob, Npy};
    let changes = &mut tensor.changes;
    tensor.keeps_bf16 = tensor.spec.dtype == DType::BF16 && matches!(to, Npy | Format::Npz);
    if tensor.keeps_bf16 {
        changes.push(BITS_OF_BF16.into());
    }
    if matches!(to, NeomlBlob | NeomlArray) {
        let axes = tensor.spec.shape.num_axes();
        if axes < BlobDim::ALL.len() {
            changes.push(format!("stored as seven axes, with ones behind its {axes}").into());
        }
    }
    // A folder's files have the tensors' names, and are planned as npy.
    let nameless = matches!(to, BlobProto | Datum | MxnetRecord | NeomlBlob | NeomlArray | Npy) && !is_folder;
    let name = &tensor.spec.name;
    if nameless && name.strip_suffix(".diff").unwrap_or(name) != format!("@{}", entry.position()) {
        changes.push("stored without its name".into());
    }
}
