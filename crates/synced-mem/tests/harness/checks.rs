//! What must hold after each step of a program, and at the end.

use std::sync::atomic::Ordering;

use super::op::{DEVICES, Op, SITES};
use super::owned::Owned;
use super::shadow::By;
use super::worker::{Guard, Worker};
use super::world::{Subject, World};

impl World {
    /// Runs a program on one thread, step by step beside the model.
    pub(crate) fn run(self, program: &[Op]) {
        let cells = self.memory(0).cells();
        let own = if self.tapes.is_empty() { Owned::modelled(cells) } else { Owned::of_origin(self.tapes.tape(cells)) };
        let mut worker = Worker::new(&self, 0, own.sharing(self.sharing), &|_| ());
        for op in program {
            worker.step(op);
            worker.check();
            worker.own.check(&self);
            self.check(&worker);
        }
        self.check_watches();
        worker.let_go();
        let notes = self.end();
        assert_eq!(notes, [""; 0]);
    }

    /// What must hold between any two steps of one thread.
    fn check(&self, worker: &Worker<'_>) {
        assert_eq!(self.notes.texts(), [""; 0]);
        worker.bounded.iter().for_each(|subject| self.check_bound(worker, subject));
        for memory in 0..self.memories.len() {
            let subject = self.memory(memory);
            let Some(model) = subject.model() else { continue };
            if self.rules.exact {
                model.check_validity(|site, cell| subject.is_valid(self, site, cell));
                model.check_moved(&subject.memory.stats(), subject.scale as u64);
            } else if worker.by.step.is_multiple_of(4) {
                // A lost cell stays lost, so there is no need to ask each time.
                for cell in (0..model.cells()).filter(|cell| model.is_touched(*cell)) {
                    let mut sites = (0..SITES).map(|site| site.checked_sub(1));
                    assert!(sites.any(|site| subject.is_valid(self, site, cell)), "cell {cell} is lost");
                }
            }
        }
    }

    /// No copy has more than 16 ranges, if no guard kept a gap open and no failure did.
    fn check_bound(&self, worker: &Worker<'_>, subject: &Subject) {
        let is_held = worker.held.iter().any(|held| std::ptr::eq(&*held.subject, subject));
        if self.rules.exact || self.rules.failures || is_held || subject.leaked.load(Ordering::SeqCst) {
            return;
        }
        let validity = subject.validity(self);
        for site in usize::from(subject.adopted.load(Ordering::SeqCst))..=DEVICES {
            let valid: Vec<bool> = validity.iter().map(|sites| sites[site]).collect();
            let ranges = (0..valid.len()).filter(|cell| valid[*cell] && (*cell == 0 || !valid[*cell - 1])).count();
            assert!(ranges <= 16, "{ranges} ranges at site {site}");
        }
    }

    fn check_watches(&self) {
        for memory in 0..self.memories.len() {
            let subject = self.memory(memory);
            subject.watch.iter().for_each(|watch| watch.check(&subject.memory.stats()));
        }
    }

    /// All threads have ended: everything is settled, compared and freed. Returns what was found.
    pub(crate) fn end(&self) -> Vec<String> {
        self.devices.iter().for_each(|device| device.set_limit(usize::MAX));
        // One thread's work is left as it is, so that the reads below have to wait for what is pending.
        if self.rules.threads {
            self.settle();
        }
        for memory in 0..self.memories.len() {
            let subject = self.memory(memory);
            self.read_devices(&subject);
            self.read_host(&subject, memory);
        }
        self.settle();
        self.check_watches();
        let mut leaked = self.leaked.load(Ordering::SeqCst) || self.rules.threads && self.rules.failures;
        for memory in 0..self.memories.len() {
            let watch = self.memory(memory).watch.clone();
            self.renew_memory(memory, Subject::empty());
            if let Some(watch) = watch {
                watch.let_go();
                leaked |= watch.has_leaks();
            }
        }
        self.settle();
        for (index, device) in self.devices.iter().enumerate() {
            let report = device.report();
            // Where waiting failed, memory is leaked, and said to be.
            if !leaked && (report.live_blocks, report.bytes_in_use) != (0, 0) {
                self.notes.add(format!("device {index} keeps {} blocks", report.live_blocks));
            }
        }
        for budget in self.budgets.iter().filter(|budget| !leaked && budget.stats().in_use > 0) {
            self.notes.add(format!("of memories that are gone: {budget:?}"));
        }
        let owners = self.owners.load(Ordering::SeqCst);
        if !leaked && owners > 0 {
            self.notes.add(format!("{owners} owners were not dropped"));
        }
        self.notes.texts()
    }

    /// Everything that is valid on a device has the newest value there, of memories that one thread used.
    fn read_devices(&self, subject: &Subject) {
        let cells = if self.rules.threads { 0 } else { subject.cells() };
        for (queue, cell) in (0..2 * DEVICES).flat_map(|queue| (0..cells).map(move |cell| (queue, cell))) {
            let range = cell..cell + 1;
            let is_borrowed = subject.model().is_some_and(|model| model.check(&range, false).is_err());
            if is_borrowed || !subject.is_valid(self, Some(queue / 2), cell) {
                continue;
            }
            let read = || subject.memory.device(&self.queue(queue), subject.bytes(&range));
            let token = if self.rules.panics { read().ok() } else { self.insist(read) };
            let expected = subject.shadow.expected(subject.bytes(&range));
            token.iter().for_each(|token| self.launch_read("on a device at the end", token, &expected));
        }
    }

    fn read_host(&self, subject: &Subject, memory: usize) {
        for cell in 0..subject.cells() {
            let range = cell..cell + 1;
            if subject.model().is_some_and(|model| model.check(&range, false).is_err()) {
                continue;
            }
            let read = || subject.memory.host(subject.bytes(&range));
            // Leaked borrows and broken queues keep threads from bytes for good.
            let may_fail = self.rules.panics || self.rules.threads && self.rules.failures || !self.budgets.is_empty();
            let bytes = if may_fail { (0..3).find_map(|_| read().ok()) } else { self.insist(read) };
            let expected = subject.shadow.expected(subject.bytes(&range));
            bytes.iter().for_each(|bytes| self.notes.compare(&format!("memory {memory} at the end"), &expected, bytes));
        }
    }
}

impl Worker<'_> {
    /// Under guards nothing changes but by the guard, and nothing moves.
    pub(crate) fn check(&self) {
        for held in &self.held {
            let (Guard::HostRef(_) | Guard::HostMut(_)) = &held.guard else { continue };
            let expected = held.subject.shadow.expected(held.subject.bytes(&held.range));
            let found: &[u8] = match &held.guard {
                Guard::HostRef(bytes) => bytes,
                Guard::HostMut(bytes) => bytes,
                _ => continue,
            };
            self.world.notes.compare("under a guard", &expected, found);
        }
    }

    /// Drops all guards, and compares the own memory.
    pub(crate) fn let_go(mut self) {
        while self.take(0).is_some() {}
        let by = By { step: self.by.step + 1, ..self.by };
        self.own.finish(self.world, by);
    }
}
