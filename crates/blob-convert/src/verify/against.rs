//! Two files tensor by tensor, bit for bit, whatever their formats.
//!
//! First names are paired, then dtype, shape and bytes compared. Knows what a conversion may change and yet keep: names,
//! places without an array, bf16 as the bits of a u16, sparse arrays made dense, the ones behind a shape in NeoML's seven axes.

use blob_core::{DType, Dims7, Shape};
use blob_io::{Checkpoint, Entry, Error, Format, Kind, Sparse};

use super::{Finding, Remark, index_of};
use crate::receipt::{KeptBits, kept_bits, own};
use crate::watch::{Watch, Watched};

/// Two pieces stay in the second-level cache from where they are read to where they are compared.
const PIECE: usize = 256 << 10;

/// Compares two files tensor by tensor, bit for bit, whatever their formats; returns how many are equal.
///
/// A place without an array may be missing from the other file; bf16 may be kept as u16 in an npy file and where a receipt
/// says so; a sparse array is equal to the dense one of its name that holds the same values; where one of the files stores
/// no names, tensors are paired in their order. Each of these is a note. Memory stays at a few
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
    let kept = [kept_bits(ours), kept_bits(theirs)];
    let mut compare = Compare { kept, pieces: [vec![0; PIECE], vec![0; PIECE]], watch, tell, equal: 0 };
    if let ([a], [b]) = (ours.entries(), theirs.entries())
        && a.name() != b.name()
        && a.dtype().is_some()
    {
        compare.note(format!("named {:?} here and {:?} there; each file holds one tensor", a.name(), b.name()));
        compare.both(&Side::stored(ours, a), &Side::stored(theirs, b))?;
        return Ok(compare.equal);
    }
    let (here, there) = (Names::of(ours), Names::of(theirs));
    if let Some(unnamed) = [ours, theirs].into_iter().find(|file| is_unnamed(file))
        && ours.format() != theirs.format()
        && arrays(ours).count() == arrays(theirs).count()
        && arrays(ours).any(|entry| there.get(entry.name()).is_none_or(|other| other.kind() == Kind::None))
    {
        compare.note(format!("the tensors of {} have no names; compared in their order", unnamed.name()));
        for (a, b) in pairs(ours, theirs) {
            compare.both(&Side::stored(ours, a), &Side::stored(theirs, b))?;
        }
        return Ok(compare.equal);
    }
    alone(&there, &here, &mut compare);
    alone(&here, &there, &mut compare);
    for entry in ours.entries() {
        if let Some(other) = there.get(entry.name()) {
            compare.both(&Side::stored(ours, entry), &Side::stored(theirs, other))?;
        } else if let Some(other) = there.dense_for(entry) {
            compare.both(&Side::dense(ours, entry), &Side::stored(theirs, other))?;
        }
    }
    for entry in theirs.entries() {
        if let (None, Some(other)) = (here.get(entry.name()), here.dense_for(entry)) {
            compare.both(&Side::stored(ours, other), &Side::dense(theirs, entry))?;
        }
    }
    Ok(compare.equal)
}

/// The tensors of a file, without the places that have none.
fn arrays(file: &Checkpoint) -> impl Iterator<Item = &Entry> {
    file.entries().iter().filter(|entry| entry.kind() != Kind::None)
}

/// The tensors of two files in their order. Where both store sparse arrays, parts of one kind make a pair: each format has
/// its own order of them.
fn pairs<'a>(ours: &'a Checkpoint, theirs: &'a Checkpoint) -> Vec<(&'a Entry, &'a Entry)> {
    let mut both: [Vec<&Entry>; 2] = [arrays(ours).collect(), arrays(theirs).collect()];
    if both.iter().all(|entries| entries.iter().any(|entry| entry.sparse().is_some())) {
        let whole = |entry: &Entry| entry.sparse().map(|sparse| sparse.name.clone());
        for entries in &mut both {
            let groups = entries.chunk_by_mut(|a, b| a.sparse().is_some() && whole(a) == whole(b));
            groups.for_each(|parts| parts.sort_by_key(|part| part.kind().name()));
        }
    }
    let [ours, theirs] = both;
    ours.into_iter().zip(theirs).collect()
}

/// Whether the file stores no names, so that its tensors are called by their positions: `@0`, `@0.diff`, `@1#indices`.
fn is_unnamed(file: &Checkpoint) -> bool {
    let is_position = |entry: &Entry| {
        let name = entry.name().strip_prefix('@');
        name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()) && !name.contains('/'))
    };
    !file.entries().is_empty() && file.entries().iter().all(is_position)
}

/// A file's tensors, sorted by name. Indices take 4 bytes a tensor; a map would take 32.
struct Names<'a> {
    file: &'a Checkpoint,
    by_name: Vec<u32>,
    /// The values of each sparse array, sorted by the name of the whole array.
    sparse: Vec<u32>,
}

impl<'a> Names<'a> {
    fn of(file: &'a Checkpoint) -> Self {
        let entries = file.entries();
        let whole = |i: &u32| entries[*i as usize].sparse().map(|s| &*s.name);
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
        let whole = |i: &u32| entry(*i).sparse().map(|s| &*s.name);
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
        let dense = self.get(&part.sparse()?.name)?;
        dense.sparse().is_none().then_some(dense)
    }
}

/// Tells of the tensors of one file that have no partner in the other.
fn alone(of: &Names<'_>, other: &Names<'_>, compare: &mut Compare<'_>) {
    for entry in of.file.entries() {
        if other.get(entry.name()).is_some() || other.dense_of(entry).is_some() {
            continue;
        }
        // A dense tensor is compared with the sparse array of its name, unless the parts have partners of their own.
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

/// One tensor of one of the files.
#[derive(Clone, Copy)]
struct Side<'a> {
    file: &'a Checkpoint,
    entry: &'a Entry,
    /// The whole sparse array that the entry is a part of, where it is compared as a dense one.
    dense: Option<&'a Sparse>,
}

impl<'a> Side<'a> {
    fn stored(file: &'a Checkpoint, entry: &'a Entry) -> Self {
        Self { file, entry, dense: None }
    }

    fn dense(file: &'a Checkpoint, entry: &'a Entry) -> Self {
        Self { file, entry, dense: entry.sparse() }
    }

    fn shape(&self) -> &'a Shape {
        self.dense.map_or(self.entry.shape(), |sparse| &sparse.shape)
    }

    fn name(&self) -> &'a str {
        self.dense.map_or(self.entry.name(), |sparse| &sparse.name)
    }

    fn reader<'r>(&self, watch: &'r dyn Watch) -> Result<Watched<'r>, Error>
    where
        'a: 'r,
    {
        let reader = match self.dense {
            Some(_) => self.file.dense_reader(self.entry),
            None => self.file.reader(self.entry),
        };
        Ok(Watched::new(reader?, watch))
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
