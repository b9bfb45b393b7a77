//! Giving back the room that the copies of a `SyncedMem` take. It leaves to `engine` what is moved for it.

use std::ops::Range;
use std::sync::PoisonError;

use crate::engine::evict::Dirty;
use crate::engine::step;
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
        self.act_mut(|state| state.coalesce(&(0..0)), |state| state.evict(place, &state.check(&range)?, Dirty::Move))
    }

    /// Frees the copy at a place if other copies hold all its bytes.
    ///
    /// # Errors
    /// [`Error::OnlyCopy`] when they do not.
    pub fn evict_clean(&mut self, place: Place) -> Result<(), Error> {
        self.reset_fast();
        self.act_mut(|state| state.coalesce(&(0..0)), |state| state.evict(place, &state.whole(), Dirty::Refuse))
    }

    /// Frees the memory of all copies that hold no valid byte.
    pub fn shrink(&mut self) {
        self.reset_fast();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        step::shrink(state);
    }
}
