//! Rounds values to another dtype, block by block, and counts the values that this loses: finite ones that become
//! infinite, and others than 0 that become 0.

use blob_core::DType;
use blob_io::Error;

use crate::transform::{Stream, Tally};

/// How many elements are rounded at once: source and target stay in the second-level cache.
pub(crate) const BLOCK: usize = 32 << 10;

/// The values that rounding loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Finite values that become infinite.
    pub(crate) infinite: u64,
    /// Values other than 0 that become 0.
    pub(crate) zeroed: u64,
}

/// Rounds whole elements to another dtype.
pub(crate) fn cast((from, source): (DType, &[u8]), to: DType, target: &mut Vec<u8>) -> Lost {
    blob_ops::convert_bytes(from, source, to, target);
    Lost { infinite: infinite((from, source), (to, target)), zeroed: zeroed((from, source), (to, target)) }
}

fn infinite((from, source): (DType, &[u8]), (to, target): (DType, &[u8])) -> u64 {
    match blob_ops::count_nonfinite(to, target).inf {
        0 => 0,
        infinite => infinite.saturating_sub(blob_ops::count_nonfinite(from, source).inf),
    }
}

/// A wider dtype has every value of a narrower one, and f32 those of bf16.
fn zeroed((from, source): (DType, &[u8]), (to, target): (DType, &[u8])) -> u64 {
    match zeros(to, target) {
        0 => 0,
        zeros_now => zeros_now.saturating_sub(zeros(from, source)),
    }
}

/// How many elements of a float dtype are 0, of either sign.
fn zeros(dtype: DType, bytes: &[u8]) -> u64 {
    let count = match dtype.size() {
        2 => bytes.as_chunks().0.iter().filter(|bits| u16::from_le_bytes(**bits) << 1 == 0).count(),
        4 => bytes.as_chunks().0.iter().filter(|bits| u32::from_le_bytes(**bits) << 1 == 0).count(),
        _ => bytes.as_chunks().0.iter().filter(|bits| u64::from_le_bytes(**bits) << 1 == 0).count(),
    };
    count as u64
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
