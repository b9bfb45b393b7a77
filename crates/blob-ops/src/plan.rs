//! Moves as pure geometry: a merge or split, a swap of two axes, a permutation with coalesced axes.
//!
//! Relies on shapes whose count fits, so no product here overflows. Knows no bytes, threads or instruction sets;
//! strides are in bytes, so that a kernel needs no element type.

mod pieces;

use blob_core::MAX_AXES;

pub(crate) use pieces::Piece;

/// A tensor around one axis: `outer × len × inner` elements. Every merge and every split is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Split {
    pub(crate) outer: usize,
    pub(crate) len: usize,
    pub(crate) inner: usize,
}

impl Split {
    /// These extents around `axis`, one of these.
    pub(crate) fn new(dims: &[usize], axis: usize) -> Self {
        Split { outer: dims[..axis].iter().product(), len: dims[axis], inner: dims[axis + 1..].iter().product() }
    }
}

/// A tensor around two axes: from `outer × a × mid × b × inner` to `outer × b × mid × a × inner`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Swap {
    pub(crate) outer: usize,
    pub(crate) a: usize,
    pub(crate) mid: usize,
    pub(crate) b: usize,
    pub(crate) inner: usize,
}

impl Swap {
    /// These extents around two axes, in either order; `None` where both are one axis.
    pub(crate) fn new(dims: &[usize], one: usize, other: usize) -> Option<Self> {
        let (first, last) = (one.min(other), one.max(other));
        (first < last).then(|| Swap {
            outer: dims[..first].iter().product(),
            a: dims[first],
            mid: dims[first + 1..last].iter().product(),
            b: dims[last],
            inner: dims[last + 1..].iter().product(),
        })
    }

    /// The same as a permutation of elements of `size` bytes.
    pub(crate) fn permutation(self, size: usize) -> Permutation {
        let dims = [self.outer, self.a, self.mid, self.b, self.inner];
        Permutation::new(&dims, &[0, 3, 2, 1, 4], size)
    }
}

/// One axis of a move: its extent, and how far apart its entries are in the source and in the destination, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stride {
    pub(crate) len: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// The axis that every tensor has.
pub(crate) const ONE: Stride = Stride { len: 1, from: 0, to: 0 };

/// At most [`MAX_AXES`] axes, without an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Strides {
    all: [Stride; MAX_AXES],
    len: usize,
}

impl Strides {
    pub(crate) fn push(&mut self, stride: Stride) {
        self.all[self.len] = stride;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[Stride] {
        &self.all[..self.len]
    }

    /// The number of entries of all axes together.
    pub(crate) fn count(&self) -> usize {
        self.as_slice().iter().map(|s| s.len).product()
    }

    /// Where an entry is read and where written; the first axis runs fastest.
    pub(crate) fn place(&self, entry: usize) -> (usize, usize) {
        let (mut rest, mut from, mut to) = (entry, 0, 0);
        for axis in self.as_slice() {
            let index = rest % axis.len;
            rest /= axis.len;
            from += index * axis.from;
            to += index * axis.to;
        }
        (from, to)
    }

    fn pop(&mut self) {
        self.len -= 1;
    }
}

/// A permutation: runs of `run` bytes, moved along axes that are in the destination's order, the innermost last.
///
/// Coalesced: no axis has one entry, no two neighbours lie side by side in the source, and the last one's entries are
/// not neighbours in the source, or they would be one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Permutation {
    pub(crate) run: usize,
    pub(crate) axes: Strides,
}

impl Permutation {
    /// Axis `i` of the result is axis `order[i]` of `dims`. No extent is zero, `order` names each axis once.
    pub(crate) fn new(dims: &[usize], order: &[usize], size: usize) -> Self {
        let mut from = [0; MAX_AXES];
        let mut stride = size;
        for (axis, &len) in dims.iter().enumerate().rev() {
            from[axis] = stride;
            stride *= len;
        }
        let mut axes = Strides::default();
        for &axis in order.iter().filter(|&&axis| dims[axis] != 1) {
            let (len, from) = (dims[axis], from[axis]);
            match axes.len.checked_sub(1).map(|last| &mut axes.all[last]) {
                Some(last) if last.from == from * len => (last.len, last.from) = (last.len * len, from),
                _ => axes.push(Stride { len, from, to: 0 }),
            }
        }
        let mut run = size;
        if let Some(last) = axes.as_slice().last().filter(|last| last.from == size) {
            run *= last.len;
            axes.pop();
        }
        let mut to = run;
        for axis in axes.all[..axes.len].iter_mut().rev() {
            axis.to = to;
            to *= axis.len;
        }
        Permutation { run, axes }
    }

