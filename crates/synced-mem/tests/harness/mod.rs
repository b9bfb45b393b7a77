//! Programs over memories, run by one thread beside a model that knows everything, or by several beside a shadow of
//! every byte. The test binaries `machine` and `soak` share the harness. It relies on the loopback, which runs nothing
//! before it must and lists each broken promise.

mod budgets;
mod checks;
mod kinds;
pub(crate) mod model;
pub(crate) mod observed;
pub(crate) mod op;
pub(crate) mod owned;
pub(crate) mod shadow;
#[path = "../common/tape.rs"]
pub(crate) mod tape;
pub(crate) mod tapes;
mod whole;
pub(crate) mod worker;
pub(crate) mod world;
