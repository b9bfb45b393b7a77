//! Checks each field of a receipt that claims something besides the tensors: the schema, counts, the frame, the graph,
//! and, with the source at hand, the fields about the source.
//!
//! A receipt is untrusted: a contradiction to the file or within the receipt is a finding, an undecidable claim is a
//! note.

mod alike;
mod remade;
mod said;
mod source;

use blake3::Hash;
use blob_core::DType;
use blob_io::words::joined;
use blob_io::{Checkpoint, Entry, Format, Nets, Reason, SparseKind, TensorName};
use serde_json::Value;

use super::keys::{self, Keys};
use crate::finding::{Finding, Remark};
use crate::frame;
use crate::hash::combined_digest;
use crate::history::{history_of, receipt_text};
use crate::model::Around;
use crate::receipt::{SCHEMA, had_room};
use crate::step::Step;
use crate::transform::{Own, Registry, Selection};
use crate::written::truncated;
use remade::len_of;
pub(in crate::verify) use remade::remade;
use said::{Claims, SaidSource, SparseArray};
pub(crate) use source::{Relation, against_source};
pub(super) use source::{left_out_is_said, of_several};

/// The part of the schema before the number.
const SCHEMA_NAME: &str = "blob.receipt/";
/// The length of a digest in hexadecimal.
const HEX_LEN: usize = 64;

/// Checks the claims of a file's receipt about the receipt and the file: the schema, the number of tensors, the digest
/// of all digests, the bytes of a model around the tensors, the names of changed tensors and sparse arrays, the
/// settings of the steps, the form of the source's digests, and that the frame makes a file.
/// [`receipt`](super::receipt()) checks the digests of tensors.
pub fn claims(checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let Some(text) = receipt_text(checkpoint) else { return };
    let Some((claims, keys)) = keys::read::<Claims>(text) else {
        report(wrong("cannot be read"));
        of_frame(checkpoint, text, report);
        return;
    };
    schema(claims.schema.as_ref(), report);
    of_graph(&claims, checkpoint, report);
    for key in &keys.unknown {
        let key = truncated(key);
        report(if claims.is_of_this_version() {
            wrong(&format!("has a field {key:?}, which this version does not write"))
        } else {
            Remark::Note(format!("the receipt has a field {key:?}, which this version does not know and did not check"))
        });
    }
    of_gaps(&claims, &keys, report);
    of_room(&claims, checkpoint, text, report);
    of_contents(&claims, checkpoint, report);
    of_sparse(&claims, checkpoint, report);
    of_values(&claims, checkpoint, report);
    of_steps(&claims, report);
    claims.sources.iter().flatten().chain(&claims.source).for_each(|source| of_source(source, report));
    // A frame cannot fit a file with a broken array, which is a finding of its own.
    if claims.source.is_some() && checkpoint.entries().iter().all(|entry| entry.fault().is_none()) {
        of_frame(checkpoint, text, report);
    }
}

/// Reports the claims that the receipt should make and does not.
fn of_gaps(claims: &Claims, keys: &Keys, report: &mut dyn FnMut(Remark)) {
    if claims.source.is_none() && claims.sources.as_ref().is_none_or(Vec::is_empty) {
        match &claims.sources_left_out {
            Some(why) => {
                let why = truncated(why);
                report(Remark::Note(format!("the receipt does not name the files that were merged: {why}")));
            }
            None => report(wrong("names no source")),
        }
    }
    if claims.tool.is_none() {
        report(wrong("names no tool and version, by which its fields are known"));
    }
    let lacks = claims.lacks(keys);
    if !lacks.is_empty() {
        let named = joined(lacks.len(), &lacks);
        report(if claims.is_of_this_version() {
            wrong(&format!("lacks fields that this version writes: {named}"))
        } else {
            Remark::Note(format!("the receipt lacks fields, and so nothing of these was checked: {named}"))
        });
    }
}

/// Reports the lists that are `null`: a finding where there was room, by all that is known without the source.
fn of_room(claims: &Claims, checkpoint: &Checkpoint, text: &str, report: &mut dyn FnMut(Remark)) {
    if claims.contents.is_none() && claims.contents_blake3.is_some() {
        // A merged file's list gives way to the list of its sources.
        let has_room = had_room(checkpoint, len_of(text, "sources"));
        let is_known = claims.sources_left_out.is_none() && claims.is_of_this_version();
        report(if is_known && has_room {
            wrong("lists no tensors, though there was room for all of them")
        } else {
            let none = "the receipt lists no tensors: the values were compared all together, and no names, dtypes and \
                        shapes";
            Remark::Note(none.to_owned())
        });
    }
    let without_room = claims.without_room();
    if !without_room.is_empty() {
        let named = joined(without_room.len(), &without_room);
        report(Remark::Note(format!("the receipt had no room for lists, which were not checked: {named}")));
    }
}

