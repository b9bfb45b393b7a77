//! Caffe files as outputs: new ones of tensors alone, and existing ones whose blobs are replaced.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use blob_io::caffe::{BlobForm, Message};
use blob_io::hdf5::Form;
use blob_io::layout::{Layout, Splice, TensorSpec};
use blob_io::{Checkpoint, Entry, Error, Format, Kind, Nets, TensorName};

use crate::change::{Change, Effect, listed};
use crate::fits::{Unfit, check_fits};
use crate::options::{Options, refuse};
use crate::planned::{How, Planned, stream_interleaved};
use crate::stored::{LABEL, is_numbered, numbered, told_label};
use blob_io::words::quoted;

/// The metadata key of a solver state's iteration.
pub(crate) const ITER: &str = "iter";

/// The message of a new file made of the tensors alone.
pub(crate) fn message(
    checkpoint: &Checkpoint,
    options: &Options,
    tensors: &[Planned],
    specs: &[TensorSpec],
) -> Result<Message, Error> {
    let to = options.to;
    let mut metadata = checkpoint.metadata().to_vec();
    match (checkpoint.format(), to) {
        (from, to) if from == to => {}
        // Solver states in HDF5 and protobuf have the same counters; HDF5 has other attributes, too.
        (_, to) if to.holds().metadata.is_own(ITER) => metadata.retain(|(key, _)| Form::SolverState.stores(key)),
        _ => metadata.clear(),
    }
    let label = told_label(checkpoint).filter(|_| to.holds().metadata.is_own(LABEL) && !options.anew);
    metadata.extend(label.map(|label| (LABEL.to_owned(), label)));
    if lacks_iter(checkpoint, to) {
        metadata.push((ITER.to_owned(), "0".to_owned()));
    }
    let names = specs.iter().map(|spec| &*spec.name);
    let message = if options.renumbers() && is_numbered(to) {
        let names = numbered(names);
        Message::named(to, names.iter().map(|name| &**name), &metadata)
    } else {
        Message::named(to, names, &metadata)
    };
    Ok(message?.with_types(|tensor| checkpoint.entries()[tensors[tensor].entry].layer_type()))
}

/// The layout of a new file, whose values may lie between keys; a message without bytes is refused.
pub(crate) fn streamed(
    checkpoint: &Checkpoint,
    to: Format,
    layout: Layout,
    tensors: &mut [Planned],
) -> Result<Layout, Error> {
    stream_interleaved(&layout, tensors);
    if layout.len() == 0 {
        let message = format!("holds no value, and a {} without one has no bytes", to.title());
        return Err(refuse(checkpoint, message));
    }
    Ok(layout)
}

/// The loss where a net is written anew: layers keep names, types and blobs alone, and the links between layers go.
pub(crate) fn lost_net(checkpoint: &Checkpoint, to: Format) -> Option<Change> {
    if to.holds().net != Nets::Read || checkpoint.format() != to || checkpoint.salvaged().is_some() {
        return None;
    }
    let net = checkpoint.net().ok().flatten();
    let is_described = net.is_some_and(|net| net.layers().iter().any(|l| !l.bottoms.is_empty() || !l.tops.is_empty()));
    let words = "the net's layers are written anew, with their names, types and blobs alone: bottoms, tops, phases, \
                 parameters and layers without blobs are lost";
    is_described.then(|| Change::unasked(Effect::Dropped(words.into())))
}

/// A notice where layers of a new net get no type, because the source does not say one.
pub(crate) fn untyped(checkpoint: &Checkpoint, to: Format, tensors: &[Planned]) -> Option<Change> {
    let mut entries = tensors.iter().map(|tensor| &checkpoint.entries()[tensor.entry]);
    let is_lacking = to.holds().net == Nets::Read && entries.any(|entry| entry.layer_type().is_none());
    let words = "layers get no type, which tensors alone do not have: Caffe takes the weights by the layers' names";
    is_lacking.then(|| Change::unasked(Effect::Notice(words.to_owned())))
}

