//! A converted file against its own receipt: the tensors that were written, and the BLAKE3 of each, without the source.
//!
//! The receipt is text from a file: what is missing in it or does not parse is not checked, and that is said.

use std::collections::BTreeMap;

use blake3::Hash;
use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error};
use serde::Deserialize;
use serde::de::Deserializer;

use super::{Finding, stream};
use crate::receipt::{each, of_all, own, read};
use crate::watch::Watch;

/// What a receipt says of the tensors that were written.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    contents: Option<Items>,
    #[serde(default)]
    contents_blake3: Option<String>,
}

/// One tensor as it was written.
#[derive(Deserialize)]
struct Item {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    blake3: String,
}

#[derive(Default)]
struct Items(BTreeMap<String, Item>);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        each(text, Self::default(), |items, item: Item| {
            items.0.insert(item.name.clone(), item);
        })
    }
}

/// Checks a file that a conversion wrote against the receipt in it: that it holds the tensors that were written, with
/// their names, dtypes and shapes, and that each one's bytes have the digest that the receipt has of them.
///
/// Hands each finding over as it comes, and returns how many digests were right; `None` for a file without a receipt, or
/// with one that has no digests. What has a fault is [`arrays`](super::arrays)' to tell. Over some 20,000 tensors the
/// receipt has one digest of all, and the finding, of a tensor with an empty name, cannot say which one differs.
///
/// # Errors
/// What reading returns; [`Error::Interrupted`] where `watch` says so.
pub fn receipt(
    checkpoint: &Checkpoint,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<Option<u64>, Error> {
    let Some(written) = own(checkpoint).and_then(read::<Written>) else {
        return Ok(None);
    };
    match (written.contents, written.contents_blake3) {
        (Some(items), _) => each_tensor(checkpoint, items.0, watch, found).map(Some),
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
            found(Finding::new(entry.name(), "receipt", "is not in the receipt: it was added or renamed since"));
            continue;
        };
        if entry.fault().is_some() {
            continue;
        }
        if let Some(message) = item.differ(entry) {
            found(Finding::new(entry.name(), "receipt", message));
            continue;
        }
        let hash = hash_of(checkpoint, entry, watch)?.to_hex();
        if *hash == *item.blake3 {
            right += 1;
        } else {
            let message = format!("has other bytes than were written: BLAKE3 {hash}, in the receipt {}", item.blake3);
            found(Finding::new(entry.name(), "receipt", message));
        }
    }
    for name in items.keys() {
        found(Finding::new(name, "receipt", "is missing: the receipt says that it was written"));
    }
    Ok(right)
}

impl Item {
    fn differ(&self, entry: &Entry) -> Option<String> {
        let dims = entry.shape().dims().iter().map(|n| *n as u64);
        let dtype = entry.dtype().map_or("none", DType::name);
        if self.dtype == dtype && self.shape.iter().copied().eq(dims) {
            return None;
        }
        let shape: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        Some(format!("is {dtype} {}, and was written as {} {}", entry.shape(), self.dtype, shape.join("×")))
    }
}

fn all_together(
    checkpoint: &Checkpoint,
    expected: &str,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<u64, Error> {
    let mut entries: Vec<&Entry> = checkpoint.entries().iter().collect();
    if entries.iter().any(|entry| entry.fault().is_some()) {
        return Ok(0);
    }
    entries.sort_by_key(|entry| entry.name());
    let mut hashes = Vec::with_capacity(entries.len());
    for entry in entries {
        hashes.push(hash_of(checkpoint, entry, watch)?);
    }
    let all = of_all(hashes.iter()).to_hex();
    if *all == *expected {
        return Ok(hashes.len() as u64);
    }
    let message = format!("the tensors together are not what was written: BLAKE3 {all}, in the receipt {expected}");
    found(Finding::new("", "receipt", message));
    Ok(0)
}

fn hash_of(checkpoint: &Checkpoint, entry: &Entry, watch: &dyn Watch) -> Result<Hash, Error> {
    let mut hasher = blake3::Hasher::new();
    stream(checkpoint, entry, watch, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(hasher.finalize())
}
