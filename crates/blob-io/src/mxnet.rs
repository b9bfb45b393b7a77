//! MXNet's files of arrays: lists (`mx.nd.save`) and bare records (as pickles hold them), and the expansion of sparse
//! arrays to dense ones; the variables and layers of MXNet's symbol files.
//!
//! Layouts and rules are those of apache/mxnet 0.5 to 2.0 (`src/ndarray/ndarray.cc`), measured against MXNet's wheels.
//! Leaves the npy and npz files that MXNet 2 writes to `npy` and `npz`.

mod flags;
mod layers;
mod list;
mod operator;
mod outputs;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod symbol;
pub(crate) mod write;

pub use list::List;
pub use record::Version;
pub use symbol::{Symbol, Variable};
