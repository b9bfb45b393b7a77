//! Reads column-major arrays in row-major order, with the whole array in memory.

use std::io;

use super::Elements;
use crate::entry::Entry;
use crate::error::ReadError;

/// An array as stored, in column-major order, and the position in the array.
pub(super) struct Columns {
    bytes: Vec<u8>,
    width: usize,
    dims: Vec<usize>,
    /// The stride of each axis in bytes: the product of all earlier dims.
    strides: Vec<usize>,
    /// The index of the next element, and the element's offset.
    index: Vec<usize>,
    at: usize,
}

impl Columns {
    /// Reads all elements of an entry.
    pub(super) fn read(mut elements: Elements<'_>, entry: &Entry) -> Result<Self, ReadError> {
        let mut bytes = room(entry, elements.left())?;
        bytes.resize(elements.left() as usize, 0);
        elements.next(&mut bytes)?;
        let (width, dims) = (elements.width(), entry.shape.dims().to_vec());
        let strides = dims.iter().scan(width, |stride, d| {
            let this = *stride;
            *stride *= d;
            Some(this)
        });
        Ok(Self { bytes, width, strides: strides.collect(), index: vec![0; dims.len()], dims, at: 0 })
    }

    /// Fills `out` with the next elements.
    pub(super) fn next(&mut self, out: &mut [u8]) {
        for element in out.chunks_exact_mut(self.width) {
            element.copy_from_slice(&self.bytes[self.at..self.at + self.width]);
            self.step();
        }
    }

    /// Skips elements.
    pub(super) fn skip(&mut self, elements: usize) {
        for _ in 0..elements {
            self.step();
        }
    }

    fn step(&mut self) {
        for axis in (0..self.dims.len()).rev() {
            self.index[axis] += 1;
            self.at += self.strides[axis];
            if self.index[axis] < self.dims[axis] {
                return;
            }
            self.at -= self.strides[axis] * self.dims[axis];
            self.index[axis] = 0;
        }
    }
}

/// An empty buffer with room for `bytes`, or an error if there is not enough memory.
fn room(entry: &Entry, bytes: u64) -> Result<Vec<u8>, ReadError> {
    let mut buffer = Vec::new();
    let room = usize::try_from(bytes).map(|n| buffer.try_reserve_exact(n));
    if let Ok(Ok(())) = room {
        return Ok(buffer);
    }
    Err(ReadError::Io { offset: entry.offset().unwrap_or(0), source: io::ErrorKind::OutOfMemory.into() })
}
