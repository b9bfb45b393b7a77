//! Compares a file that is made of several others with all of these.
//!
//! The receipt names the sources by digests, so the order of the files does not matter. Without a receipt, the names of
//! the tensors decide.

use std::collections::HashSet;
use std::path::PathBuf;

use blob_io::{Checkpoint, Error, Reason};
use serde::Deserialize;
use serde_json::Value;

use super::replay::Repetition;
use super::{By, Compared, against_by, claims};
use crate::digest::{Algorithm, Subject, digest};
use crate::finding::{Finding, Remark};
use crate::history::{parse, receipt_text};
use crate::options::refuse;
use crate::receipt::Receipt;
use crate::regroup::{Clash, Union};
use crate::transform::{Choice, Followed, NetOrigin, Selection};
use crate::watch::Watch;
use crate::written::truncated;

/// A longer prefix is a finding: the names with it would take as much memory as the names times the prefix.
const LONGEST_PREFIX: usize = 1024;

/// The fields of a receipt about several sources.
#[derive(Deserialize)]
struct Merged {
    sources: Option<Vec<Claim>>,
    #[serde(default)]
    prefixed: bool,
    /// The settings of a selection that took some tensors of each source.
    select: Option<Value>,
}

/// A source by the receipt.
#[derive(Deserialize)]
struct Claim {
    name: String,
    blake3: String,
    #[serde(default)]
    prefix: String,
    told_by: Option<NetOrigin>,
}

/// As [`against_by`], with all the files that `ours` is made of, in any order. A missing source is a finding with its
/// name, and so is a file that is no source.
///
/// # Errors
/// As [`against_by`]; [`Error::Request`] for a file without names that no receipt describes.
pub fn against_all(
    ours: &Checkpoint,
    theirs: &[Checkpoint],
    by: &By,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    let merged = receipt_text(ours).and_then(parse::<Merged>);
    let (claims, sources, is_prefixed, select) = match (merged, theirs) {
        (Some(Merged { sources: Some(claims), prefixed, select }), _) => {
            let sources = found(ours, &claims, theirs, watch, report)?;
            (claims, sources, prefixed, select)
        }
        (_, [one]) => return against_by(ours, one, by, watch, report),
        _ => return by_names(ours, theirs, watch, report),
    };
    let Some(Sources { files, are_exact }) = sources else { return Ok(Compared::default()) };
    let Some(selection) = select.map_or(Some(Selection::default()), |settings| Selection::read(&settings)) else {
        let message = "the selection of the receipt is not understood".to_owned();
        report(Remark::Finding(Finding::new("", Reason::Receipt, message)));
        return Ok(Compared::default());
    };
    let mut union = Union::with(files, is_prefixed, &selection)?;
    let done = compared(ours, &union, watch, report)?;
    if !are_exact || !union.clashes.is_empty() {
        return Ok(done);
    }
    let told: Vec<Choice> = claims.into_iter().map(|claim| Choice::Recorded(claim.told_by, by.net.clone())).collect();
    for (source, told) in union.sources.iter().zip(&told) {
        let told = Followed::new(source.checkpoint, told);
        if let (true, Err(why)) = (told.tells(), told.get()) {
            report(Remark::Note(format!("the receipt was not compared with the merge made again: {why}")));
            return Ok(done);
        }
    }
    union.noted(ours.format(), &|source| told[source].clone());
    let again = Receipt::remade_of_several(&union).map_err(|e| e.about(ours.name()))?;
    Ok(Compared { receipt: claims::remade(ours, &again, report), ..done })
}

/// The files that are compared with the receipt.
struct Sources<'a> {
    /// A file for each source of the receipt, with its prefix.
    files: Vec<(&'a Checkpoint, String)>,
    /// Whether all of them have the digests in the receipt, and there is no other one.
    are_exact: bool,
}

