//! Statistics of stored tensors: the bytes stream from the file through the reductions of `blob_ops`.
//!
//! The tool reaches the kernels only through here. Memory stays at a few pieces per thread, however large a tensor is;
//! the results have the same bits for any number of threads.

mod bins;
mod measuring;
mod readings;
mod scaled;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error};
use blob_ops::Stats;

use crate::threads::in_order;
use crate::watch::{Watch, Watched};
pub use bins::Binned;
pub use measuring::Measuring;
use readings::Readings;

/// How much is read and reduced at once: small enough to stay in the second-level cache in between.
const PIECE: usize = 256 << 10;

/// Arrays up to this size are kept in memory for a second pass; longer ones are read again.
const KEPT: u64 = 1 << 20;

/// A file without elements can claim an axis of any length.
const MAX_CHANNELS: usize = 1 << 16;

/// The bytes that one channel takes in a reading: without a histogram, and with one. A reading measures as many
/// channels as take `TOGETHER` bytes, or as the tensor has bytes, whichever is more.
const EACH: [u64; 2] = [1 << 10, 8 << 10];
const TOGETHER: u64 = 4 << 20;

/// The statistics of one tensor, or of one channel of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// Minimum, maximum, sums and counts.
    pub stats: Stats,
    /// The histogram, if one was asked for and there are finite elements.
    pub histogram: Option<Binned>,
}

/// Measures one tensor; with `bins`, a second pass makes the histogram.
///
/// # Errors
/// Errors of reading the entry; [`Error::Interrupted`] where `watch` says so.
pub fn measure(
    checkpoint: &Checkpoint,
    entry: &Entry,
    bins: Option<usize>,
    watch: &dyn Watch,
) -> Result<Measured, Error> {
    let mut one = passes(checkpoint, entry, Channels::whole(entry), 0..1, bins, watch)?;
    Ok(one.swap_remove(0))
}

/// Measures the entries with these indices on several threads and hands the results over in the order of the indices.
///
/// For an entry that cannot be measured, `take` gets the error in that entry's place; the other entries follow.
///
/// # Errors
/// [`Error::Interrupted`] where `watch` says so; any error of `take`.
pub fn measure_all<E: From<Error>>(
    checkpoint: &Checkpoint,
    chosen: &[usize],
    bins: Option<usize>,
    watch: &dyn Watch,
    take: &mut dyn FnMut(usize, Result<Measured, Error>) -> Result<(), E>,
) -> Result<(), E> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(chosen.len());
    let next = AtomicUsize::new(0);
    in_order(
        threads,
        || false,
        // An interrupted measurement ends the thread; all results before still arrive.
        |is_stopped| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let entry = &checkpoint.entries()[*chosen.get(at).filter(|_| !*is_stopped)?];
            let measured = measure(checkpoint, entry, bins, watch);
            *is_stopped = matches!(measured, Err(Error::Interrupted));
            Some((at, measured))
        },
        &mut |at, measured| match measured {
            Err(Error::Interrupted) => Err(Error::Interrupted.into()),
            measured => take(chosen[at], measured),
        },
    )
}

/// Measures each index of one axis separately: the channels of a weight, the rows of a table.
///
/// Many channels are measured in several readings. Memory may reach three times the tensor's size where the axis is
/// long and the runs are short.
///
/// # Errors
/// As [`measure`]; an axis that the tensor does not have, or that has more than 65,536 indices.
pub fn measure_channels(
    checkpoint: &Checkpoint,
    entry: &Entry,
    axis: i64,
    bins: Option<usize>,
    watch: &dyn Watch,
) -> Result<Vec<Measured>, Error> {
    checkpoint.spec(entry)?;
    let n = entry.shape().num_axes();
    let channels = Channels::new(entry, axis).ok_or_else(|| {
        let axes = if n == 1 { "axis" } else { "axes" };
        let message = format!("has {n} {axes}, and none is number {axis}");
        refuse(checkpoint.name(), entry, &message)
    })?;
    if channels.count > MAX_CHANNELS {
        let message =
            format!("has {} channels on axis {axis}; at most {MAX_CHANNELS} are measured one by one", channels.count);
        return Err(refuse(checkpoint.name(), entry, &message));
    }
    let at_once = (entry.byte_len().max(TOGETHER) / EACH[usize::from(bins.is_some())]) as usize;
    let mut all = Vec::with_capacity(channels.count);
    for first in (0..channels.count).step_by(at_once) {
        let range = first..(first + at_once).min(channels.count);
        all.append(&mut passes(checkpoint, entry, channels, range, bins, watch)?);
    }
    Ok(all)
}

