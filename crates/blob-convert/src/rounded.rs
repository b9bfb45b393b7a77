//! Values that are rounded to other dtypes: a stream, and pieces in memory.

use blob_core::DType;
use blob_io::Error;

use crate::cast::{BLOCK, cast};
use crate::planned::Planned;
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
    pub(crate) fn new(
        read: Box<dyn Stream + 'a>,
        (from, to): (DType, DType),
        tensor: &'a str,
        tally: &'a Reports,
    ) -> Self {
        Self { read, from, to, tensor, tally, source: vec![0; BLOCK * from.size()], target: Vec::new() }
    }
}

impl Stream for Rounded<'_> {
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

/// Calls `put` with whole elements of a tensor, rounded, and with their offset in the tensor; `at` is the offset among
/// the bytes as read.
pub(crate) fn rounded(
    tensor: &Planned,
    at: u64,
    bytes: &[u8],
    tally: &Reports,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    if tensor.casts.is_empty() {
        return put(at, bytes);
    }
    let width = tensor.read_as.size();
    let mut at = at / width as u64 * tensor.spec.dtype.size() as u64;
    for block in bytes.chunks(BLOCK * width) {
        let rounded = all_casts(tensor, block, tally);
        put(at, &rounded)?;
        at += rounded.len() as u64;
    }
    Ok(())
}

/// Elements of a tensor, rounded to one dtype after the other.
fn all_casts(tensor: &Planned, bytes: &[u8], tally: &Reports) -> Vec<u8> {
    let (mut bytes, mut from) = (bytes.to_vec(), tensor.read_as);
    for to in &tensor.casts {
        let mut target = Vec::new();
        let lost = cast((from, &bytes), *to, &mut target);
        tally.rounded(&tensor.spec.name, lost, *to);
        (bytes, from) = (target, *to);
    }
    bytes
}
