//! Reads MXNet lists and bare records as entries: the records, then the keys, then chooses between two interpretations.
//!
//! The walk reads headers and skips data. The devices that a file names are ignored.

use std::sync::Arc;

use crate::entry::{Entry, Kind, Payload, Runs, Segment, Sparse};
use crate::error::{FaultKind, ReadError};
use crate::limits::LONGEST_NAME;
use crate::mxnet::flags::Context;
use crate::mxnet::record::{self, Body, ElementRun, NoAxes, Record, Version};
use crate::names::{NameTable, name_from_bytes};
use crate::tensor_name::TensorName;
use crate::warning::Flag;
use crate::wire::cursor::Cursor;

/// `kMXAPINDArrayListMagic`.
pub(super) const LIST_MAGIC: u64 = 0x112;

/// At most this many devices are listed; a hostile file may name a different one for each array.
const MAX_CONTEXTS: usize = 4;

/// Lists the arrays of a list file. Returns the records' versions as text.
pub(crate) fn list(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    cursor.seek(0);
    let magic = cursor.u64("the list magic")?;
    if magic != LIST_MAGIC {
        let found = match magic.swap_bytes() {
            LIST_MAGIC => "it byte-swapped: a list of a big-endian machine".to_owned(),
            _ => format!("{magic:#X}"),
        };
        let what = FaultKind::words("MXNet's list magic 0x112", found);
        return Err(ReadError::fault(0, what));
    }
    let reserved = cursor.u64("the reserved word")?;
    if reserved != 0 {
        table.warn(Some(8), "the reserved word is not 0; MXNet ignores it, and so do we");
    }
    let count = cursor.u64("the number of arrays")?;
    // The shortest record has 4 bytes.
    let left = cursor.left();
    if count > left / 4 {
        let found = format!("{count}, with {left} bytes left for them");
        let what = FaultKind::words("a number of arrays that the file can hold", found);
        return Err(ReadError::fault(16, what));
    }
    table.check_count(count, 16)?;
    let walk = choose(cursor, table, |cursor, table, walk| {
        for i in 0..count {
            if let Err(stop) = array(cursor, table, walk) {
                name_by_index(table, 0)?;
                return Err(stop.within(format!("array #{i}")));
            }
        }
        keys(cursor, table, count)
    })?;
    Ok(walk.finish(cursor, table, "records"))
}

/// Lists the one array of a bare record: `@0`.
pub(crate) fn record(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    cursor.seek(0);
    let walk = choose(cursor, table, |cursor, table, walk| {
        array(cursor, table, walk)?;
        name_record(table, 0, "@0", 0)?;
        Ok(())
    })?;
    Ok(walk.finish(cursor, table, "record"))
}

/// The findings of a walk besides the arrays.
struct Walk {
    /// How this walk interprets ambiguous records.
    no_axes: NoAxes,
    /// Whether there were ambiguous records.
    is_ambiguous: bool,
    /// V0 to V3.
    versions: [bool; 4],
    contexts: Vec<Context>,
    more_contexts: bool,
}

impl Walk {
    fn new(no_axes: NoAxes) -> Self {
        Self { no_axes, is_ambiguous: false, versions: [false; 4], contexts: Vec::new(), more_contexts: false }
    }

    fn add_record(&mut self, record: &Record) {
        self.versions[record.version as usize] = true;
        self.is_ambiguous |= record.no_axes;
        if let Some(context) = record.context
            && !context.is_cpu()
            && !self.contexts.contains(&context)
        {
            if self.contexts.len() < MAX_CONTEXTS {
                self.contexts.push(context);
            } else {
                self.more_contexts = true;
            }
        }
    }

    /// Adds the file's warnings and metadata; returns the dialect.
    fn finish(self, cursor: &Cursor<'_>, table: &mut NameTable, noun: &str) -> String {
        let left = cursor.left();
        if left > 0 {
            let text = format!("{left} bytes are left at the end; MXNet ignores them, and so do we");
            table.warn_of_loss(Some(cursor.pos()), text);
        }
        let np_shape = self.versions[Version::V3 as usize];
        if np_shape && self.versions[..3].contains(&true) {
            table.warn(
                None,
                "records with and without np-shape are mixed; MXNet refuses such a list, we read all of it",
            );
        }
        if !self.contexts.is_empty() {
            let mut names: Vec<_> = self.contexts.iter().map(Context::to_string).collect();
            if self.more_contexts {
                names.push("…".to_owned());
            }
            table.metadata.push(("context".to_owned(), names.join(", ")));
        }
        let found = Version::ALL.into_iter().filter(|version| self.versions[*version as usize]);
        let found: Vec<_> = found.map(Version::name).collect();
        if found.is_empty() {
            return format!("no {noun}");
        }
        let suffix = if np_shape { " (np-shape)" } else { "" };
        format!("{} {noun}{suffix}", found.join(" and "))
    }
}

