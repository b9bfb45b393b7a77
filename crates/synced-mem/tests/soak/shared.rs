//! The steps of a thread: what it does to a range of a shared memory, and the guards that it keeps over several steps.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use synced_mem::loopback::{Fault, Operation};
use synced_mem::{Device, DeviceRef, HostMut, HostRef, Location};

use super::draw::Draw;
use super::owned::Owned;
use super::shadow::{By, Expected};
use super::watch::Watch;
use super::world::{Counts, DEVICES, Subject, World};

pub(crate) struct Worker<'a> {
    pub(crate) world: &'a World,
    watch: &'a Watch,
    pub(crate) by: By,
    held: Vec<Held>,
    owned: Owned,
}

/// A guard that outlives its step.
enum Held {
    Read { guard: HostRef, address: usize, expected: Expected },
    Write { guard: HostMut, subject: Arc<Subject>, range: Range<usize> },
    Device { token: DeviceRef<'static>, expected: Expected },
}

/// How many are kept at most.
const MAX_HELD: usize = 4;

impl<'a> Worker<'a> {
    pub(crate) fn new(world: &'a World, watch: &'a Watch, thread: usize) -> Self {
        Self { world, watch, by: By { thread, step: 0 }, held: Vec::new(), owned: Owned::new() }
    }

    pub(crate) fn work(mut self, steps: u64) {
        for step in 1..=steps {
            self.by.step = step;
            if self.world.notes.any() {
                break;
            }
            let mut draw = Draw::new(&[self.world.seed, self.by.thread as u64, step]);
            self.step(&mut draw);
            Counts::one(&self.world.counts.steps);
        }
        self.says("letting go");
        while !self.held.is_empty() {
            self.let_go(0, &mut Draw::new(&[self.world.seed]));
        }
    }

    pub(crate) fn says(&self, what: &str) {
        let By { thread, step } = self.by;
        self.watch.says(thread, format!("step {step}: {what}"));
    }

    /// Whether one thread was asked for: then a run is the same each time.
    pub(crate) fn is_alone(&self) -> bool {
        self.watch.threads() == 1
    }

    fn step(&mut self, draw: &mut Draw) {
        match draw.below(100) {
            0..6 => self.look_at_held(draw),
            6..12 if !self.held.is_empty() => {
                let index = draw.below(self.held.len());
                self.let_go(index, draw);
            }
            12..70 => self.borrow(draw),
            70..72 => {
                self.says("renewing a queue");
                self.world.renew_queue(draw);
            }
            72..75 => self.inject(draw),
            75..85 => self.whole(draw),
            85..100 => self.step_alone(draw),
            _ => {}
        }
    }

    fn step_alone(&mut self, draw: &mut Draw) {
        let mut owned = std::mem::take(&mut self.owned);
        owned.step(self, draw);
        self.owned = owned;
    }

    /// Tells a call to fail, or memory to be scarce, on some device.
    fn inject(&self, draw: &mut Draw) {
        self.says("telling a failure");
        let device = &self.world.devices[draw.below(DEVICES)];
        match draw.below(12) {
            0 if self.world.is_faulty => device.set_limit(draw.below(4096)),
            1 => device.set_limit(usize::MAX),
            _ => self.fail(draw),
        }
    }

    /// Tells a call to fail, on some device, where calls may.
    pub(crate) fn fail(&self, draw: &mut Draw) {
        const OPERATIONS: [Operation; 10] = [
            Operation::Queue,
            Operation::Alloc,
            Operation::Adopt,
            Operation::Upload,
            Operation::Download,
            Operation::Copy,
            Operation::Fill,
            Operation::Wait,
            Operation::Synchronize,
            Operation::Launch,
        ];
        if self.world.is_faulty {
            let device = &self.world.devices[draw.below(DEVICES)];
            device.fail(OPERATIONS[draw.below(10)], 1 + draw.below(3) as u64, Fault::Refused);
            Counts::one(&self.world.counts.injected);
        }
    }

    /// Borrows a range in one of the ways there are, and uses it.
    fn borrow(&mut self, draw: &mut Draw) {
        let subject = self.world.memory(draw);
        let range = draw.range(subject.shadow.len());
        let Some(_entered) = subject.enter(&range) else {
            return;
        };
        let patience = match draw.below(6) {
            0 if !self.is_alone() => Duration::from_micros(draw.below(500) as u64),
            _ => Duration::ZERO,
        };
        match draw.below(12) {
            0..3 => self.host_read(draw, &subject, patience, range),
            3 => self.host_write(draw, &subject, patience, range),
            4 | 5 => self.host_overwrite(draw, &subject, patience, range),
            6 | 7 => self.device_read(draw, &subject, patience, range),
            8 => self.device_write(draw, &subject, patience, range),
            9 | 10 => self.device_overwrite(draw, &subject, patience, range),
            _ => self.move_bytes(draw, &subject, range),
        }
    }

    fn host_read(&mut self, draw: &mut Draw, subject: &Subject, patience: Duration, at: Range<usize>) {
        self.says(&format!("host {at:?}"));
        let Some(guard) = self.world.hear(subject.memory.with_timeout(patience, |memory| memory.host(at.clone())))
        else {
            return;
        };
        let expected = subject.shadow.expected(at);
        self.compare("host", &expected, &guard);
        if draw.one_in(3) && self.held.len() < MAX_HELD {
            let address = guard.as_ptr().addr();
            self.held.push(Held::Read { guard, address, expected });
        }
    }

