//! Which copy serves an access, from the facts alone.

use std::ops::Range;

use crate::access::Intent;
use crate::coherence::facts::{ADOPTED, Facts, HOST};
use crate::coherence::replicas::Slot;

/// The copy that serves an access on the host: adopted memory serves readers while it holds the range and our own
/// memory does not.
pub(crate) fn host_slot<Q>(facts: &Facts<Q>, range: &Range<usize>, intent: Intent) -> Slot {
    let holds = |slot| facts.replicas.holds(slot, range);
    if facts.copy(ADOPTED).has_memory && intent == Intent::Read && holds(ADOPTED) && !holds(HOST) {
        return ADOPTED;
    }
    HOST
}

/// The copy that serves an access on a device whose own copy is `own`. A device that shares the host's memory reads
/// bytes there, unless its own copy has all of them. No queue sees a lent slice.
#[inline]
pub(crate) fn device_slot<Q>(facts: &Facts<Q>, own: Slot, range: &Range<usize>, intent: Intent) -> Slot {
    if !facts.copy(own).shares_host || intent != Intent::Read || facts.replicas.holds(own, range) {
        return own;
    }
    let host = host_slot(facts, range, intent);
    if facts.copy(host).is_lent { own } else { host }
}
