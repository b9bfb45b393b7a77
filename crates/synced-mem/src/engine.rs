//! The one place that changes a memory: its state, and the steps that an operation is taken in. What it must do is
//! decided by `coherence`; `host` and `device` hold the bytes. The shells above borrow, and see no field of the state.

mod access;
mod broken;
mod buffers;
mod coalesce;
mod copies;
mod events;
pub(crate) mod evict;
pub(crate) mod lacking;
pub(crate) mod queue;
mod queues;
pub(crate) mod state;
pub(crate) mod step;
#[allow(unsafe_code)]
mod transfer;
pub(crate) mod waits;
