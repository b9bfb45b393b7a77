//! Statistics of a tensor whose bytes arrive in pieces: the accumulator and its result.
//!
//! Cuts the bytes into blocks and leaves the arithmetic to `cpu/reduce.rs` and `tree.rs`.

use crate::cpu::Isa;
use crate::cpu::lanes::{BLOCK, Scratch};
use crate::cpu::reduce;
use crate::scalar::Scalar;
use crate::tree::{Partial, Tree};
use blob_core::DType;

/// Reads a tensor once, in pieces of any size, and gives the [`Stats`] at the end.
///
/// Bytes are native-endian, as they lie in a blob, at any alignment. However the bytes are cut, and whichever
/// instruction set runs, the result has the same bits: elements are summed in blocks of 4096 with 16 lanes of f64 and
/// no FMA, and blocks are joined pairwise in an order that depends on their number alone.
///
/// Memory: 64 KiB at most.
#[derive(Clone, Debug)]
pub struct StatsAccumulator {
    dtype: DType,
    isa: Isa,
    /// The start of a block whose end has not come yet.
    pending: Vec<u8>,
    /// Made at the first whole block.
    scratch: Option<Box<Scratch>>,
    tree: Tree,
}

impl StatsAccumulator {
    /// An accumulator for a tensor of this dtype.
    pub fn new(dtype: DType) -> Self {
        StatsAccumulator { dtype, isa: Isa::detect(), pending: Vec::new(), scratch: None, tree: Tree::default() }
    }

    /// Takes the next bytes of the tensor. A piece may end anywhere, even inside an element.
    pub fn update(&mut self, bytes: &[u8]) {
        let block = BLOCK * self.dtype.size();
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(block - self.pending.len()));
            self.pending.extend_from_slice(head);
            rest = tail;
            if self.pending.len() < block {
                return;
            }
            self.push_pending(block);
        }
        let blocks = rest.chunks_exact(block);
        self.pending.extend_from_slice(blocks.remainder());
        let mut blocks = blocks.peekable();
        while let Some(bytes) = blocks.next() {
            let ahead = blocks.peek().copied().unwrap_or(&[]);
            self.push(bytes, ahead);
        }
    }

    /// Hands the working memory, 32 KiB, on to another accumulator: many that take turns share one.
    pub fn hand_over(&mut self, to: &mut Self) {
        to.scratch = self.scratch.take().or(to.scratch.take());
    }

    /// The statistics of everything taken.
    pub fn finish(mut self) -> Stats {
        let trailing = self.pending.len() % self.dtype.size();
        let whole = self.pending.len() - trailing;
        if whole > 0 {
            self.push_pending(whole);
        }
        Stats::new(self.tree.total(), trailing)
    }

    fn push_pending(&mut self, len: usize) {
        let pending = std::mem::take(&mut self.pending);
        self.push(&pending[..len], &[]);
        self.pending = pending;
        self.pending.clear();
    }

    fn push(&mut self, block: &[u8], ahead: &[u8]) {
        let scratch = self.scratch.get_or_insert_default();
        let partial = reduce::block(self.isa, self.dtype, block, ahead, scratch);
        self.tree.push(partial);
    }
}

/// The result of a [`StatsAccumulator`].
///
/// NaN is counted and left out of everything else. ±Inf is counted, takes part in [`min`](Stats::min) and
/// [`max`](Stats::max), and is left out of mean, std, l1 and l2. A bool is 0 or 1.
///
/// **Accuracy.** Each element passes through at most 255 additions in its lane, 4 between lanes and ⌈log₂ B⌉ between
/// B blocks. With d = 259 + ⌈log₂ B⌉ and u = 2⁻⁵³ the error of Σ|x| is at most d·u/(1 − d·u) times Σ|x|, that of Σx
/// the same times Σ|x|, and that of Σx² (d + 1)·u/(1 − (d + 1)·u) times Σx² (Higham, *Accuracy and Stability of
/// Numerical Algorithms*, 2nd ed., §4.2): 3·10⁻¹⁴ relative at worst, about 10⁻¹⁶ in practice. Integers of 8 and 16
/// bits are exact within a block; integers beyond ±2⁵³ are rounded when they become f64. The standard deviation
/// subtracts each block's own mean first and joins blocks by the pairwise update of Chan, Golub and LeVeque
/// (*Updating Formulae and a Pairwise Algorithm for Computing Sample Variances*, 1979; *The American Statistician* 37,
/// 1983), so a mean far from 0 does not destroy it.
///
/// Only an f64 tensor with values beyond about 10¹⁵⁰ can overflow these sums; a field that then cannot be represented
/// is infinite or NaN.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Elements seen, NaN and Inf among them.
    pub count: u64,
    /// The smallest element, exact; −Inf is one, NaN is not. `None` if there is no element but NaN.
    ///
    /// Zero is always +0.
    pub min: Option<Scalar>,
    /// The greatest element, exact; +Inf is one, NaN is not. `None` if there is no element but NaN.
    ///
    /// Zero is always +0.
    pub max: Option<Scalar>,
    /// Σx / n over the n finite elements; `None` if there are none.
    pub mean: Option<f64>,
    /// √(Σ(x − mean)² / n) over the n finite elements, the population's standard deviation; `None` if there are none.
    pub std: Option<f64>,
    /// Σ|x| over the finite elements, Caffe's `asum`.
    pub l1: f64,
    /// √Σx² over the finite elements, the root of Caffe's `sumsq`.
    pub l2: f64,
    /// Elements equal to 0, −0 among them.
    pub zeros: u64,
    /// Elements that are NaN.
    pub nan: u64,
    /// Elements that are +Inf or −Inf.
    pub inf: u64,
    /// Bytes left over at the end that were no whole element and were not counted: 0 for a well-formed tensor.
    pub trailing_bytes: usize,
}

impl Stats {
    pub(crate) fn new(total: Option<Partial>, trailing_bytes: usize) -> Self {
        let Some(t) = total else {
            return Stats { trailing_bytes, ..Stats::default() };
        };
        let ordered = |x: Scalar| (t.count > t.nan).then(|| x.without_negative_zero());
        let (min, max) = (ordered(t.min), ordered(t.max));
        let finite = t.finite() as f64;
        let (mean, std) = match t.finite() {
            0 => (None, None),
            // Known without rounding: 4096 times 0.1 does not add up to 409.6 in f64.
            _ if t.inf == 0 && t.min == t.max => (min.map(Scalar::as_f64), Some(0.0)),
            _ => (Some(t.sum / finite), Some((t.m2 / finite).sqrt())),
        };
        let (l1, l2) = (t.abs, t.squares.sqrt());
        let Partial { count, zeros, nan, inf, .. } = t;
        Stats { count, min, max, mean, std, l1, l2, zeros, nan, inf, trailing_bytes }
    }
}
