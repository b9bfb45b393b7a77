//! The shapes of a net's inputs, as the caller gives them.

use std::collections::BTreeMap;

/// The shapes of inputs, which stand before the shapes that the net's description states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    /// Shapes by the input's name.
    pub named: BTreeMap<String, Vec<u64>>,
    /// The shape of the only input, whatever its name.
    pub only: Option<Vec<u64>>,
    /// The shapes of the tensors that the source stores, by the names that the net has for them, in the order of the
    /// file. A variable of MXNet's among them is a weight of the model where an operator reads it as an input.
    pub stored: Vec<(String, Vec<u64>)>,
}
