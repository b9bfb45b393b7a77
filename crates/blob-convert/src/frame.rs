//! The frame of a file: all bytes except the tensors' bytes. A receipt keeps the source's frame, so that converting
//! back restores the same file.
//!
//! Relies on the formats' readers: a frame is used only if the restored file opens in the frame's format and has the
//! tensors in the frame's holes. `receipt` writes the text around a frame.

mod deflate;
mod proof;

use std::io::{self, Read};
use std::ops::Range;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use blob_io::layout::Layout;
use blob_io::{Checkpoint, Entry, Error, Files, Format, OpenOptions, Source};
use flate2::read::DeflateDecoder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::hash;
use crate::history::{parse, receipt_text};
use crate::planned::Planned;
use crate::runs::{read_runs, read_zeros};
use deflate::deflated;
use proof::is_apart;
pub(crate) use proof::{CHANGED, OF_ANOTHER, Proof, hole, judge, named, prove};

/// A longer frame is left out: a receipt has at most 4 MiB, the most metadata that our readers accept.
const MAX_BYTES: u64 = 4 << 20;
/// A frame with more holes is left out, too: each takes 40 bytes of memory, and a short text can describe many.
const MAX_HOLES: u64 = 1 << 20;

/// Reasons why a frame is not used.
const DAMAGED: &str = "it is damaged";
const MORE: &str = "it holds more than the tensors of the file";

/// A file's bytes except the tensors' bytes.
pub(crate) struct Frame {
    format: Format,
    /// The file's length.
    len: u64,
    holes: Vec<Hole>,
    /// The bytes before, between and after the holes.
    kept: Vec<u8>,
    gaps: Vec<Gap>,
}

/// A run of kept bytes: its offset and length in the file.
struct Gap {
    at: u64,
    len: u64,
    /// The run's offset in `Frame::kept`.
    from: u64,
}

/// A range of the file with all or some of a tensor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hole {
    at: u64,
    len: u64,
}

/// A frame as a receipt stores it.
#[derive(Serialize, Deserialize)]
pub(crate) struct FrameText {
    /// The format's short name.
    format: String,
    /// The file's length.
    bytes: u64,
    /// The ranges of the tensors' bytes, in the order of the file.
    holes: Vec<Holes>,
    /// The BLAKE3 of all bytes outside of the holes.
    blake3: String,
    /// These bytes, as a raw deflate stream in base64.
    deflate: String,
}

/// One hole, or several at equal distances, as a receipt stores them.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Holes {
    /// Offset and length.
    One(u64, u64),
    /// Offset and length of the first, the number of holes, and the distance from one offset to the next.
    Many(u64, u64, u64, u64),
}

/// The frame of a receipt.
#[derive(Deserialize)]
struct Framed {
    frame: Option<FrameText>,
}

/// Whether a receipt has a frame, even one that cannot be read.
#[derive(Deserialize)]
struct HasFrame {
    frame: Option<IgnoredAny>,
}

/// The format of a receipt's frame, for a frame whose other fields cannot be read.
#[derive(Deserialize)]
struct FrameFormat {
    frame: FormatName,
}

#[derive(Deserialize)]
struct FormatName {
    format: String,
}

