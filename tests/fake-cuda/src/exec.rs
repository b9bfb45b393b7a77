//! Runs kernels: blocks one after the other, and within a block the warps in turn, in an order that the seed decides.
//! The threads of a warp that are at the same instruction run together, at the lowest instruction first, so that they
//! reconverge after a branch. Every access is checked for bounds, alignment, uninitialized bytes and races. Does not
//! model time, caches or weak memory order.

mod access;
mod block;
mod convert;
mod counts;
mod float;
mod global;
mod meet;
mod races;
mod warp;
mod whole;

use std::sync::Arc;

use crate::abi::Code;
use crate::memory::Block;
use crate::ptx::Kernel;
use crate::random::Random;
use crate::setup::Counts;

/// A kernel to run, with a copy of the parameters.
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory beyond the kernel's own declaration.
    pub(crate) shared: usize,
    pub(crate) params: Vec<u8>,
    /// Whether all blocks run at once.
    pub(crate) is_cooperative: bool,
    /// Whether host memory may be read where it lies.
    pub(crate) shares_host: bool,
}

impl Launch {
    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// The record of a kernel's run.
pub(crate) struct Watch<'a> {
    pub(crate) counts: &'a mut Counts,
    pub(crate) reports: &'a mut Vec<String>,
    pub(crate) random: &'a mut Random,
}

/// Why a kernel stops.
pub(crate) struct Stop {
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// A launch that is running: the state that all blocks share.
struct Run<'a> {
    launch: &'a Launch,
    global: global::Global<'a>,
    watch: Watch<'a>,
    /// The reports made so far, so that each line makes a report of each kind only once.
    seen: Vec<(u32, &'static str)>,
}

/// The maximum number of threads in a launch, as the records of races identify a thread by 32 bits.
const MAX_THREADS: u64 = u32::MAX as u64 - 1;

/// Runs a kernel on the memory of the device.
pub(crate) fn run(launch: &Launch, blocks: &mut [Block], watch: Watch<'_>) -> Result<(), Stop> {
    let count = launch.grid.iter().map(|size| u64::from(*size)).product::<u64>();
    if count * u64::from(launch.threads()) > MAX_THREADS {
        let text = format!("{}: {count} blocks are more than the interpreter can tell apart", launch.kernel.name);
        return Err(Stop { code: Code::LAUNCH_FAILED, text });
    }
    watch.counts.launches += 1;
    watch.counts.long_divisions = launch.kernel.long_divisions;
    let mut order: Vec<u32> = (0..count as u32).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, watch.random.below(at + 1));
    }
    let global = global::Global::new(blocks, launch.threads());
    let mut run = Run { launch, global, watch, seen: Vec::new() };
    order.into_iter().try_for_each(|block| block::run(&mut run, block))
}

/// The thread that runs an instruction, as reports name it.
#[derive(Clone, Copy)]
struct Who {
    /// Counted over the launch from 1, block by block.
    thread: u32,
    line: u32,
}

impl Run<'_> {
    /// The position of a thread in the launch, for a report.
    fn name(&self, thread: u32) -> String {
        let at = |index: u32, of: [u32; 3]| (index % of[0], index / of[0] % of[1], index / of[0] / of[1]);
        let (block, within) = ((thread - 1) / self.launch.threads(), (thread - 1) % self.launch.threads());
        format!("thread {:?} of block {:?}", at(within, self.launch.block), at(block, self.launch.grid))
    }

    fn text(&self, who: Who, text: &str) -> String {
        format!("{}, line {} of the PTX, {}: {text}", self.launch.kernel.name, who.line, self.name(who.thread))
    }

    /// Reports a mistake after which a GPU would continue. Each line makes a report of each kind only once.
    fn report(&mut self, who: Who, kind: &'static str, text: impl FnOnce(&Self) -> String) {
        if !self.seen.contains(&(who.line, kind)) {
            self.seen.push((who.line, kind));
            let text = self.text(who, &text(self));
            self.watch.reports.push(text);
        }
    }

    /// A mistake at which a GPU would stop.
    fn stop(&self, who: Who, code: Code, text: &str) -> Stop {
        Stop { code, text: self.text(who, text) }
    }
}
