//! Values that a net has of its own, learnt, constant or computed, beside the values that the user gives: no step takes
//! one kind for the other.

use std::sync::Arc;

use blob_convert::Options;
use blob_convert::transform::{FcFrom, Layout, Rgb, Topology};
use blob_io::Checkpoint;

use crate::channels_last::{DATA, following, params, refused, symbol, told};
use crate::support::floats::{run, values};

/// A node of a symbol: operator, name, attributes, and the numbers of the inputs.
type Node<'a> = (&'a str, &'a str, &'a str, &'a [usize]);

const CONV: &str = "kernel=(1, 1); num_filter=2; no_bias=True";

fn prototxt(text: &str) -> Arc<Topology> {
    Arc::new(Topology::prototxt("net.prototxt", text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// The tensors with other values after a conversion.
fn changed(source: &Checkpoint, options: &Options) -> Vec<String> {
    let made = run(source, options);
    source.names().filter(|name| values(&made, name) != values(source, name)).map(str::to_owned).collect()
}

#[test]
fn a_convolution_of_learnt_values_is_not_reversed() {
    // The convolution `e` reads a variable of the file, directly or through a plain operator.
    for between in ["identity", "sqrt", "BatchNorm"] {
        let nodes: &[Node<'_>] = &[
            DATA,
            ("null", "w", "", &[]),
            ("Convolution", "c", CONV, &[0, 1]),
            ("null", "latent", "", &[]),
            (between, "b", "", &[3]),
            ("null", "v", "", &[]),
            ("Convolution", "e", CONV, &[4, 5]),
            ("broadcast_add", "s", "", &[2, 6]),
        ];
        let weights: [(&str, &[usize]); 3] =
            [("arg:w", &[2, 3, 1, 1]), ("arg:v", &[2, 3, 1, 1]), ("arg:latent", &[1, 3, 2, 2])];
        let options = following(&symbol(nodes, &[7])).transform(Rgb);
        assert_eq!(changed(&params(&weights), &options), ["arg:w"], "{between}");
        // A variable that the file lacks is given by the user.
        let given = params(&weights[..2]);
        if between == "BatchNorm" {
            refused(&given, &options, "\"e\" reads the net's input through \"b\"");
        } else {
            assert_eq!(changed(&given, &options), ["arg:w", "arg:v"]);
        }
    }
}

#[test]
fn a_convolution_of_constants_is_not_reversed() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "w", "", &[]),
        ("Convolution", "c", CONV, &[0, 1]),
        ("_ones", "one", "shape=(1, 3, 2, 2)", &[]),
        ("null", "v", "", &[]),
        ("Convolution", "e", CONV, &[3, 4]),
    ];
    let source = params(&[("arg:w", &[2, 3, 1, 1]), ("arg:v", &[2, 3, 1, 1])]);
    assert_eq!(changed(&source, &following(&symbol(nodes, &[2, 5])).transform(Rgb)), ["arg:w"]);
    // Learnt values beside the image have the image's channels.
    let beside: &[Node<'_>] = &[
        DATA,
        ("null", "latent", "", &[]),
        ("broadcast_add", "s", "", &[0, 1]),
        ("null", "w", "", &[]),
        ("Convolution", "c", CONV, &[2, 3]),
    ];
    let source = params(&[("arg:w", &[2, 3, 1, 1]), ("arg:latent", &[1, 3, 2, 2])]);
    refused(&source, &following(&symbol(beside, &[4])).transform(Rgb), "\"s\"");
}

