//! What a `SharedMem` hands out: host bytes borrowed for reading or writing, and the dynamic borrow of a device token.
//! Dropping a guard ends its borrow; leaking one keeps its range borrowed for ever. It relies on the borrow table and on
//! `state::State::host` for the bytes to be there and to be nobody else's.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::Access;
use crate::device::token::Lender;
use crate::engine::state::State;
use crate::host::buffer::dangling;
use crate::shared::Inner;

/// Bytes borrowed for reading. Holds the memory alive and dereferences to the same place for its whole life.
pub struct HostRef {
    lease: Lease,
}

/// Bytes borrowed for writing. Holds the memory alive and dereferences to the same place for its whole life.
pub struct HostMut {
    lease: Lease,
}

/// A borrow: once it is granted, the bytes at `ptr` are this lease's to read or write until it is dropped. Before that it
/// only keeps others away, and is taken back by being dropped.
pub(crate) struct Lease {
    inner: Arc<Inner>,
    ptr: NonNull<u8>,
    len: usize,
    /// Which entry of the table this is; an empty lease has none.
    borrow: Option<u64>,
    /// Whether it was granted for writing.
    writes: bool,
}

// SAFETY: a lease is an `Arc` over a `Send + Sync` state and a pointer to bytes that its entry in the borrow table
// reserves; it behaves as `&[u8]` or `&mut [u8]`, which may both be sent.
unsafe impl Send for Lease {}
// SAFETY: as above; through `&Lease` the bytes are only read.
unsafe impl Sync for Lease {}

impl Lease {
    /// Of an entry of the table; an empty lease has none.
    pub(crate) fn entered(inner: Arc<Inner>, borrow: Option<u64>) -> Self {
        Self { inner, ptr: dangling(), len: 0, borrow, writes: false }
    }

    /// `State::host` gave `ptr` for `len` bytes under this lease's entry, under the lock that still holds.
    pub(crate) fn grant(&mut self, state: &mut State, ptr: NonNull<u8>, len: usize, access: Access) {
        (self.ptr, self.len) = (ptr, len);
        self.writes = access == Access::Write;
        state.host_writers += usize::from(self.writes);
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `State::host` gave `ptr` for `len` valid, initialised bytes that no queue writes. Their buffer stays:
        // `inner` is held, and while this lease's entry is in the table nothing makes these bytes invalid in their copy
        // (a writer conflicts, evicting and adopting ask the table), and only a copy without valid bytes is freed; one
        // that was replaced because of a broken queue is leaked, and not while a guard writes there (`renew_host`). No
        // writer overlaps them, so nobody has a `&mut` to them; for a write lease `&self` forbids `bytes_mut`.
        // Empty: dangling and aligned.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// Only for a lease that was granted for writing: `HostMut` holds no other.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`. The entry is a writing one, so nobody else reads or writes these bytes, in any handle;
        // `State::host` gives writers the host's own memory, which is writable.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(borrow) = self.borrow {
            self.inner.release(|state| {
                state.borrows.remove(borrow);
                state.host_writers -= usize::from(self.writes);
            });
        }
    }
}

impl Lender for Inner {
    fn end(&self, borrow: u64) {
        self.release(|state| state.release(borrow));
    }
}

impl HostRef {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease }
    }
}

impl HostMut {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease }
    }
}

impl Deref for HostRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.bytes()
    }
}

impl Deref for HostMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.bytes()
    }
}

impl DerefMut for HostMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.lease.bytes_mut()
    }
}

impl AsRef<[u8]> for HostRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRef").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for HostMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMut").field("len", &self.len()).finish_non_exhaustive()
    }
}
