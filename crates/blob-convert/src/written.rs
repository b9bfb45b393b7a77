//! The tensors and digests that a file's own receipt lists as written, against the arrays of the file.
//!
//! The receipt is untrusted text: a missing field, or one that does not parse, cannot be checked.

use std::collections::BTreeMap;

use blake3::Hash;
use blob_core::{DType, MAX_AXES};
use blob_io::{Checkpoint, Entry, Error};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use crate::hash::{PIECE, combined_digest};
use crate::history::{parse, receipt_text, reduce_list};
use crate::planned::Planned;
use crate::watch::{Watch, Watched};

/// The fields of a receipt about the tensors that were written.
#[derive(Deserialize)]
pub(crate) struct Written {
    pub(crate) contents: Option<Items>,
    pub(crate) contents_blake3: Option<String>,
}

/// The tensors that a file's own receipt lists; none without a receipt, or with one that has no list.
pub(crate) fn items(checkpoint: &Checkpoint) -> Option<Items> {
    let written = receipt_text(checkpoint).and_then(parse::<Written>)?;
    written.contents.filter(|items| !items.by_name.is_empty())
}

/// One written tensor.
#[derive(Debug, Deserialize)]
pub(crate) struct Item {
    name: String,
    dtype: String,
    shape: Dims,
    pub(crate) blake3: String,
    #[expect(dead_code, reason = "the reader of folders has found the file by this")]
    file: Option<IgnoredAny>,
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
pub(crate) struct Items {
    pub(crate) by_name: BTreeMap<String, Item>,
    /// The first name that is listed twice.
    pub(crate) repeated: Option<String>,
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

impl Item {
    pub(crate) fn difference(&self, entry: &Entry) -> Option<String> {
        let dims = entry.shape().dims().iter().map(|n| *n as u64);
        let dtype = entry.stored_dtype().map_or("none", DType::name);
        if self.dtype == dtype && self.shape.0.iter().copied().eq(dims) {
            return None;
        }
        Some(format!("is {dtype} {}, and was written as {}", entry.shape(), self.kind()))
    }

    /// `f32 2×3`
    pub(crate) fn kind(&self) -> String {
        let shape: Vec<String> = self.shape.0.iter().map(u64::to_string).collect();
        format!("{} {}", truncated(&self.dtype), shape.join("×"))
    }
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
pub(crate) fn truncated(text: &str) -> &str {
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
            let changed = items.filter(|item| found.get(&*item.name).is_some_and(|hash| differs(hash, &item.blake3)));
            changed.map(|item| item.name).collect()
        }
        (None, Some(all)) if found.len() == checkpoint.entries().len() => {
            let differs = differs(&combined_digest(found.values()), &all);
            if differs { vec![String::new()] } else { Vec::new() }
        }
        _ => return Ok(None),
    }))
}

/// Whether an error proves that bytes are broken; an array that a limit kept from being read may be sound.
pub(crate) fn is_broken(e: &Error) -> bool {
    matches!(e, Error::Malformed { .. })
}
