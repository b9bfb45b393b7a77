//! A graph: the layers that compute something, each a row of the table, and all values with their shapes.
//!
//! Made from a net in one pass, which collects every problem; no values of tensors are touched.

use std::collections::{HashMap, HashSet};

use blob_core::DType;
use blob_io::net::{Layer, Net, Role};

use crate::body::Body;
use crate::caffe;
use crate::onnx::Target;
use crate::row::Row;
use crate::shapes::Shapes;
use crate::site::{Operand, Site, count, shown};
use crate::unsupported::{Problem, Reason, Refusal, Unsupported};

/// A layer has at most so many settings that a net keeps; beyond them nobody knows what a layer asks for.
const MAX_SETTINGS: usize = 128;

/// A net whose every layer has a form in ONNX, with the shape of every value.
///
/// Give the net of inference: `net.in_phase(Phase::Test)`.
#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    dropped: Vec<Dropped>,
}

/// A value of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// The name in the model: the net's name of the value, where that is unique. Of several values of one name, as of
    /// layers that work in place, an input of the net keeps the name, else the last value; behind the name of others
    /// stand a colon and the layer that writes them.
    pub name: String,
    /// The extents. 0 stands for an extent that only a run knows: how many boxes were found.
    pub shape: Vec<u64>,
    /// The element type.
    pub dtype: DType,
}

/// A layer of the graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The layer's name.
    pub name: String,
    /// The framework's name of the layer's type.
    pub type_name: String,
    /// The values that the layer reads: places in [`Graph::values`].
    pub inputs: Vec<usize>,
    /// The values that the layer writes.
    pub outputs: Vec<usize>,
    /// The stated parameters of the layer's type, without those that inference does not need.
    pub parameters: Vec<(&'static str, String)>,
    /// The names of the layer's tensors in the net.
    pub tensors: Vec<String>,
    pub(crate) row: &'static Row,
}

/// A layer that inference does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// The layer's name.
    pub layer: String,
    /// The layer's type.
    pub type_name: String,
}

