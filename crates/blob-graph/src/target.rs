//! The form of a model that the caller asks for.

/// The form of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The version of ONNX's operators: 13 to 17, which the same nodes fit.
    pub opset: i64,
    /// The form of SSD's layers.
    pub ssd: Ssd,
    /// Whether the batch of the inputs is left to the model's user.
    pub dynamic_batch: bool,
}

/// The form of SSD's `PriorBox` and `DetectionOutput`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ssd {
    /// ONNX's operators: the boxes are decoded, `NonMaxSuppression` chooses.
    #[default]
    Standard,
    /// The nodes `PriorBox` and `DetectionOutput`, which OpenCV alone runs.
    OpenCv,
    /// The inputs of `DetectionOutput` are the model's outputs: locations, confidences, priors.
    Raw,
}

impl Default for Target {
    fn default() -> Self {
        Self { opset: 17, ssd: Ssd::default(), dynamic_batch: false }
    }
}
