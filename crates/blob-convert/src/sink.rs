//! Writes a tensor's bytes into a file, into one of several shards, or into a separate file in a folder.
//!
//! Relies on `moves` for the bytes of a piece of the source that belong to a tensor.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use blob_io::layout::{Frame, Layout, OutputDir, TensorSpec};
use blob_io::{Error, Output};

use crate::moves::SCATTERED;
use crate::planned::Planned;
use crate::shards::Shards;
use crate::threads::lock;

/// A run of this many bytes takes no more.
const LONGEST_RUN: usize = 64 << 10;

/// Writes tensors' bytes, which several threads may hand over.
pub(crate) struct Sink<'a> {
    to: To<'a>,
    /// The CRC-32 of the tensors, where checksums are wanted.
    sums: Option<Mutex<Sums>>,
}

/// The CRC-32 of tensors that were put as a whole, by number, and of the pieces of others.
#[derive(Default)]
struct Sums {
    whole: Vec<u32>,
    pieces: Vec<PieceCrc>,
}

enum To<'a> {
    Files(Vec<Filled<'a>>),
    /// The shards, each with its output.
    Shards(&'a [Output], &'a Shards),
    /// The whole file is copied, and tensors are not written separately.
    Copy(&'a Output),
    /// Only the checksums are wanted.
    Nowhere,
    /// The bytes of a tensor must come in order.
    Folder(Mutex<Folder<'a>>),
}

/// A file, and the tensors that go there. The first one has the number `first` among those of all files.
struct Filled<'a> {
    output: &'a Output,
    layout: &'a Layout,
    tensors: &'a [Planned],
    first: usize,
}

/// The place of a tensor: its file and its offset there, and, where the file's layout may put other bytes between its
/// values, that and its index in it.
#[derive(Clone, Copy)]
struct Placed<'a> {
    output: &'a Output,
    at: u64,
    layout: Option<(&'a Layout, usize)>,
    /// The tensor's length, where the file's layout tells.
    len: Option<u64>,
}

impl<'a> Filled<'a> {
    fn place(&self, number: usize) -> Placed<'a> {
        let tensor = &self.tensors[number - self.first];
        let at = tensor.slot.map_or(0, |slot| self.layout.offsets()[slot]);
        let layout = tensor.slot.map(|slot| (self.layout, slot));
        Placed { output: self.output, at, layout, len: Some(tensor.spec.byte_len()) }
    }
}

/// The checksum of a piece of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceCrc {
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
    pub(crate) fn files(files: &[(&'a Output, &'a Layout, &'a [Planned])]) -> Self {
        let mut count = 0;
        let each = files.iter().map(|(output, layout, tensors)| {
            let first = count;
            count += tensors.len();
            Filled { output, layout, tensors, first }
        });
        let to = To::Files(each.collect());
        let wants_crc = files.iter().any(|(_, layout, _)| layout.wants_crc());
        Self { to, sums: wants_crc.then(|| Mutex::new(Sums { whole: vec![0; count], pieces: Vec::new() })) }
    }

    pub(crate) fn shards(outputs: &'a [Output], shards: &'a Shards) -> Self {
        Self { to: To::Shards(outputs, shards), sums: None }
    }

    pub(crate) fn copy(output: &'a Output) -> Self {
        Self { to: To::Copy(output), sums: None }
    }

    pub(crate) fn nowhere(layout: &Layout) -> Self {
        Self { to: To::Nowhere, sums: layout.wants_crc().then(Mutex::default) }
    }

    pub(crate) fn folder(dir: &'a OutputDir, specs: &'a [TensorSpec], files: &'a [String]) -> Self {
        let (begun, open) = (vec![false; specs.len()], HashMap::new());
        let folder = Folder { dir, specs, files, begun, open, written: 0 };
        Self { to: To::Folder(Mutex::new(folder)), sums: None }
    }

    /// The place of a tensor in a file of several.
    fn place(&self, tensor: usize) -> Option<Placed<'a>> {
        match &self.to {
            To::Files(files) => {
                let file = files.partition_point(|file| file.first <= tensor).checked_sub(1)?;
                Some(files[file].place(tensor))
            }
            To::Shards(outputs, shards) => {
                let (file, at) = shards.place(tensor);
                Some(Placed { output: &outputs[file], at, layout: None, len: None })
            }
            To::Copy(_) | To::Nowhere | To::Folder(_) => None,
        }
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
        let Some(sums) = self.sums else {
            return Vec::new();
        };
        let Sums { whole: mut crcs, mut pieces } = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        pieces.sort_unstable_by_key(|piece| (piece.tensor, piece.at));
        crcs.resize(tensors, 0);
        for piece in pieces {
            crcs[piece.tensor] = if piece.at == 0 {
                piece.crc
            } else {
                let mut crc = crc32fast::Hasher::new_with_initial(crcs[piece.tensor]);
                crc.combine(&crc32fast::Hasher::new_with_initial_len(piece.crc, piece.len));
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
        let place = sink.place(tensor);
        if let Some(sums) = &sink.sums {
            let (len, crc) = (bytes.len() as u64, crc32fast::hash(bytes));
            let mut sums = lock(sums);
            match place.filter(|place| place.len == Some(len)) {
                Some(_) => sums.whole[tensor] = crc,
                None => sums.pieces.push(PieceCrc { tensor, at, len, crc }),
            }
        }
        match (place, &sink.to) {
            (Some(Placed { output, at: begin, layout, .. }), _) => {
                let (at, bytes) = layout.map_or((at, bytes.into()), |(layout, slot)| layout.stored(slot, at, bytes));
                self.run.borrow_mut().put(output, begin + at, &bytes)
            }
            (None, To::Folder(folder)) => lock(folder).put(tensor, bytes),
            (None, _) => Ok(()),
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
