//! A loopback machine: the queues of its devices, what is pending on them, and the order in which it runs.
//! It relies on `task` to perform the work and on `memory` for the bytes. One lock guards all of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::Memory;
use super::task::Task;
use super::{Mode, OPERATIONS, Operation};
use crate::{DeviceId, Error, QueueId};

/// What a device has unless it is told otherwise: more than any host has, and so little that the host's allocator is
/// not bothered with what the conformance suite asks for in vain.
const LIMIT: usize = usize::MAX / 8;

/// The devices that share a lock.
pub(super) struct Machine {
    mode: Mode,
    state: Mutex<State>,
}

/// Everything that the lock guards.
pub(super) struct State {
    mode: Mode,
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
    /// The calls that shall fail, by their number.
    failures: Vec<(Operation, u64)>,
}

/// What is pending on one queue.
struct Lane {
    device: DeviceId,
    pending: VecDeque<Entry>,
    /// How many entries have taken effect; the next has this position.
    done: u64,
    /// What went wrong here, and at which position.
    failed: Vec<(u64, String)>,
    /// Whether the queue's last handle is gone.
    closed: bool,
}

enum Entry {
    Work(Task),
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
            mode,
            accounts: BTreeMap::new(),
            lanes: BTreeMap::new(),
            memory: Memory::default(),
            random: Random(seed),
        };
        let state = Mutex::new(state);
        Self { mode, state }
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
    pub(super) fn fail(&mut self, operation: Operation, nth: u64) {
        let number = self.calls(operation).saturating_add(nth);
        self.failures.push((operation, number));
    }

    pub(super) fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize]
    }
}

impl State {
    pub(super) fn add_device(&mut self, device: DeviceId) {
        let account = Account {
            limit: LIMIT,
            in_use: 0,
            live: 0,
            calls: [0; OPERATIONS],
            failures: Vec::new(),
        };
        self.accounts.insert(device, account);
    }

    pub(super) fn account(&mut self, device: DeviceId) -> &mut Account {
        let account = self.accounts.get_mut(&device);
        account.expect("a device is added before anybody can name it")
    }

    /// Counts a call, and fails it if it was to fail.
    pub(super) fn call(&mut self, device: DeviceId, operation: Operation) -> Result<(), Error> {
        let account = self.account(device);
        account.calls[operation as usize] += 1;
        let this = (operation, account.calls(operation));
        let before = account.failures.len();
        account.failures.retain(|failure| *failure != this);
        if account.failures.len() == before {
            return Ok(());
        }
        let message = format!("call {} was told to fail", this.1);
        Err(Error::device(device, operation.name(), message))
    }

