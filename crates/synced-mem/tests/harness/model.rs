//! The right state of a memory, cell by cell: where each cell is valid, who borrows it, how much was moved. The values
//! stand in the shadow.
//! It is written from the table in the crate's head docs, byte by byte, and knows neither ranges' bounds nor queues.
//! A site is a place as it is seen from outside: `None` is the host, `Some` a device, or, after the last one, the
//! origin.

use std::ops::Range;

use synced_mem::Stats;

use super::op::{DEVICES, Intent, SITES};

/// A copy of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replica {
    Host,
    Fixed,
    Device(usize),
    Origin,
}

impl Replica {
    fn index(self) -> usize {
        match self {
            Replica::Host => 0,
            Replica::Fixed => 1,
            Replica::Device(device) => 2 + device,
            Replica::Origin => 2 + DEVICES,
        }
    }

    fn is_at(self, site: Option<usize>) -> bool {
        match self {
            Replica::Host | Replica::Fixed => site.is_none(),
            Replica::Device(device) => site == Some(device),
            Replica::Origin => site == Some(DEVICES),
        }
    }
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Conflict,
    OnlyCopy,
}

/// Cells moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    uploaded: u64,
    downloaded: u64,
    across: u64,
    on_host: u64,
    read: u64,
    filled: u64,
}

#[derive(Clone)]
struct Borrow {
    id: u64,
    range: Range<usize>,
    writes: bool,
    replica: Replica,
}

#[derive(Clone)]
pub(crate) struct Model {
    cells: usize,
    moved: Moved,
    /// By replica: which cells are valid.
    valid: [Vec<bool>; 1 + SITES],
    /// The devices in order of first use.
    met: Vec<usize>,
    borrows: Vec<Borrow>,
    next: u64,
    /// The devices that share the host's memory, a bit for each.
    pub(crate) sharing: usize,
}

impl Model {
    pub(crate) fn new(cells: usize) -> Self {
        Self {
            cells,
            moved: Moved::default(),
            valid: std::array::from_fn(|_| vec![false; cells]),
            met: Vec::new(),
            borrows: Vec::new(),
            next: 0,
            sharing: 0,
        }
    }

    /// Of a memory whose cells an origin has.
    pub(crate) fn of_origin(cells: usize) -> Self {
        let mut model = Self::new(cells);
        model.add(Replica::Origin, &(0..cells));
        model
    }

    pub(crate) fn cells(&self) -> usize {
        self.cells
    }

    fn is_valid(&self, replica: Replica, cell: usize) -> bool {
        self.valid[replica.index()][cell]
    }

    fn holds(&self, replica: Replica, range: &Range<usize>) -> bool {
        range.clone().all(|cell| self.is_valid(replica, cell))
    }

    pub(crate) fn is_valid_at(&self, site: Option<usize>, cell: usize) -> bool {
        match site {
            None => self.is_valid(Replica::Host, cell) || self.is_valid(Replica::Fixed, cell),
            Some(DEVICES) => self.is_valid(Replica::Origin, cell),
            Some(device) => self.is_valid(Replica::Device(device), cell),
        }
    }

    /// Whether the cell was ever written, or read.
    pub(crate) fn is_touched(&self, cell: usize) -> bool {
        self.valid.iter().any(|valid| valid[cell])
    }

    // ---- comparing ----

    /// `valid` says what is valid at a site.
    pub(crate) fn check_validity(&self, valid: impl Fn(Option<usize>, usize) -> bool) {
        for site in (0..SITES).map(|site| site.checked_sub(1)) {
            let found: Vec<bool> = (0..self.cells).map(|cell| valid(site, cell)).collect();
            let expected: Vec<bool> = (0..self.cells).map(|cell| self.is_valid_at(site, cell)).collect();
            assert_eq!(found, expected, "valid at {site:?}, by cell");
        }
    }

    pub(crate) fn check_moved(&self, stats: &Stats, scale: u64) {
        let [up, down, on_host] = [stats.uploads, stats.downloads, stats.host_copies];
        let found = [up, down, stats.device_copies, on_host, stats.origin_reads, stats.fills];
        let moved = self.moved;
        let cells = [moved.uploaded, moved.downloaded, moved.across, moved.on_host, moved.read, moved.filled];
        assert_eq!(found.map(|traffic| traffic.bytes), cells.map(|cells| cells * scale), "{moved:?}");
    }

    // ---- borrows ----

    pub(crate) fn check(&self, range: &Range<usize>, writes: bool) -> Result<(), Refusal> {
        let mut others = self.borrows.iter().filter(|held| writes || held.writes);
        let is_met = others.any(|held| range.clone().any(|cell| held.range.contains(&cell)));
        if is_met { Err(Refusal::Conflict) } else { Ok(()) }
    }

