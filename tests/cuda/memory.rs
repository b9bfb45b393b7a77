//! The promises of a backend, and memories on GPUs: coherence, pinned memory, two GPUs, GPUs without pools.

use std::sync::Arc;

use fake_cuda::control::{Session, Setup};
use synced_mem::cuda::Cuda;
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Error, HostPool, SharedMem, SyncedMem, conformance};

use crate::{expect_no_leaks, gpu, seed};

#[test]
fn a_gpu_conforms() {
    for setup in [seed(1), seed(2), Setup { has_pools: false, ..seed(3) }] {
        let session = Session::start(setup);
        assert_eq!(conformance::run(&*Cuda::open(0).unwrap()), Ok(20), "{setup:?}");
        expect_no_leaks(&session);
    }
}

#[test]
fn a_block_without_a_pool_is_freed_after_the_work_on_it() {
    let (session, device, queue) = gpu(Setup { has_pools: false, ..seed(3) });
    let block = queue.alloc(64).unwrap();
    // SAFETY: within the block.
    unsafe { queue.fill(&*block, 0, 64).unwrap() };
    drop(block);
    drop((queue, device));
    expect_no_leaks(&session);
}

#[test]
fn two_gpus_conform_as_a_pair() {
    for setup in [seed(1), seed(2)] {
        let session = Session::start(setup);
        assert_eq!(conformance::run_pair(&*Cuda::open(0).unwrap(), &*Cuda::open(1).unwrap()), Ok(4), "{setup:?}");
        expect_no_leaks(&session);
    }
}

#[test]
fn a_gpu_and_another_backend_conform_as_a_pair() {
    let session = Session::start(seed(1));
    assert_eq!(conformance::run_pair(&*Cuda::open(0).unwrap(), &*Loopback::new(Mode::Deferred)), Ok(4));
    expect_no_leaks(&session);
}

#[test]
fn one_gpu_is_one_device_while_anything_of_it_lives() {
    let (session, first, queue) = gpu(seed(1));
    let id = first.id();
    drop(first);
    assert_eq!(Cuda::open(0).unwrap().id(), id);
    assert_ne!(Cuda::open(1).unwrap().id(), id);
    let block = queue.alloc(8).unwrap();
    drop(queue);
    assert_eq!(Cuda::open(0).unwrap().id(), id);
    drop(block);
    expect_no_leaks(&session);
    assert_ne!(Cuda::open(0).unwrap().id(), id);
}

/// Pageable bytes are read during the call, pinned bytes until the queue is synchronized.
#[test]
fn refilling_a_batch_waits_for_pinned_memory_only() {
    for (is_pinned, waits) in [(false, 0), (true, 4)] {
        let (session, gpu, queue) = gpu(seed(1));
        let device: Arc<dyn Device> = gpu.clone();
        let pool = if is_pinned { HostPool::of(&device, 1 << 24) } else { HostPool::new(1 << 24) };
        let mut batch = SyncedMem::new_in(1 << 20, &pool);
        let before = session.calls("cuStreamSynchronize");
        for round in 1..=5 {
            batch.host_overwrite(..).unwrap().fill(round);
            drop(batch.device(&queue, ..).unwrap());
        }
        assert_eq!(session.calls("cuStreamSynchronize") - before, waits);
        assert_eq!(session.calls("cuMemHostAlloc"), 1, "one ring, or one pinned block");
        // The device has the newest bytes.
        drop(batch.device_mut(&queue, ..).unwrap());
        assert!(batch.host(..).unwrap().iter().all(|byte| *byte == 5));
        drop((batch, pool, queue, gpu, device));
        expect_no_leaks(&session);
    }
}

/// Other transfers of the GPU need the staging chunks, so a download does not hold them while it waits for a kernel.
#[test]
fn a_download_waits_for_the_queue_before_it_takes_the_staging_chunks() {
    let (session, gpu, queue) = gpu(seed(1));
    let memory = SharedMem::new(1 << 20);
    drop(memory.device_mut(&queue, ..).unwrap());
    // The work that the download waits for fails, and the download has taken no chunks by then.
    session.fail_work(1, 719);
    assert!(memory.host(..).is_err());
    assert_eq!(session.calls("cuStreamSynchronize"), 1);
    assert_eq!((session.calls("cuMemHostAlloc"), session.calls("cuMemcpyDtoHAsync_v2")), (0, 0));
    drop((memory, queue, gpu));
    expect_no_leaks(&session);
}

