//! Makes raw names unique by fixed rules, in the table of a file's entries.
//!
//! The rules are in ARCHITECTURE, "Names of tensors". Leaves all other naming to `blob-convert`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

use crate::entry::{Entry, Kind};
use crate::error::{Fault, ReadError, check_limit};
use crate::expected::Expected;
use crate::limits::{Limit, Limits, arrays_in, axes_for, bytes_in, chunks_in, names_for};
use crate::warning::{Flag, Warning};
use crate::words::Listed;
use crate::work;

/// How many segments the arrays with more than one may have together, which take 3 MiB. Real files have one segment an
/// array; without this bound, segments of two values each would take more memory than the file.
const MAX_RUNS: usize = 1 << 17;
/// The key of the metadata in safetensors.
const RESERVED: &str = "__metadata__";

/// How many faults of the file as a whole are kept.
const MAX_FAULTS: usize = 20;

/// The entries of a file. Gives each a unique name and enforces the file's limits.
#[derive(Debug)]
pub(crate) struct NameTable {
    limits: Limits,
    /// The file's length, where the arrays lie in one file, and the length before unpacking.
    file_len: Option<u64>,
    stored_len: Option<u64>,
    entries: Vec<Entry>,
    /// The plan of a file that was just written: entries as planned are counted and dropped.
    expected: Option<Arc<Expected>>,
    /// Whether each entry so far that [`NameTable::push_done`] took is as planned.
    as_planned: Vec<bool>,
    /// How many entries were dropped.
    dropped: usize,
    /// Hashes names with keys of this table, which no file can know.
    hasher: RandomState,
    /// Hashes of the names given so far. 64 bits are enough: if two names ever collided, the later one would merely get
    /// a position added, as if the name were taken.
    taken: Hashes,
    /// Hashes of the names of the layers with tensors so far.
    layers: Hashes,
    types: HashSet<Arc<str>>,
    name_bytes: u64,
    axes: u64,
    /// Segments of arrays that have more than one.
    runs: usize,
    /// The bytes of all arrays once loaded.
    bytes: u64,
    /// The chunks of all arrays, those of a dataset counted for each of its names.
    chunks: u64,
    pub(crate) warnings: Vec<Warning>,
    /// The faults of the file, though every array can be loaded; the first few.
    pub(crate) faults: Vec<Fault>,
    pub(crate) metadata: Vec<(String, String)>,
    /// Layers or records seen so far, with arrays or without.
    pub(crate) positions: u32,
}

impl NameTable {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            file_len: None,
            stored_len: None,
            entries: Vec::new(),
            expected: None,
            as_planned: Vec::new(),
            dropped: 0,
            hasher: RandomState::new(),
            taken: Hashes::default(),
            layers: Hashes::default(),
            types: HashSet::new(),
            name_bytes: 0,
            axes: 0,
            runs: 0,
            bytes: 0,
            chunks: 0,
            warnings: Vec::new(),
            faults: Vec::new(),
            metadata: Vec::new(),
            positions: 0,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bounds the arrays by the length of the file that holds them.
    pub(crate) fn set_file_len(&mut self, len: u64) {
        self.file_len = Some(len);
    }

    /// Bounds the number of arrays by the length of the gzip file or the archive that the file was unpacked from.
    pub(crate) fn set_stored_len(&mut self, len: u64) {
        self.stored_len = Some(len);
    }

    /// Drops entries that are as planned, where the reader adds them by [`NameTable::push_done`].
    pub(crate) fn expect(&mut self, expected: Option<Arc<Expected>>) {
        self.expected = expected;
    }

