//! Fetches single elements of a stored tensor without reading the whole, and formats text.
//!
//! A plain array is read at the offsets of the requested elements. A packed, compressed or reordered array is read from
//! its beginning up to the last requested element, and loaded as a whole only if an earlier element is requested later.

use std::borrow::Cow;
use std::fmt::Write as _;

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error, Reader};
use half::{bf16, f16};

use super::slice::TensorRow;

/// The bytes of one read if the elements are not adjacent.
const WINDOW: usize = 64 << 10;

/// The number of elements formatted at once.
pub const PIECE: usize = 64 << 10;

/// One tensor's elements, by index in row-major order.
pub struct Elements<'a> {
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    dtype: DType,
    /// The end of each segment of a plain entry, as an element index.
    ends: Vec<u64>,
    /// For any other entry, a reader and the index of the next element.
    reader: Option<(u64, Reader<'a>)>,
    loaded: Option<Cow<'a, [u8]>>,
    /// The elements of the last read and the index of the first, so that one read serves several short rows.
    cache: (u64, Vec<u8>),
}

impl<'a> Elements<'a> {
    /// # Errors
    /// The entry cannot be loaded.
    pub fn new(checkpoint: &'a Checkpoint, entry: &'a Entry) -> Result<Self, Error> {
        let dtype = checkpoint.spec(entry)?.dtype;
        let is_direct = entry.is_plain() && !entry.segments().is_empty();
        let mut end = 0;
        let ends = entry.segments().iter().map(|run| {
            end += run.count;
            end
        });
        Ok(Self {
            checkpoint,
            entry,
            dtype,
            ends: if is_direct { ends.collect() } else { Vec::new() },
            reader: if is_direct { None } else { Some((0, checkpoint.reader(entry)?)) },
            loaded: None,
            cache: (0, Vec::new()),
        })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Appends a row's elements to `out` as little-endian bytes, in the row's order.
    pub fn fetch(&mut self, row: TensorRow, out: &mut Vec<u8>) -> Result<(), Error> {
        let size = self.dtype.size();
        if row.step == 1 {
            return self.range(row.start as u64, row.len, out);
        }
        // Elements close to each other are fetched in one read.
        let near = row.step.unsigned_abs() as usize * size <= WINDOW / 8;
        let per_window = if near { WINDOW / size / row.step.unsigned_abs() as usize } else { 1 };
        let mut window = Vec::new();
        let mut done = 0;
        while done < row.len {
            let n = per_window.min(row.len - done);
            let (a, b) = (row.start + done as i64 * row.step, row.start + (done + n - 1) as i64 * row.step);
            let low = a.min(b);
            window.clear();
            self.range(low as u64, (a.max(b) - low) as usize + 1, &mut window)?;
            for i in 0..n as i64 {
                let at = (a + i * row.step - low) as usize * size;
                out.extend_from_slice(&window[at..at + size]);
            }
            done += n;
        }
        Ok(())
    }

    /// Formats rows as CSV: a table has one line per row, any other tensor one line per value. Calls `take` with each
    /// piece of text and the number of bytes read for it.
    pub fn csv<E: From<Error>>(
        &mut self,
        rows: impl Iterator<Item = TensorRow>,
        is_table: bool,
        mut take: impl FnMut(&str, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut bytes, mut text, mut read) = (Vec::new(), String::new(), 0);
        for (part, is_last) in rows.flat_map(|row| row.parts(PIECE)) {
            bytes.clear();
            if let Err(e) = self.fetch(part, &mut bytes) {
                // The values before the error are printed.
                take(&text, read)?;
                return Err(e.into());
            }
            read += bytes.len() as u64;
            csv_line(self.dtype, &bytes, is_table, &mut text);
            if is_table && !is_last {
                text.pop();
                text.push(',');
            }
            if text.len() >= PIECE {
                take(&text, std::mem::take(&mut read))?;
                text.clear();
            }
        }
        take(&text, read)
    }

    /// Appends `len` adjacent elements.
    fn range(&mut self, first: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let size = self.dtype.size();
        if let Some(loaded) = &self.loaded {
            let at = first as usize * size;
            out.extend_from_slice(&loaded[at..at + len * size]);
            return Ok(());
        }
        match &mut self.reader {
            Some((next, _)) if first < *next => {
                // A reader cannot go back.
                self.reader = None;
                self.loaded = Some(self.checkpoint.view(self.entry)?);
                return self.range(first, len, out);
            }
            Some((next, reader)) => {
                reader.skip((first - *next) * size as u64)?;
                *next = first + len as u64;
                let mut at = out.len();
                out.resize(at + len * size, 0);
                while at < out.len() {
                    let n = reader.pull(&mut out[at..])?;
                    assert!(n > 0, "an entry has the bytes of its shape");
                    at += n;
                }
                return Ok(());
            }
            None => {}
        }
        if len * size > WINDOW / 4 {
            return self.read(first, len, out);
        }
        let cached = self.cache.1.len() / size;
        let is_cached = first >= self.cache.0 && first + len as u64 <= self.cache.0 + cached as u64;
        if !is_cached {
            let mut bytes = std::mem::take(&mut self.cache.1);
            bytes.clear();
            let remaining = self.entry.shape().count() as u64 - first;
            self.read(first, remaining.min((WINDOW / size) as u64) as usize, &mut bytes)?;
            self.cache = (first, bytes);
        }
        let at = (first - self.cache.0) as usize * size;
        out.extend_from_slice(&self.cache.1[at..at + len * size]);
        Ok(())
    }

    /// Appends `len` adjacent elements of a plain entry, read from the file.
    fn read(&self, first: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let size = self.dtype.size();
        let (mut first, end) = (first, first + len as u64);
        let mut index = self.ends.partition_point(|e| *e <= first);
        while first < end {
            let segment = self.entry.segments()[index];
            let begin = self.ends[index] - segment.count;
            let n = self.ends[index].min(end) - first;
            let offset = segment.offset + (first - begin) * size as u64;
            let at = out.len();
            out.resize(at + n as usize * size, 0);
            self.checkpoint.source().read_at(offset, &mut out[at..]).map_err(|source| Error::Io {
                file: self.checkpoint.name().to_owned(),
                action: format!("read array {:?} at byte {offset}", self.entry.name()),
                source,
            })?;
            first += n;
            index += 1;
        }
        Ok(())
    }
}

/// One element's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Uint(u64),
    /// f32; also f16 and bf16, which f32 represents exactly.
    Single(f32),
    Double(f64),
    Bool(bool),
}

