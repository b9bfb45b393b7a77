//! The operations of `operations.rs` on the driver of `fake-cuda`: the host's bits in 32 orders of streams, blocks and warps.

use crate::operations::{self, There};
use crate::{expect_no_leaks, gpu, seed};

fn in_every_order(compare: fn(&There<'_>)) {
    let (session, gpu, queue) = gpu(seed(0));
    compare(&There::new(&queue, 32, &|seed| session.reseed(seed)));
    drop((queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn merges_and_splits() {
    in_every_order(operations::merges_and_splits);
}

#[test]
fn more_parts_than_a_launch_takes() {
    in_every_order(operations::more_parts_than_a_launch_takes);
}

#[test]
fn permutations_and_transpositions() {
    in_every_order(operations::permutations_and_transpositions);
}

#[test]
fn arithmetic() {
    in_every_order(operations::arithmetic);
}

#[test]
fn fills() {
    in_every_order(operations::fills);
}

#[test]
fn conversions_of_every_pair() {
    in_every_order(operations::conversions_of_every_pair);
}

#[test]
fn checked_conversions_find_the_first() {
    in_every_order(operations::checked_conversions_find_the_first);
}

#[test]
fn sums() {
    in_every_order(operations::sums);
}

#[test]
fn operands_at_every_alignment() {
    in_every_order(operations::operands_at_every_alignment);
}

#[test]
fn nothing_to_do() {
    in_every_order(operations::nothing_to_do);
}
