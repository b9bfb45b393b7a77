//! A permutation on one thread: its blocks in the destination's order, each by the kernel that fits its sides.
//!
//! ```text
//! one run in all:               copy
//! runs of 1 KiB and more:       for each run of the destination: copy it, and ask for one that comes later
//! others: for each entry of the outer axes: for each block of 256 × 256 entries:
//!     entries of a register:    tiles (transpose.rs), or where a side is short rows zipped, unzipped (interleave.rs)
//!     others:                   for each y: for each x: copy src[from[y] + x · run] to dst[to[x] + y · run]
//! entries of a register whose rows share the sets of a cache: columns of squares in place of blocks
//! ```
//! Relies on the plan for every place; knows no threads.

use super::copy::CopyBytes;
use super::interleave::Interleave;
use super::machine::{Block, Fetch, Kernel, Machine, SQUARE, Store, Strip};
use super::transpose::share_sets;
use super::{Isa, fetch};
use crate::plan::{Blocks, LINE, Permutation, Strides, Walk};

/// Entries of a block along each side, at most: two tables of 2 KiB.
const ENTRIES: usize = 256;

/// Runs from here on are copied in the destination's order and asked for ahead, shorter ones in the source's. Thread
/// CPU time over memcpy's, 256 MiB, AMD EPYC Zen 4: runs of 2 KiB 0.70 and 0.84 in this way, 1.26 and 1.55 without
/// asking; runs of 256 bytes 1.02 to 1.32 in this way, 0.53 to 0.83 in the source's order.
const MIN_ORDERED_RUN: usize = 1 << 10;

/// Bytes that are asked for before they are copied.
const PREFETCHED_BYTES: usize = 2 << 10;

/// Moves `src` to `dst` as the plan says.
pub(crate) struct Permute<'a> {
    pub(crate) plan: &'a Permutation,
    pub(crate) src: &'a [u8],
    pub(crate) dst: &'a mut [u8],
    pub(crate) store: Store,
}

impl Permute<'_> {
    /// Every width has a kernel of its own: in one, the buffers of all would be on the stack together where nothing is
    /// optimised, 1.6 MB of them.
    pub(crate) fn run(self, isa: Isa) {
        let Permute { src, dst, store, .. } = self;
        if self.plan.axes.as_slice().is_empty() {
            let src = &src[..dst.len()];
            return isa.run(CopyBytes { src, dst, store });
        }
        let blocks = &Blocks::new(self.plan);
        let fetch = fetch(dst.len());
        let moves = Moves { plan: self.plan, blocks, src, dst, store, fetch };
        match self.plan.run {
            1 => isa.run(Entries::<1>(moves)),
            2 => isa.run(Entries::<2>(moves)),
            4 => isa.run(Entries::<4>(moves)),
            8 => isa.run(Entries::<8>(moves)),
            16 => isa.run(Entries::<16>(moves)),
            _ => isa.run(Runs(moves)),
        }
    }
}

/// Entries as wide as a register.
struct Entries<'a, const W: usize>(Moves<'a>);

impl<const W: usize> Kernel for Entries<'_, W> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(self) {
        let Entries(mut moves) = self;
        match Interleave::of(moves.blocks) {
            Some(interleave) => interleave.run::<M, W>(moves.src, moves.dst, moves.store),
            None if moves.strips::<M, W>() => {}
            None => moves.blocks::<M>(|block| block.run::<M, W>()),
        }
    }
}

/// Entries of any length.
struct Runs<'a>(Moves<'a>);

impl Kernel for Runs<'_> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(mut self) {
        self.0.runs::<M>();
    }
}

struct Moves<'a> {
    plan: &'a Permutation,
    blocks: &'a Blocks,
    src: &'a [u8],
    dst: &'a mut [u8],
    store: Store,
    fetch: Fetch,
}

