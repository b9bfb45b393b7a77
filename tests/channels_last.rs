//! Values with the channels last, in MXNet's NHWC or behind a conversion for TensorFlow: the converted weights compute
//! the results of the original ones, or the conversion is refused, or tells the difference. The layers here are naive,
//! in f64, and share no code with the transforms.

use std::sync::Arc;

use blob_convert::transform::{Bound, FcFrom, FixGamma, Layout, Names, Rgb, Topology};
use blob_convert::{Options, Place, plan};
use blob_io::{Checkpoint, Format};

use crate::support::floats::{SAFETENSORS, file, run, values};
use crate::support::random::Random;

/// A node of a symbol: operator, name, attributes, and the numbers of the inputs.
type Node<'a> = (&'a str, &'a str, &'a str, &'a [usize]);

const HEIGHT: usize = 2;
const WIDTH: usize = 3;
const CHANNELS: usize = 4;
const OUTPUTS: usize = 5;
const INPUTS: usize = 3;
/// The values of one output of the convolution.
const FLAT: usize = HEIGHT * WIDTH * CHANNELS;

pub(crate) fn symbol(nodes: &[Node<'_>], heads: &[usize]) -> Arc<Topology> {
    let text = symbol_text(nodes, heads);
    Arc::new(Topology::symbol("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// A symbol of these nodes, with these outputs.
pub(crate) fn symbol_text(nodes: &[Node<'_>], heads: &[usize]) -> String {
    let list = |all: &[usize]| all.iter().map(|node: &usize| format!("[{node}, 0, 0]")).collect::<Vec<_>>().join(", ");
    let nodes = nodes.iter().map(|(op, name, attributes, inputs)| {
        let pairs = attributes.split_terminator("; ").map(|pair| pair.split_once('=').expect("a value"));
        let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key:?}: {value:?}")).collect();
        let inputs = list(inputs);
        format!(r#"{{"op": {op:?}, "name": {name:?}, "attrs": {{{}}}, "inputs": [{inputs}]}}"#, pairs.join(", "))
    });
    format!(r#"{{"nodes": [{}], "heads": [{}]}}"#, nodes.collect::<Vec<_>>().join(", "), list(heads))
}

/// A file of MXNet's with random values.
pub(crate) fn params(tensors: &[(&str, &[usize])]) -> Checkpoint {
    let mut random = Random::new(3);
    let all = tensors.iter().map(|(name, dims)| {
        let values = (0..dims.iter().product()).map(|_| random.below(129) as f32 / 32.0 - 2.0);
        (*name, *dims, values.collect())
    });
    let all: Vec<(&str, &[usize], Vec<f32>)> = all.collect();
    let all: Vec<(&str, &[usize], &[f32])> = all.iter().map(|(name, dims, values)| (*name, *dims, &**values)).collect();
    file(if tensors[0].0.contains(':') { Format::MxnetList } else { Format::Npz }, &all)
}

pub(crate) fn following(net: &Arc<Topology>) -> Options {
    Options::new(SAFETENSORS).follow(Arc::clone(net))
}

/// Why a conversion is refused.
#[track_caller]
pub(crate) fn refused(source: &Checkpoint, options: &Options, why: &str) {
    match plan(source, options, &Place::Stdout) {
        Ok(_) => panic!("not refused: {why}"),
        Err(refused) => assert!(refused.to_string().contains(why), "{refused}"),
    }
}

/// The words of a conversion, one line for each kind of change.
pub(crate) fn told(source: &Checkpoint, options: &Options) -> String {
    let plan = plan(source, options, &Place::Stdout).unwrap_or_else(|e| panic!("{e}"));
    plan.changes().iter().map(|group| format!("{group}\n")).collect()
}

/// The value of a tensor at a place, by the tensor's own shape.
fn at<'f>(file: &'f Checkpoint, name: &'f str) -> impl Fn(&[usize]) -> f64 + 'f {
    let dims = file.entry(name).unwrap_or_else(|| panic!("no {name}")).shape().dims().to_vec();
    let all = values(file, name);
    move |place: &[usize]| {
        assert!(
            place.len() == dims.len() && place.iter().zip(&dims).all(|(at, dim)| at < dim),
            "{place:?} of {dims:?}"
        );
        f64::from(all[place.iter().zip(&dims).fold(0, |all, (at, dim)| all * dim + at)])
    }
}

#[track_caller]
fn near(ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len());
    let most = theirs.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= 1e-6 * most), "{ours:?} for {theirs:?}");
}

/// A 2×2 convolution, by the weight of (output, input, row, column): channels × height × width behind, of an image of
/// one row and one column more.
fn convolved(weight: impl Fn(usize, usize, usize, usize) -> f64) -> Vec<f64> {
    let mut random = Random::new(9);
    let image: Vec<f64> =
        (0..INPUTS * (HEIGHT + 1) * (WIDTH + 1)).map(|_| random.below(65) as f64 / 16.0 - 2.0).collect();
    let mut made = Vec::new();
    for o in 0..CHANNELS {
        for (row, column) in (0..HEIGHT * WIDTH).map(|at| (at / WIDTH, at % WIDTH)) {
            let taps = (0..INPUTS * 4).map(|tap| (tap / 4, tap / 2 % 2, tap % 2));
            let products = taps
                .map(|(i, y, z)| weight(o, i, y, z) * image[(i * (HEIGHT + 1) + row + y) * (WIDTH + 1) + column + z]);
            made.push(products.sum());
        }
    }
    made
}

/// Channels × height × width as height × width × channels.
fn turned(values: &[f64]) -> Vec<f64> {
    (0..FLAT).map(|at| values[at % CHANNELS * HEIGHT * WIDTH + at / CHANNELS]).collect()
}

fn dense(values: &[f64], weight: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..OUTPUTS).map(|o| values.iter().enumerate().map(|(at, value)| value * weight(o, at)).sum()).collect()
}

pub(crate) const DATA: Node<'_> = ("null", "data", "", &[]);
const NHWC: &str = "kernel=(2, 2); num_filter=4; no_bias=True; layout=NHWC";

/// An NHWC convolution, a flattening and an inner product; `between` stands before the flattening.
fn flattening(between: &str) -> (Arc<Topology>, Checkpoint) {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", NHWC, &[0, 1]),
        (between, "b", "axes=(0, 3, 1, 2)", &[2]),
        ("Flatten", "fl", "", &[3]),
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", "num_hidden=5; no_bias=True", &[4, 5]),
    ];
    let source = params(&[("arg:c_weight", &[CHANNELS, 2, 2, INPUTS]), ("arg:f_weight", &[OUTPUTS, FLAT])]);
    (symbol(nodes, &[6]), source)
}

#[test]
fn an_inner_product_behind_channels_last_keeps_its_order_or_tells() {
    let (net, source) = flattening("relu");
    // MXNet flattens height × width × channels.
    let truth = {
        let (c, f) = (at(&source, "arg:c_weight"), at(&source, "arg:f_weight"));
        dense(&turned(&convolved(|o, i, y, x| c(&[o, y, x, i]))), |o, i| f(&[o, i]))
    };
    let keras = run(&source, &following(&net).transform(Layout::Hwio));
    let (c, f) = (at(&keras, "arg:c_weight"), at(&keras, "arg:f_weight"));
    near(&dense(&turned(&convolved(|o, i, y, x| c(&[y, x, i, o]))), |o, i| f(&[i, o])), &truth);
    let fc_from = FcFrom::new(CHANNELS, HEIGHT, WIDTH).expect("extents");
    let why = "\"arg:f_weight\" reads values with the channels last, flattened in TensorFlow's order already";
    for fc_from in [fc_from.clone(), fc_from.layer("f")] {
        refused(&source, &following(&net).transform(fc_from.clone()), why);
        refused(&source, &following(&net).transform(fc_from).transform(Layout::Hwio), why);
    }
    // With the values of torch put back before the flattening, as is told.
    let options = following(&net).transform(Layout::Oihw);
    let torch = run(&source, &options);
    let (c, f) = (at(&torch, "arg:c_weight"), at(&torch, "arg:f_weight"));
    near(&dense(&turned(&convolved(|o, i, y, x| c(&[o, i, y, x]))), |o, i| f(&[o, i])), &truth);
    let said = told(&source, &options);
    assert!(said.contains("columns stay height \u{d7} width \u{d7} channels") && said.contains("f_weight"), "{said}");
    assert!(said.contains("permute(0, 2, 3, 1)"), "{said}");
    assert!(!told(&source, &following(&net).transform(Layout::Hwio)).contains("columns stay"));
}

#[test]
fn where_one_order_is_left_nothing_is_told() {
    let (net, _) = flattening("relu");
    let options = following(&net).transform(Layout::Oihw);
    let pooled = params(&[("arg:c_weight", &[CHANNELS, 2, 2, INPUTS]), ("arg:f_weight", &[OUTPUTS, CHANNELS])]);
    let said = told(&pooled, &options);
    assert!(!said.contains("columns stay"), "{said}");
    // Behind an operator that may have turned the values.
    let (net, source) = flattening("transpose");
    let said = told(&source, &following(&net).transform(Layout::Oihw));
    assert!(said.contains("nothing says in which order \"arg:f_weight\" reads channels and positions"), "{said}");
}

#[test]
fn rows_that_become_channels_last_are_told() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", "num_hidden=24; no_bias=True", &[0, 1]),
        ("Reshape", "r", "shape=(0, 2, 3, 4)", &[2]),
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", NHWC, &[3, 4]),
    ];
    let source = params(&[("arg:f_weight", &[24, 6]), ("arg:c_weight", &[2, 2, 2, 4])]);
    let said = told(&source, &following(&symbol(nodes, &[5])).transform(Layout::Oihw));
    assert!(said.contains("rows stay height \u{d7} width \u{d7} channels") && said.contains("f_weight"), "{said}");
}

