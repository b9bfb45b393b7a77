//! Makes the layers of a net from a symbol's operators; values are outputs of nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::operator::Operator;
use crate::error::{Fault, ReadError, check_limit};
use crate::limits::Limit;
use crate::net::{Builder, Draft, Label, Net, Role};

/// A net with more outputs is refused.
const MAX_OUTPUTS: u64 = 1 << 16;

/// An output of a node: the node and the output's index.
type Value = (u64, u64);

impl Label for Value {
    /// The names of nodes are known at the end, and [`Builder::label`] sets them.
    fn text(&self) -> Arc<str> {
        "".into()
    }
}

/// The inputs of an operator.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) bottoms: Vec<Value>,
    pub(super) tensors: Vec<(Role, Arc<str>)>,
}

/// The layers so far.
#[derive(Debug)]
pub(super) struct Layers {
    builder: Builder<Value>,
    /// The layer of each operator's node.
    of_node: HashMap<u64, usize>,
    heads: Vec<Value>,
    /// The nodes whose values a layer reads as an input, each with the first such layer. Operators that pass values on
    /// are no readers.
    readers: HashMap<u64, u32>,
}

impl Layers {
    pub(super) fn new() -> Self {
        Self { builder: Builder::new(), of_node: HashMap::new(), heads: Vec::new(), readers: HashMap::new() }
    }

    /// Adds the operator of a node at byte `at`.
    pub(super) fn push(
        &mut self,
        (op, name, operator): (&str, &str, &Operator),
        node: u64,
        inputs: Inputs,
        at: u64,
    ) -> Result<(), Fault> {
        inputs.bottoms.iter().for_each(|value| self.written(*value));
        let draft = Draft {
            name: name.to_owned(),
            kind: operator.kind(op),
            type_name: op.to_owned(),
            bottoms: inputs.bottoms,
            // Only the operator knows how many more outputs there are; an operator that reads one names that output.
            tops: vec![(node, 0)],
            tensors: inputs.tensors,
            shared: Vec::new(),
            is_training: false,
            is_conditional: false,
            extents: Vec::new(),
            rules: Vec::new(),
            settings: operator.settings(op),
        };
        self.of_node.insert(node, self.of_node.len());
        self.builder.push(draft, at)
    }

    /// Records that the layer that comes next reads the values of this node.
    pub(super) fn reads(&mut self, node: u64) {
        let next = self.of_node.len() as u32;
        self.readers.entry(node).or_insert(next);
    }

    /// Records this output, too, as one of an operator's node; otherwise the output would pass for an input of the net.
    fn written(&mut self, value: Value) {
        if let Some(layer) = self.of_node.get(&value.0) {
            self.builder.also_writes(*layer, value);
        }
    }

    /// Records the declared shape of a variable that is an input of the net; an extent that is not known is 0.
    pub(super) fn declare(&mut self, node: u64, dims: &[Option<usize>]) {
        let extents: Vec<u64> = dims.iter().map(|extent| extent.unwrap_or_default() as u64).collect();
        // Parameters may be declared, too; only images are surely inputs.
        if extents.len() == 4 && !extents[1..].contains(&0) {
            self.builder.declare((node, 0), &extents);
        }
    }

    /// Adds an output of the net, named at byte `at`.
    pub(super) fn head(&mut self, node: u64, output: u64, at: u64) -> Result<(), ReadError> {
        check_limit(at, Limit::Fixed, "the number of outputs", self.heads.len() as u64 + 1, MAX_OUTPUTS)?;
        self.heads.push((node, output));
        Ok(())
    }

    /// Builds the net, whose outputs count as read. Parameters that an operator also reads as values count as shared.
    /// `variables` has each variable with the nodes that pass the variable's values on, the variable's own first.
    pub(super) fn finish(mut self, variables: &[(Vec<u64>, &Arc<str>)]) -> Net {
        let given: HashSet<u64> = self.heads.iter().map(|(node, _)| *node).collect();
        for head in std::mem::take(&mut self.heads) {
            self.written(head);
            self.builder.head(head);
        }
        for (nodes, name) in variables {
            nodes.first().into_iter().for_each(|node| self.builder.variable(&(*node, 0), name));
            if nodes.first().is_some_and(|node| self.builder.is_read(&(*node, 0))) {
                self.builder.share(name);
            }
            let reader = nodes.iter().find_map(|node| self.readers.get(node).copied());
            if reader.is_some() || nodes.iter().any(|node| given.contains(node)) {
                self.builder.read_as_value(name, reader);
            }
        }
        let variables = variables.iter().filter_map(|(nodes, name)| Some((*nodes.first()?, *name)));
        let variables: HashMap<u64, &Arc<str>> = variables.collect();
        let of_node = &self.of_node;
        self.builder.label(|(node, output), layers| match (variables.get(node), of_node.get(node)) {
            (Some(name), _) => Some(Arc::clone(name)),
            (None, Some(layer)) if *output == 0 => Some(format!("{}_output", layers[*layer].name).into()),
            (None, Some(layer)) => Some(format!("{}_output{output}", layers[*layer].name).into()),
            (None, None) => None,
        });
        self.builder.finish()
    }
}
