//! The parts of a file to be written: known bytes, bytes of an existing file, tensors' values, and protobuf fields of
//! such parts.
//!
//! Pure: computes the length and the offset of every part before anything is written. Knows no format.

use std::collections::HashMap;

use crate::error::Error;
use crate::interleaved::Interleaved;
use crate::spec::{TensorSpec, refuse, total};

/// A part of a file.
#[derive(Clone, Debug)]
pub(crate) enum FilePart {
    Bytes(Vec<u8>),
    /// Bytes of the file that is being changed.
    Copy {
        from: u64,
        len: u64,
    },
    /// A tensor's bytes.
    Values(usize),
    /// A tensor's four-byte values, each a separate field after this key.
    Keyed(usize, u8),
    /// A length-delimited field: the number, and the parts, which are preceded by the total length.
    Field(u32, Vec<FilePart>),
}

/// Bytes of an existing file that go unchanged into a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Where the bytes lie in the existing file.
    pub from: u64,
    /// Where the bytes go in the new file.
    pub to: u64,
    /// The number of bytes: at least one.
    pub len: u64,
}

/// The layout of a file: the offsets of all parts.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) frame: Vec<(u64, Vec<u8>)>,
    pub(crate) copies: Vec<Copied>,
    /// Where each tensor's values begin, in the order of the specs.
    pub(crate) offsets: Vec<u64>,
    pub(crate) len: u64,
    /// Tensors that have other bytes between the values.
    pub(crate) interleaved: HashMap<usize, Interleaved>,
}

impl Placed {
    /// A new file whose tensors each lie in one run.
    pub(crate) fn new(frame: Vec<(u64, Vec<u8>)>, offsets: Vec<u64>, len: u64) -> Self {
        Self { frame, copies: Vec::new(), offsets, len, interleaved: HashMap::new() }
    }
}

/// Computes the offset of every part. Each tensor must be in exactly one part. A file over `max_len` bytes is
/// refused, which Caffe would not read.
pub(crate) fn place(format: &str, parts: &[FilePart], specs: &[TensorSpec], max_len: u64) -> Result<Placed, Error> {
    let lens: Vec<u64> = specs.iter().map(TensorSpec::byte_len).collect();
    let len = total_len(parts, &lens);
    total(format, 0, len)?;
    if len > max_len {
        return Err(refuse(format, format!("the file would have {len} bytes; Caffe reads at most {max_len}")));
    }
    let mut placing = Placing {
        lens: &lens,
        at: 0,
        pending: Vec::new(),
        frame: Vec::new(),
        copies: Vec::new(),
        offsets: vec![None; specs.len()],
        interleaved: HashMap::new(),
    };
    placing.put_all(parts).map_err(|tensor| refuse(format, format!("tensor {tensor} is in the file twice")))?;
    placing.flush();
    if let Some(tensor) = placing.offsets.iter().position(Option::is_none) {
        return Err(refuse(format, format!("tensor {:?} is nowhere in the file", specs[tensor].name)));
    }
    Ok(Placed {
        frame: placing.frame,
        copies: placing.copies,
        offsets: placing.offsets.into_iter().flatten().collect(),
        len,
        interleaved: placing.interleaved,
    })
}

/// The length of parts, at most `u64::MAX`.
fn total_len(parts: &[FilePart], lens: &[u64]) -> u64 {
    let lens_of_parts = parts.iter().map(|part| match part {
        FilePart::Bytes(bytes) => bytes.len() as u64,
        FilePart::Copy { len, .. } => *len,
        FilePart::Values(tensor) => lens[*tensor],
        FilePart::Keyed(tensor, _) => keyed(lens[*tensor]),
        FilePart::Field(number, parts) => {
            let inner = total_len(parts, lens);
            (head(*number, inner).len() as u64).saturating_add(inner)
        }
    });
    lens_of_parts.fold(0, u64::saturating_add)
}

/// The bytes of four-byte values that each have a key of one byte.
fn keyed(len: u64) -> u64 {
    len.saturating_add(len / 4)
}

/// The key and the length prefix of a length-delimited field.
fn head(number: u32, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8);
    varint(&mut bytes, u64::from(number) << 3 | 2);
    varint(&mut bytes, len);
    bytes
}

/// Appends a varint in the shortest form.
pub(crate) fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The parts placed so far.
struct Placing<'a> {
    lens: &'a [u64],
    /// Where the pending bytes end.
    at: u64,
    pending: Vec<u8>,
    frame: Vec<(u64, Vec<u8>)>,
    copies: Vec<Copied>,
    offsets: Vec<Option<u64>>,
    interleaved: HashMap<usize, Interleaved>,
}

impl Placing<'_> {
    /// The error is the index of a tensor that is used twice.
    fn put_all(&mut self, parts: &[FilePart]) -> Result<(), usize> {
        parts.iter().try_for_each(|part| self.put(part))
    }

    fn put(&mut self, part: &FilePart) -> Result<(), usize> {
        match part {
            FilePart::Bytes(bytes) => self.bytes(bytes),
            FilePart::Copy { len: 0, .. } => {}
            FilePart::Copy { from, len } => {
                self.flush();
                let (from, len, to) = (*from, *len, self.at);
                match self.copies.last_mut() {
                    Some(last) if last.from + last.len == from && last.to + last.len == to => last.len += len,
                    _ => self.copies.push(Copied { from, to, len }),
                }
                self.at += len;
            }
            FilePart::Values(tensor) => self.values(*tensor, self.lens[*tensor])?,
            FilePart::Keyed(tensor, key) => {
                let len = self.lens[*tensor];
                if len > 0 {
                    self.bytes(&[*key]);
                    self.interleaved.insert(*tensor, Interleaved::keyed(self.at, len / 4, 4, *key));
                }
                self.values(*tensor, keyed(len).saturating_sub(1))?;
            }
            FilePart::Field(number, parts) => {
                self.bytes(&head(*number, total_len(parts, self.lens)));
                self.put_all(parts)?;
            }
        }
        Ok(())
    }

    fn values(&mut self, tensor: usize, len: u64) -> Result<(), usize> {
        self.flush();
        if self.offsets[tensor].replace(self.at).is_some() {
            return Err(tensor);
        }
        self.at += len;
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
        self.at += bytes.len() as u64;
    }

    /// Puts the pending bytes into the frame, before the next part.
    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let bytes = std::mem::take(&mut self.pending);
            self.frame.push((self.at - bytes.len() as u64, bytes));
        }
    }
}
