//! Memories from a pool whose blocks hold what others left there, and that must not get a block back too early.

use proptest::prelude::*;
use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, HostPool, Location, SharedMem, SyncedMem};

use crate::cases;
use crate::harness::op::{Scale, modes, program};
use crate::harness::world::World;

const CELLS: usize = 20;
/// So that a memory is large enough for the pool to keep its block.
const SCALE: usize = 256;

/// A pool with blocks that are not zero.
fn dirty() -> HostPool {
    let pool = HostPool::unzeroed(1 << 20);
    let memories = [(); 3].map(|()| SharedMem::from(SyncedMem::new_in(CELLS * SCALE, &pool)));
    for memory in &memories {
        memory.host_overwrite(0..memory.len()).unwrap().fill(0xEE);
    }
    drop(memories);
    assert_eq!((pool.stats().hits, pool.stats().misses), (0, 3));
    pool
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn pooled_memories_do_exactly_what_the_model_says(
        mode in modes(),
        program in program(Scale::Exact, 1..40),
    ) {
        World::pooled(mode, CELLS, SCALE, dirty()).run(&program);
    }
}

#[test]
fn another_owners_bytes_are_seen_from_an_unzeroed_pool_alone() {
    for (pool, seen) in [(HostPool::new(1 << 20), 0), (HostPool::unzeroed(1 << 20), 5)] {
        SharedMem::from(SyncedMem::new_in(8192, &pool)).host_overwrite(0..8192).unwrap().fill(5);
        let next = SharedMem::from(SyncedMem::new_in(8000, &pool));
        assert_eq!(*next.host_overwrite(0..8000).unwrap(), [seen; 8000]);
        drop(next);
        let mut owned = SyncedMem::new_in(8192, &pool);
        assert_eq!(owned.host_overwrite(..).unwrap(), [seen; 8192]);
        assert_eq!(pool.stats().hits, 2);
    }
}

#[test]
fn a_block_comes_back_when_no_queue_uses_it_any_more() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let pool = HostPool::new(1 << 20);
    let memory = SharedMem::from(SyncedMem::new_in(8192, &pool));
    memory.host_overwrite(0..8192).unwrap().fill(5);
    memory.device(&queue, 0..8192).unwrap();
    memory.adopt(vec![6; 8192]).unwrap();
    assert_eq!((device.report().pending, pool.stats().waiting), (1, 0));
    memory.shrink();
    // The upload has happened, and the device's block waits to be freed in its turn.
    assert_eq!((device.report().live_blocks, pool.stats().waiting), (0, 8192));
}

#[test]
fn an_evicted_block_is_the_next_memorys_only_after_its_upload() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let pool = HostPool::new(1 << 20);
    let memory = SharedMem::from(SyncedMem::new_in(8192, &pool));
    memory.host_overwrite(0..8192).unwrap().fill(5);
    let token = memory.device(&queue, 0..8192).unwrap();
    memory.evict(Location::Host, ..).unwrap();
    let next = SharedMem::from(SyncedMem::new_in(8192, &pool));
    next.host_overwrite(0..8192).unwrap().fill(6);
    let (told, seen) = std::sync::mpsc::channel();
    launch(&*queue, [token.arg()], move |args| told.send(args[0].bytes().to_vec()).unwrap()).unwrap();
    queue.synchronize().unwrap();
    assert_eq!((seen.recv().unwrap(), pool.stats().hits), (vec![5; 8192], 1));
}
