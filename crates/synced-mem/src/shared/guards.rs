//! The guards of a `SharedMem`: host bytes borrowed for reading or writing. A dropped guard ends its borrow; a leaked
//! guard keeps the range borrowed forever. Relies on the borrow table and on a met `Request::Host` for the bytes to be
//! there and to be used by no other.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use crate::borrow::Lease;
use crate::host::buffer::dangling;

/// Bytes borrowed for reading. Holds the memory alive and dereferences to the same place for its whole life.
pub struct HostRef {
    start: NonNull<u8>,
    len: usize,
    /// None where there are no bytes.
    _lease: Option<Lease>,
}

/// Bytes borrowed for writing. Holds the memory alive and dereferences to the same place for its whole life.
pub struct HostMut {
    /// Invariant: the lease is one for writing.
    bytes: HostRef,
}

// SAFETY: a guard is a lease of a `Send + Sync` memory and a pointer to bytes that its entry in the borrow table
// reserves; it behaves as `&[u8]`, or, in a `HostMut`, as `&mut [u8]`, which may both be sent.
unsafe impl Send for HostRef {}
// SAFETY: through `&HostRef`, or `&HostMut`, the bytes are only read, and their entry in the borrow table, or the count
// of readers, keeps writers away; a lease of a `Send + Sync` memory is ended from any thread.
unsafe impl Sync for HostRef {}

impl HostRef {
    /// A met `Request::Host` gave `start` for `len` bytes under this lease, or `Readers::enter` for all bytes.
    pub(crate) fn new(start: NonNull<u8>, len: usize, lease: Lease) -> Self {
        Self { start, len, _lease: Some(lease) }
    }

    /// Of no bytes.
    pub(crate) fn empty() -> Self {
        Self { start: dangling(), len: 0, _lease: None }
    }
}

impl HostMut {
    /// `bytes` has no lease, or one for writing.
    pub(crate) fn new(bytes: HostRef) -> Self {
        Self { bytes }
    }
}

impl Deref for HostRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a met `Request::Host` gave `start` for `len` valid, initialised bytes that no queue writes. Their
        // buffer stays: the lease holds the memory, and while its entry is in the table nothing makes these bytes
        // invalid in their copy (a writer conflicts, evicting and adopting ask the table), and only a copy without
        // valid bytes is freed; one that was replaced because of a broken queue is leaked, and not while a guard writes
        // there (`Planner::replace_host`). No writer overlaps them, so there is no `&mut` to them; for a `HostMut`,
        // `&self` forbids `deref_mut`. A lease of all bytes is in no table, but a reader that `Readers` counts: until
        // it leaves, none of these can close the way, and each has to. Empty: dangling and aligned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Deref for HostMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for HostMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: a met `Request::Host` gave the start of `len` valid, initialised bytes of the host's own memory,
        // which is writable, and no queue uses them. Their buffer stays: the lease holds the memory, and no writer's
        // buffer is replaced or freed (`Planner::replace_host`; evicting and adopting ask the table). The lease is one
        // for writing, so no other guard reads or writes these bytes, in any handle, and `&mut self` forbids another
        // borrow through this one. Without bytes: dangling and aligned.
        unsafe { slice::from_raw_parts_mut(self.bytes.start.as_ptr(), self.bytes.len) }
    }
}

impl AsRef<[u8]> for HostRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRef").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for HostMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMut").field("len", &self.len()).finish_non_exhaustive()
    }
}
