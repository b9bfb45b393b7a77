//! The tensors of the source that a conversion takes, before and after the transforms, and why others are left out.
//!
//! `plan` decides on the places of these tensors.

use std::collections::{HashMap, HashSet};

use blob_core::DType;
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry, Error, Format, Kind, Names, Reason, Remedy};

use crate::change::{Change, Effect};
use crate::history::receipt_text;
use crate::options::{Options, refuse};
use crate::pipeline::{Chained, chain};
use crate::planned::{How, LeftOut, Planned};
use crate::receipt::places;
use crate::stored::Storage;
use crate::transform::ignored::find;
use crate::transform::{Choice, Followed, NetOrigin};
use blob_io::words::listed_problems;

/// Chooses the tensors and plans the transforms. A folder gets an npy file for each.
pub(crate) fn chosen(checkpoint: &Checkpoint, options: &Options, is_folder: bool) -> Result<Chained, Error> {
    checkpoint.check_whole()?;
    let to = options.to;
    // A missing array is an empty record in MXNet's files, and a flag in arrays of NeoML blobs.
    let from = checkpoint.format();
    let keeps_all = to.holds().nulls && from.holds().nulls && to.is_mxnet() == from.is_mxnet();
    let (mut tensors, mut left_out) = (Vec::with_capacity(checkpoint.entries().len()), Vec::new());
    let (mut taken, mut unread) = (HashSet::new(), Vec::new());
    let is_selected = selected(checkpoint, options)?;
    for (index, entry) in checkpoint.entries().iter().enumerate() {
        if !is_selected[index] {
            // An unreadable entry is no fault here: nobody asked for that entry.
            left_out.push(LeftOut { name: entry.name().to_owned(), reason: "not chosen".to_owned(), is_asked: true });
            continue;
        }
        if let Some(reason) = unsupported(entry) {
            unread.push(format!("array {:?} is {reason}", entry.name()));
            left_out.push(LeftOut { name: entry.name().to_owned(), reason, is_asked: true });
            continue;
        }
        if let Some(fault) = entry.fault() {
            return Err(refuse(checkpoint, format!("array {:?}: {fault}", entry.name())));
        }
        let Some(dtype) = entry.dtype() else {
            if keeps_all {
                continue;
            }
            let reason = "none: a place without an array".to_owned();
            left_out.push(LeftOut { name: entry.name().to_owned(), reason, is_asked: false });
            continue;
        };
        if options.dense && entry.sparse().is_some() && entry.kind() != Kind::Values {
            continue;
        }
        tensors.push(read_entry(index, entry, dtype, options.dense, &mut taken));
    }
    // A tensor without a name is known by the place in the source, so that order stays.
    if to.holds().names != Names::None {
        let places = receipt_text(checkpoint).map(places).unwrap_or_default();
        tensors
            .sort_by_key(|tensor| places.get(checkpoint.entries()[tensor.entry].name()).copied().unwrap_or(usize::MAX));
    }
    let dense = tensors.iter().filter(|tensor| matches!(tensor.how, How::Dense));
    checkpoint.check_dense(dense.map(|tensor| &checkpoint.entries()[tensor.entry]))?;
    if !options.skip_unsupported {
        refuse_unread(checkpoint.name(), unread)?;
    }
    let followed = Followed::new(checkpoint, &options.net);
    let mut chained = chain(checkpoint, options, &followed, tensors)?;
    chained.left_out.splice(0..0, left_out);
    let nothing = Choice::Recorded(None, None);
    let told = match (&options.told, &options.net) {
        (Some(told), _) => Some(told),
        // The receipt of the steps that are done again tells the net that they followed, and nothing else.
        (None, Choice::Recorded(..)) => Some(&nothing),
        (None, _) => None,
    };
    let teller = told.map(|told| Followed::new(checkpoint, told));
    chained.told_by = note_ignored(teller.as_ref().unwrap_or(&followed), to, &mut chained.tensors);
    let has_receipt = is_folder || options.gives_receipt(to);
    Storage { to, is_folder, has_receipt }.note(checkpoint, &mut chained.tensors);
    Ok(chained)
}

