//! The only module that calls `hdf5-reader`: passes it bytes of our source within a budget, and returns names,
//! addresses and headers.
//!
//! An error of `hdf5-reader` becomes a fault at the offset that was read last, and so does a panic, though none is
//! known.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::error::{Error as Hdf5Error, Result as Hdf5Result};
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};
use hdf5_reader::{Hdf5File, OpenOptions, Storage, StorageBuffer};

use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::Limit;
use crate::wire::source::{Input, Source};
use crate::work;

/// How many bytes one call may read. For hostile headers the reader keeps about seventeen bytes for each byte read;
/// Caffe's header of a dataset has 272 bytes, so a group may hold 2,800 datasets.
const MAX_CALL_BYTES: u64 = 768 << 10;
/// Listing a file may read `TOTAL_EACH` bytes for each byte of the file and `TOTAL_FREE` beside, at most `MAX_TOTAL`:
/// headers can form cycles, and share objects. A sound file is read about twice.
const TOTAL_EACH: u64 = 16;
const TOTAL_FREE: u64 = 1 << 20;
const MAX_TOTAL: u64 = 256 << 20;
/// All datasets together may have `CHUNKS_FREE` chunks, and one more for each `CHUNK_BYTES` bytes of the file: many
/// datasets may refer to one list, or to a list that only a shape states. A chunk takes 24 bytes of memory.
const CHUNKS_FREE: u64 = 1 << 17;
const CHUNK_BYTES: u64 = 16;
/// The longest header of an object: Caffe's have 272 bytes, one with the longest compact values under 66 KiB.
pub(super) const MAX_HEADER: usize = 72 << 10;

/// The structure of an open file.
pub(super) struct Structure {
    file: Hdf5File,
    bytes: Arc<Bytes>,
    shared: OnceCell<Vec<SharedHeap>>,
    /// How many chunks have been listed, and how many bytes of names have been copied out of heaps.
    chunks: Cell<u64>,
    produced: Cell<u64>,
}

/// A heap of messages that several objects share.
#[derive(Debug)]
pub(super) struct SharedHeap {
    /// A bit for each type of message that the heap holds.
    pub(super) kinds: u64,
    pub(super) heap: FractalHeap,
    pub(super) blocks: RefCell<FractalHeapDirectBlockCache>,
}

impl Structure {
    /// Reads the superblock.
    pub(super) fn open(input: &Input) -> Result<Self, ReadError> {
        let bytes = Arc::new(Bytes::new(input.clone()));
        let file = bytes.open()?;
        let (shared, chunks, produced) = Default::default();
        let structure = Self { file, bytes, shared, chunks, produced };
        // Unlike all other addresses, this one includes the user block before the superblock.
        let (end, len) = (structure.file.superblock().eof_address, input.len());
        if end > len {
            return Err(ReadError::fault(0, FaultKind::Truncated { field: "the HDF5 file", needed: end, left: len }));
        }
        Ok(structure)
    }

    /// The address of the root group's header.
    pub(super) fn root(&self) -> Result<u64, ReadError> {
        Ok(self.call(Hdf5File::root_group)?.address())
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

    /// Whether an address is undefined: all bits are set.
    pub(super) fn is_undefined(&self, address: u64) -> bool {
        hdf5_reader::io::Cursor::is_undefined_offset(address, self.sizes().0)
    }

    pub(super) fn file_len(&self) -> u64 {
        self.bytes.input.len()
    }

    /// Bytes of the file within the budget, for structures that this crate parses itself.
    pub(super) fn bytes(&self, offset: u64, len: u64, field: &'static str) -> Result<Vec<u8>, ReadError> {
        let left = self.file_len().saturating_sub(offset);
        if len > left {
            return Err(ReadError::fault(offset, FaultKind::Truncated { field, needed: len, left }));
        }
        self.bytes.in_call.store(0, Ordering::Relaxed);
        self.bytes.read(offset, len as usize)
    }

    /// Places an error of the next call at this offset, if the call reads no bytes.
    pub(super) fn at(&self, offset: u64) {
        self.bytes.at.store(offset.min(self.file_len()), Ordering::Relaxed);
    }

    /// Counts chunks against the file's limit.
    pub(super) fn count_chunks(&self, at: u64, count: u64) -> Result<(), ReadError> {
        work::visit(0, count);
        let sum = self.chunks.get().saturating_add(count);
        let most = CHUNKS_FREE + self.file_len() / CHUNK_BYTES;
        check_limit(at, Limit::Fixed, "the number of chunks of all datasets", sum, most)?;
        self.chunks.set(sum);
        Ok(())
    }

    /// Counts bytes that are copied out of a heap, whose objects may be the same many times.
    pub(super) fn count_copied(&self, at: u64, bytes: u64) -> Result<(), ReadError> {
        work::visit(bytes, 1);
        self.produced.set(self.produced.get().saturating_add(bytes));
        let most = self.file_len().saturating_mul(4).saturating_add(1 << 20);
        Ok(check_limit(at, Limit::Fixed, "the bytes of all links", self.produced.get(), most)?)
    }

    /// Ends a call of `hdf5-reader` with this error.
    pub(super) fn stopped(&self, stop: ReadError) -> Hdf5Error {
        self.bytes.stopped(stop)
    }

    /// The file's heaps of shared messages, which `read` finds the first time.
    pub(super) fn shared_heaps(
        &self,
        read: impl FnOnce(&Self) -> Result<Vec<SharedHeap>, ReadError>,
    ) -> Result<&[SharedHeap], ReadError> {
        if let Some(heaps) = self.shared.get() {
            return Ok(heaps);
        }
        let heaps = read(self)?;
        Ok(self.shared.get_or_init(|| heaps))
    }

    /// The address of the extension of the superblock, where there is one.
    pub(super) fn extension(&self) -> Option<u64> {
        self.file.superblock().extension_address.filter(|address| !self.is_undefined(*address))
    }

    /// Fills `out` with the file's bytes from `offset` on.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        crate::wire::source::read(&self.bytes.input, offset, out)
    }
}

/// The file's bytes for `hdf5-reader`, within a budget.
struct Bytes {
    input: Input,
    /// How many bytes were read in this call, and in total.
    in_call: AtomicU64,
    all: AtomicU64,
    /// The offset that was read last.
    at: AtomicU64,
    /// Why the last read failed.
    stop: Mutex<Option<ReadError>>,
}

impl Bytes {
    fn new(input: Input) -> Self {
        let zero = AtomicU64::default;
        Self { input, in_call: zero(), all: zero(), at: zero(), stop: Mutex::default() }
    }

    fn open(self: &Arc<Self>) -> Result<Hdf5File, ReadError> {
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

    /// Keeps the reason for which `hdf5-reader` ends a call with an error.
    fn stopped(&self, stop: ReadError) -> Hdf5Error {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        Hdf5Error::Io(io::ErrorKind::Other.into())
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
        let (field, spent) = ("the bytes of one group's or dataset's structure", spend(&self.in_call));
        check_limit(offset, Limit::Fixed, field, spent, MAX_CALL_BYTES)?;
        let (field, spent) = ("the bytes of the file's structure", spend(&self.all));
        let most = self.input.len().saturating_mul(TOTAL_EACH).saturating_add(TOTAL_FREE).min(MAX_TOTAL);
        check_limit(offset, Limit::Fixed, field, spent, most)?;
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
        self.read(offset, len).map(StorageBuffer::from_vec).map_err(|stop| self.stopped(stop))
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
