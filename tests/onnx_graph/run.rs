//! Runs a model node by node, and holds the model to its claims: declared shapes and types, no value twice, no
//! attribute and no initializer that nothing reads.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Model, Node, Value};
use super::tensor::{Kind, Tensor};
use super::{places, sequence, values, windows};

/// The outputs of a model for these inputs, by name and in the model's order.
pub(crate) fn run(model: &Model, inputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    assert!((13..=17).contains(&model.opset), "operator set {}", model.opset);
    let mut known: BTreeMap<&str, Tensor> = BTreeMap::new();
    for input in &model.inputs {
        let (_, tensor) =
            inputs.iter().find(|(name, _)| *name == input.name).unwrap_or_else(|| panic!("no {}", input.name));
        agrees(input, tensor);
        known.insert(&input.name, tensor.clone());
    }
    let mut read: BTreeSet<&str> = BTreeSet::new();
    known.extend(model.initializers.iter().map(|(name, tensor)| (&**name, tensor.clone())));
    for node in &model.nodes {
        let given = node.inputs.iter().map(|name| match known.get(&**name) {
            _ if name.is_empty() => None,
            None => panic!("{}: nothing wrote {name:?}", node.name),
            found => found,
        });
        let given: Vec<Option<&Tensor>> = given.collect();
        let made = step(node, &given);
        assert!(node.unread().is_empty(), "{}: {} knows no {:?}", node.name, node.kind, node.unread());
        read.extend(node.inputs.iter().map(|name| &**name));
        for (name, tensor) in node.outputs.iter().zip(made).filter(|(name, _)| !name.is_empty()) {
            assert!(known.insert(name, tensor).is_none(), "{name} is written twice");
        }
    }
    model.values.iter().chain(&model.outputs).for_each(|value| agrees(value, &known[&*value.name]));
    read.extend(model.outputs.iter().map(|value| &*value.name));
    let idle: Vec<&String> = model.initializers.keys().filter(|name| !read.contains(&***name)).collect();
    assert!(idle.is_empty(), "nothing reads {idle:?}");
    model.outputs.iter().map(|value| (value.name.clone(), known[&*value.name].clone())).collect()
}

/// A value is of the shape and type that the model declares.
fn agrees(value: &Value, tensor: &Tensor) {
    let element = match tensor.kind {
        Kind::Float => 1,
        Kind::Integer => 7,
        Kind::Bool => 9,
    };
    assert_eq!(value.element, element, "{}: the type", value.name);
    let Some(dims) = &value.dims else { return };
    let fits = dims.len() == tensor.dims.len() && dims.iter().zip(&tensor.dims).all(|(a, b)| a.is_none_or(|a| a == *b));
    assert!(fits, "{}: {:?}, declared as {dims:?}", value.name, tensor.dims);
}

/// The outputs of one node.
fn step(node: &Node, given: &[Option<&Tensor>]) -> Vec<Tensor> {
    assert_eq!(node.domain, "", "{}: the domain", node.name);
    let maybe = |at: usize| given.get(at).copied().flatten();
    let input = |at: usize| maybe(at).unwrap_or_else(|| panic!("{}: input {at} of {}", node.name, node.kind));
    let all: Vec<&Tensor> = given.iter().copied().flatten().collect();
    vec![match &*node.kind {
        "Conv" => windows::conv(node, input(0), input(1), maybe(2)),
        "ConvTranspose" => windows::conv_transpose(node, input(0), input(1), maybe(2)),
        "MaxPool" => {
            let (maxima, places) = windows::max_pool(node, input(0));
            return vec![maxima, places];
        }
        "AveragePool" => windows::average_pool(node, input(0)),
        "GlobalAveragePool" => windows::global_pool(input(0), |plane| plane.iter().sum::<f64>() / plane.len() as f64),
        "GlobalMaxPool" => {
            windows::global_pool(input(0), |plane| plane.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b)))
        }
        "LRN" => windows::lrn(node, input(0)),
        "Gemm" => values::gemm(node, input(0), input(1), maybe(2)),
        "MatMul" => values::matmul(input(0), input(1)),
        "BatchNormalization" => values::batch_normalization(node, input(0), [1, 2, 3, 4].map(input)),
        "InstanceNormalization" => values::instance_normalization(node, input(0), input(1), input(2)),
        "Clip" => values::clip(input(0), maybe(1), maybe(2)),
        "Cast" => values::cast(node, input(0)),
        "Where" => values::choose(input(0), input(1), input(2)),
        "Softmax" | "LogSoftmax" => values::softmax(node, input(0)),
        kind if kind.starts_with("Reduce") => values::reduce(node, input(0), maybe(1)),
        "Concat" => places::concat(node, &all),
        "Split" => return places::split(node, input(0), maybe(1)),
        "Reshape" => places::reshape(node, input(0), input(1)),
        "Flatten" => places::flatten(node, input(0)),
        "Transpose" => places::transpose(node, input(0)),
        "Tile" => places::tile(input(0), input(1)),
        "Expand" => places::expand(input(0), input(1)),
        "Slice" => places::slice(input(0), [input(1), input(2)], maybe(3), maybe(4)),
        "Pad" => places::pad(node, input(0), input(1), maybe(2)),
        "Gather" => places::gather(node, input(0), input(1)),
        "GatherND" => places::gather_nd(node, input(0), input(1)),
        "ScatterElements" => places::scatter_elements(node, input(0), input(1), input(2)),
        "DepthToSpace" => places::depth_to_space(node, input(0)),
        "Squeeze" | "Unsqueeze" => places::squeeze(node, input(0), maybe(1)),
        "TopK" => return places::top_k(node, input(0), input(1)),
        "ArgMax" => places::arg_max(node, input(0)),
        "RoiAlign" => windows::roi_align(node, input(0), input(1), input(2)),
        "Resize" => places::resize(node, input(0), maybe(2), maybe(3)),
        "LSTM" => return sequence::lstm(node, given),
        "NonMaxSuppression" => sequence::suppress(node, given),
        "Shape" => Tensor::integers(&input(0).dims),
        "Constant" => node.tensor("value").expect("a value"),
        _ => return vec![element_wise(node, &all)],
    }]
}

fn element_wise(node: &Node, inputs: &[&Tensor]) -> Tensor {
    let found = values::variadic(node, inputs).or_else(|| match inputs {
        [x] => values::unary(node, x),
        [a, b] => values::binary(node, a, b),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{}: {} of {} inputs", node.name, node.kind, inputs.len()))
}
