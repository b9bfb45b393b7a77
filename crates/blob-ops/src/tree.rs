//! The sums of one block, and the fixed tree in which blocks are joined.
//!
//! The tree depends on the number of blocks alone, so neither chunks nor instruction sets can change a result.
//! Knows no bytes and no dtypes.

use crate::scalar::Scalar;
use smallvec::SmallVec;

/// A result for a run of elements that can be joined with the next run's.
pub(crate) trait Join: Copy {
    /// Joins two neighbouring runs, `self` the left one.
    fn join(self, right: Self) -> Self;
}

/// `None` is the result for no elements.
impl<P: Join> Join for Option<P> {
    fn join(self, right: Self) -> Self {
        match (self, right) {
            (Some(left), Some(right)) => Some(left.join(right)),
            (left, right) => left.or(right),
        }
    }
}

/// The statistics of a run of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    pub(crate) count: u64,
    pub(crate) nan: u64,
    pub(crate) inf: u64,
    pub(crate) zeros: u64,
    /// Over the finite elements, as is every sum below.
    pub(crate) sum: f64,
    pub(crate) abs: f64,
    pub(crate) squares: f64,
    /// Σ(x − mean)².
    pub(crate) m2: f64,
    /// Over all elements but NaN; of nothing but NaN +Inf, and −Inf for `max`, which lose against any other run.
    pub(crate) min: Scalar,
    pub(crate) max: Scalar,
}

impl Partial {
    pub(crate) fn finite(&self) -> u64 {
        self.count - self.nan - self.inf
    }

    /// The share of the means' distance in m2.
    fn m2_between(&self, right: &Partial) -> f64 {
        let (n, m) = (self.finite(), right.finite());
        if n == 0 || m == 0 {
            return 0.0;
        }
        let (n, m) = (n as f64, m as f64);
        let delta = right.sum / m - self.sum / n;
        delta * delta * (n * m / (n + m))
    }
}

impl Join for Partial {
    /// m2 by the pairwise update of Chan, Golub and LeVeque (1979), formula 2.1b in terms of the means; everything
    /// else just adds up.
    fn join(self, right: Partial) -> Partial {
        Partial {
            count: self.count + right.count,
            nan: self.nan + right.nan,
            inf: self.inf + right.inf,
            zeros: self.zeros + right.zeros,
            sum: self.sum + right.sum,
            abs: self.abs + right.abs,
            squares: self.squares + right.squares,
            m2: self.m2 + right.m2 + self.m2_between(&right),
            min: if right.min.below(self.min) { right.min } else { self.min },
            max: if self.max.below(right.max) { right.max } else { self.max },
        }
    }
}

/// Joins blocks like a binary counter: two runs of 2ᵏ blocks become one of 2ᵏ⁺¹ as soon as both are neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Tree<P = Partial> {
    blocks: u64,
    /// One run for each bit set in `blocks`, the longest first: below 512 blocks, and mostly above, none on the heap.
    runs: SmallVec<[P; 8]>,
}

impl<P> Default for Tree<P> {
    fn default() -> Self {
        Tree { blocks: 0, runs: SmallVec::new() }
    }
}

impl<P: Join> Tree<P> {
    pub(crate) fn push(&mut self, block: P) {
        let mut run = block;
        for _ in 0..self.blocks.trailing_ones() {
            if let Some(left) = self.runs.pop() {
                run = left.join(run);
            }
        }
        self.runs.push(run);
        self.blocks += 1;
    }

    /// Everything pushed, joined; `None` if nothing was pushed.
    pub(crate) fn total(self) -> Option<P> {
        self.runs.into_iter().rev().reduce(|right, left| left.join(right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(x: f64) -> Partial {
        Partial {
            count: 1,
            nan: 0,
            inf: 0,
            zeros: 0,
            sum: x,
            abs: x,
            squares: x * x,
            m2: 0.0,
            min: Scalar::F(x),
            max: Scalar::F(x),
        }
    }

    #[test]
    fn a_run_for_each_bit_and_the_variance_of_1_to_n() {
        let mut tree = Tree::default();
        for n in 1..=1000u32 {
            tree.push(one(f64::from(n)));
            assert_eq!(tree.runs.len(), n.count_ones() as usize);
            let total = tree.clone().total().expect("not empty");
            let n = f64::from(n);
            assert_eq!((total.sum, total.max), (n * (n + 1.0) / 2.0, Scalar::F(n)));
            let variance = (n * n - 1.0) / 12.0;
            assert!((total.m2 / n - variance).abs() <= 1e-14 * variance, "{n}");
        }
    }
}
