//! The ONNX model of a graph, and which tensor of the net each weight of the model is.
//!
//! Assembles what the rows add; knows no operator.

use std::collections::{BTreeSet, HashMap, HashSet};

use blob_io::onnx::{Dim, Initializer, Model, Node, Value};

use crate::body::Body;
use crate::graph::Graph;
use crate::lower::Lowering;
use crate::names::Names;
use crate::need::Need;
use crate::node::Node as Layer;
use crate::operand::Operand;
use crate::target::{Ssd, Target};
use crate::unsupported::{Problem, Reason, Unsupported};

/// The name of the batch's extent, where that is left open.
const BATCH: &str = "N";

/// The model of a graph, and its weights' sources, in the order of the model's stored initializers. The model's values
/// have no bytes yet.
///
/// # Errors
/// [`Unsupported`] where a layer has no form for this target: the batch is to be open, and a layer mixes images of a
/// batch; or SSD's layers have settings that ONNX's operators cannot express.
pub fn to_onnx(graph: &Graph, target: &Target) -> Result<(Model, Vec<Need>), Unsupported> {
    graph.check_outputs_differ()?;
    let lowering = checked(graph.lower(graph.given(None), target))?;
    let open = if target.dynamic_batch { open_values(graph, target, &lowering)? } else { HashMap::new() };
    let Lowering { mut body, operands, .. } = lowering;
    let mut outputs = Vec::new();
    for place in graph.outputs() {
        let Some(operand) = operands.get(*place).and_then(Option::as_ref) else { continue };
        let name = &graph.values()[*place].name;
        let first = open.get(&operand.name).copied();
        if operand.name != *name {
            body.nodes.push(Node::new("Identity", &[&operand.name], name));
        }
        outputs.push(value(&Operand { name: name.clone(), ..operand.clone() }, first));
    }
    // ONNX Runtime takes no two nodes of one name, and Caffe has layers of one name.
    let mut names = Names::default();
    body.nodes.iter_mut().for_each(|node| node.name = names.claim(&node.name));
    outputs
        .extend(raw_outputs(graph, target, &operands).map(|operand| value(operand, open.get(&operand.name).copied())));
    // The markers of an LSTM, for one, are not read.
    let inputs = graph.inputs().iter().filter_map(|place| operands[*place].as_ref());
    let given: HashSet<&str> = outputs.iter().map(|output| &*output.name).collect();
    let between = body.values.iter().filter(|operand| !given.contains(&*operand.name));
    let values = between.map(|operand| value(operand, open.get(&operand.name).copied()));
    let read: HashSet<&str> = body.nodes.iter().flat_map(|node| node.inputs.iter().map(|name| &**name)).collect();
    let inputs = inputs.filter(|operand| read.contains(&*operand.name));
    let model = Model {
        ir_version: if target.opset >= 15 { 8 } else { 7 },
        opset: target.opset,
        name: "net".to_owned(),
        inputs: inputs.map(|operand| value(operand, target.dynamic_batch.then_some(First::Batch))).collect(),
        values: values.collect(),
        outputs,
        nodes: body.nodes,
        initializers: body.initializers,
        metadata: Vec::new(),
        outside: None,
    };
    Ok((model, body.needs))
}

fn checked(lowering: Lowering) -> Result<Lowering, Unsupported> {
    if lowering.problems.is_empty() { Ok(lowering) } else { Err(Unsupported { problems: lowering.problems }) }
}

/// A first extent that is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// The batch of the inputs.
    Batch,
    /// Another one that follows from the batch, as twice the batch.
    Other,
}

