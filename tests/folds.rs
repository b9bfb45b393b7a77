//! BatchNorms and folds: refusals with their reasons, warnings; no fold changes the net's output.

use blob_convert::transform::{BatchNorm, Bound, Dtype, FixGamma, Fold, Names};
use blob_convert::{Options, Silent, Target, plan};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::caffe::prototxt;
use blob_io::mxnet::Symbol;
use blob_io::net::Net;
use blob_io::{Checkpoint, Format, IfExists, Writer};
use proptest::prelude::*;

use crate::support::conversion::{to_bytes, to_file};
use crate::support::{Folder, data};

/// A file of these tensors: name, shape, values.
pub(crate) fn file(format: Format, tensors: &[(&str, &[usize], &[f32])]) -> Checkpoint {
    Checkpoint::from_bytes("file", bytes_of(format, tensors)).expect("opens")
}

/// The bytes of a file of these tensors.
pub(crate) fn bytes_of(format: Format, tensors: &[(&str, &[usize], &[f32])]) -> Vec<u8> {
    let blob = |(name, dims, values): &(&str, &[usize], &[f32])| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = Shape::new(dims).expect("a shape");
        (name.to_string(), AnyBlob::from_vec(shape, DType::F32, bytes).expect("a blob"))
    };
    let blobs: Vec<(String, AnyBlob)> = tensors.iter().map(blob).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let writer = blobs.iter().fold(Writer::new(format), |writer, (name, blob)| writer.tensor(name, blob));
    writer.write(&path, IfExists::Refuse).expect("written");
    std::fs::read(&path).expect("readable")
}

pub(crate) fn net(text: &str) -> Net {
    prototxt("net.prototxt", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a conversion. Returns the names and values of the output's tensors.
pub(crate) fn run(source: &Checkpoint, options: &Options) -> Vec<(String, Vec<f32>)> {
    let bytes = to_bytes(source, options).unwrap_or_else(|e| panic!("{e}"));
    let out = Checkpoint::from_bytes("out.safetensors", bytes).expect("opens");
    let values = |entry| {
        let bytes = out.view(entry).expect("views").into_owned();
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
    };
    out.entries().iter().map(|entry| (entry.name().to_owned(), values(entry))).collect()
}

pub(crate) fn value<'a>(all: &'a [(String, Vec<f32>)], name: &str) -> &'a [f32] {
    &all.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("no {name:?} in {all:?}")).1
}

pub(crate) const SAFETENSORS: Format = Format::Safetensors;

/// A convolution without a bias, and a BatchNorm in place.
const WITHOUT_BIAS: &str = r#"layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { bias_term: false } }
        layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" }"#;