    fn check_site(&self, site: Option<usize>) -> Result<(), Refusal> {
        let is_held = self.borrows.iter().any(|held| held.replica.is_at(site) && !held.range.is_empty());
        if is_held { Err(Refusal::Conflict) } else { Ok(()) }
    }

    pub(crate) fn borrow(&mut self, range: &Range<usize>, writes: bool, replica: Replica) -> u64 {
        let (id, range) = (self.next, range.clone());
        self.next += 1;
        self.borrows.push(Borrow { id, range, writes, replica });
        id
    }

    pub(crate) fn release(&mut self, id: u64) {
        self.borrows.retain(|held| held.id != id);
    }

    // ---- accesses ----

    pub(crate) fn host(&mut self, range: &Range<usize>, intent: Intent) -> Result<Replica, Refusal> {
        self.check(range, intent.writes())?;
        let fixed = self.holds(Replica::Fixed, range) && !self.holds(Replica::Host, range);
        if intent == Intent::Read && fixed {
            return Ok(Replica::Fixed);
        }
        self.access(Replica::Host, range, intent);
        Ok(Replica::Host)
    }

    pub(crate) fn prefetch_host(&mut self, range: &Range<usize>) -> Result<(), Refusal> {
        self.host(range, Intent::Read).map(drop)
    }

    pub(crate) fn device(&mut self, device: usize, range: &Range<usize>, intent: Intent) -> Result<Replica, Refusal> {
        self.check(range, intent.writes())?;
        if !range.is_empty() {
            self.meet(device);
        }
        if self.reads_on_host(device, range) && intent == Intent::Read {
            return self.host(range, intent);
        }
        self.access(Replica::Device(device), range, intent);
        Ok(Replica::Device(device))
    }

    /// A device that shares the host's memory reads there, unless its own copy has every cell.
    fn reads_on_host(&self, device: usize, range: &Range<usize>) -> bool {
        self.sharing >> device & 1 == 1 && !self.holds(Replica::Device(device), range)
    }

    /// Whether bytes are read that a device may read at either of two places.
    pub(crate) fn has_reads_of_sharing_devices(&self) -> bool {
        self.sharing != 0 && self.borrows.iter().any(|held| !held.writes && !held.range.is_empty())
    }

    fn meet(&mut self, device: usize) {
        if !self.met.contains(&device) {
            self.met.push(device);
        }
    }

    fn access(&mut self, replica: Replica, range: &Range<usize>, intent: Intent) {
        if intent != Intent::Overwrite {
            self.bring(replica, range);
        }
        if intent.writes() {
            self.claim(replica, range);
        }
    }

    fn claim(&mut self, replica: Replica, range: &Range<usize>) {
        for valid in &mut self.valid {
            valid[range.clone()].fill(false);
        }
        self.add(replica, range);
    }

    fn add(&mut self, replica: Replica, range: &Range<usize>) {
        self.valid[replica.index()][range.clone()].fill(true);
    }

    /// Where a missing cell comes from: the first copy of the order that holds it.
    fn source(&self, to: Replica, cell: usize) -> Option<Replica> {
        let devices = self.met.iter().map(|device| Replica::Device(*device));
        let hosts = [Replica::Host, Replica::Fixed].into_iter();
        let order: Vec<Replica> = match to {
            Replica::Device(to) => {
                // Without a direct way, the host is nearer.
                let (near, far): (Vec<_>, Vec<_>) =
                    devices.partition(|from| !matches!(from, Replica::Device(from) if !siblings(*from, to)));
                near.into_iter().chain(hosts).chain(far).chain([Replica::Origin]).collect()
            }
            _ => [Replica::Fixed].into_iter().chain(devices).chain([Replica::Origin]).collect(),
        };
        order.into_iter().find(|from| self.is_valid(*from, cell))
    }

    /// Moves what is missing, in runs of one source each, planned before the first is moved.
    fn bring(&mut self, to: Replica, range: &Range<usize>) {
        let mut runs: Vec<(Option<Replica>, Range<usize>)> = Vec::new();
        let missing = range.clone().filter(|cell| !self.is_valid(to, *cell));
        for cell in missing {
            let from = self.source(to, cell);
            match runs.last_mut() {
                Some((last, run)) if *last == from && run.end == cell => run.end = cell + 1,
                _ => runs.push((from, cell..cell + 1)),
            }
        }
        for (from, run) in runs {
            self.transfer(from, to, &run);
            self.add(to, &run);
        }
    }

