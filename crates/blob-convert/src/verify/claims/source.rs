//! Compares the fields of a receipt about its sources with the sources.

use std::collections::HashSet;

use blob_io::words::and_more;
use blob_io::{Checkpoint, Entry, Error, Kind, Reason};
use serde_json::{Map, Value, json};

use super::alike::{Alike, Difference};
use super::said::{Claims, List, SaidSource, Salvaged};
use super::{shown, wrong};
use crate::digest::{Algorithm, Subject, digest};
use crate::history::{
    Origin, histories_of, history_of, lineage_of, parse, receipt_text, salvaged, source_fields, steps_of,
};
use crate::transform::Own;
use crate::verify::{Finding, Remark};
use crate::watch::Watch;
use crate::written::truncated;

/// Which file of a receipt another file is.
pub(crate) enum Relation {
    /// The source.
    Source,
    /// An earlier source: that file and those since, each with the steps of its conversion; `None` where files were
    /// merged since.
    Earlier(Option<Vec<Origin>>),
    /// None that the receipt names.
    Other,
}

/// Compares the receipt of `ours` with `theirs`. If the digests show another file than the receipt's source, that is
/// said; if `theirs` is the source, each field about the source is compared. Returns which file of the receipt `theirs`
/// is.
///
/// # Errors
/// Errors of reading; [`Error::Interrupted`] where `watch` says so.
pub(crate) fn against_source(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Relation, Error> {
    let Some(claimed) = receipt_text(ours).and_then(parse::<Claims>) else { return Ok(Relation::Other) };
    let Some(source) = claimed.source.as_ref().filter(|source| source.blake3.is_string()) else {
        return Ok(Relation::Other);
    };
    let file = || Subject::File { name: theirs.name(), source: theirs.stored() };
    let blake3 = digest(file(), Algorithm::Blake3, watch)?.digest;
    let sha256 = match source.sha256.as_str() {
        Some(_) => Some(digest(file(), Algorithm::Sha256, watch)?.digest),
        None => None,
    };
    let is_sha256 = sha256.is_some() && source.sha256.as_str() == sha256.as_deref();
    if source.blake3.as_str() != Some(&blake3) && !is_sha256 {
        return Ok(other(ours, theirs, source, &blake3, report));
    }
    let mut own = source_fields(theirs);
    own.extend(unpacked_digest(theirs, watch)?);
    own.insert("blake3".to_owned(), Value::from(blake3));
    own.extend(sha256.map(|sha256| ("sha256".to_owned(), Value::from(sha256))));
    let is_ours = claimed.is_of_this_version();
    of_file(source, &own, theirs, is_ours, report);
    // A receipt may have no room for the metadata, and that of another version may have none.
    if !source.metadata.is_null() {
        differs("metadata", &source.metadata, own.get("metadata"), theirs, report);
    }
    salvaged_likewise(claimed.salvaged.as_ref(), theirs, report);
    let is_transformed = !claimed.transforms.items().is_empty();
    let mut left_out = claimed.left_out.items().iter().map(|left| &*left.name);
    let missing = left_out
        .find(|name| theirs.entry(name).is_none() && !theirs.entries().iter().any(|entry| is_whole(entry, name)));
    if let Some(name) = missing.filter(|_| !is_transformed) {
        report(wrong(&format!("says that {:?} was left out, which the source does not have", truncated(name))));
    }
    has_history(&claimed.history, history_of(receipt_text(theirs).unwrap_or_default()), is_ours, report);
    Ok(Relation::Source)
}

/// Compares the sources that a receipt names by their digests, in this order, with its fields about each and with its
/// history.
///
/// # Errors
/// Errors of reading; [`Error::Interrupted`] where `watch` says so.
pub(in crate::verify) fn of_several(
    ours: &Checkpoint,
    sources: &[&Checkpoint],
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<(), Error> {
    let Some(claimed) = receipt_text(ours).and_then(parse::<Claims>) else { return Ok(()) };
    for (source, file) in claimed.sources.iter().flatten().zip(sources) {
        let mut own = source_fields(file);
        own.extend(unpacked_digest(file, watch)?);
        of_file(source, &own, file, claimed.is_of_this_version(), report);
        salvaged_likewise(source.salvaged.as_ref(), file, report);
    }
    let texts = sources.iter().filter_map(|file| receipt_text(file));
    has_history(&claimed.history, histories_of(texts), claimed.is_of_this_version(), report);
    Ok(())
}

/// The field with the digest of the bytes that a packed file unpacks to.
fn unpacked_digest(file: &Checkpoint, watch: &dyn Watch) -> Result<Option<(String, Value)>, Error> {
    if !file.is_packed() {
        return Ok(None);
    }
    let unpacked = Subject::File { name: file.name(), source: file.source() };
    let blake3 = digest(unpacked, Algorithm::Blake3, watch)?.digest;
    Ok(Some(("unpacked_blake3".to_owned(), Value::from(blake3))))
}

/// Compares the fields about a source with the source.
fn of_file(
    said: &SaidSource,
    own: &Map<String, Value>,
    file: &Checkpoint,
    is_ours: bool,
    report: &mut dyn FnMut(Remark),
) {
    for (field, said) in [
        ("blake3", &said.blake3),
        ("sha256", &said.sha256),
        ("bytes", &said.bytes),
        ("format", &said.format),
        ("compression", &said.compression),
        ("unpacked_bytes", &said.unpacked_bytes),
        ("unpacked_blake3", &said.unpacked_blake3),
        ("dialect", &said.dialect),
        ("member", &said.member),
    ] {
        // The words for a dialect change from version to version; digests are not computed twice.
        let is_checked = if field == "dialect" { is_ours } else { own.contains_key(field) || !is_digest(field) };
        if is_checked {
            differs(field, said, own.get(field), file, report);
        }
    }
    // A file may be given another name.
    let is = own.get("name").unwrap_or(&Value::Null);
    if said.name != *is {
        let (said, is) = (shown(Some(&said.name)), shown(Some(is)));
        report(Remark::Note(format!(
            "not checked: the name of the source, which is {said} in the receipt, and here {is}"
        )));
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
fn salvaged_likewise(said: Option<&Salvaged>, file: &Checkpoint, report: &mut dyn FnMut(Remark)) {
    let is = salvaged(file).unwrap_or_default();
    let said = said.map(|said| [&said.arrays, &said.byte]);
    for (place, field) in ["arrays", "byte"].into_iter().enumerate() {
        let said = said.map_or(&Value::Null, |said| said[place]);
        differs(&format!("salvaged.{field}"), said, is.get(field), file, report);
    }
}

/// Compares the history with that of the sources. Where the receipt had no room, a list is `null`.
fn has_history(said: &List<Origin>, earlier: Vec<Origin>, is_ours: bool, report: &mut dyn FnMut(Remark)) {
    if !said.is_there() {
        return;
    }
    let (said, is) = (json!(said.items()), json!(earlier));
    if let Some(Difference { path, .. }) = Alike::of_fields(is_ours).difference("history", &said, &is) {
        report(wrong(&format!("has another history than the source: {path} is another")));
    }
}

/// Checks that the receipt lists every tensor of the source that was left out; `left_out` has them by the steps that
/// were done again. A file with some of the tensors of a divided source lists none; of a file of which some tensors are
/// looked at, the others are not left out.
pub(in crate::verify) fn left_out_is_said<'n>(
    file: &Checkpoint,
    left_out: impl Iterator<Item = &'n str>,
    report: &mut dyn FnMut(Remark),
) {
    let Some(claimed) = receipt_text(file).and_then(parse::<Claims>) else { return };
    let written = claimed.tensors.as_ref().and_then(Value::as_u64);
    if written.is_some_and(|written| written > file.entries().len() as u64) {
        return;
    }
    // Receipts of earlier versions do not say that a file is one of several.
    let is_part = claimed.is_part == Some(Value::Bool(true))
        || !claimed.is_of_this_version()
            && claimed.transforms.items().iter().any(|step| step.own() == Some(Own::Select));
    let is_part = is_part && claimed.left_out.items().is_empty();
    let said: HashSet<&str> = claimed.left_out.items().iter().map(|left| &*left.name).collect();
    let mut unsaid = left_out.filter(|name| !said.contains(name));
    if let Some(name) = unsaid.next().filter(|_| claimed.left_out.is_there() && !is_part) {
        let more = and_more(unsaid.count());
        report(wrong(&format!("does not say that {:?}{more} was left out", truncated(name))));
    }
}

fn is_whole(entry: &Entry, name: &str) -> bool {
    entry.kind() == Kind::Values && entry.sparse().is_some_and(|sparse| &*sparse.name == name)
}

/// Reports that `theirs` is not the source that the receipt names, unless both come from one source.
fn other(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    source: &SaidSource,
    blake3: &str,
    report: &mut dyn FnMut(Remark),
) -> Relation {
    let expected = source.blake3.as_str().unwrap_or_default();
    let theirs_of = receipt_text(theirs).map(Origin::of_receipt).unwrap_or_default();
    if theirs_of.iter().any(|origin| origin.blake3 == expected) {
        return Relation::Other;
    }
    let lineage = receipt_text(ours).map(lineage_of).unwrap_or_default();
    let name = theirs.name();
    if source.unpacked_blake3.as_str() == Some(blake3) {
        report(Remark::Note(format!("{name} is the unpacked file that the receipt names as its source")));
        return Relation::Source;
    }
    if let Some(place) = lineage.iter().position(|origin| origin.blake3 == blake3) {
        report(Remark::Note(format!("{name} is an earlier source of the receipt's history, not the last one")));
        let since = &lineage[place..];
        let is_single = steps_of(since).all(|(_, is_before_merge)| !is_before_merge);
        return Relation::Earlier(is_single.then(|| since.to_vec()));
    }
    let message = format!(
        "{name} is not the file that the receipt names as its source: BLAKE3 {blake3}, in the receipt {}",
        truncated(expected)
    );
    report(Remark::Unproven(Finding::new("", Reason::Receipt, message)));
    Relation::Other
}
