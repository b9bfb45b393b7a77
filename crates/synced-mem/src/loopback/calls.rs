//! The calls on the devices of a loopback machine: counted, limited, and made to fail where a test asks for it.
//! Relies on the caller to hold the machine's lock. Does not know the work of a call.

use super::kernel::is_in_kernel;
use crate::{DeviceId, Error, Host, QueueId};

/// The calls that are counted, and that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Device::queue`](crate::Device::queue).
    Queue,
    /// [`Queue::alloc`](crate::Queue::alloc).
    Alloc,
    /// [`Queue::adopt`](crate::Queue::adopt).
    Adopt,
    /// [`Queue::upload`](crate::Queue::upload).
    Upload,
    /// [`Queue::download`](crate::Queue::download).
    Download,
    /// [`Queue::copy`](crate::Queue::copy).
    Copy,
    /// [`Queue::fill`](crate::Queue::fill).
    Fill,
    /// [`Queue::wait_for`](crate::Queue::wait_for).
    Wait,
    /// [`Queue::synchronize`](crate::Queue::synchronize).
    Synchronize,
    /// [`launch`](super::launch).
    Launch,
}

/// The name of each operation, as in [`Queue`](crate::Queue) and [`Device`](crate::Device).
const NAMES: [&str; OPERATIONS] =
    ["queue", "alloc", "adopt", "upload", "download", "copy", "fill", "wait_for", "synchronize", "launch"];

/// How many operations there are.
pub(super) const OPERATIONS: usize = Operation::Launch as usize + 1;

impl Operation {
    pub(super) fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// A device's limit until another is set: more memory than any host has, but less than the conformance suite requests
/// in order to be refused. So such a request never reaches the host's allocator.
const LIMIT: usize = usize::MAX / 8;

/// The counts of one device.
pub(super) struct Account {
    device: DeviceId,
    pub(super) limit: usize,
    pub(super) in_use: usize,
    pub(super) live: usize,
    calls: [u64; OPERATIONS],
    /// The calls that are to fail, by number, and how.
    failures: Vec<(Operation, u64, Fault)>,
    /// Whether blocks are given out again.
    pub(super) reuses: bool,
    /// Whether the device reads host bytes in place.
    pub(super) shares_host: bool,
    /// Where transfers of host bytes wait for the device: their answer.
    pub(super) stages: Option<Host>,
    /// The staged transfers that are held, or will be: each is the next that begins.
    pub(super) holds: Vec<Held>,
}

/// A staged transfer that is to wait in the call.
#[derive(Debug)]
pub(super) struct Held {
    /// Which hold.
    pub(super) number: u64,
    pub(super) has_begun: bool,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// With [`Error::Device`], before anything is enqueued or waited for.
    Refused,
    /// With [`Error::Device`], after the work is enqueued, or the wait is over.
    Reported,
    /// The work ends half-way: an upload, a download, a copy or a fill moves the first half of the bytes, a kernel does
    /// not run. The call itself succeeds, if it does not run the work; the queue fails from then on. For calls that
    /// enqueue no bytes nothing happens.
    BrokenOff,
}

/// A call that goes on, and the end.
pub(super) struct Called {
    device: DeviceId,
    pub(super) operation: Operation,
    /// The way to fail, and the message of the error.
    fault: Option<(Fault, String)>,
}

impl Account {
    pub(super) fn new(device: DeviceId) -> Self {
        let (calls, failures) = ([0; OPERATIONS], Vec::new());
        let (reuses, shares_host, stages, holds) = (false, false, None, Vec::new());
        Self { device, limit: LIMIT, in_use: 0, live: 0, calls, failures, reuses, shares_host, stages, holds }
    }

    pub(super) fn fail(&mut self, operation: Operation, nth: u64, fault: Fault) {
        let number = self.calls(operation).saturating_add(nth);
        self.failures.push((operation, number, fault));
    }

    pub(super) fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize]
    }

    /// Counts a call, and refuses it where a test asked for that.
    pub(super) fn call(&mut self, operation: Operation) -> Result<Called, Error> {
        self.calls[operation as usize] += 1;
        let number = self.calls(operation);
        let this = |failure: &(Operation, u64, Fault)| (failure.0, failure.1) == (operation, number);
        let fault = self.failures.iter().find(|failure| this(failure)).map(|failure| failure.2);
        self.failures.retain(|failure| !this(failure));
        let fault = fault.map(|fault| (fault, format!("call {number} was told to fail")));
        match fault {
            Some((Fault::Refused, message)) => Err(Error::device(self.device, operation.name(), message)),
            fault => Ok(Called { device: self.device, operation, fault }),
        }
    }
}

impl Called {
    /// Whether the work of this call is broken off, and why.
    pub(super) fn broken_off(&self) -> Option<String> {
        let (fault, message) = self.fault.as_ref()?;
        (*fault == Fault::BrokenOff).then(|| message.clone())
    }

    /// The end of a call that has done everything.
    pub(super) fn end<T>(self, done: T) -> Result<T, Error> {
        match self.fault {
            Some((Fault::Reported, message)) => Err(Error::device(self.device, self.operation.name(), message)),
            _ => Ok(done),
        }
    }

    /// The error of a call whose work has failed, or that is refused.
    pub(super) fn failed(&self, message: &str) -> Error {
        Error::device(self.device, self.operation.name(), message)
    }

    /// Refuses a wait that a kernel calls.
    pub(super) fn refuse_kernels(&self, queue: QueueId) -> Result<(), Error> {
        if is_in_kernel() {
            return Err(Error::CalledFromKernel { queue, op: self.operation.name() });
        }
        Ok(())
    }
}
