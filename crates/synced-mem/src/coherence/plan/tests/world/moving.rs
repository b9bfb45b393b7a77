//! Transfers that are made without the lock, by this thread and by another.

use super::*;
use crate::coherence::facts::HOSTS;

impl<const BYTES: usize> World<BYTES> {
    /// A transfer that may wait for the device. A queue that has failed fails it.
    pub(super) fn perform_staged(&mut self, step: &Step, progress: &mut Progress<u8>) -> bool {
        let Step::Copy { from, to, range } = step else { panic!("{step:?} is no transfer") };
        assert!(self.facts.is_staged(*from, *to), "{step:?} waits for nothing");
        let device = if to.is_host() { *from } else { *to };
        let fails = has_failed(self.home(device)) || (self.fails && *to == Slot(HOSTS + 1));
        if !fails {
            self.perform(step, None);
            if to.is_host() {
                // The call has waited for the bytes, which the facts need not know.
                self.truth[HOST.0][range.clone()].iter_mut().for_each(|byte| byte.work.clear());
            }
            return true;
        }
        progress.failed(step);
        true
    }

    /// Another thread begins a transfer, which is under way until [`arrive`](Self::arrive).
    pub(crate) fn move_elsewhere(&mut self, moving: Moving) {
        let device = if moving.to.is_host() { moving.from } else { moving.to };
        let access = if moving.to.is_host() { Access::Read } else { Access::Write };
        let queue = self.home(device);
        self.facts.enter(device, &queue, &moving.range, access, None);
        self.facts.outside.push(moving.clone());
        self.moving = Some(moving);
    }

    /// The transfer of the other thread has ended. False: there is none.
    pub(crate) fn arrive(&mut self) -> bool {
        let Some(moving) = self.moving.take() else { return false };
        self.facts.outside.clear();
        assert!(self.is_source(moving.from, &moving.range), "the bytes have changed under way");
        self.now_valid(moving.to, &moving.range);
        true
    }

    /// Neither copy of a transfer that is under way loses its memory, and no one writes the bytes there.
    pub(super) fn check_moving(&self, slot: Slot, written: &Range<usize>) {
        let Some(moving) = self.moving.as_ref().filter(|moving| moving.concerns(slot)) else { return };
        assert!(!meet(&moving.range, written), "{slot:?} {written:?} is written during {moving:?}");
    }
}
