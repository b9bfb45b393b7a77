//! The kernels and structs that launches choose. Results of launches are tested where they run: in `tests/cuda`.

mod ptx;

use super::*;
use crate::plan::Permutation;
use crate::work::{Bounds, Op};
use blob_core::DType;

/// Limits that cut small work too.
const SMALL: Limits = Limits { parts: 3, words: 48 };

/// The launches of work in the family that is its own.
fn launches(work: &Work, reads: &[Span], writes: &[Span], limits: Limits) -> Vec<Launch> {
    super::launches(work, Family::of(work), reads, writes, limits)
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
                        (p.pieces > 0 && past % 16 == 0, u32::from(past % dtype.size() as u64 != 0))
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
