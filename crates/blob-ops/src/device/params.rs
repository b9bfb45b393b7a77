//! The parameters of kernels: one struct for each struct of `kernels/*.cu`, with the same fields.
//!
//! Knows no plans. A test compares the lengths with the committed PTX.

use crate::plan::Strides;

/// Parts that fit in the table of one launch.
pub(crate) const PARTS: usize = 192;

/// Axes that fit in a launch: those of a tensor, and the words of a run.
const AXES: usize = 33;

/// One launch of a kernel, with as many threads in each block as all kernels have.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    pub(crate) blocks: u32,
    pub(crate) params: Params,
}

#[derive(Clone, Debug)]
pub(crate) enum Params {
    Rows(Rows),
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

/// Rows of words; each part has a run of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) whole: u64,
    pub(crate) pitch: u64,
    pub(crate) words: u32,
    pub(crate) row: u32,
    pub(crate) split: bool,
    pub(crate) parts: Vec<Run>,
}

/// A part of a row: its address, the bytes from row to row, and the column behind its last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) pitch: u64,
    pub(crate) end: u32,
}

/// Words along axes, the one that runs fastest first.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) words: u32,
    pub(crate) axes: Vec<Axis>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) len: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Entries (x, y), x along the source and y along the destination, for every entry of the outer axes.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Entries of a tile along x and along y.
    pub(crate) tile: [u32; 2],
    pub(crate) outer: Vec<Axis>,
    pub(crate) x: Vec<Axis>,
    pub(crate) y: Vec<Axis>,
}

/// A short side and a long one, for every entry of the outer axes: without gaps in the source (`gather`) or the
/// destination.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Bytes from entry to entry of the short side, where each has a row of its own.
    pub(crate) pitch: u64,
    pub(crate) side: u32,
    pub(crate) len: u32,
    /// Entries of the long side in a block.
    pub(crate) chunk: u32,
    /// Words in a row of a block.
    pub(crate) words: u32,
    pub(crate) shift: u32,
    pub(crate) gather: bool,
    pub(crate) outer: Vec<Axis>,
}

#[derive(Clone, Debug)]
pub(crate) struct Squares {
    pub(crate) at: u64,
    pub(crate) matrix: u64,
    pub(crate) side: u32,
    pub(crate) tiles: u32,
    pub(crate) bytes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Arithmetic {
    pub(crate) y: u64,
    pub(crate) x: u64,
    pub(crate) alpha: u64,
    pub(crate) pieces: u32,
    pub(crate) rest: u32,
    pub(crate) op: u32,
    pub(crate) bytes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) at: u64,
    pub(crate) pattern: [u64; 2],
    pub(crate) pieces: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Convert {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) groups: u32,
    pub(crate) rest: u32,
    pub(crate) blocks: u32,
    pub(crate) source: u32,
    pub(crate) target: u32,
    pub(crate) is_long: bool,
    pub(crate) bytes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) from: u64,
    pub(crate) found: u64,
    pub(crate) start: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) groups: u32,
    pub(crate) rest: u32,
    pub(crate) source: u32,
    pub(crate) is_whole: bool,
    pub(crate) bytes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
    pub(crate) square: bool,
    pub(crate) scattered: bool,
    pub(crate) bytes: bool,
    pub(crate) is_signed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Joins {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
}

impl Axis {
    /// As wide as a launch counts; the plan was cut before, so that every extent fits.
    pub(crate) fn all(axes: &Strides) -> Vec<Axis> {
        let axis = |stride: &crate::plan::Stride| Axis {
            len: stride.len as u32,
            from: stride.from as u64,
            to: stride.to as u64,
        };
        axes.as_slice().iter().map(axis).collect()
    }

    pub(crate) fn count(axes: &[Axis]) -> u32 {
        axes.iter().map(|axis| axis.len).product()
    }
}

/// A struct as C lays it out: the longest fields come first everywhere, so that there are no gaps.
struct Bytes(Vec<u8>);

impl Bytes {
    fn long(mut self, fields: impl IntoIterator<Item = u64>) -> Self {
        fields.into_iter().for_each(|field| self.0.extend(field.to_ne_bytes()));
        self
    }

    fn short(mut self, fields: impl IntoIterator<Item = u32>) -> Self {
        fields.into_iter().for_each(|field| self.0.extend(field.to_ne_bytes()));
        self
    }

