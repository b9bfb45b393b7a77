//! The readings that a measurement takes, each of all bytes: for the statistics; for those again, where they leave the
//! range of f64; for the range of the finite values, where some are infinite; for the histograms.
//!
//! Knows no file: who has the bytes hands them over, and learns at the end whether they are wanted once more.

use std::ops::ControlFlow::{self, Break, Continue};

use blob_core::DType;
use blob_ops::{Error, Histogram, Stats, StatsAccumulator};

use super::Measured;
use super::bins::{Binned, Finite, range};
use super::scaled::{self, Scaled};

/// A reading of channels, each of whole elements, and the results of the readings before it.
#[derive(Debug)]
pub(super) struct Readings {
    wanted: Wanted,
    /// The channel of the last bytes.
    last: usize,
    now: Reading,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    dtype: DType,
    bins: Option<usize>,
}

#[derive(Debug)]
enum Reading {
    Stats(Vec<StatsAccumulator>),
    Scaled(Vec<Stats>, Vec<Option<Scaled>>),
    Finite(Vec<Stats>, Vec<Finite>),
    Bins(Vec<Stats>, Vec<Option<(Range, Histogram)>>),
}

type Range = (f64, f64);

impl Readings {
    pub(super) fn new(dtype: DType, channels: usize, bins: Option<usize>) -> Self {
        let now = Reading::Stats(vec![StatsAccumulator::new(dtype); channels]);
        Self { wanted: Wanted { dtype, bins }, last: 0, now }
    }

    /// Takes the next elements, which are a channel's. Channels that take turns share their working memory.
    pub(super) fn take(&mut self, channel: usize, bytes: &[u8]) {
        let turn = [self.last, channel];
        self.last = channel;
        match &mut self.now {
            Reading::Stats(all) => {
                if let Ok([from, to]) = all.get_disjoint_mut(turn) {
                    from.hand_over(to);
                }
                all[channel].update(bytes);
            }
            Reading::Scaled(_, all) => {
                if let Ok([Some(from), Some(to)]) = all.get_disjoint_mut(turn) {
                    from.hand_over(to);
                }
                if let Some(scaled) = &mut all[channel] {
                    scaled.update(bytes);
                }
            }
            Reading::Finite(_, all) => all[channel].update(bytes),
            Reading::Bins(_, all) => {
                if let Ok([Some((_, from)), Some((_, to))]) = all.get_disjoint_mut(turn) {
                    from.hand_over(to);
                }
                if let Some((_, histogram)) = &mut all[channel] {
                    histogram.update(bytes);
                }
            }
        }
    }

    /// Ends a reading: breaks with the results, or goes on where all bytes are wanted once more.
    pub(super) fn end(self) -> Result<ControlFlow<Vec<Measured>, Self>, Error> {
        let Self { wanted, now, .. } = self;
        let next = match now {
            Reading::Stats(all) => wanted.scaled(all.into_iter().map(StatsAccumulator::finish).collect())?,
            Reading::Scaled(mut stats, all) => {
                for (stats, scaled) in stats.iter_mut().zip(all) {
                    if let Some(scaled) = scaled {
                        scaled.finish(stats);
                    }
                }
                wanted.ranges(stats)?
            }
            Reading::Finite(stats, all) => wanted.bins(stats, all.into_iter().map(Finite::range))?,
            Reading::Bins(stats, all) => {
                let both = stats.into_iter().zip(all);
                Break(
                    both.map(|(stats, bins)| {
                        let histogram = bins.map(|((min, max), of)| Binned { min, max, counts: of.counts().0 });
                        Measured { stats, histogram }
                    })
                    .collect(),
                )
            }
        };
        Ok(next.map_continue(|now| Self { wanted, last: 0, now }))
    }
}

impl Wanted {
    /// Goes on with the statistics of all values.
    fn scaled(self, stats: Vec<Stats>) -> Result<ControlFlow<Vec<Measured>, Reading>, Error> {
        let again: Vec<Option<Scaled>> = stats.iter().map(|stats| scaled::of(self.dtype, stats)).collect();
        if again.iter().any(Option::is_some) { Ok(Continue(Reading::Scaled(stats, again))) } else { self.ranges(stats) }
    }

    /// Goes on with statistics that are right.
    fn ranges(self, stats: Vec<Stats>) -> Result<ControlFlow<Vec<Measured>, Reading>, Error> {
        if self.bins.is_none() {
            return Ok(Break(stats.into_iter().map(|stats| Measured { stats, histogram: None }).collect()));
        }
        if stats.iter().any(|stats| stats.inf > 0) {
            let all = stats.iter().map(|_| Finite::new(self.dtype)).collect();
            return Ok(Continue(Reading::Finite(stats, all)));
        }
        let ranges: Vec<Option<Range>> = stats.iter().map(range).collect();
        self.bins(stats, ranges)
    }

    /// Goes on with the ranges of the histograms.
    fn bins(
        self,
        stats: Vec<Stats>,
        ranges: impl IntoIterator<Item = Option<Range>>,
    ) -> Result<ControlFlow<Vec<Measured>, Reading>, Error> {
        let bins = self.bins.unwrap_or_default();
        let all = ranges.into_iter().map(|range| {
            let Some((min, max)) = range else { return Ok(None) };
            Ok(Some(((min, max), Histogram::new(self.dtype, min, max, bins)?)))
        });
        Ok(Continue(Reading::Bins(stats, all.collect::<Result<_, _>>()?)))
    }
}
