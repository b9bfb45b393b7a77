//! The operations of `operations.rs` on the driver of `fake-cuda`: the host's bits in 32 orders of streams, blocks and
//! warps.

use blob_core::{AnyBlob, DType, Part, Shape};
use fake_cuda::control::child;

use crate::absent::expect_success;
use crate::operations::{self, Comparison};
use crate::{expect_no_leaks, gpu, seed};

fn in_every_order(compare: fn(&Comparison<'_>)) {
    let (session, gpu, queue) = gpu(seed(0));
    compare(&Comparison::new(&queue, 32, &|seed| session.reseed(seed)));
    drop((queue, gpu));
    expect_no_leaks(&session);
}

/// A test of an operation for each name.
macro_rules! in_every_order {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            in_every_order(operations::$name);
        })*
    };
}

in_every_order! {
    merges_and_splits,
    more_parts_than_a_launch_takes,
    permutations_and_transpositions,
    arithmetic,
    fills,
    conversions_of_every_pair,
    checked_conversions_find_the_first,
    sums,
    squares_are_rounded_before_they_are_added,
    operands_at_every_alignment,
    nothing_to_do,
}

/// In fewer orders: each takes a second.
#[test]
fn sums_of_many_blocks() {
    let (session, gpu, queue) = gpu(seed(0));
    operations::sums_of_many_blocks(&Comparison::new(&queue, 2, &|seed| session.reseed(seed)));
    drop((queue, gpu));
    expect_no_leaks(&session);
}

/// Work that is longer than a launch is cut. 2³⁰ words take too long here, so a process is told that a launch takes
/// less.
#[test]
fn work_in_many_launches_has_the_same_bits() {
    const SWITCH: &str = "BLOB_OPS_LAUNCH";
    for limits in ["48,2", "1024,3"] {
        let test = "ops::work_in_many_launches_has_the_same_bits";
        let Some(output) = child(test, |child| {
            child.env(SWITCH, limits);
        }) else {
            let limits = std::env::var(SWITCH).unwrap();
            let (words, parts) = limits.split_once(',').unwrap();
            return in_launches_of(words.parse().unwrap(), parts.parse().unwrap());
        };
        expect_success(&output);
    }
}

fn in_launches_of(words: usize, parts: usize) {
    let (session, device, queue) = gpu(seed(0));
    let gpu = blob_ops::at(&queue);
    let launches = |run: &dyn Fn()| {
        let before = session.calls("cuLaunchKernel");
        run();
        session.calls("cuLaunchKernel") - before
    };
    let ones = |count: usize| AnyBlob::from_vec(Shape::new([count]).unwrap(), DType::U8, vec![1; count]).unwrap();
    let added = launches(&|| gpu.add(&mut ones(5 * words), &ones(5 * words), Part::Data).unwrap());
    let merged = launches(&|| drop(gpu.merge(&vec![&ones(1); 4 * parts], 0).unwrap()));
    assert_eq!((added, merged), (5, 4));
    let reseed: &dyn Fn(u64) = &|seed| session.reseed(seed);
    let check = Comparison::new(&queue, 2, reseed);
    for compare in [
        operations::merges_and_splits,
        operations::permutations_and_transpositions,
        operations::arithmetic,
        operations::fills,
        operations::conversions_of_every_pair,
        operations::checked_conversions_find_the_first,
        operations::sums,
        operations::operands_at_every_alignment,
    ] {
        compare(&check);
    }
    drop((gpu, queue, device));
    expect_no_leaks(&session);
}
