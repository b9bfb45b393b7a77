//! What holds of any shape: a permutation and its inverse, split and merge, two transpositions.

use super::{all_execs, blob, bytes, check_permutation, pattern, permuted};
use crate::cpu::Exec;
use crate::cpu::machine::Store;
use crate::plan::{Permutation, Swap};
use crate::tests::isas;
use crate::{merge, permute, split, transpose};
use blob_core::DType;
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let extent = prop_oneof![1usize..5, 1usize..20, Just(16usize)];
    proptest::collection::vec(extent, 1..=6)
        .prop_filter("not too large", |dims| dims.iter().product::<usize>() <= 60_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn any_permutation_and_its_inverse(
        (dims, order) in shapes().prop_flat_map(|dims| {
            let order: Vec<usize> = (0..dims.len()).collect();
            (Just(dims), Just(order).prop_shuffle())
        }),
        size in proptest::sample::select(vec![1usize, 2, 4, 8]),
        pieces in 1usize..9,
    ) {
        let src = pattern(dims.iter().product::<usize>() * size);
        let want = permuted(&src, &dims, &order, size);
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &axis)| inverse[axis] = at);
        let turned: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
        for isa in isas() {
            for store in [Store::Cached, Store::Streaming] {
                let exec = Exec { isa, store, pieces };
                let (mut out, mut back) = (vec![0; src.len()], vec![0; src.len()]);
                crate::transpose::run(exec, Permutation::new(&dims, &order, size), &src, &mut out);
                prop_assert!(out == want, "{:?}", exec);
                crate::transpose::run(exec, Permutation::new(&turned, &inverse, size), &out, &mut back);
                prop_assert!(back == src, "{:?}", exec);
            }
        }
    }

    #[test]
    fn what_is_split_and_merged_is_as_it_was(
        dims in shapes(),
        axis in 0usize..6,
        cuts in proptest::collection::vec(0.0f64..1.0, 0..5),
        dtype in proptest::sample::select(DType::ALL),
    ) {
        let axis = axis % dims.len();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| (cut * dims[axis] as f64) as usize).collect();
        ends.push(dims[axis]);
        ends.sort_unstable();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let extents: Vec<usize> = starts.zip(&ends).map(|(start, end)| end - start).collect();
        let whole = blob(&dims, dtype);
        let parts = split(&whole, axis, &extents).unwrap();
        let again = merge(&parts.iter().collect::<Vec<_>>(), axis).unwrap();
        prop_assert_eq!(again.shape(), whole.shape());
        prop_assert!(bytes(&again) == bytes(&whole));
    }

    #[test]
    fn two_transpositions_are_none(dims in shapes(), one in 0usize..6, other in 0usize..6) {
        let (one, other) = (one % dims.len(), other % dims.len());
        let blob = blob(&dims, DType::F32);
        let twice = transpose(&transpose(&blob, one, other).unwrap(), one, other).unwrap();
        prop_assert!(bytes(&twice) == bytes(&blob));
        if let Some(swap) = Swap::new(&dims, one, other) {
            let mut order: Vec<usize> = (0..dims.len()).collect();
            order.swap(one, other);
            prop_assert_eq!(swap.permutation(4), Permutation::new(&dims, &order, 4));
        }
    }
}

/// As many axes as a shape can have, of which no two stay neighbours, so that none are coalesced.
#[test]
fn thirty_two_axes() {
    let dims: [usize; 32] = std::array::from_fn(|axis| match axis {
        0 | 31 => 3,
        axis if axis % 3 == 0 => 2,
        _ => 1,
    });
    let reversed: Vec<usize> = (0..32).rev().collect();
    let odd_first: Vec<usize> = (0..32).map(|at| at * 2 % 32 + 1 - at / 16).collect();
    for order in [&reversed, &odd_first] {
        for size in [1, 4] {
            check_permutation(&all_execs(), &dims, order, size);
        }
    }
    let whole = blob(&dims, DType::I16);
    let turned = permute(&whole, &reversed).unwrap();
    assert_eq!(bytes(&turned), permuted(&bytes(&whole), &dims, &reversed, 2));
    let twos = Permutation::new(&[2; 32], &reversed, 1);
    assert_eq!(twos.axes.as_slice().len(), 32);
    assert_eq!((twos.run, twos.bytes()), (1, 1 << 32));
}
