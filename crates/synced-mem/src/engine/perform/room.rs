//! What a memory takes of its budgets: room is reserved before a copy gets memory, and given back with the memory. Room
//! that is lacking is made with the lock released. No budget decides here what is given up.

use std::sync::Arc;

use crate::access::{DeviceId, Location};
use crate::borrow::QueueHandle;
use crate::coherence::replicas::{HOST, ORIGIN, Slot};
use crate::engine::state::State;
use crate::error::Error;
use crate::ledger::Account;

/// Room that a copy lacks for memory.
pub(crate) struct Room {
    pub(crate) slot: Slot,
    bytes: usize,
    lack: Lack,
}

/// Where room is lacking.
enum Lack {
    /// In a budget.
    Budget(Arc<Account>),
    /// On the device itself, whatever the limits. The accounts are those in the first budget that someone has made, and
    /// in the device's own.
    Device {
        device: DeviceId,
        queue: QueueHandle,
        made: Option<Arc<Account>>,
        own: Option<Arc<Account>>,
        has_been_asked: bool,
    },
}

impl Room {
    /// Lets the device, and other memories there, give back theirs: those of the same budget first. May wait; the lock
    /// is not held.
    pub(crate) fn make(&self) -> Result<(), Error> {
        let bytes = self.bytes;
        match &self.lack {
            Lack::Budget(account) => account.make_room(bytes),
            Lack::Device { queue, has_been_asked: false, .. } if queue.make_room(bytes)? => Ok(()),
            Lack::Device { device, queue, made, own, .. } => {
                let has_left = made.as_ref().is_some_and(|account| account.relieve(*device, bytes).is_ok());
                if !has_left {
                    let books = queue.device().meter().ledger(*device)?;
                    books.relieve(*device, bytes, own.as_deref())?;
                }
                queue.make_room(bytes).map(drop)
            }
        }
    }
}

impl State {
    /// Enters the memory in a budget, unless already there.
    pub(crate) fn enter_budget(&mut self, account: &Arc<Account>) -> bool {
        let mut accounts: Vec<_> = self.accounts.take().into_iter().flatten().collect();
        let is_new = !accounts.iter().any(|known| known.is_of(account));
        if is_new {
            accounts.push(Arc::clone(account));
            let slot = self.slot_at(account.location()).filter(|slot| *slot != ORIGIN);
            if slot.is_some_and(|slot| self.facts.copy(slot).has_memory) {
                account.has(self.facts.len);
            }
        }
        self.accounts = Some(accounts.into());
        is_new
    }

    /// Enters the memory in the own budget of a copy's device.
    pub(crate) fn enter_own_budget(&mut self, slot: Slot, account: Arc<Account>) {
        let Some(copy) = slot.device().and_then(|index| self.devices.get_mut(index)) else { return };
        if copy.memory.as_ref().is_some_and(|memory| memory.owner.is_none()) {
            account.has(self.facts.len);
        }
        copy.account = Some(account);
    }

    /// Reserves room for a copy's memory. Gives the room that is lacking.
    pub(crate) fn reserve(&self, slot: Slot) -> Option<Room> {
        let mut reserved = Vec::new();
        for account in self.made_accounts(slot) {
            match account.reserve(self.facts.len) {
                Some(true) => reserved.push(account),
                Some(false) => {}
                None => {
                    // All or nothing: what one budget lacks is no load for the others.
                    reserved.into_iter().for_each(|account: &Arc<Account>| account.release());
                    return Some(Room { slot, bytes: self.facts.len, lack: Lack::Budget(Arc::clone(account)) });
                }
            }
        }
        None
    }

    /// After a copy got no memory: room that its device may make, or others there.
    pub(crate) fn room_after(&self, slot: Slot, error: &Error, has_been_asked: bool) -> Option<Room> {
        let Error::DeviceOutOfMemory { device, bytes } = *error else { return None };
        let (made, own) = (self.made_accounts(slot).next().cloned(), self.own_account(slot).cloned());
        let lack = Lack::Device { device, queue: self.home(slot).ok()?, made, own, has_been_asked };
        Some(Room { slot, bytes, lack })
    }

    /// A copy has got memory.
    pub(crate) fn has_room(&self, slot: Slot) {
        self.accounts_of(slot).for_each(|account| account.has(self.facts.len));
    }

    /// A copy has no memory, or got none.
    pub(crate) fn release_room(&self, slot: Slot) {
        self.accounts_of(slot).for_each(|account| account.release());
    }

    /// The budgets of the place of a copy. Adopted bytes count in none.
    pub(super) fn accounts_of(&self, slot: Slot) -> impl Iterator<Item = &Arc<Account>> {
        self.own_account(slot).into_iter().chain(self.made_accounts(slot))
    }

    /// Those of the budgets that someone has made.
    fn made_accounts(&self, slot: Slot) -> impl Iterator<Item = &Arc<Account>> {
        let location = match slot.device() {
            Some(index) => self.devices.get(index).map(|copy| Location::Device(copy.device)),
            None => (slot == HOST).then_some(Location::Host),
        };
        let accounts = self.accounts.iter().flatten();
        accounts.filter(move |account| Some(account.location()) == location)
    }
}