/// The frame of a file whose tensors go into the output unchanged, or the reason why the file has no frame.
///
/// # Errors
/// Any error of reading the file.
pub(crate) fn of(checkpoint: &Checkpoint, tensors: &[Planned]) -> Result<Result<Value, &'static str>, Error> {
    // A frame is handed on, so that the file can still be restored after several conversions.
    let is_whole = arrays(checkpoint) == tensors.len() && tensors.iter().all(Planned::is_as_read);
    if !is_whole && receipt_text(checkpoint).is_some() {
        return Ok(Err("tensors were left out or expanded"));
    }
    if let Some(text) = receipt_text(checkpoint).and_then(parse::<Framed>).and_then(|framed| framed.frame) {
        return Ok(check(checkpoint).map(|_| json!(text)).map_err(|_| "the receipt's frame makes no file"));
    }
    let format = checkpoint.format();
    // A file or folder of our own is left out: its first source is another file. Shards are several files.
    let is_foreign = receipt_text(checkpoint).is_none();
    let takes_receipts = format.holds().receipt || format.holds().files == Files::Folder;
    let is_one = checkpoint.shards().is_empty() && (format.holds().many || checkpoint.entries().len() == 1);
    if takes_receipts && !(is_foreign && is_one) {
        return Ok(Err("files of the source's format are written anew"));
    }
    if arrays(checkpoint) != tensors.len() {
        return Ok(Err("tensors were left out"));
    }
    let (mut stored, mut spans) = (Vec::new(), Vec::new());
    for tensor in tensors {
        match of_entry(&checkpoint.entries()[tensor.entry], format) {
            Some(holes) if tensor.is_as_read() => {
                spans.extend(span(&holes));
                stored.extend(holes);
            }
            _ => return Ok(Err("values do not lie in runs of row-major bytes")),
        }
    }
    stored.sort_unstable_by_key(Holes::begin);
    if stored.iter().map(Holes::text_len).sum::<usize>() > MAX_BYTES as usize {
        return Ok(Err("there was no room for it"));
    }
    let Some(holes) = expand(&stored) else {
        return Ok(Err("values lie in more than 1,048,576 pieces"));
    };
    if !is_apart(spans) {
        return Ok(Err("values of two tensors, as data and diff, lie between each other, or share bytes"));
    }
    let Some(outside) = len_outside(checkpoint.file_len(), &holes).filter(|outside| *outside <= MAX_BYTES) else {
        return Ok(Err("more than 4 MiB lie around the tensors"));
    };
    let mut kept = vec![0; outside as usize];
    let mut rest = &mut kept[..];
    for gap in gaps(checkpoint.file_len(), &holes) {
        let (bytes, behind) = rest.split_at_mut(gap.len as usize);
        hash::read(checkpoint, checkpoint.source(), gap.at, bytes)?;
        rest = behind;
    }
    let text = FrameText {
        format: format.name().to_owned(),
        bytes: checkpoint.file_len(),
        holes: stored,
        blake3: blake3::hash(&kept).to_hex().to_string(),
        deflate: BASE64_STANDARD.encode(deflated(&kept)),
    };
    let frame = Frame::new(format, checkpoint.file_len(), holes, kept);
    // A frame that cannot be restored is useless: some files are recognised by their values alone.
    Ok(match frame.open(checkpoint) {
        Ok(_) => Ok(json!(text)),
        Err(MORE) => Err("the file holds more than its tensors"),
        Err(_) => Err("the file cannot be read without its values"),
    })
}

/// Restores the file whose frame is in the receipt of `checkpoint`, ready to be filled with the tensors. The error is
/// the reason why the tensors do not fit; `None` where the receipt has no frame of this format.
pub(crate) fn restore(checkpoint: &Checkpoint, format: Format) -> Option<Result<Checkpoint, &'static str>> {
    let receipt = receipt_text(checkpoint)?;
    let Some(framed) = parse::<Framed>(receipt) else {
        parse::<HasFrame>(receipt)?.frame?;
        let is_of_format = parse::<FrameFormat>(receipt).is_none_or(|of| of.frame.format == format.name());
        return is_of_format.then_some(Err(DAMAGED));
    };
    let text = framed.frame.filter(|text| text.format == format.name())?;
    // This bounds the restored file's length by the size of the values.
    let values = checkpoint.entries().iter().map(Entry::byte_len).fold(0, u64::saturating_add);
    if text.holes.iter().map(Holes::bytes).fold(0, u64::saturating_add) > values {
        return Some(Err("there are other tensors"));
    }
    let frame = Frame::read(format, &text).ok_or(DAMAGED);
    let made = frame.and_then(|frame| frame.open(checkpoint));
    Some(made.and_then(|made| named(checkpoint, made.file_len()).map(|_| made)))
}

