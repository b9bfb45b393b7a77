//! A row of the table of operators: the types, the parameters with their defaults, and the function that makes the
//! operator's ONNX form with all shapes.

use crate::operand::Operand;
use crate::site::Site;
use crate::unsupported::Refusal;

/// As many inputs or outputs as a net may have.
pub(crate) const MANY: usize = 1 << 16;

/// An operator of the source.
#[derive(Debug)]
pub(crate) struct Row {
    /// The types of layers, the framework's first: words.
    pub(crate) types: &'static str,
    /// The messages that hold the parameters; any of them may. MXNet's operators have no messages.
    pub(crate) messages: &'static str,
    /// The parameters, each with the default, as `NAME=DEFAULT`; without one, the default is an empty text.
    pub(crate) parameters: &'static str,
    /// The fewest and the most inputs.
    pub(crate) bottoms: (usize, usize),
    /// The fewest and the most outputs.
    pub(crate) tops: (usize, usize),
    /// So many of the first inputs matter in inference; labels follow.
    pub(crate) read: usize,
    /// The input that may be a maximum's mask as ONNX has it, of integers; every other input is made of f32.
    pub(crate) mask: Option<usize>,
    /// What becomes of integers among the inputs.
    pub(crate) integers: Integers,
    /// Infers the outputs' shapes from the inputs', and adds the nodes that compute the results, one for each output.
    pub(crate) lower: fn(&mut Site<'_>) -> Result<Vec<Operand>, Refusal>,
}

/// What an operator makes of integers, which the model has as f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integers {
    /// The form is one of floats alone.
    Refused,
    /// All outputs are integers where an input is.
    Kept,
    /// The operator's function marks the outputs.
    Own,
}

/// The part that a layer has in a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The layer's outputs are inputs of the net.
    Input,
    /// The layer is for training, or has no output.
    Training,
    /// The layer computes something known.
    Known(&'static Row),
    /// The type is in no table.
    Unknown,
}

impl Row {
    /// A row of an operator with one input and one output.
    pub(crate) const fn one(
        types: &'static str,
        messages: &'static str,
        parameters: &'static str,
        lower: fn(&mut Site<'_>) -> Result<Vec<Operand>, Refusal>,
    ) -> Self {
        Self {
            types,
            messages,
            parameters,
            bottoms: (1, 1),
            tops: (1, 1),
            read: MANY,
            mask: None,
            integers: Integers::Refused,
            lower,
        }
    }

    /// The row of an operator whose form fits integers, too.
    pub(crate) const fn with(self, integers: Integers) -> Self {
        Self { integers, ..self }
    }

    /// The parameter at a path of a layer's settings.
    pub(crate) fn parameter(&self, path: &str) -> Option<&'static str> {
        let name = if self.messages.is_empty() {
            path
        } else {
            self.messages.split_whitespace().find_map(|message| path.strip_prefix(message)?.strip_prefix('.'))?
        };
        self.parameters.split_whitespace().filter_map(|word| word.split('=').next()).find(|known| *known == name)
    }
}

/// Whether a word is in a list of words.
pub(crate) fn lists(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|own| own == word)
}
