//! Lays out a changed file: ranges of the old file, values in place, and messages with new lengths.
//!
//! Values of the same dtype and shape replace the old ones in place; any other change rewrites the BlobProto, and the
//! keys and lengths of the surrounding messages. Pure.

use std::collections::{BTreeMap, BTreeSet};

use blob_core::{DType, Shape};

use super::{BlobChange, Splice, padded};
use crate::caffe::encode::{self, Blob, BlobForm, KeptRun, Values};
use crate::caffe::message::{self, MAX_BYTES};
use crate::caffe::proto_fields::net_parameter;
use crate::caffe::tree;
use crate::entry::Entry;
use crate::error::Error;
use crate::format::Format;
use crate::parts::{self, FilePart, Placed};
use crate::spec::{Problems, TensorSpec};
use crate::wire::protobuf::{Field, Span};

/// Why a blob of which a diff alone was given is none.
const NO_DATA: &str = "has no data that can be kept as they are stored";

/// A range of the file, and the new parts for this range.
type Edit = (Span, Vec<FilePart>);

/// Lays out the changed file; see [`Layout::spliced`](crate::layout::Layout::spliced).
pub(crate) fn plan(specs: &[TensorSpec], splice: &Splice<'_>) -> Result<Placed, Error> {
    let mut problems = Problems::default();
    let mut edits: Vec<Edit> = Vec::new();
    let wired = splice.wiring.iter().flat_map(|wiring| wiring.all().iter().enumerate());
    let wired = wired.filter(|(_, layer)| layer.is_gone || layer.tops.iter().any(|top| top.is_renamed));
    let changed = splice.changes.keys().map(|(layer_index, _)| *layer_index).chain(splice.renamed.keys().copied());
    let changed: BTreeSet<usize> = changed.chain(wired.map(|(layer_index, _)| layer_index)).collect();
    for layer_index in changed {
        edits.extend(layer(specs, splice, layer_index, &mut problems));
    }
    let whole = Span { start: 0, end: splice.base.file_len() };
    let mut parts = with_edits(whole, edits);
    let last = splice.layers.last().and_then(|layer| layer.field);
    let is_v1 = last.is_some_and(|field| field.number == net_parameter::LAYERS);
    for (name, blobs) in &splice.added {
        let form = BlobForm { v1: is_v1, ..splice.form.unwrap_or_default() };
        parts.extend(message::new_layer(specs, name, blobs, form, &mut problems));
    }
    problems.refused(splice.base.format().name()).map_err(|e| e.about(splice.base.name()))?;
    let is_copy = matches!(parts[..], [] | [FilePart::Copy { .. }]);
    let max_len = if is_copy { u64::MAX } else { MAX_BYTES };
    parts::place(splice.base.format().name(), &parts, specs, max_len)
}

/// The parts of a message with edits in ascending order; all other bytes are kept.
fn with_edits(span: Span, edits: Vec<Edit>) -> Vec<FilePart> {
    let mut parts = Vec::new();
    let mut at = span.start;
    for (range, new) in edits {
        parts.push(FilePart::Copy { from: at, len: range.start - at });
        parts.extend(new);
        at = range.end;
    }
    parts.push(FilePart::Copy { from: at, len: span.end - at });
    parts.retain(|part| !matches!(part, FilePart::Copy { len: 0, .. }));
    parts
}

