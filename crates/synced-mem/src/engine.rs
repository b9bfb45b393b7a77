//! The one place that changes a memory: its state, and the steps that an operation is taken in. What it must do is
//! decided by `coherence`; `host` and `device` hold the bytes. The shells above borrow, and see no field of the state.

mod broken;
pub(crate) mod copies;
pub(crate) mod events;
pub(crate) mod evict;
mod queues;
#[allow(unsafe_code)]
mod receive;
pub(crate) mod state;
pub(crate) mod step;
mod teardown;
pub(crate) mod tidy;
#[allow(unsafe_code)]
mod transfer;
