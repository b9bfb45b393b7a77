//! A place for bytes: a file, or a place of the caller's, such as the private file system of a browser.
//!
//! A sink takes bytes at any offset, from any thread, and gives them back to be read again. Knows neither names nor
//! formats. The fate of an existing target is the caller's own concern for a place of the caller's.

use std::fmt;
use std::io;

use crate::wire::source::Source;

/// A place for bytes: of an [`Output`](crate::Output), or of a stream that is kept.
pub trait Sink: Send + Sync {
    /// Makes the place `len` bytes long.
    ///
    /// # Errors
    /// If the place cannot hold as many.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// If not all bytes can be written.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// The bytes written so far, to be read again.
    ///
    /// # Errors
    /// If they cannot be read.
    fn source(&self) -> io::Result<Box<dyn Source>>;

    /// The number of bytes written so far.
    ///
    /// # Errors
    /// If that cannot be said.
    fn written_len(&self) -> io::Result<u64> {
        Ok(self.source()?.len())
    }

    /// Keeps the complete bytes. Called once, last.
    ///
    /// # Errors
    /// If they cannot be kept.
    fn finish(&self) -> io::Result<()> {
        Ok(())
    }

    /// Removes the bytes of an output that is given up. [`Sink::finish`] was not called, or has failed.
    fn discard(&self) {}
}

/// Makes places for long streams.
pub(crate) trait Places: Send + Sync {
    fn place(&self) -> io::Result<Box<dyn Sink>>;
}

impl<F: Fn() -> io::Result<Box<dyn Sink>> + Send + Sync> Places for F {
    fn place(&self) -> io::Result<Box<dyn Sink>> {
        self()
    }
}

/// A place of the caller's, which is discarded unless it is finished.
pub(crate) struct Held {
    sink: Box<dyn Sink>,
    is_finished: bool,
}

impl Held {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Self {
        Self { sink, is_finished: false }
    }

    pub(crate) fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// The bytes as a source, for as long as that is needed; then they are discarded.
    pub(crate) fn into_source(self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Scratch { source: self.sink.source()?, _held: self }))
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.sink.finish()?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_finished {
            self.sink.discard();
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("is_finished", &self.is_finished).finish_non_exhaustive()
    }
}

/// Bytes that are discarded with the source.
struct Scratch {
    source: Box<dyn Source>,
    _held: Held,
}

impl Source for Scratch {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_at(offset, buf)
    }
}
