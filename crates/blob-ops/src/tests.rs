//! Every dtype, ragged size, instruction set of this machine and way to cut the bytes, against a naive oracle.

mod again;
mod capacity;
mod conflicts;
mod convert;
mod convert_named;
mod crossed;
mod devices;
mod element;
mod moves;
mod oracle;
mod places;
mod plans;
mod refusals;
mod stats;
mod sums;

use crate::cpu::forced::with_isa;
use crate::cpu::{Isa, NAMES};
use crate::{Histogram, Scalar, Stats, StatsAccumulator, count_nonfinite};
use blob_core::{AnyBlob, DType, Shape};
use proptest::prelude::*;
use std::io::Write;
use std::sync::Once;

/// Around rows, groups, blocks, and primes.
const SIZES: [usize; 22] = [
    0, 1, 2, 15, 16, 17, 31, 97, 255, 256, 257, 1009, 4095, 4096, 4097, 4099, 8191, 8192, 12_288, 12_295, 20_011,
    32_769,
];

/// A small generator, so that a failure repeats (Vigna's xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Integers of all bit patterns, floats of seven sizes and some that f32 holds as subnormals. Every tenth element is
/// ±0, with `holes` three in a hundred are NaN or ±Inf.
fn tensor(dtype: DType, len: usize, seed: u64, holes: bool) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let mut bytes = Vec::with_capacity(len * dtype.size());
    for _ in 0..len {
        let (bits, kind) = (random.next(), random.next() % 100);
        let float = match kind {
            0..5 => 0.0,
            5..10 => -0.0,
            10 if holes => f64::NAN,
            11 if holes => f64::INFINITY,
            12 if holes => f64::NEG_INFINITY,
            13 => f64::from_bits(bits >> 12) * 2f64.powi(900),
            _ => (bits as i64 as f64 / 2f64.powi(63)) * 2f64.powi((kind % 7) as i32 - 3),
        };
        match dtype {
            DType::F16 => bytes.extend(half::f16::from_f64(float).to_ne_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f64(float).to_ne_bytes()),
            DType::F32 => bytes.extend((float as f32).to_ne_bytes()),
            DType::F64 => bytes.extend(float.to_ne_bytes()),
            _ if kind < 10 => bytes.extend(&[0; 8][..dtype.size()]),
            _ => bytes.extend(&bits.to_ne_bytes()[..dtype.size()]),
        }
    }
    bytes
}

/// All of this machine. What it lacks is said once, past the capture of the test harness.
fn isas() -> Vec<Isa> {
    static SAID: Once = Once::new();
    let all = Isa::available();
    SAID.call_once(|| {
        for name in NAMES.concat() {
            if all.iter().all(|isa| isa.name() != name) {
                let line = format!("blob-ops: {name} skipped, this machine lacks it\n");
                std::io::stderr().write_all(line.as_bytes()).expect("stderr");
            }
        }
    });
    all
}

/// One axis of whole elements.
fn blob(dtype: DType, bytes: &[u8]) -> AnyBlob {
    let shape = Shape::new([bytes.len() / dtype.size()]).expect("a shape");
    AnyBlob::from_vec(shape, dtype, bytes.to_vec()).expect("whole elements")
}

/// Runs it on a pool of `threads` threads.
fn in_pool<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().expect("threads").install(run)
}

/// In pieces whose lengths repeat.
fn stats(isa: Isa, dtype: DType, bytes: &[u8], pieces: &[usize]) -> Stats {
    let mut stats = with_isa(isa, || StatsAccumulator::new(dtype));
    in_pieces(bytes, pieces, |piece| stats.update(piece));
    stats.finish()
}

fn in_pieces<'a>(mut bytes: &'a [u8], pieces: &[usize], mut update: impl FnMut(&'a [u8])) {
    let mut lens = pieces.iter().cycle();
    while !bytes.is_empty() {
        let (head, tail) = bytes.split_at(bytes.len().min(*lens.next().expect("a length")));
        update(head);
        bytes = tail;
    }
}

/// Every result to the last bit.
fn bits(stats: &Stats) -> Vec<Option<u64>> {
    let scalar = |x: Option<Scalar>| {
        x.map(|x| match x {
            Scalar::I(x) => x as u64,
            Scalar::U(x) => x,
            Scalar::F(x) => x.to_bits(),
        })
    };
    vec![
        Some(stats.count),
        Some(stats.nan),
        Some(stats.inf),
        Some(stats.zeros),
        scalar(stats.min),
        scalar(stats.max),
        stats.mean.map(f64::to_bits),
        stats.std.map(f64::to_bits),
        Some(stats.l1.to_bits()),
        Some(stats.l2.to_bits()),
        Some(stats.trailing_bytes as u64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Raw bits of all kinds, at any alignment, cut anywhere.
    #[test]
    fn any_bytes_cut_anywhere(
        dtype in proptest::sample::select(DType::ALL),
        len in 0usize..40_000,
        seed: u64,
        offset in 0usize..8,
        pieces in proptest::collection::vec(1usize..20_000, 1..6),
        bins in 1usize..600,
    ) {
        let mut random = Random(seed | 1);
        let shifted: Vec<u8> = (0..len + offset).map(|_| random.next() as u8).collect();
        let bytes = &shifted[offset..];
        let whole = stats(Isa::Portable, dtype, bytes, &[usize::MAX]);
        prop_assert_eq!(whole.trailing_bytes, len % dtype.size());
        let (low, high) = (-1e3, 1e6);
        let (want, want_out) = oracle::bins(dtype, bytes, low, high, bins);
        for isa in Isa::available() {
            prop_assert_eq!(bits(&stats(isa, dtype, bytes, &pieces)), bits(&whole));
            let (got, out) = histogram(isa, dtype, bytes, &pieces, low, high, bins);
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(out, want_out);
            let found = with_isa(isa, || count_nonfinite(dtype, bytes));
            prop_assert_eq!((found.nan, found.inf), (whole.nan, whole.inf));
        }
    }
}

/// Bins and what is in none, in pieces whose lengths repeat.
fn histogram(
    isa: Isa,
    dtype: DType,
    bytes: &[u8],
    pieces: &[usize],
    min: f64,
    max: f64,
    bins: usize,
) -> (Vec<u64>, u64) {
    let mut histogram = with_isa(isa, || Histogram::new(dtype, min, max, bins)).expect("a range");
    in_pieces(bytes, pieces, |piece| histogram.update(piece));
    histogram.counts()
}

#[test]
fn every_instruction_set_can_be_forced() {
    for isa in isas() {
        assert_eq!(with_isa(isa, crate::instruction_set), isa.name());
    }
}

#[test]
fn the_switch_is_a_ceiling() {
    let here = Isa::available();
    let best = *here.last().expect("portable at least");
    for isa in &here {
        assert_eq!(Isa::choose(isa.name()), Some(*isa));
    }
    for row in NAMES {
        let is_ours = row.contains(&best.name());
        let want = if is_ours { best } else { Isa::Portable };
        let highest = row.last().expect("portable at least");
        assert_eq!(Isa::choose(highest), Some(want), "{highest}");
    }
    assert_eq!(Isa::choose("mmx"), None);
}