/// The table of an Embedding has as many columns as an inner product, and is none.
#[test]
fn an_embedding_and_an_inner_product_behind_it_have_no_positions() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "words", "", &[]),
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(2, 2); num_filter=4; no_bias=True", &[0, 2]),
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", "num_hidden=5; no_bias=True", &[3, 4]),
        ("null", "e_weight", "", &[]),
        ("Embedding", "e", "input_dim=7; output_dim=24", &[1, 6]),
        ("null", "g_weight", "", &[]),
        ("FullyConnected", "g", "num_hidden=5; no_bias=True", &[7, 8]),
    ];
    let weights: [(&str, &[usize]); 4] = [
        ("arg:c_weight", &[CHANNELS, INPUTS, 2, 2]),
        ("arg:f_weight", &[OUTPUTS, FLAT]),
        ("arg:e_weight", &[7, FLAT]),
        ("arg:g_weight", &[OUTPUTS, FLAT]),
    ];
    let (net, source) = (symbol(nodes, &[5, 9]), params(&weights));
    let fc_from = FcFrom::new(CHANNELS, HEIGHT, WIDTH).expect("extents");
    refused(&source, &following(&net).transform(fc_from.clone()), "\"arg:g_weight\" reads \"e\", a Embedding");
    let made = run(&source, &following(&net).transform(fc_from.layer("f")));
    let stays = |name: &str| values(&made, name) == values(&source, name);
    assert!(stays("arg:e_weight") && stays("arg:g_weight") && !stays("arg:f_weight"));
}

