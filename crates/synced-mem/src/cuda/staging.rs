//! Transfers between a device and pageable host memory, through chunks of pinned memory: the host copies one chunk
//! while the device moves the next; of a long transfer several threads copy, because one is slower than the bus. A copy
//! that returns has left the host bytes. Bytes that a function gives are put into the chunks by the function itself.
//! Relies on `ring` for the chunks.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::slice;
use std::sync::PoisonError;
use std::thread;

use cudarc::driver::sys;

use super::failure::{Failure, answer};
use super::ring::{CHUNK, CHUNKS, Ring};
use super::stream::Stream;

/// Runs `work` with a ring of its own: a transfer that waits for the device keeps no other transfer waiting.
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

/// Lengths that the driver copies in one go. A chunk would make two waits for the device: for the work, and for the
/// copy.
const SHORT: usize = 64 << 10;

/// The parts of a range that fit in a chunk: start and length of each.
fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let end = range.end;
    range.step_by(CHUNK).map(move |at| (at, CHUNK.min(end - at)))
}

/// From this many bytes on another thread pays: the start takes a hundredth of the time of the copy.
const PER_THREAD: usize = 8 << 20;

/// On an H100 four threads moved 27 GB/s each way, one 8 and 9, the driver's own transfers 15 and 9.
const THREADS: usize = 4;

/// The ranges of `len` bytes that a thread each copies, in whole chunks.
fn shares(len: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let count = (len / PER_THREAD).clamp(1, THREADS.min(threads.max(1)));
    let share = len.div_ceil(count).next_multiple_of(CHUNK).max(1);
    (0..len).step_by(share).map(move |at| at..len.min(at + share))
}

/// Runs `work` on all bytes: long ones are shared by several threads, of which this is one. Gives the first failure.
fn shared(
    stream: &Stream,
    len: usize,
    work: impl Fn(Range<usize>) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    // Asking for the number of processors takes longer than a short transfer.
    let threads = if len < 2 * PER_THREAD { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    let mut shares = shares(len, threads);
    let Some(own) = shares.next() else {
        return Ok(());
    };
    let work = &work;
    thread::scope(|scope| {
        // Ranges for which no thread or no chunks can be had are left to this thread.
        let mut left = Vec::new();
        let others: Vec<_> = shares
            .filter_map(|share| {
                let there = share.clone();
                let thread = thread::Builder::new();
                let thread = thread.spawn_scoped(scope, move || stream.context().enter().and_then(|_here| work(there)));
                match thread {
                    Ok(thread) => Some((thread, share)),
                    Err(_) => {
                        left.push(share);
                        None
                    }
                }
            })
            .collect();
        let mut result = work(own.clone());
        if result.as_ref().is_err_and(Failure::is_out_of_memory) && !others.is_empty() {
            // Another thread has taken the chunks, and gives them back.
            result = Ok(());
            left.push(own);
        }
        for (thread, share) in others {
            match thread.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                Err(failure) if failure.is_out_of_memory() => left.push(share),
                // A failure that the context does not recover from is the one to report.
                Err(failure) if result.is_ok() || failure.is_sticky() => result = Err(failure),
                _ => {}
            }
        }
        left.into_iter().fold(result, |result, share| result.and_then(|()| work(share)))
    })
}

/// Enqueues a copy to a device address. On return the host bytes have been read.
///
/// # Safety
/// `len` bytes at `from` are readable, and as many at `to` are memory of the stream's device.
pub(super) unsafe fn upload(stream: &Stream, to: u64, from: NonNull<u8>, len: usize) -> Result<(), Failure> {
    let from = Host(from);
    shared(stream, len, |share| {
        with_ring(stream, |ring| {
            for (at, part) in parts(share) {
                let index = ring.take()?;
                // SAFETY: the part lies within the caller's bytes, and the chunk, which nothing uses, holds as many.
                unsafe { ring.chunk(index).copy_from_nonoverlapping(from.at(at), part) };
                ring.enqueue(index, stream.raw(), "cuMemcpyHtoDAsync", |chunk| {
                    // SAFETY: the chunk keeps the bytes until the chunk's event is over. The part lies within the `len`
                    // bytes at `to`, of which the caller says that they are memory of the stream's device.
                    unsafe { sys::cuMemcpyHtoDAsync_v2(to + at as u64, chunk.as_ptr().cast(), part, stream.raw()) }
                })?;
            }
            Ok(())
        })
    })
}

