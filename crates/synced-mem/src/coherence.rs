//! The algebra of coherence: which bytes are valid where, which queues may still use a copy, which ranges are borrowed.
//! Pure: no buffer, no call of a queue, so each file is tested against a model.

pub(crate) mod borrows;
pub(crate) mod facts;
mod intervals;
pub(crate) mod plan;
pub(crate) mod ranges;
pub(crate) mod replicas;
pub(crate) mod uses;
