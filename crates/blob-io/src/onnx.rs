//! ONNX's models (`.onnx`): the initializers of the graph as tensors, and the model's words as metadata.
//!
//! Field numbers and rules are those of onnx/onnx 1.23, IR versions 3 to 14. Reading leaves out the graph itself, and
//! the tensors in it: the values of `Constant` nodes and of graphs within nodes. [`Model`] is a graph to be written.

mod around;
mod external;
mod model;
mod numbers;
mod place;
pub mod proto;
pub(crate) mod read;
mod tensor;
mod types;
pub(crate) mod write;

pub(crate) use around::{fields, without};
pub(crate) use external::{attach, dialect, join};
pub use model::{Attribute, Dim, Initializer, Model, Node, Value};
pub(crate) use place::Outside;
