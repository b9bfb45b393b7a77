//! Tests of the loopback as a tool: when work runs, limits, failures, misuses and kernels.
//! The conformance suite tests the promises of a backend.

mod faults;
mod kernels;
mod order;
mod uses;
mod waits;

use std::ptr::NonNull;
use std::sync::Mutex;

use super::calls::OPERATIONS;
use super::memory::POISON;
use super::*;
use crate::borrow::{ClaimedRange, DeviceMut, DeviceRef};
use crate::{Access, Arg, Block};

/// Names of what ran, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Enqueues a kernel that only notes a name.
    fn note(&self, queue: &dyn Queue, name: impl ToString) {
        let (log, name) = (self.clone(), name.to_string());
        launch(queue, [], move |_| log.0.lock().unwrap().push(name)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn claimed(block: &Arc<dyn Block>, range: std::ops::Range<usize>, queue: &Arc<dyn Queue>) -> ClaimedRange {
    ClaimedRange { block: Some(Arc::clone(block)), range, queue: Arc::clone(queue), _hold: None }
}

fn writer<'a>(block: &Arc<dyn Block>, queue: &Arc<dyn Queue>) -> DeviceMut<'a> {
    DeviceMut::new(claimed(block, 0..block.len(), queue), None)
}

fn alloc(queue: &Arc<dyn Queue>, len: usize) -> Arc<dyn Block> {
    Arc::from(queue.alloc(len).unwrap())
}

/// What a block holds, once its queue is synchronised.
fn bytes(queue: &Arc<dyn Queue>, block: &dyn Block) -> Vec<u8> {
    let mut host = vec![0; block.len()];
    let start = NonNull::new(host.as_mut_ptr()).unwrap();
    // SAFETY: all of a block, into as many bytes, which live and are left alone until the synchronisation.
    unsafe { queue.download(block, 0, start, block.len()) }.unwrap();
    queue.synchronize().unwrap();
    host
}

fn set(queue: &Arc<dyn Queue>, block: &Arc<dyn Block>, value: u8) {
    let mut token = writer(block, queue);
    launch(&**queue, [token.arg_mut()], move |args| args[0].bytes_mut().fill(value)).unwrap();
}
