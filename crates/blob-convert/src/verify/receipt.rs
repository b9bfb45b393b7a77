//! Checks a converted file against the receipt in the file, without the source: the tensors that were written, and the
//! BLAKE3 of each.
//!
//! The receipt is untrusted text: a missing field, or one that does not parse, cannot be checked, and the report says
//! so.

use std::collections::BTreeMap;

use blake3::Hash;
use blob_core::{DType, MAX_AXES};
use blob_io::{Checkpoint, Entry, Error, Reason};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::{Finding, PIECE, is_broken};
use crate::frame::{self, Proof, prove};
use crate::history::{parse, receipt_text, reduce_list};
use crate::planned::Planned;
use crate::receipt::combined_digest;
use crate::watch::{Watch, Watched};

/// The fields of a receipt about the tensors that were written.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    contents: Option<Items>,
    #[serde(default)]
    contents_blake3: Option<String>,
}

/// The tensors that a file's own receipt lists; none without a receipt, or with one that has no list.
pub(super) fn items(checkpoint: &Checkpoint) -> Option<Items> {
    let written = receipt_text(checkpoint).and_then(parse::<Written>)?;
    written.contents.filter(|items| !items.by_name.is_empty())
}

/// One written tensor.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    name: String,
    dtype: String,
    shape: Dims,
    pub(super) blake3: String,
    #[serde(default)]
    #[expect(dead_code, reason = "the reader of folders has found the file by this")]
    file: Option<IgnoredAny>,
    #[serde(default)]
    #[expect(dead_code, reason = "the reader of folders has compared the length")]
    file_bytes: Option<IgnoredAny>,
}

/// A shape. A list that is too long is cut to one extent more than an array can have, and so never matches.
#[derive(Debug, Default)]
struct Dims(Vec<u64>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        reduce_list(text, Self::default(), |dims, extent| {
            if dims.0.len() <= MAX_AXES {
                dims.0.push(extent);
            }
        })
    }
}

/// All written tensors.
#[derive(Default)]
pub(super) struct Items {
    pub(super) by_name: BTreeMap<String, Item>,
    /// The first name that is listed twice.
    pub(super) repeated: Option<String>,
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        reduce_list(text, Self::default(), |items, item: Item| {
            if let Some(first) = items.by_name.insert(item.name.clone(), item) {
                items.repeated.get_or_insert(first.name);
            }
        })
    }
}