#[test]
fn mean_and_variance_are_divided_as_caffe_divides() {
    let factors = [0.25, 0.0, 999.98];
    for factor in factors {
        let source =
            file(Format::Npz, &[("bn/0", &[2], &[3.0, -0.5]), ("bn/1", &[2], &[0.7, 9.0]), ("bn/2", &[1], &[factor])]);
        let net = net(r#"layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" }"#);
        let bound = Bound::new(&net, &source);
        let options = Options::new(SAFETENSORS).transform(BatchNorm::of(&bound));
        let all = run(&source, &options);
        // `const Dtype scale_factor = this->blobs_[2]->cpu_data()[0] == 0 ? 0 : 1 / this->blobs_[2]->cpu_data()[0];`
        let scale = if factor == 0.0 { 0.0 } else { 1.0 / factor };
        assert_eq!(value(&all, "bn/0"), [3.0 * scale, -0.5 * scale]);
        assert_eq!(value(&all, "bn/1"), [0.7 * scale, 9.0 * scale]);
        assert_eq!(all.len(), 2);
        let planned = plan(&source, &options, &Target::Stdout).expect("plans");
        let left_out: Vec<(&str, &str)> = planned.left_out().iter().map(|left| (&*left.name, &*left.reason)).collect();
        let (reason, note) = if factor == 0.0 {
            (
                "bn/0 and bn/1 become 0, as it is 0",
                "bn: factor 0: mean and variance of 1 layer become 0, as Caffe takes them: \"bn/2\"",
            )
        } else {
            ("bn/0 and bn/1 are divided by it", "bn: mean and variance of 1 layer divided by their factor")
        };
        assert_eq!(left_out, [("bn/2", reason)]);
        assert!(planned.left_out()[0].is_asked);
        assert_eq!(planned.notes(), [note]);
    }
    let source = file(Format::Npz, &[("bn/0", &[1], &[1.0]), ("bn/1", &[1], &[1.0]), ("bn/2", &[2], &[1.0, 1.0])]);
    let net = net(r#"layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" }"#);
    let options = Options::new(SAFETENSORS).transform(BatchNorm::of(&Bound::new(&net, &source)));
    let refused = plan(&source, &options, &Target::Stdout).expect_err("two factors").to_string();
    assert!(refused.ends_with("does not allow bn: \"bn/2\" is 2, and a factor is one value"), "{refused}");
}

#[test]
fn what_is_computed_may_be_rounded_after() {
    let tensors: [(&str, &[usize], &[f32]); 3] =
        [("bn/0", &[2], &[3.0, -0.5]), ("bn/1", &[2], &[0.75, 9.0]), ("bn/2", &[1], &[0.5])];
    let source = file(Format::Npz, &tensors);
    let net = net(r#"layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" }"#);
    let bound = Bound::new(&net, &source);
    let wide = Dtype::new(DType::F64).expect("a dtype of floats");
    let narrow = Dtype::new(DType::F32).expect("a dtype of floats");
    let options = Options::new(SAFETENSORS).transform(BatchNorm::of(&bound)).transform(wide).transform(narrow);
    let all = run(&source, &options.transform(Names::new([("bn/0".to_owned(), "mean".to_owned())])));
    assert_eq!((value(&all, "mean"), value(&all, "bn/1")), (&[6.0, -1.0][..], &[1.5, 18.0][..]));
}

#[test]
fn gamma_is_one_where_the_symbol_fixes_it() {
    let source = Checkpoint::open(data("mxnet/forward/block-0000.params")).expect("opens");
    let symbol = Symbol::open(data("mxnet/forward/block-symbol.json")).expect("opens");
    let options = Options::new(SAFETENSORS).transform(FixGamma::of(Some(&Bound::new(&symbol.net, &source)), &source));
    let all = run(&source, &options);
    assert_eq!(value(&all, "arg:bn0_gamma"), [1.0; 4]);
    assert!(value(&all, "arg:bn1_gamma").iter().all(|gamma| *gamma != 1.0));
    assert_eq!(all.len(), source.entries().len());
}

/// A convolution of two channels and the BatchNorm after it.
const TENSORS: [(&str, &[usize], &[f32]); 5] = [
    ("c/0", &[2, 1, 1, 1], &[1.0, 2.0]),
    ("c/1", &[2], &[0.0, 0.0]),
    ("bn/0", &[2], &[0.0, 0.0]),
    ("bn/1", &[2], &[1.0, 1.0]),
    ("bn/2", &[1], &[1.0]),
];

#[test]
fn tensors_that_do_not_fit_are_not_folded() {
    let sound = net(r#"layer { name: "c" type: "Convolution" bottom: "data" top: "c" }
        layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" }"#);
    // Shapes are checked before anything is computed, and the error names all that do not match.
    let other: Vec<(&str, &[usize], &[f32])> = vec![
        ("c/0", &[3, 1, 1, 1], &[1.0; 3]),
        ("c/1", &[2], &[0.0; 2]),
        ("bn/0", &[2], &[0.0; 2]),
        ("bn/1", &[2], &[1.0; 2]),
        ("bn/2", &[1], &[1.0]),
    ];
    let source = file(Format::Npz, &other);
    let (fold, _) = Fold::of(&Bound::new(&sound, &source));
    let refused = plan(&source, &Options::new(SAFETENSORS).transform(fold), &Target::Stdout)
        .expect_err("does not fit")
        .to_string();
    for name in ["bn/0", "bn/1", "c/1"] {
        assert!(refused.contains(&format!("{name:?} has 2 values, not 3")), "{refused}");
    }
    // A NaN mean cannot be folded into weights.
    let mut broken = TENSORS;
    broken[2].2 = &[f32::NAN, 0.0];
    let source = file(Format::Npz, &broken);
    let (fold, _) = Fold::of(&Bound::new(&sound, &source));
    let options = Options::new(SAFETENSORS).transform(fold);
    let folder = Folder::new();
    let error = to_file(&source, &options, folder.file("out.safetensors")).expect_err("no number");
    assert!(error.to_string().contains("cannot be folded: channel 0"), "{error}");
    assert!(!folder.path().join("out.safetensors").exists());
}

#[test]
fn a_new_bias_and_the_largest_change_are_told() {
    let net = net(WITHOUT_BIAS);
    let source = file(
        Format::Npz,
        &[("c/0", &[1, 1, 1, 2], &[4.0, -8.0]), ("bn/0", &[1], &[6.0]), ("bn/1", &[1], &[4.0]), ("bn/2", &[1], &[1.0])],
    );
    let (fold, _) = Fold::of(&Bound::new(&net, &source));
    let options = Options::new(SAFETENSORS).transform(fold);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let plan = plan(&source, &options, &Target::File { path: &path, if_exists: IfExists::Refuse }).expect("plans");
    assert_eq!(
        plan.notes(),
        [
            "fold: \"c/1\" is new: in your prototxt add bias_term: true (in a symbol no_bias: False) to the layer of \"c/0\"",
            "fold: remove these layers from your prototxt or symbol: \"bn\""
        ]
    );
    assert_eq!(plan.left_out().len(), 3);
    let found = plan.run(&Silent).expect("runs").found;
    // sqrt(4 + eps) halves the weights, except for eps.
    assert_eq!(found.len(), 1);
    assert!(
        found[0].to_string().starts_with("\"c/0\": 4.00000")
            && found[0].to_string().ends_with("is the largest change of a weight"),
        "{}",
        found[0]
    );
    let all = run(&source, &options);
    assert!((value(&all, "c/1")[0] + 3.0).abs() < 1e-5);
}

#[test]
fn a_bias_that_the_layer_does_not_have_is_not_folded() {
    let symbol = r#"{"nodes": [
        {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "c_weight", "inputs": []},
        {"op": "Convolution", "name": "c", "attrs": {"kernel": "(1,1)", "num_filter": "1", "no_bias": "True"}, "inputs": [[0,0,0],[1,0,0]]},
        {"op": "null", "name": "bn_gamma", "inputs": []}, {"op": "null", "name": "bn_beta", "inputs": []},
        {"op": "null", "name": "bn_moving_mean", "inputs": []}, {"op": "null", "name": "bn_moving_var", "inputs": []},
        {"op": "BatchNorm", "name": "bn", "attrs": {"fix_gamma": "False"},
         "inputs": [[2,0,0],[3,0,0],[4,0,0],[5,0,1],[6,0,1]]}], "heads": [[7,0,0]]}"#;
    let symbol = Symbol::from_bytes("net-symbol.json", symbol.as_bytes()).expect("a symbol");
    let one: &[usize] = &[1];
    let mut tensors: Vec<(&str, &[usize], &[f32])> = vec![
        ("arg:c_weight", &[1, 1, 1, 1], &[2.0]),
        ("arg:bn_gamma", one, &[1.0]),
        ("arg:bn_beta", one, &[0.0]),
        ("aux:bn_moving_mean", one, &[0.0]),
        ("aux:bn_moving_var", one, &[1.0]),
    ];
    for has_stray in [false, true] {
        if has_stray {
            tensors.push(("arg:c_bias", one, &[5.0]));
        }
        let source = file(Format::MxnetList, &tensors);
        let (fold, refused) = Fold::of(&Bound::new(&symbol.net, &source));
        assert!(refused.is_empty(), "{refused:?}");
        let planned = plan(&source, &Options::new(SAFETENSORS).transform(fold), &Target::Stdout);
        match planned {
            Ok(_) => assert!(!has_stray),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    has_stray && error.contains("\"arg:c_bias\" is there, though the layer has no bias"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn what_a_fold_makes_infinite_is_told() {
    let net = net(WITHOUT_BIAS);
    let source = file(
        Format::Npz,
        &[
            ("c/0", &[1, 1, 1, 2], &[1e38, 1.0]),
            ("bn/0", &[1], &[0.0]),
            ("bn/1", &[1], &[1e-4]),
            ("bn/2", &[1], &[1.0]),
        ],
    );
    let (fold, _) = Fold::of(&Bound::new(&net, &source));
    let folder = Folder::new();
    let options = Options::new(SAFETENSORS).transform(fold);
    let found = to_file(&source, &options, folder.file("out.safetensors")).expect("runs").found;
    let told: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(told.contains(&"\"c/0\": 1 value became infinite as f32".to_owned()), "{told:?}");
    let other = folder.path().join("strict.safetensors");
    assert!(to_file(&source, &options.with(|o| o.strict = true), &other).is_err() && !other.exists());
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
        // The index of the weight from an input to an output.
        let place = |o: usize, i: usize| match kind {
            0 => Some(o * per_in + i % per_in).filter(|_| i / per_in == o / per_out),
            1 => Some(i * per_out + o % per_out).filter(|_| i / per_in == o / per_out),
            _ => Some(i * outputs + o).filter(|_| groups == 1),
        };
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
        prop_assert_eq!(all.len(), 2);
        for o in 0..outputs {
            let sum = |w: &[f32]| (0..inputs).filter_map(|i| Some(f64::from(w[place(o, i)?]) * f64::from(x[i]))).sum::<f64>();
            let y = sum(&weight) + if has_bias { f64::from(bias[o]) } else { 0.0 };
            let y = (y - f64::from(mean[o])) / (f64::from(variance[o]) + 1e-5).sqrt();
            let wanted = if has_scale { y * f64::from(gamma[o]) + f64::from(beta[o]) } else { y };
            let got = sum(value(&all, "l/0")) + f64::from(value(&all, "l/1")[o]);
            prop_assert!((got - wanted).abs() <= 1e-4 * (1.0 + wanted.abs()), "{o}: {got}, {wanted}");
        }
    }
}