/// Notes the tensors that the source's own framework does not take as stored, where a reader of the output would.
/// Returns the net that tells of such tensors; `None` where there are none.
pub(crate) fn note_ignored(followed: &Followed<'_>, to: Format, tensors: &mut [Planned]) -> Option<NetOrigin> {
    let from = followed.checkpoint;
    let is_told = followed.tells() && to != from.format();
    // Where the net cannot be read, a transform that needs it has said so.
    let Some(Ok(Some(net))) = is_told.then(|| followed.get()) else { return None };
    let stored = tensors.iter().enumerate().filter(|(_, tensor)| !matches!(tensor.how, How::Computed(_)));
    let places: HashMap<&str, usize> =
        stored.map(|(place, tensor)| (from.entries()[tensor.entry].name(), place)).collect();
    let mut is_any = false;
    for ignored in find(from, net.net()).into_iter().filter(|ignored| !ignored.why.is_known_to(to)) {
        if let Some(place) = ignored.names.iter().find_map(|name| places.get(name)) {
            tensors[*place].changes.push(ignored.why.change());
            is_any = true;
        }
    }
    is_any.then(|| net.origin().clone())
}

/// Whether an entry goes into the output: one that is selected, and not left out because it is not read.
pub(crate) fn taken(checkpoint: &Checkpoint, options: &Options) -> Result<Vec<bool>, Error> {
    let mut is_taken = selected(checkpoint, options)?;
    if options.skip_unsupported {
        is_taken.iter_mut().zip(checkpoint.entries()).for_each(|(taken, entry)| *taken &= unsupported(entry).is_none());
    }
    Ok(is_taken)
}

/// Whether every selection among the transforms takes an entry.
fn selected(checkpoint: &Checkpoint, options: &Options) -> Result<Vec<bool>, Error> {
    let mut is_selected = vec![true; checkpoint.entries().len()];
    for selection in options.transforms.iter().filter_map(|step| step.selection()) {
        let mut is_taken = vec![false; is_selected.len()];
        selection.places(checkpoint)?.into_iter().for_each(|place| is_taken[place] = true);
        is_selected.iter_mut().zip(is_taken).for_each(|(all, taken)| *all &= taken);
    }
    Ok(is_selected)
}

/// Refuses arrays that are sound and not read, all at once.
pub(crate) fn refuse_unread(file: &str, unread: Vec<String>) -> Result<(), Error> {
    if unread.is_empty() {
        return Ok(());
    }
    Err(Error::misfit(file, listed_problems(unread), Remedy::SkipUnsupported))
}

/// The places of the arrays of a file that can be read, and the sound arrays that cannot.
///
/// # Errors
/// All arrays that cannot be read, unless they are to be skipped.
pub fn readable(checkpoint: &Checkpoint, skip_unsupported: bool) -> Result<(Vec<usize>, Vec<LeftOut>), Error> {
    let (mut places, mut left_out, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for (place, entry) in checkpoint.entries().iter().enumerate() {
        let Some(reason) = unsupported(entry) else {
            places.push(place);
            continue;
        };
        unread.push(format!("array {:?} is {reason}", entry.name()));
        left_out.push(LeftOut { name: entry.name().to_owned(), reason, is_asked: true });
    }
    if !skip_unsupported {
        refuse_unread(checkpoint.name(), unread)?;
    }
    Ok((places, left_out))
}

/// Why a sound array cannot be converted, in words that follow "is".
pub(crate) fn unsupported(entry: &Entry) -> Option<String> {
    match (entry.foreign_dtype(), entry.fault()) {
        (Some(dtype), _) => Some(format!("of dtype {dtype}, which blob lists but does not load")),
        (_, Some(fault)) if fault.reason() == Reason::Unsupported => Some(format!("not read: {fault}")),
        _ => None,
    }
}

/// The plan for an entry before any transform.
pub(crate) fn read_entry(
    index: usize,
    entry: &Entry,
    dtype: DType,
    is_dense: bool,
    taken: &mut HashSet<String>,
) -> Planned {
    let (mut name, shape, how) = match entry.sparse() {
        Some(sparse) if is_dense => (sparse.name.to_string(), sparse.shape.clone(), How::Dense),
        _ if entry.is_plain() => (entry.name().to_owned(), entry.shape().clone(), How::Copy),
        _ => (entry.name().to_owned(), entry.shape().clone(), How::Stream),
    };
    // Entries have unique names; only the name of a whole sparse array can be taken already.
    while is_dense && !taken.insert(name.clone()) {
        name = format!("{name}@{}", entry.position());
    }
    let changes = match how {
        How::Stream => vec![Change::asked(Effect::Unpacked)],
        How::Dense => vec![Change::asked(Effect::Expanded)],
        How::Copy | How::Kept | How::Computed(_) => Vec::new(),
    };
    Planned { how, changes, ..Planned::new(TensorSpec::new(name, dtype, shape), index) }
}
