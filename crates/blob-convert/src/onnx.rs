//! The settings of a new ONNX model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a net becomes an ONNX model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Onnx {
    /// The version of ONNX's operators, 13 to 17. If `None`, 17.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opset: Option<u8>,
    /// The shapes of inputs by name, in place of the shapes that the net states.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// Whether the first extent of inputs and outputs is any number.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dynamic_batch: bool,
    /// As [`Options::external_data`](crate::Options::external_data).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub external_data: bool,
    /// The form of an SSD's boxes.
    #[serde(skip_serializing_if = "Ssd::is_standard")]
    pub ssd: Ssd,
}

/// The form of the layers that make boxes of an SSD's predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Ssd {
    /// ONNX's own operators.
    #[default]
    Standard,
    /// The nodes `PriorBox` and `DetectionOutput`, which OpenCV runs.
    Opencv,
    /// None: the outputs are the locations, the confidences and the prior boxes.
    Raw,
}

impl Ssd {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_standard(&self) -> bool {
        *self == Self::Standard
    }
}
