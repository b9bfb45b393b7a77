//! Our metadata in an npz, where NumPy reads no array: between the last member and the central directory, where Android
//! stores the signatures of packages. Zip readers follow the directory and skip the metadata.
//!
//! `MAGIC`, the length of the JSON in 8 bytes, little-endian, the JSON, the length again, `MAGIC`. The JSON is an
//! object of strings, like safetensors' `__metadata__`.

use crate::error::{Fault, FaultKind, ReadError};
use crate::metadata;
use crate::names::NameTable;
use crate::npz::END;
use crate::wire::cursor::Cursor;
use crate::wire::literal::Literal;

const MAGIC: &[u8; 16] = b"blob metadata 1\0";
/// The length of the frame on either side of the JSON: magic and length.
const FRAME_LEN: u64 = 24;
/// An end record without a comment.
const EMPTY_LEN: usize = 22;

/// The whole block, which begins at `at`; empty without metadata.
///
/// Readers check a file's first bytes. In an archive without members, these are an end record of an empty archive,
/// before the block; only the last end record counts.
pub(crate) fn block(metadata: &[(String, String)], at: u64) -> Vec<u8> {
    if metadata.is_empty() {
        return Vec::new();
    }
    let mut block = Vec::new();
    if at == 0 {
        block.extend_from_slice(&END.to_le_bytes());
        block.resize(EMPTY_LEN, 0);
    }
    let json = metadata::text(metadata);
    let len = (json.len() as u64).to_le_bytes();
    for part in [MAGIC, &len[..], json.as_bytes(), &len, MAGIC] {
        block.extend_from_slice(part);
    }
    block
}

/// Reads the block that ends at `end` and begins at `begin` or later; returns whether there is one. A broken block is a
/// warning, because the arrays are valid without metadata.
pub(crate) fn read(cursor: &mut Cursor<'_>, begin: u64, end: u64, table: &mut NameTable) -> Result<bool, ReadError> {
    let kept = table.metadata.len();
    let read = match find(cursor, begin, end) {
        Ok(None) => return Ok(false),
        Ok(Some((from, to))) => {
            cursor.seek(from);
            object(cursor, to, table)
        }
        Err(e) => Err(e),
    };
    match read {
        Err(ReadError::Fault(fault)) => {
            table.metadata.truncate(kept);
            table.warn_of_loss(Some(fault.offset()), "the archive's metadata cannot be read");
            Ok(true)
        }
        read => read.map(|()| true),
    }
}

/// Where the JSON begins and ends. A block with only one valid side is a fault.
fn find(cursor: &mut Cursor<'_>, begin: u64, end: u64) -> Result<Option<(u64, u64)>, ReadError> {
    let field = "the archive's metadata";
    let Some(tail) = end.checked_sub(FRAME_LEN).filter(|tail| *tail >= begin + FRAME_LEN) else {
        return Ok(None);
    };
    cursor.seek(tail);
    let len = cursor.u64(field)?;
    let is_ended = cursor.array(end, field)? == *MAGIC;
    let start = tail.checked_sub(len).filter(|start| *start >= begin + FRAME_LEN);
    let is_begun = match start {
        Some(start) => {
            cursor.seek(start - FRAME_LEN);
            cursor.array(end, field)? == *MAGIC
        }
        None => false,
    };
    match start {
        Some(start) if is_begun && is_ended && cursor.u64(field)? == len => Ok(Some((start, tail))),
        _ if !is_begun && !is_ended => Ok(None),
        _ => Err(Fault::new(tail, FaultKind::words(field, "only one end of them")).into()),
    }
}

fn object(cursor: &mut Cursor<'_>, end: u64, table: &mut NameTable) -> Result<(), ReadError> {
    metadata::read(&mut Literal::new(cursor, end), table)?;
    if cursor.pos() == end {
        return Ok(());
    }
    let what = FaultKind::words("the metadata's end", "more bytes");
    Err(Fault::new(cursor.pos(), what).into())
}
