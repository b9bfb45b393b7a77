//! Access of one GPU's context to another's memory, where the driver has a way: then a copy between the two need not
//! pass through the host. No copy relies on it. Blocks of a pool are left out: on some GPUs a driver has copied
//! nothing, in silence, once a pool had given access (CUDA.jl#3112).

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUdevice};

use super::failure::{Failure, answer};

/// The GPUs of which a context has been asked whether it can access them, by ordinal.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<Vec<usize>>);

impl Peers {
    /// Whether this is the first time that the GPU is met.
    pub(super) fn meet(&self, ordinal: usize) -> bool {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !met.contains(&ordinal);
        if is_new {
            met.push(ordinal);
        }
        is_new
    }
}

/// Lets the calling thread's context, which is that of `own`, access another's memory. Nothing happens where there is
/// no way, or where another library has done so before.
pub(super) fn enable(own: CUdevice, other: CUdevice, context: CUcontext) -> Result<(), Failure> {
    let mut can = 0;
    // SAFETY: both are devices of the driver's; the call writes a number.
    answer("cuDeviceCanAccessPeer", unsafe { sys::cuDeviceCanAccessPeer(&mut can, own, other) })?;
    if can == 0 {
        return Ok(());
    }
    // SAFETY: the other context lives, because its block is being copied; the call takes no other flags than 0.
    let enabled = answer("cuCtxEnablePeerAccess", unsafe { sys::cuCtxEnablePeerAccess(context, 0) });
    enabled.or_else(|failure| if failure.is_enabled_already() { Ok(()) } else { Err(failure) })
}
