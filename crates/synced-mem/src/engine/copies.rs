//! The memory of the copies: host buffers and device blocks. Which bytes are valid, and who uses them, stands in
//! `coherence::facts`.

use std::any::Any;
use std::sync::Arc;

use crate::coherence::replicas::Slot;
use crate::device::Block;
use crate::engine::queue::QueueHandle;
use crate::error::Error;
use crate::ids::DeviceId;

/// Bytes on a device.
pub(crate) struct DeviceCopy {
    pub(crate) device: DeviceId,
    /// None before the first use, and after an eviction.
    pub(crate) memory: Option<DeviceMemory>,
}

/// A block, with the queue and the owner that have to outlive the block.
pub(crate) struct DeviceMemory {
    pub(crate) block: Arc<dyn Block>,
    /// The queue in whose order the block is freed.
    pub(crate) queue: QueueHandle,
    /// Of adopted memory: dropped when no queue uses the block any more.
    pub(crate) owner: Option<Box<dyn Any + Send + Sync>>,
}

/// A device's block without a valid byte, with the queues that may still use the block.
pub(crate) struct FreedBlock {
    pub(crate) slot: Slot,
    pub(crate) memory: DeviceMemory,
    pub(crate) users: Vec<QueueHandle>,
}

impl FreedBlock {
    /// Makes sure that the block may be given back in the order of the queue that allocated it: after all other queues
    /// that use the block. Waits, so the memory's lock is not held, except at the end of the memory.
    pub(crate) fn finish_uses(&self) -> Result<(), Error> {
        let queue = &self.memory.queue;
        let is_owned = self.memory.owner.is_some();
        for user in &self.users {
            // An owner may free at once, whatever the queue has still to do.
            if is_owned || (user != queue && queue.wait_for(user).is_err()) {
                user.synchronize()?;
            }
        }
        Ok(())
    }
}
