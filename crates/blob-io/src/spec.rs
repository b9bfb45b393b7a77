//! The description of a tensor to be written, and the errors of a layout.
//!
//! Sees names, dtypes and shapes; knows no format.

use std::fmt;

use blob_core::{DType, Shape};

use crate::error::{Error, Remedy};
use crate::words::{and_more, quoted};

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

    /// The size of the data in bytes; `u64::MAX` for a size over 64 bits, which no layout accepts.
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

/// The error of a layout. The file has no name yet, which [`Error::about`] adds.
pub(crate) fn refuse(format: &str, message: impl Into<String>) -> Error {
    Error::Request { file: String::new(), message: format!("as {format}: {}", message.into()) }
}

/// How many reasons are listed, and how many of the tensors that do not fit for one reason.
pub(crate) const NAMED: usize = 20;

/// Collects the tensors that do not fit into a file, with reasons, for one error before anything is written.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// The first kinds of problems, each with the tensors concerned.
    kinds: Vec<Misfits>,
    count: usize,
    remedy: Option<Remedy>,
}

impl Problems {
    pub(crate) fn add(&mut self, name: &str, problem: impl AsRef<str>) {
        self.count += 1;
        let (problem, is_full) = (problem.as_ref(), self.kinds.len() == NAMED);
        match self.kinds.iter_mut().find(|kind| kind.problem == problem) {
            Some(kind) => {
                kind.count += 1;
                if kind.names.len() < NAMED {
                    kind.names.push(quoted(name));
                }
            }
            None if !is_full => {
                self.kinds.push(Misfits { problem: problem.to_owned(), names: vec![quoted(name)], count: 1 });
            }
            None => {}
        }
    }

    /// As [`add`](Self::add), with a request that would fit.
    pub(crate) fn add_with(&mut self, name: &str, problem: impl AsRef<str>, remedy: Option<Remedy>) {
        self.remedy = self.remedy.or(remedy);
        self.add(name, problem);
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// An error with the list, unless the list is empty.
    pub(crate) fn refused(&self, format: &str) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let more = match self.count - self.kinds.iter().map(|kind| kind.count).sum::<usize>() {
            0 => String::new(),
            more => format!(";{}", and_more(more)),
        };
        let kinds: Vec<String> = self.kinds.iter().map(Misfits::to_string).collect();
        let message = format!("as {format}: does not fit: {}{more}", kinds.join("; "));
        Err(Error::Misfit { file: String::new(), message, remedy: self.remedy })
    }
}

/// The tensors that do not fit for one reason.
#[derive(Debug)]
struct Misfits {
    problem: String,
    /// The first ones.
    names: Vec<String>,
    count: usize,
}

impl fmt::Display for Misfits {
    /// `"a" is of u8 (also "b", "c" and 4 more)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, others) = self.names.split_first().map_or(("", &[][..]), |(first, others)| (&**first, others));
        write!(f, "{first} {}", self.problem)?;
        if others.is_empty() {
            return Ok(());
        }
        write!(f, " (also {}{})", others.join(", "), and_more(self.count - self.names.len()))
    }
}

/// Refuses a repeated name.
pub(crate) fn unique<'a>(format: &str, what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(refuse(format, format!("{what} {} stands twice", quoted(name))));
        }
    }
    Ok(())
}
