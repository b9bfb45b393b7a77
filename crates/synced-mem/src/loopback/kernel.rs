//! Kernels of a loopback device: closures over the slices that their arguments name.
//! It relies on tokens for the arguments, and on `memory` for bytes that are carved by safe code only.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Operation;
use super::memory::{Memory, POISON, Piece, freed};
use super::queue::LoopQueue;
use super::task::Task;
use crate::{Access, Arg, Error, Queue};

/// What a kernel sees of an argument.
#[derive(Debug)]
#[non_exhaustive]
pub enum KernelArg<'a> {
    /// Bytes of an argument that may be read.
    Read(&'a [u8]),
    /// Bytes of an argument that may be written.
    Write(&'a mut [u8]),
}

impl KernelArg<'_> {
    /// The bytes, to be read.
    pub fn bytes(&self) -> &[u8] {
        match self {
            KernelArg::Read(bytes) => bytes,
            KernelArg::Write(bytes) => bytes,
        }
    }

    /// The bytes, to be written.
    ///
    /// # Panics
    /// If the argument may only be read: the kernel is wrong, and its panic becomes an error of its queue.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            KernelArg::Read(_) => panic!("a kernel writes to an argument that it may only read"),
            KernelArg::Write(bytes) => bytes,
        }
    }
}

