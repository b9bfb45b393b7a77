//! A measurement of bytes that the caller reads: where nothing can wait for them, as in a browser.

use std::ops::ControlFlow;

use blob_io::{Checkpoint, Entry, Error};

use super::readings::Readings;
use super::{Measured, refuse};

/// Measures one tensor as [`measure`](super::measure) does, of bytes that the caller has.
///
/// ```
/// use std::ops::ControlFlow::{Break, Continue};
/// use blob_convert::stats::Measuring;
///
/// # let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
/// # let checkpoint = blob_io::Checkpoint::from_bytes("two.binaryproto", &file[..])?;
/// let mut measuring = Measuring::new(&checkpoint, &checkpoint.entries()[0], Some(2))?;
/// let measured = loop {
///     measuring.update(&1_f32.to_le_bytes());
///     measuring.update(&2_f32.to_le_bytes());
///     match measuring.end()? {
///         Break(measured) => break measured,
///         Continue(again) => measuring = again,
///     }
/// };
/// assert_eq!(measured.stats.mean, Some(1.5));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Debug)]
pub struct Measuring {
    file: String,
    entry: Entry,
    size: usize,
    readings: Readings,
    /// The start of an element whose end has not come yet.
    split: Vec<u8>,
    /// The bytes of this reading.
    given: u64,
}

impl Measuring {
    /// Begins the first reading.
    ///
    /// # Errors
    /// As [`Checkpoint::spec`].
    pub fn new(checkpoint: &Checkpoint, entry: &Entry, bins: Option<usize>) -> Result<Self, Error> {
        let dtype = checkpoint.spec(entry)?.dtype;
        let readings = Readings::new(dtype, 1, bins);
        let (file, entry) = (checkpoint.name().to_owned(), entry.clone());
        Ok(Self { file, entry, size: dtype.size(), readings, split: Vec::new(), given: 0 })
    }

    /// Takes the next bytes of the tensor, row-major and little-endian. They may end anywhere.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.given += bytes.len() as u64;
        if !self.split.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(self.size - self.split.len()));
            self.split.extend_from_slice(head);
            if self.split.len() < self.size {
                return;
            }
            self.readings.take(0, &self.split);
            self.split.clear();
            bytes = rest;
        }
        let (whole, rest) = bytes.split_at(bytes.len() / self.size * self.size);
        self.readings.take(0, whole);
        self.split.extend_from_slice(rest);
    }

    /// Ends a reading: breaks with the result, or goes on where all bytes are wanted once more, from the first.
    ///
    /// # Errors
    /// [`Error::Request`] where the bytes were not the tensor's in number, or there cannot be as many bins.
    pub fn end(self) -> Result<ControlFlow<Measured, Self>, Error> {
        let Self { file, entry, size, readings, given, .. } = self;
        let len = entry.byte_len();
        if given != len {
            return Err(refuse(&file, &entry, &format!("has {len} bytes, and {given} were given")));
        }
        let ended = readings.end().map_err(|e| refuse(&file, &entry, &e.to_string()))?;
        let ended = ended.map_break(|mut one| one.swap_remove(0));
        Ok(ended.map_continue(|readings| Self { file, entry, size, readings, split: Vec::new(), given: 0 }))
    }
}
