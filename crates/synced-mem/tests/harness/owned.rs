//! Steps on a memory with a single owner: the same accesses, and readers under `&self` whose plain slices must stay as
//! they are whatever the others bring. Tokens are used for a while, or forgotten.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use synced_mem::{Error, HostBuffer, Location, Origin, SharedMem, SyncedMem};

use super::model::{Model, Refusal};
use super::op::{Adopted, DEVICES, Intent, Op};
use super::shadow::{By, Shadow};
use super::tape::{Tape, pattern};
use super::whole::Counted;
use super::world::{Subject, World, fit};

pub(crate) struct Owned {
    memory: SyncedMem,
    shadow: Shadow,
    /// None beside other threads, which tell failures.
    model: Option<Model>,
}

impl Owned {
    pub(crate) fn of(memory: SyncedMem, shadow: Shadow) -> Self {
        Self { memory, shadow, model: None }
    }

    pub(crate) fn modelled(cells: usize) -> Self {
        Self { model: Some(Model::new(cells)), ..Self::of(SyncedMem::new(cells), Shadow::zeros(cells)) }
    }

    pub(crate) fn of_origin(tape: Arc<Tape>) -> Self {
        let bytes = pattern(0..tape.len());
        let model = Some(Model::of_origin(bytes.len()));
        Self { model, ..Self::of(SyncedMem::of(tape), Shadow::of(&bytes)) }
    }

    /// On devices that share the host's memory, a bit for each.
    pub(crate) fn sharing(mut self, devices: usize) -> Self {
        self.model.iter_mut().for_each(|model| model.sharing = devices);
        self
    }

    pub(crate) fn into_shared(self) -> Subject {
        Subject::shared(SharedMem::from(self.memory), self.shadow)
    }

    pub(crate) fn step(&mut self, world: &World, by: By, op: &Op) {
        let len = self.shadow.len();
        match op.clone() {
            Op::Host { range, intent, .. } => self.host(world, by, &fit(&range, len), intent),
            Op::Device { queue, range, intent, keep, .. } => {
                self.device(world, by, queue, &fit(&range, len), intent, keep);
            }
            Op::PrefetchHost { range, .. } => {
                let range = fit(&range, len);
                let result = self.memory.prefetch_host(range.clone());
                self.agree(world, result, |model| model.prefetch_host(&range));
            }
            Op::Evict { site, range, refuse, .. } => {
                let range = if refuse { 0..len } else { fit(&range, len) };
                let place = world.place(site);
                let result =
                    if refuse { self.memory.evict_clean(place, ..) } else { self.memory.evict(place, range.clone()) };
                self.agree(world, result, |model| model.evict(site, &range, refuse));
            }
            Op::Shrink(_) => self.memory.shrink(),
            Op::Adopt { how, .. } => {
                let (fixed, bytes) = (how == Adopted::ReadOnly, self.shadow.next(&(0..len), Intent::Overwrite, by));
                let owner = fixed.then(|| Counted::new(bytes.clone(), &world.owners));
                let result = match owner {
                    Some(owner) => self.memory.adopt(HostBuffer::from_owner(owner)),
                    None => self.memory.adopt(bytes.clone()),
                };
                self.agree(world, result, |model| model.adopt(fixed));
                self.shadow.write(0, &bytes, by);
            }
            Op::Scatter { queue, start, step, count, .. } => {
                for cell in (start..len).step_by(step).take(count) {
                    let range = cell..cell + 1;
                    match queue {
                        None => self.host(world, by, &range, Intent::Write),
                        Some(queue) => self.device(world, by, queue, &range, Intent::Overwrite, false),
                    }
                }
            }
            other => unreachable!("{other:?} is no step of one owner"),
        }
    }

    /// Compares a result with what the model says. Without a model, an error has to have a reason.
    fn agree<R>(
        &mut self,
        world: &World,
        result: Result<(), Error>,
        predict: impl FnOnce(&mut Model) -> Result<R, Refusal>,
    ) {
        let Some(model) = &mut self.model else {
            world.hear(result);
            return;
        };
        match (result, predict(model)) {
            (Ok(()), Ok(_)) | (Err(Error::OnlyCopy { .. }), Err(Refusal::OnlyCopy)) => {}
            // Where gaps were closed, other copies hold more than the model knows.
            (Ok(()) | Err(Error::OnlyCopy { .. }), _) if !world.rules.exact => {}
            (result, predicted) => panic!("{result:?}, but the model says {:?}", predicted.map(|_| "done")),
        }
    }

    fn host(&mut self, world: &World, by: By, range: &Range<usize>, intent: Intent) {
        if let Some(model) = &mut self.model {
            model.host(range, intent).unwrap();
        }
        let (before, after) = (self.shadow.expected(range.clone()), self.shadow.next(range, intent, by));
        let slice = match intent {
            Intent::Read => {
                let read = world.hear(self.memory.host(range.clone()));
                read.inspect(|read| world.notes.compare("a plain slice", &before, read));
                return;
            }
            Intent::Write => self.memory.host_mut(range.clone()),
            Intent::Overwrite => self.memory.host_overwrite(range.clone()),
        };
        let Some(slice) = world.hear(slice) else {
            return;
        };
        if intent == Intent::Write {
            world.notes.compare("before a write on the host", &before, slice);
        }
        slice.copy_from_slice(&after);
        self.shadow.write(range.start, &after, by);
    }

