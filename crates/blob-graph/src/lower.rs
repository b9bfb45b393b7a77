//! Lowers a graph: each layer in turn becomes nodes of the model, with the shapes of all values.

use std::collections::{HashMap, HashSet};

use blob_core::DType;
use blob_io::net::Framework;
use blob_io::onnx::Attribute;

use crate::body::Body;
use crate::forms::{FLOAT, unary};
use crate::graph::Graph;
use crate::need::Make;
use crate::operand::{Operand, count};
use crate::row::{Integers, Row};
use crate::site::Site;
use crate::target::Target;
use crate::unsupported::{Problem, Reason, Refusal};

impl Graph {
    /// The operands of the inputs for a run of the lowering; with another batch where one is given.
    pub(crate) fn given(&self, batch: Option<u64>) -> Vec<Option<Operand>> {
        let mut operands = vec![None; self.values.len()];
        for place in &self.inputs {
            let value = &self.values[*place];
            let mut shape = value.shape.clone();
            if let (Some(first), Some(batch)) = (shape.first_mut(), batch) {
                *first = batch;
            }
            operands[*place] = Some(Operand { name: value.name.clone(), shape, dtype: value.dtype, is_whole: false });
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
        for (value, tensor) in &self.weights {
            let shape = self.stored.get(tensor).map_or(&[][..], Vec::as_slice);
            match count(shape).and_then(|_| body.stored(tensor, Make::AsIs, shape)) {
                Ok(weight) => operands[*value] = Some(weight),
                Err(refusal) => problems.push(refusal.of("", "")),
            }
        }
        for (node, row) in self.nodes.iter().zip(&self.rows) {
            let inputs: Option<Vec<Operand>> = node.inputs.iter().map(|value| operands[*value].clone()).collect();
            let Some(inputs) = inputs.filter(|inputs| inputs.len() >= row.bottoms.0) else { continue };
            let mark = Mark { node: body.nodes.len(), value: body.values.len() };
            body.has_weight = false;
            let (parameters, stored) = (row.parameters, &self.stored);
            let open = inputs.iter().find(|input| input.shape.contains(&0));
            let lowered = match open {
                Some(open) => Err(Refusal::shape(format!("an extent of the input {:?} is not known", open.name))),
                None => lowered(row, Site { node, parameters, inputs: &inputs, target, stored, body: &mut body }),
            };
            match lowered {
                // A file of Caffe's has its weights by the name of their layer.
                Ok(_) if body.has_weight && self.framework == Framework::Caffe && !weighted.insert(&node.name) => {
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

/// The results of a layer. The row's function sees inputs of f32: Caffe's masks are f32, and ONNX's are of integers,
/// which no other operator mixes with f32.
fn lowered(row: &Row, mut site: Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let inputs = site.inputs.iter().enumerate();
    let floats = inputs.map(|(place, input)| {
        if input.dtype == DType::F32 || row.mask == Some(place) {
            return Ok(input.clone());
        }
        unary(&mut site, "Cast", input, vec![("to", Attribute::Int(FLOAT))])
    });
    let inputs: Vec<Operand> = floats.collect::<Result<_, Refusal>>()?;
    let has_integers = inputs.iter().any(|input| input.is_whole);
    if has_integers && row.integers == Integers::Refused {
        return Err(Refusal::parameter("integers as an input are not supported"));
    }
    let mut results = (row.lower)(&mut Site { inputs: &inputs, ..site })?;
    if row.integers == Integers::Kept {
        results.iter_mut().for_each(|result| result.is_whole = has_integers);
    }
    Ok(results)
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
