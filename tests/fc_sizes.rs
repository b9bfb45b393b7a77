//! `--fc-from` takes height and width from the net where the net tells both, through convolutions and poolings, and
//! says so where the net is silent.

use std::sync::Arc;

use blob_convert::transform::{FcFrom, Topology};
use blob_convert::{Options, Place, plan};
use blob_io::{Checkpoint, Format};

use crate::support::floats::{SAFETENSORS, file};

type Sides = [usize; 2];

/// A row of `cases/sizes.txt`.
struct Row<'a> {
    layer: &'a str,
    input: Sides,
    kernel: Sides,
    stride: Sides,
    pad: Sides,
    dilation: Sides,
    output: Sides,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    let lines = include_str!("cases/sizes.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let mut words = line.split(' ');
        let layer = words.next().expect("a layer");
        let [input, kernel, stride, pad, dilation, output] = [(); 6].map(|()| {
            let (height, width) = words.next().expect("sides").split_once('x').expect("two");
            [height, width].map(|side| side.parse().expect("a number"))
        });
        Row { layer, input, kernel, stride, pad, dilation, output }
    })
}

/// A net of this layer, and of a fully connected one behind it.
fn net(row: &Row<'_>) -> Topology {
    let Row { layer, input: [height, width], kernel, stride, pad, dilation, .. } = row;
    if let Some(layer) = layer.strip_prefix("caffe-") {
        let [kind, param] = match layer {
            "conv" => ["Convolution", "convolution_param"],
            "deconv" => ["Deconvolution", "convolution_param"],
            _ => ["Pooling", "pooling_param"],
        };
        let more = if layer == "floor" { "round_mode: FLOOR" } else { "" };
        let each = |name: &str, of: &Sides| format!("{name}_h: {} {name}_w: {}", of[0], of[1]);
        let window = [each("kernel", kernel), each("stride", stride), each("pad", pad)].join(" ");
        let outputs = if kind == "Pooling" { "" } else { "num_output: 2" };
        let text = format!(
            r#"input: "data" input_dim: 1 input_dim: 2 input_dim: {height} input_dim: {width}
            layer {{ name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param {{ num_output: 2 kernel_size: 1 }} }}
            layer {{ name: "l" type: "{kind}" bottom: "a" top: "l" {param} {{ {outputs} {window} {more} }} }}
            layer {{ name: "r" type: "ReLU" bottom: "l" top: "l" }}
            layer {{ name: "f" type: "InnerProduct" bottom: "l" top: "f" inner_product_param {{ num_output: 1 }} }}"#
        );
        return Topology::prototxt("net.prototxt", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    }
    let (op, more) = match layer.split_once('-') {
        Some(("pool", convention)) => ("Pooling", format!(r#""pooling_convention": "{convention}""#)),
        _ if *layer == "conv" => ("Convolution", r#""num_filter": "2""#.to_owned()),
        _ => ("Deconvolution", r#""num_filter": "2""#.to_owned()),
    };
    let each = |name: &str, of: &Sides| format!(r#""{name}": "({}, {})""#, of[0], of[1]);
    let window =
        [each("kernel", kernel), each("stride", stride), each("pad", pad), each("dilate", dilation)].join(", ");
    let text = format!(
        r#"{{"nodes": [{{"op": "null", "name": "data", "attrs": {{"__shape__": "(0, 2, {height}, {width})"}}, "inputs": []}},
        {{"op": "null", "name": "a_weight", "inputs": []}},
        {{"op": "Convolution", "name": "a", "attrs": {{"kernel": "(1, 1)", "num_filter": "2"}}, "inputs": [[0, 0, 0], [1, 0, 0]]}},
        {{"op": "{op}", "name": "l", "attrs": {{{window}, {more}}}, "inputs": [[2, 0, 0]]}},
        {{"op": "Flatten", "name": "flat", "inputs": [[3, 0, 0]]}},
        {{"op": "null", "name": "f_weight", "inputs": []}},
        {{"op": "FullyConnected", "name": "f", "attrs": {{"num_hidden": "1", "no_bias": "True"}}, "inputs": [[4, 0, 0], [5, 0, 0]]}}],
        "heads": [[6, 0, 0]]}}"#
    );
    Topology::symbol("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

/// The notes of a conversion, or the reason of a refusal.
fn said(source: &Checkpoint, net: &Arc<Topology>, [channels, height, width]: [usize; 3]) -> Result<String, String> {
    let permute = FcFrom::new(channels, height, width).expect("extents");
    let options = Options::new(SAFETENSORS).follow(Arc::clone(net)).transform(permute);
    plan(source, &options, &Place::Stdout).map(|plan| plan.notes().join("\n")).map_err(|e| e.to_string())
}

#[test]
fn height_and_width_are_those_of_the_net() {
    let mut count = 0;
    for row in rows() {
        let [height, width] = row.output;
        let (format, name) =
            if row.layer.starts_with("caffe") { (Format::Npz, "f/0") } else { (Format::MxnetList, "arg:f_weight") };
        let columns = 2 * height * width;
        let source = file(format, &[(name, &[1, columns], &vec![0.5; columns])]);
        let net = Arc::new(net(&row));
        let what = format!("{} {:?} → {:?}", row.layer, row.input, row.output);
        let right = said(&source, &net, [2, height, width]).unwrap_or_else(|why| panic!("{what}: {why}"));
        let turned = said(&source, &net, [2, width, height]);
        // MXNet's deconvolution has more settings, of which nothing is concluded.
        if row.layer == "deconv" {
            assert!(right.contains("height and width before 1 of them are taken as given"), "{what}: {right}");
            assert!(turned.is_ok());
            continue;
        }
        assert!(!right.contains("taken as given"), "{what}: {right}");
        let refused = turned.expect_err(&what);
        assert!(
            refused.contains(&format!("reads 2,{height},{width} (C,H,W) of the net, not 2,{width},{height}")),
            "{refused}"
        );
        count += 1;
    }
    assert!(count > 40, "{count} rows");
}

/// Values of 2 × 3 × 4 twice, one behind the other along the axis. Of Caffe's nets `cases/steps.txt` tells.
#[test]
fn channels_are_added_up_where_they_are_concatenated_and_nowhere_else() {
    // Of channels last, axis 1 is the height.
    for (dim, layout, is_permuted) in [
        ("", "", true),
        (r#", "dim": "1""#, "", true),
        (r#", "dim": "2""#, "", false),
        (r#", "dim": "1""#, r#", "layout": "NHWC""#, false),
    ] {
        let conv = format!(r#""attrs": {{"kernel": "(1, 1)", "num_filter": "2"{layout}}}"#);
        let text = format!(
            r#"{{"nodes": [{{"op": "null", "name": "data", "attrs": {{"__shape__": "(0, 3, 3, 4)"}}, "inputs": []}},
            {{"op": "null", "name": "a_weight", "inputs": []}}, {{"op": "null", "name": "b_weight", "inputs": []}},
            {{"op": "Convolution", "name": "a", {conv}, "inputs": [[0, 0, 0], [1, 0, 0]]}},
            {{"op": "Convolution", "name": "b", {conv}, "inputs": [[0, 0, 0], [2, 0, 0]]}},
            {{"op": "Concat", "name": "k", "attrs": {{"num_args": "2"{dim}}}, "inputs": [[3, 0, 0], [4, 0, 0]]}},
            {{"op": "null", "name": "f_weight", "inputs": []}},
            {{"op": "FullyConnected", "name": "f", "attrs": {{"num_hidden": "1", "no_bias": "True"}}, "inputs": [[5, 0, 0], [6, 0, 0]]}}],
            "heads": [[7, 0, 0]]}}"#
        );
        let net = Topology::symbol("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let source = file(Format::Npz, &[("arg:f_weight", &[1, 48], &[0.5; 48])]);
        let net = Arc::new(net);
        let right = said(&source, &net, [4, 3, 4]);
        if is_permuted {
            assert!(right.as_ref().is_ok_and(|notes| !notes.contains("taken as given")), "{right:?}");
            let refused = said(&source, &net, [2, 6, 4]);
            assert!(refused.is_err_and(|why| why.contains("reads 4 channels of the net, not 2")));
        } else {
            assert!(right.as_ref().is_err_and(|why| why.contains("\"k\", a Concat")), "{right:?}");
        }
    }
}
