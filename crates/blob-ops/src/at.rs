//! Where operations work, as a value: [`At`] has the operations as methods. Without one, an operation works where the
//! least of its data is missing.
//!
//! The place is known before a byte is borrowed. Relies on the memories' reports, and on `cuda.rs` for which
//! queues have kernels. Moves nothing.

use crate::cpu::Exec;
use crate::cuda;
use blob_core::{AnyBlob, Part};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use synced_mem::{Lacking, Location, Queue, SharedMem};

/// A place to work, with every operation of this crate as a method. Made by [`at`] and [`at_host`].
///
/// A method is the function of its name, with the same results and errors; only the place differs.
///
/// ```
/// use blob_core::{Blob, Part, Shape};
/// use synced_mem::Device;
/// use synced_mem::loopback::{Loopback, Mode};
///
/// let queue = Loopback::new(Mode::Immediate).queue()?; // with `synced_mem::cuda::Cuda` a GPU's
/// let mut weights = Blob::from_slice(Shape::new([2])?, &[1.0f32, -2.0])?;
/// blob_ops::at(&queue).scale(&mut weights, 3, Part::Data)?;
/// assert_eq!(*weights.data()?, [3.0, -6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct At {
    place: Place,
    /// Whether outputs are in memory that nobody has written.
    is_new: bool,
}

#[derive(Clone, Debug)]
enum Place {
    Data,
    Host,
    Device(Arc<dyn Queue>),
}

/// The place of the free functions.
pub(crate) static WITH_THE_DATA: At = At { place: Place::Data, is_new: false };

/// The queue's device: inputs are brought there, and outputs are written there.
///
/// For a device without kernels the host works, as [`at_host`] does, and outputs are there afterwards. GPUs of compute
/// capability 7.0 or newer have kernels, where this crate is built with the feature `cuda`, for all operations but
/// [`stats`](crate::stats). Results have the same bits at every place. Work at a GPU that fails is an error, not work
/// for the host.
pub fn at(queue: &Arc<dyn Queue>) -> At {
    let place = if cuda::has_kernels(&**queue) { Place::Device(Arc::clone(queue)) } else { Place::Host };
    At { place, is_new: false }
}

/// The host, wherever the bytes are.
pub fn at_host() -> At {
    At { place: Place::Host, is_new: false }
}

impl At {
    /// The same place, for merges and splits into memory that the system has just mapped, and that nobody has written.
    /// The host then writes through the caches, page by page: the system puts zeros there when a page is first touched.
    /// Results are the same.
    #[must_use]
    pub fn with_new_outputs(self) -> At {
        At { is_new: true, ..self }
    }

    /// The way to run a move on the host that writes this many bytes.
    pub(crate) fn exec(&self, bytes: usize) -> Exec {
        if self.is_new { Exec::of_new(bytes) } else { Exec::of(bytes) }
    }

    /// The queue on which the operation works; `None` is the host. Operands that are read and written are given as
    /// both.
    #[inline(always)]
    pub(crate) fn queue<'a>(
        &self,
        reads: impl IntoIterator<Item = Operand<'a>>,
        writes: impl IntoIterator<Item = Operand<'a>>,
    ) -> Option<Arc<dyn Queue>> {
        match &self.place {
            Place::Host => None,
            Place::Data if !cuda::is_possible() => None,
            Place::Data => with_the_least_missing(&mut reads.into_iter(), &mut writes.into_iter()),
            Place::Device(queue) => Some(Arc::clone(queue)),
        }
    }
}

/// Bytes that an operation reads or writes.
#[derive(Clone)]
pub(crate) struct Operand<'a> {
    memory: &'a SharedMem,
    bytes: Range<usize>,
}

impl<'a> Operand<'a> {
    pub(crate) fn all(blob: &'a AnyBlob, part: Part) -> Self {
        Operand { memory: blob.memory(part), bytes: 0..blob.byte_len() }
    }

    /// Some elements, which are there.
    pub(crate) fn range(blob: &'a AnyBlob, part: Part, elements: &Range<usize>) -> Self {
        let size = blob.dtype().size();
        Operand { memory: blob.memory(part), bytes: elements.start * size..elements.end * size }
    }
}

/// The report of an operand's memory.
struct Report {
    lacking: Lacking,
    /// How many of the operand's bytes were ever written, or more.
    written: usize,
}

