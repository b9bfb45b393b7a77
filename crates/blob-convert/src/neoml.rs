//! An existing NeoML archive as the output, with other values in its blobs.

use std::collections::HashMap;

use blob_core::{Dims7, Shape};
use blob_io::{Checkpoint, Entry, Error, Layout, TensorSpec};

use crate::caffe::placed;
use crate::options::refuse;
use crate::planned::Planned;

/// The archive `base` with the tensors in the places of its own; all else stays.
pub(crate) fn spliced(checkpoint: &Checkpoint, base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    base.whole()?;
    placed(checkpoint, base, tensors, |_, tensor, entry| Ok(fits(tensor, entry)))?;
    let blobs = base.entries().iter().filter(|entry| entry.dtype().is_some());
    let places: HashMap<&str, usize> = blobs.enumerate().map(|(place, entry)| (entry.name(), place)).collect();
    // Each of them was found in the base just now.
    let replaced: Vec<usize> = tensors.iter().filter_map(|tensor| places.get(&*tensor.spec.name).copied()).collect();
    for tensor in tensors.iter_mut().filter(|tensor| tensor.spec.shape.num_axes() != 7) {
        tensor.changes.push("stored as seven axes, with ones behind".into());
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let archive = base.neoml_archive()?.ok_or_else(|| refuse(base, "is no archive of NeoML".to_owned()))?;
    Layout::neoml(&specs, &archive.replacing(&replaced))
}

/// Whether a tensor has the dtype and the extents of the blob in whose place it goes.
fn fits(tensor: &Planned, entry: &Entry) -> bool {
    let dims = Dims7::from_leading(tensor.spec.shape.dims());
    entry.dtype() == Some(tensor.spec.dtype) && dims.is_ok_and(|dims| Shape::from(dims) == *entry.shape())
}
