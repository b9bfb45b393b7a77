//! A net of Caffe's or MXNet's as a graph of known operators with shapes, and the ONNX model that computes the same.
//!
//! [`Graph::from_net`] checks every layer and infers every shape, or lists all that stands in the way; [`to_onnx`]
//! makes the model and says which tensor of the net each weight is.
//!
//! This crate does not know values of tensors, nor files.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// From the ground: a module relies on those above it.
mod names;
mod need;
mod node;
mod shapes;
mod target;
mod unsupported;

mod operand;

mod body;

mod site;

mod forms;
mod row;
mod window;

mod caffe;
mod mxnet;

mod graph;
mod tables;

mod check;
mod lower;

mod from_net;
mod onnx;

#[cfg(test)]
mod tests;

pub use graph::{Dropped, Graph, Prepared, Value};
pub use need::{Make, Need};
pub use node::Node;
pub use onnx::to_onnx;
pub use shapes::Shapes;
pub use tables::{Operator, operators};
pub use target::{Ssd, Target};
pub use unsupported::{Problem, Reason, Unsupported};