/// The index of the factor for a value of an image, a channel, a row and a column, where factors have some of these
/// axes: all four, the last three, or two, channels and rows or the positions.
fn factor_of([n, c, y, x]: [usize; 4], from_channels: bool, axes: usize, is_last: bool) -> Vec<usize> {
    match (axes, is_last) {
        (4, false) => vec![n, c, y, x],
        (4, true) => vec![n, y, x, c],
        (3, false) => vec![c, y, x],
        (3, true) => vec![y, x, c],
        (_, false) if from_channels => vec![c, y],
        (_, true) if from_channels => vec![y, c],
        _ => vec![y, x],
    }
}

/// A Scale and a Bias with a factor for each value of an image, by the axes.
#[test]
fn factors_of_whole_images_are_permuted_with_the_channels_last() {
    let image = [CHANNELS, HEIGHT, WIDTH];
    let one_image = [1, CHANNELS, HEIGHT, WIDTH];
    for (axes, dims) in [
        ("axis: 1 num_axes: 3", &image[..]),
        ("axis: -3 num_axes: -1", &image),
        ("axis: 0 num_axes: -1", &one_image),
        ("axis: 1 num_axes: 2", &image[..2]),
        ("axis: 2 num_axes: 2", &image[1..]),
    ] {
        let text = format!(
            r#"layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" }}
               layer {{ name: "s" type: "Scale" bottom: "c" top: "c" scale_param {{ {axes} }} }}
               layer {{ name: "b" type: "Bias" bottom: "c" top: "c" bias_param {{ {axes} }} }}
               layer {{ name: "f" type: "InnerProduct" bottom: "c" top: "f" }}"#
        );
        let net = Arc::new(Topology::prototxt("net.prototxt", text.as_bytes()).expect("reads"));
        let source =
            params(&[("c/0", &[CHANNELS, INPUTS, 2, 2]), ("s/0", dims), ("b/0", dims), ("f/0", &[OUTPUTS, FLAT])]);
        let scaled = |values: Vec<f64>, file: &Checkpoint, is_last: bool| -> Vec<f64> {
            let (s, b) = (at(file, "s/0"), at(file, "b/0"));
            let each = values.iter().enumerate().map(|(at, x)| {
                let place = [0, at / (HEIGHT * WIDTH), at / WIDTH % HEIGHT, at % WIDTH];
                let factor = factor_of(place, axes.contains("axis: 1"), dims.len(), is_last);
                x * s(&factor) + b(&factor)
            });
            each.collect()
        };
        let (c, f) = (at(&source, "c/0"), at(&source, "f/0"));
        let truth = dense(&scaled(convolved(|o, i, y, x| c(&[o, i, y, x])), &source, false), |o, i| f(&[o, i]));
        let fc_from = FcFrom::new(CHANNELS, HEIGHT, WIDTH).expect("extents");
        let keras = run(&source, &following(&net).transform(fc_from).transform(Layout::Hwio));
        let (c, f) = (at(&keras, "c/0"), at(&keras, "f/0"));
        let ours = turned(&scaled(convolved(|o, i, y, x| c(&[y, x, i, o])), &keras, true));
        near(&dense(&ours, |o, i| f(&[i, o])), &truth);
        // With the channels before the positions, unmoved.
        let same = run(&source, &following(&net).transform(Layout::Oihw));
        assert_eq!(values(&same, "s/0"), values(&source, "s/0"));
    }
}