    fn device(&mut self, world: &World, by: By, queue: usize, range: &Range<usize>, intent: Intent, forget: bool) {
        if let Some(model) = &mut self.model {
            model.device(queue / 2, range, intent).unwrap();
        }
        let on = &world.queue(queue);
        // Harmless, but the block is never freed: soundness does not rest on the token's destructor.
        let forget = forget && (!world.rules.threads || world.rules.failures && by.step.is_multiple_of(5));
        let token = match intent {
            Intent::Read => {
                if let Some(token) = world.hear(self.memory.device(on, range.clone())) {
                    world.launch_read("a kernel of one owner", &token, &self.shadow.expected(range.clone()));
                    if forget {
                        world.forget(token);
                    }
                }
                return;
            }
            Intent::Write => self.memory.device_mut(on, range.clone()),
            Intent::Overwrite => self.memory.device_overwrite(on, range.clone()),
        };
        let Some(mut token) = world.hear(token) else {
            return;
        };
        let mut known = intent == Intent::Write;
        for launch in 0..=by.step % 3 {
            let intent = if known { Intent::Write } else { Intent::Overwrite };
            let by = By { step: by.step << 2 | launch, ..by };
            let (before, after) = (self.shadow.expected(range.clone()), self.shadow.next(range, intent, by));
            world.launch_write("a kernel of one owner", &mut token, known.then_some(&before), &after);
            self.shadow.write(range.start, &after, by);
            known = true;
        }
        if forget {
            world.forget(token);
        }
    }

    /// Slices and tokens live side by side while copies are added.
    pub(crate) fn readers(&mut self, world: &World, by: By, reads: &[(Option<usize>, Range<usize>)], twice: bool) {
        let len = self.shadow.len();
        let reads: Vec<_> = reads.iter().map(|(queue, range)| (*queue, fit(range, len))).collect();
        if let Some(model) = &mut self.model {
            for (queue, range) in &reads {
                let read = match queue {
                    None => model.host(range, Intent::Read),
                    Some(queue) => model.device(queue / 2, range, Intent::Read),
                };
                read.unwrap();
            }
        }
        let other: Vec<_> = reads.iter().rev().cloned().collect();
        let own = &*self;
        thread::scope(|scope| {
            if twice && !world.is_alone {
                scope.spawn(|| own.read(world, by, &other));
            }
            own.read(world, by, &reads);
        });
    }

    /// Under `&self`: every slice stays, and what is valid on the host stays valid there.
    fn read(&self, world: &World, by: By, reads: &[(Option<usize>, Range<usize>)]) {
        let (mut slices, mut tokens) = (Vec::new(), Vec::new());
        for (queue, range) in reads {
            match queue {
                None => slices.extend(world.hear(self.memory.host(range.clone())).map(|slice| (range.clone(), slice))),
                Some(queue) => {
                    let token = world.hear(self.memory.device(&world.queue(*queue), range.clone()));
                    tokens.extend(token.map(|token| (range.clone(), token)));
                }
            }
        }
        for (range, token) in &tokens {
            world.launch_read(&format!("a token of {by:?}"), token, &self.shadow.expected(range.clone()));
        }
        for (range, slice) in slices {
            world.notes.compare(&format!("a slice of {by:?}"), &self.shadow.expected(range.clone()), slice);
            if !self.memory.valid_on(Location::Host, range.clone()) {
                world.notes.add(format!("{range:?} was given up under a slice, {by:?}"));
            }
        }
    }

    /// Whether all is valid where the model says, and as much was moved.
    pub(crate) fn check(&self, world: &World) {
        let Some(model) = self.model.as_ref().filter(|_| world.rules.exact) else {
            return;
        };
        model.check_validity(|site, cell| self.memory.valid_on(world.place(site), cell..cell + 1));
        model.check_moved(&self.memory.stats(), 1);
    }

    /// Everything that is valid anywhere is right there.
    pub(crate) fn finish(self, world: &World, by: By) {
        let cells = if self.model.is_some() { self.shadow.len() } else { 0 };
        let all = (0..2 * DEVICES).flat_map(|queue| (0..cells).map(move |cell| (queue, cell..cell + 1)));
        let valid = all.filter(|(queue, range)| self.memory.valid_on(world.place(Some(queue / 2)), range.clone()));
        let reads: Vec<_> = valid.map(|(queue, range)| (Some(queue), range)).collect();
        self.read(world, by, &reads);
        let cells: Vec<_> = (0..cells).map(|cell| (None, cell..cell + 1)).collect();
        self.read(world, by, &cells);
        self.read(world, by, &[(None, 0..self.shadow.len())]);
    }
}
