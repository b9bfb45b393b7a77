//! A call ends although the same memory never ceases to be used: it waits for what there was when it began.
//!
//! Here it is the kernels that go on using the memory: each one launches the next. A call that waited for these too
//! would run all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Arg, Device, DeviceRef, Error, Location, Queue, SharedMem};

/// How many kernels are launched at most, so that the tests end.
const MAX_RUNS: usize = 1000;

/// How many kernels have run.
#[derive(Clone, Default)]
struct Chain(Arc<AtomicUsize>);

impl Chain {
    fn runs(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A kernel that does this when it runs.
    fn launch<'a>(
        &self,
        queue: &Arc<dyn Queue>,
        arg: impl IntoIterator<Item = Arg<'a>>,
        next: impl FnOnce() + Send + 'static,
    ) {
        let Self(runs) = self.clone();
        launch(&**queue, arg, move |_| {
            if runs.fetch_add(1, Ordering::Relaxed) < MAX_RUNS {
                next();
            }
        })
        .unwrap();
    }
}

/// A queue that reads, and whose kernel brings the next.
fn read(memory: SharedMem, device: Arc<Loopback>, chain: Chain) {
    let queue = device.queue().unwrap();
    let token = memory.device(&queue, 0..8).unwrap();
    let (next, shared) = (chain.clone(), memory.clone());
    chain.launch(&queue, [token.arg()], move || read(shared, device, next));
}

#[test]
fn new_readers_of_a_crowded_memory_are_left_to_the_next_call() {
    let (device, chain) = (Loopback::new(Mode::Deferred), Chain::default());
    let memory = SharedMem::from(vec![1; 8]);
    for _ in 0..70 {
        read(memory.clone(), Arc::clone(&device), chain.clone());
    }
    let runs = chain.runs();
    assert!((1..100).contains(&runs), "{runs} kernels were waited for");
}

/// A few batches on a queue.
fn bring(memory: &SharedMem, queue: &Arc<dyn Queue>) -> Result<DeviceRef<'static>, Error> {
    for _ in 0..3 {
        memory.adopt(vec![1; 100])?;
        memory.device(queue, 0..100)?;
    }
    memory.device(queue, 0..100)
}

/// A few batches on a queue; the kernel of the last brings more. In a kernel they may be in conflict with the borrow of
/// the call that waits for it.
fn batches(memory: SharedMem, queue: Arc<dyn Queue>, chain: Chain) {
    let token = bring(&memory, &queue);
    let arg = token.as_ref().map(DeviceRef::arg);
    let (next, shared, own) = (chain.clone(), memory.clone(), Arc::clone(&queue));
    chain.launch(&queue, arg, move || batches(shared, own, next));
}

#[test]
fn batches_retired_while_others_are_waited_for_are_left_to_the_next_call() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let (memory, chain) = (SharedMem::new(100), Chain::default());
    for _ in 0..4 {
        batches(memory.clone(), Arc::clone(&queue), chain.clone());
    }
    let runs = chain.runs();
    assert!((1..100).contains(&runs), "{runs} kernels were waited for");
    queue.synchronize().unwrap();
}

/// A write on a queue, whose kernel brings the next.
fn write(memory: SharedMem, queue: Arc<dyn Queue>, chain: Chain) {
    let mut token = memory.device_mut(&queue, 0..10).unwrap();
    let (next, shared, own) = (chain.clone(), memory.clone(), Arc::clone(&queue));
    chain.launch(&queue, [token.arg_mut()], move || write(shared, own, next));
}

#[test]
fn an_eviction_does_not_wait_for_bytes_that_it_does_not_evict() {
    let (one, two) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (reader, writer) = (one.queue().unwrap(), two.queue().unwrap());
    let (memory, chain) = (SharedMem::from(vec![1; 100]), Chain::default());
    drop(memory.device(&reader, 10..100).unwrap());
    write(memory.clone(), writer, chain.clone());
    memory.evict(Location::Device(one.id()), ..).unwrap();
    assert_eq!(chain.runs(), 0, "kernels were waited for");
}
