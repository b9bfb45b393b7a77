//! The values that every peer is given. Pure; the cases themselves are those of our own bench, `benches/ops/cases.rs`.

use crate::cases::{Case, Op};
use crate::naive;

/// What every peer is given.
pub(crate) struct Input {
    /// `x`, row-major.
    pub(crate) values: Vec<f32>,
    /// Its parts, where the case merges them.
    pub(crate) parts: Vec<Vec<f32>>,
}

impl Input {
    /// Whole numbers around zero: no two alike in a small shape, so that a misplaced one is seen.
    pub(crate) fn new(case: &Case) -> Input {
        const PERIOD: usize = 1 << 20;
        let count: usize = case.dims.iter().product();
        let value = |index: usize| (index % PERIOD) as f32 - (count.min(PERIOD) / 2) as f32;
        let values: Vec<f32> = (0..count).map(value).collect();
        let parts = match case.op {
            Op::Merge { axis, parts } => naive::split(&values, &case.dims, axis, parts),
            _ => Vec::new(),
        };
        Input { values, parts }
    }
}
