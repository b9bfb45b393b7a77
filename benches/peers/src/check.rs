//! Checks that each peer runs the right operation: compares the results on small shapes with index loops. Measures
//! nothing.

use anyhow::Result;

use crate::cases::{Case, Op};
use crate::input::Input;
use crate::naive;
use crate::peers::Peer;

/// The relative error allowed for a sum of a hundred thousand f32, which each crate adds in its own order, against a
/// sum in f64.
const TOLERANCE: f32 = 1e-3;

/// The extents of the small shapes: divisible by every number of parts, and different on adjacent axes.
const SMALL: [usize; 7] = [4, 8, 4, 8, 4, 8, 4];

/// The names of the peers and cases whose results are wrong.
///
/// # Errors
///
/// A peer fails.
pub(crate) fn all(peers: &[Box<dyn Peer>], cases: &[Case]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for case in cases.iter().map(small) {
        let input = Input::new(&case);
        let expected = naive::result(&case, &input.values);
        for peer in peers {
            let Some(mut work) = peer.prepare(&case, &input)? else {
                continue;
            };
            work.run()?;
            if !agrees(&case.op, &work.result()?, &expected) {
                let (name, threads) = (peer.name(), peer.threads());
                wrong.push(format!("{name} by {threads} on {}", case.name));
            }
        }
    }
    Ok(wrong)
}

/// The same operation on a shape small enough for index loops.
fn small(case: &Case) -> Case {
    let sides = case.dims.iter().zip(SMALL);
    let dims = sides.map(|(&side, small)| side.min(small)).collect();
    Case { dims, ..case.clone() }
}

/// Whether a result is equal bit for bit, or for a sum within the tolerance.
fn agrees(op: &Op, found: &[f32], expected: &[f32]) -> bool {
    match (op, found, expected) {
        (Op::Asum | Op::Sumsq, &[found], &[expected]) => (found - expected).abs() <= TOLERANCE * expected,
        _ => found == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cases, peers};

    #[test]
    fn every_peer_gives_what_index_loops_give() {
        let peers = peers::all().unwrap();
        for (_, cases) in cases::sections(256) {
            let wrong = all(&peers, &cases).unwrap();
            assert!(wrong.is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn a_small_case_can_still_be_split() {
        for case in cases::sections(256).into_iter().flat_map(|(_, cases)| cases) {
            if let Op::Merge { axis, parts } | Op::Split { axis, parts } = case.op {
                assert_eq!(small(&case).dims[axis] % parts, 0, "{}", case.name);
            }
        }
    }

    #[test]
    fn a_wrong_result_is_detected() {
        assert!(!agrees(&Op::Add, &[1.0, 2.0], &[2.0, 1.0]));
        assert!(!agrees(&Op::Add, &[1.0], &[1.0, 1.0]));
        assert!(!agrees(&Op::Asum, &[1.01], &[1.0]));
        assert!(!agrees(&Op::Asum, &[f32::NAN], &[1.0]));
        assert!(agrees(&Op::Asum, &[1.0001], &[1.0]));
    }
}
