//! Which of a blob's two memories an operation works on, and its bytes on the host.
//!
//! Relies on the guards of `blob-core`: what cannot be borrowed is an error before a byte changes.

use blob_core::{AnyBlob, Error, Ref, RefMut};
use std::fmt;

/// One of a blob's two memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The values.
    Data,
    /// The gradient. Untouched it is all zeros.
    Diff,
}

impl Part {
    pub(crate) fn bytes(self, blob: &AnyBlob) -> Result<Ref<'_, [u8]>, Error> {
        match self {
            Part::Data => blob.data_bytes(),
            Part::Diff => blob.diff_bytes(),
        }
    }

    pub(crate) fn bytes_mut(self, blob: &mut AnyBlob) -> Result<RefMut<'_, [u8]>, Error> {
        match self {
            Part::Data => blob.data_bytes_mut(),
            Part::Diff => blob.diff_bytes_mut(),
        }
    }

    pub(crate) fn bytes_overwrite(self, blob: &mut AnyBlob) -> Result<RefMut<'_, [u8]>, Error> {
        match self {
            Part::Data => blob.data_bytes_overwrite(),
            Part::Diff => blob.diff_bytes_overwrite(),
        }
    }

    /// Whether it was never touched: all zeros, and no memory taken.
    pub(crate) fn is_untouched(self, blob: &AnyBlob) -> bool {
        let memory = match self {
            Part::Data => blob.data_memory(),
            Part::Diff => blob.diff_memory(),
        };
        !memory.is_initialized()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Data => "data",
            Part::Diff => "diff",
        })
    }
}
