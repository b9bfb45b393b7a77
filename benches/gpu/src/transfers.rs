//! Measures transfers through a memory, as users make them, in turn with the driver's own of the same bytes.

use std::sync::Arc;

use anyhow::Result;
use synced_mem::cuda::Cuda;
use synced_mem::{Device, HostPool, Queue, SharedMem, SyncedMem};

use crate::Sizes;
use crate::bench::{Run, Time, in_turn};
use crate::driver::{Buffer, Driver};

/// Measures pinned memory, then pageable memory.
pub(crate) fn run(sizes: &Sizes) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let driver = Driver::new(&gpu)?;
    let (queue, device) = (gpu.queue()?, gpu as Arc<dyn Device>);
    for (kind, is_pinned) in [("pinned", true), ("pageable", false)] {
        let memory = || {
            if is_pinned {
                SharedMem::from(SyncedMem::new_in(sizes.bytes, &HostPool::of(&device, sizes.bytes)))
            } else {
                SharedMem::from(vec![1; sizes.bytes])
            }
        };
        let (memory, theirs) = (memory(), memory());
        memory.host_overwrite(..)?.fill(1);
        let mut buffer = driver.buffer(sizes.bytes)?;
        let transfer = Transfer { memory: &memory, theirs: &theirs, is_pinned, queue: &queue, driver: &driver };
        for (name, times) in [("H2D", transfer.up(&mut buffer, sizes)?), ("D2H", transfer.down(&buffer, sizes)?)] {
            let [ours, driver] = &times[..] else { continue };
            println!("figure\t{name} {kind}, of the driver's own\t{:e}", driver.median / ours.median);
            println!("about\t{name} {kind}: {}, the driver's own {}", ours.rate(sizes.bytes), driver.rate(sizes.bytes));
        }
    }
    Ok(())
}

struct Transfer<'a> {
    memory: &'a SharedMem,
    /// The host memory of the driver's transfers.
    theirs: &'a SharedMem,
    is_pinned: bool,
    queue: &'a Arc<dyn Queue>,
    driver: &'a Driver,
}

impl Transfer<'_> {
    /// Our time and the driver's.
    fn up(&self, buffer: &mut Buffer, sizes: &Sizes) -> Result<Vec<Time>> {
        let bytes = self.theirs.host(..)?;
        let mut runs = [
            Run("ours", &mut |_| {
                // Writing on the host makes the copy on the device stale.
                drop(self.memory.host_mut(..)?);
                self.memory.device(self.queue, ..)?;
                Ok(self.queue.synchronize()?)
            }),
            Run("theirs", &mut |_| self.driver.upload(&bytes, buffer, self.is_pinned)),
        ];
        in_turn(&mut runs, sizes, 1)
    }

    fn down(&self, buffer: &Buffer, sizes: &Sizes) -> Result<Vec<Time>> {
        let mut bytes = self.theirs.host_mut(..)?;
        let mut runs = [
            Run("ours", &mut |_| {
                drop(self.memory.device_mut(self.queue, ..)?);
                self.memory.prefetch_host(..)?;
                Ok(self.queue.synchronize()?)
            }),
            Run("theirs", &mut |_| self.driver.download(buffer, &mut bytes, self.is_pinned)),
        ];
        in_turn(&mut runs, sizes, 1)
    }
}
