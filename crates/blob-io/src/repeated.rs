//! A repeated field of fixed-width numbers in a protobuf message: the places of the values, packed or single.
//!
//! Sees tags and lengths, no value. Leaves to the formats which field counts, and how many values there must be.

use crate::entry::Segment;
use crate::error::{ReadError, check_limit};
use crate::limits::{Limit, Limits};
use crate::wire::protobuf::Span;

/// The values of one repeated field, packed or single.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) runs: Vec<Segment>,
    pub(crate) count: u64,
    pub(crate) seen: bool,
    /// Offset and length of the first packed chunk whose length is no multiple of the element.
    pub(crate) ragged: Option<(u64, u64)>,
}

impl Values {
    pub(crate) fn packed(&mut self, span: Span, width: u64, limits: &Limits) -> Result<(), ReadError> {
        self.seen = true;
        if !span.len().is_multiple_of(width) {
            self.ragged.get_or_insert((span.start, span.len()));
            return Ok(());
        }
        let run = Segment { offset: span.start, count: span.len() / width, stride: width };
        self.count += run.count;
        append(&mut self.runs, run, limits)
    }

    /// Whether the field holds values, even of a wrong length.
    pub(crate) fn is_stored(&self) -> bool {
        self.count > 0 || self.ragged.is_some()
    }

    /// Adds one unpacked value, which has a separate tag.
    pub(crate) fn single(&mut self, offset: u64, width: u64, limits: &Limits) -> Result<(), ReadError> {
        self.seen = true;
        self.count += 1;
        let run = Segment { offset, count: 1, stride: width };
        append(&mut self.runs, run, limits)
    }
}

/// Appends a run of values; single values at equal distances become one run.
pub(crate) fn append(runs: &mut Vec<Segment>, run: Segment, limits: &Limits) -> Result<(), ReadError> {
    if run.count == 0 {
        return Ok(());
    }
    if let (Some(last), 1) = (runs.last_mut(), run.count) {
        let gap = run.offset - (last.offset + (last.count - 1) * last.stride);
        if (last.count == 1 && gap <= MAX_STRIDE) || gap == last.stride {
            last.stride = gap;
            last.count += 1;
            return Ok(());
        }
    }
    let (needed, allowed) = (runs.len() as u64 + 1, limits.max_segments as u64);
    check_limit(run.offset, Limit::Segments, "the number of separate runs of values", needed, allowed)?;
    runs.push(run);
    Ok(())
}

/// The longest stride of unpacked values that form one run: usually only a tag lies between two values.
const MAX_STRIDE: u64 = 32;
