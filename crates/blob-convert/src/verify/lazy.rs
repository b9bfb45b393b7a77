//! Tensors that are read when they are needed, and compared with the receipt in their file before anyone has a byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use blob_core::AnyBlob;
use blob_io::{Checkpoint, Entry, Error};

use crate::options::refuse;
use crate::written::{Item, items, truncated};

/// The tensors of a file with a receipt. See [`verified`].
#[derive(Debug)]
pub struct Verified {
    checkpoint: Arc<Checkpoint>,
    items: BTreeMap<String, Item>,
}

/// The tensors of a converted file, each compared with the BLAKE3 in the file's receipt as it is read.
///
/// ```no_run
/// use std::sync::Arc;
///
/// let checkpoint = Arc::new(blob_io::Checkpoint::open("net.safetensors")?);
/// let verified = blob_convert::verified(&checkpoint)?;
/// let layer = verified.lazy(&checkpoint.entries()[0])?; // nothing is read
/// let values = layer.data().bytes()?; // read as a whole and compared: wrong bytes are an error
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A file without a receipt, or with one that has no digest of each tensor.
pub fn verified(checkpoint: &Arc<Checkpoint>) -> Result<Verified, Error> {
    let Some(listed) = items(checkpoint) else {
        return Err(refuse(checkpoint, "has no receipt with the BLAKE3 of each tensor: use Checkpoint::lazy".into()));
    };
    match listed.repeated {
        Some(name) => Err(refuse(checkpoint, format!("the receipt lists {:?} twice", truncated(&name)))),
        None => Ok(Verified { checkpoint: Arc::clone(checkpoint), items: listed.by_name }),
    }
}

impl Verified {
    /// A blob as [`Checkpoint::lazy`] makes it, but the first access reads the whole tensor, in order, and compares the
    /// bytes. Wrong bytes are an error of each access that needs one, on the host and on every device: nobody has one.
    ///
    /// # Errors
    /// As [`Checkpoint::lazy`]; a tensor that the receipt does not list, or lists with another dtype or shape.
    pub fn lazy(&self, entry: &Entry) -> Result<AnyBlob, Error> {
        let refused = |why: &str| refuse(&self.checkpoint, format!("{:?} {why}", entry.name()));
        let item = self.items.get(entry.name());
        let item = item.ok_or_else(|| refused("is not in the receipt: it was added or renamed since"))?;
        if let Some(difference) = item.difference(entry) {
            return Err(refused(&difference));
        }
        let (expected, size) = (item.blake3.clone(), entry.dtype().map_or(1, |dtype| dtype.size()));
        self.checkpoint.lazy_checked(entry, move |bytes| {
            let hash = hash(bytes, size).to_hex();
            if *hash == *expected {
                return Ok(());
            }
            let expected = truncated(&expected);
            Err(format!("has other bytes than were written: BLAKE3 {hash}, in the receipt {expected}"))
        })
    }
}

/// The digest of elements in the machine's byte order, as files have them: the lowest byte first.
fn hash(bytes: &[u8], size: usize) -> blake3::Hash {
    if 1_u16.to_le() == 1 {
        return blake3::hash(bytes);
    }
    let mut hasher = blake3::Hasher::new();
    for element in bytes.chunks(size) {
        let turned: Vec<u8> = element.iter().rev().copied().collect();
        hasher.update(&turned);
    }
    hasher.finalize()
}
