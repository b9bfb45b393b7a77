//! Checks each field of a receipt that claims something besides the tensors: the schema, counts, the frame, and, with
//! the source at hand, the fields about the source.
//!
//! A receipt is untrusted: a contradiction to the file or within the receipt is a finding, an undecidable claim is a
//! note.

use blake3::Hash;
use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error, Format, Kind, Reason, SparseKind, TensorName};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys;
use super::receipt::{Items, truncated};
use super::{Finding, Remark};
use crate::digest::{Algorithm, Subject, digest};
use crate::frame;
use crate::history::{Origin, histories_of, history_of, parse, receipt_text, salvaged, source_fields};
use crate::receipt::{SCHEMA, TOOL, combined_digest};
use crate::transform::Selection;
use crate::watch::Watch;

/// The part of the schema before the number.
const SCHEMA_NAME: &str = "blob.receipt/";
/// The length of a digest in hexadecimal.
const HEX_LEN: usize = 64;

/// The fields that are compared with the file that holds the receipt.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    schema: Option<Value>,
    #[serde(default)]
    tensors: Option<Value>,
    #[serde(default)]
    source: Option<Value>,
    #[serde(default)]
    sources: Option<Vec<Value>>,
    #[serde(default)]
    contents: Option<Items>,
    #[serde(default)]
    contents_blake3: Option<String>,
    #[serde(default)]
    sparse: Option<Vec<Part>>,
    #[serde(default)]
    changes: Option<Vec<Value>>,
    #[serde(default)]
    lost_values: Option<Value>,
    #[serde(default)]
    zeroed_values: Option<Value>,
    #[serde(default)]
    salvaged: Option<Value>,
    #[serde(default)]
    prefixed: Option<Value>,
    #[serde(default)]
    select: Option<Value>,
    #[serde(default)]
    bf16_as_u16: Option<Value>,
    #[serde(default)]
    u16: Option<Value>,
    #[serde(default)]
    sources_left_out: Option<String>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "a list that cannot be read is a finding")]
    history: Option<Vec<Origin>>,
    #[serde(default)]
    #[expect(dead_code, reason = "a list that cannot be read is a finding")]
    left_out: Option<Vec<Value>>,
    #[serde(default)]
    #[expect(dead_code, reason = "a list that cannot be read is a finding")]
    warnings: Option<Vec<String>>,
}

/// A sparse array that was written as parts.
#[derive(Deserialize)]
struct Part {
    name: String,
    kind: String,
    shape: Vec<u64>,
}

/// Checks the claims of a file's receipt about the receipt and the file: the schema, the number of tensors, the digest
/// of all digests, the names of changed tensors and sparse arrays, the form of the source's digests, and that the frame
/// makes a file. [`receipt`](super::receipt()) checks the digests of tensors.
pub fn claims(checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let Some(text) = receipt_text(checkpoint) else { return };
    let Some(claims) = parse::<Claims>(text) else {
        report(wrong("cannot be read"));
        return;
    };
    schema(claims.schema.as_ref(), report);
    if checkpoint.format() == Format::Onnx {
        report(Remark::Note("the nodes of the graph are not checked: the receipt tells of tensors".to_owned()));
    }
    for key in keys::unknown(text) {
        let key = truncated(&key);
        report(if claims.tool.as_deref() == Some(TOOL) {
            wrong(&format!("has a field {key:?}, which this version does not write"))
        } else {
            Remark::Note(format!("the receipt has a field {key:?}, which this version does not know and did not check"))
        });
    }
    // A file that is made of several has a list of sources in place of one.
    let is_of_conversion = claims.source.is_some();
    let tensors = checkpoint.entries().len();
    match &claims.tensors {
        None if !is_of_conversion => {}
        Some(said) if said.as_u64() == Some(tensors as u64) => {}
        said => {
            report(wrong(&format!("says that {} tensors were written, and there are {tensors}", shown(said.as_ref()))))
        }
    }
    if let (Some(items), Some(all)) = (&claims.contents, &claims.contents_blake3) {
        let each: Option<Vec<Hash>> = items.0.values().map(|item| Hash::from_hex(&item.blake3).ok()).collect();
        if each.is_none_or(|each| *combined_digest(each.iter()).to_hex() != **all) {
            report(wrong(&format!("has a contents_blake3 that is not that of its contents: {}", truncated(all))));
        }
    }
    let mut changed = claims.changes.iter().flatten().filter_map(|changed| changed["name"].as_str());
    if let Some(name) = changed.find(|name| checkpoint.entry(name).is_none()) {
        report(wrong(&format!("tells of a change of {:?}, which is not there", truncated(name))));
    }
    of_sparse(&claims, checkpoint, report);
    of_values(&claims, checkpoint, report);
    if let Some(why) = &claims.sources_left_out {
        report(Remark::Note(format!("the receipt does not name the files that were merged: {}", truncated(why))));
    }
    claims.sources.iter().flatten().for_each(|source| of_source(Some(source), report));
    if is_of_conversion {
        of_source(claims.source.as_ref(), report);
        // A frame cannot fit a file with a broken array, which is a finding of its own.
        if checkpoint.entries().iter().all(|entry| entry.fault().is_none()) {
            of_frame(checkpoint, text, report);
        }
    }
}

