//! A symbol's operators as the layers of a net: values are outputs of nodes.

use std::sync::Arc;

use super::operator::Operator;
use crate::error::{Fault, ReadError, check_limit};
use crate::limits::Limit;
use crate::net::{Builder, Draft, Net, Role};

/// Nets of more outputs are refused.
const MAX_OUTPUTS: u64 = 1 << 16;

/// An output of a node: the node, and which one.
type Value = (u64, u64);

/// What an operator reads.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) bottoms: Vec<Value>,
    pub(super) tensors: Vec<(Role, Arc<str>)>,
}

/// The layers so far.
#[derive(Debug)]
pub(super) struct Layers {
    builder: Builder<Value>,
    heads: Vec<Value>,
}

impl Layers {
    pub(super) fn new() -> Self {
        Self { builder: Builder::new(), heads: Vec::new() }
    }

    /// Adds the operator of a node, which stands at byte `at`.
    pub(super) fn push(
        &mut self,
        (op, name, operator): (&str, &str, &Operator),
        node: u64,
        reads: Reads,
        at: u64,
    ) -> Result<(), Fault> {
        let draft = Draft {
            name: name.to_owned(),
            kind: operator.kind(op),
            type_name: op.to_owned(),
            bottoms: reads.bottoms,
            // Only the operator knows how many more there are; another operator that uses one names it.
            tops: vec![(node, 0)],
            tensors: reads.tensors,
            shared: Vec::new(),
            is_training: false,
            is_conditional: false,
            settings: operator.settings(op),
        };
        self.builder.push(draft, at)
    }

    /// An output of the net, which is named at byte `at`.
    pub(super) fn head(&mut self, node: u64, output: u64, at: u64) -> Result<(), ReadError> {
        check_limit(at, Limit::Fixed, "the number of outputs", self.heads.len() as u64 + 1, MAX_OUTPUTS)?;
        self.heads.push((node, output));
        Ok(())
    }

    /// The net. Its outputs count as read, and a variable that is also read as a value, not as a parameter, as shared.
    pub(super) fn finish<'a>(mut self, variables: impl Iterator<Item = (u64, &'a Arc<str>)>) -> Net {
        for head in self.heads {
            self.builder.read(head);
        }
        for (node, name) in variables {
            if self.builder.is_read(&(node, 0)) {
                self.builder.share(name);
            }
        }
        self.builder.finish()
    }
}
