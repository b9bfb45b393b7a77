//! Finds the records in the bytes of a NeoML net, from front to back.
//!
//! Bounds the cost of wrong candidates: bytes may look like a layer for a long way without being one, and every byte
//! after may look like a layer again.

use crate::error::{ReadError, check_limit};
use crate::limits::Limit;
use crate::neoml::layer::{self, BaseLayer};
use crate::neoml::record::{self, LONG, Record, is_version};
use crate::wire::cursor::Cursor;
use crate::work;

/// The most bytes that wrong candidates may cost: for each byte of the file, and beside that. In nets of NeoML's the
/// cost is less than two bytes for each byte: each layer's versions are read up to the next version.
const WALKED_EACH: u64 = 16;
const WALKED_FREE: u64 = 64 << 10;

/// The bytes of a version over 1000.
const VERSION: u64 = 5;

pub(super) enum Item {
    Layer(BaseLayer),
    Blob(Record),
}

/// A class that no readable layer follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// Where the class begins, and where the layer's record would.
    class: u64,
    pub(super) record: u64,
}

/// The search through one file.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// How many bytes wrong candidates have cost so far.
    walked: u64,
    /// The first layer that was passed over, if any was.
    pub(super) lost: Option<Lost>,
}

impl Finder {
    /// The next record from here on, with the record's offset; the cursor moves past the record.
    pub(super) fn next(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<(u64, Item)>, ReadError> {
        while let Some(at) = candidate(cursor)? {
            let before = cursor.visited();
            // A layer may be called "\0", which looks like a blob's type; the blob's cells decide.
            let blob = record::find(cursor);
            if let Ok(Some(record)) = blob {
                return Ok(Some((at, Item::Blob(record))));
            }
            cursor.seek(at);
            if let Some(layer) = layer::find(cursor)? {
                self.lost = self.lost.filter(|lost| layer.class.as_ref().is_none_or(|class| class.at != lost.class));
                return Ok(Some((at, Item::Layer(layer))));
            }
            blob?;
            self.walked += cursor.visited() - before;
            self.note_lost(cursor, at)?;
            let allowed = cursor.file_len().saturating_mul(WALKED_EACH).saturating_add(WALKED_FREE);
            check_limit(at, Limit::Fixed, "the bytes that look like layers and are none", self.walked, allowed)?;
            cursor.seek(at + 1);
        }
        Ok(None)
    }

    /// Notes whether a class stands before a wrong candidate. Only versions stand between a class and a layer.
    fn note_lost(&mut self, cursor: &mut Cursor<'_>, at: u64) -> Result<(), ReadError> {
        cursor.seek(at + VERSION);
        if self.lost.is_some() || is_version(cursor.at_hand(cursor.file_len())?) {
            return Ok(());
        }
        self.walked += layer::CLASS_AND_VERSIONS;
        self.lost = layer::class(cursor.source(), at)?.map(|class| Lost { class: class.at, record: at });
        Ok(())
    }
}

/// Moves to the next offset at which there may be a version.
fn candidate(cursor: &mut Cursor<'_>) -> Result<Option<u64>, ReadError> {
    let end = cursor.file_len();
    loop {
        let bytes = cursor.at_hand(end)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let (found, len) = (find_version(bytes), bytes.len());
        work::visit(found.unwrap_or(len) as u64, 1);
        let at = cursor.pos() + found.unwrap_or(len) as u64;
        cursor.seek(at);
        if found.is_some() {
            return Ok(Some(at));
        }
    }
}

/// The first index at which a version over 1000 may begin, also one that continues after these bytes.
fn find_version(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 64;
    // From 1001 (FF E9 03 00 00) to 2000 (FF D0 07 00 00).
    let may_begin = |at: &usize| {
        let is = |i: usize, low: u8, high: u8| bytes.get(at + i).is_none_or(|b| (low..=high).contains(b));
        is(0, LONG, LONG) && is(2, 3, 7) && is(3, 0, 0) && is(4, 0, 0)
    };
    let (mut from, end) = (0, bytes.len());
    while let Some(block) = bytes.get(from..from + BLOCK + 4) {
        // No early exit within a block, so that the compiler vectorises the loop: a search byte by byte takes twice the
        // time of `read()`.
        let marks = block[..BLOCK].iter().zip(&block[3..]).zip(&block[4..]);
        if marks.fold(false, |any, ((mark, third), fourth)| any | ((*mark == LONG) & (*third | *fourth == 0)))
            && let Some(at) = (from..from + BLOCK).find(may_begin)
        {
            return Some(at);
        }
        from += BLOCK;
    }
    (from..end).find(may_begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_at_any_offset() {
        for version in [1001_i32, 1999, 2000] {
            let mark = [&[LONG][..], &version.to_le_bytes()].concat();
            for at in [0, 1, 59, 60, 63, 64, 65, 127, 300] {
                // A marker alone is no version.
                let bytes = [&vec![LONG; at][..], &mark, &[1; 70]].concat();
                assert_eq!(find_version(&bytes), Some(at));
                // A version may continue after these bytes.
                for cut in 1..5 {
                    let first = find_version(&bytes[..at + cut]).expect("perhaps");
                    assert!(first <= at && first + 5 > at, "{at} {cut}: {first}");
                }
            }
        }
        assert_eq!(find_version(&[&[LONG; 300][..], &[0; 9]].concat()), None);
    }
}
