//! A graph: the layers that compute something, each a row of a table, and all values with their shapes.
//!
//! No values of tensors are touched.

use std::collections::BTreeMap;

use blob_core::DType;
use blob_io::net::Framework;

use crate::node::Node;
use crate::row::Row;

/// A net whose every layer has a form in ONNX, with the shape of every value.
///
/// Give the net of inference: `net.in_phase(Phase::Test)`.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) framework: Framework,
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    /// The row of each node.
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) copies: Vec<String>,
    /// The values that are tensors of the source, each with the tensor's name.
    pub(crate) weights: Vec<(usize, String)>,
    /// The known shapes of the source's tensors.
    pub(crate) stored: BTreeMap<String, Vec<u64>>,
}

/// A value of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// The name in the model: the net's name of the value, where that is unique. Of several values of one name, as of
    /// layers that work in place, an input of the net keeps the name, else the last value; behind the name of others
    /// stand a colon and the layer that writes them.
    pub name: String,
    /// The extents. 0 stands for an extent that only a run knows: how many boxes were found.
    pub shape: Vec<u64>,
    /// The element type.
    pub dtype: DType,
}

/// A layer of data that prepares the values of an input, which the graph takes as prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prepared {
    /// The layer's name.
    pub layer: String,
    /// What the layer does, by the settings' paths: `transform_param.scale`.
    pub settings: Vec<(String, String)>,
}

/// A layer that inference does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// The layer's name.
    pub layer: String,
    /// The layer's type.
    pub type_name: String,
}

impl Graph {
    /// The values.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The layers, each behind those that it reads.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The inputs that some layer reads: places in [`Graph::values`].
    #[must_use]
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The outputs: places in [`Graph::values`]. An MXNet symbol may list one several times.
    #[must_use]
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// The layers that inference does not need: losses, accuracies, `Silence`.
    #[must_use]
    pub fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    /// The layers of data that prepare the values of inputs: the graph takes these values as prepared.
    #[must_use]
    pub fn prepared(&self) -> &[Prepared] {
        &self.prepared
    }

    /// The tensors of layers that share a parameter, by a name of Caffe's `param`, with a layer whose tensor comes
    /// later in the file: the graph takes that tensor for all of them.
    #[must_use]
    pub fn copies(&self) -> &[String] {
        &self.copies
    }
}