/// The first extents that are left open, by the name of the value: those that a larger batch makes larger. A net that
/// another batch changes in any other way needs a fixed batch.
fn open_values(graph: &Graph, target: &Target, fixed: &Lowering) -> Result<HashMap<String, First>, Unsupported> {
    let first = |place: &usize| graph.values()[*place].shape.first().copied();
    let batch = graph.inputs().iter().find_map(first).unwrap_or(1);
    if let Some(other) = graph.inputs().iter().find(|place| first(place).is_some_and(|extent| extent != batch)) {
        return Err(fixed_batch(&graph.values()[*other].name, "has another batch"));
    }
    let of_batch = |batch| -> Result<Lowering, Unsupported> {
        let other = checked(graph.lower(graph.given(Some(batch)), target))?;
        difference(&fixed.body, &other.body).map_or(Ok(other), |name| Err(fixed_batch(&name, "depends on it")))
    };
    // An axis of one image may be left out, and one image may be all of them.
    if batch != 1 {
        of_batch(1)?;
    }
    let larger = batch + 1;
    let other = of_batch(larger)?;
    let shapes = fixed.body.values.iter().zip(&other.body.values);
    let open = shapes.filter(|(one, two)| one.shape.first() != two.shape.first());
    let open = open.map(|(one, two)| {
        let is_batch = (one.shape.first(), two.shape.first()) == (Some(&batch), Some(&larger));
        (one.name.clone(), if is_batch { First::Batch } else { First::Other })
    });
    Ok(open.collect())
}

/// The name of a node or value in which two bodies differ by more than the first extents.
fn difference(one: &Body, other: &Body) -> Option<String> {
    if let Some(node) = differing(&one.nodes, &other.nodes, |one, two| one == two) {
        return Some(node.name.clone());
    }
    if let Some(constant) = differing(&one.initializers, &other.initializers, |one, two| one == two) {
        return match constant {
            Initializer::Constant { name, .. } | Initializer::Stored { name, .. } => Some(name.clone()),
        };
    }
    let value = differing(&one.values, &other.values, |one, two| one.shape.iter().skip(1).eq(two.shape.iter().skip(1)));
    value.map(|value| value.name.clone())
}

/// The first item that the other list lacks or has otherwise; of the longer list where one ends.
fn differing<'a, T>(one: &'a [T], other: &'a [T], is_alike: impl Fn(&T, &T) -> bool) -> Option<&'a T> {
    let unlike = one.iter().zip(other).find(|(one, two)| !is_alike(one, two)).map(|(one, _)| one);
    let longer = if one.len() > other.len() { one } else { other };
    unlike.or_else(|| longer.get(one.len().min(other.len())))
}

/// The error for a net whose batch cannot be left open.
fn fixed_batch(name: &str, why: &str) -> Unsupported {
    let (layer, type_name, reason) = (String::new(), String::new(), Reason::Shape);
    let message = format!("the batch cannot be left open: {name:?} {why}");
    Unsupported { problems: vec![Problem { layer, type_name, reason, message }] }
}

/// The values that `DetectionOutput` reads, where the model stops before it.
fn raw_outputs<'a>(
    graph: &'a Graph,
    target: &Target,
    operands: &'a [Option<Operand>],
) -> impl Iterator<Item = &'a Operand> {
    let is_raw = target.ssd == Ssd::Raw;
    let nodes = graph.nodes().iter().filter(|node| is_raw && is_detection(node));
    let read: BTreeSet<usize> = nodes.flat_map(|node| node.inputs.iter().copied()).collect();
    read.into_iter().filter_map(|value| operands[value].as_ref())
}

fn is_detection(node: &Layer) -> bool {
    ["DetectionOutput", "MultiBoxDetection"].iter().any(|end| node.type_name.ends_with(end))
}

fn value(operand: &Operand, first: Option<First>) -> Value {
    let shape = operand.shape.iter().enumerate().map(|(axis, extent)| match (extent, first.filter(|_| axis == 0)) {
        (_, Some(First::Batch)) => Dim::Name(BATCH.to_owned()),
        (0, _) | (_, Some(First::Other)) => Dim::Name(format!("{}_{axis}", operand.name)),
        (extent, None) => Dim::Size(*extent),
    });
    Value { name: operand.name.clone(), dtype: operand.dtype, shape: shape.collect() }
}
