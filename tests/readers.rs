//! Tensors that several parts of a net read: a step changes a tensor for all readers, or is refused.

use std::sync::Arc;

use blob_convert::transform::{Bound, Eps, FcFrom, Layout, Rgb, Topology};
use blob_io::Checkpoint;
use blob_io::net::LayerKind;

use crate::channels_last::{DATA, following, params, refused, symbol};
use crate::support::floats::{run, values};

/// A node of a symbol: operator, name, attributes, and the numbers of the inputs.
type Node<'a> = (&'a str, &'a str, &'a str, &'a [usize]);

const ONE: &str = "kernel=(1, 1); num_filter=3; no_bias=True";
const DENSE: &str = "num_hidden=3; no_bias=True";

/// A first convolution `c` with the weight `w`, a convolution `d` behind `c` with the weight `v`, and more nodes, which
/// begin at 5.
fn image(more: &[Node<'_>], heads: &[usize]) -> (Arc<Topology>, Checkpoint) {
    let mut nodes: Vec<Node<'_>> = vec![
        DATA,
        ("null", "w", "", &[]),
        ("Convolution", "c", ONE, &[0, 1]),
        ("null", "v", "", &[]),
        ("Convolution", "d", ONE, &[2, 3]),
    ];
    nodes.extend_from_slice(more);
    (symbol(&nodes, heads), params(&[("arg:w", &[3, 3, 1, 1]), ("arg:v", &[3, 3, 1, 1])]))
}

