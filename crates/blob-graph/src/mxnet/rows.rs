//! The table of MXNet's operators: types, old spellings among them, attributes with defaults, numbers of inputs and
//! outputs.
//!
//! Defaults are those of the parameters' declarations in apache/mxnet 1.9.1.

use super::{norm, order, pool, reduce, resize, roi, shape, slice, ssd, value, window};
use crate::operand::Operand;
use crate::row::{Integers, MANY, Row};
use crate::site::Site;
use crate::unsupported::Refusal;

/// A row of an operator with one input and one output.
const fn one(
    types: &'static str,
    parameters: &'static str,
    lower: fn(&mut Site<'_>) -> Result<Vec<Operand>, Refusal>,
) -> Row {
    Row::one(types, "", parameters, lower)
}

const WINDOW: &str = "kernel stride dilate pad num_filter num_group=1 no_bias=False layout=None";

/// As of a convolution, but without a bias where nothing is stated.
const TRANSPOSED: &str = "kernel stride dilate pad adj target_shape num_filter num_group=1 no_bias=True layout=None";

const POOL: &str = "kernel pool_type=max global_pool=False pooling_convention=valid stride pad p_value=None \
     count_include_pad=None layout=None";

const BATCH_NORM: &str = "eps=0.001 momentum=0.9 fix_gamma=True use_global_stats=False output_mean_var=False axis=1 \
     min_calib_range=None max_calib_range=None key ndev=1";

const SOFTMAX: &str = "axis=-1 temperature=None dtype=None use_length=False";

/// The gradient of an output layer is for training.
const OUTPUT: &str = "multi_output=False preserve_shape=False grad_scale ignore_label use_ignore normalization \
     out_grad smooth_alpha";

const REDUCED: &str = "axis=None keepdims=False exclude=False";

const DETECTIONS: &str = "clip=True threshold=0.01 background_id=0 nms_threshold=0.5 force_suppress=False \
     variances=0.1,0.1,0.2,0.2 nms_topk=-1";

const BOXES: &str = "overlap_thresh=0.5 valid_thresh=0 topk=-1 coord_start=2 score_index=1 id_index=-1 \
     background_id=-1 force_suppress=False in_format=corner out_format=corner";

const ROI_ALIGN: &str = "pooled_size spatial_scale sample_ratio=-1 position_sensitive=False aligned=False";

const SCALARS: &str = "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _rdiv_scalar _power_scalar \
     _rpower_scalar _maximum_scalar _minimum_scalar _equal_scalar _greater_scalar _greater_equal_scalar \
     _lesser_scalar _lesser_equal_scalar _PlusScalar _MinusScalar _RMinusScalar _MulScalar _DivScalar _RDivScalar \
     _PowerScalar _RPowerScalar _MaximumScalar _MinimumScalar";

const BINARY: &str = "elemwise_add elemwise_sub elemwise_mul elemwise_div broadcast_add broadcast_plus \
     broadcast_sub broadcast_minus broadcast_mul broadcast_div broadcast_power broadcast_maximum broadcast_minimum \
     broadcast_mod broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser broadcast_lesser_equal _add _plus \
     _Plus _sub _minus _Minus _mul _Mul _div _Div _power _Power _maximum _Maximum _minimum _Minimum";

const NAMED: &str = "relu sigmoid tanh softsign exp log sqrt rsqrt square abs negative _np_negative reciprocal \
     floor ceil erf log2";

const PASSED: &str = "identity _copy BlockGrad stop_gradient";

/// The operators.
pub(super) static TABLE: &[Row] = &[
    one("Convolution Convolution_v1", WINDOW, window::convolution),
    one("Deconvolution", TRANSPOSED, window::deconvolution),
    one("FullyConnected", "num_hidden no_bias=False flatten=True", window::fully_connected),
    Row {
        bottoms: (2, 2),
        ..one("batch_dot", "transpose_a=False transpose_b=False forward_stype=None", window::batch_dot)
    },
    one("Pooling Pooling_v1", POOL, pool::pooling),
    one("_contrib_AdaptiveAvgPooling2D", "output_size", pool::adaptive),
    one("BatchNorm BatchNorm_v1 CuDNNBatchNorm _contrib_SyncBatchNorm SyncBatchNorm", BATCH_NORM, norm::batch_norm),
    one("InstanceNorm", "eps=0.001", norm::instance_norm),
    one("LayerNorm", "axis=-1 eps=1e-5 output_mean_var=False", norm::layer_norm),
    one("L2Normalization", "eps=1e-10 mode=instance", norm::l2),
    one("LRN", "alpha=0.0001 beta=0.75 knorm=2 nsize", norm::lrn),
    one("Activation", "act_type", value::activation),
    one("LeakyReLU", "act_type=leaky slope=0.25 lower_bound=0.125 upper_bound=0.334", value::leaky_relu),
    one(NAMED, "", value::named),
    one("clip", "a_min a_max", value::clip),
    one(PASSED, "", value::pass).with(Integers::Kept),
    one("Dropout", "p=0.5 mode=training axes", value::dropout),
    one("Cast cast amp_cast", "dtype", value::cast).with(Integers::Own),
    Row { bottoms: (2, 2), ..one(BINARY, "", value::binary) }.with(Integers::Kept),
    one(SCALARS, "scalar is_int", value::scalar),
    Row { bottoms: (1, MANY), ..one("add_n ElementWiseSum element_wise_sum", "", value::add_n) },
    Row { bottoms: (3, 3), ..one("where", "", value::choose) },
    one("ones_like zeros_like", "dtype", value::filled_like).with(Integers::Kept),
    one("softmax log_softmax", SOFTMAX, value::softmax),
    one("SoftmaxActivation", "mode=instance", value::softmax_output),
    Row { bottoms: (1, 2), read: 1, ..one("SoftmaxOutput Softmax", OUTPUT, value::softmax_output) },
    Row { bottoms: (1, 2), read: 1, ..one("LinearRegressionOutput MAERegressionOutput", "grad_scale", value::pass) },
    Row { bottoms: (1, 2), read: 1, ..one("LogisticRegressionOutput", "grad_scale", value::logistic) },
    Row { bottoms: (1, MANY), ..one("Concat concat", "dim=1", shape::concatenated) }.with(Integers::Kept),
    Row { bottoms: (1, MANY), ..one("stack", "axis=0", shape::stack) }.with(Integers::Kept),
    one("Reshape reshape", "shape reverse=False target_shape keep_highest=False", shape::reshape).with(Integers::Kept),
    one("Flatten flatten", "", shape::flatten).with(Integers::Kept),
    one("transpose", "axes", shape::transpose).with(Integers::Kept),
    one("SwapAxis swapaxes", "dim1=0 dim2=0", shape::swap_axis).with(Integers::Kept),
    one("expand_dims", "axis", shape::expand_dims).with(Integers::Kept),
    one("squeeze", "axis=None", shape::squeeze).with(Integers::Kept),
    one("tile", "reps", shape::tile).with(Integers::Kept),
    one("repeat", "repeats axis=None", shape::repeat).with(Integers::Kept),
    Row {
        bottoms: (2, 2),
        ..one("reshape_like", "lhs_begin=None lhs_end=None rhs_begin=None rhs_end=None", shape::reshape_like)
    },
    one("broadcast_axis broadcast_axes", "axis size", shape::broadcast),
    one("broadcast_to", "shape", shape::broadcast),
    Row { bottoms: (2, 2), ..one("broadcast_like", "", shape::broadcast) },
    one("slice_axis", "axis begin end", slice::slice_axis).with(Integers::Kept),
    one("slice crop", "begin end step", slice::slice).with(Integers::Kept),
    Row { bottoms: (2, 2), ..one("slice_like", "axes", slice::slice_like) }.with(Integers::Kept),
    Row { tops: (1, MANY), ..one("SliceChannel split", "num_outputs axis=1 squeeze_axis=False", slice::slice_channel) }
        .with(Integers::Kept),
    Row { bottoms: (1, 2), ..one("Crop", "offset=(0,0) h_w=(0,0) center_crop=False", slice::crop) },
    one("Pad pad", "mode pad_width constant_value=0", slice::pad),
    one("sum mean max min prod sum_axis max_axis min_axis", REDUCED, reduce::reduce),
    one("norm", "ord=2 axis=None keepdims=False out_dtype=None", reduce::reduce),
    one("argmax", "axis=None keepdims=False", reduce::arg_max),
    Row { tops: (1, 2), ..one("topk", "axis=-1 k=1 ret_typ=indices is_ascend=False dtype=float32", order::top_k) },
    one("argsort", "axis=-1 is_ascend=True dtype=float32", order::arg_sort),
    Row { bottoms: (2, 2), ..one("gather_nd", "", order::gather_nd) }.with(Integers::Own),
    one("reverse flip", "axis", order::reverse).with(Integers::Kept),
    one("shape_array", "", order::shape_array).with(Integers::Own),
    Row {
        bottoms: (0, 0),
        ..one("_arange", "start stop=None step=1 repeat=1 infer_range=False dtype=float32", order::arange)
    },
    Row { bottoms: (2, 2), ..one("_contrib_ROIAlign", ROI_ALIGN, roi::roi_align) },
    Row {
        bottoms: (1, 2),
        ..one(
            "_contrib_BilinearResize2D",
            "height=1 width=1 scale_height=None scale_width=None mode=size align_corners=True",
            resize::bilinear_resize,
        )
    },
    Row {
        bottoms: (1, MANY),
        ..one("UpSampling", "scale num_filter sample_type multi_input_mode=concat", resize::up_sampling)
    },
    one(
        "_contrib_MultiBoxPrior MultiBoxPrior",
        "sizes=1 ratios=1 clip=False steps=-1,-1 offsets=0.5,0.5",
        ssd::multi_box_prior,
    ),
    Row {
        bottoms: (3, 3),
        ..one("_contrib_MultiBoxDetection MultiBoxDetection", DETECTIONS, ssd::multi_box_detection)
    },
    Row {
        bottoms: (2, 2),
        ..one("_contrib_box_decode", "std0=1 std1=1 std2=1 std3=1 clip=-1 format=center", ssd::box_decode)
    },
    one("_contrib_box_nms _contrib_box_non_maximum_suppression", BOXES, ssd::box_nms),
];
