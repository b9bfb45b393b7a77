//! Permutations with short sides, which are interleaved: around the ends of planes and of rows, and several rows at a
//! time.

use super::{all_execs, check_permutation};
use crate::cpu::Exec;

/// A plane holds 512 bytes, a row 8 KiB: entries of 16 bytes down to one.
const ALONG: [usize; 8] = [1, 2, 31, 33, 128, 129, 511, 1025];

fn check(dims: &[usize], order: &[usize]) {
    let execs: Vec<Exec> = all_execs().into_iter().filter(|m| m.pieces < 7).collect();
    for size in [1, 2, 4, 8] {
        check_permutation(&execs, dims, order, size);
    }
}

#[test]
fn short_sides_on_both_ends() {
    for mid in ALONG {
        for (a, b) in [(2, 2), (2, 3), (3, 2), (4, 4), (3, 4), (5, 2), (4, 5)] {
            check(&[a, mid, b], &[2, 1, 0]);
        }
        // Entries of 16 bytes; a side of 64 bytes is no short one.
        check(&[2, mid, 3, 2], &[2, 1, 0, 3]);
        check(&[2, 3, mid, 4], &[0, 3, 2, 1]);
    }
}

#[test]
fn short_rows_several_at_a_time() {
    for rows in [1, 2, 7, 33, 200] {
        for along in [2, 5, 16, 17, 64] {
            for side in [2, 3, 4] {
                check(&[rows, along, side], &[0, 2, 1]);
                check(&[rows, side, along], &[0, 2, 1]);
            }
        }
        // The rows continue each other on one side only.
        check(&[rows, 16, 2, 3], &[2, 0, 3, 1]);
        check(&[3, rows, 2, 16], &[1, 0, 3, 2]);
    }
}

#[test]
fn long_rows_without_planes() {
    for along in [255, 257, 2048, 4099] {
        check(&[2, 3, along], &[0, 2, 1]);
        check(&[2, along, 3], &[0, 2, 1]);
        check(&[along, 4], &[1, 0]);
        check(&[2, along], &[1, 0]);
    }
}