#[test]
fn channels_are_reversed_for_all_readers_or_none() {
    let why = "\"arg:w\" has its channels reversed for the net's input, and ";
    for (more, heads, used) in [
        (&[("Convolution", "e", ONE, &[4, 1][..])][..], &[5][..], "\"e\""),
        (&[("sum", "e", "", &[1])], &[4, 5], "\"e\""),
        (&[("identity", "i", "", &[1]), ("broadcast_mul", "e", "", &[4, 5])], &[6], "\"e\""),
        (&[("FullyConnected", "e", DENSE, &[4, 1])], &[5], "\"e\""),
        (&[], &[4, 1], "the user of the net"),
        // The same weight as output × height × width × input.
        (&[("Convolution", "e", "kernel=(1, 3); num_filter=3; no_bias=True; layout=NHWC", &[0, 1])], &[4, 5], "\"e\""),
    ] {
        let (net, source) = image(more, heads);
        refused(&source, &following(&net).transform(Rgb), &format!("{why}{used} uses it as it is"));
    }
    // Weights that later layers share have nothing to do with the image.
    let more: &[Node<'_>] = &[("Convolution", "e", ONE, &[0, 1]), ("Convolution", "f", ONE, &[4, 3])];
    let (net, source) = image(more, &[5, 6]);
    let made = run(&source, &following(&net).transform(Rgb));
    let (was, is) = (values(&source, "arg:w"), values(&made, "arg:w"));
    assert_eq!(is, was.chunks(3).flat_map(|row| row.iter().rev().copied()).collect::<Vec<_>>());
    assert_eq!(values(&made, "arg:v"), values(&source, "arg:v"));
}

/// A convolution, a flattening, the inner product `f` with the weight `w` of 3 × 24, and more nodes, from 6 on.
fn dense(more: &[Node<'_>], heads: &[usize]) -> (Arc<Topology>, Checkpoint) {
    let mut nodes: Vec<Node<'_>> = vec![
        DATA,
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(2, 2); num_filter=4; no_bias=True", &[0, 1]),
        ("Flatten", "fl", "", &[2]),
        ("null", "w", "", &[]),
        ("FullyConnected", "f", DENSE, &[3, 4]),
    ];
    nodes.extend_from_slice(more);
    (symbol(&nodes, heads), params(&[("arg:c_weight", &[4, 3, 2, 2]), ("arg:w", &[3, 24])]))
}

const TABLE: (&str, &str, &str) = ("Embedding", "e", "input_dim=3; output_dim=24");

/// More nodes with the outputs of the net, and the other reader in words.
type Case<'a> = (&'a [Node<'a>], &'a [usize], &'a str);

#[test]
fn columns_and_axes_are_permuted_for_all_readers_or_none() {
    let fc_from = FcFrom::new(4, 2, 3).expect("extents");
    let (op, name, attributes) = TABLE;
    let cases: &[Case<'_>] = &[
        (&[("null", "words", "", &[]), (op, name, attributes, &[6, 4])], &[5, 7], "\"e\""),
        (&[("dot", "e", "", &[5, 4])], &[6], "\"e\""),
        (&[("identity", "i", "", &[4]), ("dot", "e", "", &[5, 6])], &[7], "\"e\""),
        (&[], &[5, 4], "the user of the net"),
    ];
    for (more, heads, used) in cases {
        let (net, source) = dense(more, heads);
        let why = format!("\"arg:w\" is permuted for one layer, and {used} uses it as it is");
        refused(&source, &following(&net).transform(fc_from.clone()), &why);
        let why = format!("\"arg:w\" has other axes for \"f\" than for {used}: one tensor cannot be both");
        refused(&source, &following(&net).transform(Layout::Hwio), &why);
        // PyTorch's order is the stored one.
        let made = run(&source, &following(&net).transform(Layout::Oihw));
        assert_eq!(values(&made, "arg:w"), values(&source, "arg:w"));
    }
}

#[test]
fn one_weight_has_one_flattening() {
    let more: &[Node<'_>] = &[
        ("Pooling", "p", "kernel=(1, 1); pool_type=max", &[2]),
        ("Flatten", "fl2", "", &[6]),
        ("FullyConnected", "g", DENSE, &[7, 4]),
    ];
    let (net, source) = dense(more, &[5, 8]);
    let one = FcFrom::new(4, 2, 3).expect("extents");
    let both = one.clone().layer("f").and(FcFrom::new(4, 3, 2).expect("extents").layer("g"));
    refused(&source, &following(&net).transform(both), "\"arg:w\" is 4,3,2 for \"g\", and 4,2,3 for another layer");
    run(&source, &following(&net).transform(one));
}

#[test]
fn kernels_of_grouped_and_ordinary_convolutions_are_not_shared() {
    let more: &[Node<'_>] = &[("Convolution", "g", "kernel=(1, 1); num_filter=3; no_bias=True; num_group=3", &[4, 6])];
    let mut nodes = vec![("null", "u", "", &[][..])];
    nodes.insert(0, ("identity", "i", "", &[4][..]));
    nodes.extend_from_slice(more);
    nodes.push(("Convolution", "h", ONE, &[7, 6]));
    let (net, _) = image(&nodes, &[8]);
    let source = params(&[("arg:w", &[3, 3, 1, 1]), ("arg:v", &[3, 3, 1, 1]), ("arg:u", &[3, 1, 1, 1])]);
    let why = "\"arg:u\" has other axes for \"g\" than for \"h\"";
    refused(&source, &following(&net).transform(Layout::Hwio), why);
    run(&source, &following(&net).transform(Layout::Ohwi));
}

/// A BatchNorm `b` of this eps with the moving statistics of `a`, and more nodes, from 8 on.
fn normed(eps: &str, more: &[Node<'_>], heads: &[usize]) -> (Arc<Topology>, Checkpoint) {
    let mut nodes: Vec<Node<'_>> = vec![
        DATA,
        ("null", "g", "", &[]),
        ("null", "beta", "", &[]),
        ("null", "m", "", &[]),
        ("null", "v", "", &[]),
        ("BatchNorm", "a", "eps=1e-3", &[0, 1, 2, 3, 4]),
        ("null", "m2", "", &[]),
        ("BatchNorm", "b", eps, &[5, 1, 2, 6, 4]),
    ];
    nodes.extend_from_slice(more);
    let all = ["arg:g", "arg:beta", "aux:m", "aux:m2", "aux:v"];
    (symbol(&nodes, heads), params(&all.map(|name| (name, &[3][..]))))
}

#[test]
fn an_eps_is_moved_for_all_readers_or_none() {
    for (eps, more, heads, used) in [
        ("eps=1e-5", &[][..], &[7][..], "\"b\""),
        ("eps=2e-3", &[], &[7], "\"b\""),
        ("eps=1e-3", &[("sqrt", "s", "", &[4][..])], &[7, 8], "\"s\""),
        ("eps=1e-3", &[], &[7, 4], "the user of the net"),
    ] {
        let (net, source) = normed(eps, more, heads);
        let moved = Eps::of(&Bound::new(net.net(), &source), 1e-5);
        refused(&source, &following(&net).transform(moved), &format!("and {used} uses it otherwise"));
    }
    let (net, source) = normed("eps=1e-3", &[], &[7]);
    assert_eq!(net.net().layers().iter().filter(|layer| layer.kind == LayerKind::BatchNorm).count(), 2);
    let made = run(&source, &following(&net).transform(Eps::of(&Bound::new(net.net(), &source), 1e-5)));
    let moved = values(&source, "aux:v").iter().map(|v| (f64::from(*v) + (1e-3 - 1e-5)) as f32).collect::<Vec<_>>();
    assert_eq!(values(&made, "aux:v"), moved);
}