#[test]
fn layers_of_caffe_without_inputs_are_told_apart() {
    let net = |input: &str, other: &str| {
        prototxt(&format!(
            r#"layer {{ name: "data" type: "{input}" top: "data" }}
               layer {{ name: "latent" type: "{other}" top: "latent" }}
               layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param {{ num_output: 2 }} }}
               layer {{ name: "e" type: "Convolution" bottom: "latent" top: "e" convolution_param {{ num_output: 2 }} }}"#
        ))
    };
    let source = params(&[("c/0", &[2, 3, 1, 1]), ("e/0", &[2, 3, 1, 1]), ("latent/0", &[1, 3, 2, 2])]);
    for other in ["Parameter", "DummyData"] {
        for input in ["Input", "Data", "MemoryData"] {
            assert_eq!(changed(&source, &following(&net(input, other)).transform(Rgb)), ["c/0"], "{input} {other}");
        }
    }
    // Beside learnt values alone, or other variables, a variable stands for the image.
    assert_eq!(changed(&source, &following(&net("DummyData", "Parameter")).transform(Rgb)), ["c/0"]);
    assert_eq!(changed(&source, &following(&net("DummyData", "DummyData")).transform(Rgb)), ["c/0", "e/0"]);
    refused(&source, &following(&net("Parameter", "Parameter")).transform(Rgb), "no convolution reads the net's input");
    assert_eq!(changed(&source, &following(&net("Input", "ImageData")).transform(Rgb)), ["c/0", "e/0"]);
    // Labels, anchors and layers without outputs are no images.
    for other in [
        r#"layer { name: "o" type: "Python" }"#,
        r#"layer { name: "o" type: "HDF5Data" top: "o" } layer { name: "l" type: "SoftmaxWithLoss" bottom: "c" bottom: "o" }"#,
        r#"layer { name: "o" type: "Input" top: "o" } layer { name: "l" type: "EuclideanLoss" bottom: "c" bottom: "o" }"#,
        r#"layer { name: "o" type: "Python" top: "o" } layer { name: "s" type: "Silence" bottom: "o" }"#,
    ] {
        let net = prototxt(&format!(
            r#"layer {{ name: "data" type: "DummyData" top: "data" }}
               layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param {{ num_output: 2 }} }} {other}"#
        ));
        let source = params(&[("c/0", &[2, 3, 1, 1])]);
        assert_eq!(changed(&source, &following(&net).transform(Rgb)), ["c/0"], "{other}");
    }
    // An image that reaches a convolution through other layers is one.
    let net = prototxt(
        r#"layer { name: "data" type: "Input" top: "data" }
           layer { name: "s" type: "Split" bottom: "data" top: "s" }
           layer { name: "latent" type: "DummyData" top: "latent" }
           layer { name: "c" type: "Convolution" bottom: "s" top: "c" convolution_param { num_output: 2 } }
           layer { name: "e" type: "Convolution" bottom: "latent" top: "e" convolution_param { num_output: 2 } }"#,
    );
    assert_eq!(changed(&source, &following(&net).transform(Rgb)), ["c/0"]);
}

const DENSE: &str = "num_hidden=5; no_bias=True";

/// A convolution `c` of 4 × 2 × 3 values, a flattening, the inner product `f` of one of both, and nodes from 6 on.
fn flattened(of: usize, more: &[Node<'_>], heads: &[usize]) -> (Arc<Topology>, Checkpoint) {
    let product = [of, 4];
    let mut nodes: Vec<Node<'_>> = vec![
        DATA,
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(1, 1); num_filter=4; no_bias=True", &[0, 1]),
        ("Flatten", "fl", "", &[2]),
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", DENSE, &product),
    ];
    nodes.extend_from_slice(more);
    let weights: [(&str, &[usize]); 4] =
        [("arg:c_weight", &[4, 3, 1, 1]), ("arg:f_weight", &[5, 24]), ("arg:g", &[5, 24]), ("arg:h", &[24, 5])];
    (symbol(&nodes, heads), params(&weights))
}

