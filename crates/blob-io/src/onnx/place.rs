//! A tensor's place in another file: what `external_data` says.

use std::sync::Arc;

use blob_core::DType;

use crate::error::{Fault, FaultKind, ReadError};
use crate::limits::LONGEST_NAME;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::Span;

/// The longest number in text, as an offset or a length is.
const LONGEST_NUMBER: u64 = 20;

/// A tensor whose values are in another file.
#[derive(Debug)]
pub(crate) struct Outside {
    /// The tensor's place in the table.
    pub(super) entry: usize,
    pub(super) location: Arc<str>,
    pub(super) offset: u64,
    pub(super) length: Option<u64>,
    pub(super) dtype: DType,
    /// Where the model describes the tensor.
    pub(super) at: u64,
}

/// A tensor's place in another file.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) location: String,
    pub(super) offset: u64,
    /// The number of bytes, where it is stated.
    pub(super) length: Option<u64>,
    pub(super) dtype: DType,
    /// Whether the model states a SHA-1 of the file.
    pub(super) has_checksum: bool,
}

impl Place {
    /// Reads the texts of a place: the location, the offset, the length. The inner error is the tensor's fault; `at` is
    /// where the tensor is described.
    pub(super) fn read(
        cursor: &mut Cursor<'_>,
        [location, offset, length]: [Option<Span>; 3],
        dtype: DType,
        at: u64,
    ) -> Result<Result<Self, Fault>, ReadError> {
        let Some(location) = location else {
            let what = FaultKind::words("the file that holds the values", "none named");
            return Ok(Err(Fault::new(at, what)));
        };
        let text = |cursor: &mut Cursor<'_>, span: Span, most| {
            cursor.seek(span.start);
            let bytes = cursor.bytes(span.len(), span.end, most, "a place in another file")?;
            Ok::<_, ReadError>(String::from_utf8(bytes).ok())
        };
        let mut numbers = [None, None];
        for (found, span) in numbers.iter_mut().zip([offset, length]) {
            let Some(span) = span else { continue };
            let most = span.len().min(LONGEST_NUMBER);
            let written = text(cursor, Span { end: span.start + most, ..span }, LONGEST_NUMBER)?;
            *found = written.filter(|_| most == span.len()).and_then(|written| written.parse::<u64>().ok());
            if found.is_none() {
                let what = FaultKind::words("a number of bytes in decimal digits", "other text");
                return Ok(Err(Fault::new(span.start, what)));
            }
        }
        let Some(location) = text(cursor, location, LONGEST_NAME)? else {
            return Ok(Err(Fault::new(location.start, FaultKind::words("a path", "text that is not UTF-8"))));
        };
        let [offset, length] = numbers;
        Ok(Ok(Self { location, offset: offset.unwrap_or(0), length, dtype, has_checksum: false }))
    }
}
