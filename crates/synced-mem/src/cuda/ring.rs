//! Chunks of pinned memory that copies pass through, used in turn. An event of each tells when the chunk is free again.
//! Relies on the user to be in the context of the ring.

use std::collections::BTreeSet;
use std::ptr::NonNull;

use cudarc::driver::sys::{self, CUevent, CUresult, CUstream};

use super::driver::{new_event, pin, unpin, wait_for_all};
use super::failure::{Failure, answer};

/// Large enough that a copy takes longer than the call, small enough that the first one starts early.
pub(super) const CHUNK: usize = 1 << 20;
/// Uploads run ahead of the device by this many chunks.
pub(super) const CHUNKS: usize = 8;

/// From this number of streams on that have idle rings, one of another stream is taken instead of pinning more memory.
const STREAMS: usize = 4;

/// The rings of one context that no transfer has at the moment, the one that was used last at the end; each with the
/// stream that used it.
#[derive(Default)]
pub(super) struct Rings(Vec<(CUstream, Ring)>);

// SAFETY: streams are compared and not used, and a ring may go to any thread.
unsafe impl Send for Rings {}

impl Rings {
    /// A ring for a transfer on a stream: the stream's own, whose chunks come free in the stream's order, or of many
    /// the one whose last use was longest ago. `None` where one is to be made.
    pub(super) fn take(&mut self, stream: CUstream) -> Option<Ring> {
        let own = self.0.iter().rposition(|(user, _)| *user == stream);
        let others: BTreeSet<CUstream> = self.0.iter().map(|(user, _)| *user).collect();
        let index = own.or((others.len() >= STREAMS).then_some(0))?;
        Some(self.0.remove(index).1)
    }

    pub(super) fn put(&mut self, ring: Ring, stream: CUstream) {
        self.0.push((stream, ring));
    }

    /// All rings, to be given back.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Ring> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(_, ring)| ring)
    }
}

/// Chunks that one transfer at a time uses in turn.
pub(super) struct Ring {
    start: NonNull<u8>,
    chunks: Vec<Chunk>,
    next: usize,
}

// SAFETY: pinned memory and handles of the driver belong to no thread.
unsafe impl Send for Ring {}

struct Chunk {
    event: CUevent,
    /// The event to wait for before the chunk is used again.
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
    pub(super) fn new() -> Result<Self, Failure> {
        let start = pin(CHUNK * CHUNKS)?;
        // SAFETY: the allocation has as many bytes, and is new. They are initialised, for references to them.
        unsafe { start.write_bytes(0, CHUNK * CHUNKS) };
        let mut ring = Self { start, chunks: Vec::with_capacity(CHUNKS), next: 0 };
        while ring.chunks.len() < CHUNKS {
            match new_event() {
                Ok(event) => ring.chunks.push(Chunk { event, busy: None }),
                Err(failure) => {
                    // The first failure is the one to report.
                    let _ = ring.give_back();
                    return Err(failure);
                }
            }
        }
        Ok(ring)
    }

    /// The next chunk, free.
    pub(super) fn take(&mut self) -> Result<usize, Failure> {
        let index = self.next;
        self.wait(index)?;
        self.next = (index + 1) % CHUNKS;
        Ok(index)
    }

    /// Waits until a chunk is free.
    pub(super) fn wait(&mut self, index: usize) -> Result<(), Failure> {
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

    pub(super) fn chunk(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the allocation has CHUNKS chunks.
        unsafe { self.start.add(index * CHUNK) }
    }

    /// Enqueues a copy from or to a chunk. Even a copy that fails may use the chunk.
    pub(super) fn enqueue(
        &mut self,
        index: usize,
        stream: CUstream,
        call: &'static str,
        copy: impl FnOnce(NonNull<u8>) -> CUresult,
    ) -> Result<(), Failure> {
        let enqueued = answer(call, copy(self.chunk(index)));
        let chunk = &mut self.chunks[index];
        // SAFETY: event and stream live, and are of one context.
        let recorded = answer("cuEventRecord", unsafe { sys::cuEventRecord(chunk.event, stream) });
        chunk.busy = Some(if recorded.is_ok() { Busy::Event } else { Busy::All });
        enqueued
    }

    /// Frees everything, in the calling thread's context; returns the first failure.
    pub(super) fn give_back(mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        for index in 0..self.chunks.len() {
            // Once more, in case it was the call that failed and not the work. In a context that is lost nothing runs.
            let waited = self.wait(index).or_else(|_| self.wait(index));
            // SAFETY: the event was made once and is used no more.
            let destroyed = unsafe { sys::cuEventDestroy_v2(self.chunks[index].event) };
            result = result.and(waited).and(answer("cuEventDestroy", destroyed));
        }
        result.and(unpin(self.start))
    }
}
