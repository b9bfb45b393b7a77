//! Launches of every kind of work, carried out by naive twins of the kernels.

mod ptx;
mod twins;

use super::*;
use crate::device::params::PARTS;
use crate::plan::{Permutation, Strides, Swap, Walk};
use crate::work::{Bounds, Op};
use blob_core::DType;
use proptest::prelude::*;
use twins::Memory;

/// Limits that cut small work too.
const SMALL: Limits = Limits { parts: 3, words: 48 };

fn merged(parts: &[&[u8]], rows: usize) -> Vec<u8> {
    let run = |row: usize, part: &[u8]| part[row * (part.len() / rows)..][..part.len() / rows].to_vec();
    (0..rows).flat_map(|row| parts.iter().flat_map(move |part| run(row, part))).collect()
}

fn check_rows(rows: usize, runs: &[usize], past: &[u64], limits: Limits) {
    let whole: usize = runs.iter().sum::<usize>() * rows;
    let past = |at: usize| past[at % past.len()];
    let lens: Vec<_> = runs.iter().enumerate().map(|(at, run)| (run * rows, past(at))).collect();
    let lens: Vec<_> = lens.into_iter().chain([(whole, past(runs.len()))]).collect();
    let (mut memory, spans) = Memory::new(&lens);
    let (whole, parts) = spans.split_last().unwrap();
    let bytes: Vec<Vec<u8>> = memory.0.iter().map(|(_, bytes, _)| bytes.clone()).collect();
    let wanted = merged(&bytes[..runs.len()].iter().map(Vec::as_slice).collect::<Vec<_>>(), rows);
    let work = |split| Work::Rows { rows, split };
    memory.carry_out(&launches(&work(false), parts, &[*whole], limits), limits);
    memory.check(runs.len(), &wanted);
    // And back, from the merged bytes to parts that were cleared.
    memory.0.iter_mut().for_each(|(_, _, written)| written.fill(0));
    memory.0[..runs.len()].iter_mut().for_each(|(_, bytes, _)| bytes.fill(0));
    memory.carry_out(&launches(&work(true), &[*whole], parts, limits), limits);
    bytes[..runs.len()].iter().enumerate().for_each(|(part, bytes)| memory.check(part, bytes));
}

fn check_permutation(plan: Permutation, past: [u64; 2], limits: Limits) {
    let len = plan.bytes();
    let (mut memory, spans) = Memory::new(&[(len, past[0]), (len, past[1])]);
    let mut axes = Strides::default();
    plan.axes.as_slice().iter().rev().for_each(|axis| axes.push(*axis));
    let source = memory.0[0].1.clone();
    let wanted: Vec<u8> = Walk::new(&axes, 0).flat_map(|(from, _)| source[from..][..plan.run].to_vec()).collect();
    memory.carry_out(&launches(&Work::Permute(plan), &spans[..1], &spans[1..], limits), limits);
    memory.check(1, &wanted);
}

