//! Uploads of bytes that a function gives, for a backend that has no way of its own: through a piece of host memory,
//! which the queue has left before the next bytes come. Relies on the promises of `Queue` alone.

use std::mem;
use std::ops::Range;
use std::slice;

use crate::device::{Block, Host, Queue};
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::origin::OriginError;

/// Large enough that the waits do not matter, small enough that a machine without much memory has the room.
const PIECE: usize = 1 << 20;

/// Enqueues an upload of `range` of a block.
///
/// # Safety
/// As for [`Queue::upload_from`].
pub(crate) unsafe fn through_host<Q: Queue + ?Sized>(
    queue: &Q,
    to: &dyn Block,
    range: Range<usize>,
    fill: impl Fn(usize, &mut [u8]) -> Result<(), OriginError>,
) -> Result<(), Error> {
    if range.is_empty() {
        return Ok(());
    }
    // A queue that may not be waited for says so before the piece is in use.
    queue.synchronize()?;
    let piece = HostBuffer::zeroed(range.len().min(PIECE))?;
    for at in range.clone().step_by(PIECE) {
        let part = at..range.end.min(at + PIECE);
        // SAFETY: the piece has as many bytes, initialised and writable, and no other user: the piece is new, or its
        // last upload has been synchronised.
        let out = unsafe { slice::from_raw_parts_mut(piece.ptr().as_ptr(), part.len()) };
        fill(at, out).map_err(|source| Error::Origin { range: part.clone(), source })?;
        // SAFETY: the caller promises the block. The bytes of the piece are readable, and nothing changes them before
        // the queue is synchronised; where that fails, the piece is never freed.
        let host = unsafe { queue.upload(to, at, piece.ptr(), part.len()) };
        if !matches!(host, Ok(Host::Done))
            && let Err(error) = queue.synchronize()
        {
            mem::forget(piece);
            return Err(error);
        }
        host?;
    }
    Ok(())
}