#[test]
fn readers_of_positions_whose_weights_are_computed_are_told() {
    let fc_from = FcFrom::new(4, 2, 3).expect("extents");
    let computed: &[Node<'_>] =
        &[("null", "g", "", &[]), ("_mul_scalar", "g2", "scalar=2", &[6]), ("FullyConnected", "k", DENSE, &[2, 7])];
    let (net, source) = flattened(2, computed, &[5, 8]);
    let said = told(&source, &following(&net).transform(fc_from.clone()));
    assert!(said.contains("\"k\" takes channels \u{d7} height \u{d7} width by computed weights, which stay"), "{said}");
    // Behind the same flattening, all are permuted or none.
    let computed: &[Node<'_>] =
        &[("null", "g", "", &[]), ("_mul_scalar", "g2", "scalar=2", &[6]), ("FullyConnected", "k", DENSE, &[3, 7])];
    let (net, source) = flattened(3, computed, &[5, 8]);
    let why = "\"k\" reads the same flattened value as \"f\" by computed weights, which stay";
    refused(&source, &following(&net).transform(fc_from.clone()), why);
    for (op, of) in [("dot", 3), ("batch_dot", 3), ("dot", 2)] {
        let inputs = [of, 7];
        let product: &[Node<'_>] = &[("null", "h", "", &[]), ("identity", "i", "", &[6]), (op, "k", "", &inputs)];
        let (net, source) = flattened(2, product, &[5, 8]);
        let said = told(&source, &following(&net).transform(fc_from.clone()));
        let why = if of == 3 {
            "1 tensor stays as stored, though channels and positions are flattened before: \"arg:h\""
        } else {
            "nothing says in which order channels and positions reach these, which stay as stored: \"arg:h\""
        };
        assert!(said.contains(why), "{said}");
    }
    // A product of the inner product's outputs, or with no positions before, has one order.
    let product: &[Node<'_>] = &[("null", "h", "", &[]), ("dot", "k", "", &[5, 6])];
    let (net, source) = flattened(2, product, &[7]);
    let said = told(&source, &following(&net).transform(fc_from));
    assert!(!said.contains("stays as stored"), "{said}");
}

#[test]
fn learnt_values_beside_images_stay_and_are_told() {
    let why = "layout: values of the net's own stay as stored, channels \u{d7} height \u{d7} width: \"arg:p\"";
    for (op, of, dims, is_told) in [
        ("broadcast_mul", &[2, 3][..], &[1, 4, 1, 1][..], true),
        ("broadcast_add", &[2, 3], &[4, 1, 1], true),
        ("elemwise_add", &[3, 2], &[1, 4, 2, 3], true),
        ("broadcast_mul", &[2, 3], &[1], false),
        ("broadcast_mul", &[2, 3], &[1, 1, 1, 1], false),
    ] {
        let (net, source) = {
            let nodes: &[Node<'_>] = &[
                DATA,
                ("null", "w", "", &[]),
                ("Convolution", "c", "kernel=(1, 1); num_filter=4; no_bias=True", &[0, 1]),
                ("null", "p", "", &[]),
                (op, "m", "", of),
            ];
            (symbol(nodes, &[4]), params(&[("arg:w", &[4, 3, 1, 1]), ("arg:p", dims)]))
        };
        for (layout, is_told) in [(Layout::Hwio, is_told), (Layout::Ohwi, is_told), (Layout::Oihw, false)] {
            let said = told(&source, &following(&net).transform(layout));
            assert_eq!(said.contains(why), is_told, "{op} {dims:?}: {said}");
        }
    }
    let net = prototxt(
        r#"layer { name: "data" type: "Input" top: "data" }
           layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 3 } }
           layer { name: "p" type: "Parameter" top: "p" }
           layer { name: "e" type: "Eltwise" bottom: "c" bottom: "p" top: "e" }"#,
    );
    let source = params(&[("c/0", &[3, 3, 1, 1]), ("p/0", &[1, 3, 5, 5])]);
    let said = told(&source, &following(&net).transform(Layout::Hwio));
    assert!(said.contains(&why.replace("arg:p", "p/0")), "{said}");
}

/// TensorFlow flattens height × width × channels.
#[test]
fn an_inner_product_behind_channels_first_is_told_without_fc_from() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(2, 2); num_filter=4; no_bias=True", &[0, 1]),
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", "num_hidden=5; no_bias=True", &[2, 3]),
        ("null", "g_weight", "", &[]),
        ("FullyConnected", "g", "num_hidden=5; no_bias=True", &[4, 5]),
    ];
    let weights: [(&str, &[usize]); 3] =
        [("arg:c_weight", &[4, 3, 2, 2]), ("arg:f_weight", &[5, 24]), ("arg:g_weight", &[5, 5])];
    let (net, source) = (symbol(nodes, &[6]), params(&weights));
    let why = "layout: columns stay channels \u{d7} height \u{d7} width, and TensorFlow flattens channels last: \
               --fc-from C,H,W: \"arg:f_weight\"";
    let fc_from = FcFrom::new(4, 2, 3).expect("extents");
    for layout in [Layout::Hwio, Layout::Ohwi] {
        let said = told(&source, &following(&net).transform(layout));
        assert!(said.contains(why), "{said}");
        let said = told(&source, &following(&net).transform(fc_from.clone()).transform(layout));
        assert!(!said.contains("columns stay"), "{said}");
    }
    assert!(!told(&source, &following(&net).transform(Layout::Oihw)).contains("columns stay"));
    let pooled = params(&[weights[0], ("arg:f_weight", &[5, 4]), weights[2]]);
    assert!(!told(&pooled, &following(&net).transform(Layout::Hwio)).contains("columns stay"));
}