    fn axes(self, axes: &[Axis]) -> Self {
        let padded = |field: fn(&Axis) -> u64| {
            let missing = AXES - axes.len();
            axes.iter().map(field).chain(std::iter::repeat_n(0, missing))
        };
        let lens = padded(|axis| axis.len.into()).map(|len| len as u32);
        self.long(padded(|axis| axis.from)).long(padded(|axis| axis.to)).short(lens).short([0])
    }
}

/// The threads of a block, in all kernels.
pub(crate) const THREADS: u32 = 256;

impl Params {
    /// The bytes of the struct.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let b = Bytes(Vec::new());
        match self {
            Params::Rows(p) => p.bytes(b),
            Params::Strided(p) => b.long([p.from, p.to]).short([p.words, p.axes.len() as u32]).axes(&p.axes),
            Params::Tiles(p) => p.bytes(b),
            Params::Narrow(p) => p.bytes(b),
            Params::Squares(p) => b.long([p.at, p.matrix]).short([p.side, p.tiles, p.bytes.into(), 0]),
            Params::Arithmetic(p) => b.long([p.y, p.x, p.alpha]).short([p.pieces, p.rest, p.op, p.bytes.into()]),
            Params::Fill(p) => b.long([p.at]).long(p.pattern).short([p.pieces, p.head, p.tail, 0]),
            Params::Convert(p) => b.long([p.from, p.to]).short([p.groups, p.rest, p.blocks]).short([
                p.source,
                p.target,
                p.is_long.into(),
                p.bytes.into(),
                0,
            ]),
            Params::Check(p) => b.long([p.from, p.found, p.start, p.low, p.high]).short([
                p.groups,
                p.rest,
                p.source,
                p.is_whole.into(),
                p.bytes.into(),
                0,
            ]),
            Params::Sums(p) => b.long([p.from, p.to, p.count]).short([
                p.square.into(),
                p.scattered.into(),
                p.bytes.into(),
                p.is_signed.into(),
            ]),
            Params::Joins(p) => b.long([p.from, p.to, p.count]),
        }
        .0
    }
}

impl Rows {
    fn bytes(&self, bytes: Bytes) -> Bytes {
        let missing = PARTS - self.parts.len();
        let long = |field: fn(&Run) -> u64| self.parts.iter().map(field).chain(std::iter::repeat_n(0, missing));
        let ends = self.parts.iter().map(|part| part.end).chain(std::iter::repeat_n(0, missing));
        let count = self.parts.len() as u32;
        let steps = [THREADS / self.row, THREADS % self.row];
        let bytes = bytes.long([self.whole, self.pitch]).short([self.words, self.row]).short(steps);
        bytes.short([count, self.split.into()]).long(long(|part| part.at)).long(long(|part| part.pitch)).short(ends)
    }
}

impl Tiles {
    /// Tiles along x and along y.
    pub(crate) fn tiles(&self) -> [u32; 2] {
        let along = |axes: &[Axis], tile| Axis::count(axes).div_ceil(tile);
        [along(&self.x, self.tile[0]), along(&self.y, self.tile[1])]
    }

    fn bytes(&self, bytes: Bytes) -> Bytes {
        let (x_end, all) = (self.outer.len() + self.x.len(), [&self.outer[..], &self.x, &self.y].concat());
        let ends = [self.outer.len(), x_end, all.len(), 0].map(|end| end as u32);
        let counts = [Axis::count(&self.x), Axis::count(&self.y)];
        bytes.long([self.from, self.to]).short(counts).short(self.tiles()).short(ends).axes(&all)
    }
}

impl Narrow {
    /// Blocks along the long side.
    pub(crate) fn chunks(&self) -> u32 {
        self.len.div_ceil(self.chunk)
    }

    fn bytes(&self, bytes: Bytes) -> Bytes {
        // Just above 2³² / words: exact for the number of a word in a block, which is far below 2³² / words.
        let reciprocal = ((1u64 << 32) / u64::from(self.words) + 1) as u32;
        let bytes =
            bytes.long([self.from, self.to, self.pitch]).short([self.side, self.len, self.chunk, self.chunks()]);
        bytes.short([reciprocal, self.shift, self.gather.into(), self.outer.len() as u32]).axes(&self.outer)
    }
}
