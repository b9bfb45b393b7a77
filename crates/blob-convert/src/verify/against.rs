//! Two files tensor by tensor, bit for bit, whatever their formats.
//!
//! First names are paired, then dtype, shape and bytes compared. Knows what a conversion may change and yet keep: places
//! without an array, bf16 as the bits of a u16, sparse arrays made dense.

use std::borrow::Cow;
use std::mem;
use std::sync::mpsc;
use std::thread;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Kind};

use super::{Finding, PIECE, Remark, index_of};
use crate::receipt::{KeptBits, kept_bits};
use crate::threads::{join, spawn};
use crate::watch::Watch;

/// Compares two files tensor by tensor, bit for bit, whatever their formats; returns how many are equal.
///
/// A place without an array may be missing from the other file; bf16 may be kept as u16 where a receipt says so; a sparse
/// array is equal to the dense one of its name that holds the same values. Each of these is a note. Memory stays at a few
/// pieces and 8 bytes a tensor, but for arrays that must be reordered or inflated as a whole.
///
/// # Errors
/// What reading returns; [`Error::Interrupted`] where `watch` says so.
pub fn against(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    watch: &dyn Watch,
    tell: &mut dyn FnMut(Remark),
) -> Result<u64, Error> {
    ours.whole()?;
    theirs.whole()?;
    let mut compare = Compare { kept: [kept_bits(ours), kept_bits(theirs)], watch, tell, equal: 0 };
    if let ([a], [b]) = (ours.entries(), theirs.entries())
        && a.name() != b.name()
        && a.dtype().is_some()
    {
        compare.note(format!("named {:?} here and {:?} there; each file holds one tensor", a.name(), b.name()));
        compare.both(&Side::whole(ours, a), &Side::whole(theirs, b))?;
        return Ok(compare.equal);
    }
    let (here, there) = (Names::of(ours), Names::of(theirs));
    alone(&there, &here, &mut compare);
    alone(&here, &there, &mut compare);
    for entry in ours.entries() {
        if let Some(other) = there.get(entry.name()) {
            compare.both(&Side::whole(ours, entry), &Side::whole(theirs, other))?;
        } else if let Some(other) = there.dense_for(entry) {
            compare.both(&Side::dense(ours, entry), &Side::whole(theirs, other))?;
        }
    }
    for entry in theirs.entries() {
        if let (None, Some(other)) = (here.get(entry.name()), here.dense_for(entry)) {
            compare.both(&Side::whole(ours, other), &Side::dense(theirs, entry))?;
        }
    }
    Ok(compare.equal)
}

/// A file's tensors by name: their places, sorted, which costs 4 bytes a tensor where a map costs 32.
struct Names<'a> {
    file: &'a Checkpoint,
    by_name: Vec<u32>,
    /// One place, that of its values, for each sparse array, by the whole array's name.
    sparse: Vec<u32>,
}

impl<'a> Names<'a> {
    fn of(file: &'a Checkpoint) -> Self {
        let entries = file.entries();
        let whole = |i: &u32| entries[*i as usize].sparse().map(|s| s.name());
        let mut by_name: Vec<u32> = (0..entries.len() as u32).collect();
        by_name.sort_unstable_by_key(|i| entries[*i as usize].name());
        let is_values = |i: &u32| entries[*i as usize].kind() == Kind::Values;
        let mut sparse: Vec<u32> = (0..entries.len() as u32).filter(is_values).collect();
        sparse.sort_unstable_by_key(whole);
        Self { file, by_name, sparse }
    }

    fn get(&self, name: &str) -> Option<&'a Entry> {
        let entry = |i: u32| &self.file.entries()[i as usize];
        let found = self.by_name.binary_search_by(|i| entry(*i).name().cmp(name));
        Some(entry(self.by_name[found.ok()?]))
    }

    /// The values of the sparse array of this name.
    fn sparse(&self, name: &str) -> Option<&'a Entry> {
        let entry = |i: u32| &self.file.entries()[i as usize];
        let whole = |i: &u32| entry(*i).sparse().map(|s| s.name());
        let found = self.sparse.binary_search_by_key(&Some(name), whole);
        Some(entry(self.sparse[found.ok()?]))
    }

    /// The dense tensor that stands for the sparse array whose values these are.
    fn dense_for(&self, values: &Entry) -> Option<&'a Entry> {
        match values.kind() {
            Kind::Values => self.dense_of(values),
            _ => None,
        }
    }

    /// The dense tensor that has the name of the sparse array which `part` is a part of.
    fn dense_of(&self, part: &Entry) -> Option<&'a Entry> {
        let dense = self.get(part.sparse()?.name())?;
        dense.sparse().is_none().then_some(dense)
    }
}

/// Tells of the tensors of one file that have no partner in the other.
fn alone(of: &Names<'_>, other: &Names<'_>, compare: &mut Compare<'_>) {
    for entry in of.file.entries() {
        if other.get(entry.name()).is_some() || other.dense_of(entry).is_some() {
            continue;
        }
        // A dense tensor for whose sparse parts there are no partners by name.
        let parts = other.sparse(entry.name());
        if entry.sparse().is_none() && parts.is_some_and(|part| of.get(part.name()).is_none()) {
            continue;
        }
        let (name, file) = (entry.name(), other.file.name());
        match entry.kind() {
            Kind::None => compare.note(format!("{name:?} is a place without an array, left out of {file}")),
            _ => compare.finding(name, "absent", format!("is missing from {file}")),
        }
    }
}