/// Restores the file whose frame is in the receipt of `checkpoint`, of whatever format; `None` where the receipt has no
/// frame. [`prove`] tells whether the file is the one that the receipt names.
///
/// # Errors
/// The reason why no file can be restored.
pub(crate) fn check(checkpoint: &Checkpoint) -> Result<Option<Checkpoint>, &'static str> {
    let Some(receipt) = receipt_text(checkpoint) else { return Ok(None) };
    let Some(framed) = parse::<Framed>(receipt) else {
        return match parse::<HasFrame>(receipt).and_then(|has| has.frame) {
            Some(_) => Err(DAMAGED),
            None => Ok(None),
        };
    };
    let Some(text) = framed.frame else { return Ok(None) };
    let format = text.format.parse().map_err(|_| "it is of a format that is not known")?;
    restore(checkpoint, format).transpose()
}

/// The number of arrays in a file; places without an array do not count.
fn arrays(file: &Checkpoint) -> usize {
    file.entries().iter().filter(|entry| entry.dtype().is_some()).count()
}

impl Frame {
    fn new(format: Format, len: u64, holes: Vec<Hole>, kept: Vec<u8>) -> Self {
        let gaps = gaps(len, &holes);
        Self { format, len, holes, kept, gaps }
    }

    /// Decodes a frame from an untrusted receipt; `None` for a damaged frame.
    fn read(format: Format, text: &FrameText) -> Option<Self> {
        let holes = expand(&text.holes)?;
        let outside = len_outside(text.bytes, &holes).filter(|outside| *outside <= MAX_BYTES)?;
        let packed = BASE64_STANDARD.decode(&text.deflate).ok()?;
        let mut kept = Vec::new();
        DeflateDecoder::new(&packed[..]).take(outside + 1).read_to_end(&mut kept).ok()?;
        let is_whole = kept.len() as u64 == outside && *blake3::hash(&kept).to_hex() == *text.blake3;
        is_whole.then(|| Self::new(format, text.bytes, holes, kept))
    }

    /// Opens the file with zeros in the holes, and checks that the file's tensors lie in the holes and have the same
    /// names, dtypes and shapes as the tensors of `checkpoint`.
    fn open(self, checkpoint: &Checkpoint) -> Result<Checkpoint, &'static str> {
        let (holes, format) = (self.holes.clone(), self.format);
        let options = OpenOptions::new().from(self.format).limits(checkpoint.limits().clone());
        let made = options.open_source(format!("the frame in {}", checkpoint.name()), Box::new(self));
        let made = made.map_err(|_| DAMAGED)?;
        let (mut found, mut spans) = (Vec::with_capacity(holes.len()), Vec::new());
        if arrays(&made) != arrays(checkpoint) {
            return Err("there are other tensors");
        }
        for entry in made.entries().iter().filter(|entry| entry.dtype().is_some()) {
            let same = checkpoint
                .entry(entry.name())
                .is_some_and(|other| entry.dtype() == other.dtype() && entry.shape() == other.shape());
            if !same {
                return Err("tensors have other names, dtypes or shapes");
            }
            let own = of_entry(entry, format).filter(|own| own.is_sorted_by_key(Holes::begin)).ok_or(DAMAGED)?;
            spans.extend(span(&own));
            found.extend(own);
        }
        found.sort_unstable_by_key(Holes::begin);
        if made.is_gzip()
            || !is_apart(spans)
            || made.check_whole().is_err()
            || expand(&found).is_none_or(|found| found != holes)
        {
            return Err(DAMAGED);
        }
        if made.entries().iter().any(|entry| entry.fault().is_some() || entry.foreign_dtype().is_some())
            || !made.is_bare().is_ok_and(|is_bare| is_bare)
        {
            return Err(MORE);
        }
        // Checks that values can be written into the file.
        let arrays: Vec<&Entry> = made.entries().iter().filter(|entry| entry.dtype().is_some()).collect();
        Layout::refilled(&made, &arrays).map_err(|_| DAMAGED)?;
        Ok(made)
    }
}

