//! Puts bytes into the output. `Moves` takes a piece of the source apart into tensors, copied or rounded. `Sink` writes
//! a tensor's bytes into a file, into one of several shards, or into a separate file in a folder.
//!
//! Tensors that the pass cannot handle are read separately.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use blob_io::layout::{Frame, Layout, OutputDir, TensorSpec};
use blob_io::{Checkpoint, Error, Output};

use crate::hash;
use crate::planned::{How, Planned};
use crate::shards::Shards;
use crate::threads::lock;
use crate::transform::Reports;

/// If the average run is shorter than this, gathering runs is faster than writing each one separately.
const SCATTERED: u64 = 4096;

/// A run of this many bytes takes no more.
const LONGEST_RUN: usize = 64 << 10;

/// The moves of a plan, in the source's order.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    checkpoint: &'a Checkpoint,
    tensors: &'a [Planned],
    moves: Vec<Move>,
}

/// Bytes of the source that go to a place in a tensor.
#[derive(Debug)]
struct Move {
    from: u64,
    len: u64,
    tensor: usize,
    /// The offset among the tensor's bytes as read.
    to: u64,
}

impl<'a> Moves<'a> {
    /// The moves, and the tensors that must be read separately: all of them where no pass goes over the source.
    pub(crate) fn of(checkpoint: &'a Checkpoint, tensors: &'a [Planned], has_pass: bool) -> (Self, Vec<usize>) {
        let mut moves: Vec<Move> = Vec::new();
        let mut separate = Vec::new();
        for (tensor, planned) in tensors.iter().enumerate() {
            match planned.how {
                How::Kept => {}
                How::Copy if has_pass && is_in_pass_order(checkpoint, planned) => {
                    let mut to = 0;
                    for run in checkpoint.entries()[planned.entry].segments() {
                        let (from, len) = (run.offset, run.count * run.stride);
                        moves.push(Move { from, len, tensor, to });
                        to += len;
                    }
                }
                _ => separate.push(tensor),
            }
        }
        moves.sort_by_key(|m| m.from);
        // The pass handles each byte once, so arrays that share bytes are read separately.
        let mut end = 0;
        let mut shared = Vec::new();
        for step in &moves {
            if step.from < end {
                shared.push(step.tensor);
            }
            end = end.max(step.from + step.len);
        }
        shared.sort_unstable();
        shared.dedup();
        moves.retain(|m| shared.binary_search(&m.tensor).is_err());
        separate.extend(shared);
        (Self { checkpoint, tensors, moves }, separate)
    }

    /// Calls `put` with the bytes of each tensor in a piece of the source, and with the offset of these bytes in the
    /// tensor. `at` is the piece's offset.
    pub(crate) fn piece<'t>(
        &self,
        at: u64,
        bytes: &[u8],
        tally: &dyn Fn(usize) -> &'t Reports,
        put: &impl Fn(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = at + bytes.len() as u64;
        let first = self.moves.partition_point(|m| m.from + m.len <= at);
        for step in self.moves[first..].iter().take_while(|m| m.from < end) {
            let (a, b) = (step.from.max(at), (step.from + step.len).min(end));
            let (within, bytes) = (a - step.from, &bytes[(a - at) as usize..(b - at) as usize]);
            if self.tensors[step.tensor].casts.is_empty() {
                put(step.tensor, step.to + within, bytes)?
            } else {
                self.rounded(step, within, bytes, tally(step.tensor), put)?
            }
        }
        Ok(())
    }