    /// The length of source and destination in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.run * self.axes.count()
    }

    /// Where to cut for about `pieces` pieces. Neighbours in the source stay together for a [`PAGE`]: pieces that read
    /// less in a row fetch each other's lines, and two threads were two to four times slower than one.
    fn cut(&self, pieces: usize) -> Cut {
        let mut outer = 1;
        for (at, axis) in self.axes.as_slice().iter().enumerate() {
            let parts = pieces.div_ceil(outer);
            let least = if axis.from == self.run { PAGE.div_ceil(self.run) } else { 1 };
            if parts <= axis.len || least > 1 {
                let step = step(axis.len, parts).max(least);
                return Cut { axis: at, outer, step };
            }
            outer *= axis.len;
        }
        let axis = self.axes.as_slice().len();
        Cut { axis, outer, step: 1 }
    }
}

/// Where a permutation is cut: every entry of the `outer` axes before this one, and this one every `step` entries.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    axis: usize,
    outer: usize,
    step: usize,
}

/// Long axes are cut at whole tiles, so that no piece ends within a cache line of the next.
fn step(len: usize, parts: usize) -> usize {
    let step = len.div_ceil(parts);
    if step >= LINE { step.next_multiple_of(LINE) } else { step }
}

/// A permutation as blocks: `x` runs along the source, `y` along the destination, and `outer` is the rest.
///
/// Entry `(x, y)` of a block is read at `x · run` past the source of `y`, and written at `y · run` past the
/// destination of `x`. Both lists have the innermost axis first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Blocks {
    pub(crate) run: usize,
    pub(crate) outer: Strides,
    pub(crate) x: Strides,
    pub(crate) y: Strides,
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Bytes of a page of memory.
const PAGE: usize = 4 << 10;

/// Bytes that a block wants along source and destination before no further axis is taken: 16 cache lines.
const SIDE: usize = 1024;

impl Blocks {
    /// `x` takes the axes that continue the source's run, `y` those that continue the destination's, the shorter side
    /// first, until both are long enough or out of axes.
    pub(crate) fn new(plan: &Permutation) -> Self {
        let axes = plan.axes.as_slice();
        let mut taken = [false; MAX_AXES];
        let [outer, x, y] = [Strides::default(); 3];
        let mut blocks = Blocks { run: plan.run, outer, x, y };
        let mut sides = [Side::new(plan.run, &mut blocks.x, |s| s.from), Side::new(plan.run, &mut blocks.y, |s| s.to)];
        while let Some((side, at)) = Side::grow(&sides, axes, &taken) {
            taken[at] = true;
            sides[side].take(axes[at]);
        }
        for at in (0..axes.len()).rev().filter(|&at| !taken[at]) {
            blocks.outer.push(axes[at]);
        }
        blocks
    }
}

/// One side of a growing block.
struct Side<'a> {
    bytes: usize,
    axes: &'a mut Strides,
    stride: fn(&Stride) -> usize,
}

impl<'a> Side<'a> {
    fn new(run: usize, axes: &'a mut Strides, stride: fn(&Stride) -> usize) -> Self {
        Side { bytes: run, axes, stride }
    }

    /// The side that is to take an axis next, and which.
    fn grow(sides: &[Self; 2], axes: &[Stride], taken: &[bool]) -> Option<(usize, usize)> {
        let shorter = usize::from(sides[1].bytes < sides[0].bytes);
        [shorter, 1 - shorter].into_iter().find_map(|side| {
            let next = sides[side].next(axes, taken)?;
            (sides[side].bytes < SIDE).then_some((side, next))
        })
    }

    /// The axis that continues this side without a gap.
    fn next(&self, axes: &[Stride], taken: &[bool]) -> Option<usize> {
        (0..axes.len()).find(|&at| !taken[at] && (self.stride)(&axes[at]) == self.bytes)
    }

    fn take(&mut self, axis: Stride) {
        self.bytes *= axis.len;
        self.axes.push(axis);
    }
}

/// The places where the entries of some axes are read and written, in order, the first axis running fastest.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    axes: &'a [Stride],
    index: [usize; MAX_AXES],
    place: Option<(usize, usize)>,
}

impl<'a> Walk<'a> {
    /// From entry `start` on.
    pub(crate) fn new(axes: &'a Strides, start: usize) -> Self {
        let axes = axes.as_slice();
        let (mut index, mut rest) = ([0; MAX_AXES], start);
        let (mut from, mut to) = (0, 0);
        for (at, axis) in axes.iter().enumerate() {
            index[at] = rest % axis.len;
            rest /= axis.len;
            from += index[at] * axis.from;
            to += index[at] * axis.to;
        }
        let place = Some((from, to));
        Walk { axes, index, place }
    }
}

impl Iterator for Walk<'_> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let place = self.place.take()?;
        let (mut from, mut to) = place;
        for (axis, index) in self.axes.iter().zip(&mut self.index) {
            if *index + 1 < axis.len {
                *index += 1;
                self.place = Some((from + axis.from, to + axis.to));
                break;
            }
            from -= *index * axis.from;
            to -= *index * axis.to;
            *index = 0;
        }
        Some(place)
    }
}