/// Checks a converted file against the receipt in the file. The file must hold the tensors that were written, with the
/// same names, dtypes and shapes, and the bytes of each tensor must have the digest in the receipt. If they do, the
/// frame and the tensors together must have the digest of the file that the receipt names as its first source.
///
/// Calls `found` with each finding, and returns how many digests were right; `None` for a file without a receipt, or
/// for a receipt without digests. A receipt that cannot be read is a finding, and so is a listed array that has a
/// fault; [`arrays`](super::arrays) reports wrong checksums. For more than about 20,000 tensors the receipt has a
/// single digest of all, and the finding cannot say which tensor differs. A finding about no single tensor has an empty
/// name.
///
/// # Errors
/// Errors of reading; [`Error::Interrupted`] where `watch` says so.
pub fn receipt(
    checkpoint: &Checkpoint,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<Option<u64>, Error> {
    let Some(text) = receipt_text(checkpoint) else {
        return Ok(None);
    };
    let mut is_right = true;
    let right = tensors(checkpoint, text, watch, &mut |finding| {
        is_right = false;
        found(finding);
    })?;
    // Tensors that were changed since, or that cannot be read, do not show which file the frame is of.
    let is_right = is_right && right.is_none_or(|right| right == checkpoint.entries().len() as u64);
    let made = is_right.then(|| frame::check(checkpoint).ok().flatten()).flatten();
    if let Some(made) = made
        && prove((checkpoint, text), &made, watch)? == Proof::Other
    {
        let message = "the receipt has a frame that is not of the file that it names as its first source";
        found(Finding::new("", Reason::Receipt, message));
    }
    Ok(right)
}

/// Checks the tensors against the receipt.
fn tensors(
    checkpoint: &Checkpoint,
    text: &str,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<Option<u64>, Error> {
    let Some(written) = parse::<Written>(text) else {
        found(Finding::new("", Reason::Receipt, "the receipt cannot be read: no digest was checked"));
        return Ok(None);
    };
    match (written.contents, written.contents_blake3) {
        (Some(items), _) => each_tensor(checkpoint, items.by_name, watch, found).map(Some),
        (None, Some(expected)) => all_together(checkpoint, &expected, watch, found).map(Some),
        (None, None) => Ok(None),
    }
}

fn each_tensor(
    checkpoint: &Checkpoint,
    mut items: BTreeMap<String, Item>,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<u64, Error> {
    let mut right = 0;
    for entry in checkpoint.entries() {
        let Some(item) = items.remove(entry.name()) else {
            found(Finding::new(entry.name(), Reason::Receipt, "is not in the receipt: it was added or renamed since"));
            continue;
        };
        if entry.fault().is_some() {
            found(Finding::new(
                entry.name(),
                Reason::Receipt,
                format!("cannot be read, and was written as {}", item.kind()),
            ));
            continue;
        }
        if let Some(message) = item.difference(entry) {
            found(Finding::new(entry.name(), Reason::Receipt, message));
            continue;
        }
        let Some(hash) = hash_of(checkpoint, entry, watch)? else {
            continue;
        };
        let hash = hash.to_hex();
        if *hash == *item.blake3 {
            right += 1;
        } else {
            let expected = truncated(&item.blake3);
            let message = format!("has other bytes than were written: BLAKE3 {hash}, in the receipt {expected}");
            found(Finding::new(entry.name(), Reason::Receipt, message));
        }
    }
    for name in items.keys() {
        found(Finding::new(name, Reason::Receipt, "is missing: the receipt says that it was written"));
    }
    Ok(right)
}

impl Item {
    pub(super) fn difference(&self, entry: &Entry) -> Option<String> {
        let dims = entry.shape().dims().iter().map(|n| *n as u64);
        let dtype = entry.stored_dtype().map_or("none", DType::name);
        if self.dtype == dtype && self.shape.0.iter().copied().eq(dims) {
            return None;
        }
        Some(format!("is {dtype} {}, and was written as {}", entry.shape(), self.kind()))
    }

    /// `f32 2×3`
    fn kind(&self) -> String {
        let shape: Vec<String> = self.shape.0.iter().map(u64::to_string).collect();
        format!("{} {}", truncated(&self.dtype), shape.join("×"))
    }
}

fn all_together(
    checkpoint: &Checkpoint,
    expected: &str,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<u64, Error> {
    let mut entries: Vec<&Entry> = checkpoint.entries().iter().collect();
    entries.sort_by_key(|entry| entry.name());
    let mut hashes = Vec::with_capacity(entries.len());
    for entry in entries {
        let hash = match entry.fault() {
            None => hash_of(checkpoint, entry, watch)?,
            Some(_) => None,
        };
        let Some(hash) = hash else {
            let message = format!("the tensors together were not checked: {:?} cannot be read", entry.name());
            found(Finding::new("", Reason::Receipt, message));
            return Ok(0);
        };
        hashes.push(hash);
    }
    let all = combined_digest(hashes.iter()).to_hex();
    if *all == *expected {
        return Ok(hashes.len() as u64);
    }
    let expected = truncated(expected);
    let message = format!("the tensors together are not what was written: BLAKE3 {all}, in the receipt {expected}");
    found(Finding::new("", Reason::Receipt, message));
    Ok(0)
}

/// An array's digest; `None` where the bytes are broken.
pub(crate) fn hash_of(checkpoint: &Checkpoint, entry: &Entry, watch: &dyn Watch) -> Result<Option<Hash>, Error> {
    let mut hasher = blake3::Hasher::new();
    let read = Watched::open(checkpoint, entry, watch).and_then(|reader| {
        reader.each(PIECE, |bytes| {
            hasher.update(bytes);
            Ok(())
        })
    });
    match read {
        Ok(()) => Ok(Some(hasher.finalize())),
        Err(e) if is_broken(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The beginning of a text from a receipt, for a message.
pub(super) fn truncated(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(at, _)| &text[..at])
}

/// The tensors whose digests differ from the digests in the file's own receipt; an empty name where the receipt has one
/// digest of all; `None` where it has none. `hashes` has the digests of the arrays that were copied unchanged; the
/// other arrays are read again.
pub(crate) fn contradicted(
    checkpoint: &Checkpoint,
    tensors: &[Planned],
    hashes: &[Hash],
    watch: &dyn Watch,
) -> Result<Option<Vec<String>>, Error> {
    let Some(written) = receipt_text(checkpoint).and_then(parse::<Written>) else {
        return Ok(None);
    };
    if written.contents.is_none() && written.contents_blake3.is_none() {
        return Ok(None);
    }
    let stored = tensors.iter().zip(hashes).filter(|(tensor, _)| tensor.is_as_read());
    let mut found: BTreeMap<&str, Hash> =
        stored.map(|(tensor, hash)| (checkpoint.entries()[tensor.entry].name(), *hash)).collect();
    for entry in checkpoint.entries().iter().filter(|entry| entry.dtype().is_some() && entry.fault().is_none()) {
        if !found.contains_key(entry.name())
            && let Some(hash) = hash_of(checkpoint, entry, watch)?
        {
            found.insert(entry.name(), hash);
        }
    }
    let differs = |hash: &Hash, expected: &str| *hash.to_hex() != *expected;
    Ok(Some(match (written.contents, written.contents_blake3) {
        (Some(items), _) if items.by_name.is_empty() => return Ok(None),
        (Some(items), _) => {
            let items = items.by_name.into_values();
            let is_changed = |item: &Item| found.get(&*item.name).is_some_and(|hash| differs(hash, &item.blake3));
            items.filter(is_changed).map(|item| item.name).collect()
        }
        (None, Some(all)) if found.len() == checkpoint.entries().len() => {
            let differs = differs(&combined_digest(found.values()), &all);
            if differs { vec![String::new()] } else { Vec::new() }
        }
        _ => return Ok(None),
    }))
}
