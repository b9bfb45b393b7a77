//! The only module that calls `hdf5-reader`: passes it bytes of our source within a budget, and returns names,
//! addresses and headers.
//!
//! Its errors become faults at the offset that was read last, and so do its panics, though none is known.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::error::{Error as Hdf5Error, Result as Hdf5Result};
use hdf5_reader::{Hdf5File, OpenOptions, Storage, StorageBuffer};

use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::Limit;
use crate::wire::cursor::Cursor;
use crate::wire::source::{Input, Source};

/// How many bytes one call may read. For hostile headers the reader keeps about seventeen bytes for each; Caffe's
/// header of a dataset has 272 bytes, so a group may hold 2,800 of them.
const MAX_CALL_BYTES: u64 = 768 << 10;
/// After this many bytes the file is reopened, which empties the reader's caches.
const MAX_CACHED_BYTES: u64 = 128 << 10;
/// How many bytes listing a file may read: headers can form cycles.
const MAX_TOTAL: u64 = 256 << 20;
/// The longest header of an object: Caffe's have 272 bytes, one with the longest compact values under 66 KiB.
pub(super) const MAX_HEADER: usize = 72 << 10;

/// The structure of an open file.
pub(super) struct Structure {
    file: Hdf5File,
    bytes: Arc<Bytes>,
}

impl Structure {
    /// Reads the superblock.
    pub(super) fn open(input: &Input) -> Result<Self, ReadError> {
        let bytes = Arc::new(Bytes::new(input.clone()));
        let structure = Self { file: bytes.open()?, bytes };
        // Unlike all other addresses, this one includes the user block before the superblock.
        let (end, len) = (structure.file.superblock().eof_address, input.len());
        if end > len {
            return Err(ReadError::fault(0, FaultKind::Truncated { field: "the HDF5 file", needed: end, left: len }));
        }
        Ok(structure)
    }

    /// Empties the reader's caches if they may be large: call it while no group of the reader is held.
    pub(super) fn empty_caches(&mut self) -> Result<(), ReadError> {
        if self.bytes.kept.load(Ordering::Relaxed) > MAX_CACHED_BYTES {
            self.file = self.bytes.open()?;
        }
        Ok(())
    }

    /// Runs one call of `hdf5-reader`.
    pub(super) fn call<R>(&self, call: impl FnOnce(&Hdf5File) -> Hdf5Result<R>) -> Result<R, ReadError> {
        self.bytes.guard(|| call(&self.file))
    }

    /// The offset of the superblock, to which all addresses in the file are relative.
    pub(super) fn begin(&self) -> u64 {
        self.file.superblock().base_address
    }

    /// The widths of addresses and of lengths in bytes.
    pub(super) fn sizes(&self) -> (u8, u8) {
        let superblock = self.file.superblock();
        (superblock.offset_size, superblock.length_size)
    }

    /// Whether an address is undefined: all its bits are set.
    pub(super) fn is_undefined(&self, address: u64) -> bool {
        hdf5_reader::io::Cursor::is_undefined_offset(address, self.sizes().0)
    }

    pub(super) fn file_len(&self) -> u64 {
        self.bytes.input.len()
    }

    /// The file's bytes, without the budget: for reads with another bound.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.bytes.input)
    }

    /// Fills `out` with the file's bytes from `offset` on.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        crate::wire::source::read(&self.bytes.input, offset, out)
    }
}

/// The file's bytes for `hdf5-reader`, within its budget.
struct Bytes {
    input: Input,
    /// How many bytes it has read in this call, since the file was opened, and in total.
    in_call: AtomicU64,
    kept: AtomicU64,
    all: AtomicU64,
    /// The offset that was read last.
    at: AtomicU64,
    /// Why the last read failed.
    stop: Mutex<Option<ReadError>>,
}

impl Bytes {
    fn new(input: Input) -> Self {
        let zero = AtomicU64::default;
        Self { input, in_call: zero(), kept: zero(), all: zero(), at: zero(), stop: Mutex::default() }
    }

