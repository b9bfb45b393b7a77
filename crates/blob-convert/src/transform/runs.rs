//! Values gathered from several inputs: for each index of the outer axes, one run of each input.
//!
//! A merge takes whole inputs, a split a part of one. Memory stays at 8 MiB, plus 4 KiB for each input that is read
//! together with others.

use std::sync::{Arc, Mutex};

use blob_core::Shape;
use blob_io::Error;

use super::values::{Compute, Inputs, Stream, ready};
use crate::threads::lock;

/// The bytes that the buffers of all inputs have together, and the least and the most of one of them.
const BUFFERS: usize = 8 << 20;
const BUFFER: (usize, usize) = (4 << 10, 1 << 20);

/// The runs of each input.
#[derive(Debug)]
pub(super) struct Gather {
    /// How many runs each input has.
    outer: usize,
    runs: Vec<Run>,
    /// The whole of the only input, which all parts of an array that must be unpacked have in common.
    whole: Option<Whole>,
}

/// The bytes of an array, read once.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole(Arc<Mutex<Option<Arc<Vec<u8>>>>>);

impl Whole {
    /// The bytes of the only input. Threads that come meanwhile wait, so that the array is unpacked once.
    fn of(&self, inputs: &Inputs<'_>) -> Result<Arc<Vec<u8>>, Error> {
        let mut held = lock(&self.0);
        if let Some(bytes) = &*held {
            return Ok(Arc::clone(bytes));
        }
        Ok(Arc::clone(held.insert(Arc::new(inputs.whole(0)?))))
    }
}

/// In bytes: the gap before each run of an input, the run, and the gap behind.
#[derive(Clone, Copy, Debug)]
struct Run {
    before: u64,
    len: u64,
    after: u64,
}

/// The indices of an axis that are taken of an input.
#[derive(Clone, Debug)]
pub(super) struct Indices {
    pub(super) extent: usize,
    pub(super) range: std::ops::Range<usize>,
}

impl Gather {
    /// Takes parts along an axis; together they make an array of the shape `made`, of elements of `width` bytes.
    pub(super) fn new(made: &Shape, axis: usize, width: usize, parts: &[Indices]) -> Self {
        // Where there are no elements, the other extents may be of any size, and their product may overflow.
        let (outer, inner) = match made.dims() {
            _ if made.count() == 0 => (0, 0),
            dims => (dims[..axis].iter().product(), dims[axis + 1..].iter().product()),
        };
        let bytes = |indices: usize| indices as u64 * inner as u64 * width as u64;
        let runs = parts.iter().map(|part| Run {
            before: bytes(part.range.start),
            len: bytes(part.range.len()),
            after: bytes(part.extent - part.range.end),
        });
        Self { outer, runs: runs.collect(), whole: None }
    }
}

impl Gather {
    /// Takes the only input from memory.
    pub(super) fn of_whole(self, whole: Option<Whole>) -> Self {
        Self { whole, ..self }
    }

    /// The runs of an input that is in memory.
    fn cut(&self, whole: &[u8], inputs: &Inputs<'_>) -> Result<Vec<u8>, Error> {
        let mut made = Vec::new();
        for Run { before, len, after } in &self.runs {
            let (row, before, len) = ((before + len + after) as usize, *before as usize, *len as usize);
            made.reserve_exact(self.outer * len);
            for at in (0..self.outer).map(|outer| outer * row + before) {
                let run = whole.get(at..at + len).ok_or_else(|| inputs.error("has fewer values than its shape"))?;
                made.extend_from_slice(run);
            }
        }
        Ok(made)
    }
}

impl Compute for Gather {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        if let Some(whole) = &self.whole {
            return Ok(ready(self.cut(&whole.of(&inputs)?, &inputs)?));
        }
        // Along the first axis one input is read after the other.
        let at_once = if self.outer > 1 { self.runs.len() } else { 1 };
        let capacity = (BUFFERS / at_once.max(1)).clamp(BUFFER.0, BUFFER.1);
        let open = self.runs.iter().map(|_| None).collect();
        Ok(Box::new(Gathering { gather: self, inputs, open, capacity, run: 0, left: None }))
    }
}

/// The state of a gathered stream.
struct Gathering<'a> {
    gather: &'a Gather,
    inputs: Inputs<'a>,
    /// Each input from its first run to its last one.
    open: Vec<Option<Buffered<'a>>>,
    capacity: usize,
    /// The current run, over all inputs and outer indices, and the bytes left in the run; `None` before the run begins.
    run: usize,
    left: Option<u64>,
}

impl Stream for Gathering<'_> {
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let inputs = self.gather.runs.len();
        let mut done = 0;
        while done < out.len() && self.run < self.gather.outer * inputs {
            let (at, outer) = (self.run % inputs, self.run / inputs);
            let run = self.gather.runs[at];
            let capacity = self.capacity;
            let input = match &mut self.open[at] {
                Some(input) => input,
                none => none.insert(Buffered::new(self.inputs.open(at)?, capacity)),
            };
            let left = match self.left {
                Some(left) => left,
                None => {
                    input.skip(run.before + if outer > 0 { run.after } else { 0 })?;
                    run.len
                }
            };
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(out.len() - done);
            let n = input.read(&mut out[done..][..most])?;
            done += n;
            self.left = Some(left - n as u64).filter(|left| *left > 0 && n > 0);
            if self.left.is_none() {
                self.run += 1;
                if outer + 1 == self.gather.outer {
                    self.open[at] = None;
                }
            }
        }
        Ok(done)
    }
}

/// A stream that is read in larger pieces than requested.
struct Buffered<'a> {
    stream: Box<dyn Stream + 'a>,
    bytes: Vec<u8>,
    /// The bytes that were pulled and not yet read.
    rest: std::ops::Range<usize>,
}

impl<'a> Buffered<'a> {
    fn new(stream: Box<dyn Stream + 'a>, capacity: usize) -> Self {
        Self { stream, bytes: vec![0; capacity], rest: 0..0 }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        let held = bytes.min(self.rest.len() as u64);
        self.rest.start += held as usize;
        if bytes > held { self.stream.skip(bytes - held) } else { Ok(()) }
    }

    /// Reads at least one byte, unless the stream has ended.
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        if self.rest.is_empty() {
            self.rest = 0..self.stream.pull(&mut self.bytes)?;
        }
        let n = out.len().min(self.rest.len());
        out[..n].copy_from_slice(&self.bytes[self.rest.start..][..n]);
        self.rest.start += n;
        Ok(n)
    }
}