/// Enqueues a copy to a device address of bytes that `fill` puts into the chunks: it is told how many bytes come
/// before. Where `fill` says no, the copy ends.
///
/// # Safety
/// `len` bytes at `to` are memory of the stream's device.
pub(super) unsafe fn upload_from(
    stream: &Stream,
    to: u64,
    len: usize,
    fill: impl Fn(usize, &mut [u8]) -> bool + Sync,
) -> Result<(), Failure> {
    shared(stream, len, |share| {
        with_ring(stream, |ring| {
            for (at, part) in parts(share) {
                let index = ring.take()?;
                // SAFETY: a chunk has as many bytes, initialised when the ring was made, and nothing else uses this
                // one: the device has left it, and the ring is ours alone.
                let out = unsafe { slice::from_raw_parts_mut(ring.chunk(index).as_ptr(), part) };
                if !fill(at, out) {
                    return Err(Failure::ended());
                }
                // The function is code of the caller's, which may use other contexts.
                let _here = stream.context().enter()?;
                ring.enqueue(index, stream.raw(), "cuMemcpyHtoDAsync", |chunk| {
                    // SAFETY: the chunk keeps the bytes until the chunk's event is over. The part lies within the `len`
                    // bytes at `to`, of which the caller says that they are memory of the stream's device.
                    unsafe { sys::cuMemcpyHtoDAsync_v2(to + at as u64, chunk.as_ptr().cast(), part, stream.raw()) }
                })?;
            }
            Ok(())
        })
    })
}

/// Copies from a device address. On return the host bytes have been written, after all that was enqueued before,
/// which is waited for without the ring: other transfers need the ring meanwhile.
///
/// # Safety
/// `len` bytes at `to` are writable and ours alone, and as many at `from` are memory of the stream's device.
pub(super) unsafe fn download(stream: &Stream, from: u64, to: NonNull<u8>, len: usize) -> Result<(), Failure> {
    if len <= SHORT {
        // SAFETY: the caller promises `len` writable bytes at `to` that are ours alone, and as many at `from` on the
        // stream's device; the driver has written them on return, or at the end of the wait below, before this
        // function returns.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_ptr().cast(), from, len, stream.raw()) };
        return answer("cuMemcpyDtoHAsync", copied).and(stream.wait());
    }
    stream.wait()?;
    let to = Host(to);
    shared(stream, len, |share| {
        with_ring(stream, |ring| {
            let mut under_way = VecDeque::with_capacity(CHUNKS);
            let mut left = parts(share);
            loop {
                while under_way.len() < CHUNKS
                    && let Some((at, part)) = left.next()
                {
                    let index = ring.take()?;
                    ring.enqueue(index, stream.raw(), "cuMemcpyDtoHAsync", |chunk| {
                        // SAFETY: nothing else uses the chunk until the chunk's event is over. The part lies within the
                        // `len` bytes at `from`, of which the caller says that they are memory of the stream's device.
                        unsafe {
                            sys::cuMemcpyDtoHAsync_v2(chunk.as_ptr().cast(), from + at as u64, part, stream.raw())
                        }
                    })?;
                    under_way.push_back((index, at, part));
                }
                let Some((index, at, part)) = under_way.pop_front() else {
                    return Ok(());
                };
                ring.wait(index)?;
                // SAFETY: the device has filled and left the chunk; the part lies within the caller's bytes.
                unsafe { to.at(at).copy_from_nonoverlapping(ring.chunk(index), part) };
            }
        })
    })
}

/// The first of the caller's bytes. Threads copy shares that do not overlap.
#[derive(Clone, Copy)]
struct Host(NonNull<u8>);

// SAFETY: an address alone; each copy proves the right to use the bytes.
unsafe impl Send for Host {}
// SAFETY: through a shared reference only a copy of the address is to be had; each copy proves the right to use the
// bytes.
unsafe impl Sync for Host {}

impl Host {
    /// # Safety
    /// The byte lies within those that the caller has promised.
    unsafe fn at(self, offset: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that the byte lies within those at `self.0`, so the sum stays in one block and
        // is not null.
        unsafe { self.0.add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_transfers_are_shared_in_whole_chunks() {
        let of = |len, threads| shares(len, threads).collect::<Vec<_>>();
        assert_eq!((of(0, 8).len(), of(1, 8).len(), of(2 * PER_THREAD - 1, 8).len()), (0, 1, 1));
        assert_eq!(of(2 * PER_THREAD, 8), [0..PER_THREAD, PER_THREAD..2 * PER_THREAD]);
        assert_eq!((of(1 << 30, 1).len(), of(1 << 30, 3).len(), of(1 << 30, 99).len()), (1, 3, THREADS));
        for len in [2 * PER_THREAD + 1, 5 * PER_THREAD - 3, 100 * PER_THREAD + 12345] {
            let shares = of(len, 8);
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].end % CHUNK == 0));
            assert_eq!((shares[0].start, shares[shares.len() - 1].end), (0, len));
        }
    }
}
