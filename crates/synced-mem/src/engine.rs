//! The one place that changes a memory: `step` asks `coherence::plan` what is next, and `perform` does it. The shells
//! above borrow, and ask.

mod copies;
pub(crate) mod door;
mod events;
pub(crate) mod lacking;
pub(crate) mod operation;
#[allow(unsafe_code)]
pub(crate) mod perform;
pub(crate) mod queue;
pub(crate) mod state;
pub(crate) mod step;
mod wait;
