//! The transfers of a memory that a thread makes without the lock: the facts name the bytes meanwhile. Pure, as the
//! facts are; the plan decides who waits for such a transfer.

use std::ops::Range;

use crate::coherence::facts::Facts;
use crate::coherence::replicas::Slot;

/// Bytes that a thread without the lock brings from a copy, or from the origin, to a copy. Meanwhile both copies keep
/// their memory, the bytes stay valid where they come from, and no one else writes them on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) from: Slot,
    pub(crate) to: Slot,
    pub(crate) range: Range<usize>,
}

impl Moving {
    /// Whether this is one of the two copies.
    pub(crate) fn concerns(&self, slot: Slot) -> bool {
        self.from == slot || self.to == slot
    }
}

impl<Q> Facts<Q> {
    /// Whether a transfer from one copy to another ends with its step: one of a lent slice, or one that may wait for
    /// the device.
    pub(crate) fn is_staged(&self, from: Slot, to: Slot) -> bool {
        let (host, device) = if from.is_host() { (from, to) } else { (to, from) };
        let is_transfer = host.is_host() && !device.is_host();
        is_transfer && (self.copy(host).is_lent || self.copy(device).stages[host.0])
    }
}
