//! A tensor of an open file as a tensor to be written.

use std::io::{BufRead, BufReader};

use blob_core::{DType, Shape};

use super::Checkpoint;
use crate::entry::Entry;
use crate::error::Error;
use crate::tensor::Tensor;

/// How many bytes of the tensor are in memory at a time.
const CHUNK: usize = 1 << 20;

/// An array of an open file that can be loaded: a [`Tensor`], whose bytes are read while a [`Writer`](crate::Writer)
/// writes.
#[derive(Clone, Copy, Debug)]
pub struct StoredTensor<'a> {
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    dtype: DType,
}

impl Checkpoint {
    /// The array as a tensor for a [`Writer`](crate::Writer), which reads the bytes while writing.
    ///
    /// # Errors
    /// As [`Checkpoint::spec`].
    pub fn tensor<'a>(&'a self, entry: &'a Entry) -> Result<StoredTensor<'a>, Error> {
        let dtype = entry.loadable(&self.name)?;
        Ok(StoredTensor { checkpoint: self, entry, dtype })
    }
}

impl Tensor for StoredTensor<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(self.entry.shape().clone())
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        Ok(Box::new(BufReader::with_capacity(CHUNK, self.checkpoint.reader(self.entry)?)))
    }
}