/// The edits of the file for a layer's changes: of the values only if no length changes, otherwise of the whole layer.
fn layer(specs: &[TensorSpec], splice: &Splice<'_>, layer_index: usize, problems: &mut Problems) -> Vec<Edit> {
    let layer = &splice.layers[layer_index];
    let wired = splice.wiring.as_ref().map(|wiring| &wiring.all()[layer_index]);
    let (mut edits, mut is_resized) = (Vec::new(), false);
    if let Some(gone) = wired.filter(|wired| wired.is_gone) {
        let blobs =
            splice.changes.range((layer_index, 0)..(layer_index + 1, 0)).filter(|(_, change)| !change.is_removed);
        blobs.for_each(|((_, index), _)| {
            problems.add(&format!("{}/{index}", gone.name), "is of a layer that is taken out");
        });
        return layer.field.map(|field| (field.whole, Vec::new())).into_iter().collect();
    }
    for top in wired.into_iter().flat_map(|wired| &wired.tops).filter(|top| top.is_renamed) {
        edits.push((top.field.whole, vec![FilePart::Field(top.field.number, vec![FilePart::Bytes(top.name.clone())])]));
        is_resized = true;
    }
    edits.extend(splice.biased.get(&layer_index).map(|(at, byte)| (*at, vec![FilePart::Bytes(vec![*byte])])));
    if let Some(name) = splice.renamed.get(&layer_index) {
        let (number, is_nested) = layer.name_number;
        let content =
            layer.nested.last().filter(|_| is_nested).or(layer.field.as_ref()).map_or(0, |field| field.content.start);
        let range = layer.name.map_or(Span { start: content, end: content }, |name| name.whole);
        edits.push((range, vec![message::text(number, name)]));
        is_resized = true;
    }
    for ((_, index), change) in splice.changes.range((layer_index, 0)..(layer_index + 1, 0)) {
        let blob = layer.blobs.get(*index).copied();
        if let (Some(blob), true) = (blob, change.is_removed) {
            edits.push((blob.whole, Vec::new()));
            is_resized = true;
            continue;
        }
        if let Some((at, tensors)) = in_place(specs, splice, (layer_index, *index), change) {
            edits.extend(at.into_iter().zip(tensors.into_iter().map(|tensor| vec![FilePart::Values(tensor)])));
            continue;
        }
        let Some((new, form)) = rewritten(specs, splice, (layer_index, *index), change, problems) else { continue };
        let range = blob.map_or(Span { start: layer.end, end: layer.end }, |blob| blob.whole);
        let number = blob.map_or(layer.blob_number, |blob| blob.number);
        let parts = new.parts(form);
        edits.push((range, if number == 0 { parts } else { vec![FilePart::Field(number, parts)] }));
        is_resized = true;
    }
    // New blobs have the same offset and keep the given order.
    edits.sort_by_key(|(range, _)| range.start);
    match layer.field {
        Some(field) if is_resized => vec![rewrite_layer(field, &layer.nested, edits)],
        _ => edits,
    }
}

/// A layer's message with edits in ascending order, including edits in nested layers.
fn rewrite_layer(field: Field, nested: &[Field], edits: Vec<Edit>) -> Edit {
    let mut outer: Vec<Edit> = Vec::new();
    let mut inner: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
    for edit in edits {
        match tree::holder(nested, edit.0) {
            Some(place) => inner.entry(place).or_default().push(edit),
            None => outer.push(edit),
        }
    }
    for (place, edits) in inner {
        let Field { number, whole, content } = nested[place];
        outer.push((whole, vec![FilePart::Field(number, with_edits(content, edits))]));
    }
    outer.sort_by_key(|(range, _)| range.start);
    (field.whole, vec![FilePart::Field(field.number, with_edits(field.content, outer))])
}

/// The entries of a stored blob: the data, and the diff, if there is one.
fn entries<'a>(splice: &Splice<'a>, at: (usize, usize)) -> (Option<&'a Entry>, Option<&'a Entry>) {
    let key = |entry: &Entry| (entry.position(), entry.index());
    let all = splice.base.entries();
    let from = all.partition_point(|entry| key(entry) < at);
    let data = all.get(from).filter(|entry| key(entry) == at);
    (data, data.and_then(|data| splice.base.diff_of(data)))
}

/// The ranges that the tensors of a change replace in place, in ascending order; `None` if other bytes change too.
fn in_place(
    specs: &[TensorSpec],
    splice: &Splice<'_>,
    at: (usize, usize),
    change: &BlobChange,
) -> Option<(Vec<Span>, Vec<usize>)> {
    let stored = change.stored.as_ref()?;
    if splice.form.is_some_and(|form| BlobForm { v1: false, ..form } != stored.form) {
        return None;
    }
    let (data, diff) = entries(splice, at);
    let diff_tensor = match change.diff {
        Some(None) => return None,
        Some(Some(tensor)) => Some(tensor),
        None => None,
    };
    let mut places = Vec::new();
    for (entry, tensor) in [(data, change.data), (diff, diff_tensor)] {
        let Some(tensor) = tensor else { continue };
        let (entry, spec) = (entry?, specs.get(tensor)?);
        let dims = spec.shape.dims();
        let is_same = entry.shape().dims() == dims || stored.form.legacy && entry.shape().dims() == padded(dims);
        if !is_same || entry.dtype() != Some(spec.dtype) || !entry.is_plain() {
            return None;
        }
        let [run] = entry.segments() else { return None };
        places.push((Span { start: run.offset, end: run.offset + spec.byte_len() }, tensor));
    }
    places.sort_by_key(|(span, _)| span.start);
    Some(places.into_iter().unzip())
}

