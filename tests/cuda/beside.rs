//! Beside another library of the process, which has contexts, streams and events of its own: contexts stay as they
//! were, streams become queues, and events put the work of both in order while no thread waits.

use std::ffi::{CString, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blob_core::dlpack::{CUDA, DLDevice};
use blob_core::{AnyBlob, DType, Part, Shape};
use fake_cuda::control::{Setup, symbol};
use synced_mem::cuda::{Cuda, MemoryStats, handles, record_event, wait_for_event};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Budget, Device, HostPool, Location, SharedMem, SyncedMem};

use crate::launch::add_one;
use crate::{expect_no_leaks, gpu, seed};

/// Calls an entry point of the driver, as another library would. The arguments' types are those that they are written
/// with.
macro_rules! call {
    ($name:ident($($arg:expr => $kind:ty),* $(,)?)) => {{
        let address = symbol(&CString::new(stringify!($name)).unwrap());
        // SAFETY: the library exports the name with C's interface, which the arguments here follow.
        let call: extern "C" fn($($kind),*) -> u32 = unsafe { mem::transmute(address) };
        assert_eq!(call($($arg),*), 0, stringify!($name))
    }};
}

type Handle = *mut c_void;

fn current() -> Handle {
    let mut context = ptr::null_mut();
    call!(cuCtxGetCurrent(&mut context => *mut Handle));
    context
}

fn enter(context: Handle) {
    call!(cuCtxSetCurrent(context => Handle));
}

/// In the current context.
fn new_stream() -> Handle {
    let mut stream = ptr::null_mut();
    call!(cuStreamCreate(&mut stream => *mut Handle, 1 => u32));
    stream
}

/// In the current context.
fn new_event() -> Handle {
    let mut event = ptr::null_mut();
    call!(cuEventCreate(&mut event => *mut Handle, 2 => u32));
    event
}

#[test]
fn each_call_leaves_the_context_that_was_current() {
    let (session, gpu, queue) = gpu(seed(1));
    let other = Cuda::open(1).unwrap();
    let beside = other.queue().unwrap();
    let contexts = [&queue, &beside].map(|queue| handles(&**queue).unwrap().context);
    for context in [ptr::null_mut(), contexts[1], contexts[0]] {
        enter(context);
        let is_left = |what: &str| assert_eq!(current(), context, "after {what}");
        let device: Arc<dyn Device> = gpu.clone();
        let pool = HostPool::of(&device, 1 << 20);
        let pinned = SharedMem::from(SyncedMem::new_in(4096, &pool));
        is_left("a pool");
        let second = gpu.queue().unwrap();
        is_left("a queue");
        let (from, to) = (SharedMem::from(vec![1; 4096]), SharedMem::new(4096));
        add_one(&queue, &from, &to).unwrap();
        is_left("a launch");
        to.upload(&second, ..).unwrap();
        to.upload(&beside, ..).unwrap();
        is_left("a copy to another GPU");
        pinned.host_mut(..).unwrap().fill(3);
        add_one(&queue, &pinned, &from).unwrap();
        pinned.copy_from(0, &to, ..).unwrap();
        assert_eq!((to.host(..).unwrap()[0], from.host(..).unwrap()[0], pinned.host(..).unwrap()[0]), (2, 4, 2));
        is_left("downloads");
        gpu.memory().unwrap();
        gpu.memory_stats().unwrap();
        drop((from, to, second, pinned, pool, device));
        gpu.trim().unwrap();
        is_left("everything");
    }
    enter(ptr::null_mut());
    drop((queue, gpu, beside, other));
    assert_eq!(current(), ptr::null_mut(), "after the last handle");
    expect_no_leaks(&session);
}

