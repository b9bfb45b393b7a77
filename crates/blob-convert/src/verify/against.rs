//! Two files tensor by tensor, bit for bit, whatever their formats.
//!
//! First names are paired, then dtype, shape and bytes compared. Knows what a conversion may change and yet keep: places
//! without an array, bf16 as the bits of a u16, sparse arrays made dense.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::thread;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Kind};

use super::{Finding, PIECE, coordinates};
use crate::Watch;
use crate::receipt::kept_bits;

/// How two files compare.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    findings: Vec<Finding>,
    notes: Vec<String>,
    equal: u64,
}

impl Comparison {
    /// The differences.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What differs and yet means the same: a place without an array, bf16 kept as the bits of a u16.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many tensors are equal in name, dtype, shape and every bit.
    #[must_use]
    pub fn equal(&self) -> u64 {
        self.equal
    }
}

/// Compares two files tensor by tensor, bit for bit, whatever their formats.
///
/// A place without an array may be missing from the other file; bf16 may be kept as u16 where a receipt says so; a sparse
/// array is equal to the dense one of its name that holds the same values. Each of these is a note. Memory stays at a few
/// pieces, but for arrays that must be reordered or inflated as a whole.
///
/// # Errors
/// What reading returns; [`Error::Interrupted`] where `watch` says so.
pub fn against(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    watch: &dyn Watch,
) -> Result<Comparison, Error> {
    let mut comparison = Comparison::default();
    let kept = [kept_bits(ours), kept_bits(theirs)];
    for (a, b) in pair(ours, theirs, &mut comparison) {
        match difference(&a, &b, &kept, &mut comparison.notes, watch)? {
            None => comparison.equal += 1,
            Some(finding) => comparison.findings.push(finding),
        }
    }
    Ok(comparison)
}

/// One tensor of one of the files.
#[derive(Clone, Copy)]
struct Side<'a> {
    file: &'a Checkpoint,
    entry: &'a Entry,
    /// The whole sparse array that the entry is a part of, made dense.
    dense: bool,
}

impl<'a> Side<'a> {
    fn shape(&self) -> &'a Shape {
        match (self.dense, self.entry.sparse()) {
            (true, Some(sparse)) => sparse.shape(),
            _ => self.entry.shape(),
        }
    }

    fn name(&self) -> &'a str {
        match (self.dense, self.entry.sparse()) {
            (true, Some(sparse)) => sparse.name(),
            _ => self.entry.name(),
        }
    }

    fn byte_len(&self) -> u64 {
        let size = self.entry.dtype().map_or(0, DType::size);
        self.shape().count() as u64 * size as u64
    }

    fn stream(
        &self,
        watch: &dyn Watch,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut watched = |bytes: &[u8]| {
            if watch.cancelled() {
                return Err(Error::Interrupted);
            }
            watch.advanced(bytes.len() as u64);
            take(bytes)
        };
        match self.dense {
            true => self.file.stream_dense(self.entry, PIECE, &mut watched),
            false => self.file.stream(self.entry, PIECE, &mut watched),
        }
    }

    /// All bytes; for tensors of at most a piece.
    fn bytes(&self, watch: &dyn Watch) -> Result<Cow<'a, [u8]>, Error> {
        if !self.dense {
            watch.advanced(self.byte_len());
            return self.file.view(self.entry);
        }
        let mut all = Vec::new();
        self.stream(watch, &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(Cow::Owned(all))
    }
}

/// The tensors of both files that belong together; what has no partner becomes a finding or a note.
fn pair<'a>(
    ours: &'a Checkpoint,
    theirs: &'a Checkpoint,
    comparison: &mut Comparison,
) -> Vec<(Side<'a>, Side<'a>)> {
    let side = |file, entry, dense| Side { file, entry, dense };
    if let ([a], [b]) = (ours.entries(), theirs.entries())
        && a.name() != b.name()
        && a.dtype().is_some()
    {
        let note = format!(
            "named {:?} here and {:?} there; each file holds one tensor",
            a.name(),
            b.name()
        );
        comparison.notes.push(note);
        return vec![(side(ours, a, false), side(theirs, b, false))];
    }
    let (here, there) = (by_name(ours), by_name(theirs));
    let mut pairs = Vec::new();
    // Sparse arrays and dense ones that stand for them.
    let mut whole = HashSet::new();
    for entry in ours.entries() {
        match (there.get(entry.name()), dense_partner(entry, &there)) {
            (Some(other), _) => pairs.push((side(ours, entry, false), side(theirs, other, false))),
            (None, Some(other)) => {
                if whole.insert(other.name()) {
                    pairs.push((side(ours, entry, true), side(theirs, other, false)));
                }
            }
            (None, None) => {}
        }
    }
    for entry in theirs
        .entries()
        .iter()
        .filter(|e| !here.contains_key(e.name()))
    {
        match dense_partner(entry, &here) {
            Some(other) if whole.insert(other.name()) => {
                pairs.push((side(ours, other, false), side(theirs, entry, true)));
            }
            Some(_) => {}
            None if whole.contains(entry.name()) => {}
            None => alone(entry, ours, comparison),
        }
    }
    for entry in ours.entries() {
        let has_partner =
            there.contains_key(entry.name()) || dense_partner(entry, &there).is_some();
        if !has_partner && !whole.contains(entry.name()) {
            alone(entry, theirs, comparison);
        }
    }
    for name in whole {
        comparison.notes.push(format!(
            "{name:?} is sparse in one file and dense in the other; compared as dense"
        ));
    }
    comparison.notes.sort();
    pairs
}

