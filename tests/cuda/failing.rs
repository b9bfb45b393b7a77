//! Failures: of each call of the driver in turn, out of memory, lost contexts. Each gives an error, no panic and no
//! leak, and earlier contents stay readable.

use std::sync::Arc;

use fake_cuda::control::{Leaks, Session, Setup, child};
use synced_mem::cuda::{Cuda, Failure};
use synced_mem::{Device, Error, HostPool, Location, Queue, SharedMem, SyncedMem};

use crate::absent::expect_success;
use crate::{expect_no_leaks, gpu, seed};

/// More than one chunk of the staging memory.
const LEN: usize = 3 << 19;

/// The expected contents of memories, recorded before each step that could change them.
type Newest = Vec<(SharedMem, u8)>;

fn open(ordinal: usize) -> Result<Arc<Cuda>, Error> {
    Cuda::open(ordinal).map_err(|absent| Error::device(synced_mem::DeviceId::new(), "open", absent))
}

/// Work with one queue and pageable memory: upload, download, and zeros.
fn pageable(newest: &mut Newest) -> Result<(), Error> {
    let gpu = open(0)?;
    let queue = gpu.queue()?;
    let memory = SharedMem::from(vec![1; LEN]);
    newest.push((memory.clone(), 1));
    drop(memory.device_mut(&queue, ..)?);
    memory.host(..)?;
    let zeros = SharedMem::new(LEN);
    newest.push((zeros.clone(), 0));
    drop(zeros.device(&queue, ..)?);
    zeros.host(..)?;
    gpu.trim()?;
    gpu.memory().map(drop)
}

/// The same work, and pinned memory in both directions.
fn pinned(newest: &mut Newest) -> Result<(), Error> {
    let gpu = open(0)?;
    let (queue, device) = (gpu.queue()?, gpu as Arc<dyn Device>);
    let pinned = SharedMem::from(SyncedMem::new_in(LEN, &HostPool::of(&device, 1 << 24)));
    pinned.host_overwrite(..)?.fill(2);
    newest.push((pinned.clone(), 2));
    drop(pinned.device_mut(&queue, ..)?);
    pinned.prefetch_host(..)?;
    pageable(newest)?;
    pinned.host(..).map(drop)
}

/// Work on two GPUs with three queues, which wait for each other and copy to each other.
fn together(newest: &mut Newest) -> Result<(), Error> {
    let (first, second) = (open(0)?, open(1)?);
    let (one, two, far) = (first.queue()?, first.queue()?, second.queue()?);
    let memory = SharedMem::from(vec![1; LEN]);
    newest.push((memory.clone(), 1));
    drop(memory.device(&one, ..)?);
    drop(memory.device(&two, ..LEN / 2)?);
    drop(memory.device(&far, ..)?);
    drop(memory.device_mut(&two, ..)?);
    drop(memory.device_mut(&far, ..)?);
    memory.evict(Location::Device(first.id()), ..)?;
    let other = SharedMem::new(LEN);
    newest.push((other.clone(), 0));
    drop(other.device(&one, ..)?);
    newest.pop();
    other.copy_from(0, &memory, ..LEN / 2)?;
    memory.evict(Location::Device(second.id()), ..)?;
    memory.host(..)?;
    far.wait_for(&*one)?;
    far.synchronize()
}

/// Runs the work with the `nth` call failing. Returns false if there is no such call.
fn fails(setup: Setup, work: fn(&mut Newest) -> Result<(), Error>, nth: u64, code: u32) -> bool {
    let session = Session::start(setup);
    session.fail("", nth, code);
    let mut newest = Vec::new();
    let result = work(&mut newest);
    let is_reached = session.calls("") >= nth;
    if !is_reached {
        result.unwrap_or_else(|error| panic!("without a failure: {error}"));
    }
    for (memory, byte) in newest.drain(..) {
        // If the driver still works, the earlier contents can be read.
        match memory.host(..) {
            Ok(bytes) => assert!(bytes[..] == vec![byte; LEN], "call {nth}: not {byte}"),
            Err(error) => assert!(code == LOST, "call {nth}, code {code}: {error}"),
        }
    }
    assert_eq!(session.leaks(), Leaks::default(), "call {nth}, code {code}");
    is_reached
}

/// `CUDA_ERROR_LAUNCH_FAILED`, which a context never recovers from.
const LOST: u32 = 719;

#[test]
fn each_call_of_the_driver_in_turn() {
    let without_pools = Setup { has_pools: false, ..seed(3) };
    for (setup, code) in [(seed(1), 999), (seed(2), 2), (without_pools, 999)] {
        let calls = (1..).take_while(|nth| fails(setup, pinned, *nth, code)).count();
        assert!(calls > 70, "only {calls} calls were made to fail");
    }
    // Only pageable memory: pinned memory that a lost GPU may still read is leaked on purpose.
    let calls = (1..).take_while(|nth| fails(seed(4), pageable, *nth, LOST)).count();
    assert!(calls > 50, "only {calls} calls were made to fail");
}

#[test]
fn each_call_of_the_driver_in_turn_with_two_gpus() {
    let without_pools = Setup { has_pools: false, ..seed(3) };
    for (setup, code) in [(seed(1), 999), (seed(2), 2), (without_pools, 1)] {
        let calls = (1..).take_while(|nth| fails(setup, together, *nth, code)).count();
        assert!(calls > 80, "only {calls} calls were made to fail");
    }
}

