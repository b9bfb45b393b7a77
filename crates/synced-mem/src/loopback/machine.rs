//! A loopback machine: its devices, their queues, what is pending on these, and which calls fail.
//! It relies on `memory` for the bytes. One lock guards all of it; `run` runs what is pending.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::memory::Memory;
use super::task::Task;
use super::turns::Turn;
use super::{Mode, OPERATIONS, Operation};
use crate::{DeviceId, Error, QueueId};

/// What a device has unless it is told otherwise: more than any host has, and so little that the host's allocator is
/// not bothered with what the conformance suite asks for in vain.
const LIMIT: usize = usize::MAX / 8;

/// The devices that share a lock.
pub(super) struct Machine {
    mode: Mode,
    state: Mutex<State>,
    /// Signalled when a kernel has ended.
    pub(super) ended: Condvar,
}

/// Everything that the lock guards.
pub(super) struct State {
    accounts: BTreeMap<DeviceId, Account>,
    /// Ordered by identity, which is by age, so that a seed chooses the same queues in every process.
    lanes: BTreeMap<QueueId, Lane>,
    pub(super) memory: Memory,
    random: Random,
}

/// What is counted for one device.
pub(super) struct Account {
    pub(super) limit: usize,
    pub(super) in_use: usize,
    pub(super) live: usize,
    calls: [u64; OPERATIONS],
    /// The calls that shall fail, by their number, and how.
    failures: Vec<(Operation, u64, Fault)>,
    /// Whether blocks are given out again.
    pub(super) reuses: bool,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Before it has done anything.
    Refused,
    /// After it has done everything.
    Reported,
    /// Its work ends half-way, after the call has succeeded.
    BrokenOff,
}

/// A call that goes on, and how it ends.
pub(super) struct Called {
    pub(super) operation: Operation,
    /// Why it is told to fail, and how.
    fault: Option<(Fault, String)>,
}

impl Called {
    /// Whether the work of this call is broken off, and why.
    pub(super) fn broken_off(&self) -> Option<String> {
        let (fault, message) = self.fault.as_ref()?;
        (*fault == Fault::BrokenOff).then(|| message.clone())
    }

    /// The end of a call that has done everything.
    pub(super) fn end<T>(self, device: DeviceId, done: T) -> Result<T, Error> {
        match self.fault {
            Some((Fault::Reported, message)) => Err(Error::device(device, self.operation.name(), message)),
            _ => Ok(done),
        }
    }
}

/// What is pending on one queue.
pub(super) struct Lane {
    device: DeviceId,
    pub(super) pending: VecDeque<Entry>,
    /// How many entries have taken effect; the next, or the kernel that runs, has this position.
    done: u64,
    /// The kernel that runs, taken out of `pending`.
    pub(super) running: Option<Turn>,
    /// Slots with their lengths that were freed in order and may be given out again, where the device does that.
    spare: Vec<(u64, usize)>,
    /// What went wrong here, and at which position.
    failed: Vec<(u64, String)>,
    /// Whether the queue's last handle is gone.
    closed: bool,
}

pub(super) enum Entry {
    Work(Task),
    /// Work that is broken off: what is left of it, and what is said of it.
    Broken(Task, String),
    /// Ready when the other queue has done this many entries.
    Wait {
        other: QueueId,
        until: u64,
    },
}

impl Machine {
    pub(super) fn new(mode: Mode) -> Self {
        let seed = match mode {
            Mode::Random(seed) => seed,
            Mode::Immediate | Mode::Deferred => 0,
        };
        let state = State {
            accounts: BTreeMap::new(),
            lanes: BTreeMap::new(),
            memory: Memory::default(),
            random: Random(seed),
        };
        let state = Mutex::new(state);
        let ended = Condvar::new();
        Self { mode, state, ended }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Panics of kernels are caught within, so the state is whole even if the lock is poisoned.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    pub(super) fn fail(&mut self, operation: Operation, nth: u64, fault: Fault) {
        let number = self.calls(operation).saturating_add(nth);
        self.failures.push((operation, number, fault));
    }

    pub(super) fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize]
    }
}

impl State {
    pub(super) fn add_device(&mut self, device: DeviceId) {
        let account =
            Account { limit: LIMIT, in_use: 0, live: 0, calls: [0; OPERATIONS], failures: Vec::new(), reuses: false };
        self.accounts.insert(device, account);
    }

    pub(super) fn account(&mut self, device: DeviceId) -> &mut Account {
        let account = self.accounts.get_mut(&device);
        account.expect("a device is added before anybody can name it")
    }

    /// Counts a call, and refuses it if it was told to be refused.
    pub(super) fn call(&mut self, device: DeviceId, operation: Operation) -> Result<Called, Error> {
        let account = self.account(device);
        account.calls[operation as usize] += 1;
        let number = account.calls(operation);
        let this = |failure: &(Operation, u64, Fault)| (failure.0, failure.1) == (operation, number);
        let fault = account.failures.iter().find(|failure| this(failure)).map(|failure| failure.2);
        account.failures.retain(|failure| !this(failure));
        let message = format!("call {number} was told to fail");
        match fault {
            Some(Fault::Refused) => Err(Error::device(device, operation.name(), message)),
            fault => Ok(Called { operation, fault: fault.map(|fault| (fault, message)) }),
        }
    }

    pub(super) fn open(&mut self, queue: QueueId, device: DeviceId) {
        let lane = Lane {
            device,
            pending: VecDeque::new(),
            done: 0,
            running: None,
            spare: Vec::new(),
            failed: Vec::new(),
            closed: false,
        };
        self.lanes.insert(queue, lane);
    }

