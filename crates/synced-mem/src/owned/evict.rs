//! Giving back the room that the copies of a `SyncedMem` take. `engine` decides which bytes are moved for that.

use std::ops::RangeBounds;

use crate::access::Location;
use crate::coherence::plan::Dirty;
use crate::error::Error;
use crate::owned::SyncedMem;

impl SyncedMem {
    /// Takes bytes away from a location: `..` for all of them. Those that no other copy holds are moved first: from a
    /// device to the host, from the host to a device that has been used before. A copy without bytes is freed.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::OnlyCopy`] when there is nowhere to move them; as [`host`](Self::host). Nothing
    /// is lost.
    pub fn evict(&mut self, location: Location, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.take_away(location, range, Dirty::Move)
    }

    /// Takes bytes away from a location, as [`evict`](Self::evict), if other copies hold all of them: nothing is moved.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::OnlyCopy`] when they do not.
    pub fn evict_clean(&mut self, location: Location, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.take_away(location, range, Dirty::Refuse)
    }

    fn take_away(&mut self, location: Location, range: impl RangeBounds<usize>, dirty: Dirty) -> Result<(), Error> {
        self.reset_fast();
        self.inner.evict(location, range, dirty)
    }

    /// Frees the memory of all copies that hold no valid byte.
    pub fn shrink(&mut self) {
        // Bytes that are read without the lock are all valid, so their copy stays.
        self.inner.shrink();
    }
}
