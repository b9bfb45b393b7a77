//! Every instruction set × number of threads × ragged size, for all that computes: the one table where they meet.
//!
//! The oracles are those of each operation's own tests. Where elements do not depend on each other, a large tensor is
//! a small one again and again, with a period that no cut of the bytes divides.

use super::convert::{self, survives};
use super::element::{self, OPS, numbers};
use super::sums::{self, TERMS};
use super::{bits, blob, isas, oracle, stats, tensor};
use crate::convert::check_bytes;
use crate::cpu::Isa;
use crate::cpu::forced::with_isa;
use crate::{Error, fill};
use blob_core::{DType, Part};
use rayon::ThreadPool;

/// Around registers and blocks.
const RAGGED: [usize; 10] = [0, 1, 15, 16, 17, 255, 257, 4095, 4096, 4097];

/// A prime.
const PERIOD: usize = 4099;

/// More than a mebibyte of elements of this width, so that threads share it, with a ragged end.
fn large(size: usize) -> usize {
    (1 << 20) / size + 13
}

fn pools() -> [ThreadPool; 3] {
    [1, 2, 7].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().expect("threads")
    })
}

/// On every instruction set of this machine, on each pool.
fn every_way(pools: &[ThreadPool], check: impl Fn(Isa, &str) + Sync) {
    for pool in pools {
        for isa in isas() {
            let threads = pool.current_num_threads();
            pool.install(|| check(isa, &format!("{}, {threads} threads", isa.name())));
        }
    }
}

/// Elements of a period, again and again.
fn repeated(period: &[u8], bytes: usize) -> Vec<u8> {
    period.iter().copied().cycle().take(bytes).collect()
}

#[test]
fn elements() {
    let pools = pools();
    for dtype in numbers() {
        let size = dtype.size();
        let [y, x] = [21, 22].map(|seed| tensor(dtype, PERIOD, seed, true));
        for op in OPS {
            let want = element::run(Isa::Portable, op, dtype, &y, &x);
            element::check(op, dtype, &y, &x, &want, "portable");
            for len in RAGGED.into_iter().chain([large(size)]) {
                let [y, x, want] = [&y, &x, &want].map(|bytes| repeated(bytes, len * size));
                every_way(&pools, |isa, way| {
                    let got = element::run(isa, op, dtype, &y, &x);
                    assert!(got == want, "{op:?} {dtype:?} × {len} on {way}");
                });
            }
        }
    }
}

#[test]
fn zeros() {
    let pools = pools();
    for &dtype in DType::ALL {
        for len in RAGGED.into_iter().chain([large(dtype.size())]) {
            let ones = vec![1; len * dtype.size()];
            every_way(&pools, |_, way| {
                let mut y = blob(dtype, &ones);
                fill(&mut y, 0, Part::Data).unwrap();
                let zeros = y.data().bytes().unwrap().iter().all(|byte| *byte == 0);
                assert!(zeros, "{dtype:?} × {len} on {way}");
            });
        }
    }
}

/// Pieces of sums are 64 blocks of 4096 elements.
fn of_several_pieces(dtype: DType) -> usize {
    large(dtype.size()).max(2 * 64 * 4096) + PERIOD
}

#[test]
fn sums_in_the_documented_order() {
    let pools = pools();
    for dtype in numbers() {
        for len in RAGGED.into_iter().chain([of_several_pieces(dtype)]) {
            let bytes = tensor(dtype, len, 23, false);
            for what in TERMS {
                let want = sums::expected(what, dtype, &bytes);
                every_way(&pools, |isa, _| sums::check(isa, what, dtype, &bytes, want));
            }
        }
    }
}

#[test]
fn statistics_as_one_portable_thread_finds_them() {
    let pools = pools();
    for &dtype in DType::ALL {
        for len in RAGGED.into_iter().chain([of_several_pieces(dtype)]) {
            let bytes = tensor(dtype, len, 24, true);
            let want = bits(&stats(Isa::Portable, dtype, &bytes, &[usize::MAX]));
            every_way(&pools, |isa, way| {
                let got = with_isa(isa, || crate::stats(&blob(dtype, &bytes), Part::Data)).unwrap();
                assert_eq!(bits(&got), want, "{dtype:?} × {len} on {way}");
            });
        }
    }
}

fn pairs() -> impl Iterator<Item = (DType, DType)> {
    let all = DType::ALL.iter();
    all.flat_map(|&from| DType::ALL.iter().map(move |&to| (from, to)))
}

#[test]
fn conversions() {
    let pools = pools();
    for (from, to) in pairs() {
        let source = tensor(from, PERIOD, 25, true);
        let target = convert::run(Isa::Portable, from, &source, to);
        convert::check(from, &source, to, &target, "portable");
        for len in RAGGED.into_iter().chain([large(from.size().max(to.size()))]) {
            let source = repeated(&source, len * from.size());
            let want = repeated(&target, len * to.size());
            every_way(&pools, |isa, way| {
                let got = convert::run(isa, from, &source, to);
                assert!(got == want, "{from:?} to {to:?} × {len} on {way}");
            });
        }
    }
}

/// All survive but two: the first of them is named, though another thread may find the second before.
#[test]
fn checked_conversions() {
    let pools = pools();
    for (from, to) in pairs() {
        let size = from.size();
        let values = tensor(from, PERIOD, 26, true);
        let elements = values.chunks(size).zip(oracle::elements(from, &values));
        let (kept, lost): (Vec<_>, Vec<_>) = elements.partition(|(_, (x, _))| survives(*x, to));
        let kept: Vec<u8> = kept.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
        for len in RAGGED.into_iter().chain([large(size)]) {
            let mut bytes = repeated(&kept, len * size);
            every_way(&pools, |isa, way| {
                let found = with_isa(isa, || check_bytes(from, &bytes, to, Part::Data));
                assert!(found.is_ok(), "{from:?} to {to:?} × {len} on {way}");
            });
            let (Some((element, (value, _))), true) = (lost.first(), len > 0) else {
                continue;
            };
            let first = len / 4;
            for at in [first, len - 1] {
                bytes[at * size..][..size].copy_from_slice(element);
            }
            every_way(&pools, |isa, way| {
                let named = match with_isa(isa, || check_bytes(from, &bytes, to, Part::Data)) {
                    Err(Error::Lost { index, value, .. }) => Some((index, value.to_string())),
                    _ => None,
                };
                let want = Some((first, value.to_string()));
                assert_eq!(named, want, "{from:?} to {to:?} × {len} on {way}");
            });
        }
    }
}