/// The loss where BatchNorms go without their factors: Caffe takes none of these, and other readers take means and
/// variances for divided ones.
pub(crate) fn unfactored(checkpoint: &Checkpoint, to: Format, tensors: &[Planned]) -> Option<Change> {
    if to.holds().net != Nets::Read {
        return None;
    }
    let names: HashSet<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    // A new bias of a fold is another layer's.
    let own = tensors.iter().filter(|tensor| !tensor.is_new);
    let norms = own.filter(|tensor| checkpoint.entries()[tensor.entry].layer_type() == Some("BatchNorm"));
    let layers = norms.filter_map(|tensor| TensorName::of(&tensor.spec.name).layer());
    let lost: BTreeSet<String> = layers.map(|layer| format!("{layer}/2")).collect();
    let lost: Vec<String> = lost.into_iter().filter(|factor| !names.contains(&**factor)).collect();
    if lost.is_empty() {
        return None;
    }
    let words = format!("Caffe takes no BatchNorm without its factor, which is left out: {}", listed(&lost));
    Some(Change::unasked(Effect::Dropped(words.into())))
}

/// Whether a solver state would lack the iteration, and so look like a net: Caffe always writes the iteration.
pub(crate) fn lacks_iter(checkpoint: &Checkpoint, to: Format) -> bool {
    to.holds().metadata.is_own(ITER) && !checkpoint.metadata().iter().any(|(key, _)| key == ITER)
}

/// The layout of the file `base`, where each tensor replaces the blob of the same name, without `removed_layers`.
/// Tensors that do not change get no slot.
pub(crate) fn spliced(
    checkpoint: &Checkpoint,
    base: &Checkpoint,
    options: &Options,
    tensors: &mut [Planned],
    removed_layers: &[String],
) -> Result<Layout, Error> {
    let mut splice = Splice::new(base)?;
    let is_itself = std::ptr::eq(checkpoint, base);
    let named = renamed(checkpoint, tensors).filter(|_| is_itself);
    let is_moved = matches!(named, Some(Renamed::Moved));
    let layers = if let Some(Renamed::Layers(layers)) = named { owned(layers) } else { Vec::new() };
    // The name that the place of a tensor has in the base.
    let place = |tensor: &Planned| {
        if is_itself && !is_moved { base.entries()[tensor.entry].name().to_owned() } else { tensor.spec.name.clone() }
    };
    if !is_itself {
        check_fits(checkpoint, base, tensors, |tensor, entry| {
            if splice.fits(&tensor.spec.name, &tensor.spec.shape)? {
                Ok(None)
            } else {
                Ok(Some(Unfit::of_shape(tensor, entry)))
            }
        })?;
        tensors.iter_mut().for_each(|tensor| note_dtype(tensor, base));
        settle_diffs(base, options, tensors, &mut splice)?;
    }
    crate::dimensions::pad(options, (!is_itself).then_some(base), tensors);
    if is_itself {
        let kept: HashSet<String> = tensors.iter().filter(|tensor| !tensor.is_new).map(place).collect();
        check_order(base, &kept)?;
        for entry in base.entries().iter().filter(|entry| !kept.contains(entry.name())) {
            splice.remove(entry.name())?;
        }
    }
    splice.remove_layers(removed_layers.iter().map(String::as_str))?;
    let (mut specs, mut is_reshaped) = (Vec::new(), false);
    for tensor in &mut *tensors {
        let entry = &checkpoint.entries()[tensor.entry];
        if is_itself && tensor.is_new {
            splice.add(&tensor.spec.name, specs.len())?;
            tensor.slot = Some(specs.len());
            specs.push(tensor.spec.clone());
            continue;
        }
        let there = place(tensor);
        is_reshaped |= is_itself && base.entry(&there).is_some_and(|entry| tensor.spec.shape != *entry.shape());
        let stays = is_itself && options.keeps_blobs() && tensor.is_entry(entry) && there == *entry.name();
        if stays {
            // The file keeps this tensor's bytes, and the content beside the tensor.
            tensor.changes.retain(|change| !matches!(change.effect, Effect::Unpacked | Effect::Unlisted(_)));
        }
        // Values in several segments, or in none, are copied together with the bytes around.
        if stays && (!tensor.is_copied() || entry.segments().len() != 1) {
            (tensor.how, tensor.slot) = (How::Kept, None);
            continue;
        }
        splice.replace(&there, specs.len())?;
        tensor.slot = Some(specs.len());
        specs.push(tensor.spec.clone());
    }
    check_namesakes(base, &layers)?;
    for (layer, name) in &layers {
        splice.rename(layer, name)?;
    }
    // The four dimensions of the legacy form are the same for a shape and the squeezed one, so a reshaped blob gets the
    // current form.
    splice.form = options.form.or_else(|| is_reshaped.then(BlobForm::default));
    Layout::spliced(&specs, &splice)
}

