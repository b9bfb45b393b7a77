//! Kernels of a loopback device: closures over the bytes of parameters.
//! Relies on `memory` for these bytes, of which a kernel gets copies: a kernel runs with nothing locked, and written
//! bytes are stored at the end. Knows no queue.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::memory::{Memory, POISON, Piece};
use crate::Access;

thread_local! {
    static IS_IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a kernel, of any machine.
pub(super) fn is_in_kernel() -> bool {
    IS_IN_KERNEL.get()
}

/// A kernel's view of an argument.
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
    /// If the argument may only be read: the kernel is wrong, and the panic becomes an error of the queue.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            KernelArg::Read(_) => panic!("a kernel writes to an argument that it may only read"),
            KernelArg::Write(bytes) => bytes,
        }
    }
}

type Kernel = Box<dyn FnOnce(&mut [KernelArg<'_>]) + Send>;

/// A kernel with parameters.
pub(super) struct Launch {
    params: Vec<Param>,
    kernel: Kernel,
}

/// The launch's material for one argument of a kernel.
pub(super) struct Param {
    access: Access,
    /// None of a memory of length 0, or when the block is freed.
    piece: Option<Piece>,
    /// A copy of the piece, from when the kernel is next.
    bytes: Vec<u8>,
}

impl Param {
    pub(super) fn new(access: Access, piece: Option<Piece>) -> Self {
        Self { access, piece, bytes: Vec::new() }
    }

    /// Whether two arguments overlap, and at least one of these is written.
    pub(super) fn conflict(params: &[Param]) -> bool {
        params.iter().enumerate().any(|(index, one)| params[index + 1..].iter().any(|other| one.conflicts(other)))
    }

    fn conflicts(&self, other: &Param) -> bool {
        let writes = self.access == Access::Write || other.access == Access::Write;
        let pieces = self.piece.as_ref().zip(other.piece.as_ref());
        writes && pieces.is_some_and(|(one, other)| one.overlaps(other))
    }
}

impl Launch {
    /// Of parameters that do not [conflict](Param::conflict).
    pub(super) fn new(params: Vec<Param>, kernel: Kernel) -> Self {
        Self { params, kernel }
    }

    /// A kernel that fails at once, in the place of this one. This one is dropped in place of the run, with nothing
    /// locked.
    pub(super) fn broken_off(self, message: String) -> Self {
        let Launch { params, kernel } = self;
        let kernel = Box::new(move |_: &mut [KernelArg<'_>]| {
            drop(kernel);
            // Not `panic!`: the failure was asked for, so nothing is printed.
            resume_unwind(Box::new(message))
        });
        Launch { params, kernel }
    }

    /// Copies the parameters' bytes, so that others can use the machine while the kernel runs.
    pub(super) fn load(&mut self, memory: &mut Memory) {
        for param in &mut self.params {
            let Some(piece) = &param.piece else {
                continue;
            };
            if let Some(bytes) = memory.read(piece) {
                param.bytes = bytes.to_vec();
            } else {
                param.bytes = vec![POISON; piece.range.len()];
                // The misuse is listed once.
                param.piece = None;
            }
        }
    }

    /// Calls the kernel. No lock is held.
    pub(super) fn run(self) -> Ran {
        let Launch { mut params, kernel } = self;
        let args = params.iter_mut().map(|param| match param.access {
            Access::Read => KernelArg::Read(&param.bytes),
            Access::Write => KernelArg::Write(&mut param.bytes),
        });
        let mut args: Vec<KernelArg<'_>> = args.collect();
        // A kernel leaves only bytes half done, which have no invariant.
        IS_IN_KERNEL.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| kernel(&mut args)));
        let result = result.map_err(|panic| {
            let text = format!("a kernel panicked: {}", message(panic.as_ref()));
            // The payload's destructor is user code too, and may panic as well.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(second);
            }
            text
        });
        // Until here: a destructor that waits for this lane would wait for itself.
        IS_IN_KERNEL.set(false);
        Ran { params, result }
    }
}

/// A kernel that has run, with the written bytes.
pub(super) struct Ran {
    params: Vec<Param>,
    result: Result<(), String>,
}

impl Ran {
    /// Puts written bytes in place, also those of a kernel that panicked. Fails with the words of the panic.
    pub(super) fn store(self, memory: &mut Memory) -> Result<(), String> {
        for Param { access, piece, bytes } in &self.params {
            if let (Access::Write, Some(piece)) = (access, piece)
                && let Some(target) = memory.write(piece)
            {
                target.copy_from_slice(bytes);
            }
        }
        self.result
    }
}

/// The words of a panic, if there are any.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it does not say why")
}
