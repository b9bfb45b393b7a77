//! The layout of an npz file: its local headers, its central directory, its end.

use crc32fast::Hasher;

use crate::error::Error;
use crate::filenames::{file_names, floor};
use crate::layout::{Place, TensorSpec, refuse, total, unique};
use crate::npy;
use crate::npz::{
    CENTRAL, END, END64, EXTRA_ALIGN, EXTRA_NAME, EXTRA_ZIP64, LOCAL, LOCATOR64, NAME_MARK, RECEIPT,
};

const FORMAT: &str = "npz";
const ALIGN: u64 = 64;
/// A size or offset of 32 bits that says: look at the ZIP64 field.
const FULL: u32 = u32::MAX;
/// Flag bit 11: the name is UTF-8.
const UTF8: u16 = 1 << 11;
/// 1980-01-01, the first day that a zip can name: what we write depends on the tensors alone.
const DATE: u16 = 1 << 5 | 1;
/// Made by version 4.5 on Unix, so that the mode below counts.
const MADE_BY: u16 = 3 << 8 | 45;
/// A regular file, rw-r--r--.
const MODE: u32 = 0o100_644 << 16;

/// A name in the private field is shorter: with the ZIP64 field it fits the 65,535 bytes of all fields.
const LONGEST_NAME: usize = 65_000;

/// What surrounds the tensors.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    tensors: Vec<Member>,
    /// The metadata's keys, and the members that hold their values.
    texts: Vec<(String, Member)>,
    /// Where the last tensor ends: from there on the frame is one part.
    tail: u64,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    /// The tensor's own name or the text's key, where the member's does not tell it.
    raw: Option<String>,
    /// The npy header; empty for a text.
    head: Vec<u8>,
    /// Where the local header lies.
    offset: u64,
    /// The whole member: the npy header and the data, or the text.
    size: u64,
    /// Zeros that the alignment field holds; `None` without that field.
    padding: Option<u16>,
}

pub(crate) fn plan(
    specs: &[TensorSpec],
    metadata: &[(String, String)],
) -> Result<(Plan, Vec<Place>, u64), Error> {
    unique(FORMAT, "the tensor", specs.iter().map(TensorSpec::name))?;
    unique(
        FORMAT,
        "the metadata key",
        metadata.iter().map(|(k, _)| k.as_str()),
    )?;
    let raw: Vec<&str> = specs.iter().map(TensorSpec::name).collect();
    let mut pos = 0;
    let mut tensors = Vec::with_capacity(specs.len());
    let mut places = Vec::with_capacity(specs.len());
    for (spec, path) in specs.iter().zip(file_names(&raw)) {
        let head = npy::write::header(spec)?;
        let len = spec.byte_len();
        let mut member = Member {
            raw: kept("the tensor", spec.name(), path != spec.name())?,
            name: path + ".npy",
            offset: pos,
            size: total(FORMAT, head.len() as u64, len)?,
            padding: None,
            head,
        };
        member.align();
        let offset = member.start() + member.head.len() as u64;
        places.push(Place { offset, len });
        pos = total(FORMAT, member.start(), member.size)?;
        tensors.push(member);
    }
    let tail = pos;
    let keys: Vec<&str> = metadata.iter().map(|(key, _)| key.as_str()).collect();
    let mut texts = Vec::with_capacity(metadata.len());
    for ((key, value), path) in metadata.iter().zip(file_names(&keys)) {
        let member = Member {
            // A reader may take a text in a folder for anybody's, so ours is marked.
            raw: kept("the metadata key", key, path != *key || path.contains('/'))?,
            name: if key == RECEIPT.0 {
                RECEIPT.1.to_owned()
            } else {
                path + ".txt"
            },
            head: Vec::new(),
            offset: pos,
            size: value.len() as u64,
            padding: None,
        };
        pos = total(FORMAT, member.start(), member.size)?;
        texts.push((key.clone(), member));
    }
    let plan = Plan {
        tensors,
        texts,
        tail,
    };
    let end = plan.directory(&vec![0; plan.count()]).len() as u64;
    let len = total(FORMAT, pos, end)?;
    Ok((plan, places, len))
}

/// The name, where the private field must keep it.
fn kept(what: &str, name: &str, needed: bool) -> Result<Option<String>, Error> {
    if needed && name.len() >= LONGEST_NAME {
        let (len, start) = (name.len(), &name[..floor(name, 60)]);
        let message = format!(
            "{what} {start:?}… has a name of {len} bytes; a zip keeps less than {LONGEST_NAME}"
        );
        return Err(refuse(FORMAT, message));
    }
    Ok(needed.then(|| name.to_owned()))
}

