//! What blob promises of GPUs, on a CUDA driver that needs none: the real backend on `fake-cuda`, in a process of its
//! own. What is tested is order, memory, failures and results; no figure here says anything of speed.

#![cfg(all(test, target_os = "linux"))]

#[path = "cuda/absent.rs"]
mod absent;
#[path = "cuda/counts.rs"]
mod counts;
#[path = "cuda/failing.rs"]
mod failing;
#[path = "cuda/launch.rs"]
mod launch;
#[path = "cuda/memory.rs"]
mod memory;
#[path = "cuda/operations.rs"]
mod operations;
#[path = "cuda/ops.rs"]
mod ops;
#[path = "cuda/places.rs"]
mod places;

use std::sync::Arc;

use fake_cuda::control::{Leaks, Session, Setup};
use synced_mem::Queue;
use synced_mem::cuda::Cuda;

/// A driver with its first GPU and a queue of that.
fn gpu(setup: Setup) -> (Session, Arc<Cuda>, Arc<dyn Queue>) {
    let session = Session::start(setup);
    let gpu = Cuda::open(0).unwrap();
    let queue = synced_mem::Device::queue(&*gpu).unwrap();
    (session, gpu, queue)
}

/// A driver whose streams take turns in this order.
fn seed(seed: u64) -> Setup {
    Setup { seed, ..Setup::default() }
}

/// Everything that was made has been given back.
fn expect_no_leaks(session: &Session) {
    assert_eq!(session.leaks(), Leaks::default());
}
