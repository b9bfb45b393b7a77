//! That each peer is asked for the right thing: its results on small shapes against index loops. It measures nothing.

use anyhow::Result;

use crate::cases::{Case, Input, Op};
use crate::naive;
use crate::peers::Peer;

/// Sums of a hundred thousand f32, in an order that each crate chooses, against a sum in f64.
const TOLERANCE: f32 = 1e-3;

/// The names of the peers and cases whose results are wrong.
///
/// # Errors
///
/// A peer refuses what it was asked for.
pub(crate) fn all(peers: &[Box<dyn Peer>], cases: &[Case]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for case in cases.iter().map(Case::small) {
        let input = Input::new(&case);
        let expected = naive::result(&case, &input);
        for peer in peers {
            let Some(mut work) = peer.prepare(&case, &input)? else {
                continue;
            };
            work.run()?;
            if !agrees(&case.op, &work.result()?, &expected) {
                wrong.push(format!("{} on {}", peer.name(), case.name));
            }
        }
    }
    Ok(wrong)
}

/// Bit for bit, but for the sums.
fn agrees(op: &Op, found: &[f32], expected: &[f32]) -> bool {
    match (op, found, expected) {
        (Op::Asum | Op::Sumsq, &[found], &[expected]) => {
            (found - expected).abs() <= TOLERANCE * expected
        }
        _ => found == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cases, peers};

    #[test]
    fn every_peer_gives_what_index_loops_give() {
        for threads in [1, 2] {
            let peers = peers::all(threads).unwrap();
            let wrong = all(&peers, &cases::all(256)).unwrap();
            assert!(wrong.is_empty(), "{threads} threads: {wrong:?}");
        }
    }

    #[test]
    fn a_wrong_result_is_seen() {
        assert!(!agrees(&Op::Add, &[1.0, 2.0], &[2.0, 1.0]));
        assert!(!agrees(&Op::Add, &[1.0], &[1.0, 1.0]));
        assert!(!agrees(&Op::Asum, &[1.01], &[1.0]));
        assert!(!agrees(&Op::Asum, &[f32::NAN], &[1.0]));
        assert!(agrees(&Op::Asum, &[1.0001], &[1.0]));
    }
}
