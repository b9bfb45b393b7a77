//! Runs one block of a grid: the warps in turn, and the barriers.

use super::access::Shared;
use super::warp::{Now, Warp, each};
use super::{Run, Stop, Who};
use crate::abi::{Code, WARP};
use crate::ptx::Op;

/// A block that is running: the state that the warps share.
pub(super) struct Team<'r, 'a> {
    pub(super) run: &'r mut Run<'a>,
    pub(super) index: [u32; 3],
    /// The number in the launch of the first thread, from 0.
    first: u32,
    pub(super) shared: Shared,
    /// The count of barriers at the last one of the whole block.
    pub(super) epoch: u16,
    issues: u64,
}

/// A warp runs at most this many instructions before another warp runs.
const TURN: usize = 32;
/// A block that runs more warp instructions than this is taken to loop forever.
const MAX_ISSUES: u64 = 4_000_000;

/// Runs a block to the end.
pub(super) fn run(run: &mut Run<'_>, block: u32) -> Result<(), Stop> {
    let launch = run.launch;
    let [x, y, _] = launch.grid;
    let threads = launch.threads();
    let shared = Shared::new(launch.kernel.shared + launch.shared);
    let index = [block % x, block / x % y, block / x / y];
    let mut team = Team { run, index, first: block * threads, shared, epoch: 1, issues: 0 };
    let mut warps: Vec<Warp> = (0..threads.div_ceil(WARP as u32)).map(|number| Warp::new(launch, number)).collect();
    loop {
        let able: Vec<usize> = (0..warps.len()).filter(|at| warps[*at].ready != 0).collect();
        if able.is_empty() {
            if warps.iter().all(|warp| warp.alive() == 0) {
                return Ok(());
            }
            team.release(&mut warps)?;
            continue;
        }
        let random = &mut team.run.watch.random;
        let (warp, turn) = (able[random.below(able.len())], 1 + random.below(TURN));
        for _ in 0..turn {
            if warps[warp].ready == 0 {
                break;
            }
            team.step(&mut warps[warp])?;
        }
    }
}

impl Team<'_, '_> {
    /// A thread of this block, for reports and races.
    pub(super) fn who(&self, warp: &Warp, lane: usize, line: u32) -> Who {
        Who { thread: self.first + warp.number * WARP as u32 + lane as u32 + 1, line }
    }

    /// Releases the threads at a barrier if all threads have arrived.
    fn release(&mut self, warps: &mut [Warp]) -> Result<(), Stop> {
        let launch = self.run.launch;
        let line = |warp: &Warp, lane: usize| launch.kernel.code[warp.at[lane] as usize].line;
        let waiting = warps.iter().find(|warp| warp.waiting != 0);
        if let Some(warp) = waiting {
            let lane = warp.waiting.trailing_zeros() as usize;
            let who = self.who(warp, lane, line(warp, lane));
            return Err(self.run.stop(who, Code::LAUNCH_FAILED, "waits for threads of its warp that do not come"));
        }
        let places =
            warps.iter().flat_map(|warp| each(warp.stopped).map(|lane| (line(warp, lane), self.who(warp, lane, 0))));
        let places: Vec<(u32, Who)> = places.collect();
        let (first, who) = places[0];
        let who = Who { line: first, ..who };
        let returned = launch.threads() as usize - places.len();
        if returned > 0 {
            let text = format!("barrier divergence: {} wait, {returned} returned", places.len());
            return Err(self.run.stop(who, Code::LAUNCH_FAILED, &text));
        }
        if let Some((other, _)) = places.iter().find(|(line, _)| *line != first) {
            let text = format!("barrier divergence: others wait in line {other}");
            return Err(self.run.stop(who, Code::LAUNCH_FAILED, &text));
        }
        self.epoch = 1 + warps.iter().map(|warp| warp.epoch).max().unwrap_or_default();
        for warp in warps {
            warp.epoch = self.epoch;
            warp.ready = std::mem::take(&mut warp.stopped);
            each(warp.ready).for_each(|lane| warp.at[lane] += 1);
        }
        Ok(())
    }

    /// Runs one instruction for the threads of a warp that are at the lowest instruction.
    fn step(&mut self, warp: &mut Warp) -> Result<(), Stop> {
        let launch = self.run.launch;
        let (at, here) = warp.furthest_behind();
        let instruction = &launch.kernel.code[at as usize];
        let lanes = match instruction.guard {
            Some((predicate, false)) => here & warp.holds(predicate),
            Some((predicate, true)) => here & !warp.holds(predicate),
            None => here,
        };
        if !self.meet(warp, &instruction.op, instruction.line, lanes) {
            // Those whose predicate is false do not wait.
            each(here & !lanes).for_each(|lane| warp.at[lane] += 1);
            (warp.waiting, warp.ready) = (warp.waiting | lanes, warp.ready & !lanes);
            return Ok(());
        }
        (warp.waiting, warp.ready) = (warp.waiting & !here, warp.ready | here);
        let counts = &mut self.run.watch.counts;
        counts.issues += 1;
        counts.instructions += u64::from(lanes.count_ones());
        self.issues += 1;
        if self.issues > MAX_ISSUES {
            let who = self.who(warp, here.trailing_zeros() as usize, instruction.line);
            return Err(self.run.stop(who, Code::LAUNCH_TIMEOUT, "the kernel does not come to an end"));
        }
        each(here).for_each(|lane| warp.at[lane] = at + 1);
        let mut now = Now { launch, block: self.index, warp };
        if lanes == 0 || now.compute(&instruction.op, lanes) {
            return Ok(());
        }
        self.perform(&mut now, &instruction.op, instruction.line, lanes)
    }

    /// Runs an instruction that does more than compute.
    fn perform(&mut self, now: &mut Now<'_>, op: &Op, line: u32, lanes: u32) -> Result<(), Stop> {
        match op {
            Op::Branch { to } => each(lanes).for_each(|lane| now.warp.at[lane] = *to as u32),
            Op::Switch { on, to } => {
                for lane in each(lanes) {
                    let number = now.value(*on, lane) as u32 as usize;
                    let who = self.who(now.warp, lane, line);
                    now.warp.at[lane] = match to.get(number) {
                        Some(to) => *to as u32,
                        None => return Err(self.run.stop(who, Code::LAUNCH_FAILED, "a switch beyond its list")),
                    };
                }
            }
            // Threads that wait for one that has returned are checked again.
            Op::Return => now.warp.ready = now.warp.ready & !lanes | std::mem::take(&mut now.warp.waiting),
            Op::Barrier => {
                now.warp.ready &= !lanes;
                now.warp.stopped |= lanes;
                // The threads advance only when the barrier releases all, so that the line is known until then.
                each(lanes).for_each(|lane| now.warp.at[lane] -= 1);
            }
            Op::WarpBarrier { .. } => now.warp.epoch += 1,
            Op::Fence => {}
            Op::Trap => {
                let who = self.who(now.warp, lanes.trailing_zeros() as usize, line);
                return Err(self.run.stop(who, Code::LAUNCH_FAILED, "a trap"));
            }
            Op::Load { place, to } => self.load(now, line, *place, to, lanes)?,
            Op::Store { place, from } => self.store(now, line, *place, from, lanes)?,
            Op::Atomic { .. } => self.atomic(now, line, op, lanes)?,
            Op::Shuffle { .. } => self.shuffle(now, line, op, lanes),
            Op::Vote { .. } => self.vote(now, op, lanes),
            _ => unreachable!("the rest is computed"),
        }
        Ok(())
    }
}
