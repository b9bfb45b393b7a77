//! Runs a program over two shared memories and compares each step with the model. How strictly, its rules say.

use std::ops::Range;

use synced_mem::loopback::Fault;
use synced_mem::loopback::Mode;
use synced_mem::{DeviceMut, DeviceRef, Error, HostBuffer, HostMut, HostPool, HostRef, SharedMem, SyncedMem};

use crate::model::{self, DEVICES, Intent, Model, Refusal, Replica};
use crate::ops::Op;
use crate::rig::Rig;
use crate::subject::Subject;

/// What a program must keep to.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Validity and moved bytes are the model's. Else gaps may be closed and ranges given up.
    pub(crate) exact: bool,
    /// Devices may fail. Then only values are certain.
    pub(crate) failures: bool,
    /// Queues may fail for good. Then what can be read at all must be right.
    pub(crate) panics: bool,
}

impl Rules {
    pub(crate) const EXACT: Rules = Rules { exact: true, failures: false, panics: false };
    pub(crate) const SCATTERED: Rules = Rules { exact: false, failures: false, panics: false };
    pub(crate) const FAILING: Rules = Rules { exact: false, failures: true, panics: false };
    pub(crate) const PANICKING: Rules = Rules { exact: false, failures: true, panics: true };
}

pub(crate) struct World {
    pub(crate) rig: Rig,
    pub(crate) rules: Rules,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) models: Vec<Model>,
    pub(crate) guards: Vec<Held>,
    /// Counts steps, to make values.
    pub(crate) step: u8,
    /// The memory whose ranges the step has bounded.
    pub(crate) bounded: Option<usize>,
}

pub(crate) struct Held {
    pub(crate) memory: usize,
    pub(crate) range: Range<usize>,
    pub(crate) borrow: u64,
    pub(crate) guard: Guard,
}

