//! The base of an output: the file that supplies all bytes that do not change. This is the source itself, the file
//! described by the source's receipt, or a file that the user names.
//!
//! Chooses the base, and overwrites values in place; `caffe` and `layout` put new values into one otherwise.

use std::collections::HashSet;

use blob_io::layout::Layout;
use blob_io::net::{Layer, LayerKind};
use blob_io::{Checkpoint, Entry, Error, Files, Format, Nets, Remedy};

use crate::caffe;
use crate::change::{Change, Effect, listed};
use crate::fits::{Unfit, check_fits};
use crate::frame;
use crate::hdf5 as h5;
use crate::history::{lineage_of, receipt_text};
use crate::options::{Options, refuse};
use crate::pipeline::Chained;
use crate::planned::{Planned, stream_interleaved};

/// The file that supplies all bytes of the output that do not change.
#[derive(Debug)]
pub(crate) enum Template<'a> {
    None,
    /// The source, copied unchanged.
    Same,
    File(&'a Checkpoint),
    /// The file that the source's receipt describes.
    Frame(Box<Checkpoint>),
}

/// The other names in `base` of bytes that tensors replace, as links of HDF5 are: one change for all of them.
pub(crate) fn also_replaced(base: &Checkpoint, tensors: &[Planned]) -> Option<Change> {
    let given: HashSet<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    let (own, others): (Vec<&Entry>, Vec<&Entry>) =
        base.entries().iter().filter(|entry| entry.byte_len() > 0).partition(|entry| given.contains(entry.name()));
    let replaced: HashSet<u64> = own.into_iter().filter_map(Entry::offset).collect();
    let others = others.into_iter().filter(|entry| entry.offset().is_some_and(|at| replaced.contains(&at)));
    let names: Vec<String> = others.map(|entry| entry.name().to_owned()).collect();
    if names.is_empty() {
        return None;
    }
    let words = format!("{}: other names of bytes that are replaced, so they get the values, too", listed(&names));
    Some(Change::unasked(Effect::Dropped(words.into())))
}

impl<'a> Template<'a> {
    /// Chooses the base where the user names none. Also returns the losses of a file without a base.
    pub(crate) fn of(
        checkpoint: &'a Checkpoint,
        options: &Options,
        tensors: &[Planned],
        is_folder: bool,
    ) -> (Self, Vec<Change>) {
        // A Caffe file that stays the same message keeps everything except blobs. V1 and V2 store layers differently.
        let is_same = options.to.is_caffe() && options.to == checkpoint.format();
        // A file that breaks off is no base: only its whole arrays are taken.
        let is_same = is_same && checkpoint.salvaged().is_none() && caffe::renamed(checkpoint, tensors).is_some();
        let mut changes = Vec::new();
        let base = if is_copy(checkpoint, options, is_folder) {
            Self::Same
        } else if is_same && !options.form.is_some_and(|form| form.v1) {
            Self::File(checkpoint)
        } else if is_folder || !options.keeps_frame() || checkpoint.salvaged().is_some() {
            Self::None
        } else {
            match frame::restore(checkpoint, options.to) {
                Some(Ok(made)) => Self::Frame(Box::new(made)),
                Some(Err(why)) => {
                    let format = options.to.name();
                    let words =
                        format!("the {format} is written anew; the receipt's original bytes are not reused: {why}");
                    changes.push(Change::unasked(Effect::Dropped(words.into())));
                    Self::None
                }
                None => Self::None,
            }
        };
        if matches!(base, Self::None) && !is_folder {
            changes.extend(caffe::lost_net(checkpoint, options.to));
            changes.extend(caffe::untyped(checkpoint, options.to, tensors));
        }
        if !is_folder && !matches!(base, Self::Same) {
            changes.extend(caffe::unfactored(checkpoint, options.to, tensors));
        }
        if caffe::lacks_iter(checkpoint, options.to) && base.file().is_none() {
            let note = "iter is written as 0: the source does not say how far the solver was";
            changes.push(Change::unasked(Effect::Remark(note.to_owned())));
        }
        let is_anew = h5::is_hdf5_again(checkpoint, options.to) && matches!(base, Self::None);
        // A file that we wrote holds only tensors and a receipt.
        if is_anew && !options.anew && changes.is_empty() && receipt_text(checkpoint).is_none() {
            let words = "the hdf5 is written anew: attributes, links, chunks and compression of the source are lost";
            changes.push(Change::unasked(Effect::Dropped(words.into())));
        }
        (base, changes)
    }

    /// Whether the output has the source's own bytes around the tensors.
    pub(crate) fn has_bytes_of(&self, source: &Checkpoint) -> bool {
        match self {
            Self::None | Self::Frame(_) => false,
            Self::Same => true,
            Self::File(file) => std::ptr::eq(*file, source),
        }
    }

    /// Whether the output gets a receipt. One with a base keeps the base's bytes, and so gets none.
    pub(crate) fn gets_receipt(&self, to: Format, options: &Options) -> bool {
        matches!(self, Self::None) && options.gives_receipt(to)
    }

    pub(crate) fn file(&self) -> Option<&Checkpoint> {
        match self {
            Self::None | Self::Same => None,
            Self::File(file) => Some(file),
            Self::Frame(file) => Some(file),
        }
    }
}

