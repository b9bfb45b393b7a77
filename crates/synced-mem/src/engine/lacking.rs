//! The cost of work on a range at each place: how many bytes would have to be moved there. No byte is moved here.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::access::Location;
use crate::coherence::facts::{ADOPTED, HOST};
use crate::coherence::replicas::Slot;
use crate::device::Queue;
use crate::engine::state::State;

/// How many bytes of a range would have to be moved to each place before work there can read the range: see
/// [`SharedMem::lacking`](crate::SharedMem::lacking).
#[non_exhaustive]
pub struct Lacking {
    /// How many bytes the host lacks.
    pub host: usize,
    /// How many bytes each device lacks that this memory has been on, with the queue that last used it there.
    pub devices: Vec<(Arc<dyn Queue>, usize)>,
    /// Where the memory, any range of it, was last written, or asked for on a device. Reads on the host do not count;
    /// `None` before the first such access.
    pub last: Option<Location>,
}

impl fmt::Debug for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<_> = self.devices.iter().map(|(queue, lacking)| (queue.id(), lacking)).collect();
        f.debug_struct("Lacking")
            .field("host", &self.host)
            .field("devices", &devices)
            .field("last", &self.last)
            .finish()
    }
}

impl State {
    pub(crate) fn lacking_by_place(&self, range: &Range<usize>) -> Lacking {
        let facts = &self.facts;
        let all: Vec<_> = facts.slots().collect();
        let never_written = facts.lacking(&all, range);
        let of = |slots: &[Slot]| facts.lacking(slots, range) - never_written;
        let devices = self.homes().map(|(slot, _, home)| (Arc::clone(home), of(&[slot]))).collect();
        let last = facts.last.map(|slot| match slot.device() {
            None => Location::Host,
            Some(index) => Location::Device(self.devices[index].device),
        });
        Lacking { host: of(&[HOST, ADOPTED]), devices, last }
    }
}
