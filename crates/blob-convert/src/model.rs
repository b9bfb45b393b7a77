//! The ONNX model of a net: the graph by `blob_graph`, the step that makes the initializers, and initializers in a
//! narrower dtype.
//!
//! Relies on `blob_graph` for every operator but the `Cast` of such an initializer.

mod around;
mod beside;
mod fold;

use std::collections::{HashMap, HashSet};

use blob_core::{DType, Shape};
use blob_graph::{Make, Need, Prepared, Target, to_onnx};
use blob_io::net::Phase;
use blob_io::onnx::{Attribute, Initializer, Model, Node};
use blob_io::words::{joined, quoted};
use blob_io::{Checkpoint, Error, Format, Nets, work};

use crate::graph;
use crate::onnx::{Onnx as Settings, Ssd};
use crate::options::refuse;
use crate::transform::{self, Bound, Fold, Onnx, Topology};
pub(crate) use around::{Around, blake3};
pub(crate) use beside::{put_beside, unnamed, values_name};

/// The place of each of ONNX's gates of an LSTM (input, output, forget, new) among Caffe's.
const LSTM_GATES: [usize; 4] = [0, 2, 1, 3];
/// Losses of which a model has the probabilities, and the layers that compute these.
const LOSSES: [(&str, &str); 2] = [("SoftmaxWithLoss", "Softmax"), ("SigmoidCrossEntropyLoss", "Sigmoid")];
/// So many settings of a layer of data are named.
const MOST_SETTINGS: usize = 8;
/// ONNX's number of f32, in the attribute of `Cast`.
const FLOAT: i64 = 1;

/// Whether an output is a new model, made of a net.
pub(crate) fn is_made(checkpoint: &Checkpoint, to: Format, is_into: bool) -> bool {
    let is_graph = |format: Format| format.holds().net == Nets::Graph;
    is_graph(to) && !is_into && !is_graph(checkpoint.format())
}

/// The model of a net, and the step that makes the initializers. `dtype` is the dtype that the tensors are rounded to.
///
/// # Errors
/// A net that is missing or says nothing of connections; everything in the net that has no form in ONNX; tensors of
/// several dtypes.
pub(crate) fn of(
    checkpoint: &Checkpoint,
    net: Option<&Topology>,
    fold: Option<&Fold>,
    settings: &Settings,
    dtype: Option<DType>,
) -> Result<(Model, Onnx), Error> {
    let graph = graph::of_net(checkpoint, net, settings)?;
    // Of layers of one name in the file, the net of inference may have one, which gets the last one's tensors.
    let net = net.map(|net| (net.net(), net.net().in_phase(Phase::Test)));
    let Some((all, net)) = &net else {
        return Err(refuse(checkpoint, "has tensors that no net was paired with".to_owned()));
    };
    let bound = &Bound::new(net, checkpoint).without(fold.iter().flat_map(|fold| fold.folded()));
    if let Some(opset) = settings.opset.filter(|opset| !(13..=17).contains(opset)) {
        return Err(refuse(checkpoint, format!("cannot become a model of opset {opset}: 13 to 17 are written")));
    }
    let target = target(settings);
    let (mut model, mut needs) = to_onnx(&graph, &target).map_err(|all| graph::refused(checkpoint, &all))?;
    if let Some(fold) = fold {
        let of_all = Bound::new(all, checkpoint);
        if let Some(need) = needs.iter().find(|need| of_all.name(&need.tensor) != bound.name(&need.tensor)) {
            let message =
                format!("has several layers with {:?}, and folds another than counts; leave --fold out", need.tensor);
            return Err(refuse(checkpoint, message));
        }
        fold::folded(&mut model, &mut needs, fold, |tensor| bound.name(tensor).to_owned()).map_err(|weight| {
            let message = format!("has a fold into {weight:?}, whose layer gets no bias in ONNX; leave --fold out");
            refuse(checkpoint, message)
        })?;
    }
    let shapes = shapes(&model);
    let made = needs.iter().map(|need| {
        initializer(&shapes, need, bound)
            .ok_or_else(|| refuse(checkpoint, format!("has {:?}, which no step turns into ONNX's form", need.tensor)))
    });
    let initializers: Vec<transform::Initializer> = made.collect::<Result<_, Error>>()?;
    let stored = needs.iter().filter_map(|need| checkpoint.entry(bound.name(&need.tensor))?.dtype());
    let dtype = one_dtype(checkpoint, dtype, stored)?;
    if dtype != DType::F32 {
        narrow(&mut model, dtype);
    }
    let dropped: Vec<String> =
        graph.dropped().iter().map(|dropped| format!("{} ({})", dropped.layer, dropped.type_name)).collect();
    let recurrent = graph.nodes().iter().filter(|node| node.type_name == "LSTM").map(|node| {
        format!("the markers of {:?} are no input: its steps are taken for one sequence from the first on", node.name)
    });
    let losses = graph.nodes().iter().filter(|node| LOSSES.iter().any(|(loss, _)| *loss == node.type_name)).map(loss);
    let read: HashSet<&str> = model.inputs.iter().map(|input| &*input.name).collect();
    let inputs = graph.inputs().iter().map(|place| &*graph.values()[*place].name);
    let shapes_alone: Vec<String> = inputs.filter(|name| !read.contains(name)).map(unread).collect();
    // A later version may have another default.
    let settings = Settings { opset: u8::try_from(target.opset).ok(), ..settings.clone() };
    let copies = graph.copies().iter().map(|tensor| bound.name(tensor).to_owned());
    let made = Onnx::new(initializers).of_graph(settings).with_copies(copies);
    let prepared = graph.prepared().iter().map(preparation);
    let notices = notice(&dropped).into_iter().chain(prepared).chain(shapes_alone).chain(recurrent).chain(losses);
    Ok((model, made.with_notices(notices)))
}

