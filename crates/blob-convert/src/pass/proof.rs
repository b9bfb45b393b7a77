//! Whether the frame of the source's receipt is of the file that the receipt names: proved before anything that a pass
//! made of the frame is to be seen.
//!
//! The pass that reads the tensors hashes the file that they and the frame make, so that the tensors are read once and
//! the proof is of the very bytes that were written. Values that were computed, or that lie apart in that file, are
//! read for the proof before the pass.

use std::collections::HashMap;
use std::ops::Range;

use blob_io::{Checkpoint, Error, Remedy};

use super::Pass;
use crate::frame::{self, Proof, hole, judge, named, prove};
use crate::hash::{self, PIECE, Streams};
use crate::plan::Plan;
use crate::template::Template;
use crate::watch::{Uncounted, Watch};
use crate::written::contradicted;

/// The file that the frame of the source's receipt makes, with zeros in place of the values.
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

    /// Why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// An output that uses the frame of another file.
    fn outcome(&self, proof: Proof, checkpoint: &Checkpoint) -> Result<Option<&'static str>, Error> {
        match (self, proof) {
            (_, Proof::Same) | (Self::Used(_), Proof::Changed) => Ok(None),
            (Self::HandedOn(_), Proof::Other) => Ok(Some(frame::OF_ANOTHER)),
            (Self::HandedOn(_), Proof::Changed) => Ok(Some(frame::CHANGED)),
            (Self::Used(_), Proof::Other) => {
                let message = "has a receipt whose bytes around the tensors are not those of the file that it names";
                Err(Error::misfit(checkpoint.name(), message, Remedy::Anew))
            }
        }
    }
}

/// The proof of a frame by the pass that reads the tensors.
pub(crate) struct Proving<'a> {
    made: Made<'a>,
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

    /// Compares the file with the one that the receipt names, once all tensors of the job were taken; `digests` are
    /// theirs. Returns why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// Errors of reading; an output that uses the frame of another file.
    pub(super) fn finish(&self, job: Pass<'_>, digests: &[blake3::Hash]) -> Result<Option<&'static str>, Error> {
        let Pass { checkpoint, tensors, watch, .. } = job;
        let made = self.made.file();
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
        let proof = judge(is_same, || contradicted(checkpoint, tensors, digests, &Uncounted(watch)))?;
        self.made.outcome(proof, checkpoint)
    }
}

impl Plan<'_> {
    /// The file that the frame of the source's receipt makes, if the output uses the frame or hands it on.
    fn made(&self) -> Option<Made<'_>> {
        match &self.base {
            Template::Frame(made) => Some(Made::Used(made)),
            _ if self.has_receipt() && self.receipt.has_frame() => {
                Some(Made::HandedOn(Box::new(frame::check(self.checkpoint).ok().flatten()?)))
            }
            _ => None,
        }
    }

    /// Compares the frame of the source's receipt, which the output uses or hands on, with the file that the receipt
    /// names. Returns why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// Errors of reading; an output that uses the frame of another file.
    pub(super) fn check_frame(&self, watch: &dyn Watch) -> Result<Option<&'static str>, Error> {
        let Some(made) = self.made() else { return Ok(None) };
        let proof = prove(self.checkpoint, made.file(), &Uncounted(watch))?;
        made.outcome(proof, self.checkpoint)
    }

    /// The proof that the pass over the source gives; `None` without a frame, or where the pass cannot prove it.
    pub(super) fn proving(&self) -> Option<Proving<'_>> {
        let made = self.made()?;
        let file = made.file();
        let blake3 = named(self.checkpoint, file.file_len()).ok()?;
        let mut holes = HashMap::new();
        for entry in file.entries().iter().filter(|entry| entry.byte_len() > 0) {
            holes.insert(entry.name(), hole(entry, file.format())?);
        }
        let mut places = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let entry = &self.checkpoint.entries()[tensor.entry];
            let hole = if entry.byte_len() > 0 { holes.remove(entry.name())? } else { 0..0 };
            places.push(Some(hole).filter(|hole| tensor.is_as_read() && hole.end - hole.start == entry.byte_len())?);
        }
        let hashed = Streams::new(vec![file.file_len()]);
        holes.is_empty().then(|| Proving { made, blake3, places, hashed })
    }
}