/// Walks the file from here. If V2 records without axes are ambiguous, decides on one interpretation for the whole
/// file.
///
/// MXNet's own loader reads such a record as a missing array that ends there, but no MXNet has ever written one; 1.5 to
/// 1.9 wrote scalars that way, which no MXNet reads. The file's length decides: the second interpretation is used if
/// only that one ends exactly at the end of the file.
fn choose(
    cursor: &mut Cursor<'_>,
    table: &mut NameTable,
    mut read: impl FnMut(&mut Cursor<'_>, &mut NameTable, &mut Walk) -> Result<(), ReadError>,
) -> Result<Walk, ReadError> {
    let start = cursor.pos();
    let mut again = |cursor: &mut Cursor<'_>, table: &mut NameTable, no_axes| {
        cursor.seek(start);
        table.restart();
        let mut walk = Walk::new(no_axes);
        let outcome = read(cursor, table, &mut walk);
        (walk, outcome)
    };
    let (none, outcome) = again(cursor, table, NoAxes::None);
    if !none.is_ambiguous || outcome.is_ok() && cursor.left() == 0 {
        return outcome.map(|()| none);
    }
    let (scalar, second) = again(cursor, table, NoAxes::Scalar);
    match (outcome, second) {
        (_, Ok(())) if cursor.left() == 0 => Ok(scalar),
        (Ok(()), _) => {
            let (none, outcome) = again(cursor, table, NoAxes::None);
            outcome.map(|()| none)
        }
        (Err(first), second) => {
            // Either interpretation may be the right one, so no array can be trusted.
            table.restart();
            // The walk that got further has the more useful error.
            Err(match second {
                Err(second) if offset(&second) > offset(&first) => second,
                _ => first,
            })
        }
    }
}

fn offset(refusal: &ReadError) -> u64 {
    match refusal {
        ReadError::Fault(fault) => fault.offset(),
        ReadError::Io { offset, .. } => *offset,
        ReadError::Other(..) => 0,
    }
}

/// Adds the entries of the record at the cursor, without names.
fn array(cursor: &mut Cursor<'_>, table: &mut NameTable, walk: &mut Walk) -> Result<(), ReadError> {
    let at = cursor.pos();
    let position = table.next_position(at)?;
    let record = record::read(cursor, walk.no_axes)?;
    walk.add_record(&record);
    match record.body {
        Body::None(_) => table.add(Entry::new(position, 0, Kind::None), at),
        Body::Dense(part) => {
            let mut entry = entry(part, position, 0);
            if record.no_axes {
                entry.flags.set(Flag::RecoveredScalar);
            }
            table.add(entry, at)
        }
        Body::Sparse { kind, shape, stored, parts } => {
            // The name comes with the key.
            let name = Arc::default();
            let mut sparse = Some(Arc::new(Sparse { kind, name, shape }));
            for (index, part) in parts.into_iter().enumerate() {
                let mut entry = entry(part, position, index as u32);
                let own = entry.shape.dims().iter().map(|&extent| extent as i64);
                if entry.kind == Kind::Values && !own.eq(stored.iter().copied()) {
                    entry.flags.set(Flag::StaleStorageShape);
                }
                // The first part keeps the array's description for the other parts until the key is read.
                entry.sparse = sparse.take();
                table.add(entry, at)?;
            }
            Ok(())
        }
    }
}

fn entry(part: ElementRun, position: u32, index: u32) -> Entry {
    let mut entry = Entry::new(position, index, part.kind);
    let count = part.shape.count() as u64;
    if count > 0 {
        entry.payload =
            Payload::Runs(Runs::One(Segment { offset: part.offset, count, stride: part.dtype.size() as u64 }));
    }
    entry.shape = part.shape;
    entry.dtype = Some(part.dtype);
    entry
}