/// Reads a tensor as often as its [`Readings`] want it. Measures the channels in `range`.
fn passes(
    checkpoint: &Checkpoint,
    entry: &Entry,
    channels: Channels,
    range: Range<usize>,
    bins: Option<usize>,
    watch: &dyn Watch,
) -> Result<Vec<Measured>, Error> {
    let dtype = checkpoint.spec(entry)?.dtype;
    let held = if bins.is_some() && entry.byte_len() <= KEPT { Some(checkpoint.view(entry)?) } else { None };
    let mut readings = Readings::new(dtype, range.len(), bins);
    loop {
        let mut router = channels.router(dtype);
        let mut route = |bytes: &[u8]| {
            router.route(bytes, |channel, bytes| {
                if range.contains(&channel) {
                    readings.take(channel - range.start, bytes);
                }
            });
            Ok(())
        };
        match &held {
            Some(bytes) => bytes.chunks(PIECE).try_for_each(|piece| {
                watch.step(piece.len() as u64)?;
                route(piece)
            }),
            None => Watched::open(checkpoint, entry, watch)?.each(PIECE, route),
        }?;
        match readings.end().map_err(|e| refuse(checkpoint.name(), entry, &e.to_string()))? {
            ControlFlow::Break(results) => return Ok(results),
            ControlFlow::Continue(again) => readings = again,
        }
    }
}

/// How an axis divides a tensor: runs of `inner` elements that belong to channels 0, 1, …, `count` − 1, 0, 1, ….
#[derive(Clone, Copy, Debug, PartialEq)]
struct Channels {
    count: usize,
    inner: usize,
}

impl Channels {
    /// The whole tensor as a single channel.
    fn whole(entry: &Entry) -> Self {
        Self { count: 1, inner: entry.shape().count() }
    }

    fn new(entry: &Entry, axis: i64) -> Option<Self> {
        let dims = entry.shape().dims();
        let axis = if axis < 0 { axis.checked_add(dims.len() as i64)? } else { axis };
        let axis = usize::try_from(axis).ok().filter(|a| *a < dims.len())?;
        Some(Self { count: dims[axis], inner: dims[axis + 1..].iter().product() })
    }

    fn router(self, dtype: DType) -> Router {
        Router { run: self.inner * dtype.size(), count: self.count, channel: 0, done: 0 }
    }
}

/// Cuts a stream of bytes into runs and finds the channel of each run.
struct Router {
    run: usize,
    count: usize,
    channel: usize,
    /// Bytes of the current run that were handed over already.
    done: usize,
}

impl Router {
    fn route(&mut self, mut bytes: &[u8], mut take: impl FnMut(usize, &[u8])) {
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(self.run - self.done));
            take(self.channel, head);
            self.done += head.len();
            if self.done == self.run {
                self.done = 0;
                self.channel = (self.channel + 1) % self.count;
            }
            bytes = rest;
        }
    }
}

fn refuse(file: &str, entry: &Entry, message: &str) -> Error {
    Error::Request { file: file.to_owned(), message: format!("array {:?} {message}", entry.name()) }
}

#[cfg(test)]
mod tests {
    use blob_io::Bytes;

    use super::*;
    use crate::watch::Silent;