/// Says when nothing needs the stream any more.
struct Owner(Arc<AtomicBool>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_stream_of_another_library_is_a_queue_like_any_other() {
    for nth in 1..20 {
        let (session, gpu, queue) = gpu(seed(nth));
        let context = handles(&*queue).unwrap().context;
        enter(context);
        let (stream, is_over) = (new_stream(), Arc::new(AtomicBool::new(false)));
        // SAFETY: the stream is destroyed below, after the owner's end.
        let theirs = unsafe { gpu.adopt_stream(stream, Box::new(Owner(is_over.clone()))) }.unwrap();
        assert_eq!(handles(&*theirs).map(|handles| (handles.stream, handles.context)), Some((stream, context)));
        let (from, between, to) = (SharedMem::from(vec![1; 4096]), SharedMem::new(4096), SharedMem::new(4096));
        add_one(&queue, &from, &between).unwrap();
        let before = session.calls("cuStreamSynchronize");
        add_one(&theirs, &between, &to).unwrap();
        add_one(&queue, &to, &from).unwrap();
        assert_eq!(session.calls("cuStreamSynchronize"), before, "the hand-over is waited for");
        assert_eq!(*from.host(..).unwrap(), [4; 4096]);
        drop(theirs);
        assert!(!is_over.load(Ordering::SeqCst), "blocks are freed there");
        drop((from, between, to));
        assert!(is_over.load(Ordering::SeqCst));
        call!(cuStreamDestroy_v2(stream => Handle));
        enter(ptr::null_mut());
        // SAFETY: refused, whatever it is.
        let refused = unsafe { gpu.adopt_stream(ptr::without_provenance_mut(2), Box::new(())) };
        assert!(refused.unwrap_err().to_string().contains("another stream on each thread"));
        drop((queue, gpu));
        expect_no_leaks(&session);
    }
}

/// The other library fills bytes on a stream of its own, between two kernels of ours.
#[test]
fn events_put_work_of_both_in_order_and_no_thread_waits() {
    for nth in 1..20 {
        let (session, gpu, queue) = gpu(seed(nth));
        enter(handles(&*queue).unwrap().context);
        let (stream, ours, theirs) = (new_stream(), new_event(), new_event());
        let (from, to) = (SharedMem::from(vec![1; 4096]), SharedMem::new(4096));
        add_one(&queue, &to, &from).unwrap();
        let before = session.calls("cuStreamSynchronize");
        {
            let mut token = from.device_mut(&queue, ..).unwrap();
            // SAFETY: the event is of this context, and lives.
            unsafe { record_event(&*queue, ours) }.unwrap();
            call!(cuStreamWaitEvent(stream => Handle, ours => Handle, 0 => u32));
            let address = token.arg_mut().address();
            call!(cuMemsetD8Async(address => u64, 7 => u8, 4096 => usize, stream => Handle));
            call!(cuEventRecord(theirs => Handle, stream => Handle));
            // SAFETY: the event is of this context, and lives.
            unsafe { wait_for_event(&*queue, theirs) }.unwrap();
        }
        add_one(&queue, &from, &to).unwrap();
        assert_eq!(session.calls("cuStreamSynchronize"), before);
        assert_eq!(*to.host(..).unwrap(), [8; 4096]);
        let loopback = Loopback::new(Mode::Deferred).queue().unwrap();
        // SAFETY: refused, whatever it is.
        let refused = unsafe { record_event(&*loopback, ours) };
        assert!(refused.unwrap_err().to_string().ends_with("the queue is not one of a GPU"));
        [ours, theirs].into_iter().for_each(|event| call!(cuEventDestroy_v2(event => Handle)));
        call!(cuStreamDestroy_v2(stream => Handle));
        enter(ptr::null_mut());
        drop((from, to, queue, gpu));
        expect_no_leaks(&session);
    }
}

/// The other library takes a tensor of ours by DLPack and fills half of it on its own stream, between two kernels.
#[test]
fn a_tensor_is_lent_to_another_library_and_no_thread_waits() {
    for nth in 1..20 {
        let (session, gpu, queue) = gpu(seed(nth));
        enter(handles(&*queue).unwrap().context);
        let stream = new_stream();
        // SAFETY: the stream is destroyed below, after all that uses it.
        let theirs = unsafe { gpu.adopt_stream(stream, Box::new(())) }.unwrap();
        let mut blob = AnyBlob::new(Shape::new([4096]).unwrap(), DType::U8).unwrap();
        let from = SharedMem::from(vec![1; 4096]);
        add_one(&queue, &from, blob.memory(Part::Data)).unwrap();
        let before = session.calls("cuStreamSynchronize");
        let managed = blob.to_dlpack_mut(Part::Data, &theirs).unwrap().into_versioned();
        // SAFETY: the struct lives until its deleter is called.
        let lent = unsafe { managed.as_ref() };
        assert_eq!(lent.dl_tensor.device, DLDevice { device_type: CUDA, device_id: 0 });
        let address = lent.dl_tensor.data.addr() as u64;
        call!(cuMemsetD8Async(address => u64, 7 => u8, 2048 => usize, stream => Handle));
        assert!(blob.data().bytes().is_err());
        // SAFETY: the one call.
        unsafe { lent.deleter.unwrap()(managed.as_ptr()) };
        add_one(&queue, blob.memory(Part::Data), &from).unwrap();
        assert_eq!(session.calls("cuStreamSynchronize"), before);
        assert_eq!(*from.host(..).unwrap(), [[8; 2048], [3; 2048]].concat());
        drop((blob, from, theirs));
        call!(cuStreamDestroy_v2(stream => Handle));
        enter(ptr::null_mut());
        drop((queue, gpu));
        expect_no_leaks(&session);
    }
}

#[test]
fn freed_blocks_are_kept_up_to_a_limit_and_others_have_the_rest() {
    const MIB: u64 = 1 << 20;
    let (session, gpu, queue) = gpu(Setup { memory: 64 * MIB, ..seed(1) });
    let stats = || gpu.memory_stats().map(|MemoryStats { reserved, used, .. }| (reserved / MIB, used / MIB)).unwrap();
    let blocks = [(); 3].map(|()| queue.alloc(16 << 20).unwrap());
    assert_eq!(stats(), (48, 48));
    drop(blocks);
    queue.synchronize().unwrap();
    assert_eq!(gpu.memory_stats().unwrap().peak / MIB, 48);
    let (kept, free) = (stats(), gpu.memory().unwrap().0 / MIB);
    assert!(kept.0 <= 8 && kept.1 == 0 && free >= 56, "{kept:?} {free}");
    gpu.keep_freed(u64::MAX).unwrap();
    drop([(); 3].map(|()| queue.alloc(16 << 20).unwrap()));
    queue.synchronize().unwrap();
    assert_eq!(stats(), (48, 0));
    drop((queue, gpu));
    expect_no_leaks(&session);
}

/// The GPU has room for three of eight, with a budget that someone has made and without.
#[test]
fn a_gpu_without_room_gets_what_other_memories_can_give_for_nothing() {
    for is_made in [false, true] {
        let (session, gpu, queue) = gpu(Setup { memory: 8 << 20, ..seed(1) });
        let budget = Budget::new(Location::Device(gpu.id()), usize::MAX);
        let memories = [(); 8].map(|()| SharedMem::from(vec![5; 2 << 20]));
        memories.iter().filter(|_| is_made).for_each(|memory| budget.add(memory));
        for memory in memories.iter().cycle().take(24) {
            memory.upload(&queue, ..).unwrap();
        }
        let stats = if is_made { budget.stats() } else { Budget::of(&*gpu).stats() };
        assert!(stats.evicted.count >= 16 && stats.in_use <= 8 << 20, "{stats:?}");
        let MemoryStats { used, evictable, .. } = gpu.memory_stats().unwrap();
        assert!(evictable >= 2 << 20 && used == evictable && evictable == stats.in_use as u64, "{used} {evictable}");
        let token = memories[7].device(&queue, ..8).unwrap();
        assert_eq!(gpu.memory_stats().unwrap().evictable, evictable - (2 << 20));
        drop(token);
        drop((memories, queue, gpu));
        expect_no_leaks(&session);
    }
}