impl Graph {
    /// The graph of a net, with the shapes that the caller gives to the net's inputs, or that the net states. A batch
    /// that the net leaves open is 1.
    ///
    /// # Errors
    /// [`Unsupported`] with every layer, parameter and shape that has no form: nothing is left out in silence.
    pub fn from_net(net: &Net, shapes: &Shapes) -> Result<Self, Unsupported> {
        let mut problems = Vec::new();
        if !net.has_edges() {
            return Err(whole("the net does not say which values its layers read: a description of the net is needed"));
        }
        if let Some(disorder) = net.disorder() {
            return Err(whole(&disorder));
        }
        let kinds: Vec<caffe::Kind> = net.layers().iter().map(|layer| caffe::kind(&layer.type_name)).collect();
        let mut graph = Self::empty(net, &kinds);
        graph.check_layers(net, &kinds, &mut problems);
        graph.name_values(net);
        let operands = graph.inputs_of(net, shapes, &mut problems);
        let lowered = graph.lower(operands, &Target::default());
        problems.extend(lowered.problems);
        for (value, operand) in graph.values.iter_mut().zip(lowered.operands) {
            if let Some(operand) = operand {
                (value.shape, value.dtype) = (operand.shape, operand.dtype);
            }
        }
        if problems.is_empty() { Ok(graph) } else { Err(Unsupported { problems }) }
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The layers, each behind those that it reads.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The inputs that some layer reads: places in [`Graph::values`].
    #[must_use]
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The outputs: places in [`Graph::values`].
    #[must_use]
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// The layers that inference does not need: losses, accuracies, `Silence`.
    #[must_use]
    pub fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    /// The graph's values, layers, inputs and outputs, without names of values and shapes.
    fn empty(net: &Net, kinds: &[caffe::Kind]) -> Self {
        let (mut nodes, mut dropped) = (Vec::new(), Vec::new());
        let (mut read, mut written, mut given) = (HashSet::new(), Vec::new(), Vec::new());
        let mut count = 0;
        for (layer, kind) in net.layers().iter().zip(kinds) {
            count = layer.bottoms.iter().chain(&layer.tops).map(|value| value + 1).fold(count, usize::max);
            match kind {
                caffe::Kind::Input => given.extend(&layer.tops),
                caffe::Kind::Training => {
                    dropped.push(Dropped { layer: layer.name.clone(), type_name: layer.type_name.clone() });
                }
                caffe::Kind::Known(row) => {
                    read.extend(layer.bottoms.iter().copied());
                    written.extend(layer.tops.iter().copied());
                    nodes.push(node(layer, row));
                }
                caffe::Kind::Unknown => read.extend(layer.bottoms.iter().copied()),
            }
        }
        let unwritten = net.inputs().filter(|value| net.writer(*value).is_none());
        let inputs: Vec<usize> = unwritten.chain(given).filter(|value| read.contains(value)).collect();
        count = inputs.iter().map(|value| value + 1).fold(count, usize::max);
        let outputs = written.into_iter().filter(|value| !read.contains(value)).collect();
        let value = Value { name: String::new(), shape: Vec::new(), dtype: DType::F32 };
        Self { values: vec![value; count], nodes, inputs, outputs, dropped }
    }

    /// Adds the problems of layers' types, parameters and numbers of inputs and outputs.
    fn check_layers(&mut self, net: &Net, kinds: &[caffe::Kind], problems: &mut Vec<Problem>) {
        let is_training = |kind: &caffe::Kind| matches!(kind, caffe::Kind::Training);
        let training = net.layers().iter().zip(kinds).filter(|(_, kind)| is_training(kind));
        let left_out: HashSet<usize> = training.flat_map(|(layer, _)| layer.tops.iter().copied()).collect();
        for (layer, kind) in net.layers().iter().zip(kinds) {
            let mut refuse = |reason, message: String| {
                problems.push(Refusal { reason, message }.of(&layer.name, &layer.type_name));
            };
            if let Some(value) = layer.bottoms.iter().find(|value| left_out.contains(value) && !is_training(kind)) {
                refuse(Reason::Order, format!("reads {:?}, which only training computes", net.value_name(*value)));
            }
            if let Some(top) = layer.tops.iter().find(|top| net.is_written_twice(**top)) {
                refuse(Reason::Order, format!("another layer writes {:?}, too", net.value_name(*top)));
            }
            let row = match kind {
                caffe::Kind::Known(row) => row,
                caffe::Kind::Unknown => {
                    refuse(Reason::Type, format!("the type is not supported; its settings: {}", settings(layer)));
                    continue;
                }
                _ => continue,
            };
            for (path, text) in caffe::settings(layer) {
                if row.parameter(&path).is_none() {
                    refuse(Reason::Parameter, format!("{path} is {text:?}, which is not supported"));
                }
            }
            if layer.attributes().count() >= MAX_SETTINGS {
                refuse(Reason::Parameter, format!("{MAX_SETTINGS} settings or more"));
            }
            for (has, (fewest, most), what) in
                [(layer.bottoms.len(), row.bottoms, "inputs"), (layer.tops.len(), row.tops, "outputs")]
            {
                if has < fewest || has > most {
                    refuse(Reason::Shape, format!("{has} {what}, where {fewest} to {most} are supported"));
                }
            }
        }
    }

    /// The operands of the inputs, and none for other values.
    fn inputs_of(&self, net: &Net, shapes: &Shapes, problems: &mut Vec<Problem>) -> Vec<Option<Operand>> {
        let mut operands = vec![None; self.values.len()];
        let only = shapes.only.as_ref().filter(|_| self.inputs.len() == 1);
        for value in &self.inputs {
            let name = net.value_name(*value);
            let mut refuse = |message: String| {
                let (layer, type_name) = (String::new(), String::new());
                problems.push(Problem { layer, type_name, reason: Reason::Input, message });
            };
            let given = shapes.named.get(name).or(only).map(Vec::as_slice);
            let Some(stated) = given.or_else(|| net.shape(*value)) else {
                refuse(format!("the input {name:?} has no shape"));
                continue;
            };
            let mut shape = stated.to_vec();
            if let Some(batch) = shape.first_mut().filter(|batch| **batch == 0) {
                *batch = 1;
            }
            if shape.contains(&0) || count(&shape).is_err() {
                refuse(format!("the shape of the input {name:?} is {}", shown(&shape)));
                continue;
            }
            let name = self.values[*value].name.clone();
            operands[*value] = Some(Operand { name, shape, dtype: DType::F32 });
        }
        let is_input = |name: &str| self.inputs.iter().any(|value| net.value_name(*value) == name);
        let mut unknown: Vec<&String> = shapes.named.keys().filter(|name| !is_input(name)).collect();
        unknown.sort_unstable();
        problems.extend(unknown.into_iter().map(|name| {
            let inputs: Vec<&str> = self.inputs.iter().take(8).map(|value| net.value_name(*value)).collect();
            let message = format!("a shape is given for {name:?}, and the inputs are {inputs:?}");
            Problem { layer: String::new(), type_name: String::new(), reason: Reason::Input, message }
        }));
        operands
    }

    /// Names the values, by the rule of [`Value::name`].
    fn name_values(&mut self, net: &Net) {
        let mut names = crate::names::Names::default();
        let mut taken: HashSet<&str> = HashSet::new();
        for value in &self.inputs {
            taken.insert(net.value_name(*value));
            self.values[*value].name = names.claim(net.value_name(*value));
        }
        let written: Vec<usize> = self.nodes.iter().flat_map(|node| node.outputs.iter().copied()).collect();
        for value in written.iter().rev() {
            if taken.insert(net.value_name(*value)) {
                self.values[*value].name = names.claim(net.value_name(*value));
            }
        }
        for value in written {
            if self.values[value].name.is_empty() {
                let writer = net.writer(value).map_or("", |layer| &layer.name);
                self.values[value].name = names.claim(&format!("{}:{writer}", net.value_name(value)));
            }
        }
    }

    /// The operands of the inputs for a run of the lowering; with another batch where one is given.
    pub(crate) fn given(&self, batch: Option<u64>) -> Vec<Option<Operand>> {
        let mut operands = vec![None; self.values.len()];
        for place in &self.inputs {
            let value = &self.values[*place];
            let mut shape = value.shape.clone();
            if let (Some(first), Some(batch)) = (shape.first_mut(), batch) {
                *first = batch;
            }
            operands[*place] = Some(Operand { name: value.name.clone(), shape, dtype: value.dtype });
        }
        operands
    }

    /// Lowers all layers whose inputs are known.
    pub(crate) fn lower(&self, mut operands: Vec<Option<Operand>>, target: &Target) -> Lowering {
        let (mut body, mut problems) = (Body::default(), Vec::new());
        let mut weighted = HashSet::new();
        let outputs: HashSet<usize> = self.outputs.iter().copied().collect();
        for place in self.inputs.iter().chain(&self.outputs) {
            body.names.claim(&self.values[*place].name);
        }
        for node in &self.nodes {
            let inputs: Option<Vec<Operand>> = node.inputs.iter().map(|value| operands[*value].clone()).collect();
            let Some(inputs) = inputs.filter(|inputs| inputs.len() >= node.row.bottoms.0) else { continue };
            let mark = Mark { node: body.nodes.len(), value: body.values.len() };
            body.has_weight = false;
            let mut site = Site { node, inputs: &inputs, target, body: &mut body };
            let open = inputs.iter().find(|input| input.shape.contains(&0));
            let lowered = match open {
                Some(open) => Err(Refusal::shape(format!("an extent of the input {:?} is not known", open.name))),
                None => (node.row.lower)(&mut site),
            };
            match lowered {
                // A file's weights are found by the name of their layer.
                Ok(_) if body.has_weight && !weighted.insert(&node.name) => {
                    let message = "another layer with weights has this name, too".to_owned();
                    problems.push(Refusal { reason: Reason::Order, message }.of(&node.name, &node.type_name));
                }
                Ok(mut results) => {
                    let names =
                        node.outputs.iter().map(|value| (self.values[*value].name.as_str(), outputs.contains(value)));
                    rename(&mut body, mark, &mut results, names);
                    for (value, result) in node.outputs.iter().zip(results) {
                        operands[*value] = Some(result);
                    }
                    if let Some(last) = body.nodes[mark.node..].last_mut() {
                        last.name.clone_from(&node.name);
                    }
                }
                Err(refusal) => problems.push(refusal.of(&node.name, &node.type_name)),
            }
        }
        Lowering { body, operands, problems }
    }
}

/// Gives a layer's results the names of the layer's values. A result that the layer's own nodes do not write is a value
/// that the layer passes on, and keeps its name.
/// `names` says of each name whether it is claimed already.
fn rename<'n>(body: &mut Body, first: Mark, results: &mut [Operand], names: impl Iterator<Item = (&'n str, bool)>) {
    let fresh: HashSet<&str> = body.values[first.value..].iter().map(|own| &*own.name).collect();
    let is_fresh: Vec<bool> = results.iter().map(|result| fresh.contains(&*result.name)).collect();
    let mut renamed: HashMap<String, String> = HashMap::new();
    for ((result, (name, is_claimed)), is_fresh) in results.iter_mut().zip(names).zip(is_fresh) {
        if is_fresh {
            // Where one result stands for several values, the first gives the name.
            let own = renamed
                .entry(result.name.clone())
                .or_insert_with(|| if is_claimed { name.to_owned() } else { body.names.claim(name) });
            result.name.clone_from(own);
        }
    }
    let nodes = body.nodes[first.node..].iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs));
    for name in nodes.chain(body.values[first.value..].iter_mut().map(|value| &mut value.name)) {
        if let Some(own) = renamed.get(name) {
            name.clone_from(own);
        }
    }
}

