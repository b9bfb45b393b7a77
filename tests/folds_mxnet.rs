//! Folds and fixed gammas in MXNet's symbols: every kind of BatchNorm, and weights that other nodes read.

use std::sync::Arc;

use blob_convert::transform::{Bound, FixGamma, Fold, Layout, Refusal, Topology};
use blob_convert::{Options, Place, plan};
use blob_io::Format;
use blob_io::mxnet::Symbol;

use serde_json::{Value, json};

use crate::support::floats::{SAFETENSORS, file, run, values};

/// A symbol as of MXNet 1.9.1: a convolution, a BatchNorm of this type, and these nodes.
fn symbol(norm: &str, more: &str) -> Symbol {
    let text = symbol_text(norm, more);
    Symbol::from_bytes("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

fn symbol_text(norm: &str, more: &str) -> String {
    let variables: String = ["data", "c_weight", "c_bias", "b_gamma", "b_beta", "b_moving_mean", "b_moving_var"]
        .map(|name| format!(r#"{{"op": "null", "name": "{name}", "inputs": []}}, "#))
        .concat();
    format!(
        r#"{{"nodes": [{variables}
            {{"op": "Convolution", "name": "c", "attrs": {{"kernel": "(1, 1)", "num_filter": "2"}},
              "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]}},
            {{"op": "{norm}", "name": "b", "inputs": [[7, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 1], [6, 0, 1]]}}
            {more}], "heads": [[8, 0, 0]]}}"#
    )
}

/// The tensors of `symbol`, with the names of MXNet's list.
const OF_SYMBOL: [(&str, &[usize], &[f32]); 6] = [
    ("arg:c_weight", &[2, 1, 1, 1], &[1.0, 2.0]),
    ("arg:c_bias", &[2], &[0.0, 0.0]),
    ("arg:b_gamma", &[2], &[3.0, 5.0]),
    ("arg:b_beta", &[2], &[0.0, 0.0]),
    ("aux:b_moving_mean", &[2], &[0.0, 0.0]),
    ("aux:b_moving_var", &[2], &[1.0, 1.0]),
];

#[test]
fn every_batch_norm_of_mxnet_fixes_gamma_and_one_with_a_relu_stays() {
    let source = file(Format::MxnetList, &OF_SYMBOL);
    for norm in ["BatchNorm", "_contrib_SyncBatchNorm", "SyncBatchNorm", "_contrib_BatchNormWithReLU"] {
        let symbol = symbol(norm, "");
        let bound = Bound::new(&symbol.net, &source);
        let options = Options::new(SAFETENSORS).transform(FixGamma::of(Some(&bound), &source));
        assert_eq!(values(&run(&source, &options), "arg:b_gamma"), [1.0; 2], "{norm}");
        let (fold, refused) = Fold::of(&bound);
        let reasons: Vec<&str> = refused.iter().map(|refusal| &*refusal.reason).collect();
        if norm.ends_with("ReLU") {
            assert_eq!(reasons, ["is _contrib_BatchNormWithReLU, whose ReLU would be lost"])
        } else {
            assert!(refused.is_empty(), "{norm}: {refused:?}");
            // 1 / sqrt(1 + 0.001), because gamma is fixed.
            let all = run(&source, &Options::new(SAFETENSORS).transform(fold));
            assert!((values(&all, "arg:c_weight")[0] - 0.999_500_4).abs() < 1e-6, "{norm}");
        }
    }
}

#[test]
fn a_weight_that_another_operator_reads_is_not_folded_into() {
    let source = file(Format::MxnetList, &OF_SYMBOL);
    for (node, layer) in [(1, "c"), (2, "c"), (4, "b")] {
        let more = format!(r#", {{"op": "sum", "name": "sum0", "inputs": [[{node}, 0, 0]]}}"#);
        let (fold, refused) = Fold::of(&Bound::new(&symbol("BatchNorm", &more).net, &source));
        assert!(fold.count() == 0);
        let reason = format!("cannot be folded alone: {layer:?} shares its tensors with another layer");
        assert_eq!(refused[0].reason, reason);
    }
    // The net's input may have several readers.
    let (fold, refused) = Fold::of(&Bound::new(
        &symbol("BatchNorm", r#", {"op": "sum", "name": "sum0", "inputs": [[0, 0, 0]]}"#).net,
        &source,
    ));
    assert_eq!((fold.count(), refused.len()), (1, 0));
}

/// A deconvolution of MXNet's NHWC has weights of inputs × kernel × (outputs of a group). Here the kernel's height is
/// that of the outputs of a group, so that the wrong axis would fit, too.
#[test]
fn a_deconvolution_with_channels_last_is_folded_along_its_last_axis() {
    let text = |groups: usize| {
        symbol_text("BatchNorm", "")
            .replace(
                r#""op": "Convolution", "name": "c", "attrs": {"kernel": "(1, 1)", "num_filter": "2"}"#,
                &format!(
                    r#""op": "Deconvolution", "name": "c", "attrs": {{"kernel": "(2, 3)", "num_filter": "{}",
                       "num_group": "{groups}", "layout": "NHWC", "no_bias": "False"}}"#,
                    2 * groups
                ),
            )
            .replace(r#""name": "b", "#, r#""name": "b", "attrs": {"fix_gamma": "False", "axis": "3"}, "#)
    };
    for groups in [1, 2] {
        let (inputs, outputs) = (2 * groups, 2 * groups);
        let weights: Vec<f32> = (0..inputs * 2 * 3 * 2).map(|i| i as f32 + 1.0).collect();
        let vector = |from: f32| (0..outputs).map(|i| from + i as f32).collect::<Vec<f32>>();
        let (gamma, variance) = (vector(2.0), vector(3.0));
        let (weight_dims, dims) = ([inputs, 2, 3, 2], [outputs]);
        let [bias, beta, mean] = [0.5, 1.0, 0.25].map(vector);
        let tensors: [(&str, &[usize], &[f32]); 6] = [
            ("arg:c_weight", &weight_dims, &weights),
            ("arg:c_bias", &dims, &bias),
            ("arg:b_gamma", &dims, &gamma),
            ("arg:b_beta", &dims, &beta),
            ("aux:b_moving_mean", &dims, &mean),
            ("aux:b_moving_var", &dims, &variance),
        ];
        let source = file(Format::MxnetList, &tensors);
        let text = text(groups);
        let net = Symbol::from_bytes("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}")).net;
        let (fold, refused) = Fold::of(&Bound::new(&net, &source));
        assert_eq!(fold.count(), 1, "{refused:?}");
        let all = run(&source, &Options::new(SAFETENSORS).transform(fold));
        let scale = |o: usize| f64::from(gamma[o]) / (f64::from(variance[o]) + 1e-3).sqrt();
        let near = |ours: f32, right: f64| assert!((f64::from(ours) - right).abs() < 1e-5 * right.abs().max(1.0));
        for (at, ours) in values(&all, "arg:c_weight").iter().enumerate() {
            // Input i is of group i / 2, and this is output `at % 2` of that group.
            let output = at / (2 * 3 * 2) / 2 * 2 + at % 2;
            near(*ours, f64::from(weights[at]) * scale(output));
        }
        // PyTorch's are inputs × outputs per group × kernel.
        let net = Topology::symbol("net-symbol.json", text.as_bytes()).expect("a symbol");
        let turned = run(&source, &Options::new(SAFETENSORS).follow(Arc::new(net)).transform(Layout::Oihw));
        let right = (0..inputs * 2 * 6).map(|at| weights[(at / 12 * 6 + at % 6) * 2 + at / 6 % 2]);
        assert_eq!(values(&turned, "arg:c_weight"), right.collect::<Vec<_>>());
        for (o, ours) in values(&all, "arg:c_bias").iter().enumerate() {
            near(*ours, (f64::from(bias[o]) - f64::from(mean[o])) * scale(o) + f64::from(beta[o]));
        }
    }
}

#[test]
fn what_is_stored_as_the_framework_takes_it_is_not_told() {
    for (gamma, is_told) in [([1.0, 1.0], false), ([1.0, 2.0], true)] {
        let mut tensors = OF_SYMBOL;
        tensors[2].2 = &gamma;
        let source = file(Format::MxnetList, &tensors);
        let net = Topology::symbol("net-symbol.json", symbol_text("BatchNorm", "").as_bytes()).expect("a symbol");
        let options = Options::new(SAFETENSORS).follow(Arc::new(net));
        let plan = plan(&source, &options, &Place::Stdout).expect("plans");
        let changes = plan.changes();
        let told = changes.iter().find(|group| group.change.effect.name() == "taken-otherwise");
        assert_eq!(told.map(|group| &*group.tensors), is_told.then_some(&["arg:b_gamma".to_owned()][..]));
        assert!(changes.iter().all(|group| !group.change.is_loss()), "--strict takes it");
    }
}

/// The layers that a symbol lets fold, and others.
fn found(text: &str) -> (Fold, Vec<Refusal>) {
    let source = file(Format::MxnetList, &OF_SYMBOL);
    let symbol = Symbol::from_bytes("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    Fold::of(&Bound::new(&symbol.net, &source))
}

/// The text of a new symbol, or why there is none.
fn rewritten(text: &str) -> Result<String, String> {
    let (fold, refused) = found(text);
    assert_eq!((fold.count(), refused.len()), (1, 0), "{refused:?}");
    fold.symbol(text.as_bytes())
}

#[test]
fn a_symbol_is_written_anew_or_left_alone() {
    let sound = symbol_text("BatchNorm", "");
    let text = rewritten(&sound).unwrap_or_else(|why| panic!("{why}"));
    let net = Symbol::from_bytes("new", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let variables: Vec<&str> = net.variables.iter().map(|variable| &*variable.name).collect();
    assert_eq!(variables, ["data", "c_weight", "c_bias"]);
    assert_eq!(
        (net.net.layers().len(), net.net.uses(net.net.layers()[0].tops[0])),
        (1, 1),
        "the output is the convolution's"
    );
    // Whatever reads the normalisation reads the convolution.
    let relu = symbol_text("BatchNorm", r#", {"op": "relu", "name": "r", "inputs": [[8, 0, 0]]}"#);
    let text = rewritten(&relu.replace(r#""heads": [[8, 0, 0]]"#, r#""heads": [[9, 0, 0]]"#));
    let net = Symbol::from_bytes("new", text.expect("rewritten").as_bytes()).expect("a net").net;
    assert_eq!(net.layers()[1].bottoms, net.layers()[0].tops);

    let mean = r#", {"op": "sum", "name": "s", "inputs": [[8, 1, 0]]}"#;
    let two = |text: &str| text.replace(r#""heads": [[8, 0, 0]]"#, r#""heads": [[8, 0, 0], [9, 0, 0]]"#);
    let mean = two(&symbol_text("BatchNorm", mean));
    assert!(found(&mean).1[0].reason.contains("reads 1 values and writes 2"), "{:?}", found(&mean).1);
    let left = found(&sound).0.symbol(mean.as_bytes()).expect_err("left alone");
    assert!(left.contains("reads the mean or the variance of one that is folded"), "{left}");
    let refusals = [
        (
            two(&symbol_text("BatchNorm", r#", {"op": "zeros_like", "name": "b", "inputs": [[0, 0, 0]]}"#)),
            "has no single node \"b\"",
        ),
        (
            sound.replace(r#""heads": [[8, 0, 0]]"#, r#""heads": [[80, 0, 0]]"#),
            "has an output of a node that is not there",
        ),
        (
            sound.replace(r#""heads""#, r#""node_row_ptr": [0, 1, 2, 3, 4, 5, 6, 7, 6, 9], "heads""#),
            "has numbers of outputs that do not rise",
        ),
    ];
    // Each node still has the same number of outputs.
    let counted = sound.replace(r#""heads""#, r#""node_row_ptr": [0, 1, 2, 3, 4, 5, 6, 7, 8, 11], "heads""#);
    let graph: Value = serde_json::from_str(&rewritten(&counted).expect("rewritten")).expect("JSON");
    assert_eq!(graph["node_row_ptr"], json!([0, 1, 2, 3, 4]));
    for (text, why) in refusals {
        let refused = rewritten(&text).expect_err("left alone");
        assert!(refused.starts_with(why), "{refused}");
    }
}

/// MXNet 1.9.1, 0.9 and 0.8 keep attributes under other keys, and 0.8 has edges of two numbers.
#[test]
fn symbols_of_every_generation_get_a_bias() {
    let tensors: Vec<_> = OF_SYMBOL.into_iter().filter(|(name, ..)| *name != "arg:c_bias").collect();
    let (source, with_stray) = (file(Format::MxnetList, &tensors), file(Format::MxnetList, &OF_SYMBOL));
    let newest = symbol_text("BatchNorm", "")
        .replace(r#""num_filter": "2"}"#, r#""num_filter": "2", "no_bias": "True"}"#)
        .replace("[1, 0, 0], [2, 0, 0]]", "[1, 0, 0]]")
        .replace("c_bias", "unused");
    let oldest = newest
        .replace("0, 0]", "0]")
        .replace("0, 1]", "0]")
        .replace("[5, 0], [6, 0]", "")
        .replace("[4, 0], ]", "[4, 0]]");
    for (key, text) in [("attrs", &newest), ("attr", &newest), ("param", &oldest)] {
        let text = text.replace("attrs", key);
        let symbol = Symbol::from_bytes("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let (fold, refused) = Fold::of(&Bound::new(&symbol.net, &source));
        assert_eq!(fold.count(), 1, "{refused:?}");
        let new = fold.symbol(text.as_bytes()).unwrap_or_else(|why| panic!("{key}: {why}"));
        let graph: Value = serde_json::from_str(&new).expect("JSON");
        let names: Vec<&str> =
            graph["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["data", "c_weight", "c_bias", "c"], "{key}");
        assert_eq!((&graph["nodes"][3][key]["no_bias"], &graph["arg_nodes"]), (&json!("False"), &json!([0, 1, 2])));
        let edges =
            if key == "param" { json!([[0, 0], [1, 0], [2, 0]]) } else { json!([[0, 0, 0], [1, 0, 0], [2, 0, 0]]) };
        assert_eq!(graph["nodes"][3]["inputs"], edges);
        // The file made by the same fold has the symbol's variables.
        let all = run(&source, &Options::new(SAFETENSORS).transform(fold));
        assert_eq!(all.names().collect::<Vec<_>>(), ["arg:c_weight", "arg:c_bias"]);
        // A bias in the file that the layer does not have.
        let (fold, refused) = Fold::of(&Bound::new(&symbol.net, &with_stray));
        assert!(refused.is_empty(), "{refused:?}");
        let error = plan(&with_stray, &Options::new(SAFETENSORS).transform(fold), &Place::Stdout).expect_err("stray");
        assert!(error.to_string().contains("\"arg:c_bias\" is there, though the layer has no bias"), "{error}");
        // A bias of that name that something else uses.
        let taken = text.replace("unused", "c_bias");
        let symbol = Symbol::from_bytes("net-symbol.json", taken.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let (fold, _) = Fold::of(&Bound::new(&symbol.net, &source));
        assert_eq!(fold.symbol(taken.as_bytes()), Err("has a \"c_bias\" already".to_owned()));
    }
}
