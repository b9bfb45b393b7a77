//! Writes MXNet's symbol of a net anew, without the folded normalisations: each reader of a normalisation reads the
//! layer before, which has a bias then.
//!
//! All other nodes keep names, attributes and order. Content that is not understood is a reason to leave the symbol
//! alone.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use blob_io::mxnet::Symbol;
use blob_io::net::Role;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Fold, Folded};
use crate::transform::binding::bare;

/// The graph, as written by `SaveJSON` of nnvm in apache/mxnet 1.9.1.
#[derive(Deserialize)]
struct Graph {
    nodes: Vec<SymbolNode>,
    /// The number of the first output of each node, counted over all nodes, and of all outputs.
    node_row_ptr: Option<Vec<u64>>,
    heads: Vec<Edge>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The numbers of a node and of one output of that node; in newer files a version follows.
type Edge = Vec<u64>;

#[derive(Deserialize, Serialize)]
struct SymbolNode {
    op: String,
    name: String,
    /// Attributes and any other fields.
    #[serde(flatten)]
    rest: Map<String, Value>,
    inputs: Vec<Edge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    control_deps: Option<Vec<u64>>,
}

/// The keys under which the generations of MXNet keep the attributes of operators, and one of these that each layer
/// with weights has.
const ATTRIBUTES: [&str; 3] = ["attrs", "attr", "param"];
const OUTPUTS: [&str; 2] = ["num_filter", "num_hidden"];
/// Operators that pass the input on.
const PASSES_ON: [&str; 7] = ["identity", "_copy", "Cast", "cast", "amp_cast", "BlockGrad", "stop_gradient"];

impl Fold {
    /// The text of a symbol file without the layers that are folded, for the tensors that the fold makes.
    ///
    /// # Errors
    /// The reason why there is no such text, worded to follow the file's name: `has no node "bn0"`.
    pub fn symbol(&self, text: &[u8]) -> Result<String, String> {
        let graph: Graph = serde_json::from_slice(text).map_err(|e| format!("cannot be written anew: {e}"))?;
        let edit = Edit::of(&graph, &self.layers)?;
        let text = edit.apply(graph)?;
        self.check(&text)?;
        Ok(text)
    }

    /// Reads the new text as any other symbol, and checks that the folded layers are gone and the biases are right.
    fn check(&self, text: &str) -> Result<(), String> {
        let symbol = Symbol::from_bytes("", text.as_bytes()).map_err(|e| format!("cannot be written anew: {e}"))?;
        let biases: HashMap<&str, Option<&str>> = symbol
            .net
            .layers()
            .iter()
            .filter_map(|layer| Some((layer.tensor(Role::Weight)?, layer.tensor(Role::Bias))))
            .collect();
        for folded in &self.layers {
            let is_gone = symbol.net.layers().iter().all(|layer| layer.name != folded.layer);
            let bias = folded.gets_bias().then(|| bare(&folded.bias));
            if !is_gone || biases.get(bare(&folded.weight)) != Some(&bias) {
                return Err(format!("cannot be written anew without {:?}", folded.layer));
            }
        }
        Ok(())
    }
}

/// The changes of a graph.
#[derive(Default)]
struct Edit {
    /// The edge that is read in place of a node's first output, by node.
    instead: HashMap<u64, Edge>,
    /// The names of new biases, by the nodes that get one.
    biases: HashMap<usize, String>,
}

impl Edit {
    fn of(graph: &Graph, layers: &[Folded]) -> Result<Self, String> {
        let (mut operators, mut variables, mut repeated) = (HashMap::new(), HashSet::new(), HashSet::new());
        for (index, node) in graph.nodes.iter().enumerate() {
            let is_new = match &*node.op {
                "null" => variables.insert(&*node.name),
                _ => operators.insert(&*node.name, index).is_none(),
            };
            if !is_new {
                repeated.insert(&*node.name);
            }
            let edges = node.inputs.iter().map(|edge| edge.first().copied());
            let before = edges.chain(node.control_deps.iter().flatten().map(|dep| Some(*dep)));
            if before.into_iter().any(|from| from.is_none_or(|from| from >= index as u64)) {
                return Err(format!("has a node {:?} that reads one behind it", node.name));
            }
        }
        let mut edit = Self::default();
        for folded in layers {
            let layer = &*folded.layer;
            let at = operators.get(layer).filter(|_| !repeated.contains(layer));
            let at = *at.ok_or_else(|| format!("has no single node {layer:?}"))?;
            let [before, 0, ..] = graph.nodes[at].inputs.first().map_or(&[][..], |edge| &edge[..]) else {
                return Err(format!("has a node {layer:?} that reads no layer's first output"));
            };
            let owner = &graph.nodes[*before as usize];
            if behind(graph, owner.inputs.get(1)) != Some(bare(&folded.weight)) {
                return Err(format!("has a node {:?} that does not read {:?}", owner.name, bare(&folded.weight)));
            }
            edit.instead.insert(at as u64, vec![*before, 0]);
            if folded.gets_bias() && !folded.has_bias {
                let bias = bare(&folded.bias);
                if owner.inputs.len() != 2 || !variables.insert(bias) {
                    return Err(format!("has a {bias:?} already"));
                }
                edit.biases.insert(*before as usize, bias.to_owned());
            }
        }
        Ok(edit)
    }

