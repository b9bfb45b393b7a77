//! Waits for queues, as they end.

use super::*;

impl<const BYTES: usize> World<BYTES> {
    /// A wait. False: one of the queues had been known to have failed.
    pub(crate) fn wait(&mut self, by: Option<u8>, queues: &[u8], progress: &mut Progress<u8>) -> bool {
        for queue in queues {
            if has_failed(*queue) {
                let was_known = self.facts.broken.has(queue);
                self.facts.distrust(queue);
                self.facts.broken.add(*queue, Error::OutOfMemory { bytes: 0 });
                return !was_known;
            }
            let began = self.facts.clock.begin();
            self.facts.clock.end(began);
            progress.waited.add(by, *queue, began);
            // The queue itself has waited for some of the others' work.
            let is_over = |work: &Work| work.queue == *queue || work.known.contains(&Some(*queue));
            let works = self.truth.iter_mut().flatten().flat_map(|byte| &mut byte.work);
            works.filter(|work| is_over(work)).for_each(|work| work.known.push(by));
            if by.is_none() {
                self.facts.wait_ended(queue, began);
                for byte in self.truth.iter_mut().flatten() {
                    byte.work.retain(|work| !is_over(work));
                }
            }
        }
        true
    }
}
