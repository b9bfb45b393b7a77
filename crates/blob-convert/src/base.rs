//! The file whose bytes the output keeps where nothing changes: the source itself, the file that its receipt tells of, or one
//! that the user names.
//!
//! Decides which one it is; what Caffe's, NeoML's and HDF5's files do with other values, `caffe`, `layout` and `hdf5` know.

use blob_io::caffe::Form;
use blob_io::{Checkpoint, Error, Format, Layout};

use crate::caffe;
use crate::frame;
use crate::options::{Options, refuse};
use crate::planned::{Planned, stream_woven};
use crate::receipt::own;

/// The file whose bytes the output has where it is not changed.
#[derive(Debug)]
pub(crate) enum Base<'a> {
    None,
    /// The source, copied as it is.
    Same,
    File(&'a Checkpoint),
    /// What the source's receipt has of it.
    Frame(Box<Checkpoint>),
}

impl<'a> Base<'a> {
    /// The base of a conversion that names none, and what a file that is written anew loses, in words.
    pub(crate) fn of(
        checkpoint: &'a Checkpoint,
        options: &Options,
        tensors: &[Planned],
        is_folder: bool,
    ) -> (Self, Vec<String>) {
        // A Caffe file written as the same message keeps all that is no blob. V1 and V2 have other layers.
        let is_same = options.to.is_caffe() && options.to == checkpoint.format();
        let is_same = is_same && caffe::renamed(checkpoint, tensors).is_some();
        let mut notes = Vec::new();
        let base = if is_copy(checkpoint, options, is_folder) {
            Self::Same
        } else if is_same && !options.form.is_some_and(Form::is_v1) {
            Self::File(checkpoint)
        } else if is_folder || !options.keeps_frame() {
            Self::None
        } else {
            match frame::source(checkpoint, options.to) {
                Some(Ok(made)) => Self::Frame(Box::new(made)),
                Some(Err(why)) => {
                    let format = options.to.name();
                    notes.push(format!("the {format} is written anew, not as the receipt has it: {why}"));
                    Self::None
                }
                None => Self::None,
            }
        };
        if caffe::lacks_iter(checkpoint, options.to) && base.file().is_none() {
            notes.push("iter is written as 0: the source does not say how far the solver was".to_owned());
        }
        let is_hdf5 = (checkpoint.format(), options.to) == (Format::Hdf5, Format::Hdf5);
        let is_anew = is_hdf5 && matches!(base, Self::None) && !is_folder;
        // Ours holds tensors and its receipt alone.
        if is_anew && !options.anew && notes.is_empty() && own(checkpoint).is_none() {
            notes.push(
                "the hdf5 is written anew: attributes, links, chunks and compression of the source are lost".to_owned(),
            );
        }
        (base, notes)
    }

    pub(crate) fn file(&self) -> Option<&Checkpoint> {
        match self {
            Self::None | Self::Same => None,
            Self::File(file) => Some(file),
            Self::Frame(file) => Some(file),
        }
    }
}

/// Whether the output is to be the source's bytes: one plain file without a fault, of which nothing is asked but its
/// format; a folder is another format.
fn is_copy(checkpoint: &Checkpoint, options: &Options, is_folder: bool) -> bool {
    let is_plain = !checkpoint.is_packed() && checkpoint.shards().is_empty();
    let is_asked = options.keeps_frame() && !options.sha256 && !is_folder;
    let is_anew = match options.to {
        Format::Safetensors | Format::Npz | Format::Hdf5 => true,
        // A folder is opened as npy as well, by its receipt.
        Format::Npy => own(checkpoint).is_none(),
        _ => false,
    };
    // What the format's own reader refuses is written anew, as far as it was understood.
    is_anew && options.to == checkpoint.format() && is_asked && is_plain && checkpoint.faults().is_empty()
}

/// The file as it is. Each tensor is read for its digest and its checksum, and has no place of its own.
pub(crate) fn same(checkpoint: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    for tensor in tensors {
        tensor.changes.clear();
        tensor.slot = None;
    }
    Layout::refilled(checkpoint, &[])
}

/// The file `base` with the tensors in the places of its own, which they fit.
pub(crate) fn refilled(base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    let mut entries = Vec::with_capacity(tensors.len());
    for tensor in &mut *tensors {
        let missing = || refuse(base, format!("has no {:?}", tensor.spec.name));
        let entry = base.entry(&tensor.spec.name).ok_or_else(missing)?;
        entries.push(entry);
        tensor.spec = base.array(entry)?;
        tensor.changes.clear();
    }
    let layout = Layout::refilled(base, &entries)?;
    stream_woven(&layout, tensors);
    Ok(layout)
}
