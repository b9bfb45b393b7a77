//! The one place that changes a memory: `step` asks `coherence::plan` what is next, and `perform` does it. The shells
//! above borrow, and ask.

mod events;
#[allow(unsafe_code)]
pub(crate) mod perform;
pub(crate) mod serve;
pub(crate) mod state;
mod step;
mod wait;
