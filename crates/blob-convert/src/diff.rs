//! The differences between two files of any formats: tensors that only one has, that differ in name, shape or dtype, or
//! whose values differ by more than a tolerance.
//!
//! `pairing` pairs the tensors, `diff/values` measures. `verify` answers whether files differ, this module answers by
//! how much.

mod values;

use std::collections::{HashMap, VecDeque};

use blake3::Hash;
use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Kind, work};

use crate::compare::PIECE;
use crate::pairing::{Event, Side, walk};
use crate::watch::{Watch, Watched};
use crate::written::hash_of;
use values::Run;
pub use values::{Distance, Tolerance, Worst};

/// The result for one tensor or pair of tensors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// The tensor of the first file.
    pub ours: Option<Tensor>,
    /// The tensor of the second file.
    pub theirs: Option<Tensor>,
    /// The difference between the two.
    pub change: Comparison,
}

/// A tensor of one of the files.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tensor {
    /// The name in the file.
    pub name: String,
    /// `None` for a place without an array.
    pub dtype: Option<DType>,
    /// The shape; for a part of a sparse array that is compared with a dense one, the shape of the whole array.
    pub shape: Shape,
}

/// The difference between a tensor of one file and the tensor of the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// Equal, within the tolerance.
    Equal(Distance),
    /// Equal values under another name.
    Renamed,
    /// Only the first file has the tensor.
    Removed,
    /// Only the second file has the tensor.
    Added,
    /// Values further apart than is tolerated.
    Values(Distance),
    /// Another dtype, which no tolerance allows; the values are compared as numbers.
    DType(Distance),
    /// Another shape; the values are not compared.
    Shape,
    /// The tensor cannot be compared, with the reason.
    Unread(String),
}

/// How many tensors there are of each kind of [`Comparison`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Equal, among them the renamed ones.
    pub equal: u64,
    /// Equal under another name.
    pub renamed: u64,
    /// With other values, or another dtype or shape.
    pub changed: u64,
    /// Of the changed ones, those that differ in dtype alone, with equal values.
    pub recast: u64,
    /// Only in the first file.
    pub removed: u64,
    /// Only in the second file.
    pub added: u64,
    /// Not compared.
    pub unread: u64,
}

impl Tally {
    /// Whether all tensors that could be read are equal.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.changed + self.removed + self.added + self.renamed + self.unread == 0
    }
}

/// Compares two files and calls `report` for each tensor: pairs in the order of the first file, then the tensors that
/// only the first file has, then those that only the second has.
///
/// Ones in a shape do not count unless the tolerance is [`Tolerance::Exact`]: an old Caffe file has 1×1×1×20 where a
/// new one has 20. A tensor without a partner is compared by content with such tensors of the other file; one that is
/// equal bit for bit is a renamed one. `note` gets remarks on how the tensors are paired. Memory stays at two pieces
/// and a few words for each tensor without a partner.
///
/// # Errors
/// A file that ends too early; any error of reading, except for broken bytes in a tensor, which are
/// [`Comparison::Unread`]; [`Error::Interrupted`] where `watch` says so; any error of `report`.
pub fn diff<E: From<Error>>(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    tolerance: Tolerance,
    watch: &dyn Watch,
    note: &mut dyn FnMut(String),
    report: &mut dyn FnMut(Row) -> Result<(), E>,
) -> Result<Tally, E> {
    ours.check_whole()?;
    theirs.check_whole()?;
    let mut compare = Differences { tolerance, watch, pieces: [vec![0; PIECE], vec![0; PIECE]] };
    let mut tally = Tally::default();
    let mut unpaired: [Vec<&Entry>; 2] = Default::default();
    let mut report = |row: Row| {
        tally.count(&row.change);
        report(row)
    };
    walk(ours, theirs, &mut |event| {
        match event {
            Event::Note(text) => note(text),
            Event::Unpaired { entry, .. } if entry.kind() == Kind::None => {}
            Event::Unpaired { entry, missing_from } => {
                unpaired[usize::from(std::ptr::eq(missing_from, ours))].push(entry);
            }
            Event::Pair(a, b) => report(compare.row(&a, &b)?)?,
        }
        Ok::<(), E>(())
    })?;
    let [removed, added] = unpaired;
    let mut partners = compare.renamed([ours, theirs], [&removed, &added])?;
    let mut is_taken = vec![false; added.len()];
    for (index, entry) in removed.into_iter().enumerate() {
        let tensor = Some(Tensor::of(&Side::stored(ours, entry)));
        let partner = partners.remove(&index);
        let theirs = partner.map(|other| {
            is_taken[other] = true;
            Tensor::of(&Side::stored(theirs, added[other]))
        });
        let change = if theirs.is_some() { Comparison::Renamed } else { Comparison::Removed };
        report(Row { ours: tensor, theirs, change })?;
    }
    for (entry, _) in added.into_iter().zip(is_taken).filter(|(_, is_taken)| !is_taken) {
        let tensor = Tensor::of(&Side::stored(theirs, entry));
        report(Row { ours: None, theirs: Some(tensor), change: Comparison::Added })?;
    }
    Ok(tally)
}

impl Tally {
    fn count(&mut self, change: &Comparison) {
        match change {
            Comparison::Equal(_) => self.equal += 1,
            Comparison::Renamed => (self.equal, self.renamed) = (self.equal + 1, self.renamed + 1),
            Comparison::Removed => self.removed += 1,
            Comparison::Added => self.added += 1,
            Comparison::DType(_) => (self.changed, self.recast) = (self.changed + 1, self.recast + 1),
            Comparison::Values(_) | Comparison::Shape => self.changed += 1,
            Comparison::Unread(_) => self.unread += 1,
        }
    }
}

