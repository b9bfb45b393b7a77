//! Time against memcpy's, the two in turn, so that a machine that drifts or is shared slows both.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;

use crate::peers::Work;

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

/// The median of the work's time over memcpy's, in pairs; the first pair is not counted.
///
/// # Errors
///
/// Those of the work.
pub(crate) fn paired(work: &mut dyn Work, copy: &mut Memcpy, rounds: usize) -> Result<f64> {
    work.run()?;
    copy.run();
    let mut ratios = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        work.run()?;
        let between = Instant::now();
        copy.run();
        let copied = between.elapsed();
        ratios.push((between - start).as_secs_f64() / copied.as_secs_f64());
    }
    Ok(median(ratios))
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
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))
        .unwrap_or("unknown CPU");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{model}, {cores} cores, {system} {architecture}")
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
