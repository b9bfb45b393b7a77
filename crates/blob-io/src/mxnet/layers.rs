//! Makes the layers of a net from a symbol's operators; values are outputs of nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::operator::Operator;
use super::outputs;
use crate::error::{Fault, ReadError, check_limit};
use crate::limits::Limit;
use crate::net::{Builder, Draft, Framework, Label, Net, Role};

/// A net or an operator with more outputs is refused.
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
    /// The outputs of the net, each with the byte that names it.
    heads: Vec<(Value, u64)>,
    /// The nodes whose values a layer reads as an input, each with the first such layer. Operators that pass values on
    /// are no readers.
    readers: HashMap<u64, u32>,
}

impl Layers {
    pub(super) fn new() -> Self {
        let builder = Builder::new(Framework::Mxnet);
        Self { builder, of_node: HashMap::new(), heads: Vec::new(), readers: HashMap::new() }
    }

    /// Adds the operator of a node at byte `at`.
    pub(super) fn push(
        &mut self,
        operator: &Operator,
        name: &str,
        node: u64,
        inputs: Inputs,
        at: u64,
    ) -> Result<(), Fault> {
        inputs.bottoms.iter().try_for_each(|value| self.written(*value, at))?;
        let draft = Draft {
            name: name.to_owned(),
            kind: operator.kind(),
            type_name: operator.op.clone(),
            bottoms: inputs.bottoms,
            // Only the operator knows how many more outputs there are; an operator that reads one names that output.
            tops: vec![(node, 0)],
            tensors: inputs.tensors,
            shared: Vec::new(),
            is_training: false,
            is_conditional: false,
            extents: Vec::new(),
            rules: Vec::new(),
            settings: operator.settings(),
        };
        self.of_node.insert(node, self.of_node.len());
        self.builder.push(draft, at)
    }

    /// Records that the layer that comes next reads the values of this node.
    pub(super) fn reads(&mut self, node: u64) {
        let next = self.of_node.len() as u32;
        self.readers.entry(node).or_insert(next);
    }

    /// Records this output and those before it as an operator's; otherwise the output would pass for an input of the
    /// net.
    fn written(&mut self, (node, output): Value, at: u64) -> Result<(), Fault> {
        let Some(layer) = self.of_node.get(&node) else { return Ok(()) };
        let known = self.builder.outputs(*layer) as u64;
        if output >= known {
            check_limit(at, Limit::Fixed, "the outputs of an operator", output, MAX_OUTPUTS)?;
        }
        (known..=output).try_for_each(|output| self.builder.also_writes(*layer, (node, output), at))
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
        self.heads.push(((node, output), at));
        Ok(())
    }

    /// Builds the net, whose outputs count as read. Parameters that an operator also reads as values count as shared.
    /// `variables` has each variable with the nodes that pass the variable's values on, the variable's own first.
    pub(super) fn finish(mut self, variables: &[(Vec<u64>, &Arc<str>)]) -> Result<Net, Fault> {
        let given: HashSet<u64> = self.heads.iter().map(|((node, _), _)| *node).collect();
        for (head, at) in std::mem::take(&mut self.heads) {
            self.written(head, at)?;
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
            (None, Some(layer)) => Some(outputs::name(&layers[*layer], *output).into()),
            (None, None) => None,
        });
        Ok(self.builder.finish())
    }
}

#[cfg(test)]
mod tests {
    use crate::mxnet::Symbol;

    fn net(inputs: &str) -> Result<crate::net::Net, crate::Error> {
        let text = format!(
            "{{\"nodes\": [{{\"op\": \"null\", \"name\": \"data\", \"inputs\": []}},
              {{\"op\": \"split\", \"name\": \"s\", \"inputs\": [[0, 0, 0]]}},
              {{\"op\": \"relu\", \"name\": \"r\", \"inputs\": [{inputs}]}}], \"heads\": [[2, 0, 0]]}}"
        );
        Ok(Symbol::from_bytes("net-symbol.json", text.as_bytes())?.net)
    }

    #[test]
    fn outputs_of_an_operator_stand_in_order() {
        let net = net("[1, 2, 0], [1, 1, 0]").expect("a net");
        let [split, relu] = net.layers() else { panic!("two layers") };
        let names: Vec<&str> = split.tops.iter().map(|top| net.value_name(*top)).collect();
        assert_eq!(names, ["s_output0", "s_output1", "s_output2"]);
        assert_eq!(relu.bottoms, [split.tops[2], split.tops[1]]);
    }

    #[test]
    fn an_output_that_no_operator_has_is_refused() {
        for output in [u64::MAX, 1 << 40, 65_537] {
            net(&format!("[1, {output}, 0]")).expect_err("an output without end");
        }
    }
}
