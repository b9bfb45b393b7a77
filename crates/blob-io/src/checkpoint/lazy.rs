//! Arrays whose bytes stay in the file until they are needed: an entry as the origin of a blob's memory.
//!
//! Relies on `payload` for arrays that are not plain, which are decoded as a whole. Knows no device.

use std::sync::Arc;

use blob_core::{AnyBlob, DType};
use synced_mem::{Origin, OriginError, SharedMem};

use super::Checkpoint;
use crate::entry::Entry;
use crate::error::{Error, ReadError};
use crate::payload::{self, BIG_ENDIAN, Elements};
use crate::wire::source;

impl Checkpoint {
    /// A blob of the array's shape and dtype, whose bytes are read when they are asked for. The diff, if one is stored,
    /// is left out.
    ///
    /// Of an array that [`Entry::is_direct`] calls so, the bytes that are asked for are read, and no others: on the
    /// host, or for a device. Any other array is decoded as a whole, and compared with its checksum if it has one, when
    /// the first byte is asked for. The blob keeps the file open. Once the file has changed, by length or time of
    /// modification, bytes that were not read yet are an [`OriginError::Changed`].
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// # let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
    /// # let checkpoint = blob_io::Checkpoint::from_bytes("two.binaryproto", &file[..])?;
    /// let checkpoint = Arc::new(checkpoint);
    /// let blob = checkpoint.lazy(&checkpoint.entries()[0])?; // nothing is read
    /// assert_eq!(blob.shape().dims(), [2]);
    /// assert_eq!(blob.data().elements::<f32>()?[..], [1.0, 2.0]); // now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Entry::fault`] as an error; an entry without elements; an array that is produced from fewer stored bytes, and
    /// is longer than [`Limits::max_alloc`](crate::Limits::max_alloc). Errors of reading come with the first access.
    pub fn lazy(self: &Arc<Self>, entry: &Entry) -> Result<AnyBlob, Error> {
        self.lazy_if(entry, None)
    }

    /// As [`lazy`](Self::lazy), with bytes that are checked before anyone has one. The first access reads the whole
    /// array, and `check` gets all bytes, in the machine's byte order; an error of it, in words about the array, is the
    /// access's, and the next access reads and checks again.
    ///
    /// # Errors
    /// As [`lazy`](Self::lazy).
    pub fn lazy_checked(
        self: &Arc<Self>,
        entry: &Entry,
        check: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<AnyBlob, Error> {
        self.lazy_if(entry, Some(Box::new(check)))
    }

    fn lazy_if(self: &Arc<Self>, entry: &Entry, check: Option<Check>) -> Result<AnyBlob, Error> {
        let dtype = entry.loadable(&self.name)?;
        let len = usize::try_from(entry.byte_len())
            .map_err(|_| entry.refused(&self.name, "has more bytes than an address space"))?;
        // A memory takes room for all bytes before the first is decoded.
        payload::check_decoded(entry, self.file_len(), &self.limits)
            .map_err(|fault| entry.error(&self.name, fault.into()))?;
        let origin = FileOrigin { checkpoint: Arc::clone(self), entry: entry.clone(), dtype, len, check };
        Ok(AnyBlob::from_parts(entry.shape.clone(), dtype, SharedMem::of(Arc::new(origin)), None)?)
    }
}

impl Entry {
    /// Whether a part of the array can be read without the rest: the array is [plain](Self::is_plain) and has no
    /// checksum. [`Checkpoint::lazy`] decodes all others as a whole.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_plain() && self.checksum.is_none() && !BIG_ENDIAN
    }
}

/// Refuses bytes of an array, in words about the array.
type Check = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// An array in its file.
struct FileOrigin {
    checkpoint: Arc<Checkpoint>,
    entry: Entry,
    dtype: DType,
    /// In bytes.
    len: usize,
    /// For bytes that nobody may have unchecked.
    check: Option<Check>,
}

impl Origin for FileOrigin {
    fn len(&self) -> usize {
        self.len
    }

    fn is_direct(&self) -> bool {
        self.entry.is_direct() && self.check.is_none()
    }

    fn read(&self, at: usize, out: &mut [u8]) -> Result<(), OriginError> {
        let read = if self.is_direct() {
            self.read_in_place(at, out).map_err(|e| self.failed(e))
        } else {
            self.decode(at, out)
        };
        // Bytes of a file that has changed are worthless, and an error there is explained by the change.
        match self.checkpoint.unchanged() {
            Err(changed @ Error::Request { .. }) => Err(OriginError::changed(changed)),
            Err(unknown) => Err(OriginError::failed(unknown)),
            Ok(()) => read.map_err(OriginError::failed),
        }
    }
}

impl FileOrigin {
    /// Reads bytes where they lie.
    fn read_in_place(&self, at: usize, mut out: &mut [u8]) -> Result<(), ReadError> {
        let (width, mut skipped) = (self.dtype.size() as u64, at as u64);
        for run in self.entry.segments() {
            if out.is_empty() {
                break;
            }
            let left = (run.count * width).saturating_sub(skipped);
            if left > 0 {
                let (here, rest) = out.split_at_mut(left.min(out.len() as u64) as usize);
                source::read(&self.checkpoint.input, run.offset + skipped, here)?;
                out = rest;
            }
            skipped = skipped.saturating_sub(run.count * width);
        }
        Ok(())
    }

    /// Decodes the array. A memory asks for a part only where other bytes of the array were written before.
    fn decode(&self, at: usize, out: &mut [u8]) -> Result<(), Error> {
        let elements = Elements::open(&self.checkpoint.input, &self.entry, &self.checkpoint.limits);
        let elements = elements.map_err(|e| self.failed(e))?;
        if out.len() == self.len {
            payload::fill(elements, out).map_err(|e| self.failed(e))?;
            return self.checked(out);
        }
        let mut whole = Vec::new();
        let failed = std::io::ErrorKind::OutOfMemory;
        let room = whole.try_reserve_exact(self.len);
        room.map_err(|_| self.failed(ReadError::Io { offset: 0, source: failed.into() }))?;
        whole.resize(self.len, 0);
        payload::fill(elements, &mut whole).map_err(|e| self.failed(e))?;
        self.checked(&whole)?;
        out.copy_from_slice(&whole[at..at + out.len()]);
        Ok(())
    }

    fn checked(&self, whole: &[u8]) -> Result<(), Error> {
        let checked = self.check.as_ref().map_or(Ok(()), |check| check(whole));
        checked.map_err(|why| self.entry.refused(&self.checkpoint.name, &why))
    }

    fn failed(&self, e: ReadError) -> Error {
        self.entry.error(&self.checkpoint.name, e)
    }
}
