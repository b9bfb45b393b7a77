//! Moving ahead of time: starting transfers of bytes that will be wanted soon. Nothing waits here; the access that needs the bytes does.
//! It relies on `state` and leaves out what a transfer does.

use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Queue, SyncedMem};

impl SyncedMem {
    /// Starts bringing all bytes to the queue's device (Caffe's `async_gpu_push`).
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn prefetch(&self, queue: &Arc<dyn Queue>) -> Result<(), Error> {
        self.device(queue).map(drop)
    }

    /// Starts bringing all bytes to the host; the next [`host`](Self::host) only waits for them. A range is brought to a
    /// device ahead of time by [`device_range`](Self::device_range), whose token need not be used.
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn prefetch_host(&self) -> Result<(), Error> {
        self.prefetch_host_range(0..self.len())
    }

    /// Starts bringing some bytes to the host.
    ///
    /// # Errors
    /// As [`host_range`](Self::host_range).
    pub fn prefetch_host_range(&self, range: Range<usize>) -> Result<(), Error> {
        self.act(|state| state.prefetch_host(&state.check(&range)?))
    }
}
