//! The geometry on its own: what coalesces, where plans are cut, which axes a block takes.

use crate::plan::{Blocks, Permutation, Split, Stride, Strides, Swap, Walk};

fn axes(strides: &Strides) -> Vec<(usize, usize, usize)> {
    strides.as_slice().iter().map(|s| (s.len, s.from, s.to)).collect()
}

#[test]
fn splits_and_swaps_by_hand() {
    let dims = [2, 3, 4, 5, 6];
    let split = Split::new(&dims, 2);
    assert_eq!((split.outer, split.len, split.inner), (6, 4, 30));
    let ends = (Split::new(&dims, 0), Split::new(&dims, 4));
    assert_eq!((ends.0.outer, ends.0.inner, ends.1.outer, ends.1.inner), (1, 360, 120, 1));
    let swap = Swap::new(&dims, 3, 1).unwrap();
    assert_eq!(Some(swap), Swap::new(&dims, 1, 3));
    assert_eq!(swap, Swap { outer: 2, a: 3, mid: 4, b: 5, inner: 6 });
    assert_eq!(Swap::new(&dims, 2, 2), None);
}

#[test]
fn neighbours_coalesce_and_runs_are_folded() {
    let plan = |dims: &[usize], order: &[usize]| {
        let plan = Permutation::new(dims, order, 4);
        (plan.run, axes(&plan.axes))
    };
    assert_eq!(plan(&[], &[]), (4, vec![]));
    assert_eq!(plan(&[2, 3, 4], &[0, 1, 2]), (96, vec![]));
    assert_eq!(plan(&[1, 5, 1], &[2, 1, 0]), (20, vec![]));
    assert_eq!(plan(&[2, 3, 4], &[2, 0, 1]), (4, vec![(4, 4, 24), (6, 16, 4)]));
    assert_eq!(plan(&[2, 3, 1, 4], &[1, 0, 2, 3]), (16, vec![(3, 16, 32), (2, 48, 16)]));
    assert_eq!(plan(&[2, 3, 5, 7], &[1, 2, 3, 0]), (4, vec![(105, 4, 8), (2, 420, 4)]));
    let nchw = plan(&[8, 3, 14, 14], &[0, 2, 3, 1]);
    assert_eq!(nchw, (4, vec![(8, 2352, 2352), (196, 4, 12), (3, 784, 4)]));
}

/// Pieces follow one another in the destination, and each entry has the source that the whole plan gives it.
#[test]
fn pieces_make_up_the_whole() {
    for (dims, order) in [
        (vec![6, 5, 4, 3], vec![3, 1, 2, 0]),
        (vec![200, 3], vec![1, 0]),
        (vec![3, 200], vec![1, 0]),
        (vec![2, 2, 130, 2], vec![0, 2, 3, 1]),
        (vec![40], vec![0]),
    ] {
        let plan = Permutation::new(&dims, &order, 2);
        let all: Vec<usize> = sources(&plan, 0);
        for pieces in [1, 2, 3, 7, 50, 10_000] {
            let cut = plan.pieces(pieces);
            let mut parts = Vec::new();
            for piece in (0..cut.len()).map(|piece| (cut.start(piece), cut.get(piece))) {
                assert_eq!(piece.0, parts.len() * plan.run, "{dims:?} {order:?} {pieces}");
                parts.extend(sources(&piece.1.plan, piece.1.from));
            }
            assert_eq!(parts, all, "{dims:?} {order:?} {pieces}");
            let count = cut.len();
            assert!(count <= 2 * pieces, "{dims:?} {pieces} {count}");
        }
    }
}

/// Where each run is read, in the destination's order.
fn sources(plan: &Permutation, start: usize) -> Vec<usize> {
    let mut inner_first = Strides::default();
    plan.axes.as_slice().iter().rev().for_each(|axis| inner_first.push(*axis));
    Walk::new(&inner_first, 0).map(|(from, _)| start + from).collect()
}

#[test]
fn many_pieces_where_there_is_room_for_them() {
    let count = |dims: &[usize], order: &[usize], pieces| Permutation::new(dims, order, 4).pieces(pieces).len();
    // No piece reads less than a page of a row.
    assert_eq!(count(&[4096, 4096], &[1, 0], 8), 4);
    assert_eq!(count(&[4, 4096, 4096], &[0, 2, 1], 8), 8);
    assert_eq!(count(&[64, 3, 224, 224], &[0, 2, 3, 1], 8), 8);
    // Rows of 256 bytes in the source stay whole.
    assert_eq!(count(&[8, 1000, 64], &[2, 1, 0], 8), 1);
    // Three planes that share every line of the source stay together.
    assert_eq!(count(&[100_000, 3], &[1, 0], 8), 1);
}

#[test]
fn a_walk_starts_anywhere() {
    let mut strides = Strides::default();
    for (len, from, to) in [(3, 1, 100), (2, 10, 7), (4, 1000, 2)] {
        strides.push(Stride { len, from, to });
    }
    let whole: Vec<_> = Walk::new(&strides, 0).collect();
    assert_eq!(whole.len(), strides.count());
    assert_eq!((whole[0], whole[1], whole[4]), ((0, 0), (1, 100), (11, 107)));
    assert_eq!(whole[23], (3012, 213));
    for start in 0..whole.len() {
        let rest: Vec<_> = Walk::new(&strides, start).collect();
        assert_eq!(rest, whole[start..]);
    }
}

#[test]
fn blocks_take_what_continues_their_sides() {
    let blocks = |dims: &[usize], order: &[usize]| {
        let blocks = Blocks::new(&Permutation::new(dims, order, 4));
        [blocks.x, blocks.y, blocks.outer].map(|axes| axes.as_slice().iter().map(|a| a.len).collect::<Vec<_>>())
    };
    assert_eq!(blocks(&[4096, 300], &[1, 0]), [vec![300], vec![4096], vec![]]);
    assert_eq!(blocks(&[8, 3, 196], &[0, 2, 1]), [vec![196], vec![3], vec![8]]);
    assert_eq!(blocks(&[5, 512, 512, 9], &[0, 3, 2, 1]), [vec![9, 512], vec![512], vec![5]]);
    // The destination's side is short too: it takes the axis between.
    assert_eq!(blocks(&[8, 500, 64], &[2, 1, 0]), [vec![64], vec![8, 500], vec![]]);
}
