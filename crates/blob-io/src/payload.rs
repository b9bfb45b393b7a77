//! An entry's bytes, row-major and little-endian: read straight, gathered, inflated, swapped or reordered.
//!
//! Relies on the format's reader having checked every segment against the file's length and the shape.

mod columns;
pub(crate) mod member;

use std::io::{self, Read};

use blob_core::AnyBlob;

use crate::entry::{Deflated, Entry, Order, Payload, Segment, subject};
use crate::error::{Error, Fault, Stop, What};
use crate::limits::Limits;
use crate::wire::source::Source;
use member::Content;

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
            Self::Io { offset, source } => {
                Error::Io { file: file.to_owned(), action: format!("read {} at byte {offset}", subject(entry)), source }
            }
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
            Self::Sink(e) => Stop::Io { offset: 0, source: io::Error::other(e) },
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

/// Loads an array into a blob of its shape and dtype, and its diff, where one is given.
pub(crate) fn load(
    source: &dyn Source,
    file: &str,
    (entry, diff): (&Entry, Option<&Entry>),
    limits: &Limits,
) -> Result<AnyBlob, Error> {
    let dtype = entry.loadable(file)?;
    let mut blob = AnyBlob::new(entry.shape.clone(), dtype)?;
    fill(source, entry, limits, &mut blob.data_mut().overwrite_bytes()?).map_err(|e| e.into_error(file, entry))?;
    if let Some(diff) = diff {
        if (diff.loadable(file)?, &diff.shape) != (dtype, &entry.shape) {
            return Err(diff.request(file, "is of another dtype than its data; load them one by one"));
        }
        fill(source, diff, limits, &mut blob.diff_mut().overwrite_bytes()?).map_err(|e| e.into_error(file, diff))?;
    }
    Ok(blob)
}

/// Fills `out`, which has the entry's byte length, in the machine's byte order.
fn fill(source: &dyn Source, entry: &Entry, limits: &Limits, out: &mut [u8]) -> Result<(), Trouble> {
    let width = width(entry);
    if entry.order == Order::RowMajor && !entry.swapped && !out.is_empty() {
        let mut stored = Stored::open(source, entry, limits)?;
        stored.next(out)?;
        stored.finish()?;
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

/// Hands the entry's bytes to `sink`, chunk by chunk; then, where the file has a checksum of them, compares it.
pub(crate) fn stream(
    source: &dyn Source,
    entry: &Entry,
    limits: &Limits,
    chunk: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Trouble> {
    let total = entry.byte_len();
    if total == 0 {
        // The checksum covers the header too, which may be what says wrongly that there are no elements.
        let member = entry.checksum.as_deref().map(|checksum| Content::open(source, checksum));
        return member.map_or(Ok(()), |member| member.finish(&mut |_| Ok(())));
    }
    let width = width(entry);
    let chunk = (chunk / width).max(1) * width;
    if entry.order == Order::ColumnMajor && entry.shape.num_axes() > 1 {
        return columns::reordered(source, entry, limits, chunk, sink);
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
    stored.finish()
}

/// The chunks of a plain array in memory, one run after the other, without a copy. Runs end a chunk early.
fn borrowed(
    bytes: &[u8],
    entry: &Entry,
    chunk: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Trouble> {
    let checksum = entry.checksum.as_deref();
    let mut crc = match checksum {
        Some(checksum) => Some(member::Running::new(bytes, checksum)?),
        None => None,
    };
    for run in entry.segments() {
        let mut at = run.offset;
        for piece in member::slice(bytes, at, run.count * run.stride)?.chunks(chunk) {
            at += piece.len() as u64;
            if let (Some(crc), Some(checksum)) = (&mut crc, checksum) {
                crc.up_to(at - checksum.offset);
            }
            sink(piece).map_err(Trouble::Sink)?;
        }
    }
    crc.map_or(Ok(()), member::Running::finish)
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
    /// A member of an archive, from its array's first byte on.
    Member(Content<'a>),
}

impl<'a> Stored<'a> {
    fn open(source: &'a dyn Source, entry: &'a Entry, limits: &Limits) -> Result<Self, Trouble> {
        let Some(checksum) = entry.checksum.as_deref() else {
            return Ok(Self::Runs { source, runs: entry.segments(), done: 0, width: width(entry), gaps: Vec::new() });
        };
        let skip = match &entry.payload {
            Payload::Runs(_) => entry.offset().unwrap_or(0).saturating_sub(checksum.offset),
            Payload::Deflated(deflated) => {
                check_alloc(entry, entry.byte_len(), limits)?;
                deflated.skip
            }
        };
        let mut content = Content::open(source, checksum);
        content.skip_to(skip)?;
        Ok(Self::Member(content))
    }

    /// What is left once all bytes of the array have been read: a member's end, and its checksum.
    fn finish(self) -> Result<(), Trouble> {
        match self {
            Self::Runs { .. } => Ok(()),
            Self::Member(content) => content.finish(&mut |_| Ok(())),
        }
    }

    /// Fills `out` with the next bytes.
    fn next(&mut self, out: &mut [u8]) -> Result<(), Trouble> {
        match self {
            Self::Member(content) => content.read(out),
            Self::Runs { source, runs, done, width, gaps } => {
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
    let window = Window { source, pos: deflated.offset, end: deflated.offset + deflated.packed };
    flate2::bufread::DeflateDecoder::new(io::BufReader::with_capacity(64 << 10, window))
}

pub(crate) fn inflate_trouble(offset: u64, e: io::Error) -> Trouble {
    match e.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Trouble::Fault(Fault::new(offset, What::words("a deflate stream of the array's length", e.to_string())))
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

fn read(source: &dyn Source, offset: u64, out: &mut [u8]) -> Result<(), Trouble> {
    source.read_at(offset, out).map_err(|source| Trouble::Io { offset, source })
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
