//! What must hold after each step of a program over shared memories, after a failure, and at the end.

use std::ops::Range;

use synced_mem::Error;

use crate::model::{DEVICES, Model, Refusal};
use crate::rig::insist;
use crate::subject::Subject;
use crate::world::{Guard, World};

impl World {
    /// Where everything is valid; asked only where a step may fail.
    pub(crate) fn before(&self, memory: usize) -> Vec<[bool; 1 + DEVICES]> {
        if self.rules.failures {
            self.subjects[memory].validity(&self.rig, self.models[memory].cells())
        } else {
            Vec::new()
        }
    }

    /// Compares a result with what the model says, and lets the model take the step if it was taken.
    pub(crate) fn agree<T, R>(
        &mut self,
        memory: usize,
        result: Result<T, Error>,
        before: Vec<[bool; 1 + DEVICES]>,
        predict: impl FnOnce(&mut Model) -> Result<R, Refusal>,
    ) -> Option<(T, R)> {
        let mut model = self.models[memory].clone();
        let refusal = match (result, predict(&mut model)) {
            (Ok(done), Ok(predicted)) => {
                self.models[memory] = model;
                return Some((done, predicted));
            }
            (Err(Error::Device { .. } | Error::DeviceOutOfMemory { .. }), _) if self.rules.failures => {
                // What a queue that failed was to bring to the host may not have arrived, and a device's copy that it
                // used is given up where others hold its bytes.
                self.check_nothing_lost(memory, &before, 0..1 + DEVICES);
                return None;
            }
            // Without the model's validity, whether a copy is the only one is not known.
            (Ok(_), Err(Refusal::OnlyCopy)) if !self.rules.exact => return None,
            (Err(Error::OnlyCopy { .. }), Ok(_)) if !self.rules.exact => return None,
            (Err(Error::Conflict { .. }), Err(refusal @ Refusal::Conflict)) => refusal,
            (Err(Error::OnlyCopy { .. }), Err(refusal @ Refusal::OnlyCopy)) => refusal,
            (Err(error), Ok(_)) => panic!("{error}, but the model says it works"),
            (result, Err(refusal)) => {
                panic!("the model says {refusal:?}, but: {:?}", result.map(|_| "done"))
            }
        };
        assert!(matches!(refusal, Refusal::Conflict | Refusal::OnlyCopy));
        None
    }

    /// After a failure: a valid cell is valid somewhere, and no site has less but for those that may.
    pub(crate) fn check_nothing_lost(&self, memory: usize, before: &[[bool; 1 + DEVICES]], may_lose: Range<usize>) {
        let after = self.subjects[memory].validity(&self.rig, before.len());
        for (cell, (before, after)) in before.iter().zip(after).enumerate() {
            let lost = (0..=DEVICES).filter(|site| before[*site] && !after[*site]);
            for site in lost {
                let elsewhere = after.contains(&true);
                assert!(may_lose.contains(&site) && elsewhere, "cell {cell}: {before:?} became {after:?}");
            }
        }
    }

    /// What must hold between any two steps.
    pub(crate) fn check(&self) {
        for held in &self.guards {
            let subject = &self.subjects[held.memory];
            let expected = subject.content(&self.models[held.memory].values[held.range.clone()]);
            match &held.guard {
                Guard::HostRef(bytes) => assert_eq!(**bytes, expected, "under a guard"),
                Guard::HostMut(bytes) => assert_eq!(**bytes, expected, "under a guard"),
                Guard::DeviceRef(_) | Guard::DeviceMut(_) => {}
            }
        }
        self.bounded.iter().for_each(|memory| self.check_bound(*memory));
        for (subject, model) in self.subjects.iter().zip(&self.models) {
            if self.rules.exact {
                self.check_exactly(subject, model);
            } else if self.step.is_multiple_of(4) {
                // A lost cell stays lost, so there is no need to ask each time.
                self.check_touched(subject, model);
            }
        }
    }

