//! A file without its tensors' bytes, its frame: a receipt keeps the source's, so that the way back gives the same
//! file.
//!
//! Relies on the formats' readers: a frame counts only if the file that it makes opens as its format, and has the
//! tensors in its holes. The text of a receipt is `receipt`'s.

mod base64;

use std::io::{self, Read, Write};
use std::ops::Range;

use blob_io::{Checkpoint, Entry, Error, Format, Layout, OpenOptions, Source};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::hash;
use crate::planned::Planned;
use crate::receipt::{KeptBits, kept_bits, own, read};

/// A longer frame is left out: a receipt has 4 MiB, which our readers accept of metadata.
const MAX_BYTES: u64 = 4 << 20;
/// A frame of more holes is left out, too: each takes 40 bytes of memory, however short the text is that says so.
const MAX_HOLES: u64 = 1 << 20;

/// A file's bytes but for those of its tensors.
pub(crate) struct Frame {
    format: Format,
    /// The file's length.
    len: u64,
    holes: Vec<Hole>,
    /// What lies before, between and behind the holes.
    kept: Vec<u8>,
    gaps: Vec<Gap>,
}

/// Where some of the kept bytes lie in the file.
struct Gap {
    at: u64,
    len: u64,
    /// Where they begin among the kept ones.
    from: u64,
}

/// The place of a tensor's bytes in a file, or of a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hole {
    at: u64,
    len: u64,
}

/// A frame as a receipt has it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Text {
    /// The format's short name.
    format: String,
    /// The file's length.
    bytes: u64,
    /// Where tensors' bytes lie, in the order of the file.
    holes: Vec<Holes>,
    /// The BLAKE3 of all bytes outside of the holes.
    blake3: String,
    /// These bytes, as a raw deflate stream in base64.
    deflate: String,
}

/// Holes as a receipt has them.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Holes {
    /// Where the bytes begin, and how many there are.
    One(u64, u64),
    /// The same of the first of several; how many these are, and how far each begins behind the one before it.
    Many(u64, u64, u64, u64),
}

/// What a receipt says of a frame.
#[derive(Deserialize)]
struct Framed {
    #[serde(default)]
    frame: Option<Text>,
}

/// Whether a receipt has a frame, of whatever kind.
#[derive(Deserialize)]
struct HasFrame {
    #[serde(default)]
    frame: Option<IgnoredAny>,
}

/// What a receipt says of a frame's format, where the rest cannot be read.
#[derive(Deserialize)]
struct OfFormat {
    frame: FormatName,
}

#[derive(Deserialize)]
struct FormatName {
    format: String,
}

