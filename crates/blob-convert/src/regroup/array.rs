//! An array that tensors are gathered from. Its parts share it, so that it is unpacked once for all of them.

use std::cell::OnceCell;
use std::io::{self, BufRead, BufReader, Read};

use blob_io::{Checkpoint, Entry, Error, Reader};

use crate::watch::{Uncounted, Watch, Watched};

/// How much is unpacked before the watch is asked again, in whole elements.
const STEP: usize = 1 << 20;

/// An array of an open file.
pub(super) struct Array<'a> {
    checkpoint: &'a Checkpoint,
    pub(super) entry: &'a Entry,
    /// Its elements, where it is cut and the file does not have them one after the other.
    unpacked: OnceCell<Vec<u8>>,
}

/// The elements of an array, from the first on.
pub(super) enum Elements<'m> {
    Stored(Box<BufReader<Reader<'m>>>),
    Unpacked(&'m [u8]),
}

impl<'a> Array<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, entry: &'a Entry) -> Self {
        Self { checkpoint, entry, unpacked: OnceCell::new() }
    }

    /// Unpacks an array that is deflated, in chunks or in another order, since each part would begin it again. One that
    /// is larger than the limits allow is read from its beginning for each part.
    pub(super) fn unpack(&self, watch: &dyn Watch) -> Result<(), Error> {
        let is_held = self.entry.is_plain() || self.unpacked.get().is_some();
        if !is_held && self.entry.byte_len() <= self.checkpoint.limits().max_alloc {
            let _ = self.unpacked.set(self.whole(watch)?);
        }
        Ok(())
    }

    fn whole(&self, watch: &dyn Watch) -> Result<Vec<u8>, Error> {
        let len = self.entry.byte_len() as usize;
        let mut elements = Vec::new();
        elements.try_reserve_exact(len).map_err(|_| Error::Memory {
            file: self.checkpoint.name().to_owned(),
            message: format!("array {:?} needs {len} bytes of memory to be cut", self.entry.name()),
        })?;
        Watched::open(self.checkpoint, self.entry, &Uncounted(watch))?.each(STEP, |bytes| {
            elements.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(elements)
    }

    /// `capacity` is the most that a buffer may hold.
    pub(super) fn elements(&self, capacity: usize) -> Result<Elements<'_>, Error> {
        if let Some(unpacked) = self.unpacked.get() {
            return Ok(Elements::Unpacked(unpacked));
        }
        let capacity = capacity.min(usize::try_from(self.entry.byte_len()).unwrap_or(usize::MAX));
        let reader = self.checkpoint.reader(self.entry)?;
        Ok(Elements::Stored(Box::new(BufReader::with_capacity(capacity, reader))))
    }
}

impl Elements<'_> {
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        match self {
            Self::Unpacked(left) => *left = &left[bytes as usize..],
            Self::Stored(reader) => {
                let held = bytes.min(reader.buffer().len() as u64);
                reader.consume(held as usize);
                if bytes > held {
                    reader.get_mut().skip(bytes - held)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unpacked(left) => left.read(out),
            Self::Stored(reader) => reader.read(out),
        }
    }
}
