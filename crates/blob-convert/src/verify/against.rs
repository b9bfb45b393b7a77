//! Two files tensor by tensor, bit for bit, whatever their formats.
//!
//! `pairing` pairs the tensors; dtype, shape and bytes are compared here. Accepts what a conversion may change without
//! losing anything: names, places without an array, bf16 as the bits of a u16, sparse arrays made dense, the ones
//! behind a shape in NeoML's seven axes.

use blob_core::{DType, Dims7, Shape};
use blob_io::{Checkpoint, Entry, Error, Format, Kind};

use super::{Finding, Remark, index_of, replay};
use crate::done::steps;
use crate::pairing::{Met, Side, walk};
use crate::receipt::{KeptBits, kept_bits, own};
use crate::watch::Watch;

/// Two pieces stay in the second-level cache from where they are read to where they are compared.
const PIECE: usize = 256 << 10;

/// What a comparison of two files found equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compared {
    /// How many tensors are equal.
    pub equal: u64,
    /// How many transforms of the receipt were done again for that.
    pub redone: usize,
}

/// Compares two files tensor by tensor, bit for bit, whatever their formats.
///
/// A place without an array may be missing from the other file; bf16 may be kept as u16 in an npy file and where a
/// receipt says so; a sparse array is equal to the dense one of its name that holds the same values; where one of the
/// files stores no names, tensors are paired in their order. Each of these is a note. Memory stays at a few pieces and
/// 8 bytes a tensor, but for arrays that must be reordered or inflated as a whole.
///
/// Where the receipt of `ours` has transforms, and not the same ones stand in one of `theirs`, they are done again with
/// the tensors of `theirs`, and the outcome is compared.
///
/// # Errors
/// What reading returns; [`Error::Interrupted`] where `watch` says so.
pub fn against(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    watch: &dyn Watch,
    tell: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    ours.whole()?;
    theirs.whole()?;
    match steps(ours) {
        Ok(done) if !done.is_empty() && steps(theirs).as_ref() != Ok(&done) => {
            let equal = replay::against_source(ours, theirs, &done, watch, tell)?;
            return Ok(Compared { equal, redone: done.len() });
        }
        Ok(_) => {}
        Err(why) => tell(Remark::Finding(Finding::new("", "receipt", why))),
    }
    let kept = [kept_bits(ours), kept_bits(theirs)];
    let mut compare = Compare { kept, pieces: [vec![0; PIECE], vec![0; PIECE]], watch, tell, equal: 0 };
    walk(ours, theirs, &mut |met| {
        match met {
            Met::Note(note) => compare.note(note),
            Met::Alone { entry, missing_from } => compare.alone(entry, missing_from.name()),
            Met::Both(a, b) => compare.both(&a, &b)?,
        }
        Ok(())
    })?;
    Ok(Compared { equal: compare.equal, redone: 0 })
}

/// A comparison in the making.
struct Compare<'a> {
    /// The tensors of either file that keep bf16 as the bits of a u16.
    kept: [KeptBits; 2],
    /// What is compared at a time, of either file.
    pieces: [Vec<u8>; 2],
    watch: &'a dyn Watch,
    tell: &'a mut dyn FnMut(Remark),
    equal: u64,
}