impl Moves<'_> {
    /// Entries of any length: copies, short ones in the source's order, which the machine then fetches ahead by itself.
    #[inline(always)]
    fn runs<M: Machine>(&mut self) {
        match self.blocks.run {
            3 => self.blocks::<M>(short_runs::<3>),
            6 => self.blocks::<M>(short_runs::<6>),
            12 => self.blocks::<M>(short_runs::<12>),
            24 => self.blocks::<M>(short_runs::<24>),
            32 => self.blocks::<M>(short_runs::<32>),
            48 => self.blocks::<M>(short_runs::<48>),
            run if run >= MIN_ORDERED_RUN => self.in_order::<M>(),
            run => {
                self.store = self.store.of_runs(run, self.dst);
                self.blocks::<M>(|block| long_runs::<M>(block, run));
            }
        }
    }

    /// Runs in the destination's order, each asked for [`PREFETCHED_BYTES`] bytes before it is copied: no machine
    /// guesses where the next one is read.
    #[inline(always)]
    fn in_order<M: Machine>(&mut self) {
        let run = self.blocks.run;
        let mut axes = Strides::default();
        for axis in self.plan.axes.as_slice().iter().rev() {
            axes.push(*axis);
        }
        let mut ahead = Walk::new(&axes, 0).skip(PREFETCHED_BYTES.div_ceil(run));
        let runs = self.dst.chunks_mut(run).zip(Walk::new(&axes, 0));
        for (dst, (from, _)) in runs {
            if let Some((next, _)) = ahead.next() {
                for line in self.src[next..][..run.min(PREFETCHED_BYTES)].chunks(LINE) {
                    M::prefetch(line);
                }
            }
            self.store.write::<M>(dst, &self.src[from..][..run]);
        }
    }

    /// Where the rows of a block share the sets of a cache, all of them in columns of squares; `false`, and nothing is
    /// moved, where they do not or there is no kernel for them.
    #[inline(never)]
    fn strips<M: Machine, const W: usize>(&mut self) -> bool {
        let Blocks { run, outer, x, y } = self.blocks;
        let Some((rows, others)) = y.as_slice().split_first() else {
            return false;
        };
        let least = const { SQUARE / W };
        if self.fetch != Fetch::Squares || !share_sets(rows.from) || rows.len < least || x.count() < least {
            return false;
        }
        let mut all = Strides::default();
        for axis in others.iter().chain(outer.as_slice()) {
            all.push(*axis);
        }
        let mut to = Table::<{ 2 * ENTRIES }>::new(x);
        for (outer_from, outer_to) in Walk::new(&all, 0) {
            let mut x = 0;
            while x < to.count {
                let rest = to.count - x;
                // The last one is as wide as a square.
                let columns = if rest < ENTRIES + least { rest } else { ENTRIES };
                let mut strip = Strip {
                    src: &self.src[outer_from + x * run..],
                    dst: &mut self.dst[outer_to..],
                    rows: rows.len,
                    step: rows.from,
                    columns,
                    to: to.at(x, |place| place.1),
                    store: self.store,
                };
                if !M::squares::<W>(&mut strip) {
                    return false;
                }
                x += columns;
            }
        }
        true
    }

    /// Every block, with the tables of its two sides.
    #[inline(always)]
    fn blocks<M: Machine>(&mut self, mut each: impl FnMut(Block<'_>)) {
        let Blocks { run, outer, x, y } = self.blocks;
        let (mut from, mut to) = (Table::<ENTRIES>::new(y), Table::<ENTRIES>::new(x));
        for (outer_from, outer_to) in Walk::new(outer, 0) {
            for x in (0..to.count).step_by(ENTRIES) {
                let to = to.at(x, |place| place.1);
                for y in (0..from.count).step_by(ENTRIES) {
                    each(Block {
                        src: &self.src[outer_from + x * run..],
                        dst: &mut self.dst[outer_to + y * run..],
                        from: from.at(y, |place| place.0),
                        to,
                        store: self.store,
                        fetch: self.fetch,
                    });
                }
            }
        }
    }
}