/// The BlobProto that results from a change, and the form; `None` if the change does not fit.
fn rewritten(
    specs: &[TensorSpec],
    splice: &Splice<'_>,
    at: (usize, usize),
    change: &BlobChange,
    problems: &mut Problems,
) -> Option<(Blob, BlobForm)> {
    let (data_entry, diff_entry) = entries(splice, at);
    if splice.base.format() == Format::Datum {
        problems.add("@0", "is a Datum, which takes only values of its own dtype and shape");
        return None;
    }
    let named = || data_entry.map_or_else(|| format!("#{}/{}", at.0, at.1), |entry| entry.name().to_owned());
    let data = half(specs, data_entry, change.data);
    let diff = match (change.diff, diff_entry) {
        (Some(None), _) | (None, None) => None,
        (tensor, entry) => Some(half(specs, entry, tensor.flatten())),
    };
    let (Half { values: data, dtype, shape }, diff) = match (data, diff.transpose()) {
        (Ok(data), Ok(diff)) => (data, diff),
        (Err(problem), _) | (_, Err(problem)) => {
            problems.add(&named(), problem);
            return None;
        }
    };
    let diff = match diff {
        None => None,
        Some(diff) if diff.dtype == dtype && padded(diff.shape.dims()) == padded(shape.dims()) => Some(diff.values),
        Some(_) => {
            problems.add(&named(), format!("becomes {dtype} of {shape}, and its diff does not"));
            return None;
        }
    };
    // A new blob has the form of the layer's others: only NVCaffe's holds f16.
    let mut of_layer = splice.changes.range((at.0, 0)..(at.0 + 1, 0)).map(|(_, change)| change);
    let stored = change.stored.as_ref().or_else(|| of_layer.find_map(|other| other.stored.as_ref()));
    let mut form = splice.form.unwrap_or_else(|| stored.map_or(BlobForm::default(), |stored| stored.form));
    if splice.form.is_none() && shape.num_axes() > 4 {
        form.legacy = false;
    }
    if let Some(problem) = encode::problem(dtype, &shape, form) {
        problems.add_with(&named(), problem, encode::remedy(dtype, form));
        return None;
    }
    if form.raw && (data.has_keys() || diff.as_ref().is_some_and(Values::has_keys)) {
        problems.add(&named(), "keeps unpacked values, which raw_data does not hold; give all values of the blob");
        return None;
    }
    let unknown = change.stored.as_ref().map(|stored| stored.unknown.clone()).unwrap_or_default();
    Some((Blob { shape, dtype, data, diff, unknown }, form))
}

/// The data or the diff of a blob.
struct Half {
    values: Values,
    dtype: DType,
    shape: Shape,
}

/// The tensor if one is given, else the values that the entry has; the error says why there are none.
fn half(specs: &[TensorSpec], entry: Option<&Entry>, tensor: Option<usize>) -> Result<Half, &'static str> {
    if let Some(tensor) = tensor {
        let spec = specs.get(tensor).ok_or(NO_DATA)?;
        return Ok(Half { values: Values::Tensor(tensor), dtype: spec.dtype, shape: spec.shape.clone() });
    }
    let entry = entry.ok_or(NO_DATA)?;
    let (dtype, shape) = (entry.dtype().ok_or(NO_DATA)?, entry.shape().clone());
    let runs = runs(entry, dtype).ok_or("keeps values between which other fields lie; give all values of the blob")?;
    Ok(Half { values: Values::Kept(runs), dtype, shape })
}

/// The runs of an array, without or with the keys of unpacked values; `None` where something else lies between.
fn runs(entry: &Entry, dtype: DType) -> Option<Vec<KeptRun>> {
    let size = dtype.size() as u64;
    let runs = entry.segments().iter().map(|run| {
        // One byte between two values is the key of the second.
        let is_keyed = run.stride == size + 1;
        let len = run.count * run.stride - u64::from(is_keyed);
        (is_keyed || run.stride == size).then_some(KeptRun { from: run.offset, len, is_keyed })
    });
    runs.collect()
}
