//! An array that tensors are gathered from. The parts share an array, so that one unpacking serves all parts.

use std::cell::OnceCell;
use std::io::{self, BufRead, BufReader, Read};

use blob_io::{Checkpoint, Entry, Error, Reader};

use crate::watch::{Uncounted, Watch, Watched};

/// How many bytes are unpacked between two calls of the watch: whole elements.
const STEP: usize = 1 << 20;

/// An array of an open file.
pub(super) struct Array<'a> {
    checkpoint: &'a Checkpoint,
    pub(super) entry: &'a Entry,
    /// The elements, if the array is cut and the file does not store the array uncompressed in row-major order.
    unpacked: OnceCell<Vec<u8>>,
}

/// Reads the elements of an array from the first one.
pub(super) enum Elements<'m> {
    Stored(Box<BufReader<Reader<'m>>>),
    Unpacked(&'m [u8]),
}

impl<'a> Array<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, entry: &'a Entry) -> Self {
        Self { checkpoint, entry, unpacked: OnceCell::new() }
    }

    /// Unpacks an array that is deflated, in chunks or in another order, because otherwise each part would unpack the
    /// array from the beginning. That still happens to an array larger than the limits allow.
    pub(super) fn unpack(&self, watch: &dyn Watch) -> Result<(), Error> {
        let is_held = self.entry.is_plain() || self.unpacked.get().is_some();
        if !is_held && self.entry.byte_len() <= self.checkpoint.limits().max_alloc {
            let _ = self.unpacked.set(self.unpacked_bytes(watch)?);
        }
        Ok(())
    }

    fn unpacked_bytes(&self, watch: &dyn Watch) -> Result<Vec<u8>, Error> {
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

    /// Reads from the first element, with a buffer of at most `capacity` bytes.
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