    /// Rounds the elements that begin in these bytes; the missing end of the last one is read from the source.
    fn rounded(
        &self,
        step: &Move,
        within: u64,
        bytes: &[u8],
        tally: &Reports,
        put: &impl Fn(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let tensor = &self.tensors[step.tensor];
        let width = tensor.read_as.size() as u64;
        let (first, end) = (within.next_multiple_of(width), within + bytes.len() as u64);
        if first >= end {
            return Ok(());
        }
        let put = |element: u64, bytes: &[u8]| {
            tensor.round(step.to + element * width, bytes, tally, |at, bytes| put(step.tensor, at, bytes))
        };
        let whole = end / width * width;
        put(first / width, &bytes[(first - within) as usize..(whole - within) as usize])?;
        if whole == end {
            return Ok(());
        }
        let (begun, mut element) = (&bytes[(whole - within) as usize..], [0; 8]);
        let element = &mut element[..width as usize];
        element[..begun.len()].copy_from_slice(begun);
        hash::read(self.checkpoint, self.checkpoint.source(), step.from + end, &mut element[begun.len()..])?;
        put(whole / width, element)
    }
}

/// Whether a tensor's bytes can be moved in the order of the pass.
fn is_in_pass_order(checkpoint: &Checkpoint, planned: &Planned) -> bool {
    let entry = &checkpoint.entries()[planned.entry];
    // Checksums run along a tensor, so the runs must come in the tensor's order.
    let ordered = entry.segments().is_sorted_by_key(|run| run.offset);
    // Many small runs: a reader gathers several into one larger piece.
    let runs = entry.segments().len() as u64;
    let scattered = runs > 16 && entry.byte_len() / runs < SCATTERED;
    // The reader compares the checksum that the source stores.
    let checked = entry.checked_len().is_some();
    ordered && !scattered && !checked
}

/// Writes tensors' bytes, which several threads may hand over.
pub(crate) struct Sink<'a> {
    to: To<'a>,
    /// The CRC-32 of every part that was put, where checksums are wanted.
    parts: Option<Mutex<Vec<Part>>>,
}

enum To<'a> {
    /// The place of each tensor.
    Files(Vec<Placed<'a>>),
    /// The whole file is copied, and tensors are not written separately.
    Copy(&'a Output),
    /// Only the checksums are wanted.
    Nowhere,
    /// The bytes of a tensor must come in order.
    Folder(Mutex<Folder<'a>>),
}

/// The place of a tensor: its file and its offset there, and, where the file's layout may put other bytes between its
/// values, that and its index in it.
#[derive(Clone, Copy)]
struct Placed<'a> {
    output: &'a Output,
    at: u64,
    layout: Option<(&'a Layout, usize)>,
}

/// The checksum of a part of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    tensor: usize,
    at: u64,
    len: u64,
    crc: u32,
}

/// An unfinished folder of npy files.
pub(crate) struct Folder<'a> {
    dir: &'a OutputDir,
    specs: &'a [TensorSpec],
    files: &'a [String],
    begun: Vec<bool>,
    /// Unfinished files, each with the number of missing bytes: one at a time, unless the source interleaves arrays.
    open: HashMap<usize, (Output, u64)>,
    written: u64,
}

impl<'a> Sink<'a> {
    /// Files with the tensors of each, one after the other.
    pub(crate) fn files(files: &[(&'a Output, &'a Layout, &[Planned])]) -> Self {
        let each = files.iter().flat_map(|(output, layout, tensors)| {
            tensors.iter().map(move |tensor| {
                let at = tensor.slot.map_or(0, |slot| layout.offsets()[slot]);
                Placed { output, at, layout: tensor.slot.map(|slot| (*layout, slot)) }
            })
        });
        let wants_crc = files.iter().any(|(_, layout, _)| layout.wants_crc());
        Self { to: To::Files(each.collect()), parts: wants_crc.then(Mutex::default) }
    }

    pub(crate) fn shards(outputs: &'a [Output], shards: &Shards, tensors: usize) -> Self {
        let places = (0..tensors).map(|tensor| shards.place(tensor));
        let placed = places.map(|(file, at)| Placed { output: &outputs[file], at, layout: None });
        Self { to: To::Files(placed.collect()), parts: None }
    }

    pub(crate) fn copy(output: &'a Output) -> Self {
        Self { to: To::Copy(output), parts: None }
    }

    pub(crate) fn nowhere(layout: &Layout) -> Self {
        Self { to: To::Nowhere, parts: layout.wants_crc().then(Mutex::default) }
    }

    pub(crate) fn folder(dir: &'a OutputDir, specs: &'a [TensorSpec], files: &'a [String]) -> Self {
        let (begun, open) = (vec![false; specs.len()], HashMap::new());
        let folder = Folder { dir, specs, files, begun, open, written: 0 };
        Self { to: To::Folder(Mutex::new(folder)), parts: None }
    }

    /// Whether parts may come from several threads at once, in any order.
    pub(crate) fn takes_any_order(&self) -> bool {
        !matches!(self.to, To::Folder(_))
    }

    /// Takes a piece of the source. Only a copy writes the piece.
    pub(crate) fn put_source(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match &self.to {
            To::Copy(output) => output.write_all_at(at, bytes),
            _ => Ok(()),
        }
    }

    /// Puts bytes at `at` within a tensor.
    pub(crate) fn put(&self, tensor: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let runs = self.runs();
        runs.put(tensor, at, bytes)?;
        runs.finish()
    }