impl Plan {
    pub(crate) fn frame(
        &self,
        places: &[Place],
        metadata: &[(String, String)],
        crcs: &[u32],
    ) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        if !self
            .texts
            .iter()
            .map(|(key, _)| key)
            .eq(metadata.iter().map(|(key, _)| key))
        {
            return Err(refuse(
                FORMAT,
                "the metadata have other keys than in the layout",
            ));
        }
        if crcs.len() != self.tensors.len() {
            let message = format!("{} CRCs for {} tensors", crcs.len(), self.tensors.len());
            return Err(refuse(FORMAT, message));
        }
        let mut parts = Vec::with_capacity(self.tensors.len() + 1);
        let mut all = Vec::with_capacity(self.count());
        for ((member, place), crc) in self.tensors.iter().zip(places).zip(crcs) {
            let mut whole = Hasher::new();
            whole.update(&member.head);
            whole.combine(&Hasher::new_with_initial_len(*crc, place.len));
            let crc = whole.finalize();
            all.push(crc);
            let mut part = member.local(crc);
            part.extend_from_slice(&member.head);
            parts.push((member.offset, part));
        }
        let mut tail = Vec::new();
        for ((key, member), (_, value)) in self.texts.iter().zip(metadata) {
            if value.len() as u64 != member.size {
                let (found, planned) = (value.len(), member.size);
                let message =
                    format!("the metadata {key:?} are {found} bytes, in the layout {planned}");
                return Err(refuse(FORMAT, message));
            }
            let crc = crc32fast::hash(value.as_bytes());
            all.push(crc);
            tail.extend_from_slice(&member.local(crc));
            tail.extend_from_slice(value.as_bytes());
        }
        tail.extend_from_slice(&self.directory(&all));
        parts.push((self.tail, tail));
        Ok(parts)
    }

    fn count(&self) -> usize {
        self.tensors.len() + self.texts.len()
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.tensors
            .iter()
            .chain(self.texts.iter().map(|(_, member)| member))
    }

    /// The central directory and the end of the archive.
    fn directory(&self, crcs: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        for (member, crc) in self.members().zip(crcs) {
            member.central(*crc, &mut out);
        }
        let begin = self
            .members()
            .last()
            .map_or(0, |last| last.start() + last.size);
        let (count, len) = (self.count() as u64, out.len() as u64);
        if count >= u64::from(u16::MAX) || len >= u64::from(FULL) || begin >= u64::from(FULL) {
            put32(&mut out, END64);
            put64(&mut out, 44); // what follows of this record
            put16(&mut out, MADE_BY);
            put16(&mut out, 45);
            put32(&mut out, 0);
            put32(&mut out, 0);
            for number in [count, count, len, begin] {
                put64(&mut out, number);
            }
            put32(&mut out, LOCATOR64);
            put32(&mut out, 0);
            put64(&mut out, begin + len);
            put32(&mut out, 1);
        }
        put32(&mut out, END);
        put32(&mut out, 0);
        let short = u16::try_from(count).unwrap_or(u16::MAX);
        put16(&mut out, short);
        put16(&mut out, short);
        put32(&mut out, clamp(len));
        put32(&mut out, clamp(begin));
        put16(&mut out, 0);
        out
    }
}

impl Member {
    /// Pads the local header so that what follows it is aligned.
    fn align(&mut self) {
        self.padding = Some(0);
        let start = self.start();
        self.padding = Some((start.next_multiple_of(ALIGN) - start) as u16);
    }

    /// Where the member's content lies.
    fn start(&self) -> u64 {
        let align = self.padding.map_or(0, |zeros| 6 + u64::from(zeros));
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
        put16(
            &mut out,
            (self.start() - self.offset) as u16 - 30 - self.name.len() as u16,
        );
        out.extend_from_slice(self.name.as_bytes());
        if self.zip64() > 0 {
            put16(&mut out, EXTRA_ZIP64);
            put16(&mut out, 16);
            put64(&mut out, self.size);
            put64(&mut out, self.size);
        }
        if let Some(zeros) = self.padding {
            put16(&mut out, EXTRA_ALIGN);
            put16(&mut out, 2 + zeros);
            put16(&mut out, ALIGN as u16);
            out.resize(out.len() + usize::from(zeros), 0);
        }
        out
    }

    /// What both headers say, from the version to the name's length.
    fn common(&self, crc: u32, out: &mut Vec<u8>) {
        put16(
            out,
            if self.zip64() > 0 || self.offset >= u64::from(FULL) {
                45
            } else {
                20
            },
        );
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
        let numbers: Vec<u64> = [self.size, self.size, self.offset]
            .into_iter()
            .filter(|n| *n >= u64::from(FULL))
            .collect();
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
