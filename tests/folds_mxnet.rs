//! Folds and fixed gammas in MXNet's symbols: every kind of BatchNorm, and weights that other nodes read.

use blob_convert::Options;
use blob_convert::transform::{Bound, FixGamma, Fold};
use blob_io::Format;
use blob_io::mxnet::Symbol;

use crate::folds::{SAFETENSORS, file, run, value};

/// A symbol as MXNet 1.9.1 writes it: a convolution, a BatchNorm of this type, and these nodes.
fn symbol(norm: &str, more: &str) -> Symbol {
    let variable = |name: &str| format!(r#"{{"op": "null", "name": "{name}", "inputs": []}}, "#);
    let variables: String =
        ["data", "c_weight", "c_bias", "b_gamma", "b_beta", "b_moving_mean", "b_moving_var"].map(variable).concat();
    let text = format!(
        r#"{{"nodes": [{variables}
            {{"op": "Convolution", "name": "c", "attrs": {{"kernel": "(1, 1)", "num_filter": "2"}},
              "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]}},
            {{"op": "{norm}", "name": "b", "inputs": [[7, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 1], [6, 0, 1]]}}
            {more}], "heads": [[8, 0, 0]]}}"#
    );
    Symbol::from_bytes("net-symbol.json", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
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
        assert_eq!(value(&run(&source, &options), "arg:b_gamma"), [1.0; 2], "{norm}");
        let (fold, refused) = Fold::of(&bound);
        let reasons: Vec<&str> = refused.iter().map(|refusal| &*refusal.reason).collect();
        match norm.ends_with("ReLU") {
            true => assert_eq!(reasons, ["is _contrib_BatchNormWithReLU, whose ReLU would be lost"]),
            false => {
                assert!(refused.is_empty(), "{norm}: {refused:?}");
                // 1 / sqrt(1 + 0.001), because gamma is fixed.
                let all = run(&source, &Options::new(SAFETENSORS).transform(fold));
                assert!((value(&all, "arg:c_weight")[0] - 0.999_500_4).abs() < 1e-6, "{norm}");
            }
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