    /// Gathers the tensors of one thread's piece.
    pub(crate) fn runs(&self) -> Runs<'_, 'a> {
        Runs { sink: self, run: RefCell::default() }
    }

    /// The CRC-32 of each of the `tensors` tensors; an empty list where no checksums are wanted.
    pub(crate) fn into_crcs(self, tensors: usize) -> Vec<u32> {
        let Some(parts) = self.parts else {
            return Vec::new();
        };
        let mut parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_unstable_by_key(|part| (part.tensor, part.at));
        let mut crcs = vec![0; tensors];
        for part in parts {
            crcs[part.tensor] = if part.at == 0 {
                part.crc
            } else {
                let mut crc = crc32fast::Hasher::new_with_initial(crcs[part.tensor]);
                crc.combine(&crc32fast::Hasher::new_with_initial_len(part.crc, part.len));
                crc.finalize()
            };
        }
        crcs
    }

    /// Writes the files of tensors without bytes; returns the bytes of all files.
    pub(crate) fn complete_folder(self) -> Result<u64, Error> {
        let To::Folder(folder) = self.to else {
            return Ok(0);
        };
        let mut folder = folder.into_inner().unwrap_or_else(PoisonError::into_inner);
        for tensor in 0..folder.specs.len() {
            if !folder.begun[tensor] {
                folder.put(tensor, &[])?;
            }
        }
        Ok(folder.written)
    }
}

/// Writes short tensors that follow one another in a file together. Otherwise a net with 300,000 biases would take a
/// call of the system for each bias.
pub(crate) struct Runs<'s, 'a> {
    sink: &'s Sink<'a>,
    run: RefCell<Run<'a>>,
}

/// Bytes that belong at an offset of a file.
#[derive(Default)]
struct Run<'a> {
    to: Option<(&'a Output, u64)>,
    bytes: Vec<u8>,
}

impl<'a> Run<'a> {
    fn write(&mut self) -> Result<(), Error> {
        let Some((output, at)) = self.to.take() else { return Ok(()) };
        output.write_all_at(at, &self.bytes)
    }

    /// Adds short bytes to the run that ends at `at`, else to a new one; writes long bytes at once.
    fn put(&mut self, output: &'a Output, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let is_next = self.to.is_some_and(|(own, from)| {
            std::ptr::eq(own, output) && from + self.bytes.len() as u64 == at && self.bytes.len() < LONGEST_RUN
        });
        if !is_next {
            self.write()?;
        }
        if bytes.len() as u64 >= SCATTERED {
            self.write()?;
            return output.write_all_at(at, bytes);
        }
        if self.to.is_none() {
            self.to = Some((output, at));
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl Runs<'_, '_> {
    /// Puts bytes at `at` within a tensor.
    pub(crate) fn put(&self, tensor: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let sink = self.sink;
        if let Some(parts) = &sink.parts {
            let part = Part { tensor, at, len: bytes.len() as u64, crc: crc32fast::hash(bytes) };
            lock(parts).push(part);
        }
        match &sink.to {
            To::Files(places) => {
                let Placed { output, at: begin, layout } = places[tensor];
                let (at, bytes) = layout.map_or((at, bytes.into()), |(layout, slot)| layout.stored(slot, at, bytes));
                self.run.borrow_mut().put(output, begin + at, &bytes)
            }
            To::Copy(_) | To::Nowhere => Ok(()),
            To::Folder(folder) => lock(folder).put(tensor, bytes),
        }
    }

    /// Writes the last run.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.run.into_inner().write()
    }
}

impl Folder<'_> {
    fn put(&mut self, tensor: usize, bytes: &[u8]) -> Result<(), Error> {
        let (mut output, left) = match self.open.remove(&tensor) {
            Some(open) => open,
            None => self.begin(tensor)?,
        };
        output.write_all(bytes)?;
        self.written += bytes.len() as u64;
        match left - bytes.len() as u64 {
            0 => output.finish(),
            left => {
                self.open.insert(tensor, (output, left));
                Ok(())
            }
        }
    }

    fn begin(&mut self, tensor: usize) -> Result<(Output, u64), Error> {
        self.begun[tensor] = true;
        let layout = Layout::new(&self.specs[tensor..=tensor], Frame::Npy)?;
        let mut output = self.dir.file(&self.files[tensor])?;
        output.set_len(layout.len())?;
        for (_, head) in layout.frame(&[], &[])? {
            output.write_all(&head)?;
            self.written += head.len() as u64;
        }
        Ok((output, self.specs[tensor].byte_len()))
    }
}
