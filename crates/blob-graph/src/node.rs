//! A layer as the rows see it: names, parameters, places of values.

/// A layer of the graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The layer's name.
    pub name: String,
    /// The framework's name of the layer's type.
    pub type_name: String,
    /// The values that the layer reads: places in [`Graph::values`](crate::Graph::values).
    pub inputs: Vec<usize>,
    /// The values that the layer writes.
    pub outputs: Vec<usize>,
    /// The stated parameters of the layer's type, without those that inference does not need.
    pub parameters: Vec<(&'static str, String)>,
    /// The names of the layer's tensors in the net.
    pub tensors: Vec<String>,
}
