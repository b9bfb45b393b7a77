//! The table of Caffe's operators, forks' among them: types, parameters with defaults, numbers of inputs and outputs.
//!
//! Defaults are those of `caffe.proto` in BVLC/caffe 9b891540, of SSD's, SegNet's, DeepLab's and PSPNet's forks.

use super::{join, neuron, norm, pool, recurrent, reduce, resize, shape, ssd, window};
use crate::row::{MANY, Row};

const WINDOW: &str = "num_output bias_term=true pad kernel_size group=1 stride pad_h pad_w kernel_h kernel_w \
     stride_h stride_w axis=1 dilation";

const POOL: &str = "pool=MAX pad kernel_size stride pad_h pad_w kernel_h kernel_w stride_h stride_w \
     global_pooling=false round_mode=CEIL ceil_mode=true";

const AFFINE: &str = "base=-1 scale=1 shift=0";

const PRIORS: &str = "min_size max_size aspect_ratio flip=true clip variance img_size img_h img_w step step_h \
     step_w offset=0.5";

const DETECTIONS: &str = "num_classes share_location=true background_label_id=0 nms_param.nms_threshold=0.3 \
     nms_param.top_k=-1 nms_param.eta=1 code_type=CORNER keep_top_k=-1 variance_encoded_in_target=false \
     confidence_threshold visualize=false visualize_threshold";

const UPSAMPLE: &str = "scale=2 scale_h scale_w pad_out_h=false pad_out_w=false upsample_h upsample_w";

const INTERP: &str = "height=0 width=0 zoom_factor=1 shrink_factor=1 pad_beg=0 pad_end=0";

/// The operators.
pub(super) static TABLE: &[Row] = &[
    Row::one("Convolution", "convolution_param", WINDOW, window::convolution),
    Row::one("ConvolutionDepthwise DepthwiseConvolution", "convolution_param", WINDOW, window::depthwise),
    Row::one("Deconvolution", "convolution_param", WINDOW, window::deconvolution),
    Row { tops: (1, 2), ..Row::one("Pooling", "pooling_param", POOL, pool::pooling) },
    Row::one(
        "InnerProduct",
        "inner_product_param",
        "num_output bias_term=true axis=1 transpose=false",
        window::inner_product,
    ),
    Row::one("BatchNorm", "batch_norm_param", "use_global_stats=true eps=1e-5", norm::batch_norm),
    Row::one("BN", "bn_param batch_norm_param", "bn_mode eps=1e-5 frozen=false momentum", norm::bn),
    Row { bottoms: (1, 2), ..Row::one("Scale", "scale_param", "axis=1 num_axes=1 bias_term=false", norm::scale) },
    Row { bottoms: (1, 2), ..Row::one("Bias", "bias_param", "axis=1 num_axes=1", norm::bias) },
    Row::one("PReLU", "prelu_param", "channel_shared=false", neuron::prelu),
    Row::one("ReLU", "relu_param", "negative_slope=0", neuron::relu),
    Row::one("ReLU6", "relu6_param relu_param", "", neuron::relu6),
    Row::one("ELU", "elu_param", "alpha=1", neuron::elu),
    Row::one("Sigmoid", "sigmoid_param", "", neuron::sigmoid),
    Row::one("TanH", "tanh_param", "", neuron::tanh),
    Row::one("AbsVal", "", "", neuron::abs),
    Row::one("BNLL", "", "", neuron::bnll),
    Row::one("Swish", "swish_param", "beta=1", neuron::swish),
    Row::one("Clip", "clip_param", "min max", neuron::clip),
    Row::one("Exp", "exp_param", AFFINE, neuron::exp),
    Row::one("Log", "log_param", AFFINE, neuron::log),
    Row::one("Power", "power_param", "power=1 scale=1 shift=0", neuron::power),
    Row::one("Threshold", "threshold_param", "threshold=0", neuron::threshold),
    Row::one("Dropout", "dropout_param", "dropout_ratio=0.5 scale_train=true", neuron::dropout),
    Row::one("Softmax", "softmax_param", "axis=1", neuron::softmax),
    Row {
        bottoms: (1, 3),
        tops: (1, 2),
        read: 1,
        ..Row::one("SoftmaxWithLoss", "softmax_param", "axis=1", neuron::softmax)
    },
    Row { bottoms: (1, 2), read: 1, ..Row::one("SigmoidCrossEntropyLoss", "sigmoid_param", "", neuron::sigmoid) },
    Row::one("LogSoftmax", "softmax_param", "axis=1", neuron::log_softmax),
    Row::one("LRN", "lrn_param", "local_size=5 alpha=1 beta=0.75 norm_region=ACROSS_CHANNELS k=1", norm::lrn),
    Row::one("MVN", "mvn_param", "normalize_variance=true across_channels=false eps=1e-9", norm::mvn),
    Row::one("Normalize", "norm_param", "across_spatial=true channel_shared=true eps=1e-10", norm::normalize),
    Row { bottoms: (1, MANY), ..Row::one("Concat", "concat_param", "axis=1 concat_dim=1", join::concat) },
    Row { tops: (1, MANY), ..Row::one("Slice", "slice_param", "axis=1 slice_dim=1 slice_point", join::slice) },
    Row { tops: (1, MANY), mask: Some(0), ..Row::one("Split", "", "", join::split) },
    Row { bottoms: (1, MANY), ..Row::one("Eltwise", "eltwise_param", "operation=SUM coeff", join::eltwise) },
    Row { bottoms: (3, 3), ..Row::one("Axpy", "", "", join::axpy) },
    Row::one("Reshape", "reshape_param", "shape.dim axis=0 num_axes=-1", shape::reshape),
    Row::one("Flatten", "flatten_param", "axis=1 end_axis=-1", shape::flatten),
    Row::one("Permute", "permute_param", "order", shape::permute),
    Row::one("Tile", "tile_param", "axis=1 tiles", shape::tile),
    Row { bottoms: (2, 2), ..Row::one("Crop", "crop_param", "axis=2 offset", shape::crop) },
    Row::one("ShuffleChannel", "shuffle_channel_param", "group=1", shape::shuffle_channel),
    Row::one("Reduction", "reduction_param", "operation=SUM axis=0 coeff=1", reduce::reduction),
    Row::one("ArgMax", "argmax_param", "out_max_val=false top_k=1 axis", reduce::arg_max),
    Row::one("Interp", "interp_param", INTERP, resize::interp),
    Row { bottoms: (1, 2), mask: Some(1), ..Row::one("Upsample", "upsample_param", UPSAMPLE, resize::upsample) },
    Row {
        bottoms: (2, 2),
        ..Row::one("LSTM", "recurrent_param", "num_output expose_hidden=false debug_info=false", recurrent::lstm)
    },
    Row { bottoms: (2, 2), ..Row::one("PriorBox", "prior_box_param", PRIORS, ssd::prior_box) },
    Row { bottoms: (3, 3), ..Row::one("DetectionOutput", "detection_output_param", DETECTIONS, ssd::detection_output) },
];
