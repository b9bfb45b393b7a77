//! Rounds values to another dtype, block by block, and counts those that overflow to infinity.

use blob_core::DType;
use blob_io::Error;

use crate::transform::{Stream, Tally};

/// How many elements are rounded at once: source and target stay in the second-level cache.
pub(crate) const BLOCK: usize = 32 << 10;

/// Rounds whole elements to another dtype, and returns how many finite ones became infinite.
pub(crate) fn cast((from, source): (DType, &[u8]), to: DType, target: &mut Vec<u8>) -> u64 {
    blob_ops::convert_bytes(from, source, to, target);
    match blob_ops::count_nonfinite(to, target).inf {
        0 => 0,
        infinite => infinite.saturating_sub(blob_ops::count_nonfinite(from, source).inf),
    }
}

/// The message about values that became infinite.
pub(crate) fn overflowed(to: DType) -> String {
    format!("values became infinite as {to}")
}

/// A stream whose values are rounded.
pub(crate) struct Cast<'a> {
    read: Box<dyn Stream + 'a>,
    from: DType,
    to: DType,
    tensor: &'a str,
    tally: &'a Tally,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl<'a> Cast<'a> {
    pub(crate) fn new(
        read: Box<dyn Stream + 'a>,
        (from, to): (DType, DType),
        tensor: &'a str,
        tally: &'a Tally,
    ) -> Self {
        Self { read, from, to, tensor, tally, source: vec![0; BLOCK * from.size()], target: Vec::new() }
    }
}

impl Stream for Cast<'_> {
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        for out in out.chunks_mut(BLOCK * self.to.size()) {
            let wanted = out.len() / self.to.size() * self.from.size();
            let n = self.read.pull(&mut self.source[..wanted])?;
            let lost = cast((self.from, &self.source[..n]), self.to, &mut self.target);
            if lost > 0 {
                self.tally.lost(self.tensor, lost, overflowed(self.to));
            }
            out[..self.target.len()].copy_from_slice(&self.target);
            filled += self.target.len();
            if n < wanted {
                break;
            }
        }
        Ok(filled)
    }
}
