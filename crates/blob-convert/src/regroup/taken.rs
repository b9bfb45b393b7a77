//! A tensor of an open file for a writer: its layer's type goes with it, and a watch sees its bytes.

use std::io::{self, BufRead, BufReader, Read};

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Tensor};

use crate::hash::PIECE;
use crate::watch::{Watch, Watched};

/// A tensor of an open file, as it is.
#[derive(Clone, Copy)]
pub struct Taken<'a> {
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    dtype: DType,
    watch: &'a dyn Watch,
}

impl<'a> Taken<'a> {
    /// # Errors
    /// As [`Checkpoint::array`].
    pub(super) fn new(checkpoint: &'a Checkpoint, entry: &'a Entry, watch: &'a dyn Watch) -> Result<Self, Error> {
        Ok(Self { checkpoint, entry, dtype: checkpoint.array(entry)?.dtype, watch })
    }

    /// The entry in its file: its layer, whether it is a diff, or a part of a sparse array.
    #[must_use]
    pub fn entry(&self) -> &'a Entry {
        self.entry
    }
}

impl Tensor for Taken<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(self.entry.shape().clone())
    }

    fn layer_type(&self) -> Option<&str> {
        self.entry.layer_type()
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        let capacity = self.entry.byte_len().min(PIECE as u64) as usize;
        let watched = Watched::open(self.checkpoint, self.entry, self.watch)?;
        Ok(Box::new(BufReader::with_capacity(capacity, Pulled(watched))))
    }
}

/// Reads whole elements, since the reader above asks for whole buffers.
struct Pulled<'a>(Watched<'a>);

impl Read for Pulled<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.pull(out).map_err(io::Error::other)
    }
}

impl std::fmt::Debug for Taken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken").field("entry", &self.entry.name()).finish_non_exhaustive()
    }
}
