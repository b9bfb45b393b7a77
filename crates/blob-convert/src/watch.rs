//! Progress and cancellation of long work, and a reader that reports progress and can be cancelled.

use blob_io::{Checkpoint, Entry, Error, Reader};

/// Receives the progress of long work, and can cancel the work.
pub trait Watch: Sync {
    /// Another `bytes` bytes of the source are done.
    fn advanced(&self, bytes: u64);

    /// Whether to stop: the work then returns [`Error::Interrupted`] and leaves nothing behind.
    fn cancelled(&self) -> bool;

    /// One step of the work: counts bytes, unless the work is cancelled.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where the work is [cancelled](Watch::cancelled).
    fn step(&self, bytes: u64) -> Result<(), Error> {
        if self.cancelled() {
            return Err(Error::Interrupted);
        }
        self.advanced(bytes);
        Ok(())
    }
}

/// A [`Watch`] that neither counts nor stops.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watch for Silent {
    fn advanced(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// Passes cancellation on, but not progress: the bytes are counted elsewhere, or are not the source's.
pub(crate) struct Uncounted<'a>(pub(crate) &'a dyn Watch);

impl Watch for Uncounted<'_> {
    fn advanced(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// A reader that reports the bytes read to a [`Watch`], which can cancel the reader.
pub struct Watched<'a> {
    reader: Reader<'a>,
    watch: &'a dyn Watch,
}

impl<'a> Watched<'a> {
    /// Watches the rest of a reader.
    #[must_use]
    pub fn new(reader: Reader<'a>, watch: &'a dyn Watch) -> Self {
        Self { reader, watch }
    }

    /// Opens a stored array.
    ///
    /// # Errors
    /// As [`Checkpoint::reader`].
    pub fn open(checkpoint: &'a Checkpoint, entry: &'a Entry, watch: &'a dyn Watch) -> Result<Self, Error> {
        Ok(Self::new(checkpoint.reader(entry)?, watch))
    }

    /// As [`Reader::pull`].
    ///
    /// # Errors
    /// As [`Reader::pull`]; [`Error::Interrupted`] where the watch says so.
    pub fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let n = self.reader.pull(out)?;
        self.watch.step(n as u64)?;
        Ok(n)
    }

    /// As [`Reader::skip`].
    ///
    /// # Errors
    /// As [`Watched::pull`].
    pub fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        self.watch.step(0)?;
        self.reader.skip(bytes)
    }

    /// Hands over the rest in pieces of `piece` bytes, a multiple of 8, so that each piece holds whole elements.
    ///
    /// # Errors
    /// As [`Watched::pull`], and any error that `take` returns.
    pub fn each(mut self, piece: usize, mut take: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut buf = vec![0; self.reader.left().min(piece as u64) as usize];
        loop {
            match self.pull(&mut buf)? {
                0 => return Ok(()),
                n => take(&buf[..n])?,
            }
        }
    }
}

impl std::fmt::Debug for Watched<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("reader", &self.reader).finish_non_exhaustive()
    }
}
