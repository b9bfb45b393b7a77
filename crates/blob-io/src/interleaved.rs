//! A tensor that has other bytes between the values: unpacked numbers in a protobuf message each have a key.
//!
//! Finds the bytes to write for a part of the values. Knows no format: the bytes between are those of an existing file,
//! or one key.

use std::ops::Range;

use crate::entry::{Entry, Segment};
use crate::error::{ReadError, check_limit};
use crate::limits::{Limit, Limits};
use crate::payload::gather;
use crate::wire::source::{Source, read};

/// The places of the values, and the bytes between.
#[derive(Clone, Debug)]
pub(crate) struct Interleaved {
    /// In ascending order; none is empty.
    runs: Vec<Segment>,
    pub(crate) width: u64,
    /// The bytes after each value but the last, concatenated; repeated from the start if the gaps are longer.
    between: Vec<u8>,
}

impl Interleaved {
    /// Values of `width` bytes from `at` on, with a key before each but the first.
    pub(crate) fn keyed(at: u64, count: u64, width: u64, key: u8) -> Self {
        Self { runs: vec![Segment { offset: at, count, stride: width + 1 }], width, between: vec![key] }
    }

    /// The runs of an entry's values, and the file's bytes between these values; `None` where all values lie in one
    /// run.
    pub(crate) fn read(source: &dyn Source, entry: &Entry, limits: &Limits) -> Result<Option<Self>, ReadError> {
        let (runs, width) = (entry.segments(), entry.dtype().map_or(1, blob_core::DType::size) as u64);
        if runs.len() <= 1 && runs.iter().all(|run| run.stride == width) {
            return Ok(None);
        }
        let mut interleaved = Self { runs: runs.to_vec(), width, between: Vec::new() };
        let span = interleaved.span();
        let room = (span.end - span.start).saturating_sub(entry.byte_len());
        check_limit(span.start, Limit::Alloc, "bytes between values", room, limits.max_alloc)?;
        interleaved.between.resize(room as usize, 0);
        let mut rest = &mut interleaved.between[..];
        for (place, run) in runs.iter().enumerate() {
            let gap = (run.stride - width) as usize;
            let (within, behind) = rest.split_at_mut(gap * (run.count - 1) as usize);
            if !within.is_empty() {
                gather(source, run.offset + width, run.stride as usize, gap, &mut Vec::new(), within)?;
            }
            let end = end(run, width);
            let next = runs.get(place + 1).map_or(end, |next| next.offset);
            let (between, behind) = behind.split_at_mut((next - end) as usize);
            read(source, end, between)?;
            rest = behind;
        }
        Ok(Some(interleaved))
    }

    /// The range from the first value's first byte to the last one's end.
    pub(crate) fn span(&self) -> Range<u64> {
        let begin = self.runs.first().map_or(0, |run| run.offset);
        begin..self.runs.last().map_or(0, |run| end(run, self.width))
    }

    /// Whole values that begin `at` bytes within the tensor, each with the following bytes, and the offset of all
    /// within the span.
    pub(crate) fn stored(&self, at: u64, values: &[u8]) -> (u64, Vec<u8>) {
        let (mut index, mut place) = (at / self.width, 0);
        while let Some(run) = self.runs.get(place).filter(|run| index >= run.count) {
            index -= run.count;
            place += 1;
        }
        let begin = self.runs.get(place).map_or(0, |run| run.offset + index * run.stride - self.span().start);
        let mut passed = begin.saturating_sub(at);
        let mut out = Vec::with_capacity(values.len() * 2);
        for value in values.chunks_exact(self.width as usize) {
            let Some(run) = self.runs.get(place) else { break };
            out.extend_from_slice(value);
            index += 1;
            let gap = if index < run.count {
                run.stride - self.width
            } else {
                (place, index) = (place + 1, 0);
                self.runs.get(place).map_or(0, |next| next.offset - end(run, self.width))
            };
            out.extend((passed..passed + gap).map(|at| self.between[(at % self.between.len() as u64) as usize]));
            passed += gap;
        }
        (begin, out)
    }
}

/// Where a run's last value ends.
fn end(run: &Segment, width: u64) -> u64 {
    run.offset + (run.count - 1) * run.stride + width
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of two bytes: three with one byte between, then two at once.
    fn interleaved() -> Interleaved {
        let runs = vec![Segment { offset: 10, count: 3, stride: 3 }, Segment { offset: 22, count: 2, stride: 2 }];
        Interleaved { runs, width: 2, between: b"abcdef".to_vec() }
    }

    #[test]
    fn parts_of_the_values_make_up_the_whole() {
        let whole = b"00a11b22cdef3344";
        assert_eq!(interleaved().span(), 10..10 + whole.len() as u64);
        let values = b"0011223344";
        for first in 0..=5 {
            for second in first..=5 {
                let mut made = Vec::new();
                for part in [0..first, first..second, second..5] {
                    let (at, bytes) =
                        interleaved().stored(part.start as u64 * 2, &values[part.start * 2..part.end * 2]);
                    assert!(bytes.is_empty() || at == made.len() as u64, "{part:?}");
                    made.extend(bytes);
                }
                assert_eq!(made, whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn one_key_is_enough_for_all_values() {
        let keyed = Interleaved::keyed(7, 3, 1, b'=');
        assert_eq!((keyed.span(), keyed.stored(1, b"bc")), (7..12, (2, b"b=c".to_vec())));
    }
}
