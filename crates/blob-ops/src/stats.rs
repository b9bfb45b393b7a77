//! Statistics of a tensor whose bytes arrive in pieces: the accumulator and its result.
//!
//! Cuts the bytes into blocks and leaves the arithmetic to `cpu/reduce.rs` and `tree.rs`.

use crate::cpu::Isa;
use crate::cpu::lanes::{BLOCK, Scratch};
use crate::cpu::reduce;
use crate::scalar::Scalar;
use crate::tree::{Partial, Tree};
use blob_core::DType;

/// Reads a tensor once, in pieces of any size, and knows its [`Stats`] at the end.
///
/// Bytes are native-endian, as they lie in a blob, at any alignment. However they are cut into pieces, and whichever
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
    scratch: Box<Scratch>,
    tree: Tree,
}

impl StatsAccumulator {
    /// An accumulator for a tensor of this dtype.
    pub fn new(dtype: DType) -> Self {
        StatsAccumulator {
            dtype,
            isa: Isa::detect(),
            pending: Vec::new(),
            scratch: Box::default(),
            tree: Tree::default(),
        }
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

    /// The statistics of everything taken.
    pub fn finish(mut self) -> Stats {
        let trailing = self.pending.len() % self.dtype.size();
        let whole = self.pending.len() - trailing;
        if whole > 0 {
            self.push_pending(whole);
        }
        Stats { trailing, total: self.tree.total() }
    }

    fn push_pending(&mut self, len: usize) {
        let pending = std::mem::take(&mut self.pending);
        self.push(&pending[..len], &[]);
        self.pending = pending;
        self.pending.clear();
    }

    fn push(&mut self, block: &[u8], ahead: &[u8]) {
        let partial = reduce::block(self.isa, self.dtype, block, ahead, &mut self.scratch);
        self.tree.push(partial);
    }
}

/// What [`StatsAccumulator`] found.
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
/// Only an f64 tensor with values beyond about 10¹⁵⁰ can overflow these sums; what then cannot be represented is
/// infinite or NaN.
#[derive(Clone, Debug)]
pub struct Stats {
    trailing: usize,
    total: Option<Partial>,
}

impl Stats {
    /// Of a tensor of whole elements.
    pub(crate) fn of_whole(total: Option<Partial>) -> Self {
        Stats { trailing: 0, total }
    }

    /// Elements seen, NaN and Inf among them.
    pub fn count(&self) -> u64 {
        self.total.map_or(0, |t| t.count)
    }

    /// The smallest element, exact; −Inf is one, NaN is not. `None` if there is no element but NaN.
    ///
    /// Zero is always +0.
    pub fn min(&self) -> Option<Scalar> {
        self.ordered().map(|t| t.min.without_negative_zero())
    }

    /// The greatest element, exact; +Inf is one, NaN is not. `None` if there is no element but NaN.
    ///
    /// Zero is always +0.
    pub fn max(&self) -> Option<Scalar> {
        self.ordered().map(|t| t.max.without_negative_zero())
    }

    /// Σx / n over the n finite elements; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        let t = self.summed()?;
        if self.is_constant(&t) {
            return self.min().map(Scalar::as_f64);
        }
        Some(t.sum / t.finite() as f64)
    }

    /// √(Σ(x − mean)² / n) over the n finite elements, the population's standard deviation; `None` if there are none.
    pub fn std(&self) -> Option<f64> {
        let t = self.summed()?;
        if self.is_constant(&t) {
            return Some(0.0);
        }
        Some((t.m2 / t.finite() as f64).sqrt())
    }

    /// Σ|x| over the finite elements, Caffe's `asum`.
    pub fn l1(&self) -> f64 {
        self.total.map_or(0.0, |t| t.abs)
    }

    /// √Σx² over the finite elements, the root of Caffe's `sumsq`.
    pub fn l2(&self) -> f64 {
        self.total.map_or(0.0, |t| t.squares.sqrt())
    }

    /// Elements equal to 0, −0 among them.
    pub fn zeros(&self) -> u64 {
        self.total.map_or(0, |t| t.zeros)
    }

    /// Elements that are NaN.
    pub fn nan(&self) -> u64 {
        self.total.map_or(0, |t| t.nan)
    }

    /// Elements that are +Inf or −Inf.
    pub fn inf(&self) -> u64 {
        self.total.map_or(0, |t| t.inf)
    }

    /// Bytes left over at the end that were no whole element and were not counted: 0 for a well-formed tensor.
    pub fn trailing_bytes(&self) -> usize {
        self.trailing
    }

    /// The total, if it has an element that is not NaN.
    fn ordered(&self) -> Option<Partial> {
        self.total.filter(|t| t.count > t.nan)
    }

    /// The total, if it has a finite element.
    fn summed(&self) -> Option<Partial> {
        self.total.filter(|t| t.finite() > 0)
    }

    /// Then mean and std are known without rounding: 4096 times 0.1 does not add up to 409.6 in f64.
    fn is_constant(&self, total: &Partial) -> bool {
        total.inf == 0 && total.min == total.max
    }
}
