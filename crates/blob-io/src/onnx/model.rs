//! A model to be written, as plain values: the graph and small constants, without the tensors' bytes.
//!
//! Knows no message of protobuf and no operator: names, types and shapes stand here as given, and are not checked.

use blob_core::{DType, Shape};

/// A model: one graph, and the versions by which the graph is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The version of ONNX's format; 8 goes with opset 17.
    pub ir_version: i64,
    /// The version of ONNX's own operators.
    pub opset: i64,
    /// The graph's name.
    pub name: String,
    /// The values that a caller gives, in order.
    pub inputs: Vec<Value>,
    /// The values that a caller gets, in order.
    pub outputs: Vec<Value>,
    /// The values in between, each with its shape.
    pub values: Vec<Value>,
    /// The nodes; each reads values that stand before.
    pub nodes: Vec<Node>,
    /// The constants, weights among them.
    pub initializers: Vec<Initializer>,
    /// Pairs of text about the model.
    pub metadata: Vec<(String, String)>,
    /// The file beside the model that has the stored initializers of [`Model::OUTSIDE`] bytes and more, as
    /// `net.onnx.data`; `None` for a model of one file.
    pub outside: Option<String>,
}

impl Model {
    /// The fewest bytes of values that go into the file beside the model; shorter ones stay within. This is
    /// `size_threshold` of ONNX's `save_as_external_data`.
    pub const OUTSIDE: u64 = 1024;

    /// How many nodes the file has: each constant is a node there, too.
    #[must_use]
    pub fn node_count(&self) -> usize {
        let constants = self.initializers.iter().filter(|own| matches!(own, Initializer::Constant { .. }));
        self.nodes.len() + constants.count()
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// The operator, as `Conv`.
    pub op_type: String,
    /// The set that the operator comes from; empty for ONNX's own.
    pub domain: String,
    /// The names of the values that the operation reads; empty for an optional one that is not given.
    pub inputs: Vec<String>,
    /// The names of the values that the operation writes.
    pub outputs: Vec<String>,
    /// The attributes by name.
    pub attributes: Vec<(String, Attribute)>,
}

impl Node {
    /// A node of ONNX's own set that writes one value, whose name the node has too.
    #[must_use]
    pub fn new(op_type: &str, inputs: &[&str], output: &str) -> Self {
        Self {
            name: output.to_owned(),
            op_type: op_type.to_owned(),
            domain: String::new(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            outputs: vec![output.to_owned()],
            attributes: Vec::new(),
        }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.push((name.to_owned(), value));
        self
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// A text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
}

/// A value that flows through the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The name, by which nodes read the value.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The extents, outermost first.
    pub shape: Vec<Dim>,
}

/// The extent of one axis of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// So many elements.
    Size(u64),
    /// A number that a caller chooses, known by this name.
    Name(String),
}

/// A constant of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initializer {
    /// The values come from a tensor of the conversion, and are streamed.
    Stored {
        /// The name, by which nodes read the values.
        name: String,
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Shape,
    },
    /// The values stand here: shapes, axes, prior boxes.
    Constant {
        /// The name, by which nodes read the values.
        name: String,
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Shape,
        /// The values, row-major and little-endian.
        bytes: Vec<u8>,
    },
}

impl Initializer {
    /// The name, by which nodes read the values.
    #[must_use]
    pub fn name(&self) -> &str {
        let (Self::Stored { name, .. } | Self::Constant { name, .. }) = self;
        name
    }
}