impl Tensor {
    fn of(side: &Side<'_>) -> Self {
        Self { name: side.name().to_owned(), dtype: side.entry.dtype(), shape: side.shape().clone() }
    }
}

/// The settings and buffers of a comparison of values.
struct Differences<'a> {
    tolerance: Tolerance,
    watch: &'a dyn Watch,
    pieces: [Vec<u8>; 2],
}

impl Differences<'_> {
    /// Whether shapes must be the same.
    fn is_exact(&self) -> bool {
        self.tolerance == Tolerance::Exact
    }

    fn row(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<Row, Error> {
        let change = match self.change(a, b) {
            Err(Error::Malformed { file, fault, .. }) => Comparison::Unread(format!("broken in {file}: {fault}")),
            change => change?,
        };
        Ok(Row { ours: Some(Tensor::of(a)), theirs: Some(Tensor::of(b)), change })
    }

    fn change(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<Comparison, Error> {
        for side in [a, b] {
            let file = side.file.name();
            if let Some(why) = side.entry.unread() {
                return Ok(Comparison::Unread(format!("not read in {file}: {why}")));
            }
            if let Some(fault) = side.entry.fault() {
                return Ok(Comparison::Unread(format!("broken in {file}: {fault}")));
            }
        }
        let (Some(left), Some(right)) = (a.entry.dtype(), b.entry.dtype()) else {
            let both = a.entry.dtype() == b.entry.dtype();
            return Ok(if both { Comparison::Equal(Distance::default()) } else { Comparison::Shape });
        };
        let is_exact = self.is_exact();
        if !(a.shape() == b.shape() || !is_exact && squeezed(a.shape()).eq(squeezed(b.shape()))) {
            return Ok(Comparison::Shape);
        }
        let distance = self.distance([a, b], [left, right])?;
        Ok(match distance.changed {
            0 if left == right || !is_exact && self.tolerance != Tolerance::NONE => Comparison::Equal(distance),
            0 => Comparison::DType(distance),
            _ => Comparison::Values(distance),
        })
    }

    fn distance(&mut self, sides: [&Side<'_>; 2], dtypes: [DType; 2]) -> Result<Distance, Error> {
        let [mut a, mut b] = [sides[0].reader(self.watch)?, sides[1].reader(self.watch)?];
        // Both pieces have the same number of elements, whatever the dtypes.
        let widest = dtypes[0].size().max(dtypes[1].size());
        let elements = PIECE / widest;
        let [left, right] = &mut self.pieces;
        let mut distance = Distance::default();
        loop {
            let n = fill(&mut a, &mut left[..elements * dtypes[0].size()])?;
            let m = fill(&mut b, &mut right[..elements * dtypes[1].size()])?;
            if n == 0 || m == 0 {
                return Ok(distance);
            }
            let ours = Run { dtype: dtypes[0], bytes: &left[..n] };
            distance.add(self.tolerance, ours, Run { dtype: dtypes[1], bytes: &right[..m] });
        }
    }

    /// Pairs the tensors of two lists that have equal contents, each at most once: from an index in `removed` to one in
    /// `added`.
    ///
    /// A tensor is read only if the other list has one of the same dtype and shape.
    fn renamed(
        &self,
        [ours, theirs]: [&Checkpoint; 2],
        [removed, added]: [&[&Entry]; 2],
    ) -> Result<HashMap<usize, usize>, Error> {
        type Key = (DType, Vec<usize>);
        let key = |entry: &Entry| -> Option<Key> {
            let is_whole = entry.sparse().is_none() && entry.fault().is_none() && entry.byte_len() > 0;
            let shape = entry.shape();
            let extents = if self.is_exact() { shape.dims().to_vec() } else { squeezed(shape).copied().collect() };
            Some((entry.dtype().filter(|_| is_whole)?, extents))
        };
        let mut alike: HashMap<Key, Vec<usize>> = HashMap::new();
        for (index, entry) in added.iter().enumerate() {
            if let Some(key) = key(entry) {
                alike.entry(key).or_default().push(index);
            }
        }
        let (mut by_content, mut found) = (HashMap::<(Key, Hash), VecDeque<usize>>::new(), HashMap::new());
        for (index, entry) in removed.iter().enumerate() {
            let Some(key) = key(entry) else { continue };
            // The first tensor with this key hashes all candidates; later ones find the hashes in `by_content`.
            for other in alike.get_mut(&key).map(std::mem::take).unwrap_or_default() {
                if let Some(hash) = hash_of(theirs, added[other], self.watch)? {
                    by_content.entry((key.clone(), hash)).or_default().push_back(other);
                }
            }
            if !by_content.is_empty()
                && let Some(hash) = hash_of(ours, entry, self.watch)?
                && let Some(other) = by_content.get_mut(&(key, hash)).and_then(VecDeque::pop_front)
            {
                work::visit(0, 1);
                found.insert(index, other);
            }
        }
        Ok(found)
    }
}

/// Reads until the piece is full or the array ends.
fn fill(reader: &mut Watched<'_>, piece: &mut [u8]) -> Result<usize, Error> {
    let mut done = 0;
    while done < piece.len() {
        match reader.pull(&mut piece[done..])? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

/// The extents other than one.
fn squeezed(shape: &Shape) -> impl Iterator<Item = &usize> {
    shape.dims().iter().filter(|extent| **extent != 1)
}
