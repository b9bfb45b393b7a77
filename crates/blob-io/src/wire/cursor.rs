//! A checked reader over a [`Source`]: little-endian numbers and lengths, with the offset of everything.
//!
//! Reads through a small window, so that a walk over headers reads headers only. Leaves every meaning to the formats.

use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::Limit;
use crate::wire::source::{self, Source};
use crate::work;

/// The length of the first read after a jump. A Caffe blob's header is under 100 bytes, an MXNet record's under 300.
const FIRST_WINDOW: usize = 256;
/// Reads grow to this while a walk goes on without a jump (files of many small arrays).
const LARGEST_WINDOW: usize = 64 << 10;

/// A position in a source, and a window of bytes around the position.
pub(crate) struct Cursor<'a> {
    source: &'a dyn Source,
    pos: u64,
    window: Vec<u8>,
    window_at: u64,
    next_window: usize,
    visited: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self { source, pos: 0, window: Vec::new(), window_at: 0, next_window: FIRST_WINDOW, visited: 0 }
    }

    /// The source behind the cursor.
    pub(crate) fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// How many bytes have been asked for, one for each call included; bytes that are asked for again count again.
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    fn visit(&mut self, bytes: u64) {
        self.visited += bytes + 1;
        work::visit(bytes, 1);
    }

    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.source.len()
    }

    /// How many bytes there are from here to the end of the file.
    pub(crate) fn left(&self) -> u64 {
        self.source.len().saturating_sub(self.pos)
    }

    /// Moves to any offset; not the move but a read past the end fails.
    pub(crate) fn seek(&mut self, pos: u64) {
        self.pos = pos;
    }

    /// Skips `n` bytes, which must exist.
    pub(crate) fn skip(&mut self, n: u64, field: &'static str) -> Result<(), ReadError> {
        self.need(n, self.source.len(), field)?;
        self.visit(0);
        self.pos += n;
        Ok(())
    }

    /// Errors unless `n` more bytes lie before `end`.
    pub(crate) fn need(&self, n: u64, end: u64, field: &'static str) -> Result<(), ReadError> {
        let left = end.saturating_sub(self.pos);
        if n <= left {
            return Ok(());
        }
        Err(ReadError::fault(self.pos, FaultKind::Truncated { field, needed: n, left }))
    }

    pub(crate) fn u8(&mut self, end: u64, field: &'static str) -> Result<u8, ReadError> {
        Ok(self.array::<1>(end, field)?[0])
    }

    /// The next `N` bytes, which must lie before `end`.
    pub(crate) fn array<const N: usize>(&mut self, end: u64, field: &'static str) -> Result<[u8; N], ReadError> {
        self.need(N as u64, end, field)?;
        self.visit(N as u64);
        let mut out = [0; N];
        self.copy(&mut out)?;
        Ok(out)
    }

    /// The bytes from here on that are in the window, up to `end`: at least one, unless `end` is reached.
    pub(crate) fn at_hand(&mut self, end: u64) -> Result<&[u8], ReadError> {
        if self.pos >= end {
            return Ok(&[]);
        }
        let have = (self.window_rest()? as u64).min(end - self.pos) as usize;
        let at = (self.pos - self.window_at) as usize;
        // Counting the bytes that are looked at is left to the caller.
        self.visit(0);
        Ok(&self.window[at..at + have])
    }

    /// The next byte, which is not consumed; `None` at `end`. Headers of many tensors are read byte by byte.
    #[inline]
    pub(crate) fn peek(&mut self, end: u64) -> Result<Option<u8>, ReadError> {
        // Before the window, the difference is larger than any window.
        let at = usize::try_from(self.pos.wrapping_sub(self.window_at)).unwrap_or(usize::MAX);
        match self.window.get(at).copied() {
            Some(byte) if self.pos < end => {
                self.visit(0);
                Ok(Some(byte))
            }
            _ => Ok(self.at_hand(end)?.first().copied()),
        }
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, ReadError> {
        Ok(u32::from_le_bytes(self.array(self.source.len(), field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, ReadError> {
        Ok(i32::from_le_bytes(self.array(self.source.len(), field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, ReadError> {
        Ok(u64::from_le_bytes(self.array(self.source.len(), field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, ReadError> {
        Ok(i64::from_le_bytes(self.array(self.source.len(), field)?))
    }

    /// `n` bytes that must lie before `end`; `limit` bounds `n` beyond the bound of the file's size.
    pub(crate) fn bytes(&mut self, n: u64, end: u64, limit: u64, field: &'static str) -> Result<Vec<u8>, ReadError> {
        self.need(n, end, field)?;
        check_limit(self.pos, Limit::Fixed, field, n, limit)?;
        self.visit(n);
        let mut out = vec![0; n as usize];
        self.copy(&mut out)?;
        Ok(out)
    }

    /// Fills `out` from here; the caller has checked that the bytes exist.
    fn copy(&mut self, out: &mut [u8]) -> Result<(), ReadError> {
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            if rest.len() >= LARGEST_WINDOW {
                source::read(self.source, self.pos, rest)?;
                self.pos += rest.len() as u64;
                return Ok(());
            }
            let have = self.window_rest()?;
            let n = have.min(rest.len());
            let at = (self.pos - self.window_at) as usize;
            rest[..n].copy_from_slice(&self.window[at..at + n]);
            self.pos += n as u64;
            done += n;
        }
        Ok(())
    }

    /// How many bytes of the window are left from here on; reads the next window if there are none.
    fn window_rest(&mut self) -> Result<usize, ReadError> {
        let end = self.window_at + self.window.len() as u64;
        if (self.window_at..end).contains(&self.pos) {
            return Ok((end - self.pos) as usize);
        }
        // A few values may lie between the headers of a walk.
        let is_walk = end > 0 && (end..=end + FIRST_WINDOW as u64).contains(&self.pos);
        self.next_window = if is_walk { (self.next_window * 2).min(LARGEST_WINDOW) } else { FIRST_WINDOW };
        let n = (self.next_window as u64).min(self.left()) as usize;
        if n == 0 {
            return Err(Fault::new(self.pos, FaultKind::Truncated { field: "the file", needed: 1, left: 0 }).into());
        }
        let mut window = std::mem::take(&mut self.window);
        window.clear();
        window.resize(n, 0);
        source::read(self.source, self.pos, &mut window)?;
        self.window = window;
        self.window_at = self.pos;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::source::Bytes;

    #[test]
    fn numbers_are_read_in_order_across_windows() {
        let bytes: Vec<u8> = (0..40_000u32).flat_map(|i| i.to_le_bytes()).collect();
        let source = Bytes(bytes);
        let mut cursor = Cursor::new(&source);
        for i in 0..40_000 {
            assert_eq!(cursor.u32("n").unwrap(), i);
        }
        assert_eq!(cursor.left(), 0);
        cursor.seek(4 * 777);
        assert_eq!(cursor.u64("n").unwrap(), 777 | 778 << 32);
    }

    #[test]
    fn missing_bytes_are_named_with_their_offset() {
        let source = Bytes(vec![1, 2, 3]);
        let mut cursor = Cursor::new(&source);
        cursor.skip(1, "head").unwrap();
        match cursor.u32("the count").unwrap_err() {
            ReadError::Fault(fault) => {
                assert_eq!(fault.offset(), 1);
                assert_eq!(fault.to_string(), "at byte 1: the count needs 4 bytes, but 2 are left");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_anything_is_allocated() {
        let source = Bytes(vec![0; 64]);
        let mut cursor = Cursor::new(&source);
        assert!(cursor.bytes(u64::MAX, 64, 100, "name").is_err());
        assert!(cursor.bytes(60, 64, 50, "name").is_err());
        assert_eq!(cursor.bytes(64, 64, 64, "name").unwrap(), vec![0; 64]);
    }
}
