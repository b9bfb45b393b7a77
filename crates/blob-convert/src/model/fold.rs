//! A model without the normalisations whose values a fold merges into the layers before.
//!
//! A node of such a normalisation is known by an initializer that `fold` leaves out: `BatchNormalization`, or the `Mul`
//! and `Add` of a Scale.

use std::collections::HashSet;

use blob_core::{DType, Shape};
use blob_graph::Need;
use blob_io::onnx::{Attribute, Initializer, Model, Node};

use crate::transform::{Fold, FoldedNames};

/// Takes the folded nodes out of a model. The error is the weight of a layer that cannot get a bias.
pub(super) fn folded(
    model: &mut Model,
    needs: &mut Vec<Need>,
    fold: &Fold,
    name: impl Fn(&str) -> String,
) -> Result<(), String> {
    for folded in fold.names() {
        let merged: HashSet<&str> = folded.merged.iter().copied().collect();
        let (gone, kept): (Vec<Need>, Vec<Need>) =
            needs.drain(..).partition(|need| merged.contains(&*name(&need.tensor)));
        *needs = kept;
        let gone: HashSet<String> = gone.into_iter().map(|need| need.initializer).collect();
        model.initializers.retain(|own| !gone.contains(own.name()));
        while let Some(place) = model.nodes.iter().position(|node| node.inputs.iter().any(|input| gone.contains(input)))
        {
            let node = model.nodes.remove(place);
            pass_by(model, &node, &gone);
        }
        if folded.gets_bias {
            add_bias(model, needs, &folded, &name)?;
        }
    }
    model.initializers.retain(|own| model.nodes.iter().any(|node| node.inputs.iter().any(|input| input == own.name())));
    Ok(())
}

/// The number of groups of a convolution.
fn groups(node: &Node) -> usize {
    let group = node.attributes.iter().find(|(name, _)| name == "group");
    let number =
        |(_, value): &(String, Attribute)| if let Attribute::Int(number) = value { Some(*number) } else { None };
    group.and_then(number).and_then(|number| usize::try_from(number).ok()).unwrap_or(1)
}

/// Lets the writer of a node's input write the node's output.
fn pass_by(model: &mut Model, node: &Node, gone: &HashSet<String>) {
    let Some((input, output)) = node.inputs.iter().find(|input| !gone.contains(*input)).zip(node.outputs.first())
    else {
        return;
    };
    for written in model.nodes.iter_mut().flat_map(|node| &mut node.outputs).filter(|written| *written == input) {
        written.clone_from(output);
    }
    model.values.retain(|value| value.name != *input);
}

/// Gives the layer of a folded weight its bias, where the layer had none.
fn add_bias(
    model: &mut Model,
    needs: &mut Vec<Need>,
    folded: &FoldedNames<'_>,
    name: &impl Fn(&str) -> String,
) -> Result<(), String> {
    if needs.iter().any(|need| name(&need.tensor) == folded.bias) {
        return Ok(());
    }
    let lacks = || folded.weight.to_owned();
    let weight = needs.iter().find(|need| name(&need.tensor) == folded.weight).ok_or_else(lacks)?.initializer.clone();
    let dims = model.initializers.iter().find_map(|own| match own {
        Initializer::Stored { name, shape, .. } if *name == weight => Some(shape.dims().to_vec()),
        _ => None,
    });
    let names: Vec<String> =
        model.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs)).cloned().collect();
    let node = model.nodes.iter_mut().find(|node| node.inputs.get(1) == Some(&weight) && node.inputs.len() == 2);
    let (Some(dims), Some(node)) = (dims, node) else { return Err(lacks()) };
    let channels = match &*node.op_type {
        "Conv" | "Gemm" => dims.first().copied(),
        "ConvTranspose" => dims.get(1).copied().and_then(|channels| channels.checked_mul(groups(node))),
        _ => None,
    };
    let shape = channels.and_then(|channels| Shape::new([channels]).ok()).ok_or_else(lacks)?;
    // A value of the net may have the name that the bias would have.
    let taken: HashSet<&String> = names.iter().collect();
    let mut initializer = folded.bias.to_owned();
    while taken.contains(&initializer) {
        initializer.push_str(":bias");
    }
    node.inputs.push(initializer.clone());
    model.initializers.push(Initializer::Stored { name: initializer.clone(), dtype: DType::F32, shape });
    let tensor = folded.bias.to_owned();
    needs.push(Need { initializer, tensor, make: blob_graph::Make::AsIs });
    Ok(())
}
