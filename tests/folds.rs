//! BatchNorms and folds: layers that `fold` refuses, with the reason; the diffs of folded tensors; no fold changes the
//! net's output. Other results of a fold are rows of `cases/steps.txt`.

use blob_convert::transform::{Bound, FixGamma, Fold};
use blob_convert::{Options, Place, plan};
use blob_io::mxnet::Symbol;
use blob_io::{Checkpoint, Format};
use proptest::prelude::*;

use crate::fold_net::{self, layer};
use crate::support::conversion::to_bytes;
use crate::support::floats::{SAFETENSORS, file, net, run, values};
use crate::support::message::{floats, len, shape, var};
use crate::support::{compare_cases, data, open};

const TENSORS: [(&str, &[usize], &[f32]); 9] = [
    ("c/0", &[2, 1, 1, 1], &[1.0, 2.0]),
    ("c/1", &[2], &[0.0, 0.0]),
    ("n/0", &[2], &[0.5, 0.5]),
    ("n/1", &[2], &[1.0, 4.0]),
    ("n/2", &[1], &[1.0]),
    ("s/0", &[2], &[2.0, 3.0]),
    ("s/1", &[2], &[0.0, 1.0]),
    ("t/0", &[2], &[2.0, 3.0]),
    ("t/1", &[2], &[0.0, 1.0]),
];