/// How much of a model stood before a layer.
#[derive(Clone, Copy, Debug)]
struct Mark {
    node: usize,
    value: usize,
}

/// The outcome of lowering a graph.
#[derive(Debug)]
pub(crate) struct Lowering {
    pub(crate) body: Body,
    /// Each value's operand, where the layers before have a form.
    pub(crate) operands: Vec<Option<Operand>>,
    pub(crate) problems: Vec<Problem>,
}

fn whole(message: &str) -> Unsupported {
    let (layer, type_name, message) = (String::new(), String::new(), message.to_owned());
    Unsupported { problems: vec![Problem { layer, type_name, reason: Reason::Order, message }] }
}

fn node(layer: &Layer, row: &'static Row) -> Node {
    let known = |(path, text): (String, String)| Some((row.parameter(&path)?, text));
    let tensors = layer.tensors().filter(|(role, _)| *role != Role::Other || layer.tensor(Role::Weight).is_none());
    Node {
        name: layer.name.clone(),
        type_name: layer.type_name.clone(),
        inputs: layer.bottoms.clone(),
        outputs: layer.tops.clone(),
        parameters: caffe::settings(layer).filter_map(known).collect(),
        tensors: tensors.map(|(_, name)| name.to_owned()).collect(),
        row,
    }
}

/// The settings of a layer for people, cut where they are many.
fn settings(layer: &Layer) -> String {
    const SHOWN: usize = 16;
    let all: Vec<String> = caffe::settings(layer).take(SHOWN).map(|(path, text)| format!("{path} = {text}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
