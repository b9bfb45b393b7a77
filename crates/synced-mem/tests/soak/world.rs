//! What the threads of a round share: devices, queues, memories with their shadows, and what was found and counted.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, DeviceMut, DeviceRef, Error, HostPool, Queue, SharedMem, SyncedMem};

use super::draw::Draw;
use super::shadow::{Expected, Shadow};

/// Two of one machine, and one of another.
pub(crate) const DEVICES: usize = 3;
const QUEUES: usize = 7;
const MEMORIES: usize = 5;
/// Parts of a memory that are reserved one by one.
const STRIPES: usize = 4;

pub(crate) struct World {
    pub(crate) seed: u64,
    /// Whether calls are told to fail. Otherwise no device error may be seen.
    pub(crate) is_faulty: bool,
    pub(crate) devices: Vec<Arc<Loopback>>,
    pub(crate) pool: HostPool,
    queues: Vec<RwLock<Arc<dyn Queue>>>,
    memories: Vec<RwLock<Arc<Subject>>>,
    /// How many owners of adopted bytes have not been dropped.
    pub(crate) owners: Arc<AtomicU64>,
    pub(crate) notes: Notes,
    pub(crate) counts: Counts,
}

/// A shared memory and what it should hold.
pub(crate) struct Subject {
    pub(crate) memory: SharedMem,
    pub(crate) shadow: Shadow,
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