/// How many norms and scales of a net are folded, and why others are not; `line` describes the net as `cases/fold.txt`
/// does.
fn fold(line: &str) -> String {
    let (mut text, mut tensors) = (String::new(), TENSORS.to_vec());
    for layer in line.split("; ") {
        match *layer.splitn(5, ' ').collect::<Vec<_>>() {
            ["without", absent] => tensors.retain(|(name, ..)| *name != absent),
            [name, kind, bottom, top, ref more @ ..] => {
                let more = more.concat();
                text +=
                    &format!(r#"layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{top}" {more} }} "#);
            }
            _ => panic!("{layer}"),
        }
    }
    let source = file(Format::Npz, &tensors);
    let (folded, refused) = Fold::of(&Bound::new(&net(&text), &source));
    refused.iter().fold(format!("{}\n", folded.count()), |text, refusal| text + &format!("{refusal}\n"))
}

#[test]
fn what_would_be_wrong_is_not_folded() {
    compare_cases("cases/fold.txt", fold);
}

#[test]
fn a_mean_that_is_no_number_is_not_folded() {
    let mut tensors = TENSORS;
    tensors[2].2 = &[f32::NAN, 0.0];
    let source = file(Format::Npz, &tensors);
    let net = net(r#"layer { name: "c" type: "Convolution" bottom: "data" top: "c" }
        layer { name: "n" type: "BatchNorm" bottom: "c" top: "c" }"#);
    let options = Options::new(SAFETENSORS).transform(Fold::of(&Bound::new(&net, &source)).0);
    let error = to_bytes(&source, &options).expect_err("no number").to_string();
    assert!(error.contains("cannot be folded: channel 0"), "{error}");
}

#[test]
fn the_diffs_of_what_is_folded_are_left_out() {
    let blob = |values: &[f32], dims: &[u64]| {
        len(
            7,
            &[
                floats(values),
                len(6, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()),
                shape(dims),
            ]
            .concat(),
        )
    };
    let more = [blob(&[1.0, 2.0], &[2, 1, 1, 1]), len(106, &[var(1, 2), var(2, 0)].concat())].concat();
    let norms = [blob(&[0.5, 0.5], &[2]), blob(&[1.0, 4.0], &[2]), blob(&[1.0], &[1])].concat();
    let last = [blob(&[3.0, 5.0], &[2, 1, 1, 1]), len(106, &[var(1, 2), var(2, 0)].concat())].concat();
    let net = fold_net::net(&[
        layer("c", "Convolution", "data", "c", &[], &more),
        layer("bn", "BatchNorm", "c", "d", &[], &norms),
        layer("e", "Convolution", "d", "e", &[], &last),
    ]);
    let source = open("net.caffemodel", &net).expect("opens");
    let described = source.net().expect("reads").expect("a net");
    let (fold, _) = Fold::of(&Bound::new(&described, &source));
    for format in [Format::CaffeModel, SAFETENSORS] {
        let options = Options::new(format).transform(fold.clone());
        let planned = plan(&source, &options, &Place::Stdout).unwrap_or_else(|e| panic!("{e}"));
        assert!(planned.notes().contains(&"fold: the diffs of folded tensors are left out, 4 of them".to_owned()));
        let left = planned.left_out().iter().filter(|left| left.reason == "the diff of a folded tensor");
        assert_eq!(
            left.map(|left| &*left.name).collect::<Vec<_>>(),
            ["c/0.diff", "bn/0.diff", "bn/1.diff", "bn/2.diff"]
        );
        let out = to_bytes(&source, &options).unwrap_or_else(|e| panic!("{e}"));
        let name = if format == SAFETENSORS { "out.safetensors" } else { "out.caffemodel" };
        let out = Checkpoint::from_bytes(name, out);
        let mut names: Vec<String> = out.expect("opens").names().map(str::to_owned).collect();
        names.sort();
        assert_eq!(names, ["c/0", "c/1", "e/0", "e/0.diff"]);
    }
}

#[test]
fn gamma_is_one_where_the_symbol_fixes_it() {
    let source = Checkpoint::open(data("mxnet/forward/block-0000.params")).expect("opens");
    let symbol = Symbol::open(data("mxnet/forward/block-symbol.json")).expect("opens");
    let options = Options::new(SAFETENSORS).transform(FixGamma::of(Some(&Bound::new(&symbol.net, &source)), &source));
    let all = run(&source, &options);
    assert_eq!(values(&all, "arg:bn0_gamma"), [1.0; 4]);
    assert!(values(&all, "arg:bn1_gamma").iter().all(|gamma| *gamma != 1.0));
    assert_eq!(all.entries().len(), source.entries().len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Computes a 1×1 convolution of one pixel, BatchNorm and Scale by hand: the folded layer gives the same.
    #[test]
    fn a_fold_changes_no_output(
        kind in 0..3_usize,
        groups in 1..3_usize,
        has_bias: bool,
        has_scale: bool,
        seed in prop::collection::vec(-2.0..2.0_f32, 64),
        factor in prop_oneof![Just(0.5_f32), Just(1.0), Just(1000.0)],
    ) {
        let (inputs, outputs) = (2 * groups, 3 * groups);
        let take = |from: usize, count: usize| -> Vec<f32> { (0..count).map(|i| seed[(from + i * 7) % seed.len()] + 0.01 * i as f32).collect() };
        let weight = take(0, inputs * outputs / groups);
        let (bias, mean) = (take(3, outputs), take(5, outputs));
        let variance: Vec<f32> = take(11, outputs).iter().map(|v| v.abs() + 0.1).collect();
        let (gamma, beta, x) = (take(13, outputs), take(17, outputs), take(19, inputs));
        let stored = |values: &[f32]| values.iter().map(|v| v * factor).collect::<Vec<f32>>();
        let (per_in, per_out) = (inputs / groups, outputs / groups);
        prop_assume!(kind != 2 || groups == 1);
        let (type_name, param, dims): (_, _, Vec<usize>) = match kind {
            0 => ("Convolution", format!("convolution_param {{ group: {groups} bias_term: {has_bias} }}"), vec![outputs, per_in, 1, 1]),
            1 => ("Deconvolution", format!("convolution_param {{ group: {groups} bias_term: {has_bias} }}"), vec![inputs, per_out, 1, 1]),
            _ => ("InnerProduct", format!("inner_product_param {{ transpose: true bias_term: {has_bias} }}"), vec![inputs, outputs]),
        };
        let mut text = format!("layer {{ name: \"l\" type: \"{type_name}\" bottom: \"x\" top: \"l\" {param} }} layer {{ name: \"n\" type: \"BatchNorm\" bottom: \"l\" top: \"n\" }}");
        if has_scale {
            text += "layer { name: \"s\" type: \"Scale\" bottom: \"n\" top: \"n\" scale_param { bias_term: true } }";
        }
        let (mean_stored, variance_stored) = (stored(&mean), stored(&variance));
        let channels = [outputs];
        let mut tensors: Vec<(&str, &[usize], &[f32])> = vec![
            ("l/0", &dims, &weight),
            ("n/0", &channels, &mean_stored),
            ("n/1", &channels, &variance_stored),
            ("n/2", &[1], std::slice::from_ref(&factor)),
        ];
        if has_bias {
            tensors.push(("l/1", &channels, &bias));
        }
        if has_scale {
            tensors.extend([("s/0", &channels[..], &gamma[..]), ("s/1", &channels, &beta)]);
        }
        let source = file(Format::Npz, &tensors);
        let net = net(&text);
        let (fold, refused) = Fold::of(&Bound::new(&net, &source));
        prop_assert!(refused.is_empty(), "{refused:?}");
        let all = run(&source, &Options::new(SAFETENSORS).transform(fold));
        prop_assert_eq!(all.entries().len(), 2);
        let (weights, biases) = (values(&all, "l/0"), values(&all, "l/1"));
        for o in 0..outputs {
            let sum = |w: &[f32]| -> f64 {
                // Of the weights from an input to an output.
                let products = (0..inputs).filter_map(|i| {
                    let place = match kind {
                        0 => Some(o * per_in + i % per_in).filter(|_| i / per_in == o / per_out),
                        1 => Some(i * per_out + o % per_out).filter(|_| i / per_in == o / per_out),
                        _ => Some(i * outputs + o).filter(|_| groups == 1),
                    };
                    Some(f64::from(w[place?]) * f64::from(x[i]))
                });
                products.sum()
            };
            let y = sum(&weight) + if has_bias { f64::from(bias[o]) } else { 0.0 };
            let y = (y - f64::from(mean[o])) / (f64::from(variance[o]) + 1e-5).sqrt();
            let wanted = if has_scale { y * f64::from(gamma[o]) + f64::from(beta[o]) } else { y };
            let got = sum(&weights) + f64::from(biases[o]);
            prop_assert!((got - wanted).abs() <= 1e-4 * (1.0 + wanted.abs()), "{o}: {got}, {wanted}");
        }
    }
}
