//! Reads NeoML files as entries: detects the kind of archive, and lists bare blobs and arrays of blobs. `net` lists
//! nets.
//!
//! The walk reads headers and skips cells.

use crate::entry::{Entry, Kind};
use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::names::NameTable;
use crate::neoml::net;
use crate::neoml::record::{self, Record, is_version, note_axes, nullable};
use crate::wire::cursor::Cursor;

/// The kind of archive that begins with these bytes. There is no magic: a version and the following bytes decide.
pub(crate) fn sniff(head: &[u8]) -> Option<Format> {
    if is_version(head) {
        return Some(Format::NeomlBlob);
    }
    if head.first() == Some(&0) && is_version(&head[1..]) || net::header(head).is_some() || is_pickle(head) {
        return Some(Format::NeomlNet);
    }
    // A count, and null flags up to the first blob.
    let (count, flags) = head.split_first_chunk::<4>()?;
    let nulls = flags.iter().take_while(|flag| **flag == 1).count();
    let first = flags.get(nulls..)?.split_first();
    let is_blob = first.is_some_and(|(flag, record)| *flag == 0 && is_version(record));
    let count = i32::from_le_bytes(*count);
    if is_blob && usize::try_from(count).is_ok_and(|count| count > nulls) {
        return Some(Format::NeomlArray);
    }
    net::is_dictionary(head).then_some(Format::NeomlNet)
}

/// The first byte of a pickle since protocol 2.
pub(crate) const PICKLE: u8 = 0x80;

/// A pickle of protocol 2 or later that names NeoML's module near the beginning.
fn is_pickle(head: &[u8]) -> bool {
    let mark: &[u8] = b"neoml.";
    matches!(head, [PICKLE, 2..=5, ..]) && head.windows(mark.len()).any(|window| window == mark)
}

/// Lists the one blob of a bare record: `@0`.
pub(crate) fn blob(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    cursor.seek(0);
    let position = table.next_position(0)?;
    let record = record::read(cursor)?;
    table.push(record.entry(position, 0), "@0", 0)?;
    note_axes(table);
    warn_of_trailing_bytes(cursor, table);
    Ok(versions(&[record.version]))
}

/// Lists the blobs of `SerializeBlobs`: `@0`, `@1`, …, including null ones.
pub(crate) fn array(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let mut found = Vec::new();
    walk_array(cursor, table.limits().max_arrays, &mut |at, record| {
        let position = table.next_position(at)?;
        let entry = match &record {
            Some(record) => record.entry(position, 0),
            None => Entry::new(position, 0, Kind::None),
        };
        if let Some(Record { version, .. }) = record
            && !found.contains(&version)
        {
            found.push(version);
        }
        table.push(entry, &format!("@{position}"), at)
    })?;
    note_axes(table);
    warn_of_trailing_bytes(cursor, table);
    Ok(versions(&found))
}

/// Walks over an array: calls `take` with the offset of each blob, and with the record unless the blob is null.
pub(super) fn walk_array(
    cursor: &mut Cursor<'_>,
    max_arrays: u64,
    take: &mut dyn FnMut(u64, Option<Record>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    cursor.seek(0);
    let count = cursor.i32("the number of blobs")?;
    let left = cursor.left();
    let fits = u64::try_from(count).ok().filter(|count| *count <= left).ok_or_else(|| {
        let found = format!("{count}, with {left} bytes left for them");
        ReadError::fault(0, FaultKind::words("a number of blobs that the file can hold", found))
    })?;
    crate::error::check_limit(0, crate::limits::Limit::Arrays, "the number of arrays", fits, max_arrays)?;
    for index in 0..fits {
        let at = cursor.pos();
        let record = nullable(cursor).map_err(|stop| stop.within(format!("array #{index}")))?;
        take(at, record)?;
    }
    Ok(())
}

fn warn_of_trailing_bytes(cursor: &Cursor<'_>, table: &mut NameTable) {
    let left = cursor.left();
    if left > 0 {
        let text = format!("{left} bytes are left at the end; NeoML ignores them, and so do we");
        table.warn_of_loss(Some(cursor.pos()), text);
    }
}

fn versions(found: &[i32]) -> String {
    let found: Vec<_> = found.iter().map(i32::to_string).collect();
    match &found[..] {
        [] => String::new(),
        found => format!("version {}", found.join(" and ")),
    }
}
