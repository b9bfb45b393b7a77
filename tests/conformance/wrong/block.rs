//! The blocks of the wrong backends, and the lies at dropping one. They rely on a block of the loopback for the bytes.

use std::any::Any;
use std::sync::Arc;

use synced_mem::{Block, DeviceId, Queue};

#[derive(Debug)]
pub(super) struct WrongBlock {
    pub(super) inner: Option<Arc<dyn Block>>,
    pub(super) device: DeviceId,
    pub(super) address: u64,
    pub(super) len: usize,
    /// Synchronised once the block is dropped.
    pub(super) side: Option<Arc<dyn Queue>>,
    /// Filled with zeros when dropped.
    pub(super) spoil: bool,
}

pub(super) fn unwrapped(block: &dyn Block) -> &WrongBlock {
    (block as &dyn Any).downcast_ref().expect("a block of a wrong device")
}

pub(super) fn inner(block: &dyn Block) -> &Arc<dyn Block> {
    unwrapped(block).inner.as_ref().expect("not dropped yet")
}

// SAFETY: none is claimed, as for `WrongDevice`.
unsafe impl Block for WrongBlock {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for WrongBlock {
    fn drop(&mut self) {
        let Some(side) = &self.side else {
            return;
        };
        if let Some(inner) = self.inner.as_ref().filter(|_| self.spoil) {
            // SAFETY: all of a block that still lives.
            unsafe { side.fill(&**inner, 0, self.len) }.unwrap();
        }
        self.inner = None;
        side.synchronize().unwrap();
    }
}
