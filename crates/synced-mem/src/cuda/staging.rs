//! Transfers between a device and pageable host memory, through chunks of pinned memory: the host copies one chunk while the
//! device moves the next. They have left the host bytes when they return. It relies on `ring` for the chunks.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::PoisonError;

use cudarc::driver::sys;

use super::failure::Failure;
use super::ring::{CHUNK, CHUNKS, Ring};
use super::stream::Stream;

/// Runs `work` with a ring that is its own meanwhile: while it waits for the device, no other transfer waits for it.
fn with_ring<R>(stream: &Stream, work: impl FnOnce(&mut Ring) -> Result<R, Failure>) -> Result<R, Failure> {
    let rings = || stream.context().staging.lock().unwrap_or_else(PoisonError::into_inner);
    let idle = rings().take(stream.raw());
    let mut ring = match idle {
        Some(ring) => ring,
        None => Ring::new()?,
    };
    let result = work(&mut ring);
    rings().put(ring, stream.raw());
    result
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
            ring.enqueue(index, stream.raw(), "cuMemcpyHtoDAsync", |chunk| {
                // SAFETY: the chunk keeps its bytes until its event is over, and the target is the caller's promise.
                unsafe { sys::cuMemcpyHtoDAsync_v2(to + at as u64, chunk.as_ptr().cast(), part, stream.raw()) }
            })?;
        }
        Ok(())
    })
}

/// Copies from a device address. The host bytes have been written when it returns, after all that was enqueued before, which is
/// waited for without the ring: other transfers need it meanwhile.
///
/// # Safety
/// `len` bytes at `to` are writable and ours alone, and as many at `from` are memory of the stream's device.
pub(super) unsafe fn download(stream: &Stream, from: u64, to: NonNull<u8>, len: usize) -> Result<(), Failure> {
    stream.wait()?;
    with_ring(stream, |ring| {
        let mut under_way = VecDeque::with_capacity(CHUNKS);
        let mut left = parts(len);
        loop {
            while under_way.len() < CHUNKS
                && let Some((at, part)) = left.next()
            {
                let index = ring.take()?;
                ring.enqueue(index, stream.raw(), "cuMemcpyDtoHAsync", |chunk| {
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
