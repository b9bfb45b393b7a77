//! A row of the table of operators: the types, the parameters with their defaults, and the function that makes the
//! operator's ONNX form with all shapes.

use crate::site::{Operand, Site};
use crate::unsupported::Refusal;

/// An operator of the source.
#[derive(Debug)]
pub(crate) struct Row {
    /// The types of layers, the framework's first.
    pub(crate) types: &'static [&'static str],
    /// The messages that hold the parameters; any of them may.
    pub(crate) messages: &'static [&'static str],
    /// The parameters, each with the default; without one the default is an empty text.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
    /// The fewest and the most inputs.
    pub(crate) bottoms: (usize, usize),
    /// The fewest and the most outputs.
    pub(crate) tops: (usize, usize),
    /// Infers the outputs' shapes from the inputs', and adds the nodes that compute the results, one for each output.
    pub(crate) lower: fn(&mut Site<'_>) -> Result<Vec<Operand>, Refusal>,
}

impl Row {
    /// The parameter at a path of a layer's settings.
    pub(crate) fn parameter(&self, path: &str) -> Option<&'static str> {
        let own = |message: &&str| path.strip_prefix(*message)?.strip_prefix('.');
        let name = self.messages.iter().find_map(own)?;
        self.parameters.iter().map(|(known, _)| *known).find(|known| *known == name)
    }

    pub(crate) fn default(&self, parameter: &str) -> &'static str {
        let known = self.parameters.iter().find(|(known, _)| *known == parameter);
        known.map_or("", |(_, default)| default)
    }
}
