//! The rig that runs the rows of `SyncedMemory`'s tables: a memory of either kind, two devices, and the cost of each
//! step. Relies on the loopback backend, and on the tests' allocator to refuse a host block.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{
    Device, DeviceMut, DeviceRef, Error, Event, Head, Location, Observer, Queue, SharedMem, Stats, SyncedMem,
};

use super::Costs;
use crate::support::alloc::refusing;

/// The size in Caffe's own run.
const LEN: usize = 10_007;

/// The two kinds of memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Shell {
    Sole,
    Shared,
}

/// A memory of [`LEN`] bytes.
pub(super) enum Memory {
    Sole(Box<SyncedMem>),
    Shared(SharedMem),
}

impl Memory {
    fn new(shell: Shell, observer: Arc<dyn Observer>) -> Self {
        let mut memory = SyncedMem::new(LEN);
        memory.set_observer(observer);
        match shell {
            Shell::Sole => Self::Sole(Box::new(memory)),
            Shell::Shared => Self::Shared(SharedMem::from(memory)),
        }
    }

    /// The first byte on the host.
    fn host(&self) -> Result<u8, Error> {
        match self {
            Self::Sole(memory) => Ok(memory.host(..)?[0]),
            Self::Shared(memory) => Ok(memory.host(..)?[0]),
        }
    }

    fn host_mut(&mut self, change: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        match self {
            Self::Sole(memory) => change(memory.host_mut(..)?),
            Self::Shared(memory) => change(&mut memory.host_mut(..)?),
        }
        Ok(())
    }

    fn device(&self, queue: &Arc<dyn Queue>) -> Result<DeviceRef<'_>, Error> {
        match self {
            Self::Sole(memory) => memory.device(queue, ..),
            Self::Shared(memory) => memory.device(queue, ..),
        }
    }

    fn device_mut(&mut self, queue: &Arc<dyn Queue>) -> Result<DeviceMut<'_>, Error> {
        match self {
            Self::Sole(memory) => memory.device_mut(queue, ..),
            Self::Shared(memory) => memory.device_mut(queue, ..),
        }
    }

    fn adopt(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        match self {
            Self::Sole(memory) => memory.adopt(bytes),
            Self::Shared(memory) => memory.adopt(bytes),
        }
    }

    fn head(&self) -> Head {
        match self {
            Self::Sole(memory) => memory.head(),
            Self::Shared(memory) => memory.head(),
        }
    }

    fn valid_on(&self, location: Location) -> bool {
        match self {
            Self::Sole(memory) => memory.valid_on(location, ..),
            Self::Shared(memory) => memory.valid_on(location, ..),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        match self {
            Self::Sole(memory) => memory.stats(),
            Self::Shared(memory) => memory.stats(),
        }
    }

    pub(super) fn shrink(&mut self) {
        match self {
            Self::Sole(memory) => memory.shrink(),
            Self::Shared(memory) => memory.shrink(),
        }
    }
}

/// A memory with two devices, and counters of the events.
pub(super) struct Rig {
    device: Arc<Loopback>,
    queue: Arc<dyn Queue>,
    other_queue: Arc<dyn Queue>,
    memory: Option<Memory>,
    costs: Arc<Mutex<Costs>>,
}

impl Rig {
    pub(super) fn new(mode: Mode, shell: Shell) -> Self {
        let device = Loopback::new(mode);
        let queue = device.queue().expect("a queue");
        let other_queue = device.sibling().queue().expect("a queue");
        let costs = Arc::new(Mutex::new(Costs::default()));
        let counted = Arc::clone(&costs);
        let observer = Arc::new(move |event: &Event| {
            counted.lock().unwrap_or_else(PoisonError::into_inner).add(event);
        });
        let memory = Some(Memory::new(shell, observer));
        Self { device, queue, other_queue, memory, costs }
    }

    pub(super) fn memory(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("not destroyed yet")
    }

    pub(super) fn costs(&self) -> Costs {
        *self.costs.lock().expect("no panic")
    }

    pub(super) fn forget_costs(&self) {
        *self.costs.lock().expect("no panic") = Costs::default();
    }

    pub(super) fn misuses(&self) -> Vec<String> {
        self.device.report().misuses
    }

    fn host(&mut self) -> Result<(), Error> {
        self.memory().host().map(drop)
    }

    fn host_mut(&mut self) -> Result<(), Error> {
        self.memory().host_mut(|_| {})
    }

    fn device(&mut self) -> Result<(), Error> {
        let queue = Arc::clone(&self.queue);
        self.memory().device(&queue).map(drop)
    }

    fn device_mut(&mut self) -> Result<(), Error> {
        let queue = Arc::clone(&self.queue);
        self.memory().device_mut(&queue).map(drop)
    }

    fn device_fill(&mut self, byte: u8) -> Result<(), Error> {
        let queue = Arc::clone(&self.queue);
        let mut token = self.memory().device_mut(&queue)?;
        launch(&*queue, [token.arg_mut()], move |args| args[0].bytes_mut().fill(byte))
    }

    fn adopt_host(&mut self, byte: u8, len: usize) -> Result<(), Error> {
        self.memory().adopt(vec![byte; len])
    }