/// The notice that a loss gives its probabilities.
fn loss(node: &blob_graph::Node) -> String {
    let made = LOSSES.iter().find(|(loss, _)| *loss == node.type_name).map_or("", |(_, made)| made);
    format!("{} ({}) gives its probabilities, as a {made} does, and reads no label", quoted(&node.name), node.type_name)
}

/// The notice about an input of the net whose values nothing in the model reads.
fn unread(name: &str) -> String {
    format!("{} is no input of the model: the net reads its shape, or nothing of it", quoted(name))
}

/// The notice that the model takes values as a layer of data has prepared them.
fn preparation(prepared: &Prepared) -> String {
    let settings = prepared.settings.iter().map(|(path, text)| format!("{path} = {}", quoted(text)));
    let settings: Vec<String> = settings.collect();
    let (layer, settings) = (quoted(&prepared.layer), joined(MOST_SETTINGS, &settings));
    format!("the model takes its input as {layer} prepares it, and does not prepare it: {settings}")
}

/// The notice about layers that are not in the model.
fn notice(dropped: &[String]) -> Option<String> {
    let layers = if dropped.len() == 1 { "layer is" } else { "layers are" };
    let named = crate::change::listed(dropped);
    (!dropped.is_empty())
        .then(|| format!("{} {layers} not in the model, as inference does without: {named}", dropped.len()))
}

fn target(settings: &Settings) -> Target {
    let ssd = match settings.ssd {
        Ssd::Standard => blob_graph::Ssd::Standard,
        Ssd::Opencv => blob_graph::Ssd::OpenCv,
        Ssd::Raw => blob_graph::Ssd::Raw,
    };
    Target { opset: settings.opset.map_or(17, i64::from), dynamic_batch: settings.dynamic_batch, ssd }
}

/// The shapes of the stored initializers, by name.
fn shapes(model: &Model) -> HashMap<&str, &Shape> {
    work::visit(0, model.initializers.len() as u64);
    let stored = model.initializers.iter().filter_map(|own| match own {
        Initializer::Stored { name, shape, .. } => Some((&**name, shape)),
        Initializer::Constant { .. } => None,
    });
    stored.collect()
}

/// The initializer that a need describes.
fn initializer(shapes: &HashMap<&str, &Shape>, need: &Need, bound: &Bound<'_>) -> Option<transform::Initializer> {
    let shape = shapes.get(&*need.initializer)?;
    let made = transform::Initializer::new(&*need.initializer, bound.name(&need.tensor), shape);
    Some(match &need.make {
        Make::AsIs | Make::BatchNorm(_) | Make::Ones | Make::Reshape(_) => made,
        Make::LstmGates => made.of_blocks(&LSTM_GATES, 0),
        Make::LstmBias => made.of_blocks(&LSTM_GATES, LSTM_GATES.len()),
        _ => return None,
    })
}

/// The one dtype of all weights: the dtype that is asked for, or else the stored one.
fn one_dtype(
    checkpoint: &Checkpoint,
    asked: Option<DType>,
    stored: impl Iterator<Item = DType>,
) -> Result<DType, Error> {
    let mut stored: Vec<DType> = stored.collect();
    stored.sort_unstable_by_key(|dtype| dtype.name());
    stored.dedup();
    let dtype = match (asked, &stored[..]) {
        (Some(dtype), _) => dtype,
        (None, []) => DType::F32,
        (None, [one]) => *one,
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|dtype| dtype.name()).collect();
            let message = format!(
                "has weights of {}, and ONNX's operators want one dtype; --dtype f32 rounds them",
                names.join(" and ")
            );
            return Err(refuse(checkpoint, message));
        }
    };
    if matches!(dtype, DType::F32 | DType::F16) {
        return Ok(dtype);
    }
    Err(refuse(
        checkpoint,
        format!("has weights of {dtype}, which runtimes of ONNX do not compute with; --dtype f32 rounds them"),
    ))
}

/// Stores the initializers in a narrower dtype; a `Cast` behind each gives the f32 that the operators compute with.
fn narrow(model: &mut Model, dtype: DType) {
    let mut taken: HashSet<String> = model.initializers.iter().map(|own| own.name().to_owned()).collect();
    let values = model.inputs.iter().chain(&model.values).chain(&model.outputs);
    taken.extend(values.map(|value| value.name.clone()));
    taken.extend(model.nodes.iter().flat_map(|node| [&node.inputs, &node.outputs]).flatten().cloned());
    let mut widened: HashMap<String, String> = HashMap::new();
    for initializer in &mut model.initializers {
        let Initializer::Stored { name, dtype: own, .. } = initializer else { continue };
        *own = dtype;
        let names = (1..).map(|n| if n == 1 { format!("{name}_f32") } else { format!("{name}_f32_{n}") });
        let wide = names.into_iter().find(|wide| !taken.contains(wide)).unwrap_or_default();
        taken.insert(wide.clone());
        widened.insert(name.clone(), wide);
    }
    for input in model.nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        if let Some(wide) = widened.get(input) {
            input.clone_from(wide);
        }
    }
    let read = model.initializers.iter().filter_map(|own| widened.get_key_value(own.name()));
    let casts: Vec<Node> =
        read.map(|(name, wide)| Node::new("Cast", &[name], wide).with("to", Attribute::Int(FLOAT))).collect();
    model.nodes.splice(..0, casts);
}