    /// Whether each entry that was added, in order, is as planned, so that it was dropped.
    pub(crate) fn as_planned(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.as_planned)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.dropped
    }

    /// How many entries so far have no fault.
    pub(crate) fn intact(&self) -> usize {
        self.entries.iter().filter(|e| e.fault().is_none()).count() + self.dropped
    }

    /// The position of the next layer or record, which begins at `offset`.
    pub(crate) fn next_position(&mut self, offset: u64) -> Result<u32, ReadError> {
        let (position, most) = (self.positions, u32::MAX.into());
        check_limit(offset, Limit::Fixed, "the number of layers or records", u64::from(position) + 1, most)?;
        self.positions += 1;
        Ok(position)
    }

    /// Adds metadata. Of a key that comes again the last value counts, as in protobuf.
    pub(crate) fn note(&mut self, key: &str, value: String) {
        match self.metadata.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
    }

    /// Checks that `n` arrays are within the limits.
    pub(crate) fn check_count(&self, n: u64, offset: u64) -> Result<(), ReadError> {
        check_limit(offset, Limit::Arrays, "the number of arrays", n, self.limits.max_arrays)?;
        let len = [self.file_len, self.stored_len].into_iter().flatten().min();
        let most = len.map_or(u64::MAX, arrays_in);
        Ok(check_limit(offset, Limit::Fixed, "the number of arrays in a file of this size", n, most)?)
    }

    /// Counts the chunks of an array; an error if all arrays together have more than a file of this length may give.
    fn check_chunks(&mut self, chunks: usize, offset: u64) -> Result<(), Fault> {
        let sum = self.chunks.saturating_add(chunks as u64);
        let most = self.file_len.map_or(u64::MAX, |len| chunks_in(len, self.limits.max_segments));
        check_limit(offset, Limit::Segments, "the chunks of all arrays up to this one", sum, most)?;
        self.chunks = sum;
        Ok(())
    }

    /// Counts the bytes of an array; an error if all arrays together have more bytes than a file of this length may
    /// give.
    fn check_bytes(&mut self, bytes: u64, offset: u64) -> Result<(), Fault> {
        let sum = self.bytes.saturating_add(bytes);
        let most = self.file_len.map_or(u64::MAX, |len| bytes_in(len, self.limits.max_alloc)).min(u64::MAX - 1);
        check_limit(offset, Limit::Alloc, "the bytes of all arrays up to this one", sum, most)?;
        self.bytes = sum;
        Ok(())
    }

    /// Adds an entry that was found at `offset` under the raw name `name`; a name that is taken gets `@<position>`
    /// until the name is free.
    pub(crate) fn push(&mut self, entry: Entry, name: &str, offset: u64) -> Result<(), ReadError> {
        self.add(entry, offset)?;
        self.name(self.entries.len() - 1, name, offset)
    }

    /// As [`NameTable::push`], for an entry that nothing changes or looks at before the end of the file.
    pub(crate) fn push_done(&mut self, entry: Entry, name: &str, offset: u64) -> Result<(), ReadError> {
        self.push(entry, name, offset)?;
        let Some(expected) = &self.expected else { return Ok(()) };
        let is_planned = self.entries.last().is_some_and(|entry| expected.has(self.as_planned.len(), entry));
        self.as_planned.push(is_planned);
        if is_planned {
            self.entries.pop();
            self.dropped += 1;
        }
        Ok(())
    }

    /// Adds an entry that [`NameTable::name`] names later: MXNet's keys follow all arrays.
    ///
    /// An array with more segments or bytes than the file's bounds still allow is listed with a fault.
    pub(crate) fn add(&mut self, mut entry: Entry, offset: u64) -> Result<(), ReadError> {
        work::visit(0, 1);
        self.check_count(self.len() as u64 + 1, offset)?;
        // Neighbours often have one shape, which they share.
        if let Some(last) = self.entries.last().filter(|last| last.shape == entry.shape) {
            entry.shape = last.shape.clone();
        }
        let dense = entry.sparse.as_ref().map_or(0, |s| s.shape.num_axes());
        self.axes += (entry.shape.num_axes() + dense) as u64;
        let limit = axes_for(self.len() as u64 + 1);
        check_limit(offset, Limit::Fixed, "the axes of all arrays", self.axes, limit)?;
        let runs = entry.segments().len();
        self.runs += if runs > 1 { runs } else { 0 };
        let field = "the number of separate runs of values in the file";
        if let Err(fault) = check_limit(offset, Limit::Fixed, field, self.runs as u64, MAX_RUNS as u64) {
            self.runs -= runs;
            entry = faulty(entry.position, entry.index, entry.kind, fault);
        }
        let at = entry.offset().unwrap_or(offset);
        let checked = self.check_bytes(entry.byte_len(), at).and_then(|()| self.check_chunks(entry.chunks(), at));
        if let Err(fault) = checked {
            entry = faulty(entry.position, entry.index, entry.kind, fault);
        }
        if self.entries.len() == self.entries.capacity() {
            // The list grows by an eighth instead of doubling, so that a hostile file cannot push the list over the
            // memory bound.
            self.entries.reserve_exact(self.entries.len() / 8 + 16);
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Names the entry at `index`, as [`NameTable::push`] does.
    pub(crate) fn name(&mut self, index: usize, name: &str, offset: u64) -> Result<(), ReadError> {
        let flag = if name == RESERVED { Flag::ReservedName } else { Flag::RepeatedName };
        let (name, hash) = self.unique(name, self.entries[index].position);
        if let Cow::Owned(_) = name {
            self.entries[index].flags.set(flag);
        }
        self.spend(name.len() as u64, offset)?;
        self.taken.insert(hash);
        self.entries[index].name = name.into();
        Ok(())
    }

    /// Reserves a name for an array of which only the parts are listed; returns the unique form of the name.
    pub(crate) fn reserve<'n>(&mut self, name: &'n str, position: u32, offset: u64) -> Result<Cow<'n, str>, ReadError> {
        let (name, hash) = self.unique(name, position);
        self.spend(name.len() as u64, offset)?;
        self.taken.insert(hash);
        Ok(name)
    }

    /// The entry at `index`, to be completed.
    pub(crate) fn entry_mut(&mut self, index: usize) -> Option<&mut Entry> {
        self.entries.get_mut(index)
    }

    /// Forgets every entry, for a second reading of the same file; what was said of the file stays.
    pub(crate) fn restart(&mut self) {
        let (warnings, faults) = (std::mem::take(&mut self.warnings), std::mem::take(&mut self.faults));
        let (metadata, file_len, stored_len) = (std::mem::take(&mut self.metadata), self.file_len, self.stored_len);
        let expected = self.expected.take();
        *self = Self { warnings, faults, metadata, file_len, stored_len, expected, ..Self::new(&self.limits) };
    }

    /// Whether an entry has this name already.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.taken.contains(&self.hasher.hash_one(name))
    }

    /// The entries so far, for a format whose order is known only at the end.
    pub(crate) fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// Keeps the first entries alone.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    /// The first form of a name that is free, and the hash of that form.
    fn unique<'n>(&self, name: &'n str, position: u32) -> (Cow<'n, str>, u64) {
        let mut name = match name {
            RESERVED => Cow::Owned(format!("{RESERVED}@{position}")),
            _ => Cow::Borrowed(name),
        };
        loop {
            work::visit(name.len() as u64, 1);
            let hash = self.hasher.hash_one(&*name);
            if !self.taken.contains(&hash) {
                return (name, hash);
            }
            name = Cow::Owned(format!("{name}@{position}"));
        }
    }

    /// The name of a layer's blobs without the index: the layer's name, with the position added if the name is empty or
    /// an earlier layer with tensors has the same name.
    pub(crate) fn layer_base<'n>(&mut self, name: &'n str, position: u32) -> Cow<'n, str> {
        if self.layers.insert(self.hasher.hash_one(name)) && !name.is_empty() {
            return Cow::Borrowed(name);
        }
        Cow::Owned(format!("{name}@{position}"))
    }

    /// A shared copy of a layer's type, because a net has few types.
    pub(crate) fn intern(&mut self, text: &str, offset: u64) -> Result<Arc<str>, ReadError> {
        if let Some(known) = self.types.get(text) {
            return Ok(known.clone());
        }
        self.spend(text.len() as u64, offset)?;
        let new: Arc<str> = text.into();
        self.types.insert(new.clone());
        Ok(new)
    }

    /// Counts bytes of names against the limit.
    fn spend(&mut self, bytes: u64, offset: u64) -> Result<(), ReadError> {
        self.name_bytes += bytes;
        let limit = names_for(self.len() as u64);
        Ok(check_limit(offset, Limit::Fixed, "the bytes of all names", self.name_bytes, limit)?)
    }

    /// Records a fault of the file as a whole; only the first few, because a hostile file may have a million.
    pub(crate) fn fault(&mut self, fault: Fault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }

    pub(crate) fn warn(&mut self, offset: Option<u64>, text: impl Into<Cow<'static, str>>) {
        self.add_warning(Warning::new(offset, text));
    }

    /// Warns of something that is not listed.
    pub(crate) fn warn_of_loss(&mut self, offset: Option<u64>, text: impl Into<Cow<'static, str>>) {
        self.add_warning(Warning::of_loss(offset, text));
    }

    /// Warns of the names that are left out for one reason, if there are any.
    pub(crate) fn warn_of_names<const MOST: usize>(&mut self, reason: &str, names: &Listed<String, MOST>) {
        if names.count > 0 {
            self.warn_of_loss(None, format!("{reason}: {}", names.joined()));
        }
    }

    pub(crate) fn add_warning(&mut self, warning: Warning) {
        // Each kind of warning is kept once; there are few kinds.
        if !self.warnings.iter().any(|w| w.text == warning.text) {
            self.warnings.push(warning);
        }
    }

    /// The entries; the other fields are taken before.
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        let mut entries = self.entries;
        // A list that grew entry by entry has room for up to as many again.
        entries.shrink_to_fit();
        entries
    }
}

