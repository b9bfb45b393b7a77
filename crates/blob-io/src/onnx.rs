//! ONNX's models (`.onnx`): the initializers of the graph as tensors, and the model's words as metadata.
//!
//! Field numbers and rules are those of onnx/onnx 1.23, IR versions 3 to 14. Leaves out the graph itself, and the
//! tensors in it: the values of `Constant` nodes and of graphs within nodes.

mod external;
mod numbers;
pub mod proto;
pub(crate) mod read;
mod tensor;
mod types;

pub(crate) use external::{Outside, attach};