    pub(super) fn open(&mut self, queue: QueueId, device: DeviceId) {
        let lane = Lane {
            device,
            pending: VecDeque::new(),
            done: 0,
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

    /// Appends work to a queue and runs what the mode runs now; says which position it got.
    pub(super) fn enqueue(&mut self, queue: QueueId, task: Task) -> u64 {
        self.append(queue, Entry::Work(task))
    }

    /// Lets the queue wait for what is enqueued on the other now.
    pub(super) fn wait(&mut self, queue: QueueId, other: QueueId) {
        let until = self.lanes.get(&other).map_or(0, Lane::tail);
        self.append(queue, Entry::Wait { other, until });
    }

    /// Frees a slot in the order of a queue: at once if the queue is over.
    pub(super) fn free(&mut self, queue: QueueId, slot: u64) {
        if self.lanes.contains_key(&queue) {
            self.enqueue(queue, Task::Free(slot));
        } else {
            self.memory.free(slot);
        }
    }

    fn append(&mut self, queue: QueueId, entry: Entry) -> u64 {
        let lane = self.lane(queue);
        let position = lane.tail();
        lane.pending.push_back(entry);
        match self.mode {
            Mode::Immediate => self.run_until(queue, position + 1),
            Mode::Deferred => {}
            Mode::Random(_) => self.run_some(),
        }
        position
    }

    /// Runs everything that the queue carries and waits for; fails, now and always, if some of it failed.
    pub(super) fn synchronize(&mut self, queue: QueueId) -> Result<(), String> {
        if let Mode::Random(_) = self.mode {
            self.run_some();
        }
        let tail = self.lane(queue).tail();
        self.run_until(queue, tail);
        match self.lane(queue).failed.first() {
            Some((_, message)) => Err(message.clone()),
            None => Ok(()),
        }
    }

    /// What went wrong at a position of a queue, if it has run: told to whoever asks, and then forgotten.
    pub(super) fn take_failure(&mut self, queue: QueueId, position: u64) -> Option<String> {
        let failed = &mut self.lane(queue).failed;
        let index = failed.iter().position(|(at, _)| *at == position)?;
        Some(failed.remove(index).1)
    }

    fn lane(&mut self, queue: QueueId) -> &mut Lane {
        let lane = self.lanes.get_mut(&queue);
        lane.expect("a queue is open as long as it has a handle or work")
    }

    /// Runs a queue up to a position, and before each wait what it waits for, and nothing else. An entry waits only for
    /// entries older than itself, so this ends.
    fn run_until(&mut self, queue: QueueId, until: u64) {
        let mut goals = vec![(queue, until)];
        while let Some(&(queue, until)) = goals.last() {
            if self.done(queue) >= until {
                goals.pop();
            } else if let Some(goal) = self.obstacle(queue) {
                goals.push(goal);
            } else {
                self.step(queue);
            }
        }
    }

    /// Runs a random number of entries, each of a random queue among those that are ready. On average it runs one, so
    /// that the backlog neither grows for ever nor vanishes.
    fn run_some(&mut self) {
        let count = [0, 0, 1, 3][self.random.below(4)];
        for _ in 0..count {
            let ready: Vec<QueueId> = self.ready().collect();
            if ready.is_empty() {
                return;
            }
            let chosen = self.random.below(ready.len());
            self.step(ready[chosen]);
        }
    }

    fn ready(&self) -> impl Iterator<Item = QueueId> + '_ {
        let waiting = self
            .lanes
            .iter()
            .filter(|(_, lane)| !lane.pending.is_empty());
        waiting
            .map(|(queue, _)| *queue)
            .filter(|queue| self.obstacle(*queue).is_none())
    }

    /// How far a queue has come; one that is forgotten has done everything.
    fn done(&self, queue: QueueId) -> u64 {
        self.lanes.get(&queue).map_or(u64::MAX, |lane| lane.done)
    }

    /// What must run before the next entry of a queue can.
    fn obstacle(&self, queue: QueueId) -> Option<(QueueId, u64)> {
        match self.lanes.get(&queue)?.pending.front()? {
            Entry::Wait { other, until } if self.done(*other) < *until => Some((*other, *until)),
            Entry::Wait { .. } | Entry::Work(_) => None,
        }
    }

    /// Runs the next entry of a queue, which is ready.
    fn step(&mut self, queue: QueueId) {
        let result = match self.lane(queue).pending.pop_front() {
            Some(Entry::Work(task)) => task.perform(&mut self.memory),
            Some(Entry::Wait { other, until }) => self.inherit(other, until),
            None => return,
        };
        let lane = self.lane(queue);
        if let Err(message) = result {
            lane.failed.push((lane.done, message));
        }
        lane.done += 1;
        self.forget_if_over(queue);
    }

    /// A failure of what was waited for is a failure of the waiting queue.
    fn inherit(&self, other: QueueId, until: u64) -> Result<(), String> {
        let failed = self.lanes.get(&other).map(|lane| lane.failed.as_slice());
        let mut before = failed.into_iter().flatten().filter(|(at, _)| *at < until);
        before
            .next()
            .map_or(Ok(()), |(_, message)| Err(message.clone()))
    }

    /// A failed queue stays, because somebody may still wait for it.
    fn forget_if_over(&mut self, queue: QueueId) {
        let over = |lane: &Lane| lane.closed && lane.pending.is_empty() && lane.failed.is_empty();
        if self.lanes.get(&queue).is_some_and(over) {
            self.lanes.remove(&queue);
        }
    }
}

impl Lane {
    /// The position that the next entry gets.
    fn tail(&self) -> u64 {
        self.done + self.pending.len() as u64
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