/// A comparison in the making.
struct Compare<'a> {
    /// The tensors of either file that keep bf16 as the bits of a u16.
    kept: [KeptBits; 2],
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

    /// Compares two tensors that belong together.
    fn both(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<(), Error> {
        if a.dense || b.dense {
            self.note(format!("{:?} is sparse in one file and dense in the other; compared as dense", a.name()));
        }
        match self.difference(a, b) {
            Ok(None) => self.equal += 1,
            Ok(Some((reason, message))) => self.finding(a.name(), reason, message),
            // Bytes that are broken are a finding of this tensor; the others are compared all the same.
            Err(Error::Malformed { file, fault, .. }) => {
                let message = format!("is broken in {file}: {fault}");
                self.finding(a.name(), fault.reason().as_str(), message);
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// What two tensors do not have in common, as a code and in words; `None` where they are equal.
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
        if a.shape() != b.shape() {
            let message = format!("has shape {} here and {} there", a.shape(), b.shape());
            return Ok(Some(("shape", message)));
        }
        if left != right {
            let is_kept = match (left, right) {
                (DType::U16, DType::BF16) => self.kept[0].contains(a.name()),
                (DType::BF16, DType::U16) => self.kept[1].contains(b.name()),
                _ => false,
            };
            if !is_kept {
                return Ok(Some(("dtype", format!("is {left} here and {right} there"))));
            }
            self.note(format!("{:?} is bf16, kept as the bits of a u16; compared by bits", a.name()));
        }
        let Some(at) = first_difference(a, b, self.watch)? else {
            return Ok(None);
        };
        let index = index_of(a.shape(), at / left.size() as u64);
        Ok(Some(("differs", format!("differs, first at [{index}]"))))
    }
}

/// A difference: its code, and what it is in words.
type Difference = (&'static str, String);

/// A place without an array stands against a tensor; `None` where neither file has an array.
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

/// One tensor of one of the files.
#[derive(Clone, Copy)]
struct Side<'a> {
    file: &'a Checkpoint,
    entry: &'a Entry,
    /// The whole sparse array that the entry is a part of, made dense.
    dense: bool,
}

impl<'a> Side<'a> {
    fn whole(file: &'a Checkpoint, entry: &'a Entry) -> Self {
        let dense = false;
        Self { file, entry, dense }
    }

    fn dense(file: &'a Checkpoint, entry: &'a Entry) -> Self {
        let dense = true;
        Self { file, entry, dense }
    }

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

    fn stream(&self, watch: &dyn Watch, take: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut watched = |bytes: &[u8]| {
            watch.step(bytes.len() as u64)?;
            take(bytes)
        };
        match self.dense {
            true => self.file.stream_dense(self.entry, PIECE, &mut watched),
            false => self.file.stream(self.entry, PIECE, &mut watched),
        }
    }

    /// All bytes; for tensors of at most a piece, where there is a choice.
    fn bytes(&self, watch: &dyn Watch) -> Result<Cow<'a, [u8]>, Error> {
        if !self.dense {
            watch.step(self.byte_len())?;
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

/// The first byte in which two arrays of one length differ.
fn first_difference(a: &Side<'_>, b: &Side<'_>, watch: &dyn Watch) -> Result<Option<u64>, Error> {
    if a.byte_len() <= PIECE as u64 {
        return Ok(mismatch(&a.bytes(watch)?, &b.bytes(watch)?));
    }
    // Both streams push; a thread turns one of them around. Two pieces wait at most, and come back for reuse.
    let (sender, received) = mpsc::sync_channel::<Vec<u8>>(1);
    let (give_back, spare) = mpsc::channel::<Vec<u8>>();
    thread::scope(|scope| {
        let reader = spawn(scope, move || {
            b.stream(watch, &mut |bytes| {
                let mut piece = spare.try_recv().unwrap_or_default();
                piece.clear();
                piece.extend_from_slice(bytes);
                // It is not taken where the other side found a difference, or failed.
                sender.send(piece).map_err(|_| Error::Interrupted)
            })
        });
        let Some(reader) = reader else {
            return one_after_the_other(a, b, watch);
        };
        let (mut done, mut found) = (0, None);
        // The other side's piece, and how much of it is compared: the pieces of an array in several runs have lengths of
        // their own.
        let (mut piece, mut used) = (Vec::new(), 0);
        let compared = a.stream(watch, &mut |mut bytes| {
            while !bytes.is_empty() {
                if used == piece.len() {
                    // Where the reader has come to its end, the piece is freed.
                    let _ = give_back.send(mem::take(&mut piece));
                    piece = received.recv().map_err(|_| Error::Interrupted)?;
                    used = 0;
                }
                let (now, later) = bytes.split_at(bytes.len().min(piece.len() - used));
                if let Some(at) = mismatch(now, &piece[used..used + now.len()]) {
                    found = Some(done + at);
                    return Err(Error::Interrupted);
                }
                used += now.len();
                done += now.len() as u64;
                bytes = later;
            }
            Ok(())
        });
        drop(received);
        let read = join(reader);
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

/// As [`first_difference`] where no thread can be had: one of the arrays is held whole.
fn one_after_the_other(a: &Side<'_>, b: &Side<'_>, watch: &dyn Watch) -> Result<Option<u64>, Error> {
    let whole = a.bytes(watch)?;
    let (mut at, mut found) = (0, None);
    let compared = b.stream(watch, &mut |bytes| {
        found = mismatch(&whole[at..at + bytes.len()], bytes).map(|first| at as u64 + first);
        at += bytes.len();
        match found {
            Some(_) => Err(Error::Interrupted),
            None => Ok(()),
        }
    });
    match found {
        Some(_) => Ok(found),
        None => compared.map(|()| None),
    }
}

/// The first byte in which two pieces differ.
fn mismatch(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    Some(same as u64)
}
