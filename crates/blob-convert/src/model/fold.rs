//! A model without the normalisations whose values a fold merges into the layers before.
//!
//! A node of such a normalisation is known by an initializer that `fold` leaves out: `BatchNormalization`, or the `Mul`
//! and `Add` of a Scale. Each list of the model is walked a fixed number of times, however many are folded.

use std::collections::{HashMap, HashSet};

use blob_core::{DType, Shape};
use blob_graph::Need;
use blob_io::onnx::{Attribute, Initializer, Model, Node};
use blob_io::work;

use super::shapes;
use crate::transform::{Fold, FoldedNames};

/// Takes the folded nodes out of a model. The error is the weight of a layer that cannot get a bias.
pub(super) fn folded(
    model: &mut Model,
    needs: &mut Vec<Need>,
    fold: &Fold,
    name: impl Fn(&str) -> String,
) -> Result<(), String> {
    let folds: Vec<FoldedNames<'_>> = fold.names().collect();
    let merged: HashSet<&str> = folds.iter().flat_map(|folded| folded.merged.iter().copied()).collect();
    work::visit(0, (needs.len() + merged.len()) as u64);
    let (gone, kept): (Vec<Need>, Vec<Need>) = needs.drain(..).partition(|need| merged.contains(&*name(&need.tensor)));
    *needs = kept;
    let gone: HashSet<String> = gone.into_iter().map(|need| need.initializer).collect();
    model.initializers.retain(|own| !gone.contains(own.name()));
    pass_by(model, &gone);
    let mut biases = Biases::of(model, needs, &name);
    for folded in folds.iter().filter(|folded| folded.gets_bias) {
        biases.add(model, needs, folded)?;
    }
    let read: HashSet<&str> = model.nodes.iter().flat_map(|node| &node.inputs).map(String::as_str).collect();
    model.initializers.retain(|own| read.contains(own.name()));
    Ok(())
}

/// The number of groups of a convolution.
fn groups(node: &Node) -> usize {
    let group = node.attributes.iter().find(|(name, _)| name == "group");
    let number =
        |(_, value): &(String, Attribute)| if let Attribute::Int(number) = value { Some(*number) } else { None };
    group.and_then(number).and_then(|number| usize::try_from(number).ok()).unwrap_or(1)
}

/// Takes out the nodes that read an initializer of `gone`: the writer of such a node's input writes the output.
fn pass_by(model: &mut Model, gone: &HashSet<String>) {
    work::visit(0, model.nodes.len() as u64);
    // From the last node on, so that of several nodes behind each other the last one gives the name.
    let mut written_as: HashMap<String, String> = HashMap::new();
    let mut kept = Vec::with_capacity(model.nodes.len());
    for mut node in std::mem::take(&mut model.nodes).into_iter().rev() {
        if !node.inputs.iter().any(|input| gone.contains(input)) {
            for written in &mut node.outputs {
                if let Some(other) = written_as.get(written) {
                    written.clone_from(other);
                }
            }
            kept.push(node);
            continue;
        }
        let input = node.inputs.iter().find(|input| !gone.contains(*input));
        if let Some((input, output)) = input.zip(node.outputs.first()) {
            let last = written_as.get(output).unwrap_or(output).clone();
            written_as.insert(input.clone(), last);
        }
    }
    kept.reverse();
    model.nodes = kept;
    model.values.retain(|value| !written_as.contains_key(&value.name));
}

/// Finds the layers that get a bias.
struct Biases {
    /// The place of each tensor among the needs, by the name in the file.
    needs: HashMap<String, usize>,
    /// The extents of each weight, by the initializer's name.
    dims: HashMap<String, Vec<usize>>,
    /// The place of the node that reads a weight, by the initializer's name.
    nodes: HashMap<String, usize>,
    /// The names of all values.
    taken: HashSet<String>,
}

impl Biases {
    fn of(model: &Model, needs: &[Need], name: &impl Fn(&str) -> String) -> Self {
        work::visit(0, (model.nodes.len() + needs.len()) as u64);
        let (mut by_tensor, mut nodes) = (HashMap::new(), HashMap::new());
        for (place, need) in needs.iter().enumerate() {
            by_tensor.entry(name(&need.tensor)).or_insert(place);
        }
        for (place, node) in model.nodes.iter().enumerate() {
            if let [_, weight] = &node.inputs[..] {
                nodes.entry(weight.clone()).or_insert(place);
            }
        }
        let names = model.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
        let dims = shapes(model).into_iter().map(|(name, shape)| (name.to_owned(), shape.dims().to_vec()));
        Self { needs: by_tensor, dims: dims.collect(), nodes, taken: names.cloned().collect() }
    }

    /// Gives the layer of a folded weight its bias, where the layer had none.
    fn add(&mut self, model: &mut Model, needs: &mut Vec<Need>, folded: &FoldedNames<'_>) -> Result<(), String> {
        if self.needs.contains_key(folded.bias) {
            return Ok(());
        }
        let lacks = || folded.weight.to_owned();
        let weight = &needs[*self.needs.get(folded.weight).ok_or_else(lacks)?].initializer;
        let node = self.nodes.get(weight).map(|place| &mut model.nodes[*place]);
        let (Some(dims), Some(node)) = (self.dims.get(weight), node.filter(|node| node.inputs.len() == 2)) else {
            return Err(lacks());
        };
        let channels = match &*node.op_type {
            "Conv" | "Gemm" => dims.first().copied(),
            "ConvTranspose" => dims.get(1).copied().and_then(|channels| channels.checked_mul(groups(node))),
            _ => None,
        };
        let shape = channels.and_then(|channels| Shape::new([channels]).ok()).ok_or_else(lacks)?;
        // A value of the net may have the name that the bias would have.
        let mut initializer = folded.bias.to_owned();
        while !self.taken.insert(initializer.clone()) {
            initializer.push_str(":bias");
        }
        node.inputs.push(initializer.clone());
        model.initializers.push(Initializer::Stored { name: initializer.clone(), dtype: DType::F32, shape });
        let tensor = folded.bias.to_owned();
        self.needs.insert(tensor.clone(), needs.len());
        needs.push(Need { initializer, tensor, make: blob_graph::Make::AsIs });
        Ok(())
    }
}
