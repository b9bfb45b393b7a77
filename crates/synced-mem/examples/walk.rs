//! Accesses with nothing to do, and one of a stale range, each in a function of its own: `benches/walks.py` counts the
//! files that each walks through, `benches/instructions.py` the instructions. The argument is how often each is made.

use std::hint::black_box;
use std::sync::Arc;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Error, Queue, SharedMem, SyncedMem};

#[inline(never)]
fn stale(memory: &SharedMem, queue: &Arc<dyn Queue>) -> Result<(), Error> {
    memory.device(queue, ..).map(drop)
}

#[inline(never)]
fn nothing_to_do(memory: &SharedMem, queue: &Arc<dyn Queue>) -> Result<(), Error> {
    memory.device(queue, ..).map(drop)
}

#[inline(never)]
fn owned_token(memory: &SyncedMem, queue: &Arc<dyn Queue>) -> Result<(), Error> {
    memory.device(queue, ..).map(drop)
}

#[inline(never)]
fn part_read(memory: &SharedMem) -> Result<u8, Error> {
    memory.host(64..128).map(|bytes| bytes[0])
}

#[inline(never)]
fn whole_read(memory: &SharedMem) -> Result<u8, Error> {
    memory.host(..).map(|bytes| bytes[64])
}

#[inline(never)]
fn read_again(memory: &SharedMem) -> Result<u8, Error> {
    memory.host(..).map(|bytes| bytes[65])
}

#[inline(never)]
fn write_borrow(memory: &SharedMem) -> Result<(), Error> {
    memory.host_mut(64..128).map(|mut bytes| bytes[0] = 3)
}

#[inline(never)]
fn owned_read(memory: &SyncedMem) -> Result<u8, Error> {
    memory.host(..).map(|bytes| bytes[64])
}

fn main() -> Result<(), Error> {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let queue = Loopback::new(Mode::Deferred).queue()?;
    let (shared, mut owned, host) = (SharedMem::from(vec![1; 4096]), SyncedMem::new(4096), SharedMem::new(4096));
    drop((shared.device(&queue, ..)?, host.host_mut(..)?));
    owned.host_mut(..)?.fill(1);
    drop(owned.device(&queue, ..)?);
    owned.host(..)?;
    shared.host_mut(..)?.fill(2);
    stale(&shared, &queue)?;
    for _ in 0..rounds {
        nothing_to_do(black_box(&shared), &queue)?;
        owned_token(black_box(&owned), &queue)?;
        whole_read(black_box(&host))?;
        read_again(black_box(&host))?;
        part_read(black_box(&host))?;
        write_borrow(black_box(&host))?;
        owned_read(black_box(&owned))?;
    }
    Ok(())
}
