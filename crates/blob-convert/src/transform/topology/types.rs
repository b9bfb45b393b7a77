//! Types of layers by what they do to the channels and positions of an image, of Caffe and its forks, then of MXNet.

/// Layers that mix neither channels nor positions, of Caffe and its forks, then of MXNet.
pub(super) const PLAIN: &[&str] = &[
    "Split", "ReLU", "Dropout", "Power", "LRN", "Sigmoid", "TanH", "ELU", "AbsVal", "Exp", "Log", "BNLL", "ReLU6",
    "Swish", "Clip", "Silence", "Activation", "relu", "sigmoid", "tanh", "hard_sigmoid", "LeakyReLU", "identity",
    "_copy", "Cast", "cast", "amp_cast", "BlockGrad", "stop_gradient", "clip", "_plus_scalar", "_minus_scalar",
    "_rminus_scalar", "_mul_scalar", "_div_scalar", "_rdiv_scalar", "_power_scalar", "_maximum_scalar",
    "_minimum_scalar", "sqrt", "rsqrt", "reciprocal", "softsign", "erf", "square", "abs", "negative", "exp", "log",
];
/// Layers that mix no channels and give positions other extents.
pub(super) const RESIZING: &[&str] = &[
    "Pooling", "Interp", "Upsample", "Pooling_v1", "Pad", "pad", "UpSampling", "_contrib_BilinearResize2D",
    "_contrib_AdaptiveAvgPooling2D",
];
/// Layers that join values of the same shape element by element.
pub(super) const JOINING: &[&str] = &[
    "Eltwise", "elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "_Plus", "_plus", "_add", "_sub",
    "_minus", "_mul", "_div", "_maximum", "_minimum", "add_n", "ElementWiseSum", "broadcast_add", "broadcast_sub",
    "broadcast_mul", "broadcast_div", "broadcast_maximum", "broadcast_minimum",
];
/// Layers that put values one behind the other along an axis.
pub(super) const CONCATENATING: &[&str] = &["Concat", "concat"];
/// Layers that make one axis of channels and positions.
pub(super) const FLATTENING: &[&str] = &["Flatten", "flatten"];
/// Layers that give an axis of outputs other extents.
pub(super) const RESHAPING: &[&str] = &["Reshape", "reshape"];
/// Layers that add or remove axes of one.
pub(super) const SQUEEZING: &[&str] = &["expand_dims", "squeeze"];
/// Further layers that make no positions out of a single one.
pub(super) const KEEPING_ONE: &[&str] =
    &["transpose", "SwapAxis", "Permute", "Softmax", "softmax", "Concat", "concat", "Slice"];
/// Layers that take values from their first input only; the others give extents or positions.
pub(super) const FIRST: &[&str] = &["ROIPooling", "Crop", "_contrib_ROIAlign", "slice_like"];
/// Recurrent layers: their outputs have no positions, and their further inputs are states.
pub(super) const RECURRENT: &[&str] = &["RNN"];
/// Layers that take no values, only extents.
pub(super) const NONE: &[&str] =
    &["PriorBox", "_contrib_MultiBoxPrior", "MultiBoxPrior", "shape_array", "zeros_like", "ones_like"];

/// Plain layers whose outputs depend on which channels are neighbours: a reversal keeps neighbours, another order does
/// not.
pub(super) const NEIGHBOURLY: &[&str] = &["LRN"];
