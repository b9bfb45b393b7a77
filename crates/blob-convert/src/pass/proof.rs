//! Whether the frame of the source's receipt is of the file that the receipt names: proved before anything that a pass
//! made of the frame is to be seen.
//!
//! The pass that reads the tensors hashes the file that they and the frame make, so that the tensors are read once and
//! the proof is of the very bytes that were written. Values that were computed, or that lie apart in that file, are
//! read for the proof before the pass.

use std::collections::HashMap;
use std::ops::Range;

use blob_io::{Checkpoint, Error, Remedy};

use crate::frame::{self, Proof, hole, judge, named, prove};
use crate::hash::{self, PIECE, Streams};
use crate::history::receipt_text;
use crate::plan::Plan;
use crate::planned::Planned;
use crate::template::Template;
use crate::watch::{Uncounted, Watch};
use crate::written::contradicted;

/// The frame of the source's receipt, which an output uses or hands on.
struct Claimed<'a> {
    receipt: &'a str,
    /// The file that the frame makes, with zeros in place of the values.
    made: Made<'a>,
}

/// The file that a frame makes.
enum Made<'a> {
    /// The output is that file.
    Used(&'a Checkpoint),
    /// The output's receipt gets the frame.
    HandedOn(Box<Checkpoint>),
}

impl Made<'_> {
    fn file(&self) -> &Checkpoint {
        match self {
            Self::Used(file) => file,
            Self::HandedOn(file) => file,
        }
    }
}

impl Claimed<'_> {
    /// Why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// An output that uses the frame of another file.
    fn outcome(&self, proof: Proof, checkpoint: &Checkpoint) -> Result<Option<&'static str>, Error> {
        match (&self.made, proof) {
            (_, Proof::Same) | (Made::Used(_), Proof::Changed) => Ok(None),
            (Made::HandedOn(_), Proof::Other) => Ok(Some(frame::OF_ANOTHER)),
            (Made::HandedOn(_), Proof::Changed) => Ok(Some(frame::CHANGED)),
            (Made::Used(_), Proof::Other) => {
                let message = "has a receipt whose bytes around the tensors are not those of the file that it names";
                Err(Error::misfit(checkpoint.name(), message, Remedy::Anew))
            }
        }
    }
}

/// The proof of a frame by the pass that reads the tensors.
pub(crate) struct Proving<'a> {
    claimed: Claimed<'a>,
    /// The BLAKE3 that the receipt names.
    blake3: String,
    /// Where each of the pass's tensors lies in the file that the frame makes.
    places: Vec<Range<u64>>,
    hashed: Streams,
}

impl Proving<'_> {
    /// Takes bytes of a tensor. Each byte is taken once.
    pub(super) fn put(&self, tensor: usize, at: u64, bytes: &[u8]) {
        self.hashed.put(0, self.places[tensor].start + at, bytes);
    }

    /// Compares the file with the one that the receipt names, once all tensors were taken; `digests` are the tensors'.
    /// Returns why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// Errors of reading; an output that uses the frame of another file.
    pub(super) fn finish(
        &self,
        (checkpoint, tensors): (&Checkpoint, &[Planned]),
        digests: &[blake3::Hash],
        watch: &dyn Watch,
    ) -> Result<Option<&'static str>, Error> {
        let made = self.claimed.made.file();
        let mut places: Vec<&Range<u64>> = self.places.iter().filter(|place| !place.is_empty()).collect();
        places.sort_unstable_by_key(|place| place.start);
        let (mut at, mut buf) = (0, Vec::new());
        for place in places.into_iter().chain([&(made.file_len()..made.file_len())]) {
            while at < place.start {
                buf.resize((place.start - at).min(PIECE as u64) as usize, 0);
                hash::read(made, made.source(), at, &mut buf)?;
                self.hashed.put(0, at, &buf);
                at += buf.len() as u64;
            }
            at = place.end;
        }
        let is_same = *self.hashed.hash(0).to_hex() == *self.blake3;
        let proof = judge(is_same, || contradicted(checkpoint, tensors, digests, watch))?;
        self.claimed.outcome(proof, checkpoint)
    }
}

impl Plan<'_> {
    /// The frame of the source's receipt, if the output uses the frame or hands it on.
    fn claimed(&self) -> Option<Claimed<'_>> {
        let receipt = receipt_text(self.checkpoint)?;
        let made = match &self.base {
            Template::Frame(made) => Made::Used(made),
            _ if self.has_receipt() && self.receipt.has_frame() => {
                Made::HandedOn(Box::new(frame::check(self.checkpoint).ok().flatten()?))
            }
            _ => return None,
        };
        Some(Claimed { receipt, made })
    }

    /// Compares the frame of the source's receipt, which the output uses or hands on, with the file that the receipt
    /// names. Returns why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// Errors of reading; an output that uses the frame of another file.
    pub(super) fn check_frame(&self, watch: &dyn Watch) -> Result<Option<&'static str>, Error> {
        let Some(claimed) = self.claimed() else { return Ok(None) };
        let proof = prove((self.checkpoint, claimed.receipt), claimed.made.file(), &Uncounted(watch))?;
        claimed.outcome(proof, self.checkpoint)
    }

    /// The proof that the pass over the source gives; `None` without a frame, or where the pass cannot prove it.
    pub(super) fn proving(&self) -> Option<Proving<'_>> {
        let claimed = self.claimed()?;
        let made = claimed.made.file();
        let blake3 = named(claimed.receipt, made.file_len()).ok()?;
        let mut holes = HashMap::new();
        for entry in made.entries().iter().filter(|entry| entry.byte_len() > 0) {
            holes.insert(entry.name(), hole(entry, made.format())?);
        }
        let mut places = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let entry = &self.checkpoint.entries()[tensor.entry];
            let hole = if entry.byte_len() > 0 { holes.remove(entry.name())? } else { 0..0 };
            places.push(Some(hole).filter(|hole| tensor.is_as_read() && hole.end - hole.start == entry.byte_len())?);
        }
        let hashed = Streams::new(vec![made.file_len()]);
        holes.is_empty().then(|| Proving { claimed, blake3, places, hashed })
    }
}