    fn transfer(&mut self, from: Option<Replica>, to: Replica, run: &Range<usize>) {
        let cells = run.len() as u64;
        match (from, to) {
            (None, _) => self.moved.filled += cells,
            (Some(Replica::Device(from)), Replica::Device(to)) if siblings(from, to) => {
                self.moved.across += cells;
            }
            (Some(Replica::Origin), Replica::Device(_)) => {
                self.moved.read += cells;
                self.moved.uploaded += cells;
            }
            (Some(Replica::Device(_)), Replica::Device(_)) => {
                // By way of the host, unless adopted bytes there have it all.
                if !self.holds(Replica::Fixed, run) {
                    self.bring(Replica::Host, run);
                }
                self.moved.uploaded += cells;
            }
            (Some(Replica::Origin), _) => self.moved.read += cells,
            (Some(Replica::Device(_)), _) => self.moved.downloaded += cells,
            (Some(_), Replica::Device(_)) => self.moved.uploaded += cells,
            (Some(_), _) => self.moved.on_host += cells,
        }
    }

    // ---- evicting and adopting ----

    pub(crate) fn evict(&mut self, site: Option<usize>, range: &Range<usize>, refuse: bool) -> Result<(), Refusal> {
        self.check_site(site)?;
        let alone: Vec<usize> = range.clone().filter(|cell| self.only_at(site, *cell)).collect();
        let refuge = match site {
            // Of equals the first.
            None => self
                .met
                .iter()
                .map(|device| Replica::Device(*device))
                .rev()
                .max_by_key(|replica| self.valid[replica.index()].iter().filter(|v| **v).count()),
            Some(_) => Some(Replica::Host),
        };
        if !alone.is_empty() {
            let refuge = refuge.filter(|_| !refuse).ok_or(Refusal::OnlyCopy)?;
            alone.iter().for_each(|cell| self.bring(refuge, &(*cell..cell + 1)));
        }
        let gone: &[Replica] = match site {
            None => &[Replica::Host, Replica::Fixed],
            Some(DEVICES) => &[Replica::Origin],
            Some(device) => &[Replica::Device(device)],
        };
        gone.iter().for_each(|replica| self.valid[replica.index()][range.clone()].fill(false));
        Ok(())
    }

    fn only_at(&self, site: Option<usize>, cell: usize) -> bool {
        let mut others = (0..SITES).map(|site| site.checked_sub(1)).filter(|other| *other != site);
        self.is_valid_at(site, cell) && !others.any(|other| self.is_valid_at(other, cell))
    }

    pub(crate) fn adopt(&mut self, fixed: bool) -> Result<(), Refusal> {
        let whole = 0..self.cells();
        self.check(&whole, true)?;
        let replica = if fixed { Replica::Fixed } else { Replica::Host };
        self.claim(replica, &whole);
        Ok(())
    }
}

fn siblings(one: usize, other: usize) -> bool {
    one < 2 && other < 2
}

/// Copies between two of these memories, or within one.
pub(crate) fn copy(
    models: &mut [Model],
    to: usize,
    at: usize,
    from: usize,
    range: &Range<usize>,
) -> Result<(), Refusal> {
    let target = at..at + range.len();
    if to == from && target == *range {
        return Ok(());
    }
    if to == from && range.start.max(target.start) < range.end.min(target.end) {
        return Err(Refusal::Conflict);
    }
    models[from].check(range, false)?;
    if !range.clone().any(|cell| models[from].is_touched(cell)) {
        return models[to].host(&target, Intent::Overwrite).map(drop);
    }
    match device_of_copy(models, to, from, range) {
        Some(device) => {
            let replica = models[from].device(device, range, Intent::Read)?;
            let held = models[from].borrow(range, false, replica);
            let done = models[to].device(device, &target, Intent::Overwrite);
            models[from].release(held);
            done?;
            models[to].moved.across += range.len() as u64;
        }
        None => {
            let replica = models[from].host(range, Intent::Read)?;
            let held = models[from].borrow(range, false, replica);
            let done = models[to].host(&target, Intent::Overwrite);
            models[from].release(held);
            done?;
        }
    }
    Ok(())
}

/// The device that a copy runs on, if not the host: who lacks the fewest cells, then who has the destination, then the
/// first.
fn device_of_copy(models: &[Model], to: usize, from: usize, range: &Range<usize>) -> Option<usize> {
    let (source, target) = (&models[from], &models[to]);
    let lacking = |has: &dyn Fn(usize) -> bool| range.clone().filter(|cell| !has(*cell)).count();
    let host = lacking(&|cell| source.is_valid_at(None, cell));
    let rank = |device: &usize| {
        let replica = Replica::Device(*device);
        let lacks =
            if source.reads_on_host(*device, range) { host } else { lacking(&|cell| source.is_valid(replica, cell)) };
        let is_on = target.met.contains(device) && (0..target.cells()).any(|cell| target.is_valid(replica, cell));
        (lacks, !is_on)
    };
    let best = source.met.iter().copied().min_by_key(rank)?;
    (rank(&best) < (host, true)).then_some(best)
}