    fn host_write(&mut self, draw: &mut Draw, subject: &Subject, patience: Duration, at: Range<usize>) {
        self.says(&format!("host_mut {at:?}"));
        let Some(mut guard) =
            self.world.hear(subject.memory.with_timeout(patience, |memory| memory.host_mut(at.clone())))
        else {
            return;
        };
        self.compare("host_mut", &subject.shadow.expected(at.clone()), &guard);
        let part = draw.range(guard.len());
        let bytes = draw.bytes(part.len());
        guard[part.clone()].copy_from_slice(&bytes);
        subject.shadow.write(at.start + part.start, &bytes, self.by);
    }

    fn host_overwrite(&mut self, draw: &mut Draw, subject: &Arc<Subject>, patience: Duration, range: Range<usize>) {
        self.says(&format!("host_overwrite {range:?}"));
        let Some(mut guard) =
            self.world.hear(subject.memory.with_timeout(patience, |memory| memory.host_overwrite(range.clone())))
        else {
            return;
        };
        let bytes = draw.bytes(range.len());
        guard.copy_from_slice(&bytes);
        subject.shadow.write(range.start, &bytes, self.by);
        if draw.one_in(6) && self.held.len() < MAX_HELD {
            let subject = Arc::clone(subject);
            self.held.push(Held::Write { guard, subject, range });
        }
    }

    fn device_read(&mut self, draw: &mut Draw, subject: &Subject, patience: Duration, at: Range<usize>) {
        let queue = self.world.queue(draw);
        self.says(&format!("device {at:?} on {}", queue.id()));
        let Some(token) =
            self.world.hear(subject.memory.with_timeout(patience, |memory| memory.device(&queue, at.clone())))
        else {
            return;
        };
        let expected = subject.shadow.expected(at);
        let what = format!("a kernel that {:?} launched", self.by);
        self.world.launch_read(&what, &token, &expected);
        if draw.one_in(4) && self.held.len() < MAX_HELD {
            self.held.push(Held::Device { token, expected });
        }
    }

    fn device_write(&mut self, draw: &mut Draw, subject: &Subject, patience: Duration, at: Range<usize>) {
        let queue = self.world.queue(draw);
        self.says(&format!("device_mut {at:?} on {}", queue.id()));
        let Some(mut token) =
            self.world.hear(subject.memory.with_timeout(patience, |memory| memory.device_mut(&queue, at.clone())))
        else {
            return;
        };
        let before = subject.shadow.expected(at.clone());
        let bytes = draw.bytes(at.len());
        let what = format!("a kernel that {:?} launched to write", self.by);
        self.world.launch_write(&what, &mut token, Some(&before), &bytes);
        subject.shadow.write(at.start, &bytes, self.by);
    }

    fn device_overwrite(&mut self, draw: &mut Draw, subject: &Subject, patience: Duration, at: Range<usize>) {
        let queue = self.world.queue(draw);
        self.says(&format!("device_overwrite {at:?} on {}", queue.id()));
        let Some(mut token) = self
            .world
            .hear(subject.memory.with_timeout(patience, |memory| memory.device_overwrite(&queue, at.clone())))
        else {
            return;
        };
        let bytes = draw.bytes(at.len());
        self.world.launch_write("", &mut token, None, &bytes);
        subject.shadow.write(at.start, &bytes, self.by);
    }

    /// What has no effect on what is read: prefetches, evictions, questions.
    fn move_bytes(&mut self, draw: &mut Draw, subject: &Subject, range: Range<usize>) {
        let queue = self.world.queue(draw);
        let place = match draw.below(DEVICES + 1) {
            0 => Location::Host,
            device => Location::Device(self.world.devices[device - 1].id()),
        };
        self.says(&format!("moving {range:?}, {place}"));
        let memory = &subject.memory;
        let done = match draw.below(7) {
            0 => memory.device(&queue, range).map(drop),
            1 => memory.prefetch_host(range),
            2 | 3 => memory.evict(place, range),
            4 => memory.check_write(range),
            5 => {
                memory.valid_on(place, range);
                Ok(())
            }
            _ => queue.synchronize(),
        };
        self.world.hear(done);
    }

    fn look_at_held(&mut self, draw: &mut Draw) {
        self.says("looking at what it holds");
        for held in &mut self.held {
            match held {
                Held::Read { guard, address, expected } => {
                    if guard.as_ptr().addr() != *address {
                        self.world.notes.add("a held slice has moved".to_string());
                    }
                    self.world.notes.compare("a held slice", expected, guard);
                }
                Held::Write { guard, subject, range } => {
                    let bytes = draw.bytes(range.len());
                    guard.copy_from_slice(&bytes);
                    subject.shadow.write(range.start, &bytes, self.by);
                }
                Held::Device { token, expected } => {
                    self.world.launch_read("a kernel under a held token", token, expected);
                }
            }
            Counts::one(&self.world.counts.comparisons);
        }
    }

    fn let_go(&mut self, index: usize, draw: &mut Draw) {
        self.look_at_held(draw);
        self.says("letting go of a guard");
        drop(self.held.swap_remove(index));
    }

    pub(crate) fn compare(&self, what: &str, expected: &Expected, found: &[u8]) {
        Counts::one(&self.world.counts.comparisons);
        let By { thread, step } = self.by;
        let what = format!("thread {thread}, step {step}, {what}");
        self.world.notes.compare(&what, expected, found);
    }
}