/// The frame of a file whose tensors go into the output as they are; or why the file has none.
///
/// # Errors
/// What reading the file returns.
pub(crate) fn of(checkpoint: &Checkpoint, tensors: &[Planned]) -> Result<Result<Value, &'static str>, Error> {
    // A frame is handed on, so that the file can still be restored after several conversions.
    if let Some(text) = own(checkpoint).and_then(read::<Framed>).and_then(|framed| framed.frame) {
        return Ok(Ok(json!(text)));
    }
    let format = checkpoint.format();
    let single = format == Format::Npy && checkpoint.entries().len() == 1;
    // Files of others; in ours is a receipt, which would stand within the other. Shards are several files.
    let is_with_receipt = matches!(format, Format::Hdf5 | Format::Npz | Format::Safetensors);
    let others = is_with_receipt && own(checkpoint).is_none() && checkpoint.shards().is_empty();
    if !(format.is_caffe() || format.is_mxnet() || format.is_neoml() || single || others) {
        return Ok(Err("files of the source's format are written anew"));
    }
    if checkpoint.entries().iter().filter(|entry| entry.dtype().is_some()).count() != tensors.len() {
        return Ok(Err("tensors were left out"));
    }
    let (mut said, mut spans) = (Vec::new(), Vec::new());
    for tensor in tensors {
        match of_entry(&checkpoint.entries()[tensor.entry], format) {
            Some(holes) if tensor.is_as_read() => {
                spans.extend(span(&holes));
                said.extend(holes);
            }
            _ => return Ok(Err("values do not lie in runs of row-major bytes")),
        }
    }
    said.sort_unstable_by_key(Holes::begin);
    let Some(holes) = each(&said) else {
        return Ok(Err("values lie in more than 1,048,576 pieces"));
    };
    spans.sort_unstable_by_key(|span| span.start);
    if spans.windows(2).any(|pair| pair[1].start < pair[0].end) {
        return Ok(Err("values of two tensors, as data and diff, lie between each other, or share bytes"));
    }
    let Some(room) = around(checkpoint.file_len(), &holes).filter(|room| *room <= MAX_BYTES) else {
        return Ok(Err("more than 4 MiB lie around the tensors"));
    };
    let mut kept = vec![0; room as usize];
    let mut rest = &mut kept[..];
    for gap in gaps(checkpoint.file_len(), &holes) {
        let (bytes, behind) = rest.split_at_mut(gap.len as usize);
        hash::read(checkpoint, checkpoint.source(), gap.at, bytes)?;
        rest = behind;
    }
    let text = Text {
        format: format.name().to_owned(),
        bytes: checkpoint.file_len(),
        holes: said,
        blake3: blake3::hash(&kept).to_hex().to_string(),
        deflate: base64::encode(&deflated(&kept)),
    };
    let frame = Frame::new(format, checkpoint.file_len(), holes, kept);
    // What cannot be put together again, as a file that is taken for a format by its values alone, is of no use.
    Ok(match frame.open(checkpoint, &KeptBits::default()) {
        Ok(_) => Ok(json!(text)),
        Err(_) => Err("the file cannot be read without its values"),
    })
}

/// The file that a frame in the receipt of `checkpoint` makes, to be filled with its tensors, or why they do not fit;
/// `None` where the receipt has no frame of a file of this format.
pub(crate) fn source(checkpoint: &Checkpoint, format: Format) -> Option<Result<Checkpoint, &'static str>> {
    let receipt = own(checkpoint)?;
    let Some(framed) = read::<Framed>(receipt) else {
        read::<HasFrame>(receipt)?.frame?;
        let is_of_format = read::<OfFormat>(receipt).is_none_or(|of| of.frame.format == format.name());
        return is_of_format.then_some(Err("it is damaged"));
    };
    let text = framed.frame.filter(|text| text.format == format.name())?;
    // The file's length is bounded by that of values that are there.
    let values = checkpoint.entries().iter().map(Entry::byte_len).fold(0, u64::saturating_add);
    if text.holes.iter().map(Holes::bytes).fold(0, u64::saturating_add) > values {
        return Some(Err("there are other tensors"));
    }
    let frame = Frame::read(format, &text).ok_or("it is damaged");
    Some(frame.and_then(|frame| frame.open(checkpoint, &kept_bits(checkpoint))))
}

impl Frame {
    fn new(format: Format, len: u64, holes: Vec<Hole>, kept: Vec<u8>) -> Self {
        let gaps = gaps(len, &holes);
        Self { format, len, holes, kept, gaps }
    }

    /// The frame of a text that comes from a file, and so may say anything.
    fn read(format: Format, text: &Text) -> Option<Self> {
        let holes = each(&text.holes)?;
        let room = around(text.bytes, &holes).filter(|room| *room <= MAX_BYTES)?;
        let packed = base64::decode(&text.deflate)?;
        let mut kept = Vec::new();
        DeflateDecoder::new(&packed[..]).take(room + 1).read_to_end(&mut kept).ok()?;
        let is_whole = kept.len() as u64 == room && *blake3::hash(&kept).to_hex() == *text.blake3;
        is_whole.then(|| Self::new(format, text.bytes, holes, kept))
    }

