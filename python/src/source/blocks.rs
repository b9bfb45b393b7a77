//! Blocks of a file object that were read ahead, so that small reads cost few requests to a server.
//!
//! Headers that lie together, as those of many small arrays, are read in windows that grow; a header far from the one
//! before is read in a small window, since the values between are not asked for. Blocks are kept: formats whose headers
//! are read twice cost no second request. Pure: the caller reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The first window, and the window of a read far from the one before: the header of any array.
const FIRST: usize = 64 << 10;

/// A window begins so far before the read: a format that is read twice begins an array some bytes earlier the second
/// time.
const BEFORE: u64 = 4 << 10;

/// A window that follows the one before is so many times as long.
const GROWTH: usize = 16;

/// The longest window. A server sends so much in the time of a few requests.
const LONGEST: usize = 16 << 20;

/// A longer read is of values: the longest of headers is the end of a zip, with a comment of 64 KiB.
const OF_HEADERS: usize = 68 << 10;

/// The longest window of values. A longer read asks for its bytes alone.
const OF_VALUES: usize = 1 << 20;

/// A read that begins so far behind a block is near: to skip so many bytes costs as much as to read these.
const NEAR: u64 = 1 << 20;

/// Older blocks are dropped where more bytes are kept.
const KEPT: usize = 64 << 20;

/// The blocks that are kept.
#[derive(Default)]
pub(super) struct Blocks {
    by_start: BTreeMap<u64, Vec<u8>>,
    /// The oldest first.
    starts: VecDeque<u64>,
    bytes: usize,
    /// Where headers begin that are read next, as an archive's list tells. Each makes at most one window longer.
    pub(super) expected: BTreeSet<u64>,
}

impl Blocks {
    /// The `len` bytes from `offset` on, if one block has these.
    pub(super) fn found(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let (start, block) = self.by_start.range(..=offset).next_back()?;
        let at = usize::try_from(offset - start).ok()?;
        block.get(at..at.checked_add(len)?)
    }

    /// Where to begin, and how many bytes to read, for a read of `len` that no block has; `None` for the read itself.
    /// A read of the end, where the list of an archive stands, has the bytes before it.
    pub(super) fn window(&mut self, offset: u64, len: usize, file_len: u64) -> Option<(u64, usize)> {
        if len >= OF_VALUES {
            return None;
        }
        let before = self.by_start.range(..=offset).next_back();
        let near = before.filter(|(start, block)| offset - *start <= block.len() as u64 + NEAR);
        let longest = if len > OF_HEADERS { OF_VALUES } else { LONGEST };
        let window = near.map_or(FIRST, |(_, block)| (block.len().max(FIRST) * GROWTH).min(longest));
        let is_end = offset + len as u64 == file_len;
        let before = if len > OF_HEADERS { 0 } else { offset.min(if is_end { FIRST as u64 } else { BEFORE }) };
        let least = self.together(offset, 2 * longest as u64).max(len) + before as usize;
        Some((offset - before, window.max(least)))
    }

    /// How many bytes have the header that is expected at `offset` and those behind, as long as each is near the one
    /// before; none where no header is. A window of these may be twice as long as others: none of it is a guess.
    fn together(&mut self, offset: u64, longest: u64) -> usize {
        let last = offset.saturating_add(longest - FIRST as u64);
        let (mut next, mut end) = (Some(offset).filter(|begin| self.expected.contains(begin)), offset);
        while let Some(begin) = next {
            self.expected.remove(&begin);
            end = begin.saturating_add(BEFORE);
            next = self.expected.range(begin..=last.min(end.saturating_add(NEAR))).next().copied();
        }
        (end - offset) as usize
    }

    /// Keeps a block that was read.
    pub(super) fn keep(&mut self, offset: u64, block: Vec<u8>) {
        self.bytes += block.len();
        if let Some(shorter) = self.by_start.insert(offset, block) {
            self.bytes -= shorter.len();
            self.starts.retain(|start| *start != offset);
        }
        self.starts.push_back(offset);
        while self.bytes > KEPT
            && self.starts.len() > 1
            && let Some(start) = self.starts.pop_front()
        {
            self.bytes -= self.by_start.remove(&start).map_or(0, |block| block.len());
        }
    }
}