#[cold]
fn with_the_least_missing<'a>(
    reads: &mut dyn Iterator<Item = Operand<'a>>,
    writes: &mut dyn Iterator<Item = Operand<'a>>,
) -> Option<Arc<dyn Queue>> {
    let [reads, writes] = [reports(reads), reports(writes)];
    let mut queues = SmallVec::<[Arc<dyn Queue>; 2]>::new();
    for (queue, _) in reads.iter().chain(&writes).flat_map(|report| &report.lacking.devices) {
        let is_known = queues.iter().any(|known| known.device().id() == queue.device().id());
        if !is_known && cuda::is_at_work(&**queue) {
            queues.push(Arc::clone(queue));
        }
    }
    let last = writes.iter().chain(&reads).find_map(|report| report.lacking.last).unwrap_or(Location::Host);
    let cost = |place: Option<&Arc<dyn Queue>>| Cost {
        inputs: sum(&reads, place),
        outputs: sum(&writes, place),
        is_new: last != place.map_or(Location::Host, |queue| Location::Device(queue.device().id())),
    };
    decide(cost(None), queues.iter().map(|queue| cost(Some(queue)))).map(|at| queues.swap_remove(at))
}

fn reports<'a>(operands: &mut dyn Iterator<Item = Operand<'a>>) -> SmallVec<[Report; 4]> {
    let reports = operands.filter_map(|Operand { memory, bytes }| {
        let written = if memory.is_initialized() { bytes.len() } else { 0 };
        // A range out of bounds is the borrow's error.
        Some(Report { lacking: memory.lacking(bytes).ok()?, written })
    });
    reports.collect()
}

/// The bytes that would have to be moved there; `None` is the host.
fn sum(reports: &[Report], place: Option<&Arc<dyn Queue>>) -> usize {
    let missing = reports.iter().map(|Report { lacking, written }| match place {
        None => lacking.host,
        Some(place) => {
            let mut devices = lacking.devices.iter();
            devices.find(|(queue, _)| queue.device().id() == place.device().id()).map_or(*written, |(_, lacks)| *lacks)
        }
    });
    missing.sum()
}

/// The costs of a place, the weightiest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// The bytes of the inputs that are missing there.
    inputs: usize,
    /// The bytes of the outputs that are missing there.
    outputs: usize,
    /// Whether the output, or else the first input that has been anywhere, was last written or asked for at another
    /// place.
    is_new: bool,
}

/// The first of the devices that cost the least; `None` is the host, which is preferred to equals.
fn decide(host: Cost, devices: impl Iterator<Item = Cost>) -> Option<usize> {
    let best = devices.enumerate().min_by_key(|(_, cost)| *cost);
    best.filter(|(_, cost)| *cost < host).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::machine::Store;

    #[test]
    fn new_outputs_are_written_through_the_caches_page_by_page() {
        let exec = at_host().with_new_outputs().exec(256 << 20);
        assert!(exec.store == Store::Cached && exec.pieces >= 128, "{exec:?}");
        assert_eq!(at_host().exec(256 << 20).store, WITH_THE_DATA.exec(256 << 20).store);
        assert_eq!(at_host().with_new_outputs().exec(1 << 10).pieces, 1);
    }

    #[test]
    fn the_place_that_lacks_the_least_of_the_inputs_then_of_the_output_then_the_last() {
        type Row = (usize, usize, bool);
        let rows: [(Row, &[Row], Option<usize>); 12] = [
            ((0, 0, false), &[], None),
            // Everything is everywhere, or was never written: where it was last.
            ((0, 0, false), &[(0, 0, true)], None),
            ((0, 0, true), &[(0, 0, false)], Some(0)),
            ((0, 0, true), &[(0, 0, true), (0, 0, false)], Some(1)),
            // At a device without kernels.
            ((0, 0, true), &[(0, 0, true)], None),
            // An input is on the device alone.
            ((8, 0, false), &[(0, 8, true)], Some(0)),
            ((0, 8, true), &[(8, 0, false)], None),
            // As much of the inputs is missing here as there: where the output is.
            ((4, 8, false), &[(4, 0, true)], Some(0)),
            ((4, 0, true), &[(4, 8, false)], None),
            // No inputs: where the output is.
            ((0, 8, false), &[(0, 0, true)], Some(0)),
            // Of several devices the best, of equals the first.
            ((9, 0, false), &[(8, 0, true), (3, 0, true), (3, 0, true)], Some(1)),
            ((9, 0, false), &[(3, 4, true), (3, 0, true)], Some(1)),
        ];
        let cost = |(inputs, outputs, is_new)| Cost { inputs, outputs, is_new };
        for (host, devices, wanted) in rows {
            let found = decide(cost(host), devices.iter().copied().map(cost));
            assert_eq!(found, wanted, "{host:?} {devices:?}");
        }
    }
}