/// Checks the sparse arrays that were written as parts.
fn of_sparse(claims: &Claims, checkpoint: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    for Part { name, kind, shape } in claims.sparse.iter().flatten() {
        let has = |part: &str| checkpoint.entry(&format!("{name}#{part}")).is_some();
        let name = truncated(name);
        if !["values", "indices", "indptr"].into_iter().any(has) {
            report(wrong(&format!("tells of a sparse array {name:?}, which is not there")));
            continue;
        }
        let known = [SparseKind::RowSparse, SparseKind::Csr].into_iter().find(|known| known.name() == kind);
        // Of a part of the parts, nothing tells the kind.
        let is_whole = |kind: SparseKind| {
            kind.parts().iter().all(|part| checkpoint.entry(&TensorName::new(name, *part).to_string()).is_some())
        };
        let is_so = || checkpoint.entries().iter().any(|entry| is_sparse(entry, name, kind, shape));
        if known.is_none_or(|kind| is_whole(kind) && !is_so()) {
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
    let is_selection = |said: &Value| said.is_object() && Selection::read(said).is_some();
    let salvaged = claims.salvaged.as_ref();
    for (field, said, is_sound) in [
        ("lost_values", claims.lost_values.as_ref(), Value::is_u64 as fn(&Value) -> bool),
        ("zeroed_values", claims.zeroed_values.as_ref(), Value::is_u64),
        ("salvaged.arrays", salvaged.map(|salvaged| &salvaged["arrays"]), Value::is_u64),
        ("salvaged.byte", salvaged.map(|salvaged| &salvaged["byte"]).filter(|byte| !byte.is_null()), Value::is_u64),
        ("prefixed", claims.prefixed.as_ref(), Value::is_boolean),
        ("select", claims.select.as_ref().filter(|said| !is_selection(said)), |_| false),
        ("bf16_as_u16", claims.bf16_as_u16.as_ref().filter(|said| !is_names(said)), Value::is_boolean),
        ("u16", claims.u16.as_ref().filter(|said| !is_names(said)), |_| false),
    ] {
        if said.is_some_and(|said| !is_sound(said)) {
            report(wrong(&format!("has {field} of {}", shown(said))));
        }
    }
    let mut bits = claims.changes.iter().flatten().map(|changed| &changed["bits_of"]);
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

/// Checks the form of the fields about the source.
fn of_source(source: Option<&Value>, report: &mut dyn FnMut(Remark)) {
    let source = source.unwrap_or(&Value::Null);
    let is_digest =
        |value: &Value| value.as_str().is_some_and(|hex| hex.len() == HEX_LEN && Hash::from_hex(hex).is_ok());
    for (name, is_needed) in [("blake3", true), ("sha256", false)] {
        if !(is_digest(&source[name]) || source[name].is_null() && !is_needed) {
            report(wrong(&format!("has a source.{name} that is no digest: {}", shown(Some(&source[name])))));
        }
    }
    for name in ["bytes", "unpacked_bytes"] {
        if !(source[name].is_u64() || source[name].is_null() && name != "bytes") {
            report(wrong(&format!("has a source.{name} of {}", shown(Some(&source[name])))));
        }
    }
    if source["format"].as_str().and_then(|name| name.parse::<blob_io::Format>().ok()).is_none() {
        report(wrong(&format!("has a source.format that is not known: {}", shown(Some(&source["format"])))));
    }
}

/// Checks that the frame makes a file of the format and the length of the first source.
fn of_frame(checkpoint: &Checkpoint, text: &str, report: &mut dyn FnMut(Remark)) {
    let (format, bytes) = match frame::check(checkpoint) {
        Ok(None) => return,
        Ok(Some(made)) => made,
        Err(why) => {
            report(wrong(&format!("has a frame that makes no file: {why}")));
            return;
        }
    };
    let Some(first) = history_of(text).into_iter().next() else { return };
    let unpacked = serde_json::from_str::<Value>(text).ok().and_then(|all| all["source"]["unpacked_bytes"].as_u64());
    let is_length = bytes == first.bytes || unpacked == Some(bytes);
    // An earlier source may be packed, and the unpacked length is not known any more.
    let is_only = history_of(text).len() == 1;
    if first.format != format.name() || is_only && !is_length {
        let (name, of) = (format.name(), first.format);
        report(wrong(&format!(
            "has a frame of {name} and {bytes} bytes, and its first source is {of} of {} bytes",
            first.bytes
        )));
    }
}

/// Compares the receipt of `ours` with `theirs`. If the digests show another file than the receipt's source, a note
/// says so; if `theirs` is the source, each field about the source is compared. Returns whether `theirs` is the source.
///
/// # Errors
/// Errors of reading; [`Error::Interrupted`] where `watch` says so.
pub(crate) fn against_source(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<bool, Error> {
    let claimed = receipt_text(ours).and_then(parse::<Value>);
    let Some(claimed) = claimed.filter(|receipt| receipt["source"]["blake3"].is_string()) else { return Ok(false) };
    let source = &claimed["source"];
    let file = || Subject::File { name: theirs.name(), source: theirs.stored() };
    let blake3 = digest(file(), Algorithm::Blake3, watch)?.digest;
    let sha256 = match source["sha256"].as_str() {
        Some(_) => Some(digest(file(), Algorithm::Sha256, watch)?.digest),
        None => None,
    };
    let is_sha256 = sha256.is_some() && source["sha256"].as_str() == sha256.as_deref();
    if source["blake3"].as_str() != Some(&blake3) && !is_sha256 {
        report_other(ours, theirs, &claimed, &blake3, report);
        return Ok(false);
    }
    let mut own = source_fields(theirs);
    own.insert("blake3".to_owned(), Value::from(blake3));
    own.extend(sha256.map(|sha256| ("sha256".to_owned(), Value::from(sha256))));
    let is_ours = claimed["tool"] == TOOL;
    of_file(source, &own, theirs, is_ours, report);
    if !source["metadata"].is_null() && is_ours {
        differs("metadata", &source["metadata"], own.get("metadata"), theirs, report);
    }
    salvaged_likewise(&claimed["salvaged"], theirs, report);
    let is_named = |name: &str| theirs.entry(name).is_some() || theirs.entries().iter().any(|e| is_whole(e, name));
    let left_out = claimed["left_out"].as_array().into_iter().flatten();
    let is_transformed = claimed["transforms"].as_array().is_some_and(|steps| !steps.is_empty());
    let strangers = left_out.filter_map(|left| left["name"].as_str()).find(|name| !is_named(name));
    if let Some(name) = strangers.filter(|_| !is_transformed) {
        report(wrong(&format!("says that {:?} was left out, which the source does not have", truncated(name))));
    }
    has_history(&claimed["history"], history_of(receipt_text(theirs).unwrap_or_default()), report);
    Ok(true)
}

/// Compares the sources that a receipt names by their digests, in this order, with its fields about each and with its
/// history.
pub(super) fn of_several(ours: &Checkpoint, sources: &[&Checkpoint], report: &mut dyn FnMut(Remark)) {
    let Some(claimed) = receipt_text(ours).and_then(parse::<Value>) else { return };
    for (place, file) in sources.iter().enumerate() {
        let source = &claimed["sources"][place];
        of_file(source, &source_fields(file), file, claimed["tool"] == TOOL, report);
        salvaged_likewise(&source["salvaged"], file, report);
    }
    let texts = sources.iter().filter_map(|file| receipt_text(file));
    has_history(&claimed["history"], histories_of(texts), report);
}

/// Compares the fields about a source with the source.
fn of_file(said: &Value, own: &Map<String, Value>, file: &Checkpoint, is_ours: bool, report: &mut dyn FnMut(Remark)) {
    for field in ["blake3", "sha256", "bytes", "format", "compression", "unpacked_bytes", "dialect"] {
        // The words for a dialect change from version to version; digests are not computed twice.
        let is_checked = if field == "dialect" { is_ours } else { own.contains_key(field) || !is_digest(field) };
        if is_checked {
            differs(field, &said[field], own.get(field), file, report);
        }
    }
}

fn is_digest(field: &str) -> bool {
    matches!(field, "blake3" | "sha256")
}

/// Reports a field about a source that is not as the source has it.
fn differs(field: &str, said: &Value, is: Option<&Value>, file: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let is = is.unwrap_or(&Value::Null);
    if said != is {
        let (name, said, is) = (file.name(), shown(Some(said)), shown(Some(is)));
        report(wrong(&format!("says source.{field} is {said}, and that of {name} is {is}")));
    }
}

/// Compares where a source breaks off; the reason is in words.
fn salvaged_likewise(said: &Value, file: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let is = salvaged(file).unwrap_or_default();
    for field in ["arrays", "byte"] {
        differs(&format!("salvaged.{field}"), &said[field], is.get(field), file, report);
    }
}

fn has_history(said: &Value, earlier: Vec<Origin>, report: &mut dyn FnMut(Remark)) {
    if said.is_array() && !is_part_of(said, &serde_json::to_value(earlier).unwrap_or_default()) {
        report(wrong("has another history than the source"));
    }
}

/// Whether an entry is a part of the sparse array of this name, kind and shape.
fn is_sparse(entry: &Entry, name: &str, kind: &str, shape: &[u64]) -> bool {
    entry.sparse().is_some_and(|sparse| {
        let dims = sparse.shape.dims().iter().map(|dim| *dim as u64);
        *sparse.name == *name && sparse.kind.name() == kind && dims.eq(shape.iter().copied())
    })
}

fn is_whole(entry: &Entry, name: &str) -> bool {
    entry.kind() == Kind::Values && entry.sparse().is_some_and(|sparse| &*sparse.name == name)
}

/// Reports that `theirs` is not the source that the receipt names, unless both come from one source.
fn report_other(ours: &Checkpoint, theirs: &Checkpoint, claimed: &Value, blake3: &str, report: &mut dyn FnMut(Remark)) {
    let expected = claimed["source"]["blake3"].as_str().unwrap_or_default();
    let theirs_of = receipt_text(theirs).map(Origin::of_receipt).unwrap_or_default();
    let of_one = theirs_of.iter().any(|origin| origin.blake3 == expected);
    if of_one {
        return;
    }
    let earlier = receipt_text(ours).map(history_of).unwrap_or_default();
    let name = theirs.name();
    report(Remark::Note(if earlier.iter().any(|origin| origin.blake3 == blake3) {
        format!("{name} is an earlier source of the receipt's history, not the last one")
    } else {
        format!(
            "{name} is not the file that the receipt names as its source: BLAKE3 {blake3}, in the receipt {}",
            truncated(expected)
        )
    }));
}

fn wrong(what: &str) -> Remark {
    Remark::Finding(Finding::new("", Reason::Receipt, format!("the receipt {what}")))
}

/// A value from a receipt, for a message.
fn shown(value: Option<&Value>) -> String {
    let text = value.map_or("none".to_owned(), Value::to_string);
    truncated(&text).to_owned()
}

/// Whether two values are equal. In `said`, `null` stands for any value that the receipt had no room for.
fn is_part_of(said: &Value, is: &Value) -> bool {
    match (said, is) {
        (Value::Null, _) => true,
        (Value::Array(said), Value::Array(is)) => {
            said.len() == is.len() && said.iter().zip(is).all(|(said, is)| is_part_of(said, is))
        }
        (Value::Object(said), Value::Object(is)) => {
            said.len() == is.len()
                && said.iter().all(|(name, said)| is.get(name).is_some_and(|is| is_part_of(said, is)))
        }
        _ => said == is,
    }
}
