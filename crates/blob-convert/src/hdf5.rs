//! HDF5 files as outputs: new ones of tensors alone, and existing ones whose datasets are overwritten in place.

use std::path::Path;

use blob_io::hdf5::Form;
use blob_io::{Checkpoint, Entry, Error, Format, Frame, Layout, TensorSpec};

use crate::base::refilled;
use crate::caffe::check_fits;
use crate::options::{quoted, refuse, refuse_all};
use crate::planned::Planned;
use crate::receipt::{Receipt, receipt_text};

/// The layout of a new file: in Caffe's form if the output's name says so, or if the source is one of Caffe's nets or
/// solver states.
pub(crate) fn new(
    checkpoint: &Checkpoint,
    tensors: &[Planned],
    receipt: &Receipt,
    path: Option<&Path>,
) -> Result<Layout, Error> {
    let source = match (checkpoint.format(), checkpoint.dialect()) {
        (Format::CaffeModel, _) | (Format::Hdf5, "Caffe weights") => Form::Weights,
        (Format::SolverState, _) | (Format::Hdf5, "Caffe solver state") => Form::SolverState,
        _ => Form::Datasets,
    };
    let form = path.and_then(Form::of_name).unwrap_or(source);
    let mut metadata = vec![receipt.placeholder()];
    let counters = checkpoint.metadata().iter().filter(|(key, _)| form.stores(key));
    metadata.extend(counters.cloned());
    let specs: Vec<TensorSpec> = tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    Layout::new(&specs, Frame::Hdf5 { form, metadata: &metadata })
}

/// The layout of the file `base` with each dataset's values replaced by the tensor of its name; everything else stays.
pub(crate) fn into(checkpoint: &Checkpoint, base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    base.whole()?;
    if receipt_text(base).is_some() {
        let message =
            "has a receipt, which would say of other values that they were written; convert the tensors to a new file";
        return Err(refuse(base, message.to_owned()));
    }
    check_fits(checkpoint, base, tensors, |_, tensor, entry| Ok(entry.shape() == &tensor.spec.shape))?;
    let misfit = |tensor: &Planned| {
        let entry = base.entry(&tensor.spec.name)?;
        let name = quoted(&tensor.spec.name);
        match entry.dtype() {
            Some(dtype) if dtype == tensor.spec.dtype && is_one_run(entry) => None,
            Some(dtype) if dtype == tensor.spec.dtype => {
                Some(format!("{name} is in chunks, compact or big-endian there"))
            }
            other => {
                Some(format!("{name} is {} there", other.map_or("no array".to_owned(), |dtype| dtype.to_string())))
            }
        }
    };
    let misfits: Vec<String> = tensors.iter().filter_map(misfit).collect();
    if !misfits.is_empty() {
        return Err(refuse_all(checkpoint, &format!("does not fit into {}", base.name()), misfits));
    }
    refilled(base, tensors)
}

/// Whether the array is stored as one plain run of bytes, or has none.
fn is_one_run(entry: &Entry) -> bool {
    entry.is_plain() && entry.segments().len() <= 1
}