/// Runs shorter than a line, whose length the compiler knows; they are not worth a way past the caches.
#[inline(always)]
fn short_runs<const RUN: usize>(block: Block<'_>) {
    for (x, to) in block.to.iter().enumerate() {
        let line = &mut block.dst[*to..][..block.from.len() * RUN];
        for (dst, from) in line.as_chunks_mut::<RUN>().0.iter_mut().zip(block.from) {
            dst.copy_from_slice(&block.src[from + x * RUN..][..RUN]);
        }
    }
}

/// Runs of any length, in the source's order.
#[inline(always)]
fn long_runs<M: Machine>(block: Block<'_>, run: usize) {
    for (y, from) in block.from.iter().enumerate() {
        for (x, to) in block.to.iter().enumerate() {
            let src = &block.src[from + x * run..][..run];
            block.store.write::<M>(&mut block.dst[to + y * run..][..run], src);
        }
    }
}

/// The places of some entries of a side, kept as long as the same ones are asked for.
struct Table<'a, const N: usize> {
    axes: &'a Strides,
    count: usize,
    start: Option<usize>,
    places: [usize; N],
}

impl<'a, const N: usize> Table<'a, N> {
    fn new(axes: &'a Strides) -> Self {
        Table { axes, count: axes.count(), start: None, places: [0; N] }
    }

    /// Those of at most `N` entries from `start` on.
    #[inline(always)]
    fn at(&mut self, start: usize, place: impl Fn((usize, usize)) -> usize) -> &[usize] {
        let len = N.min(self.count - start);
        if self.start != Some(start) {
            self.start = Some(start);
            self.fill(start, len, place);
        }
        &self.places[..len]
    }

    /// Along the first axis they are equally far apart.
    #[inline(always)]
    fn fill(&mut self, start: usize, len: usize, place: impl Fn((usize, usize)) -> usize) {
        let Some(axis) = self.axes.as_slice().first() else {
            self.places[0] = 0;
            return;
        };
        let step = place((axis.from, axis.to));
        let mut done = 0;
        while done < len {
            let at = start + done;
            let run = (axis.len - at % axis.len).min(len - done);
            let first = place(self.axes.place(at));
            for (i, entry) in self.places[done..done + run].iter_mut().enumerate() {
                *entry = first + i * step;
            }
            done += run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a processor does whose kernels take squares of rows that share the sets of a cache.
    fn check<const W: usize>(dims: [usize; 3]) {
        let (count, plan) = (dims.iter().product::<usize>(), Permutation::new(&dims, &[2, 1, 0], W));
        let blocks = &Blocks::new(&plan);
        let src: Vec<u8> = (0..count * W).map(|i| (i ^ i >> 8 ^ i >> 15) as u8 ^ (i % 251) as u8).collect();
        let mut want = vec![0; src.len()];
        for (at, entry) in src.chunks(W).enumerate() {
            let (a, b, c) = (at / dims[2] / dims[1], at / dims[2] % dims[1], at % dims[2]);
            want[((c * dims[1] + b) * dims[0] + a) * W..][..W].copy_from_slice(entry);
        }
        for isa in Isa::available() {
            for store in [Store::Cached, Store::Streaming] {
                let mut room = vec![0xA5; want.len() + LINE];
                let start = room.as_ptr().align_offset(LINE);
                let dst = &mut room[start..][..want.len()];
                let moves = Moves { plan: &plan, blocks, src: &src, dst, store, fetch: Fetch::Squares };
                isa.run(Entries::<W>(moves));
                assert!(room[start..][..want.len()] == want, "{dims:?} of {W} bytes, {store:?}, {isa:?}");
            }
        }
    }

    /// One strip and several, the last as wide as a square, wider and wider than a table; sides of one axis and of two.
    #[test]
    fn strips_of_every_width_and_of_axes_between() {
        check::<4>([69, 4, 320]);
        check::<4>([64, 64, 300]);
        check::<4>([300, 2, 640]);
        check::<8>([33, 3, 256]);
        check::<2>([130, 2, 512]);
        check::<2>([128, 1, 1024]);
        check::<1>([257, 2, 512]);
        check::<1>([256, 4, 768]);
        check::<4>([65, 256, 33]);
    }
}
