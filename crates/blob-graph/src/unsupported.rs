//! All that stands between a net and a graph, in one error.
//!
//! Knows no operator: the rows say the words.

use std::fmt;

use blob_io::words::{NAMED_PROBLEMS, and_more};

/// The layers of a net that have no place in a graph, and the faults of the net, all of them at once. The text has the
/// first ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The problems, in the order of the net. Never empty.
    pub problems: Vec<Problem>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The layer's name; empty if the problem is the whole net's or an input's.
    pub layer: String,
    /// The layer's type; empty as the name.
    pub type_name: String,
    /// The kind of problem.
    pub reason: Reason,
    /// The details, for people.
    pub message: String,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The layer's type is not known.
    Type,
    /// A parameter is not known, or has a value that has no form in ONNX.
    Parameter,
    /// The shapes of the layer's inputs, parameters and outputs do not fit.
    Shape,
    /// An input has no shape.
    Input,
    /// The layers do not form a net: a cycle, a value that two layers write.
    Order,
}

/// Why a layer has no form: a problem that does not know its layer yet.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn shape(message: impl Into<String>) -> Self {
        Self { reason: Reason::Shape, message: message.into() }
    }

    pub(crate) fn parameter(message: impl Into<String>) -> Self {
        Self { reason: Reason::Parameter, message: message.into() }
    }

    pub(crate) fn of(self, layer: &str, type_name: &str) -> Problem {
        let Self { reason, message } = self;
        Problem { layer: layer.to_owned(), type_name: type_name.to_owned(), reason, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layer.is_empty() && self.type_name.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{:?} ({}): {}", self.layer, self.type_name, self.message)
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<String> = self.problems.iter().take(NAMED_PROBLEMS).map(ToString::to_string).collect();
        f.write_str(&first.join("\n"))?;
        f.write_str(&and_more(self.problems.len() - first.len()))
    }
}

impl std::error::Error for Unsupported {}
