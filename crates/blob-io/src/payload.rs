//! Reads an entry's bytes, row-major and little-endian, piece by piece: copied, gathered, inflated, decoded, swapped or
//! reordered.
//!
//! Relies on the format's reader having checked every segment against the file's length and the shape.

mod chunks;
mod columns;
mod dense;
pub(crate) mod member;
mod varints;

use blob_core::AnyBlob;

use crate::entry::{Entry, Order, Payload, Segment};
use crate::error::{Error, Fault, ReadError, check_limit};
use crate::limits::{Limit, Limits};
use crate::wire::source::{Source, read};
use chunks::Chunks;
use columns::Columns;
use dense::Dense;
use member::Content;
use varints::Varints;

/// Whether this machine's byte order is not that of the files.
pub(crate) const BIG_ENDIAN: bool = u16::from_be(1) == 1;

/// Loads an array into a blob of the same shape and dtype, and the diff, where one is given.
pub(crate) fn load(
    source: &dyn Source,
    file: &str,
    entry: &Entry,
    diff: Option<&Entry>,
    limits: &Limits,
) -> Result<AnyBlob, Error> {
    let dtype = entry.loadable(file)?;
    // Opened before the blob is allocated, because opening checks the limit on inflated and reordered arrays.
    let elements = Elements::open(source, entry, limits).map_err(|e| entry.error(file, e))?;
    let mut blob = AnyBlob::new(entry.shape.clone(), dtype)?;
    fill(elements, &mut blob.data_mut().overwrite_bytes()?).map_err(|e| entry.error(file, e))?;
    if let Some(diff) = diff {
        if (diff.loadable(file)?, &diff.shape) != (dtype, &entry.shape) {
            return Err(diff.refused(file, "is of another dtype than its data; load them one by one"));
        }
        let elements = Elements::open(source, diff, limits).map_err(|e| diff.error(file, e))?;
        fill(elements, &mut blob.diff_mut().overwrite_bytes()?).map_err(|e| diff.error(file, e))?;
    }
    Ok(blob)
}

/// Fills `out`, which has the elements' byte length, in the machine's byte order.
pub(crate) fn fill(mut elements: Elements<'_>, out: &mut [u8]) -> Result<(), ReadError> {
    elements.next(out)?;
    to_native(out, elements.width());
    Ok(())
}

/// The bytes of a small entry. The caller has checked the length.
pub(crate) fn bytes(source: &dyn Source, entry: &Entry) -> Result<Vec<u8>, ReadError> {
    let mut out = vec![0; entry.byte_len() as usize];
    Elements::open(source, entry, &Limits::default())?.next(&mut out)?;
    Ok(out)
}

/// Turns little-endian elements into the machine's own.
pub(crate) fn to_native(bytes: &mut [u8], width: usize) {
    if BIG_ENDIAN {
        swap(bytes, width);
    }
}

/// The elements of an entry, one after the other.
pub(crate) struct Elements<'a> {
    stored: Stored<'a>,
    width: usize,
    swapped: bool,
    /// How many bytes are left.
    left: u64,
}

