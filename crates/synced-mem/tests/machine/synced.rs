//! The same for memories with one owner: plain slices, and tokens that are used for a while, or forgotten.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use synced_mem::loopback::Mode;
use synced_mem::{Error, HostBuffer, Location, SyncedMem};

use crate::cases;
use crate::model::{DEVICES, Intent, Model, Refusal};
use crate::ops::{intents, modes, queues, ranges, sites};
use crate::rig::Rig;

#[derive(Clone, Debug)]
enum Op {
    Host { range: Range<usize>, intent: Intent },
    Device { queue: usize, range: Range<usize>, intent: Intent, launches: u8, forget: bool },
    Slices { first: Range<usize>, second: Range<usize>, queues: [usize; 2] },
    PrefetchHost,
    Evict { site: Option<usize>, range: Range<usize>, refuse: bool },
    Shrink,
    Adopt { fixed: bool },
    Synchronize(usize),
    Scatter { queue: Option<usize>, start: usize, step: usize, count: usize },
}

fn program(cells: usize, scatters: usize) -> impl Strategy<Value = Vec<Op>> {
    let host = (ranges(cells), intents());
    let device = (queues(), ranges(cells), intents(), 0..3u8, any::<bool>());
    let slices = (ranges(cells), ranges(cells), [queues(), queues()]);
    let evict = (sites(), ranges(cells), any::<bool>());
    let on = prop_oneof![Just(None), queues().prop_map(Some)];
    let scatter = (on, 0..8usize, 2..5usize, scatters..=2 * scatters);
    let step = prop_oneof![
        4 => host.prop_map(|(range, intent)| Op::Host { range, intent }),
        8 => device.prop_map(|(queue, range, intent, launches, forget)| {
            Op::Device { queue, range, intent, launches, forget }
        }),
        4 => slices.prop_map(|(first, second, queues)| Op::Slices { first, second, queues }),
        1 => Just(Op::PrefetchHost),
        3 => evict.prop_map(|(site, range, refuse)| Op::Evict { site, range, refuse }),
        1 => Just(Op::Shrink),
        1 => any::<bool>().prop_map(|fixed| Op::Adopt { fixed }),
        1 => queues().prop_map(Op::Synchronize),
        3 => scatter.prop_map(|(queue, start, step, count)| Op::Scatter { queue, start, step, count }),
    ];
    vec(step, 1..40)
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn an_owned_memory_does_exactly_what_the_model_says(mode in modes(), program in program(20, 1)) {
        World::new(mode, 20, true).run(&program);
    }

    #[test]
    fn a_scattered_owned_memory_keeps_its_bytes(mode in modes(), program in program(96, 12)) {
        World::new(mode, 96, false).run(&program);
    }
}

struct World {
    rig: Rig,
    memory: SyncedMem,
    model: Model,
    /// Validity and moved bytes are the model's.
    exact: bool,
    /// A token was forgotten, and its block with it.
    leaked: bool,
    step: u8,
}

impl World {
    fn new(mode: Mode, cells: usize, exact: bool) -> Self {
        let (rig, memory, model) = (Rig::new(mode), SyncedMem::new(cells), Model::new(cells));
        Self { rig, memory, model, exact, leaked: false, step: 0 }
    }

