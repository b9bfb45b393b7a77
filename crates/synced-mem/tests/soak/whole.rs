//! Steps on a memory as a whole, and on two: copies, adoption, eviction, the end of a memory, lent slices, broken
//! queues.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use synced_mem::loopback::launch;
use synced_mem::{Device, Error, HostBuffer, Location, scope};

use super::draw::Draw;
use super::shadow::Shadow;
use super::shared::Worker;
use super::world::{Counts, DEVICES, Subject};

/// Adopted bytes that count their owners.
pub(crate) struct Counted {
    bytes: Vec<u8>,
    owners: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn new(bytes: Vec<u8>, owners: &Arc<AtomicU64>) -> Self {
        owners.fetch_add(1, Ordering::SeqCst);
        let owners = Arc::clone(owners);
        Self { bytes, owners }
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
    pub(crate) fn whole(&mut self, draw: &mut Draw) {
        match draw.below(20) {
            0..8 => self.copy(draw),
            8..11 => self.adopt(draw),
            11..15 => self.give_back(draw),
            15 | 16 => self.renew(draw),
            17 | 18 => self.lend(draw),
            _ => self.break_queue(draw),
        }
    }

    /// From one memory to another, or within one. Both ranges are reserved, because no borrow of ours protects the
    /// shadow.
    fn copy(&mut self, draw: &mut Draw) {
        let (from, to) = (self.world.memory(draw), self.world.memory(draw));
        let range = draw.range(from.shadow.len().min(to.shadow.len()));
        let at = draw.below(to.shadow.len() - range.len() + 1);
        let target = at..at + range.len();
        let Some(_source) = from.reserve(&range) else {
            return;
        };
        // In the same memory the stripes may be the same ones: then it is left out.
        let Some(_target) = to.reserve(&target) else {
            return;
        };
        self.says(&format!("copying {range:?} to {at}"));
        let was_on_host = to.memory.valid_on(Location::Host, target.clone());
        match to.memory.copy_from(at, &from.memory, range.clone()) {
            Ok(()) => to.shadow.copy(at, &from.shadow.expected(range)),
            Err(error) => {
                // A device that alone held the old bytes may have lost them; what the host held stays.
                if matches!(error, Error::Device { .. }) && !was_on_host {
                    to.shadow.forget(target);
                }
                self.world.hear(Err::<(), _>(error));
            }
        }
    }

    /// Puts other memory in the place of all bytes.
    fn adopt(&mut self, draw: &mut Draw) {
        let subject = self.world.memory(draw);
        let len = subject.shadow.len();
        let Some(_reserved) = subject.reserve(&(0..len)) else {
            return;
        };
        let bytes = draw.bytes(len);
        let adopted = match draw.below(3) {
            0 => {
                self.says("adopting read-only bytes");
                let owner = Counted::new(bytes.clone(), &self.world.owners);
                subject.memory.adopt(HostBuffer::from_owner(owner))
            }
            // A launch on no bytes of a block is not waited for, so the loopback would call the block's end a misuse.
            kind if kind == 1 || len == 0 => {
                self.says("adopting a vector");
                subject.memory.adopt(bytes.clone())
            }
            _ => {
                let queue = self.world.queue(draw);
                self.says("adopting device memory");
                let id = queue.device().id();
                let mut devices = self.world.devices.iter();
                let device = devices.find(|device| device.id() == id).unwrap();
                let Some(outside) = self.world.hear(device.external(len)) else {
                    return;
                };
                outside.with_bytes(|outside| outside.copy_from_slice(&bytes));
                let address = outside.address();
                let counted = Counted::new(Vec::new(), &self.world.owners);
                let owner = Box::new((outside, counted));
                // SAFETY: the block is the owner's, and has no other user.
                unsafe { subject.memory.adopt_device(&queue, address, len, owner) }
            }
        };
        if self.world.hear(adopted).is_some() {
            subject.shadow.write(0, &bytes, self.by);
        }
    }

    fn give_back(&mut self, draw: &mut Draw) {
        let subject = self.world.memory(draw);
        let place = match draw.below(DEVICES + 1) {
            0 => Location::Host,
            device => Location::Device(self.world.devices[device - 1].id()),
        };
        let Some(_entered) = subject.enter(&(0..subject.shadow.len())) else {
            return;
        };
        self.says(&format!("giving back {place}"));
        let memory = &subject.memory;
        let done = match draw.below(4) {
            0 | 1 => memory.evict(place, ..),
            2 => memory.evict_clean(place, ..),
            _ => {
                memory.shrink();
                Ok(())
            }
        };
        self.world.hear(done);
        let _ = (memory.head(), memory.stats(), memory.is_initialized());
    }

    /// A new memory, while guards and kernels may still use the old one; some of its guards are leaked.
    fn renew(&mut self, draw: &mut Draw) {
        self.says("renewing a memory");
        let subject = self.world.memory(draw);
        // In a world without failures everything must be freed in the end.
        if self.world.is_faulty && draw.one_in(4) {
            self.leak(draw, &subject);
        }
        let new = Subject::fresh(draw, &self.world.pool);
        self.world.renew_memory(draw, new);
    }

    /// A kernel reads under a token that is never dropped.
    fn leak(&mut self, draw: &mut Draw, subject: &Subject) {
        let queue = self.world.queue(draw);
        let range = draw.range(subject.shadow.len());
        // Without this a copy to these bytes may be done and not yet be in the shadow.
        let Some(_entered) = subject.enter(&range) else {
            return;
        };
        let token = subject.memory.device(&queue, range.clone());
        if let Some(token) = self.world.hear(token) {
            let expected = subject.shadow.expected(range);
            let what = "a kernel under a leaked token";
            self.world.launch_read(what, &token, &expected);
            std::mem::forget(token);
        }
    }

    /// A slice of the stack, to a device and back.
    fn lend(&mut self, draw: &mut Draw) {
        self.says("lending a slice");
        let mut bytes = draw.bytes(40);
        let shadow = Shadow::zeros(40);
        shadow.write(0, &bytes, self.by);
        let ended = scope(|scope| {
            let mut lent = scope.lend_mut(&mut bytes);
            for _ in 0..4 {
                let (queue, range) = (self.world.queue(draw), draw.range(40));
                let new = draw.bytes(range.len());
                match draw.below(3) {
                    0 => {
                        let token = lent.device(&queue, range.clone());
                        if let Some(token) = self.world.hear(token) {
                            let expected = shadow.expected(range);
                            self.world.launch_read("a kernel on a lent slice", &token, &expected);
                        }
                    }
                    1 => {
                        let token = lent.device_overwrite(&queue, range.clone());
                        if let Some(mut token) = self.world.hear(token) {
                            self.world.launch_write("", &mut token, None, &new);
                            shadow.write(range.start, &new, self.by);
                        }
                    }
                    _ => {
                        let slice = lent.host_mut(range.clone());
                        if let Some(slice) = self.world.hear(slice) {
                            self.compare("a lent slice", &shadow.expected(range.clone()), slice);
                            slice.copy_from_slice(&new);
                            shadow.write(range.start, &new, self.by);
                        }
                    }
                }
            }
        });
        // Otherwise the slice holds older bytes, as the scope has said.
        if self.world.hear(ended).is_some() {
            self.compare("what was lent", &shadow.expected(0..40), &bytes);
        }
    }

    /// A queue on which work was lost fails for good, and so do those that wait for it.
    fn break_queue(&mut self, draw: &mut Draw) {
        if !self.world.is_faulty || !draw.one_in(4) {
            return;
        }
        self.says("breaking a queue");
        let queue = self.world.queue(draw);
        // Where kernels run at once the failure is told here.
        let _ = launch(&*queue, [], |_| resume_unwind(Box::new("broken on purpose")));
        Counts::one(&self.world.counts.broken);
    }
}