/// Where the elements come from.
enum Stored<'a> {
    Runs {
        source: &'a dyn Source,
        runs: &'a [Segment],
        /// How many elements of the first run were already returned.
        done: u64,
        /// Scratch for runs with gaps.
        gaps: Vec<u8>,
    },
    /// A member of an archive, from the array's first byte on.
    Member(Content<'a>),
    Columns(Columns),
    Chunks(Box<Chunks<'a>>),
    Dense(Box<Dense<'a>>),
    Varints(Box<Varints<'a>>),
}

impl<'a> Elements<'a> {
    pub(crate) fn open(source: &'a dyn Source, entry: &'a Entry, limits: &Limits) -> Result<Self, ReadError> {
        check_decoded(entry, source.len(), limits)?;
        let elements = Self::in_file_order(source, entry, limits)?;
        if !is_reordered(entry) {
            return Ok(elements);
        }
        let (left, width) = (elements.left, elements.width);
        let stored = Stored::Columns(Columns::read(elements, entry)?);
        Ok(Self { stored, width, swapped: false, left })
    }

    /// The `len` bytes of a dense array: `values` in units at these byte offsets, zeros elsewhere.
    pub(crate) fn dense(values: Self, unit: u64, offsets: impl Iterator<Item = u64> + Send + 'a, len: u64) -> Self {
        let width = values.width;
        Self {
            stored: Stored::Dense(Box::new(Dense::new(values, unit, Box::new(offsets)))),
            width,
            swapped: false,
            left: len,
        }
    }

    fn in_file_order(source: &'a dyn Source, entry: &'a Entry, limits: &Limits) -> Result<Self, ReadError> {
        let (left, width) = (entry.byte_len(), width(entry));
        let stored = match entry.checksum.as_deref() {
            // The checksum covers the header too: a damaged header may wrongly say that there are no elements.
            Some(checksum) if left == 0 => {
                let mut content = Content::open(source, checksum);
                content.finish()?;
                Stored::Member(content)
            }
            None => match &entry.payload {
                Payload::Chunked(chunked) if left > 0 => {
                    let dims = entry.shape.dims().iter().map(|d| *d as u64).collect();
                    Stored::Chunks(Box::new(Chunks::open(source, chunked, dims, width, limits)?))
                }
                Payload::Varints(ranges) if left > 0 => {
                    let is_bool = entry.dtype == Some(blob_core::DType::Bool);
                    Stored::Varints(Box::new(Varints::open(source, ranges, width, is_bool)))
                }
                _ => Stored::Runs { source, runs: entry.segments(), done: 0, gaps: Vec::new() },
            },
            Some(checksum) => {
                let skip = match &entry.payload {
                    Payload::Runs(_) | Payload::Chunked(_) | Payload::Varints(_) => {
                        entry.offset().unwrap_or(0).saturating_sub(checksum.offset)
                    }
                    Payload::Deflated(deflated) => deflated.skip,
                };
                let mut content = Content::open(source, checksum);
                content.skip(skip)?;
                Stored::Member(content)
            }
        };
        Ok(Self { stored, width, swapped: entry.swapped, left })
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The bytes of one element.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Fills `out`, which must hold whole elements and at most those that are left. The last ones are returned only if
    /// the checksum matches.
    pub(crate) fn next(&mut self, out: &mut [u8]) -> Result<(), ReadError> {
        let width = self.width;
        match &mut self.stored {
            Stored::Member(content) => content.read(out)?,
            Stored::Columns(columns) => columns.next(out),
            Stored::Chunks(chunks) => chunks.next(out)?,
            Stored::Dense(dense) => dense.next(out)?,
            Stored::Varints(varints) => varints.next(out)?,
            Stored::Runs { source, runs, done, gaps } => {
                let mut filled = 0;
                while filled < out.len() {
                    let run = runs[0];
                    let n = (((out.len() - filled) / width) as u64).min(run.count - *done);
                    let bytes = &mut out[filled..filled + n as usize * width];
                    let at = run.offset + *done * run.stride;
                    if run.stride == width as u64 {
                        read(*source, at, bytes)?;
                    } else {
                        gather(*source, at, run.stride as usize, width, gaps, bytes)?;
                    }
                    filled += bytes.len();
                    advance(runs, done, n);
                }
            }
        }
        if self.swapped {
            swap(out, width);
        }
        self.advance_by(out.len() as u64)
    }

    /// Skips whole elements, at most those that are left.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<(), ReadError> {
        match &mut self.stored {
            Stored::Member(content) => content.skip(bytes)?,
            Stored::Columns(columns) => columns.skip((bytes / self.width as u64) as usize),
            Stored::Chunks(chunks) => chunks.skip(bytes),
            Stored::Dense(dense) => dense.skip(bytes)?,
            Stored::Varints(varints) => varints.skip(bytes)?,
            Stored::Runs { runs, done, .. } => {
                let mut left = bytes / self.width as u64;
                while left > 0 {
                    let n = left.min(runs[0].count - *done);
                    advance(runs, done, n);
                    left -= n;
                }
            }
        }
        self.advance_by(bytes)
    }

    fn advance_by(&mut self, bytes: u64) -> Result<(), ReadError> {
        if bytes > 0 && bytes == self.left {
            match &mut self.stored {
                Stored::Member(content) => content.finish()?,
                Stored::Varints(varints) => varints.finish()?,
                _ => {}
            }
        }
        self.left -= bytes;
        Ok(())
    }
}

/// Counts `n` more elements of the first run as returned.
fn advance(runs: &mut &[Segment], done: &mut u64, n: u64) {
    *done += n;
    if *done == runs[0].count {
        *runs = &runs[1..];
        *done = 0;
    }
}

/// Reads elements with gaps between, through a scratch buffer of a bounded size.
pub(crate) fn gather(
    source: &dyn Source,
    mut at: u64,
    stride: usize,
    width: usize,
    gaps: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), ReadError> {
    let per_read = (64 << 10) / stride;
    for block in out.chunks_mut(per_read.max(1) * width) {
        let n = block.len() / width;
        // No gap is read after the last element: the file may end there.
        gaps.resize((n - 1) * stride + width, 0);
        read(source, at, gaps)?;
        for (i, element) in block.chunks_exact_mut(width).enumerate() {
            element.copy_from_slice(&gaps[i * stride..i * stride + width]);
        }
        at += (n * stride) as u64;
    }
    Ok(())
}

/// Checks the limit on bytes that are produced from fewer stored ones, or in another order. Asked before any memory is
/// taken for them. `file_len` is the length of the source.
pub(crate) fn check_decoded(entry: &Entry, file_len: u64, limits: &Limits) -> Result<(), Fault> {
    let whole = entry.byte_len();
    let produced = match (&entry.checksum, &entry.payload) {
        _ if is_reordered(entry) => whole,
        (Some(_), Payload::Deflated(_)) => whole,
        (None, Payload::Chunked(chunked)) => {
            // Stored bytes are bounded by the file's length, though chunks may share bytes.
            let stored = chunked.chunks.iter().map(|chunk| u64::from(chunk.packed)).sum::<u64>();
            whole.saturating_sub(stored.min(file_len))
        }
        (None, Payload::Varints(ranges)) => whole.saturating_sub(ranges.spans.iter().map(|span| span.len()).sum()),
        _ => 0,
    };
    let at = entry.offset().unwrap_or(0);
    check_limit(at, Limit::Alloc, "bytes to inflate or reorder", produced, limits.max_alloc)
}

/// Whether the elements lie in another order than a blob's.
fn is_reordered(entry: &Entry) -> bool {
    entry.byte_len() > 0 && entry.order != Order::RowMajor && entry.shape.num_axes() >= 2
}

fn width(entry: &Entry) -> usize {
    entry.dtype.map_or(1, blob_core::DType::size)
}

/// Reverses the bytes of each element of `width` bytes.
pub(crate) fn swap(bytes: &mut [u8], width: usize) {
    if width > 1 {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}
