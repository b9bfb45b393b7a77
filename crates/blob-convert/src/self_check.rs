//! Checks a converted file against the receipt in the file, without the source: the tensors that were written, and the
//! BLAKE3 of each.
//!
//! The receipt is untrusted text: a missing field, or one that does not parse, cannot be checked, and the report says
//! so.

use std::collections::BTreeMap;

use blob_io::{Checkpoint, Entry, Error, Reason};

use crate::finding::Finding;
use crate::frame::{self, Proof, prove};
use crate::hash::combined_digest;
use crate::history::{parse, receipt_text};
use crate::watch::Watch;
use crate::written::{Item, Written, hash_of, truncated};

/// Checks a converted file against the receipt in the file. The file must hold the tensors that were written, with the
/// same names, dtypes and shapes, and the bytes of each tensor must have the digest in the receipt. If they do, the
/// frame and the tensors together must have the digest of the file that the receipt names as its first source.
///
/// Calls `found` with each finding, and returns how many digests were right; `None` for a file without a receipt, or
/// for a receipt without digests. A receipt that cannot be read is a finding, and so is a listed array that has a
/// fault; [`arrays`](crate::verify::arrays) reports wrong checksums. For more than about 20,000 tensors the receipt has
/// a single digest of all, and the finding cannot say which tensor differs. A finding about no single tensor has an
/// empty name.
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
        && prove(checkpoint, &made, watch)? == Proof::Other
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
