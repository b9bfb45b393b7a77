//! The fields of a model as ranges of the file: the metadata, and all other fields.
//!
//! Looks at the fields of the model alone, not into the graph. Knows no tensor.

use std::ops::Range;

use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::onnx::numbers::model_proto;
use crate::onnx::tensor::Pair;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Wire};

/// The fields of a model that are no metadata, and the pairs of metadata but for those under `key`; both in ascending
/// order. The model ends at `end`.
pub(crate) fn fields(cursor: &mut Cursor<'_>, end: u64, key: &[u8]) -> Result<[Vec<Range<u64>>; 2], ReadError> {
    let (mut model, mut metadata) = (Vec::<Range<u64>>::new(), Vec::new());
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, end)? {
        let into = if (tag.number, tag.wire) == (model_proto::METADATA_PROPS, Wire::Len) {
            let pair = protobuf::field(cursor, tag, end, "metadata")?;
            let is_left_out = is_of(cursor, pair.content, key)?;
            cursor.seek(pair.whole.end);
            if is_left_out {
                continue;
            }
            &mut metadata
        } else {
            protobuf::skip(cursor, tag, end)?;
            &mut model
        };
        match into.last_mut() {
            Some(last) if last.end == tag.offset => last.end = cursor.pos(),
            _ => into.push(tag.offset..cursor.pos()),
        }
    }
    Ok([model, metadata])
}

/// Whether a pair of metadata has this key.
fn is_of(cursor: &mut Cursor<'_>, pair: Span, key: &[u8]) -> Result<bool, ReadError> {
    let Some(span) = Pair::read(cursor, pair)?.key.filter(|span| span.len() == key.len() as u64) else {
        return Ok(false);
    };
    cursor.seek(span.start);
    Ok(cursor.bytes(span.len(), span.end, LONGEST_NAME, "a key")? == key)
}

/// The ranges without the runs; both are in ascending order.
pub(crate) fn without(ranges: Vec<Range<u64>>, runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut kept = Vec::new();
    let mut runs = runs.into_iter().peekable();
    for range in ranges {
        let mut at = range.start;
        while let Some(run) = runs.next_if(|run| run.start < range.end) {
            kept.extend((at < run.start).then_some(at..run.start));
            at = at.max(run.end);
        }
        kept.extend((at < range.end).then_some(at..range.end));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_out_of_ranges() {
        let cut = |runs: &[Range<u64>]| without(vec![0..10, 20..30], runs.to_vec());
        assert_eq!(cut(&[]), [0..10, 20..30]);
        assert_eq!(cut(&[0..2, 5..6, 8..10, 22..30]), [2..5, 6..8, 20..22]);
        assert_eq!(cut(&[3..8, 4..6, 20..21]), [0..3, 8..10, 21..30]);
    }
}