impl Compare<'_> {
    fn note(&mut self, note: String) {
        (self.tell)(Remark::Note(note));
    }

    fn finding(&mut self, tensor: &str, reason: &'static str, message: String) {
        (self.tell)(Remark::Finding(Finding::new(tensor, reason, message)));
    }

    /// A tensor that the other file does not have.
    fn alone(&mut self, entry: &Entry, missing_from: &str) {
        let name = entry.name();
        match entry.kind() {
            Kind::None => self.note(format!("{name:?} is a place without an array, left out of {missing_from}")),
            _ => self.finding(name, "absent", format!("is missing from {missing_from}")),
        }
    }

    /// Compares two tensors that belong together.
    fn both(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<(), Error> {
        if a.dense.or(b.dense).is_some() {
            self.note(format!("{:?} is sparse in one file and dense in the other; compared as dense", a.name()));
        }
        match self.difference(a, b) {
            Ok(None) => self.equal += 1,
            Ok(Some((reason, message))) => self.finding(a.name(), reason, message),
            // Broken bytes are a finding about this tensor; the comparison of the others goes on.
            Err(Error::Malformed { file, fault, .. }) => {
                let message = format!("is broken in {file}: {fault}");
                self.finding(a.name(), fault.reason().as_str(), message);
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// The difference between two tensors, as a code and in words; `None` if they are equal.
    fn difference(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<Option<Difference>, Error> {
        for side in [a, b] {
            if let Some(fault) = side.entry.fault() {
                let message = format!("is broken in {}: {fault}", side.file.name());
                return Ok(Some((fault.reason().as_str(), message)));
            }
            if let Some(dtype) = side.entry.foreign_dtype() {
                let message = format!("is of dtype {dtype} in {}, which is not compared", side.file.name());
                return Ok(Some(("unsupported", message)));
            }
        }
        let (Some(left), Some(right)) = (a.entry.dtype(), b.entry.dtype()) else {
            return Ok(one_is_none(a, b));
        };
        if is_padded(a, b) || is_padded(b, a) {
            self.note(format!("{:?} has ones behind its axes in NeoML's seven; compared without them", a.name()));
        } else if a.shape() != b.shape() {
            let message = format!("has shape {} here and {} there", a.shape(), b.shape());
            return Ok(Some(("shape", message)));
        }
        if left != right {
            let is_kept = match (left, right) {
                (DType::U16, DType::BF16) => is_npy(a) || self.kept[0].contains(a.name()),
                (DType::BF16, DType::U16) => is_npy(b) || self.kept[1].contains(b.name()),
                _ => false,
            };
            if !is_kept {
                return Ok(Some(("dtype", format!("is {left} here and {right} there"))));
            }
            self.note(format!("{:?} is bf16, kept as the bits of a u16; compared by bits", a.name()));
        }
        let Some(at) = self.first_difference(a, b)? else {
            return Ok(None);
        };
        let index = index_of(a.shape(), at / left.size() as u64);
        Ok(Some(("differs", format!("differs, first at [{index}]"))))
    }

    /// The first byte in which two arrays of one length differ.
    fn first_difference(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<Option<u64>, Error> {
        let (mut a, mut b) = (a.reader(self.watch)?, b.reader(self.watch)?);
        let [ours, theirs] = &mut self.pieces;
        let mut done = 0;
        loop {
            // Both hand out whole elements of one width, and as many as a piece holds.
            let (n, m) = (a.pull(ours)?, b.pull(theirs)?);
            if let Some(at) = mismatch(&ours[..n], &theirs[..m]) {
                return Ok(Some(done + at));
            }
            if n == 0 {
                return Ok(None);
            }
            done += n as u64;
        }
    }
}

/// A difference: its code, and what it is in words.
type Difference = (&'static str, String);

/// Whether a NeoML file has the shape of the other with as many ones behind as make it seven axes.
fn is_padded(neoml: &Side<'_>, other: &Side<'_>) -> bool {
    neoml.file.format().is_neoml()
        && neoml.shape() != other.shape()
        && Dims7::from_leading(other.shape().dims()).is_ok_and(|dims| *neoml.shape() == Shape::from(dims))
}

/// Whether the tensor lies in an npy file, which has no bf16, and no place for a receipt that says so.
fn is_npy(side: &Side<'_>) -> bool {
    side.file.format() == Format::Npy && own(side.file).is_none()
}

/// One file has a tensor where the other has none; `None` where neither has one.
fn one_is_none(a: &Side<'_>, b: &Side<'_>) -> Option<Difference> {
    let word = |side: &Side<'_>| match side.entry.dtype() {
        Some(_) => "an array",
        None => "none",
    };
    let differ = a.entry.dtype() != b.entry.dtype();
    differ.then(|| {
        let message = format!("is {} here and {} there", word(a), word(b));
        ("dtype", message)
    })
}

/// The first byte in which two pieces differ.
fn mismatch(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    Some(same as u64)
}