/// Nothing runs on this GPU before a synchronisation, which an upload that needed the other queue's chunks would make.
#[test]
fn an_upload_does_not_wait_for_another_queue() {
    const LEN: usize = 8 << 20;
    let (session, gpu, first) = gpu(seed(1));
    let second = gpu.queue().unwrap();
    let memories: Vec<SharedMem> = [1u8, 2].iter().map(|value| SharedMem::from(vec![*value; LEN])).collect();
    for (memory, queue) in memories.iter().zip([&first, &second]) {
        drop(memory.device_mut(queue, ..).unwrap());
    }
    assert_eq!(session.calls("cuMemHostAlloc"), 2, "a ring for each queue");
    assert_eq!(session.calls("cuEventSynchronize") + session.calls("cuStreamSynchronize"), 0);
    // The same queue's next upload uses its chunks again, and waits for them.
    let more = SharedMem::from(vec![3u8; LEN]);
    drop(more.device_mut(&first, ..).unwrap());
    assert_eq!((session.calls("cuMemHostAlloc"), session.calls("cuEventSynchronize")), (2, 8));
    for (memory, value) in memories.iter().chain([&more]).zip(1..) {
        assert!(memory.host(..).unwrap().iter().all(|byte| *byte == value));
    }
    drop((memories, more, first, second, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_queue_for_each_request_pins_no_memory_without_end() {
    let (session, gpu, _) = gpu(seed(2));
    for value in 0..20 {
        let memory = SharedMem::from(vec![value; 100]);
        drop(memory.device_mut(&gpu.queue().unwrap(), ..).unwrap());
        assert!(memory.host(..).unwrap().iter().all(|byte| *byte == value));
    }
    assert!(session.calls("cuMemHostAlloc") <= 4, "{}", session.calls("cuMemHostAlloc"));
    drop(gpu);
    expect_no_leaks(&session);
}

#[test]
fn pinned_memory_comes_back_in_the_background() {
    let (session, gpu, queue) = gpu(seed(3));
    let device: Arc<dyn Device> = gpu.clone();
    let pool = HostPool::of(&device, 1 << 24);
    let memory = SharedMem::from(SyncedMem::new_in(1 << 20, &pool));
    memory.host_overwrite(..).unwrap().fill(7);
    drop(memory.device_mut(&queue, ..).unwrap());
    let before = session.calls("cuStreamSynchronize");
    memory.prefetch_host(..).unwrap();
    assert_eq!(session.calls("cuStreamSynchronize"), before);
    assert!(memory.host(..).unwrap().iter().all(|byte| *byte == 7));
    assert_eq!(session.calls("cuStreamSynchronize"), before + 1);
    drop((memory, pool, queue, gpu, device));
    expect_no_leaks(&session);
}

/// Several threads share a long transfer. The bytes are downloaded to memory that did not contain them before.
#[test]
fn long_pageable_transfers_bring_every_byte() {
    const LEN: usize = (20 << 20) + 5;
    let (session, gpu, queue) = gpu(seed(4));
    let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let (from, to) = (SharedMem::from(bytes.clone()), SharedMem::new(LEN));
    drop(from.device_mut(&queue, ..).unwrap());
    to.copy_from(0, &from, ..).unwrap();
    assert_eq!((from.stats().downloads.bytes, from.stats().uploads.bytes), (0, LEN as u64));
    assert!(to.host(..).unwrap()[..] == bytes);
    // Another queue uses its own chunks, and does not wait for these.
    let waits = session.calls("cuEventSynchronize");
    let second = gpu.queue().unwrap();
    drop(SharedMem::from(vec![1u8; 8]).device_mut(&second, ..).unwrap());
    assert_eq!(session.calls("cuEventSynchronize"), waits);
    // If no more chunks can be allocated, the existing ones carry all bytes.
    gpu.trim().unwrap();
    drop(SharedMem::from(vec![1u8; 8]).device_mut(&queue, ..).unwrap());
    session.fail("cuMemHostAlloc", 1, 2);
    let again = SharedMem::from(bytes.clone());
    drop(again.device_mut(&queue, ..).unwrap());
    to.copy_from(0, &again, ..).unwrap();
    assert!(to.host(..).unwrap()[..] == bytes);
    drop((again, second));
    // If any chunk fails, the whole transfer fails, and the host's bytes stay.
    for nth in [1, 10, 20] {
        let again = SharedMem::from(bytes.clone());
        session.fail("cuMemcpyHtoDAsync_v2", nth, 1);
        assert!(again.device(&queue, ..).is_err());
        assert!(again.host(..).unwrap()[..] == bytes);
        session.fail("cuMemcpyDtoHAsync_v2", nth, 1);
        drop(again.device_mut(&queue, ..).unwrap());
        assert!(again.host(..).is_err());
        assert!(again.host(..).unwrap()[..] == bytes);
    }
    drop((from, to, queue, gpu));
    expect_no_leaks(&session);
}

/// Transfers more bytes than the staging chunks hold, with several orders of the streams.
#[test]
fn bytes_go_from_gpu_to_gpu_and_to_other_backends() {
    const LEN: usize = (20 << 20) + 5;
    for number in 0..8 {
        let (session, gpu, queue) = gpu(seed(number));
        let other = Cuda::open(1).unwrap();
        let far = other.queue().unwrap();
        let foreign = Loopback::new(Mode::Deferred).queue().unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
        let memory = SharedMem::from(bytes.clone());
        drop(memory.device_mut(&queue, ..).unwrap());
        drop(memory.device_mut(&far, ..).unwrap());
        assert_eq!(memory.stats().downloads.bytes, 0, "GPU to GPU");
        assert_eq!(session.calls("cuMemcpyPeerAsync"), 1);
        drop(memory.device_mut(&foreign, ..).unwrap());
        drop(memory.device_mut(&queue, ..).unwrap());
        assert!(memory.host(..).unwrap()[..] == bytes);
        drop((memory, queue, far, gpu, other));
        expect_no_leaks(&session);
    }
}

/// The first copy each way asks for access, where there is a way; the copies go on without.
#[test]
fn gpus_have_access_to_each_other_where_the_driver_has_a_way() {
    let without = Setup { has_peers: false, ..seed(1) };
    for (setup, fails, calls) in [(seed(1), 0, 2), (without, 0, 0), (seed(2), 999, 2), (seed(3), 704, 2)] {
        let (session, gpu, queue) = gpu(setup);
        let far = Cuda::open(1).unwrap().queue().unwrap();
        let memory = SharedMem::from(vec![1; 64]);
        if fails > 0 {
            session.fail("cuCtxEnablePeerAccess", 1, fails);
        }
        for round in 1..5 {
            drop(memory.device_mut(&queue, ..).unwrap());
            drop(memory.device_mut(&far, ..).unwrap());
            assert_eq!(session.calls("cuMemcpyPeerAsync"), 2 * round - 1);
        }
        assert_eq!((session.calls("cuCtxEnablePeerAccess"), session.calls("cuDeviceCanAccessPeer")), (calls, 2));
        assert_eq!((memory.host(..).unwrap()[..].to_vec(), memory.stats().downloads.count), (vec![1; 64], 1));
        assert!(!gpu.is_lost());
        drop((memory, queue, far, gpu));
        expect_no_leaks(&session);
    }
}

#[test]
fn memory_of_another_owner_is_adopted_where_it_is_the_gpus() {
    let (session, gpu, queue) = gpu(seed(1));
    let far = Cuda::open(1).unwrap().queue().unwrap();
    let (owner, foreign) = (queue.alloc(4096).unwrap(), far.alloc(64).unwrap());
    let here = [0u8; 8];
    let refused = [foreign.address(), here.as_ptr().addr() as u64, owner.address() + 4096, 0, u64::MAX];
    for address in refused {
        // SAFETY: it is refused, as no such memory.
        let error = unsafe { queue.adopt(address, 8) }.unwrap_err();
        assert!(matches!(error, Error::Device { op: "adopt", .. }), "{error}");
    }
    // SAFETY: within the block, which is used by this view alone.
    let view = unsafe { queue.adopt(owner.address() + 256, 1024) }.unwrap();
    assert_eq!((view.address(), view.len()), (owner.address() + 256, 1024));
    let _ = session.reports();
    drop((view, owner, foreign, queue, far, gpu));
    expect_no_leaks(&session);
}

#[test]
fn blocks_of_others_are_refused() {
    let (session, gpu, queue) = gpu(seed(1));
    let far = Cuda::open(1).unwrap().queue().unwrap();
    let loopback = Loopback::new(Mode::Deferred).queue().unwrap();
    let (own, foreign) = (queue.alloc(64).unwrap(), [far.alloc(64).unwrap(), loopback.alloc(64).unwrap()]);
    for block in &foreign {
        // SAFETY: it is refused before the block is touched.
        let error = unsafe { queue.fill(&**block, 0, 8) }.unwrap_err();
        assert!(matches!(error, Error::Device { op: "fill", .. }), "{error}");
    }
    // SAFETY: bytes beyond the block are refused before the block is touched.
    assert!(unsafe { queue.fill(&*own, 60, 5) }.is_err());
    // SAFETY: nothing is copied.
    unsafe { queue.copy(&*own, 64, &*foreign[0], 0, 0) }.unwrap();
    drop((own, foreign, queue, far, gpu));
    expect_no_leaks(&session);
}
