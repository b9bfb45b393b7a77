//! A tensor to be written; what a layout refuses.
//!
//! Sees names, dtypes and shapes; knows no format.

use blob_core::{DType, Shape};

use crate::error::Error;

/// A tensor to be written to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorSpec {
    /// The name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The shape, row-major.
    pub shape: Shape,
}

impl TensorSpec {
    /// A tensor of this name, dtype and shape.
    pub fn new(name: impl Into<String>, dtype: DType, shape: Shape) -> Self {
        let name = name.into();
        Self { name, dtype, shape }
    }

    /// The size of the data in bytes; `u64::MAX` where it does not fit, and no file is laid out for that.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        (self.shape.count() as u64).saturating_mul(self.dtype.size() as u64)
    }
}

/// A sum of lengths, which must fit the 63 bits of a file's offset.
pub(crate) fn total(format: &str, a: u64, b: u64) -> Result<u64, Error> {
    a.checked_add(b)
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(|| refuse(format, "the file would be over 2^63 bytes"))
}

/// The refusal of a layout; it names the format, because no file has a name yet.
pub(crate) fn refuse(format: &str, message: impl Into<String>) -> Error {
    Error::Request { file: format.to_owned(), message: message.into() }
}

/// Refuses a repeated name.
pub(crate) fn unique<'a>(format: &str, what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(refuse(format, format!("{what} {name:?} stands twice")));
        }
    }
    Ok(())
}