/// Numbers that are hashes already.
type Hashes = HashSet<u64, BuildHasherDefault<Itself>>;

/// The hash of a number that is its own hash.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Makes a name of bytes from a file: UTF-8 stays unchanged; otherwise each byte that is not UTF-8 becomes `\xHH`, and
/// a backslash is written twice.
pub(crate) fn name_from_bytes(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(name) => Cow::Borrowed(name),
        Err(_) => {
            let mut name = String::with_capacity(bytes.len() + 8);
            for chunk in bytes.utf8_chunks() {
                name.push_str(&chunk.valid().replace('\\', "\\\\"));
                for byte in chunk.invalid() {
                    name.push_str(&format!("\\x{byte:02X}"));
                }
            }
            Cow::Owned(name)
        }
    }
}

/// The entry of an array with a fault.
pub(crate) fn faulty(position: u32, index: u32, kind: Kind, fault: Fault) -> Entry {
    let mut entry = Entry::new(position, index, kind);
    entry.fault = Some(Box::new(fault));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(raw: &[(&str, u32)]) -> Vec<String> {
        let mut table = NameTable::new(&Limits::default());
        for (name, position) in raw {
            table.push(Entry::new(*position, 0, Kind::Data), name, 0).unwrap();
        }
        let entries = table.into_entries();
        entries.iter().map(|e| e.name().to_owned()).collect()
    }

    #[test]
    fn a_taken_name_gets_its_position_until_it_is_free() {
        assert_eq!(names(&[("a", 0), ("a", 1), ("b@3", 2), ("b", 3), ("b", 3)]), ["a", "a@1", "b@3", "b", "b@3@3"]);
        assert_eq!(names(&[("__metadata__", 4)]), ["__metadata__@4"]);
    }

    #[test]
    fn bytes_that_are_no_utf8_are_escaped() {
        assert_eq!(name_from_bytes(b"conv\\1"), "conv\\1");
        assert_eq!(name_from_bytes(b"a\\\xFFb"), "a\\\\\\xFFb");
    }

    #[test]
    fn axes_that_grow_without_bound_are_refused() {
        let mut table = NameTable::new(&Limits::default());
        let pushed = (0..1u32 << 16)
            .take_while(|i| {
                let mut entry = Entry::new(*i, 0, Kind::Data);
                entry.shape = blob_core::Shape::new([1; 32]).unwrap();
                table.push(entry, "n", 0).is_ok()
            })
            .count();
        assert_eq!(pushed, (4 << 20) / 8 / 24);
    }

    #[test]
    fn names_that_grow_without_bound_are_refused() {
        let limits = Limits::default();
        let mut table = NameTable::new(&limits);
        let long = "n".repeat(60_000);
        let pushed = (0..1000u32).take_while(|i| table.push(Entry::new(*i, 0, Kind::Data), &long, 0).is_ok()).count();
        assert!((100..200).contains(&pushed), "{pushed}");
    }
}
