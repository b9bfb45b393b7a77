//! An array that Python has handed over, as values at an address: with its owner, and lent to a thread.

use std::any::Any;
use std::io::{self, BufRead, Read};

use blob_convert::Watch;
use blob_core::{DType, Shape};
use blob_io::Error;

use crate::mapping::Span;

/// How much of an array is copied at once on the way to a file.
const PIECE: usize = 1 << 20;

/// An array of Python's: dtype, shape, and its values row after row at an address.
pub(crate) struct Given {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The owner of the values. Dropped with the interpreter's lock, as each owner of a `Given` is a call of Python.
    _keep: Box<dyn Any>,
}

impl Given {
    pub(crate) fn kept(span: Span, dtype: DType, shape: Shape, keep: impl Any) -> Self {
        Self { span, dtype, shape, _keep: Box::new(keep) }
    }

    /// The same bits as values of a dtype of the same width.
    pub(crate) fn of_dtype(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.span.len()
    }

    /// The array for a thread that does not hold the interpreter's lock.
    pub(crate) fn lent(&self) -> Lent {
        Lent { span: self.span, dtype: self.dtype, shape: self.shape.clone() }
    }
}

/// A `Given` without its owner, which lives until the work is done.
pub(crate) struct Lent {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl blob_io::Tensor for Lent {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(self.shape.clone())
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        Ok(Box::new(io::BufReader::with_capacity(PIECE, Pieces { span: self.span, at: 0 })))
    }
}

struct Pieces {
    span: Span,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(self.span.len() - self.at);
        self.span.copy(self.at, &mut out[..n]);
        self.at += n;
        Ok(n)
    }
}

/// A tensor to be written, which `watch` can stop.
pub(crate) struct Watched<'a> {
    pub(crate) tensor: &'a dyn blob_io::Tensor,
    pub(crate) watch: &'a dyn Watch,
}

impl blob_io::Tensor for Watched<'_> {
    fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    fn shape(&self) -> Result<Shape, Error> {
        self.tensor.shape()
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        Ok(Box::new(Stopping { reader: self.tensor.reader()?, watch: self.watch }))
    }

    fn layer_type(&self) -> Option<&str> {
        self.tensor.layer_type()
    }
}

struct Stopping<'a> {
    reader: Box<dyn BufRead + 'a>,
    watch: &'a dyn Watch,
}

impl Read for Stopping<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(out)?;
        self.watch.step(n as u64).map_err(io::Error::other)?;
        Ok(n)
    }
}

impl BufRead for Stopping<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.watch.step(0).map_err(io::Error::other)?;
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.watch.advanced(bytes as u64);
        self.reader.consume(bytes);
    }
}
