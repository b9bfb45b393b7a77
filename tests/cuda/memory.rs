//! The promises of a backend, and memories on GPUs: coherence, pinned memory, two GPUs, GPUs without pools.

use fake_cuda::control::{Session, Setup};
use synced_mem::conformance;
use synced_mem::cuda::Cuda;

use crate::{expect_no_leaks, seed};

#[test]
fn a_gpu_conforms() {
    for setup in [seed(1), seed(2), Setup { has_pools: false, ..seed(3) }] {
        let session = Session::start(setup);
        assert_eq!(conformance::run(&*Cuda::open(0).unwrap()), Ok(18), "{setup:?}");
        expect_no_leaks(&session);
    }
}

#[test]
fn two_gpus_conform_as_a_pair() {
    for setup in [seed(1), seed(2)] {
        let session = Session::start(setup);
        assert_eq!(conformance::run_pair(&*Cuda::open(0).unwrap(), &*Cuda::open(1).unwrap()), Ok(4), "{setup:?}");
        expect_no_leaks(&session);
    }
}
