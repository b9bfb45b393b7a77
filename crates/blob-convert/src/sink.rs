//! Where a tensor's bytes go: to its place in one file or one of several shards, or to a file of its own in a folder.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use blob_io::{Error, Layout, Output, OutputDir, TensorSpec};

use crate::planned::Planned;
use crate::shards::Shards;

/// Takes tensors' bytes, from several threads.
pub(crate) struct Sink<'a> {
    to: To<'a>,
    layout: Option<&'a Layout>,
    /// The CRC-32 of every part that was put, where checksums are wanted.
    parts: Option<Mutex<Vec<Part>>>,
}

enum To<'a> {
    /// The file that each tensor of the plan lies in, and where.
    Files(Vec<(&'a Output, u64)>),
    /// The whole file is copied; of a tensor nothing is left to be put.
    Copy(&'a Output),
    /// Only the checksums are wanted.
    Nowhere,
    /// A tensor's bytes must come in their order.
    Folder(Mutex<Folder<'a>>),
}

/// The checksum of a part of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    tensor: usize,
    at: u64,
    len: u64,
    crc: u32,
}

/// A folder of npy files in the making.
pub(crate) struct Folder<'a> {
    dir: &'a OutputDir,
    specs: &'a [TensorSpec],
    files: &'a [String],
    begun: Vec<bool>,
    /// Unfinished files, and how many bytes each still needs: one at a time, unless the source interleaves its arrays.
    open: HashMap<usize, (Output, u64)>,
    written: u64,
}

impl<'a> Sink<'a> {
    pub(crate) fn file(output: &'a Output, layout: &'a Layout, tensors: &[Planned]) -> Self {
        let offset = |tensor: &Planned| tensor.slot.map_or(0, |slot| layout.offsets()[slot]);
        let places = tensors.iter().map(|tensor| (output, offset(tensor))).collect();
        Self { to: To::Files(places), layout: Some(layout), parts: layout.wants_crc().then(Mutex::default) }
    }

    pub(crate) fn shards(outputs: &'a [Output], shards: &Shards, tensors: usize) -> Self {
        let places = (0..tensors).map(|tensor| shards.place(tensor));
        Self { to: To::Files(places.map(|(file, at)| (&outputs[file], at)).collect()), layout: None, parts: None }
    }

    pub(crate) fn copy(output: &'a Output) -> Self {
        Self { to: To::Copy(output), layout: None, parts: None }
    }

    pub(crate) fn nowhere(layout: &Layout) -> Self {
        Self { to: To::Nowhere, layout: None, parts: layout.wants_crc().then(Mutex::default) }
    }

    pub(crate) fn folder(dir: &'a OutputDir, specs: &'a [TensorSpec], files: &'a [String]) -> Self {
        let (begun, open) = (vec![false; specs.len()], HashMap::new());
        let folder = Folder { dir, specs, files, begun, open, written: 0 };
        Self { to: To::Folder(Mutex::new(folder)), layout: None, parts: None }
    }

    /// Whether parts may come from several threads at once, in any order.
    pub(crate) fn takes_any_order(&self) -> bool {
        !matches!(self.to, To::Folder(_))
    }

    /// Takes bytes of the source, of which a copy has each.
    pub(crate) fn pass(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match &self.to {
            To::Copy(output) => output.write_all_at(at, bytes),
            _ => Ok(()),
        }
    }

    /// Puts bytes at `at` within a tensor.
    pub(crate) fn put(&self, tensor: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        if let Some(parts) = &self.parts {
            let part = Part { tensor, at, len: bytes.len() as u64, crc: crc32fast::hash(bytes) };
            lock(parts).push(part);
        }
        match &self.to {
            To::Files(places) => {
                let (output, begin) = places[tensor];
                let (at, bytes) = self.layout.map_or((at, bytes.into()), |layout| layout.stored(at, bytes));
                output.write_all_at(begin + at, &bytes)
            }
            To::Copy(_) | To::Nowhere => Ok(()),
            To::Folder(folder) => lock(folder).put(tensor, bytes),
        }
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

/// A poisoned lock is taken all the same: the panic of the thread that held it is reported when the thread is joined.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let layout = Layout::npy(&self.specs[tensor])?;
        let mut output = self.dir.file(&self.files[tensor])?;
        output.set_len(layout.len())?;
        for (_, head) in layout.frame(&[], &[])? {
            output.write_all(&head)?;
            self.written += head.len() as u64;
        }
        Ok((output, self.specs[tensor].byte_len()))
    }
}