/// Checks the counts and the names of tensors.
fn of_contents(claims: &Claims, checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let tensors = checkpoint.entries().len();
    match &claims.tensors {
        None => {}
        Some(said) if said.as_u64() == Some(tensors as u64) => {}
        said => {
            report(wrong(&format!("says that {} tensors were written, and there are {tensors}", shown(said.as_ref()))))
        }
    }
    if let Some(name) = claims.contents.as_ref().and_then(|items| items.repeated.as_ref()) {
        report(wrong(&format!("lists {:?} twice among its contents", truncated(name))));
    }
    if let (Some(items), Some(all)) = (&claims.contents, &claims.contents_blake3) {
        let each: Option<Vec<Hash>> = items.by_name.values().map(|item| Hash::from_hex(&item.blake3).ok()).collect();
        if each.is_none_or(|each| *combined_digest(each.iter()).to_hex() != **all) {
            report(wrong(&format!("has a contents_blake3 that is not that of its contents: {}", truncated(all))));
        }
    }
    let mut changed = claims.changes.items().iter().map(|changed| &*changed.name);
    if let Some(name) = changed.find(|name| checkpoint.entry(name).is_none()) {
        report(wrong(&format!("tells of a change of {:?}, which is not there", truncated(name))));
    }
}

/// Checks the bytes of a model around its tensors.
fn of_graph(claims: &Claims, checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let is_model = checkpoint.format().holds().net == Nets::Graph;
    let Some(said) = &claims.graph_blake3 else {
        if is_model && claims.is_of_this_version() {
            report(wrong("has no graph_blake3, which this version writes of a model"));
        } else if is_model {
            report(Remark::Note("the nodes of the graph are not checked: the receipt tells of tensors".to_owned()));
        }
        return;
    };
    let found = match Around::of(checkpoint) {
        Ok(around) => around.whole.to_hex(),
        Err(e) => return report(wrong(&format!("has graph_blake3 of {}, and {e}", shown(Some(said))))),
    };
    if said.as_str() != Some(found.as_str()) {
        let said = shown(Some(said));
        report(wrong(&format!(
            "is of another graph: nodes, inputs, outputs, versions or metadata were changed since: BLAKE3 {}, in the \
             receipt {said}",
            found.as_str()
        )));
    }
}

/// Checks the settings of the steps that are ours.
fn of_steps(claims: &Claims, report: &mut dyn FnMut(Remark)) {
    if claims.transforms.had_no_room() {
        report(if claims.is_of_this_version() {
            wrong("has no transforms but null, which this version does not write")
        } else {
            Remark::Note("the receipt had no room for its transforms, and so they were not checked".to_owned())
        });
    }
    let is_part = claims.is_part == Some(Value::Bool(true));
    if is_part && !claims.transforms.had_no_room() && !claims.transforms.items().iter().any(takes_some) {
        report(wrong("says that the file is one of several, and no step says which tensors it has"));
    }
    let registry = Registry::default();
    for step in claims.transforms.items() {
        let mut why = registry.odd_setting(&step.name, &step.settings);
        if why.is_none() && claims.is_of_this_version() {
            why = registry.lacking_setting(&step.name, &step.settings);
        }
        if let Some(why) = why {
            report(wrong(&format!("has the step {:?}, which {why}", truncated(&step.name))));
        }
    }
}

/// Whether a step takes some of the tensors.
fn takes_some(step: &Step) -> bool {
    match step.own() {
        Some(Own::Select) => true,
        Some(Own::Split) => !step.settings["part"].is_null(),
        _ => false,
    }
}

/// Checks the sparse arrays that were written as parts.
fn of_sparse(claims: &Claims, checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    for SparseArray { name, kind, shape } in claims.sparse.items() {
        let mut parts = ["values", "indices", "indptr"].into_iter().map(|part| format!("{name}#{part}"));
        let name = truncated(name);
        if !parts.any(|part| checkpoint.entry(&part).is_some()) {
            report(wrong(&format!("tells of a sparse array {name:?}, which is not there")));
            continue;
        }
        let known = [SparseKind::RowSparse, SparseKind::Csr].into_iter().find(|known| known.name() == kind);
        // Of a part of the parts, nothing tells the kind.
        let is_whole = known.is_none_or(|known| {
            known.parts().iter().all(|part| checkpoint.entry(&TensorName::new(name, *part).to_string()).is_some())
        });
        let is_known = known.is_some();
        if !is_known || is_whole && !checkpoint.entries().iter().any(|entry| is_sparse(entry, name, kind, shape)) {
            report(wrong(&format!("tells of a sparse array {name:?} of a kind or shape that its parts do not have")));
        }
    }
}