#[test]
fn the_width_is_what_addresses_lengths_and_strides_allow() {
    let span = |address, len| Span { address, len };
    let kernel = |rows, runs: &[usize], past: u64| {
        let parts: Vec<_> = runs.iter().map(|run| span(1 << 20, run * rows)).collect();
        let whole = span((1 << 30) + past, runs.iter().sum::<usize>() * rows);
        launches(&Work::Rows { rows, split: false }, &parts, &[whole], LIMITS)[0].kernel
    };
    assert_eq!(kernel(4, &[512, 1024], 0), "rows_16");
    assert_eq!(kernel(4, &[512, 1024], 8), "rows_8");
    assert_eq!(kernel(4, &[512, 1028], 0), "rows_4");
    assert_eq!(kernel(4, &[6, 1024], 0), "rows_2");
    assert_eq!(kernel(1, &[7], 0), "rows_1");
    let moved = |dims: &[usize], order: &[usize], size, past: u64| {
        let plan = Permutation::new(dims, order, size);
        let (from, to) = (span(1 << 20, plan.bytes()), span((1 << 30) + past, plan.bytes()));
        launches(&Work::Permute(plan), &[from], &[to], LIMITS)[0].kernel
    };
    assert_eq!(moved(&[64, 64], &[1, 0], 4, 0), "tile_4");
    assert_eq!(moved(&[64, 64], &[1, 0], 2, 0), "packed_2");
    assert_eq!(moved(&[64, 65], &[1, 0], 2, 0), "tile_2");
    assert_eq!(moved(&[64, 64], &[1, 0], 1, 0), "packed_1");
    assert_eq!(moved(&[64, 64], &[1, 0], 1, 2), "tile_1");
    assert_eq!(moved(&[64, 64, 4], &[1, 0, 2], 4, 0), "tile_16");
    assert_eq!(moved(&[64, 64, 2], &[1, 0, 2], 4, 0), "tile_8");
    assert_eq!(moved(&[256, 256], &[1, 0], 1, 0), "wide_1");
    assert_eq!(moved(&[256, 256], &[1, 0], 2, 0), "wide_2");
    assert_eq!(moved(&[256, 256], &[1, 0], 4, 0), "wide_4");
    assert_eq!(moved(&[256, 258], &[1, 0], 2, 0), "packed_2");
    assert_eq!(moved(&[256, 257], &[1, 0], 4, 0), "tile_4");
    // Channels last: a short side, in either direction.
    assert_eq!(moved(&[2, 3, 64, 64], &[0, 2, 3, 1], 4, 0), "narrow_4");
    assert_eq!(moved(&[2, 64, 64, 3], &[0, 3, 1, 2], 4, 0), "narrow_4");
    assert_eq!(moved(&[2, 64, 64, 3], &[0, 3, 1, 2], 1, 0), "narrow_1");
    assert_eq!(moved(&[2, 64, 63, 3], &[0, 3, 1, 2], 1, 0), "narrow_1");
    assert_eq!(moved(&[2, 63, 63, 3], &[0, 3, 1, 2], 1, 0), "strided_1");
    assert_eq!(moved(&[2, 63, 63, 3], &[0, 3, 1, 2], 4, 0), "narrow_4");
    assert_eq!(moved(&[2, 63, 63, 16], &[0, 3, 1, 2], 2, 0), "tile_2");
    assert_eq!(moved(&[2, 64, 64, 32], &[0, 3, 1, 2], 4, 0), "narrow_4");
    assert_eq!(moved(&[2, 64, 64, 33], &[0, 3, 1, 2], 4, 0), "tile_4");
    // Too little for a block; and a short side that is not without gaps.
    assert_eq!(moved(&[2, 3, 16, 16], &[0, 2, 3, 1], 4, 0), "strided_4");
    assert_eq!(moved(&[64, 3, 512], &[2, 1, 0], 4, 0), "tile_4");
    assert_eq!(moved(&[3, 5, 512], &[2, 1, 0], 4, 0), "strided_4");
    assert_eq!(moved(&[2, 64, 64, 3], &[0, 2, 1, 3], 4, 0), "strided_4");
    assert_eq!(moved(&[2, 64, 64, 8], &[0, 2, 1, 3], 4, 0), "strided_16");
    assert_eq!(moved(&[64, 64], &[1, 0], 4, 2), "strided_2");
    assert_eq!(moved(&[64, 64], &[0, 1], 4, 0), "rows_16");
}

#[test]
fn halves_of_what_is_cut_lie_at_words_too() {
    for (dims, order, wanted) in [
        (&[4100, 4100][..], &[1, 0][..], "wide_1"),
        (&[1002, 1002, 3], &[2, 0, 1], "narrow_1"),
        (&[3, 1002, 1002], &[1, 2, 0], "narrow_1"),
    ] {
        let plan = Permutation::new(dims, order, 1);
        let span = |at: u64| Span { address: at << 40, len: plan.bytes() };
        let limits = Limits { parts: 1, words: plan.bytes() / 3 / 16 * 16 };
        let launches = launches(&Work::Permute(plan), &[span(1)], &[span(2)], limits);
        assert!(launches.len() > 1 && launches.iter().all(|launch| launch.kernel == wanted), "{dims:?}: {launches:?}");
    }
}

