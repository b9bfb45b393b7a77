//! A stream whose values are rounded to another dtype.

use blob_core::DType;
use blob_io::Error;

use crate::cast::{BLOCK, cast};
use crate::transform::{Reports, Stream};

/// A stream whose values are rounded.
pub(crate) struct Rounded<'a> {
    read: Box<dyn Stream + 'a>,
    from: DType,
    to: DType,
    tensor: &'a str,
    tally: &'a Reports,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl<'a> Rounded<'a> {
    pub(crate) fn new(read: Box<dyn Stream + 'a>, from: DType, to: DType, tensor: &'a str, tally: &'a Reports) -> Self {
        Self { read, from, to, tensor, tally, source: vec![0; BLOCK * from.size()], target: Vec::new() }
    }
}

impl Stream for Rounded<'_> {
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        for out in out.chunks_mut(BLOCK * self.to.size()) {
            let wanted = out.len() / self.to.size() * self.from.size();
            let n = self.read.pull(&mut self.source[..wanted])?;
            let lost = cast(self.from, &self.source[..n], self.to, &mut self.target);
            self.tally.rounded(self.tensor, lost, self.to);
            out[..self.target.len()].copy_from_slice(&self.target);
            filled += self.target.len();
            if n < wanted {
                break;
            }
        }
        Ok(filled)
    }
}
