//! The input of every peer. Pure. The cases are those of our own bench, `benches/ops/cases.rs`.

use crate::cases::{Case, Op};
use crate::naive;

/// The input of a case.
pub(crate) struct Input {
    /// `x`, row-major.
    pub(crate) values: Vec<f32>,
    /// The parts of `x` if the case merges.
    pub(crate) parts: Vec<Vec<f32>>,
}

impl Input {
    /// Integers around zero. In a small shape they are all different, so that the check detects a misplaced one.
    pub(crate) fn new(case: &Case) -> Input {
        const PERIOD: usize = 1 << 20;
        let count: usize = case.dims.iter().product();
        let values: Vec<f32> =
            (0..count).map(|index: usize| (index % PERIOD) as f32 - (count.min(PERIOD) / 2) as f32).collect();
        let parts = match case.op {
            Op::Merge { axis, parts } => naive::split(&values, &case.dims, axis, parts),
            _ => Vec::new(),
        };
        Input { values, parts }
    }
}
