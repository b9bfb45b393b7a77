//! What a program runs on: loopback devices with two queues each, memories with their shadows and models, kernels that
//! check what they read, and what was found and counted. One thread or several run programs.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Budget, Device, DeviceMut, DeviceRef, Error, HostPool, Location, Queue, SharedMem, SyncedMem};

use super::model::Model;
use super::observed::Watch;
use super::op::{DEVICES, SITES};
use super::shadow::{Expected, Shadow};
use super::tapes::Tapes;

/// What a program must keep to.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Validity and moved bytes are the model's. Else gaps may be closed and ranges given up.
    pub(crate) exact: bool,
    /// Devices may fail. Then only values are certain.
    pub(crate) failures: bool,
    /// Queues may fail for good. Then what can be read at all must be right.
    pub(crate) panics: bool,
    /// Several threads run programs, so that no model knows what comes when.
    pub(crate) threads: bool,
}

impl Rules {
    pub(crate) const EXACT: Rules = Rules { exact: true, failures: false, panics: false, threads: false };
    pub(crate) const SCATTERED: Rules = Rules { exact: false, ..Self::EXACT };
    pub(crate) const FAILING: Rules = Rules { failures: true, ..Self::SCATTERED };
    pub(crate) const PANICKING: Rules = Rules { panics: true, ..Self::FAILING };
}

/// Parts of a memory that are reserved one by one.
const STRIPES: usize = 4;

pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) devices: Vec<Arc<Loopback>>,
    /// Two of each device, one after the other.
    queues: Vec<RwLock<Arc<dyn Queue>>>,
    pub(crate) memories: Vec<RwLock<Arc<Subject>>>,
    pub(crate) pool: HostPool,
    pub(crate) tapes: Tapes,
    pub(crate) budgets: Vec<Budget>,
    /// How many owners of adopted bytes have not been dropped.
    pub(crate) owners: Arc<AtomicU64>,
    /// Whether a guard was leaked, or memory: not everything is freed at the end.
    pub(crate) leaked: AtomicBool,
    /// Whether a run is to be the same each time.
    pub(crate) is_alone: bool,
    /// The devices that share the host's memory, a bit for each.
    pub(crate) sharing: usize,
    pub(crate) notes: Notes,
    pub(crate) counts: Counts,
}

/// A shared memory and what it should hold.
pub(crate) struct Subject {
    pub(crate) memory: SharedMem,
    pub(crate) shadow: Shadow,
    /// None where several threads use the memory.
    model: Option<Mutex<Model>>,
    pub(crate) watch: Option<Arc<Watch>>,
    /// How many bytes a cell has.
    pub(crate) scale: usize,
    /// A guard was leaked, so the memory never ends.
    pub(crate) leaked: AtomicBool,
    /// Adopted bytes are a second copy on the host with a bound of its own.
    pub(crate) adopted: AtomicBool,
    /// Steps whose effect on the shadow no borrow protects reserve their stripes; all others only enter them.
    stripes: [RwLock<()>; STRIPES],
}

/// Differences, as threads and kernels find them.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Found>);

#[derive(Default)]
struct Found {
    any: AtomicBool,
    texts: Mutex<Vec<String>>,
}

impl Notes {
    pub(crate) fn add(&self, text: String) {
        self.0.any.store(true, Ordering::SeqCst);
        let mut texts = self.0.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() < 20 {
            texts.push(text);
        }
    }

    pub(crate) fn compare(&self, what: &str, expected: &Expected, found: &[u8]) {
        if let Some(difference) = expected.difference(found) {
            self.add(format!("{what}: {difference}"));
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.0.any.load(Ordering::SeqCst)
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let texts = self.0.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.clone()
    }
}

/// What was done, by kind.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) steps: AtomicU64,
    pub(crate) comparisons: AtomicU64,
    pub(crate) injected: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) broken: AtomicU64,
}

impl Counts {
    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> [&AtomicU64; 6] {
        [&self.steps, &self.comparisons, &self.injected, &self.conflicts, &self.errors, &self.broken]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, comparisons, _, conflicts, errors, broken] = self.all().map(|counter| counter.load(Ordering::Relaxed));
        write!(
            f,
            "{conflicts} were refused as conflicts and {errors} failed; {comparisons} comparisons, {broken} broken queues"
        )
    }
}

impl World {
    /// With memories of one thread, which a model knows.
    pub(crate) fn new(mode: Mode, cells: usize, rules: Rules) -> Self {
        let memories = [(); 2].map(|()| Subject::modelled(SharedMem::new(cells), cells, 1));
        Self::over([mode, mode], memories.into(), HostPool::new(1 << 16), rules)
    }

