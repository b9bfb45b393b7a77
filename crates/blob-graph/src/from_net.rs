//! The graph of a net: one pass over the layers, which collects every problem.

use std::collections::{BTreeMap, HashMap, HashSet};

use blob_core::DType;
use blob_io::net::{Framework, Layer, Net, Role};

use crate::graph::{Dropped, Graph, Prepared, Value};
use crate::names::Names;
use crate::node::Node;
use crate::row::{Kind, Row};
use crate::shapes::Shapes;
use crate::target::Target;
use crate::unsupported::{Problem, Unsupported};
use crate::{caffe, check, tables};

impl Graph {
    /// The graph of a net, with the shapes that the caller gives to the net's inputs, or that the net states. A batch
    /// that the net leaves open is 1.
    ///
    /// # Errors
    /// [`Unsupported`] with every layer, parameter and shape that has no form: nothing is left out in silence.
    pub fn from_net(net: &Net, shapes: &Shapes) -> Result<Self, Unsupported> {
        let mut problems: Vec<Problem> = Vec::new();
        check::order(net)?;
        let kinds = tables::kinds(net);
        let mut graph = Self::empty(net, &kinds, shapes);
        graph.share(net, shapes);
        check::layers(net, &kinds, &mut problems);
        graph.name_values(net);
        let operands = graph.inputs_of(net, shapes, &mut problems);
        let lowered = graph.lower(operands, &Target::default());
        problems.extend(lowered.problems);
        for (value, operand) in graph.values.iter_mut().zip(lowered.operands) {
            if let Some(operand) = operand {
                (value.shape, value.dtype) = (operand.shape, operand.dtype);
            }
        }
        if problems.is_empty() {
            check::outputs(&graph)?;
            return Ok(graph);
        }
        // From the last layer on, so that the first one of a name counts.
        let places = net.layers().iter().enumerate().rev().map(|(place, layer)| (&*layer.name, place));
        let places: HashMap<&str, usize> = places.collect();
        problems.sort_by_key(|problem| {
            let is_of_layer = !problem.layer.is_empty() || !problem.type_name.is_empty();
            places.get(&*problem.layer).filter(|_| is_of_layer).copied()
        });
        Err(Unsupported { problems })
    }

    /// Gives all layers that share a parameter one tensor: Caffe's `CopyTrainedLayersFrom` copies the file's tensors
    /// into the one parameter, in the file's order, so that the last tensor of the file is left.
    fn share(&mut self, net: &Net, shapes: &Shapes) {
        let of_net: HashSet<&str> =
            net.layers().iter().flat_map(|layer| layer.tensors().map(|(_, name)| name)).collect();
        let of_file = shapes.stored.iter().enumerate().map(|(place, (name, _))| (&**name, place));
        let of_file: HashMap<&str, usize> = of_file.collect();
        let mut last: HashMap<&str, &str> = HashMap::new();
        for group in net.copies() {
            let group = || group.iter().map(|name| &**name).filter(|name| of_net.contains(name));
            let stored = group().filter(|name| of_file.contains_key(*name)).max_by_key(|name| of_file[*name]);
            let Some(kept) = stored.or_else(|| group().next_back()) else { continue };
            last.extend(group().filter(|name| *name != kept).map(|name| (name, kept)));
        }
        for tensor in self.nodes.iter_mut().flat_map(|node| &mut node.tensors) {
            if let Some(kept) = last.get(&**tensor) {
                self.copies.push(std::mem::replace(tensor, (*kept).to_owned()));
            }
        }
    }

    /// The graph's values, layers, inputs and outputs, without names of values and shapes.
    fn empty(net: &Net, kinds: &[Option<Kind>], shapes: &Shapes) -> Self {
        let (mut nodes, mut rows, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        let (mut read, mut written, mut given) = (HashSet::new(), Vec::new(), Vec::new());
        let (mut count, mut silenced) = (0, HashSet::<usize>::new());
        for (layer, kind) in net.layers().iter().zip(kinds) {
            count = layer.bottoms.iter().chain(&layer.tops).map(|value| value + 1).fold(count, usize::max);
            let Some(kind) = kind else { continue };
            match kind {
                Kind::Input => given.extend(&layer.tops),
                Kind::Training => {
                    // Caffe has no output of a value that is silenced.
                    silenced.extend(layer.bottoms.iter().filter(|_| layer.type_name == caffe::SILENCE));
                    dropped.push(Dropped { layer: layer.name.clone(), type_name: layer.type_name.clone() });
                }
                Kind::Known(row) => {
                    read.extend(tables::read(layer, *kind).iter().copied());
                    written.extend(tables::written(net.framework(), layer));
                    nodes.push(node(net.framework(), layer, row));
                    rows.push(*row);
                }
                Kind::Unknown => read.extend(layer.bottoms.iter().copied()),
            }
        }
        let unwritten = net.inputs().filter(|value| net.writer(*value).is_none());
        let mut inputs: Vec<usize> = unwritten.chain(given).filter(|value| read.contains(value)).collect();
        count = inputs.iter().map(|value| value + 1).fold(count, usize::max);
        let known: BTreeMap<String, Vec<u64>> = shapes.stored.iter().cloned().collect();
        let weight = |value: &usize| net.variable(*value).filter(|name| known.contains_key(*name));
        let weights = inputs.iter().filter_map(|value| Some((*value, weight(value)?.to_owned()))).collect();
        inputs.retain(|value| weight(value).is_none());
        let outputs = match net.framework() {
            Framework::Mxnet => net.outputs().filter(|value| *value < count).collect(),
            _ => written.into_iter().filter(|value| !read.contains(value) && !silenced.contains(value)).collect(),
        };
        let of_data = net.layers().iter().zip(kinds).filter(|(_, kind)| matches!(kind, Some(Kind::Input)));
        let of_data = of_data.filter(|(layer, _)| layer.tops.iter().any(|value| read.contains(value)));
        let prepared = of_data.filter_map(|(layer, _)| Prepared::of(layer)).collect();
        let value = Value { name: String::new(), shape: Vec::new(), dtype: DType::F32 };
        let (framework, values, copies) = (net.framework(), vec![value; count], Vec::new());
        Self { framework, values, nodes, rows, inputs, outputs, dropped, prepared, copies, weights, stored: known }
    }

    /// Names the values, by the rule of [`Value::name`].
    fn name_values(&mut self, net: &Net) {
        let mut names = Names::default();
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
}

impl Prepared {
    fn of(layer: &Layer) -> Option<Self> {
        let settings: Vec<(String, String)> = caffe::preparation(layer).collect();
        (!settings.is_empty()).then(|| Self { layer: layer.name.clone(), settings })
    }
}

fn node(framework: Framework, layer: &Layer, row: &'static Row) -> Node {
    let settings = tables::settings(framework, layer).into_iter();
    let tensors = layer.tensors().filter(|(role, _)| *role != Role::Other || layer.tensor(Role::Weight).is_none());
    Node {
        name: layer.name.clone(),
        type_name: layer.type_name.clone(),
        inputs: tables::read(layer, Kind::Known(row)).to_vec(),
        outputs: tables::written(framework, layer).to_vec(),
        parameters: settings.filter_map(|(path, text)| Some((row.parameter(&path)?, text))).collect(),
        tensors: tensors.map(|(_, name)| name.to_owned()).collect(),
    }
}