    fn texts(&self) -> Vec<String> {
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

    fn all(&self) -> [&AtomicU64; 6] {
        [&self.steps, &self.comparisons, &self.injected, &self.conflicts, &self.errors, &self.broken]
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        for (sum, more) in self.all().into_iter().zip(other.all()) {
            sum.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn operations(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
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
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Draw::new(&[seed]);
        let mut mode = || match draw.below(5) {
            0 => Mode::Immediate,
            1 | 2 => Mode::Deferred,
            _ => Mode::Random(draw.next()),
        };
        let (first, foreign) = (Loopback::new(mode()), Loopback::new(mode()));
        let devices = vec![first.clone(), first.sibling(), foreign];
        let is_faulty = !draw.one_in(3);
        let pool = HostPool::new(1 << 16);
        let queue = |index: usize| {
            let queue = devices[index % DEVICES].queue();
            RwLock::new(queue.expect("no failure was told yet"))
        };
        let queues = (0..QUEUES).map(queue).collect();
        let memories = (0..MEMORIES).map(|_| RwLock::new(Arc::new(Subject::new(&mut draw, &pool)))).collect();
        Self {
            seed,
            is_faulty,
            queues,
            memories,
            devices,
            pool,
            owners: Arc::default(),
            notes: Notes::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn queue(&self, draw: &mut Draw) -> Arc<dyn Queue> {
        let place = self.queues[draw.below(QUEUES)].read();
        Arc::clone(&place.unwrap_or_else(PoisonError::into_inner))
    }

    /// A new queue in the place of another, which ends when it is no longer needed.
    pub(crate) fn renew_queue(&self, draw: &mut Draw) {
        let (index, device) = (draw.below(QUEUES), draw.below(DEVICES));
        if let Some(queue) = self.hear(self.devices[device].queue()) {
            let mut place = self.queues[index].write().unwrap();
            let old = std::mem::replace(&mut *place, queue);
            drop((place, old));
        }
    }

    pub(crate) fn memory(&self, draw: &mut Draw) -> Arc<Subject> {
        let place = self.memories[draw.below(MEMORIES)].read();
        Arc::clone(&place.unwrap_or_else(PoisonError::into_inner))
    }

    /// The old memory ends when the last guard and thread have let go of it.
    pub(crate) fn renew_memory(&self, draw: &mut Draw, new: Subject) {
        let mut place = self.memories[draw.below(MEMORIES)].write().unwrap();
        let old = std::mem::replace(&mut *place, Arc::new(new));
        drop((place, old));
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
            Error::Device { .. } | Error::DeviceOutOfMemory { .. } => self.is_faulty,
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
            launch(&*queue, [token.arg()], move |args| {
                notes.compare(&what, &expected, args[0].bytes());
            })
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
    pub(crate) fn insist(&self, mut attempt: impl FnMut() -> Result<(), Error>) {
        for _ in 0..1000 {
            if self.hear(attempt()).is_some() {
                return;
            }
        }
        self.notes.add("a call fails for good".to_string());
    }

    /// All threads have ended: everything is settled, compared and freed. Returns what was found.
    pub(crate) fn end(self) -> (Counts, Vec<String>) {
        for device in &self.devices {
            device.set_limit(usize::MAX);
        }
        for queue in self.queues {
            let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
            // Failures told in advance are used up; a broken queue fails for good.
            let _ = (0..50).any(|_| queue.synchronize().is_ok());
        }
        for (index, subject) in self.memories.into_iter().enumerate() {
            let subject = subject.into_inner().unwrap_or_else(PoisonError::into_inner);
            let read = || subject.memory.host(0..subject.memory.len());
            let bytes = (0..50).find_map(|_| read().ok());
            let expected = subject.shadow.expected(0..subject.shadow.len());
            match bytes {
                Some(bytes) => {
                    let what = format!("memory {index} in the end");
                    self.notes.compare(&what, &expected, &bytes);
                }
                None if self.is_faulty => {}
                None => self.notes.add(format!("memory {index} is lost")),
            }
        }
        for (index, device) in self.devices.iter().enumerate() {
            for misuse in device.report().misuses {
                self.notes.add(format!("device {index}: {misuse}"));
            }
            // Where waiting failed, memory is leaked, and said to be.
            if !self.is_faulty && device.report().live_blocks > 0 {
                let blocks = device.report().live_blocks;
                self.notes.add(format!("device {index} keeps {blocks} blocks"));
            }
        }
        let owners = self.owners.load(Ordering::SeqCst);
        if !self.is_faulty && owners > 0 {
            self.notes.add(format!("{owners} owners were not dropped"));
        }
        (self.counts, self.notes.texts())
    }
}

impl Subject {
    fn new(draw: &mut Draw, pool: &HostPool) -> Self {
        let len = match draw.below(6) {
            0 => draw.below(8),
            1 => 4096 + draw.below(100),
            _ => 64 + draw.below(400),
        };
        let memory = if draw.one_in(2) { SharedMem::new(len) } else { SharedMem::from(SyncedMem::new_in(len, pool)) };
        Self::over(memory, Shadow::zeros(len))
    }

    pub(crate) fn over(memory: SharedMem, shadow: Shadow) -> Self {
        let stripes = Default::default();
        Self { memory, shadow, stripes }
    }

    pub(crate) fn fresh(draw: &mut Draw, pool: &HostPool) -> Self {
        Self::new(draw, pool)
    }

    fn stripes_of(&self, range: &Range<usize>) -> &[RwLock<()>] {
        let len = self.shadow.len().max(1);
        let first = (range.start * STRIPES / len).min(STRIPES - 1);
        let last = (range.end * STRIPES / len).min(STRIPES - 1);
        &self.stripes[first..=last]
    }

    /// While this is held no other thread reserves these bytes. `None` where one has: the step is left out.
    pub(crate) fn enter(&self, range: &Range<usize>) -> Option<Vec<RwLockReadGuard<'_, ()>>> {
        let stripes = self.stripes_of(range).iter();
        stripes.map(|stripe| stripe.try_read().ok()).collect()
    }

    /// No other thread begins a step on these bytes, or is in one, while this is held. `None` where one is.
    pub(crate) fn reserve(&self, range: &Range<usize>) -> Option<Vec<RwLockWriteGuard<'_, ()>>> {
        let stripes = self.stripes_of(range).iter();
        stripes.map(|stripe| stripe.try_write().ok()).collect()
    }
}
