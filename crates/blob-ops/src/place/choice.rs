//! Where an operation works: where the caller says, else where the least is missing. Asked before a byte is borrowed.
//!
//! Relies on what memories say they lack, and on `cuda.rs` for which queues have kernels. Moves nothing.

use crate::cuda;
use crate::error::Error;
use blob_core::{AnyBlob, Part};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use synced_mem::{Lacking, Queue, SharedMem};

/// Runs `work`; what this thread does with this crate in it is done on the queue.
///
/// Inputs are brought to the queue's device, and outputs are there afterwards. By itself an operation works where the
/// fewest bytes of its inputs are missing; of equals where its output is; else on the host.
///
/// An operation that has no kernels for the queue's device is an [`Error::NoKernels`] in it: [`stats`](crate::stats) on
/// any device, and everything on a device that is no CUDA device.
pub fn on<R>(queue: &Arc<dyn Queue>, work: impl FnOnce() -> R) -> R {
    forced(Forced::Queue(Arc::clone(queue)), work)
}

/// Runs `work`; what this thread does with this crate in it is done on the host, wherever the bytes are.
pub fn on_host<R>(work: impl FnOnce() -> R) -> R {
    forced(Forced::Host, work)
}

#[derive(Clone)]
enum Forced {
    Host,
    Queue(Arc<dyn Queue>),
}

thread_local! {
    static FORCED: RefCell<Option<Forced>> = const { RefCell::new(None) };
}

/// Whether any thread ever forced a place.
static WAS_FORCED: AtomicBool = AtomicBool::new(false);

fn forced<R>(place: Forced, work: impl FnOnce() -> R) -> R {
    /// Puts the place before back, also where `work` panics.
    struct Before(Option<Forced>);
    impl Drop for Before {
        fn drop(&mut self) {
            FORCED.replace(self.0.take());
        }
    }
    WAS_FORCED.store(true, Ordering::Relaxed);
    let _before = Before(FORCED.replace(Some(place)));
    work()
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

    /// Some elements of it, which are there.
    pub(crate) fn range(blob: &'a AnyBlob, part: Part, elements: &Range<usize>) -> Self {
        let size = blob.dtype().size();
        Operand { memory: blob.memory(part), bytes: elements.start * size..elements.end * size }
    }
}

/// The queue on which the operation works; `None` is the host. Operands that are read and written are given as both.
#[inline(always)]
pub(crate) fn elsewhere<'a>(
    op: &'static str,
    reads: impl IntoIterator<Item = Operand<'a>>,
    writes: impl IntoIterator<Item = Operand<'a>>,
) -> Result<Option<Arc<dyn Queue>>, Error> {
    match cuda::is_possible() || WAS_FORCED.load(Ordering::Relaxed) {
        true => chosen(op, &mut reads.into_iter(), &mut writes.into_iter()),
        false => Ok(None),
    }
}

/// Whether the operation may work on the host, where alone it can.
pub(crate) fn check_host(op: &'static str) -> Result<(), Error> {
    match FORCED.with_borrow(Option::clone) {
        Some(Forced::Queue(queue)) => Err(no_kernels(op, &queue)),
        _ => Ok(()),
    }
}

#[cold]
fn chosen<'a>(
    op: &'static str,
    reads: &mut dyn Iterator<Item = Operand<'a>>,
    writes: &mut dyn Iterator<Item = Operand<'a>>,
) -> Result<Option<Arc<dyn Queue>>, Error> {
    match FORCED.with_borrow(Option::clone) {
        Some(Forced::Host) => Ok(None),
        Some(Forced::Queue(queue)) if cuda::has_kernels(&*queue) => Ok(Some(queue)),
        Some(Forced::Queue(queue)) => Err(no_kernels(op, &queue)),
        None => Ok(by_what_is_missing(reads, writes)),
    }
}

fn no_kernels(op: &'static str, queue: &Arc<dyn Queue>) -> Error {
    Error::NoKernels { op, device: queue.device().name() }
}

/// What some operands say, and how many bytes each has that were ever written, or more.
type Said = SmallVec<[(Lacking, usize); 4]>;

