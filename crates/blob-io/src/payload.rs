//! An entry's bytes, row-major and little-endian: read straight, gathered, inflated, swapped or reordered.
//!
//! Relies on the format's reader having checked every segment against the file's length and the shape.

use std::io::{self, Read};

use crate::checkpoint::subject;
use crate::entry::{Deflated, Entry, Order, Payload, Segment};
use crate::error::{Error, Fault, Stop, What};
use crate::limits::Limits;
use crate::source::Source;

/// Whether this machine's order is not the files'.
pub(crate) const BIG_ENDIAN: bool = u16::from_be(1) == 1;
/// What one step of a stream holds, unless the caller says otherwise.
pub(crate) const CHUNK: usize = 1 << 20;

/// Why a payload could not be had.
pub(crate) enum Trouble {
    Io {
        offset: u64,
        source: io::Error,
    },
    Fault(Fault),
    /// The sink's own error, passed through.
    Sink(Error),
}

impl Trouble {
    pub(crate) fn into_error(self, file: &str, entry: &Entry) -> Error {
        match self {
            Self::Io { offset, source } => Error::Io {
                file: file.to_owned(),
                action: format!("read {} at byte {offset}", subject(entry)),
                source,
            },
            Self::Fault(fault) => Error::Malformed {
                file: file.to_owned(),
                subject: Some(subject(entry)),
                fault: Box::new(fault),
                intact: None,
            },
            Self::Sink(e) => e,
        }
    }

    /// The same while a header is read, where no sink is: its error cannot come.
    pub(crate) fn into_stop(self) -> Stop {
        match self {
            Self::Io { offset, source } => Stop::Io { offset, source },
            Self::Fault(fault) => Stop::Fault(fault),
            Self::Sink(e) => Stop::Io {
                offset: 0,
                source: io::Error::other(e),
            },
        }
    }
}

/// The bytes of a small entry, of which the caller has checked the length.
pub(crate) fn bytes(source: &dyn Source, entry: &Entry) -> Result<Vec<u8>, Stop> {
    let mut out = Vec::new();
    stream(source, entry, &Limits::default(), CHUNK, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })
    .map_err(Trouble::into_stop)?;
    Ok(out)
}