impl Value {
    /// Reads one element, whose bytes are little-endian.
    pub fn read(dtype: DType, bytes: &[u8]) -> Self {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(word);
        match dtype {
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Self::Uint(bits),
            DType::I8 => Self::Int(i64::from(bits as i8)),
            DType::I16 => Self::Int(i64::from(bits as i16)),
            DType::I32 => Self::Int(i64::from(bits as i32)),
            DType::I64 => Self::Int(bits as i64),
            DType::F16 => Self::Single(f16::from_bits(bits as u16).to_f32()),
            DType::BF16 => Self::Single(bf16::from_bits(bits as u16).to_f32()),
            DType::F32 => Self::Single(f32::from_bits(bits as u32)),
            DType::F64 => Self::Double(f64::from_bits(bits)),
            DType::Bool => Self::Bool(bits != 0),
            other => unreachable!("blob-core knows {other}, and the tool does not"),
        }
    }

    /// The value of a float.
    pub fn as_float(self) -> Option<f64> {
        match self {
            Self::Single(x) => Some(f64::from(x)),
            Self::Double(x) => Some(x),
            _ => None,
        }
    }

    /// Appends the shortest text that parses back to the same value. NaN and infinity are `nan`, `inf` and `-inf`; if
    /// `quotes` is not empty, JSON's names within quotes.
    pub fn write(self, text: &mut String, quotes: &str) {
        // Writing to a String cannot fail.
        let _ = match self {
            Self::Int(x) => write!(text, "{x}"),
            Self::Uint(x) => write!(text, "{x}"),
            Self::Bool(x) => write!(text, "{x}"),
            Self::Single(x) if x.is_finite() => write!(text, "{x:?}"),
            Self::Double(x) if x.is_finite() => write!(text, "{x:?}"),
            Self::Single(_) | Self::Double(_) => {
                write!(text, "{quotes}{}{quotes}", self.not_finite(!quotes.is_empty()))
            }
        };
    }

    /// The name of NaN or an infinity, as most programs parse it or as JSON's users spell it.
    fn not_finite(self, json: bool) -> &'static str {
        let value = self.as_float().unwrap_or(f64::NAN);
        let words = if json { ["NaN", "Infinity", "-Infinity"] } else { ["nan", "inf", "-inf"] };
        match (value.is_nan(), value > 0.0) {
            (true, _) => words[0],
            (false, true) => words[1],
            (false, false) => words[2],
        }
    }
}