#[test]
fn memory_that_waits_in_the_pool_is_given_back_before_there_is_none() {
    let (session, gpu, queue) = gpu(Setup { memory: 64 << 20, ..seed(1) });
    let [first, second] = [20, 30].map(|mib| queue.alloc(mib << 20).unwrap());
    drop(first);
    assert_eq!(session.calls("cuMemPoolTrimTo"), 0);
    // 34 MiB are neither used nor in the pool, so the 20 MiB that the pool keeps are needed too.
    let there = |mib: usize| {
        let memory = SharedMem::new(mib << 20);
        memory.device_overwrite(&queue, ..).map(|_| memory)
    };
    let third = there(40);
    assert!(matches!(third, Err(Error::DeviceOutOfMemory { bytes, .. }) if bytes == 40 << 20), "{third:?}");
    assert_eq!(session.calls("cuMemPoolTrimTo"), 1);
    let fourth = there(30).unwrap();
    drop((second, fourth));
    assert!(there(60).is_ok());
    gpu.trim().unwrap();
    assert_eq!(gpu.memory().unwrap().1, 64 << 20);
    assert!(there(usize::MAX >> 20).is_err() && there(isize::MAX as usize >> 20).is_err());
    assert_eq!(session.calls("cuMemPoolTrimTo"), 3, "what no GPU has is not asked for");
    drop((queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_memory_that_finds_no_room_keeps_its_bytes() {
    let (session, gpu, queue) = gpu(Setup { memory: 8 << 20, ..seed(1) });
    let (small, large) = (SharedMem::from(vec![3; 4 << 20]), SharedMem::from(vec![4; 6 << 20]));
    drop(small.device_mut(&queue, ..).unwrap());
    for _ in 0..2 {
        let error = large.device(&queue, ..).unwrap_err();
        assert!(matches!(error, Error::Exhausted { dirty: 1, borrowed: 0, .. }), "{error}");
    }
    assert_eq!(large.host(..).unwrap()[..], vec![4; 6 << 20]);
    assert_eq!(small.host(..).unwrap()[..], vec![3; 4 << 20]);
    small.evict(Location::Device(gpu.id()), ..).unwrap();
    drop(large.device(&queue, ..).unwrap());
    drop((small, large, queue, gpu));
    expect_no_leaks(&session);
}

/// The driver's failure that caused an error of a device.
fn failure(error: &Error) -> Failure {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Failure>());
    *source.unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn a_context_that_is_lost_fails_all_that_relied_on_it_and_nothing_else() {
    let (session, gpu, queue) = gpu(seed(7));
    let far = Cuda::open(1).unwrap();
    let [other, waits, waits_through, alone] =
        [gpu.queue(), far.queue(), far.queue(), far.queue()].map(|queue| queue.unwrap());
    let (kept, lost) = (SharedMem::from(vec![1; 64]), SharedMem::from(vec![2; 64]));
    drop(kept.device(&queue, ..).unwrap());
    drop(lost.device_mut(&queue, ..).unwrap());
    queue.synchronize().unwrap();
    let block = queue.alloc(8).unwrap();
    session.fail_work(1, 700);
    // SAFETY: within the block, which lives.
    unsafe { queue.fill(&*block, 0, 8) }.unwrap();
    waits.wait_for(&*queue).unwrap();
    waits_through.wait_for(&*waits).unwrap();
    for _ in 0..2 {
        for queue in [&queue, &other, &waits, &waits_through] {
            let error = queue.synchronize().unwrap_err();
            assert_eq!(failure(&error).code, 700, "{error}");
            assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{error}");
        }
    }
    alone.synchronize().unwrap();
    // Once work is known to have failed, a queue does not wait for it, so that the failure does not spread.
    assert!(alone.wait_for(&*waits).is_err() && alone.wait_for(&*queue).is_err());
    alone.synchronize().unwrap();
    drop(kept.device(&alone, ..).unwrap());
    assert_eq!(kept.host(..).unwrap()[..], [1; 64]);
    assert!(lost.host(..).is_err());
    // A program can use the GPU again after dropping everything.
    drop((kept, lost, block));
    drop((queue, other, waits, waits_through, alone, gpu, far));
    expect_no_leaks(&session);
    let gpu = Cuda::open(0).unwrap();
    let queue = gpu.queue().unwrap();
    let memory = SharedMem::from(vec![5; 64]);
    drop(memory.device_mut(&queue, ..).unwrap());
    assert_eq!(memory.host(..).unwrap()[..], [5; 64]);
}

#[test]
fn a_process_may_end_with_memories_on_a_gpu() {
    let Some(output) = child("failing::a_process_may_end_with_memories_on_a_gpu", |_| {}) else {
        let (session, gpu, queue) = gpu(seed(1));
        static MEMORY: std::sync::OnceLock<(SharedMem, Arc<Cuda>, Arc<dyn Queue>)> = std::sync::OnceLock::new();
        let memory = SharedMem::from(vec![1; 4096]);
        drop(memory.device_mut(&queue, ..).unwrap());
        MEMORY.get_or_init(|| (memory, gpu, queue));
        std::mem::forget(session);
        return;
    };
    expect_success(&output);
}
