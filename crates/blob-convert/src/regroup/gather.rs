//! The bytes of a gathered tensor: for each index of the outer axes, a run of each part.

use std::io::{self, Read};

use blob_core::Shape;
use blob_io::Error;

use super::Gathered;
use super::array::Elements;

/// The bytes that all readers of a tensor's parts buffer together, and the least and the most that one reader buffers.
const BUFFERS: usize = 8 << 20;
const BUFFER: (usize, usize) = (4 << 10, 1 << 20);

pub(super) struct Gather<'m> {
    made: &'m Gathered<'m>,
    /// For each part: open from the first run to the last one.
    open: Vec<Option<Elements<'m>>>,
    capacity: usize,
    /// The bytes of one index of the axis.
    width: u64,
    runs: usize,
    /// The current run, whether the run was begun, and how many bytes of the run are left.
    run: usize,
    begun: bool,
    left: u64,
}

impl<'m> Gather<'m> {
    pub(super) fn new(made: &'m Gathered<'m>) -> Self {
        let (outer, inner) = outer_inner(&made.shape, made.axis);
        // Along the first axis one part is read after the other.
        let at_once = if outer > 1 { made.parts.len() } else { 1 };
        let open = made.parts.iter().map(|_| None).collect();
        Self {
            made,
            open,
            capacity: (BUFFERS / at_once.max(1)).clamp(BUFFER.0, BUFFER.1),
            width: inner as u64 * made.dtype.size() as u64,
            runs: outer * made.parts.len(),
            run: 0,
            begun: false,
            left: 0,
        }
    }

    /// Begins a run: opens the part at the part's first run, or skips the gap since the part's last run.
    fn begin(&mut self) -> Result<(), Error> {
        let at = self.run % self.made.parts.len();
        let part = &self.made.parts[at];
        let gap = match &self.open[at] {
            None => part.range.start,
            Some(_) => part.gap(self.made.axis),
        };
        let elements = match &mut self.open[at] {
            Some(elements) => elements,
            none => none.insert(part.array.elements(self.capacity)?),
        };
        elements.skip(gap as u64 * self.width)?;
        (self.begun, self.left) = (true, part.range.len() as u64 * self.width);
        Ok(())
    }

    /// Goes on to the next run where this one is done.
    fn next(&mut self) {
        if self.left > 0 {
            return;
        }
        if self.run + self.made.parts.len() >= self.runs {
            self.open[self.run % self.made.parts.len()] = None;
        }
        (self.run, self.begun) = (self.run + 1, false);
    }
}

/// The product of the extents before an axis, and of the extents after; both are zero for a tensor without elements.
fn outer_inner(shape: &Shape, axis: usize) -> (usize, usize) {
    match shape.dims() {
        // The other extents may be of any size, and the product may overflow.
        _ if shape.count() == 0 => (0, 0),
        [] => (1, 1),
        dims => (dims[..axis].iter().product(), dims[axis + 1..].iter().product()),
    }
}

impl Read for Gather<'_> {
    /// Fills `out` as far as possible: runs can be short, and each read may become a write.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.made.watch.cancelled() {
            return Err(io::Error::other(Error::Interrupted));
        }
        let mut done = 0;
        while done < out.len() && self.run < self.runs {
            if !self.begun {
                self.begin().map_err(io::Error::other)?;
            }
            let at = self.run % self.made.parts.len();
            if let Some(elements) = self.open[at].as_mut().filter(|_| self.left > 0) {
                let max = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len() - done);
                let n = elements.read(&mut out[done..][..max])?;
                if n == 0 {
                    return Ok(done);
                }
                self.made.watch.advanced(n as u64);
                (done, self.left) = (done + n, self.left - n as u64);
            }
            self.next();
        }
        Ok(done)
    }
}