/// Checks numbers and names that stand alone.
fn of_values(claims: &Claims, checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let is_names = |said: &Value| {
        let mut names = said.as_array().into_iter().flatten();
        said.is_array() && names.all(|name| name.as_str().is_some_and(|name| checkpoint.entry(name).is_some()))
    };
    let registry = Registry::default();
    let is_selection = claims.select.as_ref().is_none_or(|said| {
        said.is_object()
            && Selection::read(said).is_some()
            && registry.odd_setting("select", said).is_none()
            && (registry.lacking_setting("select", said).is_none() || !claims.is_of_this_version())
    });
    let salvaged = claims.salvaged.as_ref();
    for (field, said, is_sound) in [
        ("lost_values", claims.lost_values.as_ref(), Value::is_u64 as fn(&Value) -> bool),
        ("zeroed_values", claims.zeroed_values.as_ref(), Value::is_u64),
        ("salvaged.arrays", salvaged.map(|salvaged| &salvaged.arrays), Value::is_u64),
        ("salvaged.byte", salvaged.map(|salvaged| &salvaged.byte).filter(|byte| !byte.is_null()), Value::is_u64),
        ("prefixed", claims.prefixed.as_ref(), Value::is_boolean),
        ("part", claims.is_part.as_ref(), Value::is_boolean),
        ("select", claims.select.as_ref().filter(|_| !is_selection), |_| false),
        ("bf16_as_u16", claims.bf16_as_u16.as_ref().filter(|said| !is_names(said)), Value::is_boolean),
        ("u16", claims.u16.as_ref().filter(|said| !is_names(said)), |_| false),
    ] {
        if said.is_some_and(|said| !is_sound(said)) {
            report(wrong(&format!("has {field} of {}", shown(said))));
        }
    }
    let mut bits = claims.changes.items().iter().map(|changed| &changed.bits_of);
    if let Some(other) = bits.find(|bits| !bits.is_null() && bits.as_str() != Some(DType::BF16.name())) {
        report(wrong(&format!("has bits_of {}, and bf16 alone is stored as the bits of another", shown(Some(other)))));
    }
}

fn schema(found: Option<&Value>, report: &mut dyn FnMut(Remark)) {
    let text = found.and_then(Value::as_str);
    if text == Some(SCHEMA) {
        return;
    }
    let number = text.and_then(|text| text.strip_prefix(SCHEMA_NAME)?.parse::<u64>().ok());
    match number {
        Some(number) => report(Remark::Note(format!(
            "the receipt is of {SCHEMA_NAME}{number}, which this version does not know; it is read as {SCHEMA}"
        ))),
        None => report(wrong(&format!("has the schema {}, not {SCHEMA}", shown(found)))),
    }
}

/// Checks the form of the fields about a source.
fn of_source(source: &SaidSource, report: &mut dyn FnMut(Remark)) {
    for (name, said, is_needed) in [
        ("blake3", &source.blake3, true),
        ("sha256", &source.sha256, false),
        ("unpacked_blake3", &source.unpacked_blake3, false),
    ] {
        let is_digest = said.as_str().is_some_and(|hex| hex.len() == HEX_LEN && Hash::from_hex(hex).is_ok());
        if !(is_digest || said.is_null() && !is_needed) {
            report(wrong(&format!("has a source.{name} that is no digest: {}", shown(Some(said)))));
        }
    }
    for (name, said) in [("bytes", &source.bytes), ("unpacked_bytes", &source.unpacked_bytes)] {
        if !(said.is_u64() || said.is_null() && name != "bytes") {
            report(wrong(&format!("has a source.{name} of {}", shown(Some(said)))));
        }
    }
    if source.format.as_str().and_then(|name| name.parse::<Format>().ok()).is_none() {
        report(wrong(&format!("has a source.format that is not known: {}", shown(Some(&source.format)))));
    }
}

/// Checks that the frame makes a file of the format and the length of the first source.
/// [`receipt`](super::receipt()) compares the digest of that file.
fn of_frame(checkpoint: &Checkpoint, text: &str, report: &mut dyn FnMut(Remark)) {
    let made = match frame::check(checkpoint) {
        Ok(None) => return,
        Ok(Some(made)) => made,
        Err(why) => {
            report(wrong(&format!("has a frame that makes no file: {why}")));
            return;
        }
    };
    let Some(first) = history_of(text).into_iter().next() else { return };
    let name = made.format().name();
    if first.format != name {
        let of = truncated(&first.format);
        report(wrong(&format!("has a frame of {name}, and its first source is {of}")));
    }
}

/// Whether an entry is a part of the sparse array of this name, kind and shape.
fn is_sparse(entry: &Entry, name: &str, kind: &str, shape: &[u64]) -> bool {
    entry.sparse().is_some_and(|sparse| {
        let dims = sparse.shape.dims().iter().map(|dim| *dim as u64);
        *sparse.name == *name && sparse.kind.name() == kind && dims.eq(shape.iter().copied())
    })
}

pub(super) fn wrong(what: &str) -> Remark {
    Remark::Finding(Finding::new("", Reason::Receipt, format!("the receipt {what}")))
}

/// A value from a receipt, for a message.
fn shown(value: Option<&Value>) -> String {
    let text = value.map_or("none".to_owned(), Value::to_string);
    truncated(&text).to_owned()
}