/// The axes of values behind a Permute are not those of an image.
#[test]
fn factors_behind_other_axes_stay_and_are_told() {
    let text = r#"layer { name: "c" type: "Convolution" bottom: "data" top: "c" }
        layer { name: "p" type: "Permute" bottom: "c" top: "p" }
        layer { name: "s" type: "Scale" bottom: "p" top: "s" scale_param { num_axes: 3 } }"#;
    let net = Arc::new(Topology::prototxt("net.prototxt", text.as_bytes()).expect("reads"));
    let source = params(&[("c/0", &[CHANNELS, INPUTS, 2, 2]), ("s/0", &[HEIGHT, WIDTH, CHANNELS])]);
    let options = following(&net).transform(Layout::Hwio);
    assert_eq!(values(&run(&source, &options), "s/0"), values(&source, "s/0"));
    let said = told(&source, &options);
    assert!(said.contains("factors of several axes stay, as the net does not tell which these are: \"s/0\""), "{said}");
}

/// The attributes of a BatchNorm of MXNet's.
fn norm(fixed: &'static str) -> String {
    format!("fix_gamma={fixed}; eps=1e-5")
}

#[test]
fn a_gamma_that_another_operator_reads_is_not_set_to_one() {
    let fixed = norm("True");
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "g", "", &[]),
        ("null", "b_beta", "", &[]),
        ("null", "b_moving_mean", "", &[]),
        ("null", "b_moving_var", "", &[]),
        ("BatchNorm", "b", &fixed, &[0, 1, 2, 3, 4]),
        ("identity", "i", "", &[1]),
        ("broadcast_mul", "m", "", &[5, 1]),
        ("broadcast_mul", "n", "", &[5, 6]),
        ("LeakyReLU", "p", "act_type=prelu", &[5, 1]),
        ("BatchNorm", "h", &fixed, &[5, 6, 2, 3, 4]),
        ("BatchNorm", "k", &fixed, &[5, 1, 1, 3, 4]),
    ];
    let all = ["arg:g", "arg:b_beta", "aux:b_moving_mean", "aux:b_moving_var"];
    let source = params(&all.map(|name| (name, &[3][..])));
    let options = |net: &Arc<Topology>| {
        let bound = Bound::new(net.net(), &source);
        following(net).transform(FixGamma::of(Some(&bound), &source))
    };
    let both = "\"arg:g\" is 1 for \"b\", which has fix_gamma, and as stored for ";
    for (last, heads, why) in [
        (8, &[7][..], format!("{both}\"m\"")),
        (9, &[8], format!("{both}\"n\"")),
        (10, &[9], format!("{both}\"p\"")),
        (7, &[5, 1], format!("{both}the user of the net")),
        (7, &[5, 6], format!("{both}the user of the net")),
        (12, &[11], "as stored for \"k\"".to_owned()),
    ] {
        let mut some = nodes[..last].to_vec();
        // Nodes before the last that the case does not use stay without readers of g.
        for node in &mut some[7..] {
            if !heads.iter().any(|head| nodes[*head].1 == node.1) {
                *node = ("null", node.1, "", &[]);
            }
        }
        refused(&source, &options(&symbol(&some, heads)), &why);
    }
    // Two fixed BatchNorms agree, one behind an identity.
    let mut some = nodes[..11].to_vec();
    some[7..10].iter_mut().for_each(|node| *node = ("null", node.1, "", &[]));
    let made = run(&source, &options(&symbol(&some, &[10])));
    assert_eq!(values(&made, "arg:g"), [1.0; 3]);
}

