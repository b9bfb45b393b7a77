//! Every row of the table as a small net: the nodes and the shape that come of it.
//!
//! Expected shapes are Caffe's formulas, worked out by hand.

use super::{layer, model, one, ops, shape};
use crate::caffe;

/// A row's type, the input, the settings, the nodes, the output's shape.
type Case = (&'static str, &'static [u64], &'static str, &'static [&'static str], &'static [u64]);

const CASES: &[Case] = &[
    (
        "Convolution",
        &[1, 4, 9, 11],
        "convolution_param { num_output: 6 kernel_size: 3 stride: 2 pad: 1 group: 2 }",
        &["Conv"],
        &[1, 6, 5, 6],
    ),
    (
        "Convolution",
        &[1, 4, 9, 11],
        "convolution_param { num_output: 6 kernel_h: 3 kernel_w: 1 pad_w: 2 dilation: 2 }",
        &["Conv"],
        &[1, 6, 5, 15],
    ),
    (
        "Convolution",
        &[1, 2, 4, 5, 6],
        "convolution_param { num_output: 3 kernel_size: 3 pad: 1 }",
        &["Conv"],
        &[1, 3, 4, 5, 6],
    ),
    (
        "ConvolutionDepthwise",
        &[1, 4, 9, 9],
        "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }",
        &["Conv"],
        &[1, 4, 9, 9],
    ),
    (
        "Deconvolution",
        &[1, 4, 5, 5],
        "convolution_param { num_output: 2 kernel_size: 4 stride: 2 pad: 1 }",
        &["ConvTranspose"],
        &[1, 2, 10, 10],
    ),
    (
        "Deconvolution",
        &[1, 4, 5, 5],
        "convolution_param { num_output: 2 kernel_size: 3 dilation: 2 stride: 3 }",
        &["ConvTranspose"],
        &[1, 2, 17, 17],
    ),
    ("Pooling", &[1, 3, 8, 8], "pooling_param { kernel_size: 3 stride: 2 }", &["MaxPool"], &[1, 3, 4, 4]),
    ("Pooling", &[1, 3, 7, 7], "pooling_param { kernel_size: 2 stride: 2 pad: 1 }", &["MaxPool"], &[1, 3, 4, 4]),
    (
        "Pooling",
        &[1, 3, 8, 9],
        "pooling_param { pool: AVE kernel_size: 3 stride: 2 }",
        &["AveragePool", "Mul"],
        &[1, 3, 4, 4],
    ),
    (
        "Pooling",
        &[1, 3, 8, 8],
        "pooling_param { pool: 1 kernel_size: 3 stride: 2 round_mode: FLOOR }",
        &["AveragePool"],
        &[1, 3, 3, 3],
    ),
    (
        "Pooling",
        &[1, 3, 8, 9],
        "pooling_param { pool: AVE global_pooling: true }",
        &["GlobalAveragePool"],
        &[1, 3, 1, 1],
    ),
    ("Pooling", &[1, 3, 8, 9], "pooling_param { global_pooling: true }", &["GlobalMaxPool"], &[1, 3, 1, 1]),
    ("InnerProduct", &[2, 3, 4, 5], "inner_product_param { num_output: 7 }", &["Flatten", "Gemm"], &[2, 7]),
    (
        "InnerProduct",
        &[2, 3, 4, 5],
        "inner_product_param { num_output: 7 axis: 2 }",
        &["Flatten", "Gemm", "Reshape"],
        &[2, 3, 7],
    ),
    (
        "InnerProduct",
        &[2, 3],
        "inner_product_param { num_output: 7 transpose: true bias_term: false }",
        &["Gemm"],
        &[2, 7],
    ),
    (
        "BatchNorm",
        &[1, 3, 4, 4],
        "batch_norm_param { use_global_stats: true moving_average_fraction: 0.9 }",
        &["BatchNormalization"],
        &[1, 3, 4, 4],
    ),
    (
        "BN",
        &[1, 3, 4, 4],
        "bn_param { bn_mode: INFERENCE scale_filler { type: \"constant\" } }",
        &["Mul", "Add"],
        &[1, 3, 4, 4],
    ),
    ("BN", &[1, 3, 4, 4], "bn_param { frozen: true }", &["BatchNormalization"], &[1, 3, 4, 4]),
    ("Scale", &[1, 3, 4, 4], "scale_param { bias_term: true }", &["Mul", "Add"], &[1, 3, 4, 4]),
    ("Scale", &[1, 3, 4, 4], "scale_param { axis: 2 num_axes: -1 }", &["Mul"], &[1, 3, 4, 4]),
    ("Bias", &[1, 3, 4, 4], "", &["Add"], &[1, 3, 4, 4]),
    ("PReLU", &[1, 3, 4, 4], "", &["PRelu"], &[1, 3, 4, 4]),
    ("ReLU", &[1, 3], "", &["Relu"], &[1, 3]),
    ("ReLU", &[1, 3], "relu_param { negative_slope: 0.1 engine: CUDNN }", &["LeakyRelu"], &[1, 3]),
    ("ReLU6", &[1, 3], "", &["Clip"], &[1, 3]),
    ("Clip", &[1, 3], "clip_param { min: -1 max: 1 }", &["Clip"], &[1, 3]),
    ("ELU", &[1, 3], "", &["Elu"], &[1, 3]),
    ("Sigmoid", &[1, 3], "", &["Sigmoid"], &[1, 3]),
    ("TanH", &[1, 3], "", &["Tanh"], &[1, 3]),
    ("AbsVal", &[1, 3], "", &["Abs"], &[1, 3]),
    ("BNLL", &[1, 3], "", &["Softplus"], &[1, 3]),
    ("Swish", &[1, 3], "swish_param { beta: 2 }", &["Mul", "Sigmoid", "Mul"], &[1, 3]),
    ("Exp", &[1, 3], "", &["Exp"], &[1, 3]),
    ("Exp", &[1, 3], "exp_param { base: 2 scale: 3 shift: 1 }", &["Mul", "Exp", "Mul"], &[1, 3]),
    ("Log", &[1, 3], "log_param { base: 10 scale: 3 shift: 1 }", &["Mul", "Add", "Log", "Mul"], &[1, 3]),
    ("Power", &[1, 3], "power_param { power: 2 scale: 3 shift: 1 }", &["Mul", "Add", "Pow"], &[1, 3]),
    ("Threshold", &[1, 3], "", &["Greater", "Cast"], &[1, 3]),
    ("Softmax", &[1, 3, 2, 2], "", &["Softmax"], &[1, 3, 2, 2]),
    ("SoftmaxWithLoss", &[1, 3, 2, 2], "softmax_param { axis: 2 }", &["Softmax"], &[1, 3, 2, 2]),
    ("SigmoidCrossEntropyLoss", &[1, 3], "", &["Sigmoid"], &[1, 3]),
    ("LogSoftmax", &[1, 3], "softmax_param { axis: -1 }", &["LogSoftmax"], &[1, 3]),
    ("Dropout", &[1, 3], "dropout_param { dropout_ratio: 0.2 }", &["Identity"], &[1, 3]),
    ("LRN", &[1, 8, 4, 4], "lrn_param { local_size: 3 }", &["LRN"], &[1, 8, 4, 4]),
    (
        "LRN",
        &[1, 8, 4, 4],
        "lrn_param { norm_region: WITHIN_CHANNEL }",
        &["Mul", "AveragePool", "Mul", "Add", "Pow", "Div"],
        &[1, 8, 4, 4],
    ),
    ("MVN", &[1, 3, 4, 4], "", &["ReduceMean", "Sub", "Mul", "ReduceMean", "Sqrt", "Add", "Div"], &[1, 3, 4, 4]),
    (
        "MVN",
        &[1, 3, 4, 4],
        "mvn_param { normalize_variance: false across_channels: true }",
        &["ReduceMean", "Sub"],
        &[1, 3, 4, 4],
    ),
    (
        "Normalize",
        &[1, 3, 4, 4],
        "norm_param { across_spatial: false channel_shared: false }",
        &["ReduceSumSquare", "Add", "Sqrt", "Div", "Mul"],
        &[1, 3, 4, 4],
    ),
    ("Concat", &[1, 3], "bottom: \"a\" concat_param { axis: 0 }", &["Concat"], &[2, 3]),
    ("Concat", &[1, 3], "bottom: \"a\" bottom: \"a\" concat_param { concat_dim: 1 }", &["Concat"], &[1, 9]),
    ("Slice", &[1, 6], "top: \"z\" slice_param { slice_point: 2 }", &["Split"], &[1, 2]),
    ("Slice", &[1, 6], "top: \"z\" top: \"w\"", &["Split"], &[1, 2]),
    ("Split", &[1, 6], "top: \"z\"", &["Identity", "Identity"], &[1, 6]),
    ("Eltwise", &[1, 6], "bottom: \"a\"", &["Add"], &[1, 6]),
    (
        "Eltwise",
        &[1, 6],
        "bottom: \"a\" bottom: \"a\" eltwise_param { coeff: 1 coeff: -1 coeff: 2 }",
        &["Mul", "Mul", "Sum"],
        &[1, 6],
    ),
    ("Eltwise", &[1, 6], "bottom: \"a\" bottom: \"a\" eltwise_param { operation: PROD }", &["Mul", "Mul"], &[1, 6]),
    ("Eltwise", &[1, 6], "bottom: \"a\" eltwise_param { operation: MAX }", &["Max"], &[1, 6]),
    ("Reshape", &[2, 3, 4], "reshape_param { shape { dim: 0 dim: -1 } }", &["Reshape"], &[2, 12]),
    (
        "Reshape",
        &[2, 3, 4],
        "reshape_param { shape { dim: 1 dim: 3 } axis: 1 num_axes: 1 }",
        &["Reshape"],
        &[2, 1, 3, 4],
    ),
    ("Reshape", &[2, 3, 4], "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", &["Reshape"], &[2, 3, 4, 1]),
    ("Flatten", &[2, 3, 4], "", &["Flatten"], &[2, 12]),
    ("Flatten", &[2, 3, 4, 5], "flatten_param { axis: 1 end_axis: 2 }", &["Reshape"], &[2, 12, 5]),
    ("Permute", &[1, 3, 4, 5], "permute_param { order: 0 order: 2 order: 3 order: 1 }", &["Transpose"], &[1, 4, 5, 3]),
    ("Permute", &[1, 3, 4, 5], "permute_param { order: 3 }", &["Transpose"], &[5, 1, 3, 4]),
    ("Tile", &[1, 3], "tile_param { tiles: 4 }", &["Tile"], &[1, 12]),
    (
        "ShuffleChannel",
        &[1, 6, 2, 2],
        "shuffle_channel_param { group: 3 }",
        &["Reshape", "Transpose", "Reshape"],
        &[1, 6, 2, 2],
    ),
    ("Reduction", &[2, 3, 4], "reduction_param { axis: 1 }", &["ReduceSum"], &[2]),
    ("Reduction", &[2, 3, 4], "reduction_param { operation: MEAN axis: -1 coeff: 2 }", &["ReduceMean", "Mul"], &[2, 3]),
    ("Reduction", &[2, 3, 4], "reduction_param { operation: ASUM }", &["ReduceL1"], &[]),
    ("Reduction", &[2, 3], "reduction_param { operation: 3 axis: 1 }", &["ReduceSumSquare"], &[2]),
    ("ArgMax", &[2, 3, 4, 4], "argmax_param { axis: 1 }", &["ArgMax", "Cast"], &[2, 1, 4, 4]),
    (
        "ArgMax",
        &[2, 3, 4],
        "argmax_param { top_k: 5 out_max_val: true }",
        &["Reshape", "TopK", "Cast", "Concat"],
        &[2, 2, 5],
    ),
    ("ArgMax", &[2, 3, 4, 4], "", &["Reshape", "ArgMax", "Cast", "Reshape"], &[2, 1, 1, 1]),
    (
        "Interp",
        &[1, 3, 6, 7],
        "interp_param { pad_beg: -1 pad_end: -1 shrink_factor: 2 zoom_factor: 3 }",
        &["Slice", "Resize"],
        &[1, 3, 4, 7],
    ),
    ("Interp", &[1, 3, 5, 7], "interp_param { zoom_factor: 2 }", &["Resize"], &[1, 3, 9, 13]),
    ("Interp", &[1, 3, 5, 7], "interp_param { height: 11 width: 8 }", &["Resize"], &[1, 3, 11, 8]),
    ("Upsample", &[1, 3, 5, 7], "upsample_param { scale: 3 }", &["Resize"], &[1, 3, 15, 21]),
];

#[test]
fn each_row_has_its_nodes_and_its_shape() {
    for (type_name, input, settings, nodes, expected) in CASES {
        let case = format!("{type_name} {settings}");
        let net = one(input, &format!("type: \"{type_name}\" {settings}"));
        let (model, _) = model(&net).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!((ops(&model), shape(&model, 0)), (nodes.to_vec(), expected.to_vec()), "{case}");
        assert_eq!(model.outputs[0].name, "y", "{case}");
    }
}

/// Rows with other numbers of inputs have tests of their own.
#[test]
fn every_row_is_tried() {
    let own = ["DepthwiseConvolution", "Axpy", "Crop", "LSTM", "PriorBox", "DetectionOutput"];
    for row in caffe::table() {
        for name in row.types.split(' ') {
            assert!(own.contains(&name) || CASES.iter().any(|case| case.0 == name), "{name}");
        }
    }
}

/// A layer with several inputs.
struct Several {
    shapes: &'static [&'static [u64]],
    text: &'static str,
    nodes: &'static [&'static str],
    expected: &'static [u64],
}