/// Reads the keys, which follow all `count` records, and names the entries.
fn keys(cursor: &mut Cursor<'_>, table: &mut NameTable, count: u64) -> Result<(), ReadError> {
    let at = cursor.pos();
    let found = match cursor.u64("the number of keys") {
        Ok(found) => found,
        Err(stop) => {
            name_by_index(table, 0)?;
            return Err(stop);
        }
    };
    if found != 0 && found != count {
        name_by_index(table, 0)?;
        let what = FaultKind::words("no keys, or one for each array", format!("{found} keys for {count} arrays"));
        return Err(ReadError::fault(at, what));
    }
    let mut next = 0;
    for i in 0..count {
        let at = cursor.pos();
        let key = if found == 0 {
            format!("@{i}").into_bytes()
        } else {
            match key(cursor) {
                Ok(key) => key,
                Err(stop) => {
                    name_by_index(table, next)?;
                    return Err(stop.within(format!("array #{i}")));
                }
            }
        };
        next = name_record(table, next, &name_from_bytes(&key), at)?;
    }
    Ok(())
}

/// Names the entries from `next` on by record index, like `@3`, if the file ends before the keys.
fn name_by_index(table: &mut NameTable, mut next: usize) -> Result<(), ReadError> {
    while let Some(entry) = table.entry_mut(next) {
        let key = format!("@{}", entry.position);
        next = name_record(table, next, &key, 0)?;
    }
    Ok(())
}

