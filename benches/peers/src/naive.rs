//! The oracle of the check: computes each operation by index loops that a reader can verify at a glance. Pure and slow.

use crate::cases::{Case, Op};

/// The factor of the scale case: near 1, so that values neither overflow nor vanish over many rounds.
pub(crate) const SCALE: f32 = 1.0001;

/// The result: one tensor, the parts of a split one after another, or a single number.
pub(crate) fn result(case: &Case, x: &[f32]) -> Vec<f32> {
    let sum = |term: fn(f64) -> f64| vec![x.iter().map(|&v| term(v.into())).sum::<f64>() as f32];
    match &case.op {
        Op::Merge { .. } => x.to_vec(),
        Op::Split { axis, parts } => split(x, &case.dims, *axis, *parts).concat(),
        Op::Permute(order) => permute(x, &case.dims, order),
        Op::Add => x.iter().map(|v| v + v).collect(),
        Op::Scale => x.iter().map(|v| v * SCALE).collect(),
        Op::Asum => sum(f64::abs),
        Op::Sumsq => sum(|v| v * v),
        Op::Fill => vec![1.0; x.len()],
    }
}

/// Equal parts along an axis, each row-major.
pub(crate) fn split(x: &[f32], shape: &[usize], axis: usize, parts: usize) -> Vec<Vec<f32>> {
    let (outer, len) = (shape[..axis].iter().product::<usize>(), shape[axis]);
    let inner: usize = shape[axis + 1..].iter().product();
    let part = |part: usize| {
        let mut out = Vec::with_capacity(x.len() / parts);
        for o in 0..outer {
            for i in part * len / parts..(part + 1) * len / parts {
                for k in 0..inner {
                    out.push(x[(o * len + i) * inner + k]);
                }
            }
        }
        out
    };
    (0..parts).map(part).collect()
}

fn permute(x: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    (0..x.len())
        .map(|mut at: usize| {
            let mut index = vec![0; shape.len()];
            for &axis in order.iter().rev() {
                index[axis] = at % shape[axis];
                at /= shape[axis];
            }
            let axes = index.iter().zip(shape);
            x[axes.fold(0, |offset, (i, side)| offset * side + i)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

    #[test]
    fn two_by_three_by_hand() {
        assert_eq!(permute(&X, &[2, 3], &[1, 0]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        // Axis 0 of the result is axis 2 of x: not the same as the reverse order.
        let turned = permute(&X, &[1, 2, 3], &[2, 0, 1]);
        assert_eq!(turned, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(split(&X, &[2, 3], 0, 2), [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
        assert_eq!(split(&X, &[2, 3], 1, 3), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]);
    }
}
