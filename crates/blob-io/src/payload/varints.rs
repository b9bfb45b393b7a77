//! Numbers that are stored as one varint each: protobuf's repeated integers, which are narrowed to the array's width.
//!
//! Relies on the format's reader for the ranges of bytes. How many numbers there are shows only here, while they are
//! decoded.

use crate::entry::Varints as Ranges;
use crate::error::{Fault, FaultKind, ReadError};
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span};
use crate::wire::source::Source;

/// The position in the numbers of an array.
pub(super) struct Varints<'a> {
    cursor: Cursor<'a>,
    /// The range that is read, and the later ones.
    span: Span,
    rest: &'a [Span],
    width: usize,
    /// Whether a number is a truth value: any but 0 is 1.
    is_bool: bool,
}

impl<'a> Varints<'a> {
    pub(super) fn open(source: &'a dyn Source, ranges: &'a Ranges, width: usize, is_bool: bool) -> Self {
        let cursor = Cursor::new(source);
        Self { cursor, span: Span { start: 0, end: 0 }, rest: &ranges.spans, width, is_bool }
    }

    /// Fills `out`, which must hold whole elements and at most those that are left.
    pub(super) fn next(&mut self, out: &mut [u8]) -> Result<(), ReadError> {
        for element in out.chunks_exact_mut(self.width) {
            let number = self.number()?;
            let number = if self.is_bool { u64::from(number != 0) } else { number };
            element.copy_from_slice(&number.to_le_bytes()[..self.width]);
        }
        Ok(())
    }

    /// Skips whole elements, at most those that are left.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), ReadError> {
        (0..bytes / self.width as u64).try_for_each(|_| self.number().map(drop))
    }

    /// Errors unless all numbers were read.
    pub(super) fn finish(&mut self) -> Result<(), ReadError> {
        if self.enter() { Err(mismatch(self.cursor.pos(), "more")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<u64, ReadError> {
        if !self.enter() {
            return Err(mismatch(self.span.end, "fewer"));
        }
        protobuf::varint(&mut self.cursor, self.span.end, "a value")
    }

    /// Moves to the next number; false at the end.
    fn enter(&mut self) -> bool {
        while self.cursor.pos() >= self.span.end {
            let [next, rest @ ..] = self.rest else { return false };
            self.span = *next;
            self.rest = rest;
            self.cursor.seek(next.start);
        }
        true
    }
}

fn mismatch(at: u64, found: &'static str) -> ReadError {
    ReadError::Fault(Fault::new(at, FaultKind::words("as many values as the shape has", found)))
}
