//! Kernels of a loopback device: closures over the slices that their arguments name.
//! It relies on tokens for the arguments, and on `memory` for their bytes, of which a kernel gets copies: it runs with
//! nothing locked, and what it wrote is stored when it has ended.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::Operation;
use super::memory::{Memory, POISON, Piece};
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
/// The kernel runs on whichever thread needs its work done, and nothing is locked meanwhile. What it may do:
///
/// | in a kernel | |
/// |---|---|
/// | wait for another thread, use a thread pool | yes |
/// | enqueue work, launch, drop the last handle of a memory, of a block, of a queue | yes |
/// | use a memory | with [`Mode::Deferred`](super::Mode::Deferred); the other modes may run it within a call that has that memory locked, and it hangs |
/// | wait for another queue's work, of any machine | yes |
/// | wait for its own end: synchronise its queue or one that waits for it, or what waits for such a queue, through any number of machines and of kernels that wait for each other | an error of the call: [`Error::Deadlock`] |
/// | hand such waiting to another thread, and wait for that thread | it hangs, because nobody can see it |
///
/// With [`Mode::Immediate`](super::Mode::Immediate) every call that enqueues waits for its work.
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
    let called = state.call(device, Operation::Launch)?;
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
    let task = Task::Launch(Launch { params, kernel });
    let position = queue.enqueue(state, called, task)?;
    match queue.device.machine.state().take_failure(queue.id, position) {
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
    /// A kernel that fails at once, in the place of this one. This one is dropped when it would run, with nothing locked.
    pub(super) fn broken_off(self, message: String) -> Self {
        let Launch { params, kernel } = self;
        let kernel = Box::new(move |_: &mut [KernelArg<'_>]| {
            drop(kernel);
            // Not `panic!`: it was asked for, so nothing is printed.
            resume_unwind(Box::new(message))
        });
        Launch { params, kernel }
    }

    /// The kernel with its arguments' bytes, which are copies, so that others can use the machine while it runs.
    pub(super) fn load(mut self, memory: &mut Memory) -> Loaded {
        let bytes = |param: &mut Param| match &param.piece {
            Some(piece) => match memory.read(piece) {
                Some(bytes) => bytes.to_vec(),
                None => {
                    let poison = vec![POISON; piece.range.len()];
                    // The misuse is told once.
                    param.piece = None;
                    poison
                }
            },
            None => Vec::new(),
        };
        let bytes = self.params.iter_mut().map(bytes).collect();
        Loaded { launch: self, bytes }
    }
}

/// A kernel that is ready to run.
pub(super) struct Loaded {
    launch: Launch,
    /// By parameter.
    bytes: Vec<Vec<u8>>,
}

impl Loaded {
    /// Calls the kernel. No lock is held.
    pub(super) fn run(self) -> Ran {
        let Launch { params, kernel } = self.launch;
        let mut bytes = self.bytes;
        let args = params.iter().zip(&mut bytes);
        let mut args: Vec<KernelArg<'_>> = args
            .map(|(param, bytes)| match param.access {
                Access::Read => KernelArg::Read(bytes),
                Access::Write => KernelArg::Write(bytes),
            })
            .collect();
        // What the kernel leaves half done are bytes, which have no invariant.
        let result = catch_unwind(AssertUnwindSafe(|| kernel(&mut args)));
        drop(args);
        let result = result.map_err(|panic| {
            let text = format!("a kernel panicked: {}", message(panic.as_ref()));
            // The payload's destructor is user code too, and may panic in its turn.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(second);
            }
            text
        });
        Ran { params, bytes, result }
    }
}

/// A kernel that has run, with what it wrote.
pub(super) struct Ran {
    params: Vec<Param>,
    bytes: Vec<Vec<u8>>,
    result: Result<(), String>,
}

impl Ran {
    /// Puts what was written in its place, also what a kernel had written before it panicked. Fails with what it said.
    pub(super) fn store(self, memory: &mut Memory) -> Result<(), String> {
        for (param, bytes) in self.params.iter().zip(&self.bytes) {
            if let (Access::Write, Some(piece)) = (param.access, &param.piece)
                && let Some(target) = memory.write(piece)
            {
                target.copy_from_slice(bytes);
            }
        }
        self.result
    }
}

/// What a panic says, if it says it in words.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it does not say why")
}
