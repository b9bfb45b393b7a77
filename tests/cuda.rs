//! Tests of blob's promises for GPUs without a GPU: runs the real backend on the driver of `fake-cuda`, in a separate
//! process. Tests order, memory, failures and results, not speed.

#![cfg(all(test, target_os = "linux"))]

#[path = "cuda/absent.rs"]
mod absent;
#[path = "cuda/beside.rs"]
mod beside;
#[path = "cuda/counts.rs"]
mod counts;
#[expect(dead_code, reason = "`main` is the example's")]
#[path = "../crates/synced-mem/examples/devices.rs"]
mod devices;
#[path = "cuda/failing.rs"]
mod failing;
#[path = "cuda/forked.rs"]
mod forked;
#[path = "cuda/launch.rs"]
mod launch;
#[path = "cuda/lazy.rs"]
mod lazy;
#[path = "cuda/memory.rs"]
mod memory;
#[path = "cuda/operations.rs"]
mod operations;
#[path = "cuda/ops.rs"]
mod ops;
#[path = "cuda/page.rs"]
mod page;
#[path = "cuda/places.rs"]
mod places;
#[path = "cuda/programs.rs"]
mod programs;
#[path = "cuda/shares.rs"]
mod shares;
#[path = "cuda/staged.rs"]
mod staged;

use std::sync::Arc;

use fake_cuda::control::{Leaks, Session, Setup};
use synced_mem::Queue;
use synced_mem::cuda::Cuda;

/// A session with the driver, the first GPU, and a queue of that GPU.
fn gpu(setup: Setup) -> (Session, Arc<Cuda>, Arc<dyn Queue>) {
    let session = Session::start(setup);
    let gpu = Cuda::open(0).unwrap();
    let queue = synced_mem::Device::queue(&*gpu).unwrap();
    (session, gpu, queue)
}

/// A driver whose streams run in the order of this seed.
fn seed(seed: u64) -> Setup {
    Setup { seed, ..Setup::default() }
}

/// Asserts that every object of the driver has been released.
fn expect_no_leaks(session: &Session) {
    assert_eq!(session.leaks(), Leaks::default());
}
