//! Tensors that the pass over the source does not move: each is read by itself, unpacked, computed or put into another
//! order.

use blob_io::Error;

use super::Pass;
use crate::hash::PIECE;
use crate::options::refuse;
use crate::transform::Reports;
use crate::watch::{Uncounted, Watch};

impl Pass<'_> {
    /// Hands one tensor's bytes to `put`, with the offset in the tensor: in any order, if that is allowed.
    pub(super) fn separate(
        self,
        tensor: usize,
        tally: &Reports,
        in_any_order: bool,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let planned = &self.tensors[tensor];
        let watch = Uncounted(self.watch);
        let panels = in_any_order.then(|| planned.panels(self.checkpoint, &watch, tally)).transpose()?.flatten();
        if let Some(panels) = panels {
            return panels.each(|at, bytes| planned.round(at, bytes, tally, &mut put));
        }
        let mut at = 0;
        self.stream(tensor, tally, |bytes| {
            put(at, bytes)?;
            at += bytes.len() as u64;
            Ok(())
        })
    }

    /// One tensor's bytes in the output's order. Progress is not advanced: the pass counts these bytes.
    pub(super) fn stream(
        self,
        tensor: usize,
        tally: &Reports,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let planned = &self.tensors[tensor];
        let watch = Uncounted(self.watch);
        let mut values = planned.open(self.checkpoint, &watch, tally)?;
        let mut left = planned.spec.byte_len();
        let mut buf = vec![0; left.min(PIECE as u64) as usize];
        loop {
            watch.step(0)?;
            let n = values.pull(&mut buf)?;
            // The transform may be the user's own code.
            let Some(rest) = left.checked_sub(n as u64).filter(|rest| n > 0 || *rest == 0) else {
                let message = format!("array {:?}: its values are not as many as were planned", planned.spec.name);
                return Err(refuse(self.checkpoint, message));
            };
            if n == 0 {
                return Ok(());
            }
            take(&buf[..n])?;
            left = rest;
        }
    }
}