    pub(crate) fn check_exactly(&self, subject: &Subject, model: &Model) {
        let found = subject.validity(&self.rig, model.cells());
        let of = |cell| std::array::from_fn(|site: usize| model.is_valid_at(site.checked_sub(1), cell));
        let expected: Vec<[bool; 1 + DEVICES]> = (0..model.cells()).map(of).collect();
        assert_eq!(found, expected, "valid on the host and the devices, by cell");
        let (stats, moved) = (subject.memory.stats(), model.moved);
        let found = [stats.uploads, stats.downloads, stats.device_copies, stats.host_copies, stats.fills];
        let cells = [moved.uploaded, moved.downloaded, moved.across, moved.on_host, moved.filled];
        let expected = cells.map(|cells| cells * subject.scale as u64);
        assert_eq!(found.map(|traffic| traffic.bytes), expected, "up, down, across, on the host, filled");
    }

    pub(crate) fn check_touched(&self, subject: &Subject, model: &Model) {
        for cell in (0..model.cells()).filter(|cell| model.is_touched(*cell)) {
            let mut sites = (0..=DEVICES).map(|site| site.checked_sub(1));
            assert!(sites.any(|site| subject.is_valid(&self.rig, site, cell)), "cell {cell} is lost");
        }
    }

    /// No copy has more than 16 ranges, if no guard kept a gap open and no failure did.
    pub(crate) fn check_bound(&self, memory: usize) {
        let (subject, model) = (&self.subjects[memory], &self.models[memory]);
        let kept = self.guards.iter().any(|held| held.memory == memory) || subject.leaked;
        if self.rules.exact || self.rules.failures || kept {
            return;
        }
        let validity = subject.validity(&self.rig, model.cells());
        for site in usize::from(subject.adopted)..=DEVICES {
            let valid: Vec<bool> = validity.iter().map(|sites| sites[site]).collect();
            let starts = |cell: &usize| valid[*cell] && (*cell == 0 || !valid[*cell - 1]);
            let ranges = (0..valid.len()).filter(starts).count();
            assert!(ranges <= 16, "{ranges} ranges at site {site}");
        }
    }

    // ---- the end ----

    pub(crate) fn finish(mut self) {
        self.check_watches();
        while self.take(0).is_some() {}
        self.rig.devices.iter().for_each(|device| device.set_limit(usize::MAX));
        for memory in 0..self.subjects.len() {
            self.read_devices(memory);
            self.read_host(memory);
        }
        self.rig.settle();
        self.check_watches();
        let told = self.subjects.iter().any(|subject| subject.watch.has_leaks());
        let leaked = told || self.subjects.iter().any(|subject| subject.leaked);
        let watches: Vec<_> = self.subjects.drain(..).map(|subject| subject.end()).collect();
        let leaked = leaked || watches.iter().any(|watch| watch.has_leaks());
        self.rig.settle();
        if !leaked {
            self.rig.assert_all_freed();
        }
    }

    pub(crate) fn check_watches(&self) {
        for subject in &self.subjects {
            subject.watch.check(&subject.memory.stats());
        }
    }

    /// Everything that is valid on a device has the newest value there.
    pub(crate) fn read_devices(&self, memory: usize) {
        let (subject, model) = (&self.subjects[memory], &self.models[memory]);
        for (queue, cell) in (0..2 * DEVICES).flat_map(|queue| (0..model.cells()).map(move |cell| (queue, cell))) {
            let range = cell..cell + 1;
            if !subject.is_valid(&self.rig, Some(queue / 2), cell) || model.check(&range, false).is_err() {
                continue;
            }
            let read = || subject.memory.device(&self.rig.queues[queue], subject.bytes(&range));
            let token = if self.rules.panics { read().ok() } else { Some(insist(read)) };
            let expected = subject.content(&model.values[range.clone()]);
            token.iter().for_each(|token| self.rig.read(token, &expected));
        }
    }

    pub(crate) fn read_host(&self, memory: usize) {
        let (subject, model) = (&self.subjects[memory], &self.models[memory]);
        for cell in 0..model.cells() {
            let range = cell..cell + 1;
            if model.check(&range, false).is_err() {
                continue;
            }
            let read = || subject.memory.host(subject.bytes(&range));
            let bytes = if self.rules.panics { read().ok() } else { Some(insist(read)) };
            let expected = subject.content(&model.values[range.clone()]);
            bytes.iter().for_each(|bytes| assert_eq!(**bytes, expected, "cell {cell} at the end"));
        }
    }
}
