//! The parameters of kernels: one struct for each struct of `kernels/*.cu`, with the same fields in the same order. No
//! struct has gaps: the longest fields come first, and `pad` fills up the last eight bytes.
//!
//! Knows no plans. A test compares the lengths with the committed PTX.

use crate::plan::{Stride, Strides};
use bytemuck::{Pod, Zeroable};

/// Parts that fit in the table of one launch.
pub(crate) const PARTS: usize = 192;

/// Axes that fit in a launch: those of a tensor, and the words of a run.
const AXES: usize = 33;

/// The threads of a block, in all kernels.
pub(crate) const THREADS: u32 = 256;

/// One launch of a kernel, with as many threads in each block as all kernels have.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    pub(crate) blocks: u32,
    pub(crate) params: Params,
}

#[derive(Clone, Debug)]
pub(crate) enum Params {
    Rows(Box<Rows>),
    Strided(Strided),
    Tiles(Tiles),
    Narrow(Narrow),
    Squares(Squares),
    Arithmetic(Arithmetic),
    Fill(Fill),
    Convert(Convert),
    Check(Check),
    Sums(Sums),
    Joins(Joins),
}

impl Params {
    /// The bytes of the struct.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Params::Rows(params) => bytemuck::bytes_of(&**params),
            Params::Strided(params) => bytemuck::bytes_of(params),
            Params::Tiles(params) => bytemuck::bytes_of(params),
            Params::Narrow(params) => bytemuck::bytes_of(params),
            Params::Squares(params) => bytemuck::bytes_of(params),
            Params::Arithmetic(params) => bytemuck::bytes_of(params),
            Params::Fill(params) => bytemuck::bytes_of(params),
            Params::Convert(params) => bytemuck::bytes_of(params),
            Params::Check(params) => bytemuck::bytes_of(params),
            Params::Sums(params) => bytemuck::bytes_of(params),
            Params::Joins(params) => bytemuck::bytes_of(params),
        }
    }
}

/// Rows of words; each part has a run of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Rows {
    pub(crate) whole: u64,
    pub(crate) pitch: u64,
    pub(crate) words: u32,
    pub(crate) row: u32,
    pub(crate) step_rows: u32,
    pub(crate) step_columns: u32,
    pub(crate) parts: u32,
    pub(crate) split: u32,
    pub(crate) at: [u64; PARTS],
    pub(crate) run: [u64; PARTS],
    pub(crate) end: [u32; PARTS],
}

/// A part of a row: its address, the bytes from row to row, and the column behind its last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) pitch: u64,
    pub(crate) end: u32,
}

impl Rows {
    /// One more part. There is room.
    pub(crate) fn push(&mut self, run: Run) {
        let part = self.parts as usize;
        (self.at[part], self.run[part], self.end[part]) = (run.at, run.pitch, run.end);
        self.parts += 1;
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) len: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl From<&Stride> for Axis {
    /// As wide as a launch counts; the plan was cut before, so that every extent fits.
    fn from(stride: &Stride) -> Self {
        Axis { len: stride.len as u32, from: stride.from as u64, to: stride.to as u64 }
    }
}

impl Axis {
    pub(crate) fn all(axes: &Strides) -> Vec<Axis> {
        axes.as_slice().iter().map(Axis::from).collect()
    }

    pub(crate) fn count(axes: &[Axis]) -> u32 {
        axes.iter().map(|axis| axis.len).product()
    }
}

/// Axes by field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Axes {
    from: [u64; AXES],
    to: [u64; AXES],
    len: [u32; AXES],
    pad: u32,
}

impl Axes {
    pub(crate) fn new<'a>(axes: impl IntoIterator<Item = &'a Axis>) -> Self {
        let mut table = Self::zeroed();
        for (at, axis) in axes.into_iter().enumerate() {
            (table.from[at], table.to[at], table.len[at]) = (axis.from, axis.to, axis.len);
        }
        table
    }
}

/// Words along axes, the one that runs fastest first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Strided {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) words: u32,
    pub(crate) axes: u32,
    pub(crate) axis: Axes,
}

/// Entries (x, y), x along the source and y along the destination, for every entry of the outer axes: those before
/// `outer`; then come those of x, then those of y.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Tiles {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) x_tiles: u32,
    pub(crate) y_tiles: u32,
    pub(crate) outer: u32,
    pub(crate) x_end: u32,
    pub(crate) y_end: u32,
    pub(crate) pad: u32,
    pub(crate) axis: Axes,
}

/// A short side and a long one, for every entry of the outer axes: without gaps in the source (`gather`) or the
/// destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Narrow {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Bytes from entry to entry of the short side, where each has a row of its own.
    pub(crate) pitch: u64,
    pub(crate) side: u32,
    pub(crate) len: u32,
    /// Entries of the long side in a block.
    pub(crate) chunk: u32,
    /// Blocks along the long side.
    pub(crate) chunks: u32,
    /// Just above 2³² over the words in a row of a block.
    pub(crate) reciprocal: u32,
    pub(crate) shift: u32,
    pub(crate) gather: u32,
    pub(crate) outer: u32,
    pub(crate) axis: Axes,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Squares {
    pub(crate) at: u64,
    pub(crate) matrix: u64,
    pub(crate) side: u32,
    pub(crate) tiles: u32,
    pub(crate) bytes: u32,
    pub(crate) pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Arithmetic {
    pub(crate) y: u64,
    pub(crate) x: u64,
    pub(crate) alpha: u64,
    pub(crate) pieces: u32,
    pub(crate) rest: u32,
    pub(crate) op: u32,
    pub(crate) bytes: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Fill {
    pub(crate) at: u64,
    pub(crate) pattern: [u64; 2],
    pub(crate) pieces: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Convert {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) groups: u32,
    pub(crate) rest: u32,
    pub(crate) blocks: u32,
    pub(crate) source: u32,
    pub(crate) target: u32,
    pub(crate) is_long: u32,
    pub(crate) bytes: u32,
    pub(crate) pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Check {
    pub(crate) from: u64,
    pub(crate) found: u64,
    pub(crate) start: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) groups: u32,
    pub(crate) rest: u32,
    pub(crate) source: u32,
    pub(crate) is_whole: u32,
    pub(crate) bytes: u32,
    pub(crate) pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Sums {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
    pub(crate) square: u32,
    pub(crate) scattered: u32,
    pub(crate) bytes: u32,
    pub(crate) is_signed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Joins {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
}
