//! Each layer of Caffe's as a net that becomes an ONNX model, run by the interpreter, against the real Caffe's output.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use blob_core::DType;
use blob_graph::{Graph, Make, Need, Shapes, Target, to_onnx};
use blob_io::Checkpoint;
use blob_io::caffe::prototxt;
use blob_io::net::{Net, Phase};
use blob_io::onnx::{self, Dim};
use rayon::prelude::*;

use super::model::{Attribute, Model, Node, Value};
use super::tensor::{Kind, Tensor};
use super::{Case, cases, difference, run};
use crate::support::floats::wide;
use crate::support::report;

impl Case {
    /// The types of the net's layers.
    fn types(&self) -> Vec<String> {
        let text = String::from_utf8(self.bytes("prototxt")).expect("a text");
        text.split(" type: \"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
    }
}

/// Cases that may be refused, each with words of the reason.
type Refused = &'static [(&'static str, &'static str)];

/// The nets that may be refused. Whatever is converted is equal.
const REFUSED: Refused = &[
    ("detectionoutput-background", "background_label_id"),
    ("detectionoutput-batch", "for one image"),
    ("detectionoutput-corner-size", "code_type"),
    ("detectionoutput-no-background", "background_label_id"),
    ("detectionoutput-not-shared", "places, scores and boxes"),
    ("interp-pad", "pad_beg"),
    ("pooling-max-gap", "a window that begins beyond"),
];

/// The most by which an output may differ, relative to the greatest value.
const BAR: f64 = 1e-4;

/// The outcome of a case.
enum Outcome {
    Equal { operators: Vec<String>, most: f64 },
    Refused(String),
    Wrong(String),
}

/// Runs a case's model, and compares each output of Caffe's with the value of that name.
fn outcome(case: &Case, converted: Result<Model, String>) -> Outcome {
    let model = match converted {
        Ok(model) => model,
        Err(reason) => return Outcome::Refused(reason),
    };
    let operators = model.nodes.iter().map(|node| node.kind.clone()).collect();
    let found = match catch_unwind(AssertUnwindSafe(|| run::run(&model, &case.side("in/")))) {
        Ok(found) => found,
        Err(reason) => return Outcome::Wrong(message(&*reason)),
    };
    let mut most = 0f64;
    for (name, expected) in case.side("out/") {
        let Some((_, tensor)) = found.iter().find(|(own, _)| *own == name) else {
            let names: Vec<&String> = found.iter().map(|(name, _)| name).collect();
            return Outcome::Wrong(format!("no output {name}, but {names:?}"));
        };
        let is_boxes = ["detectionoutput", "multibox-detection"].iter().any(|kind| case.name.starts_with(kind));
        let (tensor, expected) = if is_boxes { (rows(tensor), rows(&expected)) } else { (tensor.clone(), expected) };
        match difference(&tensor, &expected) {
            Some(by) if by <= BAR => most = most.max(by),
            Some(by) => return Outcome::Wrong(format!("{name} differs by {by:e}")),
            None => return Outcome::Wrong(format!("{name} is {:?}, not {:?}", tensor.dims, expected.dims)),
        }
    }
    Outcome::Equal { operators, most }
}

/// A case as the library's model, with the weights that the model needs.
fn lowered(case: &Case) -> Result<Model, String> {
    let text = case.bytes("prototxt");
    let file = Checkpoint::from_bytes("net.caffemodel", case.bytes("weights")).map_err(|e| e.to_string())?;
    let net = prototxt("deploy.prototxt", &text).map_err(|e| e.to_string())?.in_phase(Phase::Test);
    of_net(&net, &Shapes::default(), |need, _| made(&file, need))
}

/// A net as the library's model, with the weights that `made` gives in a shape.
pub(super) fn of_net(net: &Net, shapes: &Shapes, made: impl Fn(&Need, &[usize]) -> Vec<f64>) -> Result<Model, String> {
    let graph = Graph::from_net(net, shapes).map_err(|e| e.to_string())?;
    let (plan, needs) = to_onnx(&graph, &Target::default()).map_err(|e| e.to_string())?;
    let mut model = Model { ir_version: plan.ir_version as u64, opset: plan.opset as u64, ..Model::default() };
    let initializers = plan.initializers.iter().map(|initializer| match initializer {
        onnx::Initializer::Constant { name, dtype, shape, bytes } => {
            let kind = if *dtype == DType::F32 { Kind::Float } else { Kind::Integer };
            let mut values = Vec::new();
            for chunk in bytes.chunks(if *dtype == DType::F32 { 4 } else { 8 }) {
                values.push(match chunk.try_into() {
                    Ok(bytes) => f64::from(f32::from_le_bytes(bytes)),
                    Err(_) => i64::from_le_bytes(chunk.try_into().expect("eight bytes")) as f64,
                });
            }
            (name.clone(), Tensor::new(shape.dims(), values, kind))
        }
        onnx::Initializer::Stored { name, shape, .. } => {
            let need = needs.iter().find(|need| need.initializer == *name).expect("a source");
            (name.clone(), Tensor::float(shape.dims(), made(need, shape.dims())))
        }
    });
    model.initializers = initializers.collect();
    model.inputs = plan.inputs.iter().map(value).collect();
    model.outputs = plan.outputs.iter().map(value).collect();
    model.values = plan.values.iter().map(value).collect();
    model.nodes = plan.nodes.iter().map(node).collect();
    Ok(model)
}

/// The values of a weight, made of the net's tensor.
fn made(file: &Checkpoint, need: &Need) -> Vec<f64> {
    let values = wide(file, &need.tensor);
    let gates = |zeros: usize| {
        let gate = values.len() / 4;
        let ordered = [0, 2, 1, 3].iter().flat_map(|place| values[place * gate..(place + 1) * gate].iter().copied());
        ordered.chain(std::iter::repeat_n(0.0, zeros)).collect()
    };
    match &need.make {
        Make::AsIs | Make::Reshape(_) => values,
        Make::BatchNorm(factor) => {
            let factor = wide(file, factor)[0];
            values.iter().map(|value| if factor == 0.0 { 0.0 } else { value / factor }).collect()
        }
        Make::LstmGates => gates(0),
        Make::LstmBias => gates(values.len()),
        other => panic!("{other:?}"),
    }
}

fn value(value: &onnx::Value) -> Value {
    let element = match value.dtype {
        DType::F32 => 1,
        DType::I64 => 7,
        DType::Bool => 9,
        other => panic!("{}: {other}", value.name),
    };
    Value {
        name: value.name.clone(),
        element,
        dims: Some(
            value.shape.iter().map(|dim| if let Dim::Size(size) = dim { Some(*size as usize) } else { None }).collect(),
        ),
    }
}

fn node(node: &onnx::Node) -> Node {
    let mut own = Node::new(
        node.attributes
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    onnx::Attribute::Int(value) => Attribute::Int(*value),
                    onnx::Attribute::Float(value) => Attribute::Float(f64::from(*value)),
                    onnx::Attribute::Text(value) => Attribute::Text(value.clone()),
                    onnx::Attribute::Ints(values) => Attribute::Ints(values.clone()),
                    onnx::Attribute::Floats(values) => panic!("{name}: {values:?}"),
                };
                (name.clone(), value)
            })
            .collect(),
    );
    (own.name, own.kind, own.domain) = (node.name.clone(), node.op_type.clone(), node.domain.clone());
    (own.inputs, own.outputs) = (node.inputs.clone(), node.outputs.clone());
    own
}