    /// The same, of two memories whose bytes are in origins.
    pub(crate) fn of_origins(mode: Mode, cells: usize, rules: Rules) -> Self {
        let tapes = Tapes::default();
        let memories = [(); 2].map(|()| Subject::of_origin(tapes.subject(cells)));
        Self { tapes, ..Self::over([mode, mode], memories.into(), HostPool::new(1 << 16), rules) }
    }

    /// Memories of one pool, which keeps blocks of 4 KiB and more.
    pub(crate) fn pooled(mode: Mode, cells: usize, scale: usize, pool: HostPool) -> Self {
        let memories = [(); 2].map(|()| SyncedMem::new_in(cells * scale, &pool));
        let memories = memories.map(|memory| Subject::modelled(SharedMem::from(memory), cells, scale));
        Self::over([mode, mode], memories.into(), pool, Rules::EXACT)
    }

    /// Of two machines, the second foreign to the first.
    pub(crate) fn over(modes: [Mode; 2], memories: Vec<Subject>, pool: HostPool, rules: Rules) -> Self {
        let [first, foreign] = modes.map(Loopback::new);
        let devices = vec![first.clone(), first.sibling(), foreign];
        let twice = devices.iter().flat_map(|device| [device, device]);
        Self {
            rules,
            queues: twice.map(|device| RwLock::new(device.queue().unwrap())).collect(),
            devices,
            memories: memories.into_iter().map(|memory| RwLock::new(Arc::new(memory))).collect(),
            pool,
            tapes: Tapes::default(),
            budgets: Vec::new(),
            owners: Arc::default(),
            leaked: AtomicBool::new(false),
            is_alone: true,
            sharing: 0,
            notes: Notes::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn queue(&self, queue: usize) -> Arc<dyn Queue> {
        let place = self.queues[queue].read();
        Arc::clone(&place.unwrap_or_else(PoisonError::into_inner))
    }

    /// A new queue in the place of another, which ends when it is no longer needed.
    pub(crate) fn renew_queue(&self, index: usize) {
        if let Some(queue) = self.hear(self.devices[index / 2].queue()) {
            let mut place = self.queues[index].write().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut *place, queue);
            drop((place, old));
        }
    }

    pub(crate) fn memory(&self, memory: usize) -> Arc<Subject> {
        let place = self.memories[memory].read();
        Arc::clone(&place.unwrap_or_else(PoisonError::into_inner))
    }

    /// The old memory ends when the last guard and thread have let go of it.
    pub(crate) fn renew_memory(&self, memory: usize, new: Subject) {
        self.budgets.iter().for_each(|budget| budget.add(&new.memory));
        let mut place = self.memories[memory].write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, Arc::new(new));
        drop((place, old));
    }

    pub(crate) fn place(&self, site: Option<usize>) -> Location {
        match site {
            None => Location::Host,
            Some(DEVICES) => Location::Origin,
            Some(device) => Location::Device(self.devices[device].id()),
        }
    }

    /// Counts a result, and notes an error that nothing explains.
    pub(crate) fn hear<T>(&self, result: Result<T, Error>) -> Option<T> {
        let error = match result {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        let counter = match error {
            Error::Conflict { .. } => &self.counts.conflicts,
            _ => &self.counts.errors,
        };
        Counts::one(counter);
        let is_explained = match error {
            Error::Conflict { .. } | Error::OnlyCopy { .. } => true,
            Error::OverBudget { .. } => !self.budgets.is_empty(),
            Error::Device { .. } | Error::DeviceOutOfMemory { .. } | Error::Exhausted { .. } | Error::Origin { .. } => {
                self.rules.failures
            }
            _ => false,
        };
        if !is_explained {
            self.notes.add(format!("an error out of nothing: {error}"));
        }
        None
    }

    /// A kernel that compares what it reads, some time.
    pub(crate) fn launch_read(&self, what: &str, token: &DeviceRef<'_>, expected: &Expected) {
        let queue = Arc::clone(token.queue());
        self.insist(|| {
            let (notes, expected, what) = (self.notes.clone(), expected.clone(), what.to_string());
            launch(&*queue, [token.arg()], move |args| notes.compare(&what, &expected, args[0].bytes()))
        });
    }

    /// A kernel that writes all bytes, some time; first it compares what it finds, if that is known.
    pub(crate) fn launch_write(&self, what: &str, token: &mut DeviceMut<'_>, before: Option<&Expected>, after: &[u8]) {
        let queue = Arc::clone(token.queue());
        let mut has_failed = false;
        self.insist(|| {
            let (notes, what, after) = (self.notes.clone(), what.to_string(), after.to_vec());
            // A launch that failed may have run all the same.
            let before = before.filter(|_| !has_failed).cloned();
            has_failed = true;
            launch(&*queue, [token.arg_mut()], move |args| {
                let bytes = args[0].bytes_mut();
                if let Some(before) = before {
                    notes.compare(&what, &before, bytes);
                }
                bytes.copy_from_slice(&after);
            })
        });
    }

    /// Does what fails only as often as it was told to.
    pub(crate) fn insist<T>(&self, mut attempt: impl FnMut() -> Result<T, Error>) -> Option<T> {
        let done = (0..1000).find_map(|_| self.hear(attempt()));
        if done.is_none() {
            self.notes.add("a call fails for good".to_string());
        }
        done
    }

    /// A token that is never dropped.
    pub(crate) fn forget<T>(&self, token: T) {
        self.leaked.store(true, Ordering::SeqCst);
        std::mem::forget(token);
    }

    /// A kernel that panics, without a word on the terminal. Where kernels run at once, that is told here.
    pub(crate) fn panic(&self, queue: usize) {
        drop(launch(&*self.queue(queue), [], |_| std::panic::resume_unwind(Box::new("told to panic"))));
        Counts::one(&self.counts.broken);
    }

    /// Runs what is pending everywhere, whether it fails or not, and notes what the devices say.
    pub(crate) fn settle(&self) {
        for queue in 0..self.queues.len() {
            // Failures told in advance are used up; a broken queue fails for good.
            let _ = (0..50).any(|_| self.queue(queue).synchronize().is_ok());
        }
        for (index, device) in self.devices.iter().enumerate() {
            device.report().misuses.into_iter().for_each(|misuse| self.notes.add(format!("device {index}: {misuse}")));
        }
    }
}

impl Subject {
    /// For one thread.
    pub(crate) fn modelled(memory: SharedMem, cells: usize, scale: usize) -> Self {
        let (model, watch) = (Some(Mutex::new(Model::new(cells))), Some(Watch::over(&memory)));
        Self { model, watch, scale, ..Self::shared(memory, Shadow::zeros(cells * scale)) }
    }

