//! What blob promises beside other libraries of a process: the bindings of CUDA that candle and others use, and candle
//! itself. The driver is the one for tests; candle's tensors are on the host, because its kernels need a compiler of
//! NVIDIA's to build, while its streams are those of the bindings here.

#![cfg(all(test, target_os = "linux"))]

mod bindings;
mod candle;

use fake_cuda::control::{Leaks, Session, Setup};

/// A session with the driver, whose streams run in the order of this seed.
fn session(seed: u64, memory: u64) -> Session {
    Session::start(Setup { seed, memory, ..Setup::default() })
}

/// Asserts that every object of the driver has been released.
fn expect_no_leaks(session: &Session) {
    assert_eq!(session.leaks(), Leaks::default());
}