fn by_name(file: &Checkpoint) -> HashMap<&str, &Entry> {
    file.entries().iter().map(|e| (e.name(), e)).collect()
}

/// The dense tensor among `others` that has the name of the sparse array which `part` is a part of.
fn dense_partner<'a>(part: &Entry, others: &HashMap<&str, &'a Entry>) -> Option<&'a Entry> {
    let other = others.get(part.sparse()?.name())?;
    other.sparse().is_none().then_some(*other)
}

fn alone(entry: &Entry, missing_in: &Checkpoint, comparison: &mut Comparison) {
    let file = missing_in.name();
    if entry.kind() == Kind::None {
        comparison.notes.push(format!(
            "{:?} is a place without an array, left out of {file}",
            entry.name()
        ));
    } else {
        comparison.findings.push(Finding::new(
            entry.name(),
            None,
            format!("is missing from {file}"),
        ));
    }
}

/// What two tensors of one name do not have in common; `None` where they are equal.
fn difference(
    a: &Side<'_>,
    b: &Side<'_>,
    kept: &[HashSet<String>; 2],
    notes: &mut Vec<String>,
    watch: &dyn Watch,
) -> Result<Option<Finding>, Error> {
    let finding = |message: String| Ok(Some(Finding::new(a.name(), None, message)));
    for side in [a, b] {
        if let Some(fault) = side.entry.fault() {
            return finding(format!("is broken in {}: {fault}", side.file.name()));
        }
    }
    let (Some(left), Some(right)) = (a.entry.dtype(), b.entry.dtype()) else {
        let word = |side: &Side<'_>| {
            if side.entry.dtype().is_some() {
                "an array"
            } else {
                "none"
            }
        };
        return match a.entry.dtype() == b.entry.dtype() {
            true => Ok(None),
            false => finding(format!("is {} here and {} there", word(a), word(b))),
        };
    };
    if a.shape() != b.shape() {
        return finding(format!(
            "has shape {} here and {} there",
            a.shape(),
            b.shape()
        ));
    }
    if left != right {
        let is_kept = match (left, right) {
            (DType::U16, DType::BF16) => kept[0].contains(a.name()),
            (DType::BF16, DType::U16) => kept[1].contains(b.name()),
            _ => false,
        };
        if !is_kept {
            return finding(format!("is {left} here and {right} there"));
        }
        notes.push(format!(
            "{:?} is bf16, kept as the bits of a u16; compared by bits",
            a.name()
        ));
    }
    let Some(at) = first_difference(a, b, watch)? else {
        return Ok(None);
    };
    let index = coordinates(a.shape(), at / left.size() as u64);
    finding(format!("differs, first at [{index}]"))
}

/// The first byte in which two arrays of one length differ.
fn first_difference(a: &Side<'_>, b: &Side<'_>, watch: &dyn Watch) -> Result<Option<u64>, Error> {
    if a.byte_len() <= PIECE as u64 {
        if watch.cancelled() {
            return Err(Error::Interrupted);
        }
        return Ok(mismatch(&a.bytes(watch)?, &b.bytes(watch)?));
    }
    // Both streams push; a thread turns one of them around. Two pieces wait at most, and come back for reuse.
    let (sender, received) = mpsc::sync_channel::<Vec<u8>>(1);
    let (give_back, spare) = mpsc::channel::<Vec<u8>>();
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            b.stream(watch, &mut |bytes| {
                let mut piece = spare.try_recv().unwrap_or_default();
                piece.clear();
                piece.extend_from_slice(bytes);
                // Nobody takes it: the other side found a difference, or failed.
                sender.send(piece).map_err(|_| Error::Interrupted)
            })
        });
        let (mut done, mut found) = (0, None);
        let compared = a.stream(watch, &mut |bytes| {
            let Ok(piece) = received.recv() else {
                return Err(Error::Interrupted);
            };
            if let Some(at) = mismatch(bytes, &piece) {
                found = Some(done + at);
                return Err(Error::Interrupted);
            }
            done += bytes.len() as u64;
            // Where the reader has come to its end, the piece is freed.
            let _ = give_back.send(piece);
            Ok(())
        });
        drop(received);
        let read = reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if found.is_some() {
            return Ok(found);
        }
        // Each side stops with `Interrupted` where the other one failed: that one's error says why.
        match (compared, read) {
            (Err(Error::Interrupted), read) => read.and(Err(Error::Interrupted)),
            (compared, _) => compared.map(|()| None),
        }
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
