//! The schedule of a loopback machine: the work pending on queues, the order in which work may take effect, and the
//! failures. Relies on the caller to hold the machine's lock, and on `machine` to run the chosen work. Runs
//! nothing.

use std::collections::{BTreeMap, VecDeque};

use super::calls::Account;
use super::memory::Memory;
use super::task::{Entry, Task};
use crate::{DeviceId, QueueId};

/// Everything that the lock of a machine guards.
pub(super) struct State {
    accounts: BTreeMap<DeviceId, Account>,
    /// Ordered by identity, which is by age, so that a seed chooses the same queues in every process.
    lanes: BTreeMap<QueueId, Lane>,
    pub(super) memory: Memory,
    random: Random,
}

/// The work pending on one queue.
pub(super) struct Lane {
    device: DeviceId,
    pub(super) pending: VecDeque<Entry>,
    /// How many entries have taken effect; the next, or the kernel that runs, has this position.
    pub(super) done: u64,
    /// Whether a kernel runs, which has been taken out of `pending`.
    pub(super) is_running: bool,
    /// Slots with lengths that were freed in order and may be given out again, where the device does that.
    reusable: Vec<(u64, usize)>,
    /// The failures here, and the position of each.
    failed: Vec<(u64, String)>,
    /// Whether the queue's last handle is gone.
    is_closed: bool,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        let (accounts, lanes) = (BTreeMap::new(), BTreeMap::new());
        Self { accounts, lanes, memory: Memory::default(), random: Random(seed) }
    }

    pub(super) fn add_device(&mut self, device: DeviceId) {
        self.accounts.insert(device, Account::new(device));
    }

    pub(super) fn account(&mut self, device: DeviceId) -> &mut Account {
        let account = self.accounts.get_mut(&device);
        account.expect("a device is added before it can be named")
    }

    pub(super) fn open(&mut self, queue: QueueId, device: DeviceId) {
        let lane = Lane {
            device,
            pending: VecDeque::new(),
            done: 0,
            is_running: false,
            reusable: Vec::new(),
            failed: Vec::new(),
            is_closed: false,
        };
        self.lanes.insert(queue, lane);
    }

    /// The queue has no handle any more: the queue is forgotten as soon as the work is done. Nobody synchronises for
    /// the blocks that are still to be freed in order, so a block goes now if next in turn.
    pub(super) fn close(&mut self, queue: QueueId) {
        self.lane(queue).is_closed = true;
        while self.obstacle(queue).is_none()
            && let Some(entry) = self.lane(queue).take_end()
        {
            let result = match entry {
                Entry::Wait { other, until } => self.inherit(other, until),
                Entry::Work(task) | Entry::Broken(task, _) => {
                    task.perform(&mut self.memory);
                    Ok(())
                }
            };
            self.advance(queue, result);
            if !self.lanes.contains_key(&queue) {
                return;
            }
        }
        self.forget_if_over(queue);
    }

    pub(super) fn lane(&mut self, queue: QueueId) -> &mut Lane {
        let lane = self.lanes.get_mut(&queue);
        lane.expect("a queue is open as long as it has a handle or work")
    }

    /// How many tasks are pending on a device's queues.
    pub(super) fn pending(&self, device: DeviceId) -> usize {
        let lanes = self.lanes.values().filter(|lane| lane.device == device);
        lanes.map(|lane| lane.pending.len()).sum()
    }

    /// A slot for a block of a queue: a freed slot of the queue, or a fresh one. `None` beyond the limit of the device
    /// or the host.
    pub(super) fn allocate(&mut self, queue: QueueId, len: usize) -> Option<u64> {
        let device = self.lane(queue).device;
        let account = self.account(device);
        let limit = account.limit;
        let in_use = account.in_use.checked_add(len).filter(|bytes| *bytes <= limit)?;
        let slot = self.lane(queue).reuse(len).or_else(|| self.memory.allocate(device, len))?;
        let account = self.account(device);
        account.in_use = in_use;
        account.live += 1;
        Some(slot)
    }

    /// A block of a queue was dropped. Returns the entry that frees its slot in the order of the queue, unless it is
    /// free now.
    pub(super) fn release(&mut self, device: DeviceId, queue: QueueId, slot: u64, len: usize) -> Option<Entry> {
        let account = self.account(device);
        account.in_use -= len;
        account.live -= 1;
        let reuses = account.reuses;
        match self.lanes.get_mut(&queue) {
            None => self.memory.free(slot),
            // Work that is pending on the queue may still use the slot.
            Some(lane) if reuses => lane.reusable.push((slot, len)),
            Some(_) => return Some(Entry::Work(Task::Free(slot))),
        }
        None
    }

    /// Appends to a queue; returns the position of the entry.
    pub(super) fn append(&mut self, queue: QueueId, entry: Entry) -> u64 {
        let lane = self.lane(queue);
        let position = lane.tail();
        lane.pending.push_back(entry);
        position
    }

    /// A wait of a queue for the work that is enqueued on the other now.
    pub(super) fn wait_for(&self, other: QueueId) -> Entry {
        let until = self.lanes.get(&other).map_or(0, Lane::tail);
        Entry::Wait { other, until }
    }

    /// How many entries run after a call: on average one, so that the backlog neither grows without end nor vanishes.
    pub(super) fn draw_count(&mut self) -> usize {
        [0, 0, 1, 3][self.random.below(4)]
    }

    /// One of the queues whose next entry is ready, if there is one.
    pub(super) fn draw(&mut self, may_run: fn(&Lane) -> bool) -> Option<QueueId> {
        let ready: Vec<QueueId> = self.lanes.keys().copied().filter(|queue| self.is_ready(*queue, may_run)).collect();
        if ready.is_empty() {
            return None;
        }
        let chosen = self.random.below(ready.len());
        Some(ready[chosen])
    }

    /// Whether the next entry of a queue may run, and waits for no other queue.
    pub(super) fn is_ready(&self, queue: QueueId, may_run: fn(&Lane) -> bool) -> bool {
        self.lanes.get(&queue).is_some_and(may_run) && self.obstacle(queue).is_none()
    }

    /// How far a queue has come; one that is forgotten has done everything.
    pub(super) fn done(&self, queue: QueueId) -> u64 {
        self.lanes.get(&queue).map_or(u64::MAX, |lane| lane.done)
    }

    /// The work that must run before the next entry of a queue can.
    pub(super) fn obstacle(&self, queue: QueueId) -> Option<(QueueId, u64)> {
        match self.lanes.get(&queue)?.pending.front()? {
            Entry::Wait { other, until } if self.done(*other) < *until => Some((*other, *until)),
            Entry::Wait { .. } | Entry::Work(_) | Entry::Broken(..) => None,
        }
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

    /// A failure of awaited work is a failure of the waiting queue, which has waited now.
    pub(super) fn inherit(&mut self, other: QueueId, until: u64) -> Result<(), String> {
        let failed = self.lanes.get(&other).map(|lane| lane.failed.as_slice());
        let mut before = failed.into_iter().flatten().filter(|(at, _)| *at < until);
        let inherited = before.next().map_or(Ok(()), |(_, message)| Err(message.clone()));
        self.forget_if_over(other);
        inherited
    }

    /// A closed queue is forgotten when the work is done; a failed one not before all waiting queues have waited.
    /// No more will, because nobody has a handle to wait for.
    fn forget_if_over(&mut self, queue: QueueId) {
        let Some(lane) = self.lanes.get(&queue) else { return };
        if !lane.is_closed || !lane.pending.is_empty() || lane.is_running {
            return;
        }
        let mut pending = self.lanes.values().flat_map(|lane| &lane.pending);
        if !lane.failed.is_empty() && pending.any(|entry| matches!(entry, Entry::Wait { other, .. } if *other == queue))
        {
            return;
        }
        for (slot, _) in self.lanes.remove(&queue).into_iter().flat_map(|lane| lane.reusable) {
            self.memory.free(slot);
        }
    }
}

