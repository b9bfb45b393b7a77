//! The other library is cudarc, as it stands: its own context, stream, events and slices, in one process with ours. No
//! thread waits for the GPU where work goes from the one to the other.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr};
use fake_cuda::control::Session;
use synced_mem::cuda::{Cuda, handles, record_event, wait_for_event};
use synced_mem::{Device, Queue, SharedMem};

use crate::{expect_no_leaks, session};

const LEN: usize = 4096;

/// How often a thread has waited for the GPU.
fn waits(session: &Session) -> u64 {
    ["cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"].iter().map(|name| session.calls(name)).sum()
}

/// A stream of theirs and a GPU of ours.
fn both() -> (Arc<CudaStream>, Arc<Cuda>, Arc<dyn Queue>) {
    // The first stream of a context waits for the context.
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let gpu = Cuda::open(0).unwrap();
    let queue = gpu.queue().unwrap();
    assert_eq!(
        handles(&*queue).unwrap().context,
        stream.context().cu_ctx().cast(),
        "the primary context is everyone's"
    );
    (stream, gpu, queue)
}

#[test]
fn their_stream_is_a_queue_and_their_slice_a_memory() {
    for seed in 1..20 {
        let session = session(seed, 1 << 30);
        let (stream, gpu, queue) = both();
        // SAFETY: the stream is of the primary context, lives as long as the owner, and captures nothing.
        let theirs = unsafe { gpu.adopt_stream(stream.cu_stream().cast(), Box::new(Arc::clone(&stream))) }.unwrap();
        let slice = stream.clone_htod(&[7_u8; LEN]).unwrap();
        let before = waits(&session);
        let address = slice.device_ptr(&stream).0;
        let (lent, own) = (SharedMem::new(LEN), SharedMem::from(vec![1; LEN]));
        // SAFETY: the slice has as many bytes, is the owner, and is used by this memory alone.
        unsafe { lent.adopt_device(&theirs, address, LEN, Box::new(slice)) }.unwrap();
        // On our queue, behind their upload; then on their stream, behind our copy.
        own.device(&queue, ..).unwrap();
        own.copy_from(0, &lent, ..LEN / 2).unwrap();
        let token = own.device(&theirs, ..).unwrap();
        // SAFETY: the token has as many bytes on the stream's device, and outlives the slice, which frees nothing.
        let view = unsafe { stream.upgrade_device_ptr::<u8>(token.arg().address(), LEN) };
        let copy = stream.clone_dtod(&view).unwrap();
        assert_eq!(view.leak(), token.arg().address());
        drop(token);
        assert_eq!(waits(&session), before, "a hand-over is waited for");
        let bytes = stream.clone_dtoh(&copy).unwrap();
        stream.synchronize().unwrap();
        assert!(bytes == [[7; LEN / 2], [1; LEN / 2]].concat());
        drop((copy, own, lent, theirs, queue, gpu, stream));
        expect_no_leaks(&session);
    }
}

#[test]
fn their_events_put_work_of_both_in_order() {
    for seed in 1..20 {
        let session = session(seed, 1 << 30);
        let (stream, gpu, queue) = both();
        let [ours, theirs] = [(); 2].map(|()| stream.context().new_event(None).unwrap());
        let memory = SharedMem::from(vec![3; LEN]);
        memory.upload(&queue, ..).unwrap();
        let mut slice = stream.alloc_zeros::<u8>(LEN).unwrap();
        let before = waits(&session);
        {
            let mut token = memory.device_mut(&queue, ..).unwrap();
            // SAFETY: the event is of the primary context, and lives.
            unsafe { record_event(&*queue, ours.cu_event().cast()) }.unwrap();
            stream.wait(&ours).unwrap();
            // SAFETY: the token has as many bytes on the stream's device, and outlives the slice, which frees nothing.
            let mut view = unsafe { stream.upgrade_device_ptr::<u8>(token.arg_mut().address(), LEN) };
            stream.memcpy_dtod(&view, &mut slice).unwrap();
            stream.memset_zeros(&mut view.slice_mut(..LEN / 2)).unwrap();
            view.leak();
            theirs.record(&stream).unwrap();
            // SAFETY: the event is of the primary context, and lives.
            unsafe { wait_for_event(&*queue, theirs.cu_event().cast()) }.unwrap();
        }
        let after = SharedMem::new(LEN);
        after.copy_from(0, &memory, ..).unwrap();
        assert_eq!(waits(&session), before, "a hand-over is waited for");
        assert!(after.host(..).unwrap()[..] == [[0; LEN / 2], [3; LEN / 2]].concat());
        assert_eq!(stream.clone_dtoh(&slice).unwrap().len(), LEN);
        stream.synchronize().unwrap();
        drop((slice, ours, theirs, memory, after, queue, gpu, stream));
        expect_no_leaks(&session);
    }
}