    /// For one thread, of a memory whose bytes are in an origin.
    fn of_origin(subject: Self) -> Self {
        let (model, watch) = (Model::of_origin(subject.cells()), Watch::over(&subject.memory));
        Self { model: Some(Mutex::new(model)), watch: Some(watch), ..subject }
    }

    /// Without a byte.
    pub(crate) fn empty() -> Self {
        Self::shared(SharedMem::new(0), Shadow::zeros(0))
    }

    /// For several threads.
    pub(crate) fn shared(memory: SharedMem, shadow: Shadow) -> Self {
        let (leaked, adopted) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { memory, shadow, model: None, watch: None, scale: 1, leaked, adopted, stripes: Default::default() }
    }

    pub(crate) fn model(&self) -> Option<MutexGuard<'_, Model>> {
        self.model.as_ref().map(|model| model.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn cells(&self) -> usize {
        self.shadow.len() / self.scale
    }

    /// Cells that are there, of those that a program names.
    pub(crate) fn fit(&self, range: &Range<usize>) -> Range<usize> {
        fit(range, self.cells())
    }

    /// Cells, in bytes.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> Range<usize> {
        range.start * self.scale..range.end * self.scale
    }

    pub(crate) fn is_valid(&self, world: &World, site: Option<usize>, cell: usize) -> bool {
        self.memory.valid_on(world.place(site), self.bytes(&(cell..cell + 1)))
    }

    pub(crate) fn validity(&self, world: &World) -> Vec<[bool; SITES]> {
        (0..self.cells())
            .map(|cell| std::array::from_fn(|site: usize| self.is_valid(world, site.checked_sub(1), cell)))
            .collect()
    }

    fn stripes_of(&self, range: &Range<usize>) -> &[RwLock<()>] {
        let len = self.shadow.len().max(1);
        let stripe = |at: usize| (at * STRIPES / len).min(STRIPES - 1);
        &self.stripes[stripe(range.start)..=stripe(range.end)]
    }

    /// While this is held no other thread reserves these bytes. `None` where one has: the step is left out.
    pub(crate) fn enter(&self, range: &Range<usize>) -> Option<Vec<RwLockReadGuard<'_, ()>>> {
        self.stripes_of(range).iter().map(|stripe| stripe.try_read().ok()).collect()
    }

    /// No other thread begins a step on these bytes, or is in one, while this is held. `None` where one is. A thread
    /// alone reserves nothing.
    pub(crate) fn reserve(&self, range: &Range<usize>) -> Option<Vec<RwLockWriteGuard<'_, ()>>> {
        let stripes = if self.model.is_some() { &[] } else { self.stripes_of(range) };
        stripes.iter().map(|stripe| stripe.try_write().ok()).collect()
    }
}

/// A range within 0..len.
pub(crate) fn fit(range: &Range<usize>, len: usize) -> Range<usize> {
    let start = range.start % (len + 1);
    start..(start + range.len()).min(len)
}
