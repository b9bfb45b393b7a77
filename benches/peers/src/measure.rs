//! Time against memcpy's, the two in turn, so that a machine that drifts or is shared slows both.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;

use crate::peers::Work;

/// Bytes that a measurement moves at least, milliseconds: the clock costs nothing beside it. As in our own bench.
const WORK: usize = 64 << 20;

/// After this many seconds, three pairs are enough: what is many times slower than memcpy needs no second decimal.
const ENOUGH: f64 = 2.0;
const LEAST_ROUNDS: usize = 3;

/// The memory whose pages are looked at.
const PROBE: usize = 256 << 20;

/// The yardstick: one thread copies the payload into memory that has been touched before.
pub(crate) struct Memcpy<'a> {
    from: &'a [f32],
    to: Vec<f32>,
}

impl<'a> Memcpy<'a> {
    /// Of this payload.
    pub(crate) fn new(from: &'a [f32]) -> Memcpy<'a> {
        let to = from.to_vec();
        Memcpy { from, to }
    }

    fn run(&mut self) {
        black_box(&mut self.to).copy_from_slice(black_box(self.from));
    }
}

/// What one work costs.
pub(crate) struct Figure {
    /// One run.
    pub(crate) seconds: f64,
    /// Over memcpy by one thread.
    pub(crate) ratio: f64,
}

/// Medians of this many pairs, of fewer where the work is slow; the first pair is not counted. Small work is repeated
/// within a pair.
///
/// # Errors
///
/// Those of the work.
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

/// What memcpy reads and writes a second, in GB, copying this many bytes.
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

/// Which pages a vector gets here, as the system counts them: it is the allocator's affair.
pub(crate) fn memory() -> String {
    let before = huge_mib();
    let probe = black_box(vec![1_u8; PROBE]);
    let got = huge_mib() - before;
    format!("{got} of {} MiB of a vector on huge pages, memcpy's as the crates'", probe.len() >> 20)
}

/// MiB of this process on transparent huge pages; 0 where the system does not say.
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
