//! Opens a source, and keeps the first error of its reads: detection takes a file that cannot be read for a file of
//! another kind, so an error that a later read does not meet again would be lost.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Checkpoint, OpenOptions};
use crate::error::{Error, ReadError};
use crate::wire::source::{Input, Source};

impl OpenOptions {
    /// Opens a source; errors use `name`, whose extension is a hint of the format. A gzip file is unpacked first,
    /// within [`Limits::max_spool`](crate::Limits::max_spool), and the CRC-32 and length are checked. If the file, or
    /// the unpacked content, is a tar or zip archive, the archive's only tensor file is opened.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; an archive with several tensor files or none; the first error of the source's reads.
    pub fn open_source(&self, name: impl Into<String>, source: Box<dyn Source>) -> Result<Checkpoint, Error> {
        let name = name.into();
        let met = Met::default();
        let opened = self.open_input(name.clone(), Input::new(Box::new(Noted { source, met: met.clone() })));
        met.error().map_or(opened, |error| Err(error.into_error(&name)))
    }
}

/// The first error of a source's reads while the source is opened.
#[derive(Clone, Default)]
struct Met(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Opening,
    Failed(ReadError),
    Open,
}

impl Met {
    /// Keeps the first error, for which the reader gets one of the same kind.
    fn note(&self, offset: u64, error: io::Error) -> io::Error {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The end comes earlier where the file was cut meanwhile: each later read says so, too.
        if !matches!(*state, State::Opening) || error.kind() == io::ErrorKind::UnexpectedEof {
            return error;
        }
        let copy = io::Error::new(error.kind(), error.to_string());
        *state = State::Failed(ReadError::Io { offset, source: error });
        copy
    }

    /// The error of the opening, which has ended. Later reads give their errors to the reader.
    fn error(&self) -> Option<ReadError> {
        match std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), State::Open) {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }
}

struct Noted {
    source: Box<dyn Source>,
    met: Met,
}

impl Source for Noted {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_at(offset, buf).map_err(|error| self.met.note(offset, error))
    }

    fn expect(&self, begins: &[u64]) {
        self.source.expect(begins);
    }

    fn listed(&self) {
        self.source.listed();
    }

    fn is_unchanged(&self) -> io::Result<bool> {
        self.source.is_unchanged()
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.source.bytes()
    }
}