fn by_what_is_missing<'a>(
    reads: &mut dyn Iterator<Item = Operand<'a>>,
    writes: &mut dyn Iterator<Item = Operand<'a>>,
) -> Option<Arc<dyn Queue>> {
    let (reads, writes) = (said(reads), said(writes));
    let mut queues = SmallVec::<[Arc<dyn Queue>; 2]>::new();
    for (queue, _) in reads.iter().chain(&writes).flat_map(|(lacking, _)| &lacking.devices) {
        let is_known = queues.iter().any(|known| known.device().id() == queue.device().id());
        if !is_known && cuda::has_kernels(&**queue) {
            queues.push(Arc::clone(queue));
        }
    }
    let host = Missing { inputs: sum(&reads, None), outputs: sum(&writes, None) };
    let there =
        |queue: &Arc<dyn Queue>| Missing { inputs: sum(&reads, Some(queue)), outputs: sum(&writes, Some(queue)) };
    decide(host, queues.iter().map(there)).map(|at| queues.swap_remove(at))
}

fn said<'a>(operands: &mut dyn Iterator<Item = Operand<'a>>) -> Said {
    let said = operands.filter_map(|Operand { memory, bytes }| {
        let written = if memory.is_initialized() { bytes.len() } else { 0 };
        // A range out of bounds is the borrow's error.
        Some((memory.lacking(bytes).ok()?, written))
    });
    said.collect()
}

/// The bytes that would have to be moved there; `None` is the host.
fn sum(said: &Said, place: Option<&Arc<dyn Queue>>) -> usize {
    let missing = said.iter().map(|(lacking, written)| match place {
        None => lacking.host,
        Some(place) => {
            let mut devices = lacking.devices.iter();
            devices.find(|(queue, _)| queue.device().id() == place.device().id()).map_or(*written, |(_, lacks)| *lacks)
        }
    });
    missing.sum()
}

/// The bytes of an operation's inputs and outputs that are missing at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Missing {
    inputs: usize,
    outputs: usize,
}

/// The first of the devices where the least is missing; `None` is the host, which is preferred to equals.
fn decide(host: Missing, devices: impl Iterator<Item = Missing>) -> Option<usize> {
    let best = devices.enumerate().min_by_key(|(_, missing)| *missing);
    best.filter(|(_, missing)| *missing < host).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use synced_mem::Device;
    use synced_mem::loopback::{Loopback, Mode};

    #[test]
    fn the_place_that_lacks_the_least_of_the_inputs_then_of_the_output() {
        type Bytes = (usize, usize);
        let rows: [(Bytes, &[Bytes], Option<usize>); 9] = [
            ((0, 0), &[], None),
            // Everything is everywhere, or was never written.
            ((0, 0), &[(0, 0)], None),
            // An input is on the device alone.
            ((8, 0), &[(0, 8)], Some(0)),
            ((0, 8), &[(8, 0)], None),
            // As much of the inputs is missing here as there: where the output is.
            ((4, 8), &[(4, 0)], Some(0)),
            ((4, 0), &[(4, 8)], None),
            // No inputs: where the output is.
            ((0, 8), &[(0, 0)], Some(0)),
            // Of several devices the best, of equals the first.
            ((9, 0), &[(8, 0), (3, 0), (3, 0)], Some(1)),
            ((9, 0), &[(3, 4), (3, 0)], Some(1)),
        ];
        let missing = |(inputs, outputs)| Missing { inputs, outputs };
        for (host, devices, wanted) in rows {
            let found = decide(missing(host), devices.iter().copied().map(missing));
            assert_eq!(found, wanted, "{host:?} {devices:?}");
        }
    }

    #[test]
    fn a_forced_place_holds_for_the_closure_also_where_it_panics() {
        let queue = Loopback::new(Mode::Immediate).queue().unwrap();
        let is_refused = || check_host("test").is_err();
        assert!(!is_refused());
        on(&queue, || {
            assert!(is_refused());
            on_host(|| assert!(!is_refused()));
            assert!(is_refused());
            let panicked = std::panic::catch_unwind(|| on_host(|| panic!("on purpose")));
            assert!(panicked.is_err() && is_refused());
        });
        assert!(!is_refused());
    }
}