    fn open(self: &Arc<Self>) -> Result<Hdf5File, ReadError> {
        self.kept.store(0, Ordering::Relaxed);
        let options = OpenOptions::default().with_max_object_header_bytes(MAX_HEADER).with_chunk_cache_bytes(0);
        self.guard(|| Hdf5File::from_storage_with_options(self.clone(), options))
    }

    fn guard<R>(&self, call: impl FnOnce() -> Hdf5Result<R>) -> Result<R, ReadError> {
        self.in_call.store(0, Ordering::Relaxed);
        self.take_stop();
        // After a panic the reader is not used again, because the error ends the reading of the file.
        let answer = catch_unwind(AssertUnwindSafe(call));
        let found = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => match self.take_stop() {
                Some(stop) => return Err(stop),
                None => error.to_string(),
            },
            Err(_) => "bytes that its reader refuses".to_owned(),
        };
        let at = self.at.load(Ordering::Relaxed);
        Err(ReadError::fault(at, FaultKind::words("HDF5's structure", found)))
    }

    fn take_stop(&self) -> Option<ReadError> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, ReadError> {
        if len == 0 {
            // A hostile address may lie beyond the end, where a source refuses even an empty read.
            return Ok(Vec::new());
        }
        // Where a later error is placed: within the file, whatever address is asked for.
        self.at.store(offset.min(self.input.len()), Ordering::Relaxed);
        let (needed, left) = (len as u64, self.input.len().saturating_sub(offset));
        if needed > left {
            let field = "a part of the HDF5 structure";
            return Err(ReadError::fault(offset, FaultKind::Truncated { field, needed, left }));
        }
        let spend = |spent: &AtomicU64| spent.fetch_add(needed, Ordering::Relaxed).saturating_add(needed);
        spend(&self.kept);
        let (field, spent) = ("the bytes of one group's or dataset's structure", spend(&self.in_call));
        check_limit(offset, Limit::Fixed, field, spent, MAX_CALL_BYTES)?;
        let (field, spent) = ("the bytes of the file's structure", spend(&self.all));
        check_limit(offset, Limit::Fixed, field, spent, MAX_TOTAL)?;
        let mut bytes = vec![0; len];
        crate::wire::source::read(&self.input, offset, &mut bytes)?;
        Ok(bytes)
    }
}

impl Storage for Bytes {
    fn len(&self) -> u64 {
        self.input.len()
    }

    fn read_range(&self, offset: u64, len: usize) -> Hdf5Result<StorageBuffer> {
        self.read(offset, len).map(StorageBuffer::from_vec).map_err(|stop| {
            *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
            Hdf5Error::Io(io::ErrorKind::Other.into())
        })
    }
}

/// The fault of one dataset; an error of the operating system concerns the whole file.
pub(super) fn fault_of(stop: ReadError) -> Result<Fault, ReadError> {
    match stop {
        ReadError::Fault(fault) => Ok(fault),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_reader_is_an_error_with_the_last_offset() {
        let bytes = Bytes::new(Input::new(Box::new(crate::Bytes(vec![0; 64]))));
        let stop = bytes.guard(|| -> Hdf5Result<()> {
            bytes.read_range(40, 8)?;
            panic!("as a bug of theirs would");
        });
        let error = stop.unwrap_err().into_error("x.h5");
        assert_eq!(error.offset(), Some(40), "{error}");
    }

    #[test]
    fn a_call_reads_a_bounded_number_of_bytes() {
        let bytes = Bytes::new(Input::new(Box::new(crate::Bytes(vec![0; 1 << 20]))));
        let endless = || loop {
            bytes.read_range(0, 1 << 19)?;
        };
        let error = bytes.guard::<()>(endless).unwrap_err().into_error("x.h5");
        assert!(error.to_string().contains("expected at most 786432, found 1048576"), "{error}");
        bytes.guard(|| bytes.read_range(0, 1 << 19)).expect("each question has its own");
        let past = bytes.guard(|| bytes.read_range(1 << 20, 1)).map(|_| ()).unwrap_err().into_error("x.h5");
        assert!(past.to_string().contains("needs 1 bytes, but 0 are left"), "{past}");
        bytes.guard(|| bytes.read_range(1 << 56, 0)).expect("no bytes are everywhere");
    }
}
