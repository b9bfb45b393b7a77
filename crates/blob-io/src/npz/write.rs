//! Lays out an npz file: local headers, our metadata, central directory, end record.

use std::collections::HashMap;

use crc32fast::Hasher;

use crate::error::Error;
use crate::filenames::floor;
use crate::npy;
use crate::npz::members::{LONGEST, members};
use crate::npz::{CENTRAL, END, END64, EXTRA_ALIGN, EXTRA_NAME, EXTRA_ZIP64, LOCAL, LOCATOR64, NAME_MARK, metadata};
use crate::spec::{TensorSpec, refuse, total, unique};

const FORMAT: &str = "npz";
const ALIGN: u64 = 64;
/// The central directory is written in parts of this size, or a little more.
const PART: usize = 64 << 10;
/// A size or offset of 32 bits that refers to the ZIP64 field.
const FULL: u32 = u32::MAX;
/// Flag bit 11: the name is UTF-8.
const UTF8: u16 = 1 << 11;
/// 1980-01-01, the earliest date in a zip: our output depends on the tensors alone.
const DATE: u16 = 1 << 5 | 1;
/// Made by version 4.5 on Unix, so that the mode below applies.
const MADE_BY: u16 = 3 << 8 | 45;
/// A regular file, rw-r--r--.
const MODE: u32 = 0o100_644 << 16;

/// The frame around the tensors.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    tensors: Vec<NewMember>,
    /// The npy headers, each one once: tensors of one dtype and shape have the same.
    heads: Vec<Vec<u8>>,
    /// The metadata's keys, and the length of the metadata block.
    keys: Vec<String>,
    block: usize,
    /// Where the last tensor ends, and the metadata begin.
    tail: u64,
}

/// A member. A file may have a million of them, so that each takes as little memory as it can.
#[derive(Clone, Debug)]
struct NewMember {
    name: Box<str>,
    /// The tensor's own name, if the member's differs.
    raw: Option<Box<str>>,
    /// The place of the npy header among the headers.
    head: u32,
    /// The offset of the local header.
    offset: u64,
    /// The whole member: the npy header and the data.
    size: u64,
    /// The number of zeros in the alignment field.
    padding: u16,
}

pub(crate) fn plan(specs: &[TensorSpec], metadata: &[(String, String)]) -> Result<(Plan, Vec<u64>, u64), Error> {
    unique(FORMAT, "the tensor", specs.iter().map(|spec| &*spec.name))?;
    unique(FORMAT, "the metadata key", metadata.iter().map(|(k, _)| k.as_str()))?;
    let paths = members(&specs.iter().map(|spec| &*spec.name).collect::<Vec<_>>());
    let mut pos = 0;
    let mut tensors = Vec::with_capacity(specs.len());
    let mut offsets = Vec::with_capacity(specs.len());
    let (mut heads, mut places) = (Vec::new(), HashMap::new());
    for (spec, path) in specs.iter().zip(paths) {
        let head = npy::write::header(spec)?;
        let len = head.len() as u64;
        let place = *places.entry((spec.dtype, &spec.shape)).or_insert(heads.len());
        if place == heads.len() {
            heads.push(head);
        }
        let mut member = NewMember {
            raw: name_field(&spec.name, &path)?,
            name: [&*path, ".npy"].concat().into_boxed_str(),
            offset: pos,
            size: total(FORMAT, len, spec.byte_len())?,
            padding: 0,
            head: u32::try_from(place).map_err(|_| refuse(FORMAT, "there are too many tensors"))?,
        };
        member.align();
        offsets.push(member.start() + len);
        pos = total(FORMAT, member.start(), member.size)?;
        tensors.push(member);
    }
    let tail = pos;
    let plan = Plan {
        tensors,
        heads,
        keys: metadata.iter().map(|(key, _)| key.clone()).collect(),
        block: metadata::block(metadata, tail).len(),
        tail,
    };
    let len = total(FORMAT, plan.directory_begin(), plan.directory_len())?;
    Ok((plan, offsets, len))
}

/// The tensor's name for our extra field; `None` if the member has the same name.
fn name_field(name: &str, member: &str) -> Result<Option<Box<str>>, Error> {
    if name.len() >= LONGEST {
        let (len, start) = (name.len(), &name[..floor(name, 60)]);
        let message = format!("the tensor {start:?}… has a name of {len} bytes; a zip keeps less than {LONGEST}");
        return Err(refuse(FORMAT, message));
    }
    Ok((name != member).then(|| name.into()))
}

impl Plan {
    /// Calls `take` with each part of the frame: one at a time, because many members have long headers together.
    pub(crate) fn each_part<F>(&self, metadata: &[(String, String)], crcs: &[u32], mut take: F) -> Result<(), Error>
    where
        F: FnMut(u64, &[u8]) -> Result<(), Error>,
    {
        if !self.keys.iter().eq(metadata.iter().map(|(key, _)| key)) {
            return Err(refuse(FORMAT, "the metadata have other keys than in the layout"));
        }
        let tail = metadata::block(metadata, self.tail);
        if tail.len() != self.block {
            let (found, planned) = (tail.len(), self.block);
            let message = format!("the metadata take {found} bytes, in the layout {planned}");
            return Err(refuse(FORMAT, message));
        }
        if crcs.len() != self.tensors.len() {
            let message = format!("{} CRCs for {} tensors", crcs.len(), self.tensors.len());
            return Err(refuse(FORMAT, message));
        }
        let mut all = Vec::with_capacity(crcs.len());
        for (member, crc) in self.tensors.iter().zip(crcs) {
            let head = &self.heads[member.head as usize];
            let mut whole = Hasher::new();
            whole.update(head);
            whole.combine(&Hasher::new_with_initial_len(*crc, member.size - head.len() as u64));
            let crc = whole.finalize();
            all.push(crc);
            let mut part = member.local(crc);
            part.extend_from_slice(head);
            take(member.offset, &part)?;
        }
        if !tail.is_empty() {
            take(self.tail, &tail)?;
        }
        self.directory(&all, take)
    }