/// Appends a row's values as CSV: on one line if `is_row`, else one value per line.
fn csv_line(dtype: DType, bytes: &[u8], is_row: bool, line: &mut String) {
    let separator = if is_row { ',' } else { '\n' };
    for (i, element) in bytes.chunks_exact(dtype.size()).enumerate() {
        if i > 0 {
            line.push(separator);
        }
        Value::read(dtype, element).write(line, "");
    }
    line.push('\n');
}

#[cfg(test)]
mod tests {
    use blob_io::Bytes;

    use super::*;

    /// A BlobProto of shape {40} with the values 0 to 39: packed in two chunks, or each value in a field of its own.
    fn counting(packed: bool) -> Checkpoint {
        let mut file = vec![0x3A, 0x03, 0x0A, 0x01, 40];
        let values: Vec<[u8; 4]> = (0..40).map(|i| (i as f32).to_le_bytes()).collect();
        if packed {
            for half in values.chunks(17) {
                file.extend_from_slice(&[0x2A, 4 * half.len() as u8]);
                file.extend(half.concat());
            }
        } else {
            for value in values {
                file.push(0x2D);
                file.extend(value);
            }
        }
        Checkpoint::from_source("x.binaryproto", Box::new(Bytes(file))).unwrap()
    }

    #[test]
    fn rows_are_fetched_in_their_order_whatever_the_step() {
        for packed in [true, false] {
            let file = counting(packed);
            let mut elements = Elements::new(&file, &file.entries()[0]).unwrap();
            for (start, step, len) in
                [(0, 1, 40), (3, 1, 20), (39, -1, 40), (1, 13, 3), (38, -7, 5), (16, 1, 2), (5, 1, 0)]
            {
                let mut out = Vec::new();
                elements.fetch(TensorRow { start, step, len }, &mut out).unwrap();
                let found: Vec<i64> =
                    out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]) as i64).collect();
                let expected: Vec<i64> = (0..len as i64).map(|i| start + i * step).collect();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn an_entry_that_is_not_plain_is_read_up_to_the_last_requested_element() {
        let file = counting(false);
        let mut elements = Elements::new(&file, &file.entries()[0]).unwrap();
        let mut out = Vec::new();
        for start in [2, 7, 30] {
            elements.fetch(TensorRow { start, step: 1, len: 2 }, &mut out).unwrap();
        }
        assert!(elements.loaded.is_none());
        elements.fetch(TensorRow { start: 1, step: 1, len: 1 }, &mut out).unwrap();
        assert!(elements.loaded.is_some(), "a reader cannot go back");
        let found: Vec<f32> = out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!(found, [2.0, 3.0, 7.0, 8.0, 30.0, 31.0, 1.0]);
    }

    #[test]
    fn values_of_every_dtype_are_read() {
        let read = |dtype, bytes: &[u8]| {
            let mut text = String::new();
            Value::read(dtype, bytes).write(&mut text, "");
            text
        };
        for (dtype, bytes, text) in [
            (DType::U8, &[255][..], "255"),
            (DType::I8, &[255], "-1"),
            (DType::I16, &[0, 128], "-32768"),
            (DType::U16, &[0, 128], "32768"),
            (DType::I32, &[255; 4], "-1"),
            (DType::U32, &[255; 4], "4294967295"),
            (DType::I64, &[255; 8], "-1"),
            (DType::U64, &[255; 8], "18446744073709551615"),
            (DType::F16, &[0, 0x3E], "1.5"),
            (DType::BF16, &[0xC0, 0x3F], "1.5"),
            (DType::F32, &0.1f32.to_le_bytes(), "0.1"),
            (DType::F64, &0.1f64.to_le_bytes(), "0.1"),
            (DType::F64, &f64::NEG_INFINITY.to_le_bytes(), "-inf"),
            (DType::F32, &(-0.0f32).to_le_bytes(), "-0.0"),
            (DType::Bool, &[1], "true"),
        ] {
            assert_eq!(read(dtype, bytes), text);
        }
        let mut json = String::new();
        Value::Single(f32::NAN).write(&mut json, "\"");
        assert_eq!(json, "\"NaN\"");
    }

    #[test]
    fn csv_has_a_line_a_row_or_a_line_a_value() {
        let mut text = String::new();
        csv_line(DType::U8, &[1, 2, 3], true, &mut text);
        csv_line(DType::U8, &[4, 5], false, &mut text);
        assert_eq!(text, "1,2,3\n4\n5\n");
    }
}