pub(super) fn key(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, ReadError> {
    let len = cursor.u64("the length of its key")?;
    cursor.bytes(len, cursor.file_len(), LONGEST_NAME, "its key")
}

/// Names the entries of the record whose first entry is at `first`; returns the index of the next record's first entry.
fn name_record(table: &mut NameTable, first: usize, key: &str, offset: u64) -> Result<usize, ReadError> {
    let Some(entry) = table.entry_mut(first) else {
        return Ok(first);
    };
    let Some(draft) = entry.sparse.take() else {
        table.name(first, key, offset)?;
        return Ok(first + 1);
    };
    let position = entry.position;
    let name: Arc<str> = table.reserve(key, position, offset)?.into();
    let repeated = *name != *key;
    let sparse = Arc::new(Sparse { name: name.clone(), ..Arc::unwrap_or_clone(draft) });
    let mut index = first;
    while let Some(entry) = table.entry_mut(index)
        && entry.position == position
    {
        entry.sparse = Some(sparse.clone());
        if repeated {
            entry.flags.set(Flag::RepeatedName);
        }
        let part = TensorName::new(&name, entry.kind).to_string();
        table.name(index, &part, offset)?;
        index += 1;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Checkpoint, Error};

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// A list of these records under these keys.
    fn list(records: &[Vec<u8>], keys: &[&str]) -> Vec<u8> {
        let mut bytes = words(&[0x112, 0, 0, 0, records.len() as u32, 0]);
        bytes.extend(records.concat());
        bytes.extend(words(&[keys.len() as u32, 0]));
        for key in keys {
            bytes.extend((key.len() as u64).to_le_bytes());
            bytes.extend(key.as_bytes());
        }
        bytes
    }

    fn opened(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
        Checkpoint::from_source("x.nd", Box::new(Bytes(bytes)))
    }

    /// `name dtype shape`, and `!` for each warning.
    fn listing(file: &Checkpoint) -> Vec<String> {
        let line = |e: &Entry| {
            let dtype = e.dtype().map_or("none", |d| d.name());
            format!("{} {dtype} {}{}", e.name(), e.shape(), "!".repeat(e.warnings().count()))
        };
        file.entries().iter().map(line).collect()
    }

    /// Two u8 elements, in a record of this magic.
    fn dense(magic: u32) -> Vec<u8> {
        let mut bytes = words(&[magic, 0, 1, 2, 0, 1, 0, 3]);
        bytes.extend([7, 8]);
        bytes
    }

    /// A scalar as MXNet 1.5 to 1.9 wrote one without np-shape.
    fn broken_scalar(value: f32) -> Vec<u8> {
        words(&[0xF993_FAC9, 0, 0, 1, 0, 0, value.to_bits()])
    }

    /// A row_sparse array of 3 × 2 with row 1 stored.
    fn rows() -> Vec<u8> {
        words(&[
            0xF993_FAC9, 1, 2, 1, 0, 2, 0, 2, 3, 0, 2, 0, 1, 0, 0, // up to the type flag
            6, 1, 1, 0, // the indices' type and shape
            0x3F80_0000, 0x4000_0000, 1, 0,
        ])
    }

    #[test]
    fn scalars_that_no_mxnet_reads_are_recovered_where_only_that_reading_fits() {
        for value in [0.0, 3.0] {
            let file = opened(list(&[broken_scalar(value)], &[])).unwrap();
            assert_eq!(listing(&file), ["@0 f32 scalar!"], "{value}");
            let blob = file.load(&file.entries()[0]).unwrap();
            assert_eq!(*blob.data().elements::<f32>().unwrap(), [value]);
            let bare = opened(broken_scalar(value)).unwrap();
            assert_eq!(listing(&bare), ["@0 f32 scalar!"]);
        }
        let records = [broken_scalar(1.0), dense(0xF993_FAC9), broken_scalar(0.0)];
        let file = opened(list(&records, &["a", "b", "c"])).unwrap();
        assert_eq!(listing(&file), ["a f32 scalar!", "b u8 2", "c f32 scalar!"]);
        assert_eq!(file.positions(), 3);
    }

    #[test]
    fn a_record_without_axes_is_none_where_that_reading_fits() {
        let none = words(&[0xF993_FAC9, 0, 0]);
        let mut bytes = list(&[none, dense(0xF993_FAC9)], &["a", "b"]);
        assert_eq!(listing(&opened(bytes.clone()).unwrap()), ["a none scalar", "b u8 2"]);
        // With extra bytes at the end neither interpretation is exact; then MXNet's is used.
        bytes.push(0);
        let file = opened(bytes).unwrap();
        assert_eq!(listing(&file), ["a none scalar", "b u8 2"]);
        assert_eq!(file.warnings().len(), 1);
        let error = opened(list(&[broken_scalar(1.0), vec![0xFF; 8]], &[])).unwrap_err();
        assert_eq!(error.offset(), Some(24 + 28), "the interpretation that got further: {error}");
    }

    #[test]
    fn a_repeated_key_gets_its_position_also_on_the_parts_of_a_sparse_array() {
        let records = [dense(0xF993_FAC9), rows(), rows(), dense(0xF993_FAC9)];
        let file = opened(list(&records, &["w", "w", "v", "v"])).unwrap();
        let expected =
            ["w u8 2", "w@1#values f32 1×2!", "w@1#indices i64 1!", "v#values f32 1×2", "v#indices i64 1", "v@3 u8 2!"];
        assert_eq!(listing(&file), expected);
        let sparse = file.entries()[2].sparse().unwrap();
        assert_eq!((&*sparse.name, sparse.shape.dims()), ("w@1", &[3, 2][..]));
        let blob = file.load_dense(&file.entries()[2]).unwrap();
        assert_eq!(*blob.data().elements::<f32>().unwrap(), [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn mixed_versions_are_listed_with_a_warning() {
        let file = opened(list(&[dense(0xF993_FAC9), dense(0xF993_FACA)], &[])).unwrap();
        assert_eq!(file.dialect(), "V2 and V3 records (np-shape)");
        assert!(file.warnings()[0].text.contains("mixed"));
        let mut v0 = words(&[1, 2, 2, 7, 3]);
        v0.extend([7, 8]);
        let file = opened(list(&[v0.clone(), dense(0xF993_FAC9)], &[])).unwrap();
        assert_eq!(file.dialect(), "V0 and V2 records");
        assert!(file.warnings().is_empty());
        assert_eq!(file.metadata(), [("context".to_owned(), "gpu(7)".to_owned())]);
    }

    #[test]
    fn a_count_that_the_file_cannot_hold_is_refused_at_once() {
        let none = [0; 2];
        let with = |count| opened(words(&[&[0x112, 0, 0, 0, count, 0], &none[..]].concat()));
        assert_eq!(with(2).unwrap_err().offset(), Some(32), "the key count is missing");
        assert_eq!(with(3).unwrap_err().offset(), Some(16));
    }

    #[test]
    fn devices_are_summed_up() {
        let on = |id: u32| {
            let mut bytes = words(&[1, 2, 2, id, 3]);
            bytes.extend([7, 8]);
            bytes
        };
        let records: Vec<_> = (0..9).map(on).collect();
        let file = opened(list(&records, &[])).unwrap();
        assert_eq!(file.metadata()[0].1, "gpu(0), gpu(1), gpu(2), gpu(3), …");
    }

    #[test]
    fn a_list_of_a_big_endian_machine_is_named() {
        let mut record = words(&[0xF993_FAC9]);
        for word in [0u32, 2, 0, 3] {
            record.extend(word.to_be_bytes());
        }
        let error = opened(list(&[record.clone()], &[])).unwrap_err().to_string();
        assert!(error.contains("at byte 32") && error.contains("big-endian"), "{error}");
        record[7] = 2;
        let error = opened(list(&[record], &[])).unwrap_err().to_string();
        assert!(error.contains("at byte 28") && error.contains("big-endian"), "{error}");
    }
}
