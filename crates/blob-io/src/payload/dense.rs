//! Expands a sparse array piece by piece: values at ascending offsets, with zeros between.
//!
//! Relies on the caller for the offsets: each is at least a unit after the one before, and the last unit ends within
//! the array.

use super::Elements;
use crate::error::ReadError;

/// How many bytes of the values are in memory at a time.
const CHUNK: u64 = 1 << 20;

/// The position in a dense array.
pub(super) struct Dense<'a> {
    values: Elements<'a>,
    /// Values that were read; those from `used` on were not returned yet.
    buffer: Vec<u8>,
    used: usize,
    /// The offset of each unit of values in the array, and the length of a unit, in bytes.
    offsets: Box<dyn Iterator<Item = u64> + Send + 'a>,
    unit: u64,
    /// How many bytes were returned, and the range of the current or next unit.
    at: u64,
    begin: u64,
    end: u64,
}

impl<'a> Dense<'a> {
    pub(super) fn new(values: Elements<'a>, unit: u64, offsets: Box<dyn Iterator<Item = u64> + Send + 'a>) -> Self {
        Self { values, buffer: Vec::new(), used: 0, offsets, unit, at: 0, begin: 0, end: 0 }
    }

    /// Fills `out`, which must hold whole elements and at most those that are left.
    pub(super) fn next(&mut self, mut out: &mut [u8]) -> Result<(), ReadError> {
        while !out.is_empty() {
            let (is_value, n) = self.run(out.len() as u64);
            let (now, later) = out.split_at_mut(n as usize);
            if is_value {
                self.copy(now)?
            } else {
                now.fill(0)
            }
            out = later;
        }
        Ok(())
    }

    /// Skips whole elements, at most those that are left.
    pub(super) fn skip(&mut self, mut bytes: u64) -> Result<(), ReadError> {
        while bytes > 0 {
            let (is_value, n) = self.run(bytes);
            if is_value {
                let buffered = n.min((self.buffer.len() - self.used) as u64);
                self.used += buffered as usize;
                self.values.skip(n - buffered)?;
            }
            bytes -= n;
        }
        Ok(())
    }

    /// Whether values or zeros come next, and how many bytes, at most `room`.
    fn run(&mut self, room: u64) -> (bool, u64) {
        if self.at == self.end {
            self.begin = self.offsets.next().unwrap_or(u64::MAX);
            self.end = self.begin.saturating_add(self.unit);
        }
        let is_value = self.at >= self.begin;
        let until = if is_value { self.end } else { self.begin };
        let n = room.min(until - self.at);
        self.at += n;
        (is_value, n)
    }

    fn copy(&mut self, mut out: &mut [u8]) -> Result<(), ReadError> {
        while !out.is_empty() {
            if self.used == self.buffer.len() {
                self.buffer.resize(self.values.left().min(CHUNK) as usize, 0);
                self.values.next(&mut self.buffer)?;
                self.used = 0;
            }
            let n = out.len().min(self.buffer.len() - self.used);
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&self.buffer[self.used..][..n]);
            self.used += n;
            out = later;
        }
        Ok(())
    }
}
