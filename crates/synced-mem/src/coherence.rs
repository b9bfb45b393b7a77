//! The algebra of coherence: which bytes are valid where, who may still use them, who borrows them. Pure: it holds no
//! buffer and calls no queue, so each of its files is tested against a model.

pub(crate) mod borrows;
pub(crate) mod broken;
pub(crate) mod facts;
mod intervals;
pub(crate) mod plan;
pub(crate) mod ranges;
pub(crate) mod replicas;
pub(crate) mod uses;
