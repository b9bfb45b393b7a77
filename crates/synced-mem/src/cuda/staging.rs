//! Transfers between a device and pageable host memory, through chunks of pinned memory: the host copies one chunk while the
//! device moves the next. They have left the host bytes when they return. It relies on events to know when a chunk is free.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use cudarc::driver::sys::{self, CUevent, CUresult};

use super::context::{Context, wait_for_all};
use super::failure::{Failure, answer};
use super::pinned;
use super::stream::Stream;

/// Large enough that a copy takes longer than enqueuing it, small enough that the first one starts early.
const CHUNK: usize = 1 << 20;
/// Uploads run ahead of the device by this many chunks.
const CHUNKS: usize = 8;

/// The chunks of one context, used in turn.
pub(super) struct Ring {
    start: NonNull<u8>,
    chunks: Vec<Chunk>,
    next: usize,
}

// SAFETY: pinned memory and handles of the driver belong to no thread.
unsafe impl Send for Ring {}

struct Chunk {
    event: CUevent,
    /// What to wait for before the chunk is used again.
    busy: Option<Busy>,
}

enum Busy {
    /// The chunk's event.
    Event,
    /// Everything in the context: no event could be recorded.
    All,
}

impl Ring {
    /// In the calling thread's context.
    fn new(context: &Context) -> Result<Self, Failure> {
        let start = pinned::allocate(CHUNK * CHUNKS)?;
        let mut ring = Self { start, chunks: Vec::with_capacity(CHUNKS), next: 0 };
        while ring.chunks.len() < CHUNKS {
            match new_event() {
                Ok(event) => ring.chunks.push(Chunk { event, busy: None }),
                Err(failure) => {
                    ring.give_back(context);
                    return Err(failure);
                }
            }
        }
        Ok(ring)
    }

    /// The next chunk, free.
    fn take(&mut self) -> Result<usize, Failure> {
        let index = self.next;
        self.wait(index)?;
        self.next = (index + 1) % CHUNKS;
        Ok(index)
    }

    /// Waits until a chunk is free.
    fn wait(&mut self, index: usize) -> Result<(), Failure> {
        let chunk = &mut self.chunks[index];
        match &chunk.busy {
            None => return Ok(()),
            // SAFETY: the event lives as long as the ring.
            Some(Busy::Event) => answer("cuEventSynchronize", unsafe { sys::cuEventSynchronize(chunk.event) })?,
            Some(Busy::All) => wait_for_all()?,
        }
        chunk.busy = None;
        Ok(())
    }

    fn chunk(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the allocation has CHUNKS chunks.
        unsafe { self.start.add(index * CHUNK) }
    }

    /// Enqueues a copy from or to a chunk. Even one that fails may use it.
    fn enqueue(
        &mut self,
        index: usize,
        stream: &Stream,
        call: &'static str,
        copy: impl FnOnce(NonNull<u8>) -> CUresult,
    ) -> Result<(), Failure> {
        let enqueued = answer(call, copy(self.chunk(index)));
        let chunk = &mut self.chunks[index];
        // SAFETY: event and stream live, and are of one context.
        let recorded = answer("cuEventRecord", unsafe { sys::cuEventRecord(chunk.event, stream.raw()) });
        chunk.busy = Some(if recorded.is_ok() { Busy::Event } else { Busy::All });
        enqueued
    }

    /// Frees everything, in the calling thread's context.
    pub(super) fn give_back(mut self, context: &Context) {
        for index in 0..self.chunks.len() {
            // Once more, in case it was the call that failed and not the work. In a context that is lost nothing runs.
            let waited = self.wait(index).or_else(|_| self.wait(index));
            context.given_back(waited);
            // SAFETY: it was made once and is used no more.
            let destroyed = unsafe { sys::cuEventDestroy_v2(self.chunks[index].event) };
            context.given_back(answer("cuEventDestroy", destroyed));
        }
        context.given_back(pinned::free(self.start));
    }
}

/// An event without a time.
pub(super) fn new_event() -> Result<CUevent, Failure> {
    const DISABLE_TIMING: u32 = 2;
    let mut event = ptr::null_mut();
    // SAFETY: it writes a handle.
    answer("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, DISABLE_TIMING) })?;
    Ok(event)
}

/// Runs `work` with the ring of a stream's context, which is made where there is none.
fn with_ring<R>(stream: &Stream, work: impl FnOnce(&mut Ring) -> Result<R, Failure>) -> Result<R, Failure> {
    let context = stream.context();
    let mut ring = context.staging.lock().unwrap_or_else(PoisonError::into_inner);
    if ring.is_none() {
        *ring = Some(Ring::new(context)?);
    }
    ring.as_mut().map_or_else(|| unreachable!("it has just been made"), work)
}

/// The parts of `len` bytes that fit in a chunk: where each starts, and its length.
fn parts(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(CHUNK).map(move |at| (at, CHUNK.min(len - at)))
}

/// Enqueues a copy to a device address. The host bytes have been read when it returns.
///
/// # Safety
/// `len` bytes at `from` are readable, and as many at `to` are memory of the stream's device.
pub(super) unsafe fn upload(stream: &Stream, to: u64, from: NonNull<u8>, len: usize) -> Result<(), Failure> {
    with_ring(stream, |ring| {
        for (at, part) in parts(len) {
            let index = ring.take()?;
            // SAFETY: the part lies within the caller's bytes, and the chunk, which nothing uses, holds as many.
            unsafe { ring.chunk(index).copy_from_nonoverlapping(from.add(at), part) };
            ring.enqueue(index, stream, "cuMemcpyHtoDAsync", |chunk| {
                // SAFETY: the chunk keeps its bytes until its event is over, and the target is the caller's promise.
                unsafe { sys::cuMemcpyHtoDAsync_v2(to + at as u64, chunk.as_ptr().cast(), part, stream.raw()) }
            })?;
        }
        Ok(())
    })
}

/// Copies from a device address. The host bytes have been written when it returns, after all that was enqueued before.
///
/// # Safety
/// `len` bytes at `to` are writable and ours alone, and as many at `from` are memory of the stream's device.
pub(super) unsafe fn download(stream: &Stream, from: u64, to: NonNull<u8>, len: usize) -> Result<(), Failure> {
    with_ring(stream, |ring| {
        let mut under_way = VecDeque::with_capacity(CHUNKS);
        let mut left = parts(len);
        loop {
            while under_way.len() < CHUNKS
                && let Some((at, part)) = left.next()
            {
                let index = ring.take()?;
                ring.enqueue(index, stream, "cuMemcpyDtoHAsync", |chunk| {
                    // SAFETY: nothing else uses the chunk until its event is over, and the source is the caller's promise.
                    unsafe { sys::cuMemcpyDtoHAsync_v2(chunk.as_ptr().cast(), from + at as u64, part, stream.raw()) }
                })?;
                under_way.push_back((index, at, part));
            }
            let Some((index, at, part)) = under_way.pop_front() else {
                return Ok(());
            };
            ring.wait(index)?;
            // SAFETY: the device has filled the chunk and left it; the part lies within the caller's bytes.
            unsafe { to.add(at).copy_from_nonoverlapping(ring.chunk(index), part) };
        }
    })
}
