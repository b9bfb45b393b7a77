//! The problems of a net that are known before any shape is: its order, types, parameters, and the inputs' shapes.

use std::collections::HashSet;

use blob_core::DType;
use blob_io::net::{Framework, Layer, Net};
use blob_io::words::quoted;

use crate::graph::Graph;
use crate::operand::{Operand, count, shown};
use crate::row::Kind;
use crate::shapes::Shapes;
use crate::tables;
use crate::unsupported::{Problem, Reason, Refusal, Unsupported};

/// A layer has at most so many settings that a net keeps; beyond them nobody knows what a layer asks for.
const MAX_SETTINGS: usize = 128;

/// Refuses a net that does not say what reads what.
pub(crate) fn order(net: &Net) -> Result<(), Unsupported> {
    let problem = if net.has_edges() {
        net.disorder()
    } else {
        Some("the net does not say which values its layers read: a description of the net is needed".to_owned())
    };
    match problem {
        Some(message) => Err(Unsupported { problems: vec![whole(Reason::Order, message)] }),
        None => Ok(()),
    }
}

/// Refuses a graph that computes nothing for its user.
pub(crate) fn outputs(graph: &Graph) -> Result<(), Unsupported> {
    if !graph.outputs.is_empty() {
        return Ok(());
    }
    let message = "no layer of the net has an output that no other layer reads".to_owned();
    Err(Unsupported { problems: vec![whole(Reason::Order, message)] })
}

impl Graph {
    /// Refuses outputs that are listed twice: a model has each of its outputs once, so a later output would move up.
    pub(crate) fn check_outputs_differ(&self) -> Result<(), Unsupported> {
        let mut seen = HashSet::new();
        let Some(place) = self.outputs.iter().find(|place| !seen.insert(**place)) else { return Ok(()) };
        let message =
            format!("the net lists the output {:?} twice, and a model has each once", self.values[*place].name);
        Err(Unsupported { problems: vec![whole(Reason::Order, message)] })
    }
}

/// A problem that is no layer's.
fn whole(reason: Reason, message: String) -> Problem {
    let (layer, type_name) = (String::new(), String::new());
    Problem { layer, type_name, reason, message }
}

/// Adds the problems of layers' types, parameters and numbers of inputs and outputs.
pub(crate) fn layers(net: &Net, kinds: &[Option<Kind>], problems: &mut Vec<Problem>) {
    let kinds = || net.layers().iter().zip(kinds).filter_map(|(layer, kind)| Some((layer, (*kind)?)));
    let is_training = |kind: Kind| matches!(kind, Kind::Training);
    let training = kinds().filter(|(_, kind)| is_training(*kind));
    let mut left_out: HashSet<usize> = training.flat_map(|(layer, _)| layer.tops.iter().copied()).collect();
    // The first output of a loss is the loss, which stands for the probabilities only where no layer reads it.
    left_out.extend(net.layers().iter().filter(|layer| tables::is_loss(layer)).flat_map(|layer| layer.tops.first()));
    for (layer, kind) in kinds() {
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
            Kind::Known(row) => row,
            Kind::Unknown => {
                let settings = settings(net.framework(), layer);
                refuse(Reason::Type, format!("the type is not supported; its settings: {settings}"));
                continue;
            }
            _ => continue,
        };
        for (path, text) in tables::settings(net.framework(), layer) {
            if row.parameter(&path).is_none() {
                refuse(Reason::Parameter, format!("{path} is {}, which is not supported", quoted(&text)));
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

/// The settings of a layer for people, cut where they are many.
fn settings(framework: Framework, layer: &Layer) -> String {
    const SHOWN: usize = 16;
    let all = tables::settings(framework, layer).into_iter().take(SHOWN);
    let all: Vec<String> = all.map(|(path, text)| format!("{path} = {}", quoted(&text))).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl Graph {
    /// The operands of the inputs, and none for other values.
    pub(crate) fn inputs_of(&self, net: &Net, shapes: &Shapes, problems: &mut Vec<Problem>) -> Vec<Option<Operand>> {
        let mut operands = vec![None; self.values.len()];
        let only = shapes.only.as_ref().filter(|_| self.inputs.len() == 1);
        for value in &self.inputs {
            let name = net.value_name(*value);
            let mut refuse = |message: String| problems.push(whole(Reason::Input, message));
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
            operands[*value] = Some(Operand { name, shape, dtype: DType::F32, is_whole: false });
        }
        for value in self.outputs.iter().filter(|value| net.writer(**value).is_none()) {
            let message = format!("the output {:?} is computed by no layer", net.value_name(*value));
            problems.push(whole(Reason::Input, message));
        }
        let known: HashSet<&str> = self.inputs.iter().map(|value| net.value_name(*value)).collect();
        let mut unknown: Vec<&String> = shapes.named.keys().filter(|name| !known.contains(name.as_str())).collect();
        unknown.sort_unstable();
        problems.extend(unknown.into_iter().map(|name| {
            let inputs: Vec<&str> = self.inputs.iter().take(8).map(|value| net.value_name(*value)).collect();
            whole(Reason::Input, format!("a shape is given for {name:?}, and the inputs are {inputs:?}"))
        }));
        operands
    }
}
