//! Small symbols of MXNet's: the nodes, the names, the weights, and the problems that come of them.
//!
//! The values that each row computes are compared with MXNet's in the workspace's `tests/onnx_graph`.

use blob_io::mxnet::Symbol;
use blob_io::net::Net;
use blob_io::onnx::Initializer;

use super::{ops, shape};
use crate::{Graph, Make, Reason, Shapes, Target, Unsupported, mxnet, to_onnx};

/// A node: the operator, the name, attributes as `key=value` with `;` between them, the inputs as `node.output`.
type Node<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The net of a symbol.
fn net(nodes: &[Node<'_>], heads: &str) -> Net {
    let pairs = |text: &str| {
        let numbers = text.split(' ').filter(|one| !one.is_empty());
        format!("[{}]", numbers.map(|one| format!("[{}, 0]", one.replace('.', ", "))).collect::<Vec<_>>().join(", "))
    };
    let nodes = nodes.iter().map(|(op, name, attributes, inputs)| {
        let attributes = attributes.split(';').filter_map(|one| one.split_once('='));
        let attributes: Vec<String> = attributes.map(|(key, value)| format!("{key:?}: {value:?}")).collect();
        let (attributes, inputs) = (attributes.join(", "), pairs(inputs));
        format!("{{\"op\": {op:?}, \"name\": {name:?}, \"attrs\": {{{attributes}}}, \"inputs\": {inputs}}}")
    });
    let nodes = nodes.collect::<Vec<_>>().join(", ");
    let text = format!("{{\"nodes\": [{nodes}], \"heads\": {}}}", pairs(heads));
    Symbol::from_bytes("net-symbol.json", text.as_bytes()).expect(&text).net
}

/// The shapes of `data` and of stored variables.
fn shapes(data: &[u64], stored: &[(&str, &[u64])]) -> Shapes {
    let named = [("data".to_owned(), data.to_vec())].into();
    let stored = stored.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect();
    Shapes { named, stored, only: None }
}

/// One operator on `data`.
fn one(data: &[u64], op: &str, attributes: &str) -> Result<Graph, Unsupported> {
    Graph::from_net(&net(&[("null", "data", "", ""), (op, "y", attributes, "0.0")], "1.0"), &shapes(data, &[]))
}

#[test]
fn a_symbol_is_a_model_with_mxnet_s_names() {
    let nodes: &[Node<'_>] = &[
        ("null", "data", "", ""),
        ("null", "conv_weight", "", ""),
        ("Convolution", "conv", "kernel=(3, 3);num_filter=4;no_bias=True;workspace=512;__lr_mult__=2", "0.0 1.0"),
        ("null", "bn_gamma", "", ""),
        ("null", "bn_beta", "", ""),
        ("null", "bn_moving_mean", "", ""),
        ("null", "bn_moving_var", "", ""),
        ("BatchNorm", "bn", "momentum=0.9", "2.0 3.0 4.0 5.0 6.0"),
        ("null", "scale", "", ""),
        ("broadcast_mul", "mul", "", "7.0 8.0"),
        ("SliceChannel", "parts", "num_outputs=4", "9.0"),
        ("null", "softmax_label", "", ""),
        ("SoftmaxOutput", "softmax", "grad_scale=2", "10.2 11.0"),
    ];
    let net = net(nodes, "12.0 9.0");
    let shapes = shapes(&[2, 3, 8, 8], &[("scale", &[1, 4, 1, 1]), ("conv_weight", &[4, 3, 3, 3])]);
    let graph = Graph::from_net(&net, &shapes).expect("a graph");
    let (model, needs) = to_onnx(&graph, &Target { dynamic_batch: true, ..Target::default() }).expect("a model");
    assert_eq!(ops(&model), ["Conv", "BatchNormalization", "Mul", "Split", "Flatten", "Softmax", "Reshape"]);
    let outputs: Vec<&str> = model.outputs.iter().map(|output| &*output.name).collect();
    assert_eq!((outputs, model.inputs.len()), (vec!["softmax_output", "mul_output"], 1));
    assert!(model.outputs.iter().all(|output| output.shape[0] == blob_io::onnx::Dim::Name("N".into())));
    let tensors: Vec<(&str, &Make)> = needs.iter().map(|need| (&*need.tensor, &need.make)).collect();
    let as_is = |name| (name, &Make::AsIs);
    let expected = [
        as_is("scale"),
        as_is("conv_weight"),
        ("bn_gamma", &Make::Ones),
        as_is("bn_beta"),
        as_is("bn_moving_mean"),
        as_is("bn_moving_var"),
    ];
    assert_eq!(tensors, expected);
}

/// A cast of a weight leads to no output, as its reader takes the weight as stored.
#[test]
fn layers_that_lead_nowhere_are_left_out() {
    let nodes: &[Node<'_>] = &[
        ("null", "data", "", ""),
        ("null", "fc_weight", "", ""),
        ("Cast", "cast", "dtype=float32", "1.0"),
        ("FullyConnected", "fc", "num_hidden=2;no_bias=True", "0.0 2.0"),
        ("Custom", "loss", "op_type=x", "3.0"),
    ];
    let graph = Graph::from_net(&net(nodes, "3.0"), &shapes(&[1, 3], &[("fc_weight", &[2, 3])])).expect("a graph");
    let (model, needs) = to_onnx(&graph, &Target::default()).expect("a model");
    assert_eq!((ops(&model), needs.len(), model.initializers.len()), (vec!["Gemm"], 1, 1));
    assert_eq!(graph.nodes().len(), 1);
}

#[test]
fn one_slope_is_for_all_channels() {
    let nodes: &[Node<'_>] =
        &[("null", "data", "", ""), ("null", "g", "", ""), ("LeakyReLU", "y", "act_type=prelu", "0.0 1.0")];
    for (stored, expected) in [(&[1_u64][..], [1, 1, 1]), (&[3], [3, 1, 1])] {
        let graph = Graph::from_net(&net(nodes, "2.0"), &shapes(&[1, 3, 4, 4], &[("g", stored)])).expect("a graph");
        let (model, _) = to_onnx(&graph, &Target::default()).expect("a model");
        let Initializer::Stored { shape, .. } = &model.initializers[0] else { panic!("a weight") };
        assert_eq!(shape.dims(), expected.map(|extent| extent as usize));
    }
}

/// A model has each output once; without the second of three, the third would be taken for the second.
#[test]
fn an_output_that_is_listed_twice_is_refused() {
    let nodes: &[Node<'_>] = &[("null", "data", "", ""), ("relu", "a", "", "0.0"), ("exp", "b", "", "0.0")];
    let graph = Graph::from_net(&net(nodes, "1.0 2.0 1.0"), &shapes(&[1, 3], &[])).expect("a graph");
    assert_eq!(graph.outputs().len(), 3);
    let error = to_onnx(&graph, &Target::default()).expect_err("two outputs of one name");
    assert!(error.to_string().contains("\"a_output\" twice"), "{error}");
}

/// A layer that does nothing to one image, or whose axis vanishes with one image, keeps the batch from being open.
#[test]
fn layers_that_know_one_image_keep_the_batch_fixed() {
    let target = Target { dynamic_batch: true, ..Target::default() };
    for (op, attributes) in [
        ("slice_axis", "axis=0;begin=0;end=1"),
        ("slice_axis", "axis=0;begin=-1;end=None"),
        ("slice", "begin=(0,);end=(1,)"),
        ("slice", "begin=(-1,None);end=(None,None)"),
        ("squeeze", ""),
    ] {
        for batch in [1, 2] {
            let graph = one(&[batch, 2, 4, 4], op, attributes).unwrap_or_else(|error| panic!("{op}: {error}"));
            let error = to_onnx(&graph, &target).expect_err(op);
            assert!(error.to_string().contains("batch cannot be left open"), "{op} of {batch}: {error}");
        }
    }
    assert!(to_onnx(&one(&[1, 2, 4, 4], "slice_axis", "axis=1;begin=0;end=1").expect("a graph"), &target).is_ok());
}

/// `SoftmaxOutput` divides by the sum along the second axis, and gives 1 where there is none.
#[test]
fn a_softmax_needs_two_axes() {
    for (op, fits) in [("SoftmaxOutput", false), ("SoftmaxActivation", false), ("softmax", true)] {
        assert_eq!(one(&[3], op, "").is_ok(), fits, "{op}");
    }
}

/// Shapes that MXNet's formulas give, and no case of the goldens has.
#[test]
fn shapes_follow_mxnet_s_formulas() {
    let of = |data: &[u64], op: &str, attributes: &str| {
        let graph = one(data, op, attributes).unwrap_or_else(|error| panic!("{op} {attributes}: {error}"));
        shape(&to_onnx(&graph, &Target::default()).expect("a model").0, 0)
    };
    assert_eq!(of(&[1, 3, 224, 224], "Pooling", "kernel=(3,3);stride=(2,2);pad=[1, 1]"), [1, 3, 112, 112]);
    assert_eq!(of(&[1, 3, 9], "Pooling", "kernel=(2L,);stride=(2L,);pooling_convention=full"), [1, 3, 5]);
    assert_eq!(of(&[2, 3, 4, 5], "Reshape", "shape=(-4, -1, 1, 0, -3)"), [2, 1, 3, 20]);
    assert_eq!(of(&[2, 3], "sum", "axis=()"), [1]);
    assert_eq!(of(&[1, 8, 6, 6], "UpSampling", "scale=3;sample_type=nearest;num_args=1"), [1, 8, 18, 18]);
    assert_eq!(of(&[1, 4, 3, 3], "slice_axis", "axis=1;begin=-3;end=None"), [1, 3, 3, 3]);
}

#[test]
fn all_problems_are_listed_at_once() {
    let nodes: &[Node<'_>] = &[
        ("null", "data", "", ""),
        ("Custom", "c", "op_type=mine", "0.0"),
        ("Activation", "a", "act_type=relu;bend=3", "0.0"),
        ("Activation", "m", "act_type=mish", "0.0"),
        ("null", "other", "", ""),
        ("elemwise_add", "e", "", "0.0 4.0"),
        ("Reshape", "r", "shape=(7, -1)", "0.0"),
    ];
    let error = Graph::from_net(&net(nodes, "1.0 2.0 3.0 5.0 6.0"), &shapes(&[1, 3], &[])).expect_err("problems");
    let found: Vec<_> = error.problems.iter().map(|problem| (&*problem.layer, problem.reason)).collect();
    let expected = [
        ("", Reason::Input),
        ("c", Reason::Type),
        ("a", Reason::Parameter),
        ("m", Reason::Parameter),
        ("r", Reason::Shape),
    ];
    assert_eq!(found, expected, "{error}");
    assert!(error.to_string().contains("op_type = \"mine\"") && error.to_string().contains("\"other\""), "{error}");
}

#[test]
fn absurd_symbols_are_refused() {
    let long = format!("shape=({})", "1, ".repeat(600));
    for (op, attributes) in [
        ("Convolution", "kernel=(3,3);num_filter=0"),
        ("Convolution", "kernel=(3,3);num_filter=4;num_group=2"),
        ("Convolution", "kernel=(0,3);num_filter=3"),
        ("Convolution", "kernel=(3,3,3);num_filter=3"),
        ("Convolution", "kernel=(99,1);num_filter=3"),
        ("Convolution", "kernel=(3,3);num_filter=4294967295"),
        ("Convolution", "kernel=(3,3);num_filter=3;stride=(0,1)"),
        ("Convolution", "kernel=(3,3);num_filter=3;layout=NHWC"),
        ("Convolution", "kernel=(2,2);num_filter=3;dilate=(4294967295,1)"),
        ("Deconvolution", "kernel=(2,2);num_filter=3;stride=(4294967295,1)"),
        ("Deconvolution", "kernel=(2,2);num_filter=3;pad=(4294967295,1)"),
        ("Deconvolution", "kernel=(2,2);num_filter=3;adj=(1,1)"),
        ("Deconvolution", "kernel=(2,2);num_filter=3;target_shape=(99,99)"),
        ("Pooling", "kernel=(2,2);pad=(2,2)"),
        ("Pooling", "kernel=(2,2);pooling_convention=same"),
        ("Pooling", "kernel=(2,2);pool_type=lp;p_value=2"),
        ("Pooling", "kernel=(1,1);stride=(9,9);pooling_convention=full"),
        ("_contrib_AdaptiveAvgPooling2D", "output_size=(0,1)"),
        ("_contrib_AdaptiveAvgPooling2D", "output_size=4294967295"),
        ("Reshape", "shape=()"),
        ("Reshape", "shape=(-1,-1)"),
        ("Reshape", "shape=(0,0,0,0,0)"),
        ("Reshape", "shape=(-4,2)"),
        ("Reshape", "shape=(-4,0,0,-2)"),
        ("Reshape", "shape=(-3,-3,-3)"),
        ("Reshape", "shape=(9223372036854775807,9223372036854775807)"),
        ("Reshape", &long),
        ("transpose", "axes=(0,1,1,2)"),
        ("transpose", "axes=(0,1)"),
        ("SwapAxis", "dim1=0;dim2=9"),
        ("expand_dims", "axis=6"),
        ("squeeze", "axis=1"),
        ("tile", "reps=(9223372036854775807,1)"),
        ("broadcast_to", "shape=(1,3,9,8)"),
        ("slice_axis", "axis=1;begin=3;end=None"),
        ("slice", "begin=(0,0,0,0,0);end=(1,1,1,1,1)"),
        ("slice", "begin=(0,);end=(1,);step=(-1,)"),
        ("SliceChannel", "num_outputs=2"),
        ("SliceChannel", "num_outputs=9223372036854775807"),
        ("Crop", "h_w=(9,9)"),
        ("Pad", "mode=reflect;pad_width=(0,0,0,0,8,0,0,0)"),
        ("Pad", "mode=edge;pad_width=(0,0,0,0,-1,0,0,0)"),
        ("Pad", "mode=constant;pad_width=(0,0,0,0,1,0,0,0);constant_value=nan"),
        ("UpSampling", "scale=9223372036854775807;sample_type=nearest"),
        ("UpSampling", "scale=2;sample_type=bilinear"),
        ("_contrib_BilinearResize2D", "height=0;width=1"),
        ("_contrib_BilinearResize2D", "scale_height=1e30;scale_width=1"),
        ("softmax", "axis=4"),
        ("clip", "a_min=2;a_max=-1"),
        ("clip", "a_min=2;a_max=-inf"),
        ("clip", "a_min=nan;a_max=1"),
        ("Cast", "dtype=uint8"),
        ("Dropout", "mode=always"),
        ("LRN", "nsize=4"),
        ("topk", "k=9"),
        ("topk", "axis=None"),
        ("topk", "ret_typ=mask"),
        ("topk", "dtype=uint8"),
        ("argsort", "axis=4"),
        ("reverse", "axis=(0,4)"),
        ("repeat", "repeats=0"),
        ("repeat", "repeats=9223372036854775807;axis=1"),
        ("sum", "axis=(4,)"),
        ("Embedding", "input_dim=3;output_dim=2"),
        ("L2Normalization", "mode=places"),
    ] {
        assert!(one(&[1, 3, 8, 8], op, attributes).is_err(), "{op} {attributes}");
    }
}

/// `_arange` has no input: the numbers that it counts are bounded.
#[test]
fn numbers_that_no_count_has_are_refused() {
    let counted = |attributes: &str| {
        let nodes: &[Node<'_>] =
            &[("null", "data", "", ""), ("_arange", "numbers", attributes, ""), ("broadcast_add", "y", "", "0.0 1.0")];
        Graph::from_net(&net(nodes, "2.0"), &shapes(&[1], &[]))
    };
    assert!(counted("start=0;stop=7;step=2").is_ok());
    for attributes in [
        "start=0;stop=7;step=0",
        "start=7;stop=0",
        "start=0;stop=1e38",
        "start=0;stop=9;repeat=4294967295",
        "start=0;stop=9;infer_range=True",
        "start=0;stop=9;dtype=float16",
    ] {
        assert!(counted(attributes).is_err(), "{attributes}");
    }
}

/// Integers go on as far as MXNet has them, and no further than into operators that compute with them.
#[test]
fn integers_are_read_by_few_operators() {
    let of_whole = |op: &str, attributes: &str, inputs: &str| {
        let nodes: &[Node<'_>] = &[
            ("null", "data", "", ""),
            ("Cast", "whole", "dtype=int64", "0.0"),
            ("Reshape", "other", "shape=(-1,)", "1.0"),
            ("Cast", "float", "dtype=float32", "2.0"),
            (op, "y", attributes, inputs),
        ];
        Graph::from_net(&net(nodes, "4.0"), &shapes(&[6], &[]))
    };
    for (op, attributes, inputs) in
        [("broadcast_div", "", "1.0 2.0"), ("broadcast_add", "", "0.0 3.0"), ("sqrt", "", "3.0")]
    {
        assert!(of_whole(op, attributes, inputs).is_ok(), "{op}");
    }
    for (op, attributes, inputs) in [
        ("sqrt", "", "2.0"),
        ("broadcast_add", "", "0.0 2.0"),
        ("broadcast_power", "", "1.0 2.0"),
        ("_plus_scalar", "scalar=1", "1.0"),
        ("mean", "", "1.0"),
    ] {
        assert!(of_whole(op, attributes, inputs).is_err(), "{op} of integers");
    }
}

/// ONNX's operator takes none beyond 0 to 1. Above 1 none is suppressed, as at 1; below 0 all boxes but the best are.
#[test]
fn an_overlap_of_boxes_is_at_least_0() {
    for (overlap, is_one) in [("1", true), ("0.5", true), ("1.5", true), ("0", true), ("-0.1", false), ("nan", false)] {
        let attributes = format!("overlap_thresh={overlap}");
        let nodes: &[Node<'_>] = &[("null", "data", "", ""), ("_contrib_box_nms", "y", &attributes, "0.0")];
        assert_eq!(Graph::from_net(&net(nodes, "1.0"), &shapes(&[1, 4, 6], &[])).is_ok(), is_one, "{overlap}");
    }
}

/// ONNX's Slice takes an axis once, and MXNet's attribute may have it several times.
#[test]
fn an_axis_is_cut_once() {
    let nodes: &[Node<'_>] =
        &[("null", "data", "", ""), ("null", "like", "", ""), ("slice_like", "y", "axes=(1, -1, 1)", "0.0 1.0")];
    let graph = Graph::from_net(&net(nodes, "2.0"), &shapes(&[1, 4], &[("like", &[1, 2])])).expect("a graph");
    let (model, _) = to_onnx(&graph, &Target::default()).expect("a model");
    let constants = model.initializers.iter().filter_map(|own| match own {
        Initializer::Constant { shape, .. } => Some(shape.dims()),
        Initializer::Stored { .. } => None,
    });
    assert_eq!((ops(&model), constants.collect::<Vec<_>>()), (vec!["Slice"], vec![&[1][..]; 3]));
}

/// Rows whose values the goldens compare are named there by their first type.
#[test]
fn a_type_is_in_one_row_alone() {
    let mut seen = std::collections::HashSet::new();
    for row in mxnet::table() {
        assert!(row.types.split(' ').all(|name| seen.insert(name)), "{:?}", row.types);
        assert!(row.messages.is_empty());
    }
}
