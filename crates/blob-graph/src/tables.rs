//! The frameworks' tables: the row of a layer, and the settings that inference may need.

use std::collections::HashSet;

use blob_io::net::{Framework, Layer, Net};

use crate::row::{Kind, Row};
use crate::{caffe, mxnet};

/// The part that each layer of a net has; none for a layer that leads to no output.
pub(crate) fn kinds(net: &Net) -> Vec<Option<Kind>> {
    let of: fn(&Layer) -> Kind = match net.framework() {
        Framework::Mxnet => |layer| mxnet::kind(&layer.type_name),
        _ => caffe::kind,
    };
    let mut kinds: Vec<Option<Kind>> = net.layers().iter().map(|layer| Some(of(layer))).collect();
    if net.framework() == Framework::Mxnet {
        // Its symbols cast weights, which a file has as they are stored.
        let mut wanted: HashSet<usize> = net.outputs().collect();
        for (layer, kind) in net.layers().iter().zip(&mut kinds).rev() {
            if layer.tops.iter().any(|top| wanted.contains(top)) {
                wanted.extend(kind.iter().flat_map(|kind| read(layer, *kind)));
            } else {
                *kind = None;
            }
        }
    }
    kinds
}

/// The inputs of a layer that matter in inference.
pub(crate) fn read(layer: &Layer, kind: Kind) -> &[usize] {
    let most = if let Kind::Known(row) = kind { row.read } else { usize::MAX };
    &layer.bottoms[..layer.bottoms.len().min(most)]
}

/// The outputs of a layer that inference has.
pub(crate) fn written(framework: Framework, layer: &Layer) -> &[usize] {
    match framework {
        Framework::Mxnet => &layer.tops,
        _ => caffe::written(layer),
    }
}

/// Whether a layer is a loss of Caffe's of which inference has the probabilities.
pub(crate) fn is_loss(layer: &Layer) -> bool {
    caffe::is_loss(layer)
}

/// The settings of a layer that inference may need.
pub(crate) fn settings(framework: Framework, layer: &Layer) -> Vec<(String, String)> {
    match framework {
        Framework::Mxnet => mxnet::settings(layer).collect(),
        _ => caffe::settings(layer).collect(),
    }
}

/// An operator of a framework that has a form in ONNX.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operator {
    /// The types of layers, the framework's first.
    pub types: Vec<&'static str>,
    /// The messages of Caffe's that hold the parameters; any of them may.
    pub messages: Vec<&'static str>,
    /// The parameters, each with the default; an empty text where there is none.
    pub parameters: Vec<(&'static str, &'static str)>,
    /// The fewest and the most inputs.
    pub inputs: (usize, usize),
    /// The fewest and the most outputs.
    pub outputs: (usize, usize),
}

impl Operator {
    fn of(row: &'static Row) -> Self {
        let parameters = row.parameters.split_whitespace();
        Self {
            types: row.types.split_whitespace().collect(),
            messages: row.messages.split_whitespace().collect(),
            parameters: parameters.map(|word| word.split_once('=').unwrap_or((word, ""))).collect(),
            inputs: row.bottoms,
            outputs: row.tops,
        }
    }
}

/// The operators of a framework that have a form in ONNX: a layer of any other type is refused.
pub fn operators(framework: Framework) -> impl Iterator<Item = Operator> {
    let table = if framework == Framework::Mxnet { mxnet::table() } else { caffe::table() };
    table.iter().map(Operator::of)
}