/// Adds a copy of a tensor for each other place of a parameter that layers of `base` share by name: Caffe takes the
/// last place. A place with a tensor of the same name gets no copy.
pub(crate) fn add_copies(base: &Checkpoint, tensors: &mut Vec<Planned>) -> Result<(), Error> {
    let Some(net) = base.net()? else { return Ok(()) };
    let given: HashMap<String, usize> =
        tensors.iter().enumerate().map(|(place, tensor)| (tensor.spec.name.clone(), place)).collect();
    for copies in net.copies() {
        let Some(from) = copies.iter().rev().find_map(|name| given.get(&**name).copied()) else { continue };
        let others: BTreeSet<&str> =
            copies.iter().map(|name| &**name).filter(|name| !given.contains_key(*name)).collect();
        for (name, entry) in others.into_iter().filter_map(|name| Some((name, base.entry(name)?))) {
            let mut copy = tensors[from].clone();
            copy.spec.name = name.to_owned();
            if entry.shape().count() == copy.spec.shape.count() {
                copy.spec.shape = entry.shape().clone();
            }
            if matches!(copy.how, How::Copy) {
                copy.how = How::Stream;
            }
            let words = format!("also goes where layers share {:?} by the name of a param", tensors[from].spec.name);
            copy.changes.push(Change::unasked(Effect::Notice(words)));
            tensors.push(copy);
        }
    }
    Ok(())
}

/// Settles the diff of each replaced array of `base` for which no diff is given: the old diff is left out where diffs
/// are stripped; else the old diff stays, and a notice says so.
fn settle_diffs(
    base: &Checkpoint,
    options: &Options,
    tensors: &mut [Planned],
    splice: &mut Splice<'_>,
) -> Result<(), Error> {
    let is_stripped = options.transforms.iter().any(|step| step.strips_diffs());
    let given: HashSet<String> = tensors.iter().map(|tensor| tensor.spec.name.clone()).collect();
    for tensor in tensors {
        let entry = base.entry(&tensor.spec.name).filter(|entry| entry.kind() == Kind::Data);
        let diff = entry.and_then(|entry| base.diff_of(entry)).filter(|diff| !given.contains(diff.name()));
        match (diff, is_stripped) {
            (Some(diff), true) => splice.remove(diff.name())?,
            (Some(_), false) => tensor.changes.push(Change::unasked(Effect::Notice("its diff there stays".to_owned()))),
            (None, _) => {}
        }
    }
    Ok(())
}

/// Refuses to keep a diff without the blob that the diff is a part of.
fn check_diffs(base: &Checkpoint, kept: &HashSet<String>) -> Result<(), Error> {
    let diffs = base.entries().iter().filter(|entry| entry.kind() == Kind::Diff && kept.contains(entry.name()));
    let mut diffs = diffs.map(Entry::name);
    match diffs.find(|name| TensorName::of(name).diffed().is_some_and(|blob| !kept.contains(blob))) {
        None => Ok(()),
        Some(diff) => {
            let (diff, blob) = (quoted(diff), quoted(TensorName::of(diff).array));
            Err(refuse(base, format!("{diff} is the diff of {blob}, which is left out: leave out both, or neither")))
        }
    }
}