    fn run(mut self, program: &[Op]) {
        for op in program {
            self.step = self.step.wrapping_add(1);
            self.apply(op.clone());
            self.check();
        }
        self.finish();
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Host { range, intent } => self.host(range, intent),
            Op::Device { queue, range, intent: Intent::Read, forget, .. } => self.read(queue, range, forget),
            Op::Device { queue, range, intent, launches, forget } => {
                self.write(queue, range, intent, launches, forget);
            }
            Op::Slices { first, second, queues } => self.slices(first, second, queues),
            Op::PrefetchHost => {
                self.memory.prefetch_host(..).unwrap();
                self.model.prefetch_host(&self.whole()).unwrap();
            }
            Op::Evict { site, range, refuse } => self.evict(site, range, refuse),
            Op::Shrink => self.memory.shrink(),
            Op::Adopt { fixed } => self.adopt(fixed),
            Op::Synchronize(queue) => self.rig.queues[queue].synchronize().unwrap(),
            Op::Scatter { queue, start, step, count } => {
                for cell in (start..self.model.cells()).step_by(step).take(count) {
                    let range = cell..cell + 1;
                    match queue {
                        None => self.host(range, Intent::Write),
                        Some(queue) => self.write(queue, range, Intent::Overwrite, 0, false),
                    }
                }
            }
        }
    }

    fn whole(&self) -> Range<usize> {
        0..self.model.cells()
    }

    // ---- steps ----

    fn host(&mut self, range: Range<usize>, intent: Intent) {
        self.model.host(&range, intent).unwrap();
        let before = self.model.values[range.clone()].to_vec();
        if intent.writes() {
            self.model.write(&range, intent, self.step);
        }
        let after = &self.model.values[range.clone()];
        let bytes = match intent {
            Intent::Read => return assert_eq!(self.memory.host(range).unwrap(), before),
            Intent::Write => self.memory.host_mut(range),
            Intent::Overwrite => self.memory.host_overwrite(range),
        };
        let bytes = bytes.unwrap();
        if intent == Intent::Write {
            assert_eq!(bytes, before, "before a write on the host");
        }
        bytes.copy_from_slice(after);
    }

    fn read(&mut self, queue: usize, range: Range<usize>, forget: bool) {
        self.model.device(queue / 2, &range, Intent::Read).unwrap();
        let expected = &self.model.values[range.clone()];
        let token = self.memory.device(&self.rig.queues[queue], range).unwrap();
        self.rig.read(&token, expected);
        if forget {
            std::mem::forget(token);
            self.leaked = true;
        }
    }

    fn write(&mut self, queue: usize, range: Range<usize>, intent: Intent, launches: u8, forget: bool) {
        self.model.device(queue / 2, &range, intent).unwrap();
        let on = &self.rig.queues[queue];
        let token = match intent {
            Intent::Overwrite => self.memory.device_overwrite(on, range.clone()),
            _ => self.memory.device_mut(on, range.clone()),
        };
        let mut token = token.unwrap();
        let mut known = intent == Intent::Write;
        for launch in 0..=launches {
            let before = self.model.values[range.clone()].to_vec();
            let intent = if known { Intent::Write } else { Intent::Overwrite };
            self.model.write(&range, intent, self.step.wrapping_add(launch));
            let after = &self.model.values[range.clone()];
            self.rig.write(&mut token, known.then_some(&before), after);
            known = true;
        }
        if forget {
            std::mem::forget(token);
            self.leaked = true;
        }
    }

    /// Slices and tokens live side by side while copies are added.
    fn slices(&mut self, first: Range<usize>, second: Range<usize>, queues: [usize; 2]) {
        let (memory, model, rig) = (&self.memory, &mut self.model, &self.rig);
        let [one, other] = queues;
        model.host(&first, Intent::Read).unwrap();
        let slice = memory.host(first.clone()).unwrap();
        model.device(one / 2, &second, Intent::Read).unwrap();
        let token = memory.device(&rig.queues[one], second.clone()).unwrap();
        model.device(other / 2, &first, Intent::Read).unwrap();
        let again = memory.device(&rig.queues[other], first.clone()).unwrap();
        let whole = 0..model.cells();
        model.prefetch_host(&whole).unwrap();
        memory.prefetch_host(..).unwrap();
        rig.read(&token, &model.values[second]);
        model.host(&whole, Intent::Read).unwrap();
        assert_eq!(memory.host(..).unwrap(), model.values);
        rig.read(&again, &model.values[first.clone()]);
        assert_eq!(slice, &model.values[first]);
    }

    fn evict(&mut self, site: Option<usize>, range: Range<usize>, refuse: bool) {
        let (place, whole) = (self.rig.place(site), self.whole());
        let (result, predicted) = if refuse {
            (self.memory.evict_clean(place, ..), self.model.evict(site, &whole, true))
        } else {
            let result = self.memory.evict(place, range.clone());
            (result, self.model.evict(site, &range, false))
        };
        match (result, predicted) {
            (Ok(()), Ok(())) | (Err(Error::OnlyCopy { .. }), Err(Refusal::OnlyCopy)) => {}
            // Where gaps were closed, other copies hold more than the model knows.
            (Ok(()) | Err(Error::OnlyCopy { .. }), _) if !self.exact => {}
            (result, predicted) => panic!("{result:?}, but the model says {predicted:?}"),
        }
    }

    fn adopt(&mut self, fixed: bool) {
        let values: Vec<u8> = self.whole().map(|cell| self.step ^ (cell as u8)).collect();
        if fixed {
            self.memory.adopt(HostBuffer::from_owner(values.clone())).unwrap()
        } else {
            self.memory.adopt(values.clone()).unwrap()
        }
        self.model.adopt(values, fixed).unwrap();
    }

    // ---- comparing ----

    fn is_valid(&self, site: Option<usize>, cell: usize) -> bool {
        let place = self.rig.place(site);
        self.memory.valid_on(place, cell..cell + 1)
    }

    fn check(&self) {
        if !self.exact {
            return;
        }
        for site in (0..=DEVICES).map(|site| site.checked_sub(1)) {
            let found: Vec<bool> = self.whole().map(|cell| self.is_valid(site, cell)).collect();
            let expected: Vec<bool> = self.whole().map(|cell| self.model.is_valid_at(site, cell)).collect();
            assert_eq!(found, expected, "valid at {site:?}");
        }
        let (stats, moved) = (self.memory.stats(), self.model.moved);
        let found = [stats.uploads, stats.downloads, stats.device_copies, stats.host_copies, stats.fills];
        let expected = [moved.uploaded, moved.downloaded, moved.across, moved.on_host, moved.filled];
        assert_eq!(found.map(|traffic| traffic.bytes), expected, "up, down, across, on the host, filled");
    }

    /// Everything that is valid anywhere is right there, and at the end everything is given back.
    fn finish(self) {
        for (queue, cell) in (0..2 * DEVICES).flat_map(|queue| self.whole().map(move |cell| (queue, cell))) {
            if self.is_valid(Some(queue / 2), cell) {
                let token = self.memory.device(&self.rig.queues[queue], cell..cell + 1).unwrap();
                self.rig.read(&token, &self.model.values[cell..cell + 1]);
            }
        }
        for cell in self.whole().filter(|cell| self.is_valid(None, *cell)) {
            let byte = self.memory.host(cell..cell + 1).unwrap();
            assert_eq!(byte, &self.model.values[cell..cell + 1], "cell {cell} on the host");
        }
        assert_eq!(self.memory.host(..).unwrap(), self.model.values);
        assert!(self.memory.valid_on(Location::Host, ..));
        self.rig.settle();
        drop(self.memory);
        self.rig.settle();
        if !self.leaked {
            self.rig.assert_all_freed();
        }
    }
}
