//! Work beside other libraries of the process: their streams as queues, our streams and contexts as plain handles, and
//! events that put the work of both in order while no thread waits. Relies on `queue`. The handles are the driver's
//! own, as pointers, so that no version of any binding stands in a signature.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys;

use super::failure::answer;
use super::queue::CudaQueue;
use super::stream::Stream;
use super::{Cuda, USED};
use crate::device::Queue;
use crate::error::Error;

/// `CU_STREAM_PER_THREAD`: another stream on each thread.
const PER_THREAD: usize = 2;

/// The driver's handles of a queue, for other libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handles {
    /// The `CUstream`. It lives as long as the queue.
    pub stream: *mut c_void,
    /// The `CUcontext`, the GPU's primary one. It is retained as long as the queue lives.
    pub context: *mut c_void,
}

/// The handles of a queue; `None` for a queue of another backend.
pub fn handles(queue: &dyn Queue) -> Option<Handles> {
    let queue = CudaQueue::of(queue)?;
    Some(Handles { stream: queue.stream().raw().cast(), context: queue.context().raw().cast() })
}

impl Cuda {
    /// A queue of a stream that another library made, or of the null stream. Work that others enqueue there is in order
    /// with the queue's own, as if the queue had enqueued it. `owner` keeps the stream, and is dropped when nothing of
    /// this crate needs the stream any more, which may be later than the queue: its blocks are freed there.
    ///
    /// # Safety
    /// Until `owner` is dropped, `stream` is a stream of this GPU's primary context that captures no graph.
    ///
    /// # Errors
    /// [`Error::Device`], also for the stream that each thread has of its own: a queue may be used by any thread.
    pub unsafe fn adopt_stream(
        &self,
        stream: *mut c_void,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn Queue>, Error> {
        const OP: &str = "adopt_stream";
        let context = self.context();
        if stream.addr() == PER_THREAD {
            return Err(Error::device(context.id, OP, "this handle means another stream on each thread"));
        }
        let stream = Stream::adopt(context, stream.cast(), owner);
        let stream = stream.map_err(|failure| Error::device(context.id, OP, context.note(failure)))?;
        USED.store(true, Ordering::Relaxed);
        Ok(Arc::new(CudaQueue::adopt(self.clone(), stream)))
    }
}

/// Makes all work that is enqueued on a queue from now on wait for an event, as it was recorded last. The calling
/// thread does not wait.
///
/// # Safety
/// `event` is an event of the driver, and lives during the call.
///
/// # Errors
/// [`Error::Device`], also where the queue is not one of a GPU.
pub unsafe fn wait_for_event(queue: &dyn Queue, event: *mut c_void) -> Result<(), Error> {
    const OP: &str = "wait_for_event";
    let queue = of_a_gpu(queue, OP)?;
    queue.context().run(OP, || {
        // SAFETY: the queue keeps its stream, and the caller says that `event` is an event of the driver that lives
        // during the call. An event of any context may be waited for.
        answer("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(queue.stream().raw(), event.cast(), 0) })
    })
}

/// Records an event behind all work that was enqueued on a queue so far: another library's stream that waits for the
/// event comes after that work.
///
/// # Safety
/// `event` is an event of the primary context of the queue's GPU, and lives during the call.
///
/// # Errors
/// [`Error::Device`], also where the queue is not one of a GPU.
pub unsafe fn record_event(queue: &dyn Queue, event: *mut c_void) -> Result<(), Error> {
    const OP: &str = "record_event";
    let queue = of_a_gpu(queue, OP)?;
    queue.context().run(OP, || {
        // SAFETY: the queue keeps its stream, and the caller says that `event` is an event of the stream's context that
        // lives during the call.
        answer("cuEventRecord", unsafe { sys::cuEventRecord(event.cast(), queue.stream().raw()) })
    })
}

fn of_a_gpu<'a>(queue: &'a dyn Queue, op: &'static str) -> Result<&'a CudaQueue, Error> {
    CudaQueue::of(queue).ok_or_else(|| Error::device(queue.device().id(), op, "the queue is not one of a GPU"))
}