impl Holes {
    fn begin(&self) -> u64 {
        let (Self::One(at, _) | Self::Many(at, ..)) = *self;
        at
    }

    fn count(&self) -> u64 {
        if let Self::Many(.., count, _) = *self { count } else { 1 }
    }

    fn end(&self) -> u64 {
        match *self {
            Self::One(at, len) => at + len,
            Self::Many(at, len, count, stride) => at + (count - 1) * stride + len,
        }
    }

    fn bytes(&self) -> u64 {
        let (Self::One(_, len) | Self::Many(_, len, ..)) = *self;
        len.saturating_mul(self.count())
    }
}

/// The ranges of an array's bytes in the file, if stored uncompressed and in order; empty for an array without bytes.
fn of_entry(entry: &Entry, format: Format) -> Option<Vec<Holes>> {
    // Caffe's values are never swapped or reordered; between values that are not adjacent lie keys.
    let is_stored = entry.is_plain() || format.is_caffe();
    if entry.fault().is_some() || !is_stored || entry.segments().is_empty() && entry.byte_len() > 0 {
        return None;
    }
    let width = entry.dtype()?.size() as u64;
    let runs = entry.segments().iter().filter(|run| run.count > 0);
    let holes = runs.map(|run| {
        if run.stride == width {
            Holes::One(run.offset, run.count * width)
        } else {
            Holes::Many(run.offset, width, run.count, run.stride)
        }
    });
    Some(holes.collect())
}

/// From a tensor's first byte in the file to the end of the last one; `None` for a tensor without bytes.
fn span(holes: &[Holes]) -> Option<Range<u64>> {
    let begin = holes.iter().map(Holes::begin).min()?;
    Some(begin..holes.iter().map(Holes::end).max()?)
}

/// Expands the list to single holes; `None` for too many holes, or where an offset overflows.
fn expand(stored: &[Holes]) -> Option<Vec<Hole>> {
    let count = stored.iter().map(Holes::count).fold(0, u64::saturating_add);
    let mut holes = Vec::with_capacity(usize::try_from(count).ok().filter(|_| count <= MAX_HOLES)?);
    for some in stored {
        match *some {
            Holes::One(at, len) => holes.push(Hole { at, len }),
            Holes::Many(at, len, count, stride) => {
                for i in 0..count {
                    holes.push(Hole { at: i.checked_mul(stride)?.checked_add(at)?, len });
                }
            }
        }
    }
    Some(holes)
}

/// The number of a file's bytes outside the holes; `None` where the holes are not in order, overlap or reach beyond the
/// file.
fn len_outside(len: u64, holes: &[Hole]) -> Option<u64> {
    let (mut end, mut outside) = (0, 0);
    for hole in holes {
        outside += hole.at.checked_sub(end)?;
        end = hole.at.checked_add(hole.len)?;
    }
    Some(outside + len.checked_sub(end)?)
}

/// The gaps before, between and after the holes of a file.
fn gaps(len: u64, holes: &[Hole]) -> Vec<Gap> {
    let begins = std::iter::once(0).chain(holes.iter().map(|hole| hole.at + hole.len));
    let ends = holes.iter().map(|hole| hole.at).chain([len]);
    let mut from = 0;
    let gap = |(at, end): (u64, u64)| {
        let gap = Gap { at, len: end - at, from };
        from += gap.len;
        gap
    };
    begins.zip(ends).map(gap).collect()
}

/// The whole file, with zeros in the holes.
impl Source for Frame {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        read_zeros(self.len, offset, buf)?;
        read_runs(
            &self.gaps,
            |gap| gap.at..gap.at + gap.len,
            offset,
            buf,
            |gap, from, part| {
                part.copy_from_slice(&self.kept[(gap.from + from) as usize..][..part.len()]);
                Ok(())
            },
        )
    }
}
