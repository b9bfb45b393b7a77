//! Measures times as ratios to memcpy. The two run in turn, so that a slower phase of the machine affects both.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;

use crate::peers::Work;

/// A measurement moves at least this many bytes, which takes milliseconds: the clock costs nothing beside that. As in
/// our own bench.
const WORK: usize = 64 << 20;

/// After this many seconds, three pairs are enough: an operation that slow needs no second decimal.
const ENOUGH: f64 = 2.0;
const LEAST_ROUNDS: usize = 3;

/// The size of the vector whose pages are counted.
const PROBE: usize = 256 << 20;

/// The base of the ratios: one thread copies the payload into memory that was touched before.
pub(crate) struct Memcpy<'a> {
    from: &'a [f32],
    to: Vec<f32>,
}

impl<'a> Memcpy<'a> {
    /// A copy of this payload.
    pub(crate) fn new(from: &'a [f32]) -> Memcpy<'a> {
        let to = from.to_vec();
        Memcpy { from, to }
    }

    fn run(&mut self) {
        black_box(&mut self.to).copy_from_slice(black_box(self.from));
    }
}

/// The time of an operation.
pub(crate) struct Figure {
    /// The seconds of one run.
    pub(crate) seconds: f64,
    /// The ratio to memcpy with one thread.
    pub(crate) ratio: f64,
}

/// The medians of this many pairs, or of fewer if the work is slow. The first pair is discarded. Small work is repeated
/// within a pair.
///
/// # Errors
///
/// The work fails.
pub(crate) fn paired(work: &mut dyn Work, copy: &mut Memcpy, rounds: usize) -> Result<Figure> {
    let runs = WORK.div_ceil(size_of_val(copy.from).max(1));
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    for round in 0..=rounds {
        if round > LEAST_ROUNDS && begin.elapsed().as_secs_f64() > ENOUGH {
            break;
        }
        let start = Instant::now();
        for _ in 0..runs {
            work.run()?;
        }
        let worked = start.elapsed().as_secs_f64();
        let copied = seconds(runs, || copy.run());
        if round > 0 {
            times.push(worked / runs as f64);
            ratios.push(worked / copied);
        }
    }
    Ok(Figure { seconds: median(times), ratio: median(ratios) })
}

/// The rate of memcpy in GB/s, read and written, for copies of this size.
pub(crate) fn memcpy_rate(bytes: usize, rounds: usize) -> f64 {
    let from = vec![1.0; bytes / 4];
    let mut copy = Memcpy::new(&from);
    let runs = WORK.div_ceil(bytes);
    let times = (0..=rounds).map(|_| seconds(runs, || copy.run()) / runs as f64);
    2.0 * bytes as f64 / median(times.skip(1).collect()) / 1e9
}

fn seconds(runs: usize, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..runs).for_each(|_| f());
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// The processor and the system, for the record.
pub(crate) fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1)).unwrap_or("unknown CPU");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{model}, {cores} cores, {system} {architecture}")
}

/// Describes how much of a vector the system puts on huge pages.
pub(crate) fn memory() -> String {
    let before = huge_mib();
    let probe = black_box(vec![1_u8; PROBE]);
    let got = huge_mib() - before;
    format!("{got} of {} MiB of a vector on huge pages, memcpy's as the crates'", probe.len() >> 20)
}

/// The MiB of this process on transparent huge pages; 0 if the system does not report it.
fn huge_mib() -> i64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:")?.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok()).unwrap_or(0) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 30.0]), 3.0);
    }
}
