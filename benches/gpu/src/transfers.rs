//! Transfers through a memory, as users have them, beside the driver's own of the same bytes, in turn.

use std::sync::Arc;

use anyhow::Result;
use synced_mem::cuda::Cuda;
use synced_mem::{Block, Device, HostPool, Queue, SharedMem};

use crate::Sizes;
use crate::bench::in_turn;
use crate::driver::Driver;

/// Pinned memory, then pageable.
pub(crate) fn run(sizes: &Sizes) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let (queue, device) = (gpu.queue()?, gpu as Arc<dyn Device>);
    let driver = Driver::new(&*queue)?;
    for (kind, is_pinned) in [("pinned", true), ("pageable", false)] {
        let memory = || match is_pinned {
            true => SharedMem::new_in(sizes.bytes, &HostPool::of(&device, sizes.bytes)),
            false => SharedMem::from(vec![1; sizes.bytes]),
        };
        let (memory, theirs) = (memory(), memory());
        memory.host_overwrite(..)?.fill(1);
        let block = queue.alloc(sizes.bytes)?;
        // The driver's stream is another one, and the block is there when ours has got to it.
        queue.synchronize()?;
        let way = Way { memory: &memory, theirs: &theirs, block: &*block, is_pinned, queue: &queue, driver: &driver };
        for (name, times) in [("H2D", way.up(sizes)?), ("D2H", way.down(sizes)?)] {
            let [ours, driver] = times;
            println!("figure\t{name} {kind}, of the driver's own\t{:e}", driver / ours);
            println!("about\t{name} {kind}: {:.1} GB/s", sizes.bytes as f64 / ours / 1e9);
        }
    }
    Ok(())
}

struct Way<'a> {
    memory: &'a SharedMem,
    /// The driver's host bytes.
    theirs: &'a SharedMem,
    block: &'a dyn Block,
    is_pinned: bool,
    queue: &'a Arc<dyn Queue>,
    driver: &'a Driver,
}

impl Way<'_> {
    /// Our seconds and the driver's.
    fn up(&self, sizes: &Sizes) -> Result<[f64; 2]> {
        let mut ours = || {
            // What was written here makes the copy there stale.
            drop(self.memory.host_mut(..)?);
            Ok(self.memory.prefetch(self.queue, ..)?)
        };
        let wait = || Ok(self.queue.synchronize()?);
        let bytes = self.theirs.host(..)?;
        let mut theirs = || self.driver.upload(&bytes, self.block, self.is_pinned);
        let mut runs: [_; 2] = [
            ("ours", &mut ours as &mut dyn FnMut() -> _, &wait as &dyn Fn() -> _),
            ("theirs", &mut theirs, &|| self.driver.wait()),
        ];
        both(in_turn(&mut runs, sizes.rounds, 1)?)
    }

    fn down(&self, sizes: &Sizes) -> Result<[f64; 2]> {
        let mut ours = || {
            drop(self.memory.device_mut(self.queue, ..)?);
            Ok(self.memory.prefetch_host(..)?)
        };
        let wait = || Ok(self.queue.synchronize()?);
        let mut bytes = self.theirs.host_mut(..)?;
        let mut theirs = || self.driver.download(self.block, &mut bytes, self.is_pinned);
        let mut runs: [_; 2] = [
            ("ours", &mut ours as &mut dyn FnMut() -> _, &wait as &dyn Fn() -> _),
            ("theirs", &mut theirs, &|| self.driver.wait()),
        ];
        both(in_turn(&mut runs, sizes.rounds, 1)?)
    }
}

fn both(times: Vec<(&'static str, f64)>) -> Result<[f64; 2]> {
    Ok([times[0].1, times[1].1])
}
