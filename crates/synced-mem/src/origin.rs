//! Bytes that can be had again from outside the memory: a range of a file, a member of an archive, an object in a
//! store. A memory that was made of an origin reads each byte from there when the byte is first needed. The trait, and
//! why a read may fail; no memory and no file is known here.

use std::error::Error as StdError;
use std::fmt;

/// Bytes that can be read again at any time.
///
/// A memory calls [`read`](Self::read) with no lock held, from the thread that needs the bytes, or from several threads
/// at once. The call may use any memory but the one that it reads for, which would wait for itself.
pub trait Origin: Send + Sync {
    /// The number of bytes. Asked once, when a memory is made.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a part can be read without the rest. Asked once, when a memory is made. Of an origin that has to decode
    /// everything for any byte, a memory reads all missing bytes at the first access.
    fn is_direct(&self) -> bool {
        true
    }

    /// Puts the bytes from `at` on into all of `out`: the same bytes each time. `out` ends within the origin.
    ///
    /// # Errors
    /// [`OriginError`] when the bytes cannot be had, or are no longer the same. The content of `out` does not matter
    /// then.
    fn read(&self, at: usize, out: &mut [u8]) -> Result<(), OriginError>;
}

/// Why an origin does not give its bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum OriginError {
    /// The origin has changed since the memory was made: for example, a file was written, cut or replaced.
    #[non_exhaustive]
    Changed {
        /// The origin's own words.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The read failed. The next one may succeed.
    #[non_exhaustive]
    Failed {
        /// The origin's own words.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl OriginError {
    /// The origin has changed.
    pub fn changed(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        OriginError::Changed { source: source.into() }
    }

    /// The read failed.
    pub fn failed(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        OriginError::Failed { source: source.into() }
    }
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (OriginError::Changed { source } | OriginError::Failed { source }) = self;
        source.fmt(f)
    }
}

impl StdError for OriginError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let (OriginError::Changed { source } | OriginError::Failed { source }) = self;
        // The message is the source's own.
        source.source()
    }
}
