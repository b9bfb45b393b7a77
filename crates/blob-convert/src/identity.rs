//! A conversion within one format that asks for no change: the file's own bytes, checked and copied in the one pass.
//!
//! For the formats that are otherwise written anew. Caffe's, MXNet's and NeoML's have bytes of their own to keep, which
//! `caffe` and `layout` know.

use blob_io::{Checkpoint, Error, Format, Layout};

use crate::options::Options;
use crate::planned::Planned;
use crate::receipt::own;

/// Whether the output is to be the source's bytes: one plain file without a fault, of which nothing is asked but its
/// format; a folder is another format.
pub(crate) fn applies(checkpoint: &Checkpoint, options: &Options, is_folder: bool) -> bool {
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
pub(crate) fn layout(checkpoint: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    for tensor in tensors {
        tensor.changes.clear();
        tensor.slot = None;
    }
    Layout::refilled(checkpoint, &[])
}