impl Lane {
    /// The position that the next entry gets.
    pub(super) fn tail(&self) -> u64 {
        self.done + u64::from(self.is_running) + self.pending.len() as u64
    }

    /// Whether an entry is next, because no kernel runs.
    pub(super) fn is_next(&self) -> bool {
        !self.pending.is_empty() && !self.is_running
    }

    /// Whether an entry is next that is no kernel.
    pub(super) fn is_next_without_kernel(&self) -> bool {
        self.is_next() && !matches!(self.pending.front(), Some(Entry::Work(Task::Launch(_))))
    }

    /// Takes the next entry if nothing moves: a wait, or the end of a block.
    fn take_end(&mut self) -> Option<Entry> {
        match self.pending.front() {
            Some(Entry::Wait { .. } | Entry::Work(Task::Free(_))) if !self.is_running => self.pending.pop_front(),
            _ => None,
        }
    }

    /// The failures.
    pub(super) fn failure(&self) -> Result<(), String> {
        self.failed.first().map_or(Ok(()), |(_, message)| Err(message.clone()))
    }

    /// The failure at a position that has run: returned once, and then forgotten.
    pub(super) fn take_failure(&mut self, position: u64) -> Result<(), String> {
        let index = self.failed.iter().position(|(at, _)| *at == position);
        index.map_or(Ok(()), |index| Err(self.failed.remove(index).1))
    }

    /// A slot that was freed in order, for the next block of this length.
    fn reuse(&mut self, len: usize) -> Option<u64> {
        let index = self.reusable.iter().position(|(_, kept)| *kept == len)?;
        Some(self.reusable.swap_remove(index).0)
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