/// The file of each source by the receipt; `None` where a source is missing.
fn found<'a>(
    ours: &Checkpoint,
    named: &[Claim],
    files: &'a [Checkpoint],
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Option<Sources<'a>>, Error> {
    if let Some(claim) = named.iter().find(|claim| claim.prefix.len() > LONGEST_PREFIX) {
        let message = format!(
            "the source {:?} of the receipt has a prefix of {} bytes, and at most {LONGEST_PREFIX} are taken",
            truncated(&claim.name),
            claim.prefix.len()
        );
        report(Remark::Finding(Finding::new("", Reason::Receipt, message)));
        return Ok(None);
    }
    let mut left = Vec::new();
    for file in files {
        let subject = Subject::File { name: file.name(), source: file.stored() };
        left.push((file, digest(subject, Algorithm::Blake3, watch)?.digest));
    }
    let mut sources: Vec<Option<(&Checkpoint, String)>> = Vec::new();
    for claim in named {
        let place = left.iter().position(|(_, hash)| *hash == claim.blake3);
        sources.push(place.map(|place| (left.remove(place).0, claim.prefix.clone())));
    }
    let exact = sources.iter().map(|source| Some(source.as_ref()?.0)).collect::<Option<Vec<&Checkpoint>>>();
    if let Some(exact) = &exact {
        claims::of_several(ours, exact, watch, report)?;
    }
    let mut finding = |message: String| report(Remark::Finding(Finding::new("", Reason::Receipt, message)));
    for (claim, source) in named.iter().zip(&mut sources).filter(|(_, source)| source.is_none()) {
        let (name, expected) = (truncated(&claim.name), truncated(&claim.blake3));
        if left.is_empty() {
            finding(format!("the source {name:?} of the receipt is missing: BLAKE3 {expected}"));
            continue;
        }
        // The tensors of another file in its place tell more.
        let (file, blake3) = left.remove(0);
        finding(format!(
            "{} is not the source {name:?} of the receipt: BLAKE3 {blake3}, in the receipt {expected}",
            file.name()
        ));
        *source = Some((file, claim.prefix.clone()));
    }
    for (file, blake3) in &left {
        finding(format!("{} is no source of the receipt: BLAKE3 {blake3}", file.name()));
    }
    let are_exact = exact.is_some() && left.is_empty();
    let files = sources.into_iter().collect::<Option<Vec<_>>>();
    Ok(files.map(|files| Sources { files, are_exact }))
}

/// Compares by names: the plain ones, or else the ones with prefixes.
fn by_names(
    ours: &Checkpoint,
    theirs: &[Checkpoint],
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    if !ours.format().holds().names.are_kept() {
        let message = format!(
            "is compared with one file: {} stores no names, and no receipt says which tensors are of which file",
            ours.format().name()
        );
        return Err(refuse(ours, message));
    }
    let paths: Vec<PathBuf> = theirs.iter().map(|file| PathBuf::from(file.name())).collect();
    let union = Union::of(&paths, theirs, false)?;
    let union = if union.clashes.is_empty() { union } else { Union::of(&paths, theirs, true)? };
    compared(ours, &union, watch, report)
}

fn compared(
    ours: &Checkpoint,
    union: &Union<'_>,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    for clash in Clash::in_words(&union.clashes) {
        let message = format!("two tensors of the files have one name: {clash}");
        report(Remark::Finding(Finding::new("", Reason::Receipt, message)));
    }
    ours.check_whole()?;
    let mut compare = Repetition::new(ours, watch, report);
    for (source, left) in &union.unread {
        compare.unread.add(&left.name, union.sources[*source].checkpoint.name(), &left.reason);
    }
    for (source, tensors) in union.parts() {
        compare.all(source.checkpoint, tensors)?;
    }
    let names: HashSet<&str> = union.tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    let files: Vec<&str> = union.sources.iter().map(|source| source.checkpoint.name()).collect();
    compare.others(&names, &files.join(", "));
    compare.unread.or_error(ours.name(), "compare")?;
    Ok(Compared { equal: compare.equal, ..Compared::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::history::KEY;
    use crate::watch::Silent;

    fn file(metadata: &[(&str, String)]) -> Checkpoint {
        let metadata: serde_json::Map<_, _> = metadata.iter().map(|(key, text)| ((*key).into(), json!(text))).collect();
        let header = json!({"__metadata__": metadata, "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}});
        let header = header.to_string();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[7]].concat();
        Checkpoint::from_bytes("x.safetensors", bytes).expect("a file")
    }

    #[test]
    fn a_long_prefix_is_a_finding() {
        let theirs = [file(&[])];
        let (name, blake3) = ("x.safetensors", "0".repeat(64));
        for (len, is_long) in [(LONGEST_PREFIX, false), (LONGEST_PREFIX + 1, true)] {
            let source = json!({"name": name, "blake3": blake3, "prefix": "p".repeat(len)});
            let ours = file(&[(KEY, json!({"sources": [source], "prefixed": true}).to_string())]);
            let mut said = Vec::new();
            let by = By::default();
            against_all(&ours, &theirs, &by, &Silent, &mut |remark| said.push(format!("{remark:?}")))
                .expect("compared");
            assert_eq!(said.iter().any(|text| text.contains("has a prefix of 1025 bytes")), is_long, "{said:?}");
        }
    }
}