    fn adopt_device(&mut self, byte: u8, len: usize) -> Result<(), Error> {
        let block = self.device.external(LEN)?;
        block.with_bytes(|bytes| bytes.fill(byte));
        let (queue, address) = (Arc::clone(&self.queue), block.address());
        let owner = Box::new(block);
        // SAFETY: `len` is at most LEN; the LEN bytes at `address` are memory of this queue's device. The block is
        // their owner and is handed over, and the address is known nowhere else.
        unsafe {
            match self.memory() {
                Memory::Sole(memory) => memory.adopt_device(&queue, address, len, owner),
                Memory::Shared(memory) => memory.adopt_device(&queue, address, len, owner),
            }
        }
    }

    fn push(&mut self) -> Result<(), Error> {
        let queue = Arc::clone(&self.queue);
        self.memory().device(&queue).map(drop)
    }

    /// Brings a new memory to a state, by the name in the tables.
    pub(super) fn prepare(&mut self, state: &str) -> Result<(), Error> {
        match state {
            "U" => Ok(()),
            "CPU" => self.memory().host_mut(|bytes| bytes.fill(1)),
            "CPUr (after cpu_data() only)" => self.host(),
            "extCPU" => self.adopt_host(11, LEN),
            "GPU" => self.device_fill(2),
            "GPUr (after gpu_data() only)" => self.device(),
            "SYNCED from CPU" => self.host_mut().and_then(|()| self.device()),
            "SYNCED from GPU" => self.device_mut().and_then(|()| self.host()),
            "CPU with stale GPU copy" => self.device_mut().and_then(|()| self.host_mut()),
            "GPU with stale CPU copy" => self.host().and_then(|()| self.device_mut()),
            "extGPU" => self.adopt_device(21, LEN),
            "extCPU SYNCED" => self.adopt_host(11, LEN).and_then(|()| self.device()),
            "extGPU SYNCED" => self.adopt_device(21, LEN).and_then(|()| self.host()),
            "extCPU then GPU write" => self.adopt_host(11, LEN).and_then(|()| self.device_mut()),
            "async pushed" => self.host_mut().and_then(|()| self.push()),
            other => panic!("{other}: a state that is not known here"),
        }
    }

    /// Runs an operation, by the name in the tables.
    pub(super) fn run(&mut self, op: &str, gpu_mode: bool) -> Result<(), Error> {
        match op {
            "cpu_data" | "cpu_data on another device" => self.host(),
            "mutable_cpu_data" => self.host_mut(),
            "gpu_data" => self.device(),
            "mutable_gpu_data" => self.device_mut(),
            "set_cpu_data(ext)" => self.adopt_host(12, LEN),
            "set_gpu_data(ext)" => self.adopt_device(22, LEN),
            "set_cpu_data(NULL)" => self.adopt_host(12, 0),
            "set_gpu_data(NULL)" => self.adopt_device(22, 0),
            "async_gpu_push" => self.push(),
            "mutable_gpu_data on another device" => {
                let queue = Arc::clone(&self.other_queue);
                self.memory().device_mut(&queue).map(drop)
            }
            "gpu_data when cudaMalloc fails" => {
                self.device.set_limit(0);
                self.device()
            }
            // In GPU mode host memory is pinned, and not allocated by malloc.
            "cpu_data when malloc fails" if gpu_mode => self.host(),
            "cpu_data when malloc fails" => refusing(LEN, || self.host()),
            "destroy" => {
                self.memory = None;
                Ok(())
            }
            other => panic!("{other}: an operation that is not known here"),
        }
    }

    /// The name of the head in the tables.
    pub(super) fn head(&self) -> &'static str {
        match self.memory.as_ref().map(Memory::head) {
            None => "(destroyed)",
            Some(Head::Uninitialized) => "UNINITIALIZED",
            Some(Head::AtHost) => "HEAD_AT_CPU",
            Some(Head::AtDevice) => "HEAD_AT_GPU",
            Some(Head::Synced) => "SYNCED",
            Some(other) => panic!("{other:?} after accesses to all bytes"),
        }
    }

    /// The first byte of the valid copies, on the host and on a device.
    pub(super) fn newest(&mut self) -> [Option<u8>; 2] {
        let queues = [&self.queue, &self.other_queue].map(Arc::clone);
        let memory = self.memory();
        let on_host = memory.valid_on(Location::Host);
        let host = on_host.then(|| memory.host().expect("bytes"));
        let mut holds = queues.iter().filter(|q| memory.valid_on(Location::Device(q.device().id())));
        let device = holds.next().map(|queue| device_byte(memory, queue));
        [host, device]
    }
}

fn device_byte(memory: &Memory, queue: &Arc<dyn Queue>) -> u8 {
    let byte = Arc::new(AtomicU8::new(0));
    let seen = Arc::clone(&byte);
    let token = memory.device(queue).expect("bytes");
    launch(&**queue, [token.arg()], move |args| {
        seen.store(args[0].bytes()[0], Ordering::Relaxed);
    })
    .expect("a launch");
    queue.synchronize().expect("work without errors");
    assert_eq!(Arc::strong_count(&byte), 1, "the kernel has run");
    byte.load(Ordering::Relaxed)
}

pub(super) fn error_name(error: &Error) -> &'static str {
    match error {
        Error::WrongLength { .. } => "WrongLength",
        Error::OutOfMemory { .. } => "OutOfMemory",
        Error::DeviceOutOfMemory { .. } => "DeviceOutOfMemory",
        other => panic!("{other}"),
    }
}
