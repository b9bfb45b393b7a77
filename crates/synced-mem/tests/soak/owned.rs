//! Steps on a memory with a single owner: the same accesses, and readers on two threads under `&self` whose plain
//! slices must stay as they are whatever the others bring.

use std::ops::Range;
use std::thread;

use synced_mem::{HostBuffer, Location, SharedMem, SyncedMem};

use super::draw::Draw;
use super::shadow::Shadow;
use super::shared::Worker;
use super::whole::Counted;
use super::world::Subject;

pub(crate) struct Owned {
    memory: SyncedMem,
    shadow: Shadow,
}

impl Default for Owned {
    fn default() -> Self {
        Self::new()
    }
}

impl Owned {
    pub(crate) fn new() -> Self {
        Self { memory: SyncedMem::new(0), shadow: Shadow::zeros(0) }
    }

    pub(crate) fn step(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        match draw.below(16) {
            0 => self.renew(worker, draw),
            1..4 => self.write_on_host(worker, draw),
            4..8 => self.write_on_device(worker, draw),
            8 | 9 => self.evict(worker, draw),
            10 => self.adopt(worker, draw),
            11 => self.share(worker, draw),
            12 => self.read_scattered(worker, draw),
            _ => self.read(worker, draw),
        }
    }

    fn renew(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        worker.says("renewing its own memory");
        let len = match draw.below(5) {
            0 => draw.below(4),
            _ => 100 + draw.below(500),
        };
        *self = Self {
            memory: if draw.one_in(2) { SyncedMem::new(len) } else { SyncedMem::new_in(len, &worker.world.pool) },
            shadow: Shadow::zeros(len),
        };
    }

    fn write_on_host(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        let range = draw.range(self.shadow.len());
        let bytes = draw.bytes(range.len());
        worker.says(&format!("its own: writing {range:?} on the host"));
        let is_read = draw.one_in(2);
        let slice =
            if is_read { self.memory.host_mut(range.clone()) } else { self.memory.host_overwrite(range.clone()) };
        let Some(slice) = worker.world.hear(slice) else {
            return;
        };
        if is_read {
            let expected = self.shadow.expected(range.clone());
            worker.compare("host_range_mut", &expected, slice);
        }
        slice.copy_from_slice(&bytes);
        self.shadow.write(range.start, &bytes, worker.by);
    }

    fn write_on_device(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        let (range, queue) = (draw.range(self.shadow.len()), worker.world.queue(draw));
        let bytes = draw.bytes(range.len());
        worker.says(&format!("its own: writing {range:?} on {}", queue.id()));
        let is_read = draw.one_in(2);
        let token = if is_read {
            self.memory.device_mut(&queue, range.clone())
        } else {
            self.memory.device_overwrite(&queue, range.clone())
        };
        let Some(mut token) = worker.world.hear(token) else {
            return;
        };
        let before = is_read.then(|| self.shadow.expected(range.clone()));
        let what = format!("its own kernel that {:?} launched to write", worker.by);
        worker.world.launch_write(&what, &mut token, before.as_ref(), &bytes);
        self.shadow.write(range.start, &bytes, worker.by);
        if worker.world.is_faulty && draw.one_in(5) {
            // Harmless, but its block is never freed: soundness does not rest on the token's destructor.
            std::mem::forget(token);
        }
    }

    fn evict(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        let range = draw.range(self.shadow.len());
        let place =
            if draw.one_in(2) { Location::Host } else { Location::Device(worker.world.queue(draw).device().id()) };
        worker.says(&format!("its own: evicting {range:?} from {place}"));
        let done = match draw.below(4) {
            0 => self.memory.evict(place, ..),
            1 => self.memory.evict_clean(place, ..),
            2 => {
                self.memory.shrink();
                Ok(())
            }
            _ => self.memory.evict(place, range),
        };
        worker.world.hear(done);
    }

    fn adopt(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        worker.says("its own: adopting");
        let bytes = draw.bytes(self.shadow.len());
        let adopted = if draw.one_in(2) {
            self.memory.adopt(bytes.clone())
        } else {
            let owner = Counted::new(bytes.clone(), &worker.world.owners);
            self.memory.adopt(HostBuffer::from_owner(owner))
        };
        if worker.world.hear(adopted).is_some() {
            self.shadow.write(0, &bytes, worker.by);
        }
    }

    /// Gives the memory to all threads, with what is pending on it.
    fn share(&mut self, worker: &Worker<'_>, draw: &mut Draw) {
        worker.says("sharing its own memory");
        let Owned { memory, shadow } = std::mem::take(self);
        let subject = Subject::over(SharedMem::from(memory), shadow);
        worker.world.renew_memory(draw, subject);
    }

    /// Two readers at once, now and then; else one.
    fn read(&self, worker: &Worker<'_>, draw: &mut Draw) {
        worker.says("its own: reading");
        let mut other = Draw::new(&[draw.next()]);
        if draw.one_in(4) && !worker.is_alone() {
            thread::scope(|scope| {
                scope.spawn(|| self.read_some(worker, &mut other));
                self.read_some(worker, draw);
            });
        } else {
            self.read_some(worker, draw);
        }
    }

    /// Single bytes here and there, more than a copy keeps as ranges, while transfers fail.
    fn read_scattered(&self, worker: &Worker<'_>, draw: &mut Draw) {
        let len = self.shadow.len();
        worker.says("its own: reading scattered bytes");
        let mut held = Vec::new();
        for start in (draw.below(4)..len).step_by(3 + draw.below(9)) {
            if draw.one_in(4) {
                worker.fail(draw);
            }
            let range = start..start + 1;
            let bytes = worker.world.hear(self.memory.host(range.clone()));
            held.extend(bytes.map(|bytes| (range, bytes)));
        }
        self.check(worker, &held);
    }

    /// Under `&self`: every slice stays, and what is valid on the host stays valid there.
    fn read_some(&self, worker: &Worker<'_>, draw: &mut Draw) {
        let (world, memory) = (worker.world, &self.memory);
        let mut held = Vec::new();
        for _ in 0..6 {
            let (range, queue) = (draw.range(self.shadow.len()), world.queue(draw));
            match draw.below(8) {
                0 => held.extend(world.hear(memory.host(..)).map(|b| (0..memory.len(), b))),
                1..4 => {
                    let bytes = world.hear(memory.host(range.clone()));
                    held.extend(bytes.map(|bytes| (range, bytes)));
                }
                4 | 5 => {
                    let token = memory.device(&queue, range.clone());
                    if let Some(token) = world.hear(token) {
                        let what = format!("its own kernel that {:?} launched", worker.by);
                        world.launch_read(&what, &token, &self.shadow.expected(range));
                    }
                }
                6 => drop(world.hear(memory.prefetch_host(range))),
                _ => drop(world.hear(memory.device(&queue, ..))),
            }
            self.check(worker, &held);
        }
    }

    fn check(&self, worker: &Worker<'_>, held: &[(Range<usize>, &[u8])]) {
        for (range, bytes) in held {
            let expected = self.shadow.expected(range.clone());
            worker.compare("a plain slice", &expected, bytes);
            if !self.memory.valid_on(Location::Host, range.clone()) {
                let text = format!("{range:?} was given up under a slice, {:?}", worker.by);
                worker.world.notes.add(text);
            }
        }
    }
}