/// Enqueues a kernel on a queue of a [`Loopback`](super::Loopback). It is called with the bytes of `args`, in order.
///
/// The kernel runs under the machine's lock: it must not use the machine, nor drop a queue, a block or a memory that
/// does, or it waits for itself for ever.
///
/// A kernel that panics fails its queue. If it ran within this call, this call reports it. Otherwise every later
/// `synchronize` does, of the queue and of any queue that waited for the kernel; other work still runs.
///
/// # Errors
/// [`Error::WrongQueue`] for an argument borrowed for another queue. [`Error::Device`] when `queue` is none of a
/// loopback, when an argument that is written overlaps another, or when the kernel ran and panicked.
pub fn launch<'a>(
    queue: &dyn Queue,
    args: impl IntoIterator<Item = Arg<'a>>,
    kernel: impl FnOnce(&mut [KernelArg<'_>]) + Send + 'static,
) -> Result<(), Error> {
    let name = Operation::Launch.name();
    let device = queue.device().id();
    let Some(queue) = (queue as &dyn Any).downcast_ref::<LoopQueue>() else {
        let message = "kernels of a loopback run on its own queues only";
        return Err(Error::device(device, name, message));
    };
    // Collected before the lock is taken: the iterator is the caller's code.
    let args: Vec<Arg<'_>> = args.into_iter().collect();
    let mut state = queue.device.machine.state();
    state.call(device, Operation::Launch)?;
    let mut params = Vec::with_capacity(args.len());
    for arg in &args {
        if arg.queue() != queue.id {
            return Err(Error::wrong_queue(queue.id, arg.queue()));
        }
        let access = arg.access();
        let piece = match arg.block() {
            Some(block) => {
                let Range { start, end } = arg.range();
                Some(queue.piece(&mut state, Operation::Launch, block, start, end - start)?)
            }
            None => None,
        };
        params.push(Param { access, piece });
    }
    if Param::conflict(&params) {
        let message = "an argument that is written overlaps another";
        return Err(state.misuse(device, Operation::Launch, message));
    }
    let kernel = Box::new(kernel);
    let position = state.enqueue(queue.id, Task::Launch(Launch { params, kernel }));
    match state.take_failure(queue.id, position) {
        Some(message) => Err(Error::device(device, name, message)),
        None => Ok(()),
    }
}

type Kernel = Box<dyn FnOnce(&mut [KernelArg<'_>]) + Send>;

/// A kernel with its arguments.
pub(super) struct Launch {
    params: Vec<Param>,
    kernel: Kernel,
}

struct Param {
    access: Access,
    /// None of a memory of length 0.
    piece: Option<Piece>,
}

impl Param {
    /// Whether two of them overlap, and at least one of these is written.
    fn conflict(params: &[Param]) -> bool {
        let overlap = |a: &Param, b: &Param| match (&a.piece, &b.piece) {
            (Some(a), Some(b)) => a.overlaps(b),
            _ => false,
        };
        let writes = |a: &Param, b: &Param| a.access == Access::Write || b.access == Access::Write;
        params.iter().enumerate().any(|(index, a)| {
            let mut later = params[index + 1..].iter();
            later.any(|b| writes(a, b) && overlap(a, b))
        })
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").finish_non_exhaustive()
    }
}

impl Launch {
    /// Calls the kernel; fails with what it said when it panicked. What it had written by then stays.
    pub(super) fn perform(self, memory: &mut Memory) -> Result<(), String> {
        let mut slots = taken(memory, &self.params);
        let mut parts: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut args: Vec<KernelArg<'_>> = Vec::with_capacity(self.params.len());
        for (index, Param { access, piece }) in self.params.iter().enumerate() {
            args.push(match access {
                Access::Read => KernelArg::Read(&[]),
                Access::Write => KernelArg::Write(&mut []),
            });
            if let Some(Piece { slot, range }) =
                piece.clone().filter(|piece| !piece.range.is_empty())
            {
                let access = *access;
                let part = Part {
                    index,
                    access,
                    range,
                };
                parts.entry(slot).or_default().push(part);
            }
        }
        for (slot, bytes) in &mut slots {
            for (index, arg) in carve(bytes, parts.remove(slot).unwrap_or_default()) {
                args[index] = arg;
            }
        }
        let kernel = self.kernel;
        // What the kernel leaves half done are bytes, which have no invariant.
        let result = catch_unwind(AssertUnwindSafe(|| kernel(&mut args)));
        drop(args);
        for (slot, bytes) in slots {
            memory.put_back(slot, bytes);
        }
        result.map_err(|panic| {
            let text = format!("a kernel panicked: {}", message(panic.as_ref()));
            // The payload's destructor is user code too, and may panic in its turn.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(second);
            }
            text
        })
    }
}

/// The slots that the parameters lie in, taken out; poison in the place of those that were freed.
fn taken(memory: &mut Memory, params: &[Param]) -> BTreeMap<u64, Vec<u8>> {
    let mut slots: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for piece in params.iter().filter_map(|param| param.piece.as_ref()) {
        if let Some(bytes) = slots.get_mut(&piece.slot) {
            // Longer only if it is the poison of a freed slot.
            bytes.resize(bytes.len().max(piece.range.end), POISON);
            continue;
        }
        let bytes = memory.take(piece.slot).unwrap_or_else(|| {
            memory.misuses.push(freed(piece));
            vec![POISON; piece.range.end]
        });
        slots.insert(piece.slot, bytes);
    }
    slots
}

/// A range of a slot, for the argument of this index.
struct Part {
    index: usize,
    access: Access,
    range: Range<usize>,
}

/// Cuts the slices of the parts out of a slot. No part that is written overlaps another, so every part that is read
/// lies within one of the gaps that the written ones leave.
fn carve(bytes: &mut [u8], parts: Vec<Part>) -> Vec<(usize, KernelArg<'_>)> {
    let (mut writes, reads): (Vec<Part>, Vec<Part>) = parts
        .into_iter()
        .partition(|part| part.access == Access::Write);
    writes.sort_by_key(|part| part.range.start);
    let mut args = Vec::with_capacity(writes.len() + reads.len());
    let mut gaps: Vec<(usize, &[u8])> = Vec::with_capacity(writes.len() + 1);
    let (mut rest, mut at) = (bytes, 0);
    for part in writes {
        let (gap, tail) = rest.split_at_mut(part.range.start - at);
        let (own, tail) = tail.split_at_mut(part.range.len());
        gaps.push((at, gap));
        args.push((part.index, KernelArg::Write(own)));
        (rest, at) = (tail, part.range.end);
    }
    gaps.push((at, rest));
    for part in reads {
        let mut found = gaps.iter().filter_map(|(start, gap)| {
            let from = part.range.start.checked_sub(*start)?;
            gap.get(from..from + part.range.len())
        });
        let bytes = found
            .next()
            .expect("a read part lies between the written ones");
        args.push((part.index, KernelArg::Read(bytes)));
    }
    args
}

/// What a panic says, if it says it in words.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it does not say why")
}