/// The normalisations of `base` whose statistics, factors and summands stay, though the weights before are replaced.
/// Where the source's receipt says that these values are folded into the weights already, each would count twice.
///
/// # Errors
/// A source with folded weights for a file that has the folded tensors.
pub(crate) fn left_behind(
    checkpoint: &Checkpoint,
    base: &Checkpoint,
    options: &Options,
    chosen: &Chained,
) -> Result<Option<Change>, Error> {
    let replaced: HashSet<&str> = chosen.tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    let done = receipt_text(checkpoint).map(lineage_of).unwrap_or_default();
    let steps = done.iter().flat_map(|origin| &origin.transforms);
    let steps = steps.filter_map(|step| options.registry.read(&step.name, &step.settings).ok());
    let folded: Vec<String> = steps.flat_map(|step| step.merged_into(&replaced)).collect();
    let twice: Vec<String> = folded.into_iter().filter(|name| base.entry(name).is_some()).collect();
    if !twice.is_empty() {
        let named = listed(&twice);
        let why = format!("has {named}, which are folded into the weights of {} already", checkpoint.name());
        return Err(refuse(base, why));
    }
    // With a selection, the user asked for the rest to stay.
    if options.transforms.iter().any(|step| step.selection().is_some()) {
        return Ok(None);
    }
    let Ok(Some(net)) = base.net() else { return Ok(None) };
    let is_replaced = |layer: &Layer| layer.tensors().any(|(_, name)| replaced.contains(name));
    let is_norm_or_scale =
        |layer: &Layer| matches!(layer.kind, LayerKind::BatchNorm | LayerKind::Bn | LayerKind::Scale);
    let before = |layer: &Layer| net.writer(*layer.bottoms.first()?);
    let norms = net.layers().iter().filter(|layer| is_norm_or_scale(layer) && layer.tensors().next().is_some());
    let norms = norms.filter(|layer| !chosen.removed_layers.contains(&layer.name) && !is_replaced(layer));
    let left = norms.filter(|layer| {
        let of = std::iter::successors(before(layer), |above| before(above).filter(|_| is_norm_or_scale(above)));
        of.take(MAX_NORMS).find(|above| !is_norm_or_scale(above)).is_some_and(is_replaced)
    });
    let left: Vec<String> = left.map(|layer| layer.name.clone()).collect();
    Ok((!left.is_empty()).then(|| {
        let named = listed(&left);
        let words =
            format!("statistics and factors stay, and are not of the weights that are put before them: {named}");
        Change::unasked(Effect::Dropped(words.into()))
    }))
}

/// So many normalisations may follow each other.
const MAX_NORMS: usize = 4;

/// Whether the output is a plain copy of the source: one file without a fault, converted to the same format without any
/// option. A folder counts as another format.
pub(crate) fn is_copy(checkpoint: &Checkpoint, options: &Options, is_folder: bool) -> bool {
    let is_plain = !checkpoint.is_packed() && checkpoint.shards().is_empty() && checkpoint.salvaged().is_none();
    let has_no_options = options.keeps_frame() && !options.sha256 && !is_folder;
    // A folder is opened as npy too, and has a receipt.
    let is_npy = options.to.holds().files == Files::Folder && receipt_text(checkpoint).is_none();
    let is_anew = options.to.holds().receipt || is_npy;
    // A file that the format's own reader refuses is not copied: the readable arrays go into a new file.
    is_anew && options.to == checkpoint.format() && has_no_options && is_plain && checkpoint.faults().is_empty()
}

/// The layout of a plain copy. Tensors are read only for digests and checksums; no tensor is written separately.
pub(crate) fn same(checkpoint: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    for tensor in tensors {
        tensor.changes.clear();
        tensor.slot = None;
    }
    Layout::refilled(checkpoint, &[])
}

/// The layout of the file `base`, where each tensor's bytes replace the bytes of the base's tensor of the same name and
/// size.
pub(crate) fn refilled(base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    let mut entries = Vec::with_capacity(tensors.len());
    for tensor in &mut *tensors {
        let Some(entry) = base.entry(&tensor.spec.name) else {
            return Err(refuse(base, format!("has no {:?}", tensor.spec.name)));
        };
        entries.push(entry);
        tensor.spec = base.spec(entry)?;
    }
    let layout = Layout::refilled(base, &entries)?;
    stream_interleaved(&layout, tensors);
    Ok(layout)
}

/// Refuses a file with a receipt, which would say of other values that they were written.
pub(crate) fn check_bare(base: &Checkpoint) -> Result<(), Error> {
    if receipt_text(base).is_none() {
        return Ok(());
    }
    let remedy = if base.format().holds().net == Nets::Graph { Remedy::BareModel } else { Remedy::NewFile };
    Err(Error::misfit(base.name(), "has a receipt, which would say of other values that they were written", remedy))
}

/// The layout of the HDF5 file or ONNX model `base`, where each tensor replaces the values of the array of the same
/// name; everything else stays.
pub(crate) fn in_place(checkpoint: &Checkpoint, base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    base.check_whole()?;
    if !base.shards().is_empty() {
        let message = format!("has values in {}, and values are replaced in one file only", listed(base.shards()));
        return Err(refuse(base, message));
    }
    let scattered = if base.hdf5_form().is_some() {
        "is in chunks, compact or big-endian there"
    } else {
        "is not one run of bytes there"
    };
    check_fits(checkpoint, base, tensors, |tensor, entry| {
        Ok(match entry.dtype() {
            _ if *entry.shape() != tensor.spec.shape => Some(Unfit::of_shape(tensor, entry)),
            Some(there) if there != tensor.spec.dtype => Some(Unfit::of_dtype(tensor, there)),
            Some(_) if is_one_run(entry) => None,
            Some(_) => Some(Unfit::new(scattered)),
            None => Some(Unfit::new("is no array there")),
        })
    })?;
    refilled(base, tensors)
}

/// Whether the array is stored as one plain run of bytes, or has none.
fn is_one_run(entry: &Entry) -> bool {
    entry.is_plain() && entry.segments().len() <= 1
}