    /// A BlobProto with these dims and the values 0, 1, 2, ….
    fn counting(dims: &[u8]) -> Checkpoint {
        let n: usize = dims.iter().map(|d| usize::from(*d)).product();
        let data: Vec<u8> = (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut file = vec![0x3A, dims.len() as u8 + 2, 0x0A, dims.len() as u8];
        file.extend_from_slice(dims);
        file.extend_from_slice(&[0x2A, data.len() as u8 | 0x80, (data.len() >> 7) as u8]);
        file.extend_from_slice(&data);
        Checkpoint::from_source("x.binaryproto", Box::new(Bytes(file))).unwrap()
    }

    #[test]
    fn a_tensor_is_measured_with_its_histogram() {
        let file = counting(&[8, 16]);
        let measured = measure(&file, &file.entries()[0], Some(4), &Silent).unwrap();
        assert_eq!(measured.stats.count, 128);
        assert_eq!(measured.stats.mean, Some(63.5));
        assert_eq!(measured.histogram.unwrap().counts, [32, 32, 32, 32]);
    }

    /// Figures that f64 holds, of values whose squares or sums it does not.
    #[test]
    fn huge_and_tiny_values_have_a_mean_a_deviation_and_norms() {
        let measured = |values: &[f64], axis: Option<i64>| {
            let shape = format!("({}, {})", values.len() / 2, 2);
            let header =
                format!("{:<117}\n", format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"));
            let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let bytes = [&b"\x93NUMPY\x01\0\x76\0"[..], header.as_bytes(), &data].concat();
            let file = Checkpoint::from_bytes("x.npy", bytes).unwrap();
            let entry = &file.entries()[0];
            match axis {
                Some(axis) => measure_channels(&file, entry, axis, None, &Silent).unwrap(),
                None => vec![measure(&file, entry, Some(4), &Silent).unwrap()],
            }
        };
        let is_near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-14 * wanted.abs();
        for scale in [1e300, 1e-300, 1e160, 1e-200] {
            let values: Vec<f64> = [3.0, -1.0, 2.0, 4.0].iter().map(|value| value * scale).collect();
            let stats = measured(&values, None)[0].stats;
            let (mean, std) = (stats.mean.unwrap(), stats.std.unwrap());
            assert!(is_near(mean, 2.0 * scale) && is_near(std, 3.5_f64.sqrt() * scale), "{scale}: {stats:?}");
            assert!(is_near(stats.l1, 10.0 * scale) && is_near(stats.l2, 30_f64.sqrt() * scale), "{scale}: {stats:?}");
        }
        let most = f64::MAX;
        let stats = measured(&[most, -most, most, f64::INFINITY], None)[0].stats;
        assert!(is_near(stats.mean.unwrap(), most / 3.0) && is_near(stats.std.unwrap(), most * 8_f64.sqrt() / 3.0));
        assert_eq!((stats.l1, stats.l2, stats.inf), (f64::INFINITY, f64::INFINITY, 1), "no f64 is as large");
        let channels = measured(&[1.0, 1e300, 2.0, -1e300, 3.0, 1e300], Some(1));
        let deviations: Vec<f64> = channels.iter().map(|channel| channel.stats.std.unwrap()).collect();
        assert!(is_near(deviations[0], (2.0_f64 / 3.0).sqrt()) && is_near(deviations[1], 8_f64.sqrt() / 3.0 * 1e300));
    }

    /// Bytes that come in pieces of any length give the bits that the file's own reading gives, with each reading that
    /// there is.
    #[test]
    fn pieces_that_end_anywhere_are_measured_as_the_file() {
        let halves = |values: &[f64]| values.iter().map(|v| v.to_le_bytes()).collect::<Vec<_>>().concat();
        let long: Vec<f64> = (0..40_000).map(|i| f64::from(i).sin()).collect();
        for data in [&long[..], &[1e300, 2e300, -3.0, f64::INFINITY, f64::NAN, 7.0], &[1.0, f64::NEG_INFINITY], &[]] {
            let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}", data.len());
            let bytes = [&b"\x93NUMPY\x01\0\x76\0"[..], format!("{header:<117}\n").as_bytes(), &halves(data)].concat();
            let file = Checkpoint::from_bytes("x.npy", bytes).unwrap();
            let entry = &file.entries()[0];
            for (bins, piece) in [None, Some(5)].into_iter().flat_map(|bins| [7, 8, 4096, 65_537].map(|n| (bins, n))) {
                let mut measuring = Measuring::new(&file, entry, bins).unwrap();
                let (mut readings, bytes) = (1, halves(data));
                let found = loop {
                    bytes.chunks(piece).for_each(|piece| measuring.update(piece));
                    match measuring.end().unwrap() {
                        ControlFlow::Break(found) => break found,
                        ControlFlow::Continue(again) => measuring = again,
                    }
                    readings += 1;
                };
                let wanted = measure(&file, entry, bins, &Silent).unwrap();
                assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{piece}");
                let infinite = data.iter().any(|value| value.is_infinite());
                let huge = data.contains(&1e300);
                let histograms = bins.map_or(0, |_| 1 + usize::from(infinite));
                assert_eq!(readings, 1 + usize::from(huge) + histograms);
            }
            let mut short = Measuring::new(&file, entry, None).unwrap();
            short.update(&[0; 9]);
            let refusal = short.end().unwrap_err().to_string();
            assert!(refusal.contains(&format!("has {} bytes, and 9 were given", 8 * data.len())), "{refusal}");
        }
    }

    #[test]
    fn all_come_in_order_until_they_are_no_longer_wanted() {
        let file = counting(&[8, 16]);
        let mut seen = Vec::new();
        let chosen = vec![0; 50];
        measure_all(&file, &chosen, None, &Silent, &mut |index, measured| {
            seen.push((index, measured?.stats.count));
            Ok::<(), Error>(())
        })
        .unwrap();
        assert_eq!(seen, vec![(0, 128); 50]);
        let refused = measure_all(&file, &chosen, None, &Silent, &mut |_, _| Err(Error::Interrupted));
        assert!(matches!(refused, Err(Error::Interrupted)));
    }

    #[test]
    fn channels_of_any_axis_agree_with_a_naive_sum() {
        let dims = [3, 4, 5];
        let file = counting(&dims);
        let entry = &file.entries()[0];
        for axis in 0..3usize {
            let measured = measure_channels(&file, entry, axis as i64, Some(2), &Silent).unwrap();
            let negative = measure_channels(&file, entry, axis as i64 - 3, None, &Silent).unwrap();
            assert_eq!(measured.len(), usize::from(dims[axis]));
            for (channel, found) in measured.iter().enumerate() {
                let mine = |i: &usize| [i / 20, i / 5 % 4, i % 5][axis] == channel;
                let sum: usize = (0..60).filter(mine).sum();
                let n = (0..60).filter(mine).count();
                assert_eq!(found.stats.count, n as u64);
                assert_eq!(found.stats.l1, sum as f64);
                assert_eq!(negative[channel].stats.l1, sum as f64);
                assert_eq!(found.histogram.as_ref().unwrap().counts.iter().sum::<u64>(), n as u64);
            }
        }
        assert!(measure_channels(&file, entry, 3, None, &Silent).is_err());
        assert!(measure_channels(&file, entry, -4, None, &Silent).is_err());
    }

    #[test]
    fn a_router_cuts_wherever_the_pieces_end() {
        for piece in 1..20 {
            let mut router = Channels { count: 3, inner: 2 }.router(DType::U8);
            let bytes: Vec<u8> = (0..24).map(|i| (i / 2 % 3) as u8).collect();
            for part in bytes.chunks(piece) {
                router.route(part, |channel, mine| {
                    assert!(mine.iter().all(|b| usize::from(*b) == channel));
                });
            }
        }
    }
}