#[test]
fn a_weight_of_two_layouts_is_not_permuted_for_one() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "w", "", &[]),
        ("Convolution", "c", "kernel=(3, 3); num_filter=3; no_bias=True; layout=NHWC", &[0, 1]),
        ("transpose", "t", "axes=(0, 3, 1, 2)", &[2]),
        ("Convolution", "d", "kernel=(3, 3); num_filter=3; no_bias=True", &[3, 1]),
    ];
    let (net, source) = (symbol(nodes, &[4]), params(&[("arg:w", &[3, 3, 3, 3])]));
    for layout in [Layout::Oihw, Layout::Hwio, Layout::Ohwi] {
        let why = "\"arg:w\" has other axes for \"c\" than for \"d\": one tensor cannot be both";
        refused(&source, &following(&net).transform(layout), why);
    }
}

#[test]
fn an_image_that_the_net_gives_back_is_not_reversed() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(1, 1); num_filter=2; no_bias=True", &[0, 1]),
    ];
    let source = params(&[("arg:c_weight", &[2, 3, 1, 1])]);
    let why = "gives its input as an output, too, whose channels would come out reversed";
    refused(&source, &following(&symbol(nodes, &[2, 0])).transform(Rgb), why);
    told(&source, &following(&symbol(nodes, &[2])).transform(Rgb));
}

#[test]
fn a_tensor_of_two_modules_gets_one_name_and_that_is_told() {
    let free = norm("False");
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "g", "", &[]),
        ("null", "b1_beta", "", &[]),
        ("null", "b1_moving_mean", "", &[]),
        ("null", "b1_moving_var", "", &[]),
        ("BatchNorm", "b1", &free, &[0, 1, 2, 3, 4]),
        ("null", "b2_beta", "", &[]),
        ("null", "b2_moving_mean", "", &[]),
        ("null", "b2_moving_var", "", &[]),
        ("BatchNorm", "b2", &free, &[5, 1, 6, 7, 8]),
    ];
    let net = symbol(nodes, &[9]);
    let source = params(&[("arg:g", &[3]), ("aux:b1_moving_mean", &[3]), ("aux:b2_moving_mean", &[3])]);
    let names = Names::torch(Some(&Bound::new(net.net(), &source)), &source);
    let said = told(&source, &following(&net).transform(names));
    let why = "names: shared by modules, and has the name of one alone: \"arg:g\" as \"b2.weight\", not \"b1.weight\"";
    assert!(said.contains(why), "{said}");
}