/// Refuses to rename the first of several layers of one name alone: the names of the others, as `conv@3`, have a
/// position that a reader of the output would count anew.
fn check_namesakes(base: &Checkpoint, renamed: &[(String, String)]) -> Result<(), Error> {
    let renamed: HashMap<&str, &str> = renamed.iter().map(|(old, new)| (&**old, &**new)).collect();
    for name in base.names().map(TensorName::of) {
        let (Some(layer), Some(first)) = (name.layer(), name.namesake()) else { continue };
        if let Some(new) = renamed.get(first).filter(|_| !renamed.contains_key(layer)) {
            let (layer, first, new) = (quoted(layer), quoted(first), quoted(new));
            return Err(refuse(base, format!("{layer} would be called {first} where that is {new}: rename both")));
        }
    }
    Ok(())
}

/// Refuses to remove a blob before a kept one: blobs have no names, and the kept one would take the free place.
fn check_order(base: &Checkpoint, kept: &HashSet<String>) -> Result<(), Error> {
    check_diffs(base, kept)?;
    let mut removed: Option<&Entry> = None;
    for entry in base.entries().iter().filter(|entry| entry.kind() == Kind::Data) {
        match (kept.contains(entry.name()), removed) {
            (true, Some(before)) if before.position() == entry.position() => {
                let (gone, kept) = (quoted(before.name()), quoted(entry.name()));
                return Err(refuse(
                    base,
                    format!("{kept} would take the place of {gone}, which is left out before it"),
                ));
            }
            (true, _) => {}
            (false, _) => removed = Some(entry),
        }
    }
    Ok(())
}

/// The renames in a Caffe file that is written with the source as base.
pub(crate) enum Renamed<'a> {
    /// Layers get other names, old name to new.
    Layers(BTreeMap<&'a str, &'a str>),
    /// Tensors change places: each name is one of the file's.
    Moved,
}

/// The renames that lead to the tensors' names without a new file; `None` where old and new layers do not clearly
/// match.
pub(crate) fn renamed<'a>(checkpoint: &'a Checkpoint, tensors: &'a [Planned]) -> Option<Renamed<'a>> {
    if let Some(layers) = renamed_layers(checkpoint, tensors) {
        return Some(Renamed::Layers(layers));
    }
    let is_diff = |name: &str| TensorName::of(name).kind == Kind::Diff;
    let are_places = tensors.iter().filter(|tensor| !tensor.is_new).all(|tensor| {
        let (own, name) = (checkpoint.entries()[tensor.entry].name(), &*tensor.spec.name);
        checkpoint.entry(name).is_some_and(|entry| entry.dtype().is_some()) && is_diff(own) == is_diff(name)
    });
    are_places.then_some(Renamed::Moved)
}

fn owned(layers: BTreeMap<&str, &str>) -> Vec<(String, String)> {
    layers.into_iter().map(|(old, new)| (old.to_owned(), new.to_owned())).collect()
}

/// The renamed layers, old name to new; `None` where a tensor moved within a layer or to another one.
fn renamed_layers<'a>(checkpoint: &'a Checkpoint, tensors: &'a [Planned]) -> Option<BTreeMap<&'a str, &'a str>> {
    let mut layers = BTreeMap::new();
    for tensor in tensors.iter().filter(|tensor| !tensor.is_new) {
        let (old, new) = (checkpoint.entries()[tensor.entry].name(), &*tensor.spec.name);
        let (was, is) = (TensorName::of(old), TensorName::of(new));
        let (Some(layer), Some(name)) = (was.layer(), is.layer()) else {
            if old == new {
                continue;
            }
            return None;
        };
        let is_same_place = old[layer.len()..] == new[name.len()..];
        if !is_same_place || *layers.entry(layer).or_insert(name) != name {
            return None;
        }
    }
    let names: HashSet<&str> = layers.values().copied().collect();
    let is_one_to_one = names.len() == layers.len();
    layers.retain(|layer, name| layer != name);
    is_one_to_one.then_some(layers)
}

/// Notes that an array of `base` gets another dtype.
fn note_dtype(tensor: &mut Planned, base: &Checkpoint) {
    let was = base.entry(&tensor.spec.name).and_then(Entry::dtype);
    if let Some(was) = was.filter(|was| *was != tensor.spec.dtype) {
        tensor.changes.push(Change::unasked(Effect::OtherDtype { was, to: tensor.spec.dtype }));
    }
}
