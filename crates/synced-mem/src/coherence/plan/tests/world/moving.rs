//! Transfers that are made without the lock, by this thread and by another.

use super::*;
use crate::coherence::facts::moving::Landing;
use crate::coherence::replicas::HOSTS;

/// What the transfer of another thread has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The bytes are there, or on their way to the device, and the host is left alone.
    Done,
    /// The bytes are on their way.
    Pending,
    /// The call has failed, and may have enqueued its work.
    Failed,
    /// The bytes are on their way on a queue that was found out to have failed.
    Lost,
}

impl<const BYTES: usize> World<BYTES> {
    /// A transfer that may wait for the device. A queue that has failed fails it.
    pub(super) fn perform_staged(&mut self, step: &Step, progress: &mut Progress<u8>) -> bool {
        let Step::Copy { from, to, range } = step else { panic!("{step:?} is no transfer") };
        assert!(self.facts.is_staged(*from, *to), "{step:?} waits for nothing");
        let device = if to.is_host() { *from } else { *to };
        if has_failed(self.home(device)) {
            return self.wait(None, &[self.home(device)], progress);
        }
        if self.fails && *to == Slot(HOSTS + 1) {
            progress.failed(step);
            return true;
        }
        self.perform(step, None);
        if to.is_host() {
            // The call has waited for the bytes, which the facts need not know.
            self.truth[HOST.0][range.clone()].iter_mut().for_each(|byte| byte.work.clear());
        }
        true
    }

    /// Another thread begins a transfer, which is under way until [`arrive`](Self::arrive), and has come to this then.
    pub(crate) fn move_elsewhere(&mut self, moving: Moving, arrival: Arrival) {
        let device = if moving.to.is_host() { moving.from } else { moving.to };
        let failed = FAILED[device.device().expect("a transfer is to a device or from one")];
        let queue = if arrival == Arrival::Lost { failed } else { self.home(device) };
        self.facts.depart(&moving, Some(&queue));
        self.moving = Some(moving);
        self.arrival = (queue, arrival);
    }

    /// The transfer of the other thread has ended. False: there is none.
    pub(crate) fn arrive(&mut self) -> bool {
        let Some(moving) = self.moving.take() else { return false };
        let (queue, arrival) = self.arrival;
        assert!(self.is_source(moving.from, &moving.range), "the bytes have changed under way");
        if arrival == Arrival::Lost && !self.facts.broken.has(&queue) {
            self.facts.distrust(&queue);
            self.facts.broken.add(queue, Error::OutOfMemory { bytes: 0 });
        }
        let host = if moving.to.is_host() { moving.to } else { moving.from };
        // No queue sees a lent slice.
        let uses_host = arrival != Arrival::Done && !self.facts.copy(host).is_lent;
        let landing = Landing { is_there: arrival != Arrival::Failed, uses_device: true, uses_host };
        self.facts.land(&moving, Some(&queue), landing);
        for (slot, access) in [(moving.from, Access::Read), (moving.to, Access::Write)] {
            // A download that is done has left the device, too.
            let has_ended = if moving.to.is_host() { !uses_host } else { slot.is_host() && !uses_host };
            let is_there = landing.is_there;
            for byte in self.bytes(slot, &moving.range) {
                if !has_ended {
                    byte.work.push(Work { queue, access, known: Vec::new() });
                }
                if slot == moving.to && is_there {
                    byte.is_right = arrival != Arrival::Lost;
                }
            }
        }
        true
    }

    /// Neither copy of a transfer that is under way loses its memory, and no one writes the bytes there.
    pub(super) fn check_moving(&self, slot: Slot, written: &Range<usize>) {
        let Some(moving) = self.moving.as_ref().filter(|moving| moving.concerns(slot)) else { return };
        assert!(!meet(&moving.range, written), "{slot:?} {written:?} is written during {moving:?}");
    }
}
