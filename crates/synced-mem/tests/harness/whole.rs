//! Steps on a memory as a whole, and on two: prefetches, eviction, adoption, copies, the end of a memory, lent slices.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use synced_mem::{Error, HostBuffer, Location, SyncedMem, scope};

use super::model::{self, Model};
use super::op::{Adopted, Intent, SITES};
use super::owned::Owned;
use super::shadow::{By, Shadow};
use super::tape::pattern;
use super::worker::{Judged, Worker};
use super::world::{Subject, fit};

/// Adopted bytes that count their owners.
pub(crate) struct Counted {
    bytes: Vec<u8>,
    owners: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn new(bytes: Vec<u8>, owners: &Arc<AtomicU64>) -> Self {
        owners.fetch_add(1, Ordering::SeqCst);
        Self { bytes, owners: Arc::clone(owners) }
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.owners.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker<'_> {
    pub(super) fn prefetch_host(&mut self, memory: usize, range: &Range<usize>) {
        let subject = self.world.memory(memory);
        let (range, before) = (subject.fit(range), self.before(&subject));
        let result = subject.memory.prefetch_host(subject.bytes(&range));
        self.agree(&subject, result, &before, |model| model.prefetch_host(&range));
    }

    pub(super) fn evict(&mut self, memory: usize, site: Option<usize>, refuse: bool) {
        let subject = self.world.memory(memory);
        let (shared, before, place) = (&subject.memory, self.before(&subject), self.world.place(site));
        let result = if refuse { shared.evict_clean(place, ..) } else { shared.evict(place, ..) };
        // Where ranges are not known exactly, neither is the place at which a device reads the host's memory.
        let exact = self.world.rules.exact;
        let may_lie_elsewhere = !exact && subject.model().is_some_and(|model| model.has_reads_of_sharing_devices());
        if !(may_lie_elsewhere && matches!(result, Ok(()) | Err(Error::Conflict { .. } | Error::OnlyCopy { .. }))) {
            let whole = 0..subject.cells();
            self.agree(&subject, result, &before, |model| model.evict(site, &whole, refuse));
        }
        let _ = (shared.head(), shared.stats(), shared.is_initialized());
    }

    pub(super) fn adopt(&mut self, memory: usize, how: Adopted) {
        let (world, subject) = (self.world, self.world.memory(memory));
        let whole = 0..subject.shadow.len();
        let Some(_reserved) = subject.reserve(&whole) else {
            return;
        };
        let before = self.before(&subject);
        let bytes = subject.shadow.next(&whole, Intent::Overwrite, self.by);
        let fixed = how == Adopted::ReadOnly;
        if fixed {
            subject.adopted.store(true, Ordering::SeqCst);
        }
        let result = match how {
            // A launch on no bytes of a block is not waited for, so the loopback would call the block's end a misuse.
            Adopted::Device(queue) if !bytes.is_empty() => {
                let Some(outside) = world.hear(world.devices[queue / 2].external(bytes.len())) else {
                    return;
                };
                outside.with_bytes(|outside| outside.copy_from_slice(&bytes));
                let address = outside.address();
                let owner = Box::new((outside, Counted::new(Vec::new(), &world.owners)));
                // SAFETY: the block is the owner's, and has no other user.
                unsafe { subject.memory.adopt_device(&world.queue(queue), address, bytes.len(), owner) }
            }
            Adopted::ReadOnly => {
                subject.memory.adopt(HostBuffer::from_owner(Counted::new(bytes.clone(), &world.owners)))
            }
            Adopted::Vector | Adopted::Device(_) => subject.memory.adopt(bytes.clone()),
        };
        if self.agree(&subject, result, &before, |model| model.adopt(fixed)).is_some() {
            subject.shadow.write(0, &bytes, self.by);
        }
    }

    /// From one memory to another, or within one. Both ranges are reserved, because no borrow of ours protects the
    /// shadow.
    pub(super) fn copy(&mut self, to: usize, at: usize, from: usize, range: &Range<usize>) {
        let (world, target, source) = (self.world, self.world.memory(to), self.world.memory(from));
        let range = source.fit(range);
        let at = at % (target.cells() + 1);
        let range = range.start..range.end.min(range.start + target.cells() - at);
        let (bytes, at_bytes) = (source.bytes(&range), at * target.scale);
        let written = at_bytes..at_bytes + bytes.len();
        let Some(_source) = source.reserve(&bytes) else {
            return;
        };
        // In the same memory the stripes may be the same ones: then it is left out.
        let Some(_target) = target.reserve(&written) else {
            return;
        };
        let before = [&target, &source].map(|subject| self.before(subject));
        let was_on_host = target.memory.valid_on(Location::Host, written.clone());
        let result = target.memory.copy_from(at_bytes, &source.memory, bytes.clone());
        let is_done = result.is_ok();
        if !world.rules.threads {
            let used = [(&target, &before[0][..]), (&source, &before[1][..])];
            self.agree_on_copy(result, &used, to, at, from, &range);
        } else if let Some(Error::Device { .. }) = result.as_ref().err()
            && !was_on_host
        {
            // A device that alone held the old bytes may have lost them; what the host held stays.
            target.shadow.forget(written);
            world.hear(result);
        } else {
            world.hear(result);
        }
        if is_done {
            target.shadow.copy(at_bytes, &source.shadow.expected(bytes));
        }
    }

    fn agree_on_copy(
        &self,
        result: Result<(), Error>,
        used: &[(&Arc<Subject>, &[[bool; SITES]])],
        to: usize,
        at: usize,
        from: usize,
        range: &Range<usize>,
    ) {
        let mut models: Vec<Model> = (0..self.world.memories.len())
            .filter_map(|memory| Some(self.world.memory(memory).model()?.clone()))
            .collect();
        let predicted = model::copy(&mut models, to, at, from, range);
        // The model does not know whether bytes that were never written have been read: then ranges that overlap
        // matter.
        let may_overlap = !self.world.rules.exact && to == from;
        if may_overlap && matches!((&result, &predicted), (Err(Error::Conflict { .. }), Ok(()))) {
            return;
        }
        let judged = self.judge(result, predicted, used);
        if !matches!(judged, Judged::Unknown) {
            for (memory, new) in models.into_iter().enumerate() {
                self.world.memory(memory).model().into_iter().for_each(|mut model| *model = new.clone());
            }
        }
    }

    pub(super) fn renew_own(&mut self, len: usize, shares: bool) {
        let own = match len % 4 {
            1 => Owned::of(SyncedMem::of(self.world.tapes.tape(len)), Shadow::of(&pattern(0..len))),
            3 => Owned::of(SyncedMem::new_in(len, &self.world.pool), Shadow::zeros(len)),
            _ => Owned::of(SyncedMem::new(len), Shadow::zeros(len)),
        };
        let old = std::mem::replace(&mut self.own, own);
        if shares {
            let place = self.by.step as usize % self.world.memories.len();
            self.world.renew_memory(place, old.into_shared());
        }
    }

    /// A slice of the stack, to a device and back.
    pub(super) fn lend(&self, steps: &[(Option<usize>, Range<usize>, bool)]) {
        let (world, by, shadow) = (self.world, self.by, Shadow::zeros(40));
        let mut bytes = shadow.next(&(0..40), Intent::Overwrite, by);
        shadow.write(0, &bytes, by);
        let ended = scope(|scope| {
            let mut lent = scope.lend_mut(&mut bytes);
            for (nth, (queue, range, writes)) in steps.iter().enumerate() {
                let (range, by) = (fit(range, 40), By { step: by.step << 3 | nth as u64, ..by });
                let (expected, new) = (shadow.expected(range.clone()), shadow.next(&range, Intent::Overwrite, by));
                let is_written = match (queue.map(|queue| world.queue(queue)), writes) {
                    (Some(queue), false) => {
                        let token = world.hear(lent.device(&queue, range.clone()));
                        token.inspect(|token| world.launch_read("a kernel on a lent slice", token, &expected));
                        false
                    }
                    (Some(queue), true) => {
                        let token = world.hear(lent.device_overwrite(&queue, range.clone()));
                        token.map(|mut token| world.launch_write("", &mut token, None, &new)).is_some()
                    }
                    (None, _) => {
                        let slice = world.hear(lent.host_mut(range.clone()));
                        slice
                            .map(|slice| {
                                self.compare("a lent slice", &expected, slice);
                                slice.copy_from_slice(&new);
                            })
                            .is_some()
                    }
                };
                if is_written {
                    shadow.write(range.start, &new, by);
                }
            }
        });
        // Otherwise the slice holds older bytes, as the scope has said.
        if world.hear(ended).is_some() {
            self.compare("what was lent", &shadow.expected(0..40), &bytes);
        }
    }
}