/// Fills `out`, which has the entry's byte length, in the machine's byte order.
pub(crate) fn fill(
    source: &dyn Source,
    entry: &Entry,
    limits: &Limits,
    out: &mut [u8],
) -> Result<(), Trouble> {
    let width = width(entry);
    if entry.is_plain() {
        let mut done = 0;
        for run in entry.segments() {
            let len = (run.count * width as u64) as usize;
            read(source, run.offset, &mut out[done..done + len])?;
            done += len;
        }
    } else {
        let mut done = 0;
        stream(source, entry, limits, CHUNK, &mut |bytes| {
            out[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
            Ok(())
        })?;
    }
    to_native(out, width);
    Ok(())
}

/// Turns little-endian elements into the machine's own.
pub(crate) fn to_native(bytes: &mut [u8], width: usize) {
    if BIG_ENDIAN {
        swap(bytes, width);
    }
}

/// Hands the entry's bytes to `sink`, chunk by chunk.
pub(crate) fn stream(
    source: &dyn Source,
    entry: &Entry,
    limits: &Limits,
    chunk: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Trouble> {
    let total = entry.byte_len();
    if total == 0 {
        return Ok(());
    }
    let width = width(entry);
    let chunk = (chunk / width).max(1) * width;
    if entry.order == Order::ColumnMajor && entry.shape.num_axes() > 1 {
        return reordered(source, entry, limits, chunk, sink);
    }
    if let (true, Some(bytes)) = (entry.is_plain(), source.bytes()) {
        return borrowed(bytes, entry, chunk, sink);
    }
    let mut stored = Stored::open(source, entry, limits)?;
    let mut buf = vec![0; (chunk as u64).min(total) as usize];
    let mut left = total;
    while left > 0 {
        let n = (chunk as u64).min(left) as usize;
        let bytes = &mut buf[..n];
        stored.next(bytes)?;
        if entry.swapped {
            swap(bytes, width);
        }
        sink(bytes).map_err(Trouble::Sink)?;
        left -= n as u64;
    }
    Ok(())
}

/// The chunks of a plain array in memory, one run after the other, without a copy. Runs end a chunk early.
fn borrowed(
    bytes: &[u8],
    entry: &Entry,
    chunk: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Trouble> {
    for run in entry.segments() {
        let end = run.offset.saturating_add(run.count * run.stride);
        let range = usize::try_from(run.offset)
            .ok()
            .zip(usize::try_from(end).ok());
        let Some(run) = range.and_then(|(at, end)| bytes.get(at..end)) else {
            let source = io::ErrorKind::UnexpectedEof.into();
            let offset = run.offset;
            return Err(Trouble::Io { offset, source });
        };
        for piece in run.chunks(chunk) {
            sink(piece).map_err(Trouble::Sink)?;
        }
    }
    Ok(())
}

/// Column-major to row-major: the whole array is needed, so `max_alloc` bounds it.
fn reordered(
    source: &dyn Source,
    entry: &Entry,
    limits: &Limits,
    chunk: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Trouble> {
    let total = entry.byte_len();
    check_alloc(entry, total, limits)?;
    let mut columns = room(entry, total)?;
    columns.resize(total as usize, 0);
    Stored::open(source, entry, limits)?.next(&mut columns)?;
    let width = width(entry);
    if entry.swapped {
        swap(&mut columns, width);
    }
    let dims = entry.shape.dims();
    // The stride of axis k in column-major order: the product of the dims before it.
    let strides: Vec<usize> = dims
        .iter()
        .scan(width, |stride, d| {
            let this = *stride;
            *stride *= d;
            Some(this)
        })
        .collect();
    let mut index = vec![0; dims.len()];
    let mut at = 0;
    let mut rows = Vec::with_capacity(chunk.min(columns.len()));
    for _ in 0..entry.shape.count() {
        rows.extend_from_slice(&columns[at..at + width]);
        if rows.len() == chunk {
            sink(&rows).map_err(Trouble::Sink)?;
            rows.clear();
        }
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    sink(&rows).map_err(Trouble::Sink)
}

/// The bytes in stored order.
enum Stored<'a> {
    Runs {
        source: &'a dyn Source,
        runs: &'a [Segment],
        /// Elements of the first run that are already handed out.
        done: u64,
        width: usize,
        /// Scratch for runs with gaps.
        gaps: Vec<u8>,
    },
    Deflated {
        inflater: flate2::bufread::DeflateDecoder<io::BufReader<Window<'a>>>,
        offset: u64,
    },
}

impl<'a> Stored<'a> {
    fn open(source: &'a dyn Source, entry: &'a Entry, limits: &Limits) -> Result<Self, Trouble> {
        match &entry.payload {
            Payload::Runs(_) => Ok(Self::Runs {
                source,
                runs: entry.segments(),
                done: 0,
                width: width(entry),
                gaps: Vec::new(),
            }),
            Payload::Deflated(deflated) => {
                check_alloc(entry, entry.byte_len(), limits)?;
                let mut inflater = inflate(source, deflated);
                let offset = deflated.offset;
                io::copy(&mut inflater.by_ref().take(deflated.skip), &mut io::sink())
                    .map_err(|e| inflate_trouble(offset, e))?;
                Ok(Self::Deflated { inflater, offset })
            }
        }
    }

    /// Fills `out` with the next bytes.
    fn next(&mut self, out: &mut [u8]) -> Result<(), Trouble> {
        match self {
            Self::Deflated { inflater, offset } => inflater
                .read_exact(out)
                .map_err(|e| inflate_trouble(*offset, e)),
            Self::Runs {
                source,
                runs,
                done,
                width,
                gaps,
            } => {
                let mut filled = 0;
                while filled < out.len() {
                    let run = runs[0];
                    let want = ((out.len() - filled) / *width) as u64;
                    let n = want.min(run.count - *done);
                    let bytes = &mut out[filled..filled + n as usize * *width];
                    let at = run.offset + *done * run.stride;
                    if run.stride == *width as u64 {
                        read(*source, at, bytes)?;
                    } else {
                        gather(*source, at, run.stride as usize, *width, gaps, bytes)?;
                    }
                    filled += bytes.len();
                    *done += n;
                    if *done == run.count {
                        *runs = &runs[1..];
                        *done = 0;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Reads elements that have gaps between them, through a scratch buffer of a bounded size.
fn gather(
    source: &dyn Source,
    mut at: u64,
    stride: usize,
    width: usize,
    gaps: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Trouble> {
    let per_read = (64 << 10) / stride;
    for block in out.chunks_mut(per_read.max(1) * width) {
        let n = block.len() / width;
        // The last element has no gap after it that is known to exist.
        gaps.resize((n - 1) * stride + width, 0);
        read(source, at, gaps)?;
        for (i, element) in block.chunks_exact_mut(width).enumerate() {
            element.copy_from_slice(&gaps[i * stride..i * stride + width]);
        }
        at += (n * stride) as u64;
    }
    Ok(())
}

/// The inflater over a deflate stream in the source.
pub(crate) fn inflate<'a>(
    source: &'a dyn Source,
    deflated: &Deflated,
) -> flate2::bufread::DeflateDecoder<io::BufReader<Window<'a>>> {
    let window = Window {
        source,
        pos: deflated.offset,
        end: deflated.offset + deflated.packed,
    };
    flate2::bufread::DeflateDecoder::new(io::BufReader::with_capacity(64 << 10, window))
}

pub(crate) fn inflate_trouble(offset: u64, e: io::Error) -> Trouble {
    match e.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Trouble::Fault(Fault::new(
                offset,
                What::words("a deflate stream of the array's length", e.to_string()),
            ))
        }
        _ => Trouble::Io { offset, source: e },
    }
}

/// A part of a source as a reader.
pub(crate) struct Window<'a> {
    source: &'a dyn Source,
    pos: u64,
    end: u64,
}

impl Read for Window<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (buf.len() as u64).min(self.end - self.pos) as usize;
        self.source.read_at(self.pos, &mut buf[..n])?;
        self.pos += n as u64;
        Ok(n)
    }
}

fn check_alloc(entry: &Entry, bytes: u64, limits: &Limits) -> Result<(), Trouble> {
    if bytes <= limits.max_alloc {
        return Ok(());
    }
    Err(Trouble::Fault(Fault::new(
        entry.offset().unwrap_or(0),
        What::Limit {
            field: "bytes to inflate or reorder",
            found: bytes,
            limit: limits.max_alloc,
            option: Some("raise the limit with --max-alloc if you trust the file"),
        },
    )))
}

/// An empty buffer with room for `bytes`, or an error where memory does not have it.
fn room(entry: &Entry, bytes: u64) -> Result<Vec<u8>, Trouble> {
    let mut buffer = Vec::new();
    let room = usize::try_from(bytes).map(|n| buffer.try_reserve_exact(n));
    if let Ok(Ok(())) = room {
        return Ok(buffer);
    }
    let offset = entry.offset().unwrap_or(0);
    let source = io::ErrorKind::OutOfMemory.into();
    Err(Trouble::Io { offset, source })
}

fn read(source: &dyn Source, offset: u64, out: &mut [u8]) -> Result<(), Trouble> {
    source
        .read_at(offset, out)
        .map_err(|source| Trouble::Io { offset, source })
}

fn width(entry: &Entry) -> usize {
    entry.dtype.map_or(1, blob_core::DType::size)
}

/// Turns each element of `width` bytes around.
pub(crate) fn swap(bytes: &mut [u8], width: usize) {
    if width > 1 {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}