    /// The file with zeros for its tensors, if these have the names, dtypes and shapes of those of `checkpoint`, and
    /// lie in the holes.
    fn open(self, checkpoint: &Checkpoint, bits: &KeptBits) -> Result<Checkpoint, &'static str> {
        let (holes, format) = (self.holes.clone(), self.format);
        let options = OpenOptions::new().from(self.format).limits(checkpoint.limits().clone());
        let made = options.open_source(format!("the frame in {}", checkpoint.name()), Box::new(self));
        let made = made.map_err(|_| "it is damaged")?;
        let mut found = Vec::with_capacity(holes.len());
        let arrays = |file: &Checkpoint| file.entries().iter().filter(|entry| entry.dtype().is_some()).count();
        if arrays(&made) != arrays(checkpoint) {
            return Err("there are other tensors");
        }
        for entry in made.entries().iter().filter(|entry| entry.dtype().is_some()) {
            let same = checkpoint
                .entry(entry.name())
                .is_some_and(|other| entry.dtype() == bits.dtype(other) && entry.shape() == other.shape());
            if !same {
                return Err("tensors have other names, dtypes or shapes");
            }
            found.extend(of_entry(entry, format).ok_or("it is damaged")?);
        }
        found.sort_unstable_by_key(Holes::begin);
        if made.is_gzip() || made.whole().is_err() || each(&found).is_none_or(|found| found != holes) {
            return Err("it is damaged");
        }
        // Values can be put into it.
        let arrays: Vec<&Entry> = made.entries().iter().filter(|entry| entry.dtype().is_some()).collect();
        Layout::refilled(&made, &arrays).map_err(|_| "it is damaged")?;
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

/// Where an array's bytes lie, if they are stored as they are; nothing for an array without bytes.
fn of_entry(entry: &Entry, format: Format) -> Option<Vec<Holes>> {
    // Caffe's values are never swapped or reordered; where they do not follow each other, there are keys between them.
    let is_stored = entry.is_plain() || format.is_caffe();
    if entry.fault().is_some() || !is_stored || entry.segments().is_empty() && entry.byte_len() > 0 {
        return None;
    }
    let width = entry.dtype()?.size() as u64;
    let runs = entry.segments().iter().filter(|run| run.count > 0);
    let holes = runs.map(|run| match run.stride == width {
        true => Holes::One(run.offset, run.count * width),
        false => Holes::Many(run.offset, width, run.count, run.stride),
    });
    Some(holes.collect())
}

/// From a tensor's first byte in the file to the end of its last one; `None` where it has no bytes.
fn span(holes: &[Holes]) -> Option<Range<u64>> {
    let begin = holes.iter().map(Holes::begin).min()?;
    Some(begin..holes.iter().map(Holes::end).max()?)
}

/// Each hole on its own; `None` where they are too many, or leave every file.
fn each(said: &[Holes]) -> Option<Vec<Hole>> {
    let count = said.iter().map(Holes::count).fold(0, u64::saturating_add);
    let mut holes = Vec::with_capacity(usize::try_from(count).ok().filter(|_| count <= MAX_HOLES)?);
    for some in said {
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

/// How many bytes lie around the holes of a file; `None` where they are not in order, share bytes or leave the file.
fn around(len: u64, holes: &[Hole]) -> Option<u64> {
    let (mut end, mut room) = (0, 0);
    for hole in holes {
        room += hole.at.checked_sub(end)?;
        end = hole.at.checked_add(hole.len)?;
    }
    Some(room + len.checked_sub(end)?)
}

/// What lies before, between and behind the holes of a file.
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

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The whole file, with zeros in the holes.
impl Source for Frame {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.fill(0);
        let first = self.gaps.partition_point(|gap| gap.at + gap.len <= offset);
        for gap in self.gaps[first..].iter().take_while(|gap| gap.at < end) {
            let (begin, end) = (gap.at.max(offset), (gap.at + gap.len).min(end));
            let from = (gap.from + begin - gap.at) as usize;
            let len = end.saturating_sub(begin) as usize;
            buf[(begin - offset) as usize..][..len].copy_from_slice(&self.kept[from..][..len]);
        }
        Ok(())
    }
}