#[test]
fn rows_of_every_form() {
    for past in [&[0][..], &[0, 4], &[1, 2, 3], &[8, 0]] {
        check_rows(1, &[16], past, LIMITS);
        check_rows(5, &[16, 48, 32], past, LIMITS);
        check_rows(7, &[4, 0, 12, 3], past, LIMITS);
        check_rows(300, &[1, 1, 1], past, SMALL);
        // More parts than a table holds, and a run longer than a launch.
        check_rows(3, &[4; 10], past, SMALL);
        check_rows(2, &[1000, 8], past, SMALL);
    }
    check_rows(2, &[4; 2 * PARTS + 1], &[0], LIMITS);
}

#[test]
fn transpositions_of_every_width_and_cut() {
    for size in [1, 2, 4, 8] {
        for past in [[0, 0], [0, 4], [1, 0], [2, 2]] {
            for dims in [&[64, 64][..], &[65, 33], &[17, 128], &[3, 50], &[50, 3], &[1, 9]] {
                check_permutation(Permutation::new(dims, &[1, 0], size), past, LIMITS);
                check_permutation(Permutation::new(dims, &[1, 0], size), past, SMALL);
            }
            // The first part has whole words in its rows, but not from row to row.
            let cut = Limits { parts: 1, words: 32 * 64 };
            check_permutation(Permutation::new(&[65, 64], &[1, 0], size), past, cut);
            let swap = Swap::new(&[2, 20, 3, 24, 2], 1, 3).unwrap();
            check_permutation(swap.permutation(size), past, LIMITS);
            check_permutation(swap.permutation(size), past, SMALL);
            check_permutation(Permutation::new(&[3, 4, 5, 2, 3, 2], &[5, 4, 3, 2, 1, 0], size), past, LIMITS);
            // A short side, and runs that are longer than a launch.
            for dims in [[2, 700, 3], [3, 31, 333], [1, 2, 1111], [2, 400, 32]] {
                check_permutation(Permutation::new(&dims, &[0, 2, 1], size), past, LIMITS);
                check_permutation(Permutation::new(&dims, &[0, 2, 1], size), past, Limits { parts: 1, words: 1600 });
            }
            check_permutation(Permutation::new(&[2, 3, 1001], &[1, 0, 2], size), past, SMALL);
        }
    }
}

#[test]
fn squares_in_place() {
    for (side, width) in [(2, 4), (33, 2), (32, 8), (40, 1)] {
        let (mut memory, spans) = Memory::new(&[(3 * side * side * width, 0)]);
        let before = memory.0[0].1.clone();
        let at = |m: usize, i: usize, j: usize| ((m * side + i) * side + j) * width;
        let mut wanted = before.clone();
        for (m, i, j) in (0..3).flat_map(|m| (0..side).flat_map(move |i| (0..side).map(move |j| (m, i, j)))) {
            wanted[at(m, i, j)..][..width].copy_from_slice(&before[at(m, j, i)..][..width]);
        }
        memory.carry_out(&launches(&Work::Squares { side, width }, &[], &spans, SMALL), SMALL);
        memory.check(0, &wanted);
    }
}

#[test]
fn filled_from_any_address_on() {
    for past in 0..17 {
        for len in [0, 1, 8, 16, 24, 40, 48, 104, 200] {
            for size in [1, 2, 4, 8] {
                let element = [1, 2, 3, 4, 5, 6, 7, 8];
                let (mut memory, spans) = Memory::new(&[(len, past)]);
                memory.carry_out(&launches(&Work::Fill { element, size }, &[], &spans, SMALL), SMALL);
                let wanted: Vec<u8> = (0..len).map(|at| element[at % size]).collect();
                memory.check(0, &wanted);
            }
        }
    }
}

