//! Keeps an arriving stream, for reads at any offset: in memory, or in an unnamed temporary file, or at a place of the
//! caller's.
//!
//! Bounds the length. Leaves unpacking to `gunzip`; the caller decides whether the beginning of a long stream is
//! acceptable.

use std::io::{self, Read};
use std::sync::Arc;

use crate::error::{Error, ReadError, check_limit, failed};
use crate::limits::Limit;
use crate::wire::sink::{Held, Places, Sink};
use crate::wire::source::{Bytes, Source};

/// A stream up to this length is kept in memory, a longer one in an unnamed temporary file.
const IN_MEMORY: usize = 8 << 20;

/// How many bytes are read at once.
pub(crate) const PIECE: usize = 64 << 10;

type Refuse<'a> = dyn Fn(&[u8]) -> Option<Error> + 'a;

/// The bytes of a stream that have been read so far.
pub(crate) struct Spool<'a> {
    /// The stream's name in errors.
    name: &'a str,
    /// Checks the beginning of a long stream; an error refuses the stream.
    refuse: Box<Refuse<'a>>,
    /// Says whether the caller has no use for the stream any more.
    is_stopped: Box<dyn Fn() -> bool + 'a>,
    limit: u64,
    len: u64,
    memory: Vec<u8>,
    /// The caller's places; `None` for temporary files.
    places: Option<Arc<dyn Places>>,
    place: Option<Held>,
}

impl<'a> Spool<'a> {
    pub(crate) fn new(name: &'a str, refuse: impl Fn(&[u8]) -> Option<Error> + 'a, limit: u64) -> Self {
        let is_stopped = Box::new(|| false);
        Self {
            name,
            refuse: Box::new(refuse),
            is_stopped,
            limit,
            len: 0,
            memory: Vec::new(),
            places: None,
            place: None,
        }
    }

    /// Stops where `is_stopped` says so.
    pub(crate) fn stopped_by(self, is_stopped: impl Fn() -> bool + 'a) -> Self {
        Self { is_stopped: Box::new(is_stopped), ..self }
    }

    /// Keeps a long stream at one of these places, not in a temporary file.
    pub(crate) fn placed_by(self, places: Arc<dyn Places>) -> Self {
        Self { places: Some(places), ..self }
    }

    /// Keeps all of a stream.
    ///
    /// # Errors
    /// As [`Spool::push`], and where the stream cannot be read.
    pub(crate) fn read(&mut self, stream: &mut impl Read) -> Result<(), Error> {
        let mut piece = vec![0; PIECE];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(n) => self.push(&piece[..n])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(self.name, "read", e)),
            }
        }
    }

    /// Keeps the next bytes.
    ///
    /// # Errors
    /// More bytes than the limit; a long stream whose beginning is refused; a temporary file that cannot be made or
    /// written; [`Error::Interrupted`].
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if (self.is_stopped)() {
            return Err(Error::Interrupted);
        }
        self.len += bytes.len() as u64;
        check_limit(self.limit, Limit::Spool, "the length of the stream", self.len, self.limit)
            .map_err(|fault| ReadError::Fault(fault).into_error(self.name))?;
        if self.place.is_some() {
            return self.write(bytes);
        }
        // At the limit, a longer vector would take twice the memory.
        let fits = self.memory.len().saturating_add(bytes.len()) <= IN_MEMORY;
        let now = bytes.len().min(IN_MEMORY - self.memory.len());
        self.memory.extend_from_slice(&bytes[..now]);
        if fits && self.memory.len() < IN_MEMORY {
            return Ok(());
        }
        self.begin_place()?;
        self.write(&bytes[now..])
    }

    /// Writes the last bytes that were counted.
    fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let at = self.len - bytes.len() as u64;
        let written = self.place.as_ref().map_or(Ok(()), |place| place.sink().write_all_at(at, bytes));
        written.map_err(|e| self.full(e))
    }

    fn begin_place(&mut self) -> Result<(), Error> {
        if let Some(error) = (self.refuse)(&self.memory) {
            return Err(error);
        }
        let place = match &self.places {
            Some(places) => places.place(),
            None => tempfile::tempfile().map(|file| Box::new(file) as Box<dyn Sink>),
        };
        let place = place.map(Held::new).and_then(|place| place.sink().write_all_at(0, &self.memory).map(|()| place));
        self.place = Some(place.map_err(|e| self.full(e))?);
        self.memory = Vec::new();
        Ok(())
    }

    /// The kept bytes as a source.
    pub(crate) fn finish(self) -> Result<Box<dyn Source>, Error> {
        let Some(place) = self.place else {
            return Ok(Box::new(Bytes(self.memory)));
        };
        let (name, is_ours) = (self.name, self.places.is_none());
        place.into_source().map_err(|e| full(name, is_ours, e))
    }

    fn full(&self, source: io::Error) -> Error {
        full(self.name, self.places.is_none(), source)
    }
}

/// The error for a place that could not be made or written: a temporary file, or one of the caller's.
fn full(name: &str, is_file: bool, source: io::Error) -> Error {
    let action = if is_file {
        format!("keep it in the temporary folder {}", std::env::temp_dir().display())
    } else {
        "keep what it unpacks to".to_owned()
    };
    failed(name, &action, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(stream: &mut impl Read, limit: u64) -> Result<Box<dyn Source>, Error> {
        let mut spool = Spool::new("x", |begin| crate::sniff::hopeless(begin, "x").map(|r| r.into_error("x")), limit);
        spool.read(stream)?;
        spool.finish()
    }

    #[test]
    fn a_long_stream_goes_to_a_file_and_reads_back() {
        let len = IN_MEMORY + 12_345;
        let mut bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        bytes[..8].copy_from_slice(b"PK\x03\x04....");
        let source = kept(&mut &bytes[..], len as u64).unwrap();
        assert_eq!(source.len(), len as u64);
        assert!(source.bytes().is_none());
        let mut back = vec![0; len];
        source.read_at(0, &mut back).unwrap();
        assert!(back == bytes);
        assert!(kept(&mut &b"abc"[..], 3).unwrap().bytes().is_some());
    }

    #[test]
    fn an_endless_stream_ends_early_or_at_the_limit() {
        let error = |mut stream: &mut dyn Read| kept(&mut stream, 9 << 20).map(|_| ()).unwrap_err();
        // A stream that cannot be a tensor file ends where memory is full.
        for byte in [0, b'y', 0xFF] {
            let error = error(&mut io::repeat(byte));
            assert!(matches!(error, Error::NotTensors { .. }), "{error}");
        }
        // A stream that may be one ends at the limit.
        let error = error(&mut (&b"\x93NUMPY"[..]).chain(io::repeat(1)));
        assert_eq!(error.offset(), Some(9 << 20), "{error}");
        let needed = (9 << 20) + 1..=10 << 20;
        let limit = matches!(&error, Error::LimitExceeded { limit: Limit::Spool, needed: n, .. } if needed.contains(n));
        assert!(limit, "{error:?}");
    }

    #[test]
    fn a_large_first_field_is_no_reason_to_refuse() {
        // A BlobProto that begins with 16 MiB of data.
        let begin = b"\x2A\x80\x80\x80\x08";
        let mut stream = begin.chain(io::repeat(0)).take((16 << 20) + 5);
        assert_eq!(kept(&mut stream, 1 << 30).unwrap().len(), (16 << 20) + 5);
    }
}