    /// The queue has no handle any more: it is forgotten as soon as its work is done.
    pub(super) fn close(&mut self, queue: QueueId) {
        if let Some(lane) = self.lanes.get_mut(&queue) {
            lane.closed = true;
        }
        self.forget_if_over(queue);
    }

    /// How many tasks are pending on a device's queues.
    pub(super) fn pending(&self, device: DeviceId) -> usize {
        let lanes = self.lanes.values().filter(|lane| lane.device == device);
        lanes.map(|lane| lane.pending.len()).sum()
    }

    /// Appends to a queue; says which position it got.
    pub(super) fn append(&mut self, queue: QueueId, entry: Entry) -> u64 {
        let lane = self.lane(queue);
        let position = lane.tail();
        lane.pending.push_back(entry);
        position
    }

    /// A wait of the queue for what is enqueued on the other now.
    pub(super) fn wait_for(&self, other: QueueId) -> Entry {
        let until = self.lanes.get(&other).map_or(0, Lane::tail);
        Entry::Wait { other, until }
    }

    /// Whether a queue has a handle or work, or has failed.
    pub(super) fn knows(&self, queue: QueueId) -> bool {
        self.lanes.contains_key(&queue)
    }

    /// What has gone wrong on a queue.
    pub(super) fn failure(&mut self, queue: QueueId) -> Result<(), String> {
        match self.lane(queue).failed.first() {
            Some((_, message)) => Err(message.clone()),
            None => Ok(()),
        }
    }

    /// A slot that was freed in the queue's order, for its next block of this length.
    pub(super) fn reuse(&mut self, queue: QueueId, len: usize) -> Option<u64> {
        let spare = &mut self.lane(queue).spare;
        let index = spare.iter().position(|(_, spare)| *spare == len)?;
        Some(spare.swap_remove(index).0)
    }

    /// Keeps a slot for the queue's next block of this length. What the queue carries now may still use it.
    pub(super) fn keep(&mut self, queue: QueueId, slot: u64, len: usize) {
        self.lane(queue).spare.push((slot, len));
    }

    /// What went wrong at a position of a queue, if it has run: told to whoever asks, and then forgotten.
    pub(super) fn take_failure(&mut self, queue: QueueId, position: u64) -> Option<String> {
        let failed = &mut self.lane(queue).failed;
        let index = failed.iter().position(|(at, _)| *at == position)?;
        Some(failed.remove(index).1)
    }

    pub(super) fn lane(&mut self, queue: QueueId) -> &mut Lane {
        let lane = self.lanes.get_mut(&queue);
        lane.expect("a queue is open as long as it has a handle or work")
    }

    /// How many entries run after a call: on average one, so that the backlog neither grows for ever nor vanishes.
    pub(super) fn draw_count(&mut self) -> usize {
        [0, 0, 1, 3][self.random.below(4)]
    }

    /// One of the queues that are ready, if any is.
    pub(super) fn draw(&mut self) -> Option<QueueId> {
        let ready: Vec<QueueId> = self.ready().collect();
        if ready.is_empty() {
            return None;
        }
        let chosen = self.random.below(ready.len());
        Some(ready[chosen])
    }

    fn ready(&self) -> impl Iterator<Item = QueueId> + '_ {
        let waiting = self.lanes.iter().filter(|(_, lane)| !lane.pending.is_empty() && lane.running.is_none());
        waiting.map(|(queue, _)| *queue).filter(|queue| self.obstacle(*queue).is_none())
    }

    /// How far a queue has come; one that is forgotten has done everything.
    pub(super) fn done(&self, queue: QueueId) -> u64 {
        self.lanes.get(&queue).map_or(u64::MAX, |lane| lane.done)
    }

    /// What must run before the next entry of a queue can.
    pub(super) fn obstacle(&self, queue: QueueId) -> Option<(QueueId, u64)> {
        match self.lanes.get(&queue)?.pending.front()? {
            Entry::Wait { other, until } if self.done(*other) < *until => Some((*other, *until)),
            Entry::Wait { .. } | Entry::Work(_) | Entry::Broken(..) => None,
        }
    }

    /// The kernel that a queue is at.
    pub(super) fn running(&self, queue: QueueId) -> Option<Turn> {
        self.lanes.get(&queue)?.running
    }

    /// The next entry of a queue has taken effect.
    pub(super) fn advance(&mut self, queue: QueueId, result: Result<(), String>) {
        let lane = self.lane(queue);
        if let Err(message) = result {
            lane.failed.push((lane.done, message));
        }
        lane.done += 1;
        self.forget_if_over(queue);
    }

    /// A failure of what was waited for is a failure of the waiting queue.
    pub(super) fn inherit(&self, other: QueueId, until: u64) -> Result<(), String> {
        let failed = self.lanes.get(&other).map(|lane| lane.failed.as_slice());
        let mut before = failed.into_iter().flatten().filter(|(at, _)| *at < until);
        before.next().map_or(Ok(()), |(_, message)| Err(message.clone()))
    }

    /// A failed queue stays, because somebody may still wait for it.
    fn forget_if_over(&mut self, queue: QueueId) {
        let idle = |lane: &Lane| lane.pending.is_empty() && lane.running.is_none();
        let over = |lane: &Lane| lane.closed && idle(lane) && lane.failed.is_empty();
        if !self.lanes.get(&queue).is_some_and(over) {
            return;
        }
        for (slot, _) in self.lanes.remove(&queue).into_iter().flat_map(|lane| lane.spare) {
            self.memory.free(slot);
        }
    }
}

impl Lane {
    /// The position that the next entry gets.
    pub(super) fn tail(&self) -> u64 {
        self.done + u64::from(self.running.is_some()) + self.pending.len() as u64
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to shuffle tests.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The remainder is below `bound`, a `usize`.
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