/// Each element by one thread: in a piece, in a group, or alone.
#[test]
fn every_element_has_a_thread() {
    for dtype in DType::ALL.iter().copied().filter(|dtype| *dtype != DType::Bool) {
        for past in [0, 4, 8, 16, 1] {
            for count in [0, 1, 3, 47, 48, 49, 100, 9000] {
                let span = |at: u64| Span { address: (at << 40) + past, len: count * dtype.size() };
                let work = Work::Arithmetic { op: Op::Add, dtype, alpha: 0 };
                let (mut y, mut done) = (span(1).address, 0);
                for launch in launches(&work, &[span(2)], &[span(1)], SMALL) {
                    let Params::Arithmetic(p) = launch.params else { panic!("{launch:?}") };
                    assert_eq!((p.y, p.x - p.y), (y, 1 << 40));
                    assert_eq!(
                        (p.pieces > 0, p.bytes),
                        (p.pieces > 0 && past % 16 == 0, past % dtype.size() as u64 != 0)
                    );
                    let bytes = p.pieces as usize * 16 + p.rest as usize * dtype.size();
                    assert!(
                        launch.blocks * THREADS >= p.pieces + p.rest && (p.pieces + p.rest) as usize <= SMALL.words
                    );
                    y += bytes as u64;
                    done += bytes;
                }
                assert_eq!(done, count * dtype.size());
                check_groups(dtype, span, count);
            }
        }
    }
}

fn check_groups(source: DType, span: impl Fn(u64) -> Span, count: usize) {
    for target in [DType::Bool, DType::F16, DType::I32, DType::F64] {
        let to = Span { len: count * target.size(), ..span(2) };
        let mut done = 0;
        for launch in launches(&Work::Convert { source, target }, &[span(1)], &[to], SMALL) {
            let Params::Convert(p) = launch.params else { panic!("{launch:?}") };
            let group = if source.size() == 8 || target.size() == 8 { 2 } else { 4 };
            assert_eq!(p.from - span(1).address, (done * source.size()) as u64);
            assert_eq!(p.to - to.address, (done * target.size()) as u64);
            assert!(p.groups == 0 || p.from % (group * source.size()) as u64 == 0);
            assert!(p.groups == 0 || p.to % (group * target.size()) as u64 == 0);
            assert!(p.groups <= p.blocks * THREADS * 4 / group as u32);
            assert!(p.rest <= (launch.blocks - p.blocks) * THREADS);
            done += p.groups as usize * group + p.rest as usize;
        }
        assert_eq!(done, count);
    }
    let bounds = Bounds { low: 0, high: 1, is_whole: true };
    let mut done = 0;
    for launch in launches(&Work::Check { dtype: source, bounds }, &[span(1)], &[span(2)], SMALL) {
        let Params::Check(p) = launch.params else { panic!("{launch:?}") };
        assert_eq!((p.start, p.from - span(1).address), (done as u64, (done * source.size()) as u64));
        done += p.groups as usize * if source.size() == 8 { 2 } else { 4 } + p.rest as usize;
    }
    assert_eq!(done, count);
    let mut done = 0;
    let each = if source.is_float() { 8 } else { 16 };
    for launch in launches(&Work::Sums { dtype: source, square: true }, &[span(1)], &[span(2)], SMALL) {
        let Params::Sums(p) = launch.params else { panic!("{launch:?}") };
        assert_eq!(p.to - span(2).address, (done as u64).div_ceil(4096) * each);
        done += p.count as usize;
    }
    assert_eq!(done, count);
}

fn past() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0u64, 0, 1, 2, 4, 8, 12])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_rows(
        rows in 1usize..9,
        runs in prop::collection::vec(0usize..40, 1..8),
        size in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
        past in prop::collection::vec(past(), 1..4),
        small in any::<bool>(),
    ) {
        let runs: Vec<_> = runs.iter().map(|run| run * size).collect();
        prop_assume!(runs.iter().sum::<usize>() > 0);
        check_rows(rows, &runs, &past, if small { SMALL } else { LIMITS });
    }

    #[test]
    fn any_permutation(
        dims in prop::collection::vec(1usize..24, 1..5),
        order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        size in prop::sample::select(vec![1usize, 2, 4, 8]),
        from in past(),
        to in past(),
        small in any::<bool>(),
    ) {
        let order: Vec<_> = order.into_iter().filter(|axis| *axis < dims.len()).collect();
        let plan = Permutation::new(&dims, &order, size);
        prop_assume!(plan.bytes() < 20_000);
        check_permutation(plan, [from, to], if small { SMALL } else { LIMITS });
    }
}
