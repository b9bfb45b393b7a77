//! Whether a receipt's frame is of the file that the receipt names: the one check before bytes of a frame are used,
//! handed on or vouched for.
//!
//! The frame and the tensors of the file together have the digest of the receipt's first source; of a packed source,
//! the digest of the unpacked bytes. Each tensor is read once more.

use std::ops::Range;

use blake3::{Hash, Hasher};
use blob_io::{Checkpoint, Entry, Error, Format};

use super::{Holes, of_entry};
use crate::hash::{self, PIECE};
use crate::history::{history_of, receipt_text};
use crate::watch::{Watch, Watched};
use crate::written::contradicted;

/// Reasons, seen only beside the values, why a frame is not handed on from one receipt to the next.
pub(crate) const OF_ANOTHER: &str = "it is not of the file that the receipt names";
pub(crate) const CHANGED: &str = "the tensors were changed since";

/// The result of the comparison of a frame with the file that the receipt names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The frame is of that file.
    Same,
    /// The frame is of another file, or the receipt has no digests of the tensors.
    Other,
    /// The tensors were changed since the receipt was written, so that nothing proves the frame.
    Changed,
}

/// Compares the frame of `checkpoint`'s receipt with the file that the receipt names. `made` is the file that the frame
/// makes, with zeros in place of the values.
///
/// # Errors
/// Errors of reading; [`Error::Interrupted`] where `watch` says so.
pub(crate) fn prove(checkpoint: &Checkpoint, made: &Checkpoint, watch: &dyn Watch) -> Result<Proof, Error> {
    let Ok(blake3) = named(checkpoint, made.file_len()) else { return Ok(Proof::Other) };
    let is_same = digest(checkpoint, made, watch)?.is_some_and(|hash| *hash.to_hex() == *blake3);
    judge(is_same, || contradicted(checkpoint, &[], &[], watch))
}

/// What a comparison of digests shows. `contradicted` gives the tensors that the receipt's own digests contradict.
///
/// # Errors
/// The errors of `contradicted`.
pub(crate) fn judge(
    is_same: bool,
    contradicted: impl FnOnce() -> Result<Option<Vec<String>>, Error>,
) -> Result<Proof, Error> {
    if is_same {
        return Ok(Proof::Same);
    }
    Ok(if contradicted()?.is_some_and(|names| !names.is_empty()) { Proof::Changed } else { Proof::Other })
}

/// The bytes of an array in the file that a frame makes, if these lie in one run; empty for an array without bytes.
pub(crate) fn hole(entry: &Entry, format: Format) -> Option<Range<u64>> {
    match of_entry(entry, format)?[..] {
        [] => Some(0..0),
        [Holes::One(at, len)] => Some(at..at + len),
        _ => None,
    }
}

/// The BLAKE3 of the file of `len` bytes that the receipt of `checkpoint` names as its first source, unpacked.
///
/// # Errors
/// Why the frame is not of a file that the receipt names.
pub(crate) fn named(checkpoint: &Checkpoint, len: u64) -> Result<String, &'static str> {
    let Some(first) = receipt_text(checkpoint).and_then(|text| history_of(text).into_iter().next()) else {
        return Err("the receipt does not name the file that they are of");
    };
    match (first.unpacked_bytes, first.unpacked_blake3) {
        (Some(unpacked), Some(blake3)) if unpacked == len => Ok(blake3),
        (Some(unpacked), None) if unpacked == len => Err("the receipt has no digest of the unpacked file"),
        (None, None) if first.bytes == len => Ok(first.blake3),
        _ => Err("the receipt names a file of another length"),
    }
}

/// Whether no two tensors share bytes or lie between each other: the proof reads one after the other.
pub(super) fn is_apart(mut spans: Vec<Range<u64>>) -> bool {
    spans.sort_unstable_by_key(|span| span.start);
    spans.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

/// The BLAKE3 of `made` with the values of `checkpoint`; `None` where values are broken.
fn digest(checkpoint: &Checkpoint, made: &Checkpoint, watch: &dyn Watch) -> Result<Option<Hash>, Error> {
    let mut file = Filled { made, hasher: Hasher::new(), at: 0, buf: vec![0; PIECE] };
    let mut entries: Vec<(&Entry, Vec<Holes>)> =
        made.entries().iter().filter_map(|entry| Some((entry, of_entry(entry, made.format())?))).collect();
    entries.retain(|(_, holes)| !holes.is_empty());
    entries.sort_by_key(|(_, holes)| holes[0].begin());
    for (entry, holes) in entries {
        let Some(own) = checkpoint.entry(entry.name()) else { return Ok(None) };
        let values = Watched::open(checkpoint, own, watch).and_then(|values| file.values(values, &holes));
        match values {
            Err(Error::Malformed { .. }) => return Ok(None),
            values => values?,
        }
    }
    file.kept(made.file_len())?;
    Ok(Some(file.hasher.finalize()))
}

impl Holes {
    /// The least number of bytes that the text of the holes has in a receipt.
    pub(super) fn text_len(&self) -> usize {
        let digits = |n: u64| n.checked_ilog10().unwrap_or_default() as usize + 1;
        match *self {
            Self::One(at, len) => digits(at) + digits(len) + "[,],".len(),
            Self::Many(at, len, count, stride) => {
                digits(at) + digits(len) + digits(count) + digits(stride) + "[,,,],".len()
            }
        }
    }
}

/// The file that a frame makes, hashed from beginning to end.
struct Filled<'a> {
    made: &'a Checkpoint,
    hasher: Hasher,
    /// How many bytes are hashed.
    at: u64,
    buf: Vec<u8>,
}

impl Filled<'_> {
    /// Hashes the frame's bytes up to `end`.
    fn kept(&mut self, end: u64) -> Result<(), Error> {
        while self.at < end {
            let bytes = &mut self.buf[..(end - self.at).min(PIECE as u64) as usize];
            hash::read(self.made, self.made.source(), self.at, bytes)?;
            self.hasher.update(bytes);
            self.at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Hashes a tensor's values, and the frame's bytes before and between these.
    fn values(&mut self, mut values: Watched<'_>, holes: &[Holes]) -> Result<(), Error> {
        for stored in holes {
            let (len, count, stride) = match *stored {
                Holes::One(_, len) => (len, 1, 0),
                Holes::Many(_, len, count, stride) => (len, count, stride),
            };
            for i in 0..count {
                let begin = stored.begin() + i * stride;
                self.kept(begin)?;
                while self.at < begin + len {
                    let most = (begin + len - self.at).min(PIECE as u64) as usize;
                    let n = values.pull(&mut self.buf[..most])?;
                    if n == 0 {
                        return Ok(());
                    }
                    self.hasher.update(&self.buf[..n]);
                    self.at += n as u64;
                }
            }
        }
        Ok(())
    }
}
