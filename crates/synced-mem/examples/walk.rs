//! Two accesses whose walk through the crate `benches/walks.py` counts: of a stale range, and with nothing to do.

use std::sync::Arc;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Error, Queue, SharedMem};

#[inline(never)]
fn stale(memory: &SharedMem, queue: &Arc<dyn Queue>) -> Result<(), Error> {
    memory.device(queue, ..).map(drop)
}

#[inline(never)]
fn nothing_to_do(memory: &SharedMem, queue: &Arc<dyn Queue>) -> Result<(), Error> {
    memory.device(queue, ..).map(drop)
}

fn main() -> Result<(), Error> {
    let queue = Loopback::new(Mode::Deferred).queue()?;
    let memory = SharedMem::from(vec![1; 4096]);
    drop(memory.device(&queue, ..)?);
    memory.host_mut(..)?.fill(2);
    stale(&memory, &queue)?;
    nothing_to_do(&memory, &queue)
}