    /// Where the central directory begins.
    fn directory_begin(&self) -> u64 {
        self.tail.saturating_add(self.block as u64)
    }

    /// The length of the central directory and of the end of the archive.
    fn directory_len(&self) -> u64 {
        let (mut one, mut len) = (Vec::new(), 0);
        for member in &self.tensors {
            one.clear();
            member.central(0, &mut one);
            len += one.len() as u64;
        }
        one.clear();
        self.end(len, &mut one);
        len + one.len() as u64
    }

    /// Hands over the central directory and the end of the archive, a few records at a time.
    fn directory<F>(&self, crcs: &[u32], mut take: F) -> Result<(), Error>
    where
        F: FnMut(u64, &[u8]) -> Result<(), Error>,
    {
        let (mut at, mut part) = (self.directory_begin(), Vec::new());
        for (member, crc) in self.tensors.iter().zip(crcs) {
            member.central(*crc, &mut part);
            if part.len() >= PART {
                take(at, &part)?;
                at += part.len() as u64;
                part.clear();
            }
        }
        self.end(at + part.len() as u64 - self.directory_begin(), &mut part);
        take(at, &part)
    }

    /// Writes the end of the archive, behind a directory of `len` bytes.
    fn end(&self, len: u64, out: &mut Vec<u8>) {
        let begin = self.directory_begin();
        let count = self.tensors.len() as u64;
        if count >= u64::from(u16::MAX) || len >= u64::from(FULL) || begin >= u64::from(FULL) {
            put32(out, END64);
            put64(out, 44); // length of the rest of this record
            put16(out, MADE_BY);
            put16(out, 45);
            put32(out, 0);
            put32(out, 0);
            for number in [count, count, len, begin] {
                put64(out, number);
            }
            put32(out, LOCATOR64);
            put32(out, 0);
            put64(out, begin + len);
            put32(out, 1);
        }
        put32(out, END);
        put32(out, 0);
        let short = u16::try_from(count).unwrap_or(u16::MAX);
        put16(out, short);
        put16(out, short);
        put32(out, clamp(len));
        put32(out, clamp(begin));
        put16(out, 0);
    }
}

impl NewMember {
    /// Pads the local header so that the following content is aligned.
    fn align(&mut self) {
        let start = self.start();
        self.padding = (start.next_multiple_of(ALIGN) - start) as u16;
    }

    /// The offset of the member's content.
    fn start(&self) -> u64 {
        let align = 6 + u64::from(self.padding);
        self.offset + 30 + self.name.len() as u64 + self.zip64() + align
    }

    /// The length of the local header's ZIP64 field.
    fn zip64(&self) -> u64 {
        if self.size >= u64::from(FULL) { 20 } else { 0 }
    }

    fn local(&self, crc: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity((self.start() - self.offset) as usize);
        put32(&mut out, LOCAL);
        self.common(crc, &mut out);
        put16(&mut out, (self.start() - self.offset) as u16 - 30 - self.name.len() as u16);
        out.extend_from_slice(self.name.as_bytes());
        if self.zip64() > 0 {
            put16(&mut out, EXTRA_ZIP64);
            put16(&mut out, 16);
            put64(&mut out, self.size);
            put64(&mut out, self.size);
        }
        put16(&mut out, EXTRA_ALIGN);
        put16(&mut out, 2 + self.padding);
        put16(&mut out, ALIGN as u16);
        out.resize(out.len() + usize::from(self.padding), 0);
        out
    }

    /// The fields that both headers have, from the version to the name's length.
    fn common(&self, crc: u32, out: &mut Vec<u8>) {
        put16(out, if self.zip64() > 0 || self.offset >= u64::from(FULL) { 45 } else { 20 });
        put16(out, UTF8);
        put16(out, 0); // stored
        put16(out, 0); // midnight
        put16(out, DATE);
        put32(out, crc);
        put32(out, clamp(self.size));
        put32(out, clamp(self.size));
        put16(out, self.name.len() as u16);
    }

    fn central(&self, crc: u32, out: &mut Vec<u8>) {
        let mut extra = Vec::new();
        let numbers: Vec<u64> =
            [self.size, self.size, self.offset].into_iter().filter(|n| *n >= u64::from(FULL)).collect();
        if !numbers.is_empty() {
            put16(&mut extra, EXTRA_ZIP64);
            put16(&mut extra, numbers.len() as u16 * 8);
            numbers.iter().for_each(|n| put64(&mut extra, *n));
        }
        if let Some(raw) = &self.raw {
            put16(&mut extra, EXTRA_NAME);
            put16(&mut extra, (NAME_MARK.len() + raw.len()) as u16);
            extra.extend_from_slice(NAME_MARK);
            extra.extend_from_slice(raw.as_bytes());
        }
        put32(out, CENTRAL);
        put16(out, MADE_BY);
        self.common(crc, out);
        put16(out, extra.len() as u16);
        put16(out, 0); // comment
        put16(out, 0); // disk
        put16(out, 0); // internal attributes
        put32(out, MODE);
        put32(out, clamp(self.offset));
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&extra);
    }
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(FULL)
}

fn put16(out: &mut Vec<u8>, n: u16) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}