    fn apply(&self, mut graph: Graph) -> Result<String, String> {
        for edge in graph.nodes.iter_mut().flat_map(|node| &mut node.inputs).chain(&mut graph.heads) {
            self.redirect(edge)?;
        }
        let live = live(&graph)?;
        let (mut places, mut nodes, mut outputs) = (HashMap::new(), Vec::new(), vec![0]);
        let counts = graph.node_row_ptr.as_deref().map(counts).transpose()?;
        for (index, mut node) in graph.nodes.into_iter().enumerate().filter(|(index, _)| live[*index]) {
            node.inputs.iter_mut().for_each(|edge| edge[0] = places[&edge[0]]);
            node.control_deps.iter_mut().flatten().for_each(|dep| *dep = places[dep]);
            if let Some(bias) = self.biases.get(&index) {
                node.add_bias(nodes.len() as u64)?;
                nodes.push(SymbolNode::variable(bias));
                outputs.push(outputs[outputs.len() - 1] + 1);
            }
            places.insert(index as u64, nodes.len() as u64);
            let count = counts.as_ref().and_then(|counts| counts.get(index)).copied().unwrap_or(1);
            outputs.push(outputs[outputs.len() - 1] + count);
            nodes.push(node);
        }
        graph.heads.iter_mut().for_each(|edge| edge[0] = places[&edge[0]]);
        graph.nodes = nodes;
        graph.node_row_ptr = counts.map(|_| outputs);
        Ok(graph.text())
    }

    /// Lets an edge lead past a folded node.
    fn redirect(&self, edge: &mut Edge) -> Result<(), String> {
        match edge[..] {
            [from, output, ..] => {
                let Some(instead) = self.instead.get(&from) else { return Ok(()) };
                if output != 0 {
                    return Err("has a node that reads the mean or the variance of one that is folded".to_owned());
                }
                edge[..2].copy_from_slice(instead);
                Ok(())
            }
            _ => Err("has an input without a number".to_owned()),
        }
    }
}

/// The variable that an input leads to, through operators that pass values on.
fn behind<'a>(graph: &'a Graph, edge: Option<&Edge>) -> Option<&'a str> {
    let mut node = graph.nodes.get(*edge?.first()? as usize)?;
    while PASSES_ON.contains(&&*node.op) {
        node = &graph.nodes[*node.inputs.first()?.first()? as usize];
    }
    (node.op == "null").then_some(&*node.name)
}

/// For each node: whether the net's outputs need that node.
fn live(graph: &Graph) -> Result<Vec<bool>, String> {
    let mut live = vec![false; graph.nodes.len()];
    for head in &graph.heads {
        *live.get_mut(head[0] as usize).ok_or("has an output of a node that is not there")? = true;
    }
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        if live[index] {
            node.inputs.iter().for_each(|edge| live[edge[0] as usize] = true);
            node.control_deps.iter().flatten().for_each(|dep| live[*dep as usize] = true);
        }
    }
    Ok(live)
}

/// The number of outputs of each node.
fn counts(row_ptr: &[u64]) -> Result<Vec<u64>, String> {
    let counts = row_ptr.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
    let counts: Option<Vec<u64>> = counts.map(|count| count.filter(|count| *count <= u64::from(u32::MAX))).collect();
    counts.ok_or_else(|| "has numbers of outputs that do not rise".to_owned())
}

impl SymbolNode {
    fn variable(name: &str) -> Self {
        let rest = Map::new();
        Self { op: "null".to_owned(), name: name.to_owned(), rest, inputs: Vec::new(), control_deps: None }
    }

    /// Adds the variable at `place` as the bias of a layer.
    fn add_bias(&mut self, place: u64) -> Result<(), String> {
        let own = ATTRIBUTES.iter().find(|key| {
            let attributes = self.rest.get(**key).and_then(Value::as_object);
            attributes.is_some_and(|attributes| OUTPUTS.iter().any(|key| attributes.contains_key(*key)))
        });
        let attributes = own.and_then(|key| self.rest.get_mut(*key)).and_then(Value::as_object_mut);
        let attributes = attributes.ok_or_else(|| format!("has a node {:?} without attributes", self.name))?;
        attributes.insert("no_bias".to_owned(), Value::from("False"));
        let is_versioned = self.inputs.iter().any(|edge| edge.len() > 2);
        self.inputs.push([place, 0, 0][..if is_versioned { 3 } else { 2 }].to_vec());
        Ok(())
    }
}

impl Graph {
    /// The text, one node a line.
    fn text(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(json).collect();
        let variables = self.nodes.iter().enumerate().filter(|(_, node)| node.op == "null");
        let variables: Vec<usize> = variables.map(|(index, _)| index).collect();
        let mut text = format!("{{\n  \"nodes\": [\n    {}\n  ],\n", nodes.join(",\n    "));
        let _ = writeln!(text, "  \"arg_nodes\": {},", json(&variables));
        if let Some(row_ptr) = &self.node_row_ptr {
            let _ = writeln!(text, "  \"node_row_ptr\": {},", json(row_ptr));
        }
        let _ = write!(text, "  \"heads\": {}", json(&self.heads));
        for (key, value) in self.rest.iter().filter(|(key, _)| *key != "arg_nodes") {
            let _ = write!(text, ",\n  {}: {}", json(key), json(value));
        }
        text + "\n}\n"
    }
}

fn json(value: &impl Serialize) -> String {
    // Maps have texts as keys, so this cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}