#[test]
fn several_inputs() {
    let cases: &[Several] = &[
        Several {
            shapes: &[&[1, 3, 8, 8], &[1, 5, 4, 6]],
            text: "type: \"Crop\" crop_param { offset: 1 offset: 2 }",
            nodes: &["Slice"],
            expected: &[1, 3, 4, 6],
        },
        Several {
            shapes: &[&[1, 3, 8, 8], &[3]],
            text: "type: \"Scale\"",
            nodes: &["Reshape", "Mul"],
            expected: &[1, 3, 8, 8],
        },
        Several {
            shapes: &[&[1, 3, 8, 8], &[1, 3]],
            text: "type: \"Scale\" scale_param { axis: 0 bias_term: true }",
            nodes: &["Reshape", "Mul", "Add"],
            expected: &[1, 3, 8, 8],
        },
        Several {
            shapes: &[&[1, 3, 8, 8], &[8]],
            text: "type: \"Bias\" bias_param { axis: 3 }",
            nodes: &["Reshape", "Add"],
            expected: &[1, 3, 8, 8],
        },
        Several {
            shapes: &[&[2, 3], &[2, 3, 4, 4], &[2, 3, 4, 4]],
            text: "type: \"Axpy\"",
            nodes: &["Reshape", "Mul", "Add"],
            expected: &[2, 3, 4, 4],
        },
        Several {
            shapes: &[&[5, 2, 3], &[5, 2]],
            text: "type: \"LSTM\" recurrent_param { num_output: 4 }",
            nodes: &["LSTM", "Squeeze"],
            expected: &[5, 2, 4],
        },
    ];
    for Several { shapes, text, nodes, expected } in cases {
        let bottoms: String =
            ["a", "b", "c"][..shapes.len()].iter().map(|name| format!("bottom: \"{name}\" ")).collect();
        let (model, _) = model(&layer(shapes, &format!("{bottoms} top: \"y\" {text}"))).expect(text);
        assert_eq!((ops(&model), shape(&model, 0)), (nodes.to_vec(), expected.to_vec()), "{text}");
    }
}
