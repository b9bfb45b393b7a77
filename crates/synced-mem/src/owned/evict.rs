//! Giving back the room that the copies of a `SyncedMem` take. It leaves to `engine` what is moved for it.

use std::ops::Range;

use crate::engine::evict::Only;
use crate::engine::state::State;
use crate::engine::tidy::Sole;
use crate::{Error, Place, SyncedMem};

impl SyncedMem {
    /// Frees the copy at a place. Bytes that no other copy holds are moved first: from a device to the host, from the
    /// host to a device that has been used before.
    ///
    /// # Errors
    /// [`Error::OnlyCopy`] when there is nowhere to move them; as [`host`](Self::host). Nothing is lost.
    pub fn evict(&mut self, place: Place) -> Result<(), Error> {
        self.evict_range(place, 0..self.len())
    }

    /// Takes some bytes away from a place, as [`evict`](Self::evict). Its memory is freed when it holds none.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; as [`evict`](Self::evict).
    pub fn evict_range(&mut self, place: Place, range: Range<usize>) -> Result<(), Error> {
        self.reset_fast();
        self.act_mut(|state| state.tidy(Sole::Yes), |state| state.evict(place, &state.check(&range)?, Only::Move))
    }

    /// Frees the copy at a place if other copies hold all its bytes.
    ///
    /// # Errors
    /// [`Error::OnlyCopy`] when they do not.
    pub fn evict_clean(&mut self, place: Place) -> Result<(), Error> {
        self.reset_fast();
        self.act_mut(|state| state.tidy(Sole::Yes), |state| state.evict(place, &state.whole(), Only::Refuse))
    }

    /// Frees the memory of all copies that hold no valid byte.
    pub fn shrink(&mut self) {
        self.reset_fast();
        for line in self.with_mut(State::shrink) {
            // A queue that fails keeps its buffers retired; the end of the memory decides about them.
            let _ = self.act_mut(|_| Ok(()), |state| state.wait_at_first(vec![line.clone()]));
        }
        // What has no valid byte any more is given back last, like after every operation.
        let _ = self.act_mut(|_| Ok(()), |_| Ok(()));
    }
}
