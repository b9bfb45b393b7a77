//! A net of Caffe's or MXNet's as a graph of known operators with shapes, and the ONNX model that computes the same.
//!
//! [`Graph::from_net`] checks every layer and infers every shape, or lists all that stands in the way; [`to_onnx`]
//! makes the model and says which tensor of the net each weight is.
//!
//! This crate does not know values of tensors, nor files.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod caffe;
mod forms;
mod graph;
mod mxnet;
mod names;
mod onnx;
mod row;
mod shapes;
mod site;
mod tables;
#[cfg(test)]
mod tests;
mod unsupported;
mod window;

pub use graph::{Dropped, Graph, Node, Prepared, Value};
pub use onnx::{Make, Need, Ssd, Target, to_onnx};
pub use shapes::Shapes;
pub use unsupported::{Problem, Reason, Unsupported};
