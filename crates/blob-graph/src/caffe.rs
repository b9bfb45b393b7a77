//! Caffe's types of layers: the table of operators, the layers of training, and the settings that do not matter here.
//!
//! One row an operator. The functions that the rows name are in the files of this folder.

mod join;
mod neuron;
mod norm;
mod pool;
mod recurrent;
mod reduce;
mod resize;
mod rows;
mod shape;
mod ssd;
mod window;

use blob_io::net::Layer;

use crate::row::{Kind, Row, lists};

/// Layers that bring data into a net.
const INPUTS: &str = "Input Data AnnotatedData DummyData HDF5Data ImageData MemoryData VideoData WindowData";

/// The layer that reads a value, so that the value is no output of the net.
pub(crate) const SILENCE: &str = "Silence";

/// Layers that only training and testing need.
const TRAINING: &str = "Accuracy ContrastiveLoss DetectionEvaluate EuclideanLoss HDF5Output HingeLoss InfogainLoss \
     MultiBoxLoss MultinomialLogisticLoss Silence SmoothL1Loss";

/// Losses that compute the probabilities on their way: inference has these.
const LOSSES: &str = "SigmoidCrossEntropyLoss SoftmaxWithLoss";

/// Settings that change nothing in inference: rates of learning, conditions, the choice between equal implementations.
/// A text that ends in a dot begins the path of a message.
const IGNORED: &str = "param param. include. exclude. phase loss_weight propagate_down blobs_lr weight_decay \
     blob_share_mode blobs. transform_param. loss_param.";

/// The last part of settings that change nothing in inference, in whatever message.
const IGNORED_FIELDS: &str = "engine force_nd_im2col stable_prod_grad moving_average_fraction";

/// The settings of V0's layers, with the places that they have had since V1.
const V0: &str = "num_output biasterm=bias_term pad kernelsize=kernel_size group stride pool dropout_ratio \
     local_size alpha beta k concat_dim";

/// The part that a layer has. A loss without an output has none in inference.
pub(crate) fn kind(layer: &Layer) -> Kind {
    let type_name = &*layer.type_name;
    if lists(INPUTS, type_name) {
        return Kind::Input;
    }
    if lists(TRAINING, type_name) || (is_loss(layer) && layer.tops.is_empty()) {
        return Kind::Training;
    }
    rows::TABLE.iter().find(|row| lists(row.types, type_name)).map_or(Kind::Unknown, Kind::Known)
}

/// The outputs that a layer has in inference: of a loss the probabilities, which are its last output, or stand for its
/// only one.
pub(crate) fn written(layer: &Layer) -> &[usize] {
    let first = if is_loss(layer) { layer.tops.len().saturating_sub(1) } else { 0 };
    &layer.tops[first..]
}

/// Whether a layer is a loss of which inference has the probabilities.
pub(crate) fn is_loss(layer: &Layer) -> bool {
    lists(LOSSES, &layer.type_name)
}

/// All rows.
pub(crate) fn table() -> &'static [Row] {
    rows::TABLE
}

/// The settings of a layer that inference may need, by the paths that they have since V1.
pub(crate) fn settings(layer: &Layer) -> impl Iterator<Item = (String, String)> {
    let message = match kind(layer) {
        Kind::Known(row) => row.messages.split_whitespace().next().unwrap_or_default(),
        _ => "",
    };
    layer.attributes().filter(|(path, _)| !is_ignored(path)).map(move |(path, text)| {
        let v0 = path.strip_prefix("layer.").and_then(since_v1);
        let path = v0.map_or_else(|| path.to_owned(), |name| format!("{message}.{name}"));
        (path, text.to_owned())
    })
}

/// The name since V1 of a setting of V0's.
fn since_v1(name: &str) -> Option<&'static str> {
    let pairs = V0.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, word)));
    pairs.into_iter().find(|(old, _)| *old == name).map(|(_, name)| name)
}

/// The settings of a layer of data that change the values of an input before the net sees them. Before V2 they stood
/// in the layer's own message, or in the layer.
pub(crate) fn preparation(layer: &Layer) -> impl Iterator<Item = (String, String)> {
    const SETTINGS: [&str; 7] = ["scale", "mean_value", "mean_file", "meanfile", "crop_size", "cropsize", "mirror"];
    let settings = layer.attributes();
    let settings =
        settings.filter(|(path, _)| path.rsplit_once('.').is_some_and(|(_, field)| SETTINGS.contains(&field)));
    settings.map(|(path, text)| (path.to_owned(), text.to_owned()))
}

fn is_ignored(path: &str) -> bool {
    let path = path.strip_prefix("layer.").unwrap_or(path);
    let field = path.rsplit('.').next().unwrap_or(path);
    IGNORED.split_whitespace().any(|known| known == path || known.ends_with('.') && path.starts_with(known))
        || lists(IGNORED_FIELDS, field)
        || path.split('.').rev().skip(1).any(|message| message.ends_with("filler"))
}
