//! The transfers of a memory that a thread makes without the lock: the facts name the bytes meanwhile. Pure, as the
//! facts are; the plan decides who waits for such a transfer.

use std::ops::Range;

use crate::access::Access;
use crate::coherence::replicas::Slot;

/// Bytes that a thread without the lock brings from a copy, or from the origin, to a copy. Meanwhile both copies keep
/// their memory, the bytes stay valid where they come from, and no one else writes them on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) from: Slot,
    pub(crate) to: Slot,
    pub(crate) range: Range<usize>,
}

/// How a transfer has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    /// Whether the bytes are there, or will be when the queue has done its work.
    pub(crate) is_there: bool,
    /// Whether the queue may still work on the device's copy.
    pub(crate) uses_device: bool,
    /// Whether the queue may still use the host's copy.
    pub(crate) uses_host: bool,
}

impl Moving {
    /// Whether this is one of the two copies.
    pub(crate) fn concerns(&self, slot: Slot) -> bool {
        self.from == slot || self.to == slot
    }

    /// The access to each side.
    pub(crate) fn accesses(&self) -> [(Slot, Access); 2] {
        [(self.from, Access::Read), (self.to, Access::Write)]
    }
}