pub(super) fn message(reason: &(dyn Any + Send)) -> String {
    let text = reason.downcast_ref::<String>().cloned();
    text.or_else(|| reason.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Detections in one order: by image, label and falling score. Caffe says that it found nothing with a row of −1, and
/// begins its rows with the image; MXNet has a row of −1 for each box that is no detection.
fn rows(boxes: &Tensor) -> Tensor {
    let width = boxes.dims.last().copied().unwrap_or(7);
    let label = width - 6;
    let mut rows: Vec<&[f64]> = boxes.values.chunks(width).filter(|row| row.get(label) != Some(&-1.0)).collect();
    rows.sort_by(|a, b| {
        let key = |row: &[f64]| [row[0], row[label], -row[label + 1], row[label + 2], row[label + 3]];
        key(a).partial_cmp(&key(b)).expect("no NaN")
    });
    Tensor::float(&[rows.len(), width], rows.concat())
}

/// Compares every case, and names those without a form, or with another one than Caffe's.
pub(super) fn compare(
    cases: &[Case],
    refused: Refused,
    types: impl Fn(&Case) -> Vec<String>,
    convert: impl Fn(&Case) -> Result<Model, String> + Sync,
) -> String {
    let outcomes: Vec<Outcome> = cases.par_iter().map(|case| outcome(case, convert(case))).collect();
    let (mut operators, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let (mut equal, mut most, mut wrong) = (0, 0f64, String::new());
    for (case, outcome) in cases.iter().zip(outcomes) {
        let refused = refused.iter().find(|(name, _)| *name == case.name);
        match outcome {
            Outcome::Equal { operators: own, most: by } => {
                (equal, most) = (equal + 1, most.max(by));
                operators.extend(own);
                kinds.extend(types(case));
            }
            Outcome::Refused(reason) if refused.is_some_and(|(_, words)| reason.contains(words)) => {}
            Outcome::Refused(reason) => wrong += &format!("{}: refused: {reason}\n", case.name),
            Outcome::Wrong(reason) => wrong += &format!("{}: {reason}\n", case.name),
        }
    }
    assert!(wrong.is_empty(), "{equal} of {} cases are equal\n{wrong}", cases.len());
    let (kinds, ops, refused) = (kinds.len(), operators.len(), cases.len() - equal);
    format!("{equal} cases of {kinds} types of layers, {ops} operators, {refused} refused, difference {most:.1e}")
}

#[test]
fn a_graph_computes_what_caffe_computes() {
    report(&format!("onnx: {}", compare(&cases("onnx_graph/caffe.npz"), REFUSED, Case::types, lowered)));
}

/// A net that moves the edges of three boxes; the last two are shifted against the first.
const CORNERS: &str = r#"input: "loc" input_shape { dim: 1 dim: 12 } input: "conf" input_shape { dim: 1 dim: 6 }
    input: "prior" input_shape { dim: 1 dim: 2 dim: 12 }
    layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
            detection_output_param { num_classes: 2 code_type: CORNER keep_top_k: 9 nms_param { nms_threshold: 0.3 top_k: 9 } } }"#;

/// Caffe's `JaccardOverlap`: the area that two boxes share, over the area of both together. Edges out of order cover
/// nothing.
fn overlap(one: &[f64], two: &[f64]) -> f64 {
    let sides = [0, 1].map(|side| one[2 + side].min(two[2 + side]) - one[side].max(two[side]));
    let area = |edges: &[f64]| (edges[2] - edges[0]).max(0.0) * (edges[3] - edges[1]).max(0.0);
    if sides.iter().any(|side| *side <= 0.0) {
        return 0.0;
    }
    let both = sides[0] * sides[1];
    both / (area(one) + area(two) - both)
}

#[test]
fn a_box_whose_edges_are_turned_covers_nothing() {
    let net = prototxt("net.prototxt", CORNERS.as_bytes()).expect("a net").in_phase(Phase::Test);
    let model = of_net(&net, &Shapes::default(), |need, _| panic!("{need:?}")).expect("a model");
    let priors: Vec<f64> = [[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.52, 0.5], [0.1, 0.12, 0.5, 0.52]].concat();
    let scores = [0.9, 0.8, 0.7];
    let mut turned = 0;
    for case in 0..27 {
        // Each box stays, or its left and right, or all its edges change places.
        let moves: Vec<f64> = (0..3usize)
            .flat_map(|place| match case / 3usize.pow(place as u32) % 3 {
                0 => [0.0; 4],
                1 => [0.4, 0.0, -0.4, 0.0],
                _ => [0.4, 0.4, -0.4, -0.4],
            })
            .collect();
        let edges: Vec<f64> = priors.iter().zip(&moves).map(|(edge, by)| edge + by).collect();
        let mut expected: Vec<usize> = Vec::new();
        for place in 0..3 {
            let of = |place: usize| &edges[place * 4..][..4];
            if expected.iter().all(|kept| overlap(of(*kept), of(place)) <= 0.3) {
                expected.push(place);
            }
        }
        turned += usize::from(expected.len() > 1);
        let float = |dims: &[usize], values: &[f64]| Tensor::float(dims, values.to_vec());
        let confidences: Vec<f64> = scores.iter().flat_map(|score| [1.0 - score, *score]).collect();
        let given = [
            ("loc", float(&[1, 12], &moves)),
            ("conf", float(&[1, 6], &confidences)),
            ("prior", float(&[1, 2, 12], &[priors.clone(), vec![1.0; 12]].concat())),
        ];
        let given: Vec<(String, Tensor)> = given.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
        let found = run::run(&model, &given);
        let rows: Vec<&[f64]> = found[0].1.values.chunks(7).collect();
        assert_eq!(rows.len(), expected.len(), "{moves:?}: {rows:?}");
        for (row, place) in rows.iter().zip(expected) {
            assert!((row[2] - scores[place]).abs() < 1e-6, "{moves:?}: {rows:?}");
        }
    }
    assert!(turned > 9, "{turned}");
}