pub(crate) enum Guard {
    HostRef(HostRef),
    HostMut(HostMut),
    DeviceRef(DeviceRef<'static>),
    DeviceMut(DeviceMut<'static>),
}

impl World {
    pub(crate) fn new(mode: Mode, cells: usize, rules: Rules) -> Self {
        let memories = [(); 2].map(|()| SharedMem::new(cells));
        Self::over(mode, cells, 1, memories, rules)
    }

    /// Memories of one pool, which keeps blocks of 4 KiB and more.
    pub(crate) fn pooled(mode: Mode, cells: usize, scale: usize, pool: &HostPool) -> Self {
        let memories = [(); 2].map(|()| SharedMem::from(SyncedMem::new_in(cells * scale, pool)));
        Self::over(mode, cells, scale, memories, Rules::EXACT)
    }

    fn over(mode: Mode, cells: usize, scale: usize, memories: [SharedMem; 2], rules: Rules) -> Self {
        Self {
            rig: Rig::new(mode),
            rules,
            subjects: memories.map(|memory| Subject::new(memory, scale)).into(),
            models: vec![Model::new(cells); 2],
            guards: Vec::new(),
            step: 0,
            bounded: None,
        }
    }

    pub(crate) fn run(mut self, program: &[Op]) {
        for op in program {
            self.step = self.step.wrapping_add(1);
            self.bounded = None;
            self.apply(op);
            self.check();
        }
        self.finish();
    }

    fn apply(&mut self, op: &Op) {
        match op.clone() {
            Op::Host { memory, range, intent, keep } => self.host(memory, &range, intent, keep),
            Op::Device { memory, queue, range, intent, keep } => {
                self.device(memory, queue, &range, intent, keep);
            }
            Op::Again(guard) => self.again(guard),
            Op::Drop(guard) => drop(self.take(guard)),
            Op::Leak(guard) => self.leak(guard),
            Op::PrefetchHost { memory, range } => self.prefetch_host(memory, &range),
            Op::Evict { memory, site, refuse } => self.evict(memory, site, refuse),
            Op::Shrink(memory) => self.subjects[memory].memory.shrink(),
            Op::Adopt { memory, fixed } => self.adopt(memory, fixed),
            Op::Copy { to, at, from, range } => self.copy((to, at), (from, &range)),
            // What fails here fails again where it matters.
            Op::Synchronize(queue) => drop(self.rig.queues[queue].synchronize()),
            Op::Scatter { memory, queue, start, step, count } => {
                let cells = self.models[memory].cells();
                for cell in (start..cells).step_by(step).take(count) {
                    self.scattered(memory, queue, cell);
                }
            }
            Op::Fail { device, operation, nth } => self.rig.devices[device].fail(operation, nth, Fault::Refused),
            Op::Limit { device, blocks } => {
                let bytes = blocks * self.subjects[0].memory.len();
                self.rig.devices[device].set_limit(bytes);
            }
            Op::Panic(queue) => self.rig.panic(queue),
        }
    }

    // ---- steps ----

    fn host(&mut self, memory: usize, range: &Range<usize>, intent: Intent, keep: bool) {
        let subject = &self.subjects[memory];
        let (shared, bytes) = (&subject.memory, subject.bytes(range));
        let before = self.before(memory);
        let result = match intent {
            Intent::Read => shared.host(bytes).map(Guard::HostRef),
            Intent::Write => shared.host_mut(bytes).map(Guard::HostMut),
            Intent::Overwrite => shared.host_overwrite(bytes).map(Guard::HostMut),
        };
        let granted = self.agree(memory, result, before, |model| model.host(range, intent));
        self.grant(memory, range, intent, keep, granted);
    }

    fn device(&mut self, memory: usize, queue: usize, range: &Range<usize>, intent: Intent, keep: bool) {
        let subject = &self.subjects[memory];
        let (shared, bytes) = (&subject.memory, subject.bytes(range));
        let (on, before) = (&self.rig.queues[queue], self.before(memory));
        let result = match intent {
            Intent::Read => shared.device(on, bytes).map(Guard::DeviceRef),
            Intent::Write => shared.device_mut(on, bytes).map(Guard::DeviceMut),
            Intent::Overwrite => shared.device_overwrite(on, bytes).map(Guard::DeviceMut),
        };
        let predict = |model: &mut Model| model.device(queue / 2, range, intent);
        let granted = self.agree(memory, result, before, predict);
        self.grant(memory, range, intent, keep, granted);
    }

    /// Uses a guard that was granted, and keeps it or ends it.
    fn grant(
        &mut self,
        memory: usize,
        range: &Range<usize>,
        intent: Intent,
        keep: bool,
        granted: Option<(Guard, Replica)>,
    ) {
        let Some((guard, replica)) = granted else {
            return;
        };
        let borrow = self.models[memory].borrow(range, intent.writes(), replica);
        let range = range.clone();
        let mut held = Held { memory, range, borrow, guard };
        self.bounded = Some(memory);
        self.work(&mut held, intent);
        if keep { self.guards.push(held) } else { self.models[memory].release(borrow) }
    }

    /// Reads or writes what a guard gives. What is overwritten holds anything.
    fn work(&mut self, held: &mut Held, intent: Intent) {
        let (model, subject) = (&mut self.models[held.memory], &self.subjects[held.memory]);
        let before = subject.content(&model.values[held.range.clone()]);
        let known = (intent != Intent::Overwrite).then_some(&before[..]);
        if intent.writes() {
            model.write(&held.range, intent, self.step);
        }
        let after = subject.content(&model.values[held.range.clone()]);
        match &mut held.guard {
            Guard::HostRef(bytes) => assert_eq!(**bytes, before, "read on the host"),
            Guard::HostMut(bytes) => {
                known.inspect(|known| assert_eq!(**bytes, **known, "written on the host"));
                bytes.copy_from_slice(&after);
            }
            Guard::DeviceRef(token) => self.rig.read(token, &before),
            Guard::DeviceMut(token) => self.rig.write(token, known, &after),
        }
    }

    fn again(&mut self, guard: usize) {
        if self.guards.is_empty() {
            return;
        }
        let guard = guard % self.guards.len();
        let mut held = self.guards.swap_remove(guard);
        let writes = matches!(held.guard, Guard::HostMut(_) | Guard::DeviceMut(_));
        self.work(&mut held, if writes { Intent::Write } else { Intent::Read });
        self.guards.push(held);
    }

    /// A guard, about to be dropped.
    pub(crate) fn take(&mut self, guard: usize) -> Option<Guard> {
        let guard = guard.checked_rem(self.guards.len())?;
        let held = self.guards.swap_remove(guard);
        self.models[held.memory].release(held.borrow);
        Some(held.guard)
    }

    fn leak(&mut self, guard: usize) {
        if let Some(guard) = guard.checked_rem(self.guards.len()) {
            let held = self.guards.swap_remove(guard);
            // An empty range conflicts with none, but a host guard holds the memory all the same.
            self.subjects[held.memory].leaked = true;
            std::mem::forget(held.guard);
        }
    }

    fn prefetch_host(&mut self, memory: usize, range: &Range<usize>) {
        let (subject, before) = (&self.subjects[memory], self.before(memory));
        let result = subject.memory.prefetch_host(subject.bytes(range));
        self.agree(memory, result, before, |model| model.prefetch_host(range));
    }

    fn evict(&mut self, memory: usize, site: Option<usize>, refuse: bool) {
        let (shared, before) = (&self.subjects[memory].memory, self.before(memory));
        let place = self.rig.place(site);
        let result = if refuse { shared.evict_clean(place, ..) } else { shared.evict(place, ..) };
        let whole = 0..self.models[memory].cells();
        self.agree(memory, result, before, |model| model.evict(site, &whole, refuse));
    }

    fn adopt(&mut self, memory: usize, fixed: bool) {
        let (cells, before) = (self.models[memory].cells(), self.before(memory));
        let values: Vec<u8> = (0..cells).map(|cell| self.step ^ (cell as u8)).collect();
        let subject = &mut self.subjects[memory];
        let bytes = subject.content(&values);
        subject.adopted |= fixed;
        let result =
            if fixed { subject.memory.adopt(HostBuffer::from_owner(bytes)) } else { subject.memory.adopt(bytes) };
        self.agree(memory, result, before, |model| model.adopt(values, fixed));
    }

    fn copy(&mut self, (to, at): (usize, usize), (from, range): (usize, &Range<usize>)) {
        let (target, source) = (&self.subjects[to], &self.subjects[from]);
        let before = [to, from].map(|memory| self.before(memory));
        let at_byte = at * target.scale;
        let result = target.memory.copy_from(at_byte, &source.memory, source.bytes(range));
        let mut models = self.models.clone();
        let predicted = model::copy(&mut models, (to, at), (from, range));
        match (result, predicted) {
            (Err(Error::Device { .. } | Error::DeviceOutOfMemory { .. }), _) if self.rules.failures => {
                for (memory, before) in [to, from].into_iter().zip(before) {
                    // What a copy that failed may have written is given up there.
                    self.check_nothing_lost(memory, &before, 0..1 + DEVICES);
                }
            }
            (Ok(()), Ok(())) | (Err(Error::Conflict { .. }), Err(Refusal::Conflict)) => self.models = models,
            // The model does not know whether bytes that were never written have been read; then ranges that overlap
            // matter.
            (Err(Error::Conflict { .. }), Ok(())) if !self.rules.exact && to == from => {}
            (result, predicted) => panic!("{result:?}, but the model says {predicted:?}"),
        }
    }

    fn scattered(&mut self, memory: usize, queue: Option<usize>, cell: usize) {
        let range = cell..cell + 1;
        match queue {
            None => self.host(memory, &range, Intent::Write, false),
            Some(queue) => self.device(memory, queue, &range, Intent::Overwrite, false),
        }
    }
}
