//! Conversions that follow a net: layers that share, lack or hide tensors, and the words about them.

use std::fs;
use std::sync::Arc;

use blob_convert::transform::{Bound, Fold, Registry, Rgb, Topology};
use blob_convert::{Options, Place, Recipe, Silent, Step, plan, verify};
use blob_io::mxnet::Symbol;
use blob_io::net::Role;
use blob_io::{Bytes, Checkpoint, Format, OpenOptions};
use serde_json::json;

use crate::nets::{case, dims, made, run};
use crate::support::archive::safetensors;
use crate::support::floats::{file, wide};
use crate::support::message::{floats, len, shape, var};
use crate::support::receipt::with_receipt;
use crate::support::work::broken_bounds;
use crate::support::{Folder, blob, command, data, open};

#[test]
fn one_gamma_cannot_be_fixed_for_one_layer_alone() {
    let folder = Folder::new();
    let refused = run(&folder, "convert", &case("shared_gamma-0000.params"), &["--fix-gamma", "auto"]);
    refused.refused("one tensor cannot be both");
    run(&folder, "convert", &case("shared_gamma-0000.params"), &["--fix-gamma", "off"]).ok();
}

#[test]
fn a_kernel_of_one_row_is_no_legacy_bias() {
    let folder = Folder::new();
    let net = data(&case("k1x5.prototxt"));
    let more = ["--squeeze-legacy", "--net", net.to_str().expect("UTF-8")];
    let (file, _) = made(&folder, "convert", &case("k1x5.npz"), &more);
    assert_eq!(dims(&file, "sob/0"), [1, 1, 1, 5]);
}

#[test]
fn names_for_torch_belong_to_the_right_layers() {
    let folder = Folder::new();
    let (file, _) = made(&folder, "convert", &case("static_lstm_bare.caffemodel"), &["--names", "torch"]);
    assert!(!file.names().any(|name| name.contains("weight_hh")), "{:?}", file.names().collect::<Vec<_>>());
    let (file, _) = made(&folder, "convert", &case("scale_other_size.caffemodel"), &["--names", "torch"]);
    let names: Vec<_> = file.names().collect();
    assert!(names.contains(&"scale1.weight") && !names.contains(&"bn1.weight"), "{names:?}");
}

/// Caffe copies each layer of a file into the net's layer of that name, one after the other: the last stays.
#[test]
fn of_layers_of_one_name_the_last_is_loaded() {
    let layer = |name: &[u8], values: &[f32]| {
        len(
            100,
            &[
                len(1, name),
                len(2, b"Convolution"),
                len(3, b"data"),
                len(4, name),
                len(7, &[shape(&[2, 1, 1, 1]), floats(values)].concat()),
            ]
            .concat(),
        )
    };
    let bytes = [layer(b"c", &[1.0, 2.0]), layer(b"d", &[3.0, 4.0]), layer(b"c", &[5.0, 6.0])].concat();
    let folder = Folder::new();
    let source = folder.with("twice.caffemodel", bytes);
    let net = r#"layer { name: "c" type: "Convolution" bottom: "data" top: "c"
                    convolution_param { num_output: 2 kernel_size: 1 bias_term: false } }
        layer { name: "d" type: "Convolution" bottom: "data" top: "d"
                    convolution_param { num_output: 2 kernel_size: 1 bias_term: false } }"#;
    let net = folder.with("deploy.prototxt", net);
    let (file, _) = made(&folder, "convert", &source, &["--names", "torch", "--net", &net]);
    assert_eq!(wide(&file, "c.weight"), [5.0, 6.0]);
    assert_eq!(wide(&file, "d.weight"), [3.0, 4.0]);
    // The file's own net has both layers.
    let file = Checkpoint::open(&source).expect("opens");
    let own = file.net().expect("reads").expect("a net");
    let bound = Bound::new(&own, &file);
    let read: Vec<_> = own.layers().iter().map(|layer| bound.tensor(layer, Role::Weight)).collect();
    assert_eq!(read, [Some("c/0"), Some("d/0"), Some("c@2/0")]);
}

/// Of a layer in two versions, for training and for inference, Caffe's net of inference has one, into which both are
/// copied: the last stays, whichever phase it is of.
#[test]
fn a_model_has_the_last_layer_of_a_name_whatever_its_phase() {
    let folder = Folder::new();
    let layer = |phase: u64, values: &[f32]| {
        let texts = [(1, "c"), (2, "InnerProduct"), (3, "data"), (4, "c")];
        let texts = texts.iter().flat_map(|(number, text)| len(*number, text.as_bytes()));
        let settings = len(117, &[var(1, 1), var(2, 0)].concat());
        let weights = len(7, &[shape(&[1, 2]), floats(values)].concat());
        len(100, &[texts.collect(), weights, len(8, &var(1, phase)), settings].concat())
    };
    for (name, phases) in [("train-test", [0, 1]), ("test-train", [1, 0])] {
        let bytes = [layer(phases[0], &[1.0, 2.0]), layer(phases[1], &[5.0, 6.0])].concat();
        let (source, out) = (folder.with(&format!("{name}.caffemodel"), bytes), folder.file(&format!("{name}.onnx")));
        blob(&["convert", &source, "--input", "data=1,2", "-o", &out]).ok();
        let file = Checkpoint::open(&out).expect("opens");
        let [only] = file.entries() else { panic!("{name}: {:?}", file.entries()) };
        assert_eq!(wide(&file, only.name()), [5.0, 6.0], "{name}");
        blob(&["verify", &out, "--against", &source]).ok().stdout_has("its graph made again of the net");
    }
    // In one net, Caffe copies both into the first, and the second has none.
    let bytes = [layer(1, &[1.0, 2.0]), layer(1, &[5.0, 6.0])].concat();
    let source = folder.with("both.caffemodel", bytes);
    let line = ["convert", &source, "--input", "data=1,2", "-o", &folder.file("both.onnx")];
    blob(&line).refused("another layer with weights has this name, too");
}

/// Caffe refuses such a file; where the factor was divided out, the file is another one.
#[test]
fn a_batchnorm_of_a_caffemodel_needs_its_factor() {
    let text = r#"layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { bias_term: false } }
        layer { name: "b" type: "BatchNorm" bottom: "c" top: "c" }"#;
    let net = Topology::prototxt("net.prototxt", text.as_bytes()).expect("reads");
    let all: [(&str, &[usize], &[f32]); 3] =
        [("c/0", &[2, 1, 1, 1], &[1.0, 2.0]), ("b/0", &[2], &[3.0, 4.0]), ("b/1", &[2], &[5.0, 6.0])];
    let (fold, refused) = Fold::of(&Bound::new(net.net(), &file(Format::CaffeModel, &all)));
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert!(refused[0].contains("needs \"b/2\", its factor, which the file does not have"), "{refused:?}");
    assert_eq!(fold.count(), 0);
    assert_eq!(Fold::of(&Bound::new(net.net(), &file(Format::Npz, &all))).0.count(), 1);
}

/// NVCaffe's f16 are folded, and written as a file that Caffe reads like the source.
#[test]
fn halves_of_nvcaffe_are_folded_into_a_file_of_caffe() {
    let folder = Folder::new();
    let (source, out) = (case("nv_f16.caffemodel"), folder.file("folded.caffemodel"));
    blob(&["fold", &source, "-o", &out]).ok();
    let (before, after) = (Checkpoint::open(data(&source)).expect("opens"), Checkpoint::open(&out).expect("opens"));
    let [c, mean, variance, factor, scale, shift] =
        ["c/0", "b/0", "b/1", "b/2", "s/0", "s/1"].map(|name| wide(&before, name));
    let (weight, bias) = (wide(&after, "c/0"), wide(&after, "c/1"));
    let near =
        |ours: f64, theirs: f64| assert!((ours - theirs).abs() <= 2e-3 * (1.0 + theirs.abs()), "{ours} {theirs}");
    for o in 0..scale.len() {
        let by = scale[o] / (variance[o] / factor[0] + 1e-5).sqrt();
        let row = c.len() / scale.len();
        (o * row..(o + 1) * row).for_each(|at| near(weight[at], c[at] * by));
        near(bias[o], shift[o] - mean[o] / factor[0] * by);
    }
}

#[test]
fn a_factor_of_zero_is_a_loss_that_is_told() {
    let folder = Folder::new();
    let bytes = fs::read(data(&case("scale_other_size.caffemodel"))).expect("readable");
    // The factor's value stands at byte 65, as `blob ls` says.
    let zeroed = folder.with("zero.caffemodel", crate::support::changed(&bytes, 65, &[0; 4]));
    let (_, said) = made(&folder, "convert", &zeroed, &["--names", "torch"]);
    assert!(said.contains("became 0: the layer's factor is 0"), "{said}");
    run(&folder, "convert", &zeroed, &["--names", "torch", "--strict"]).refused("would lose values");
}

#[test]
fn refusals_of_one_kind_are_one_line_and_name_a_few_readers() {
    let folder = Folder::new();
    let conv =
        "layer { name: \"a\" type: \"Convolution\" bottom: \"data\" top: \"a\" convolution_param { num_output: 3 } }\n";
    for count in [50, 500] {
        let net = folder.with(
            "wide.prototxt",
            conv.to_owned()
                + &(0..count)
                    .map(|n: usize| {
                        format!("layer {{ name: \"b{n}\" type: \"BatchNorm\" bottom: \"a\" top: \"b{n}\" }}\n")
                    })
                    .collect::<String>(),
        );
        let ran = run(&folder, "fold", &case("legacy_ip.caffemodel"), &["--net", &net]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.len() < 2000, "{}", ran.err);
    }
    let train = conv.replace("convolution_param", "include { phase: TRAIN } convolution_param");
    let norm = "layer { name: \"ba\" type: \"BatchNorm\" bottom: \"a\" top: \"ba\" }\n";
    let net = folder.with("train.prototxt", train + norm);
    let ran = run(&folder, "fold", &case("legacy_ip.caffemodel"), &["--net", &net]);
    assert!(ran.err.contains("--net deploy.prototxt"), "{}", ran.err);
}

#[test]
fn an_empty_tensor_of_huge_extents_is_permuted() {
    let folder = Folder::new();
    let header = r#"{"w":{"dtype":"F32","shape":[0,1099511627776,4194303],"data_offsets":[0,0]}}"#;
    let source = folder.with("empty.safetensors", safetensors(header, &[]));
    let out = folder.file("out.safetensors");
    for perm in ["0,2,1", "1,0,2"] {
        let status = command(&["transpose", &source, "w", "--perm", perm, "-o", &out, "--force"]).status();
        assert!(status.expect("runs").code().is_some_and(|code| code < 3));
    }
}

#[test]
fn a_gamma_behind_an_identity_is_that_of_its_layer() {
    let json = br#"{"nodes": [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "g", "inputs": []},
        {"op": "identity", "name": "i", "inputs": [[1, 0, 0]]}, {"op": "Cast", "name": "k", "inputs": [[2, 0, 0]]},
        {"op": "null", "name": "beta", "inputs": []}, {"op": "null", "name": "m", "inputs": []},
        {"op": "null", "name": "v", "inputs": []},
        {"op": "BatchNorm", "name": "b", "attrs": {"fix_gamma": "TRUE"},
         "inputs": [[0, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 1], [6, 0, 1]]}], "heads": [[7, 0, 0]]}"#;
    let net = Symbol::from_bytes("s.json", json).expect("reads").net;
    let norm = net.layers().last().expect("a layer");
    assert_eq!((norm.tensor(Role::Weight), norm.fix_gamma, norm.bottoms.len()), (Some("g"), true, 1));
}

#[test]
fn rows_that_are_reshaped_for_a_convolution_are_told() {
    let folder = Folder::new();
    let net = folder.with(
        "generator.prototxt",
        "layer { name: \"c\" type: \"Convolution\" bottom: \"data\" top: \"c\" convolution_param { num_output: 4 } }
         layer { name: \"f\" type: \"InnerProduct\" bottom: \"c\" top: \"f\" inner_product_param { num_output: 2 } }
         layer { name: \"r\" type: \"Reshape\" bottom: \"f\" top: \"r\" }
         layer { name: \"up\" type: \"Deconvolution\" bottom: \"r\" top: \"up\" convolution_param { num_output: 1 } }",
    );
    let more = ["--fc-from", "4,2,3", "--net", &*net];
    let (_, said) = made(&folder, "convert", &case("fc_channels.caffemodel"), &more);
    assert!(said.contains("the rows of \"f/0\" stay, and become channels"), "{said}");
}

#[test]
fn a_receipt_that_lies_of_empty_tensors_is_a_finding() {
    let empty = |shape: &str| {
        let header = format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}}}"#);
        safetensors(&header, &[])
    };
    let folded = json!({"layer": "bn", "scale_layer": null, "weight": "w", "bias": "b", "has_bias": false,
        "side": "first", "eps": 1.0, "mean": null, "variance": null, "factor": null, "gamma": null, "fix_gamma": false, "beta": null,
        "scale": null, "shift": null});
    let turned = json!({"gates": [], "second_biases": [], "transposed": ["w"], "slopes": []});
    let huge = "[1099511627776,0]";
    for (shape, name, settings) in [
        (huge, "fold", json!({"layers": [folded]})),
        ("[0,4611686018427387904]", "torch-layout", turned),
        (huge, "layout", json!({"to": "hwio", "matrices": true})),
        (huge, "permute", json!({"tensors": ["w"], "axes": [1, 0]})),
    ] {
        let lie = json!({"schema": "blob.receipt/1", "transforms": [{"name": name, "settings": settings}]});
        let ours = with_receipt(&empty(shape), &lie, "", None);
        let (ours, theirs) =
            (open("x.safetensors", &ours).expect("opens"), open("y.safetensors", &empty(shape)).expect("opens"));
        // Either a finding or nothing: no panic, and no terabytes.
        verify::against(&ours, &theirs, &Silent, &mut |_| {}).expect("compared");
    }
}

/// Only the operator knows the number of outputs: the second one is no input of the net.
#[test]
fn a_later_output_of_an_operator_is_its_own() {
    let text = r#"{"nodes": [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "c_weight", "inputs": []},
        {"op": "Convolution", "name": "c", "attrs": {"num_filter": "6", "kernel": "(1, 1)"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
        {"op": "SliceChannel", "name": "s", "attrs": {"num_outputs": "2"}, "inputs": [[2, 0, 0]]},
        {"op": "null", "name": "d_weight", "inputs": []},
        {"op": "Convolution", "name": "d", "attrs": {"num_filter": "2", "kernel": "(1, 1)"}, "inputs": [[3, 1, 0], [4, 0, 0]]}],
        "heads": [[5, 0, 0], [3, 0, 0]]}"#;
    let net = Topology::symbol("net-symbol.json", text.as_bytes()).expect("reads");
    let slice = &net.net().layers()[1];
    assert_eq!(
        (slice.tops.len(), net.net().writer(net.net().layers()[2].bottoms[0]).map(|layer| &*layer.name)),
        (2, Some("s"))
    );
    let source = file(
        Format::MxnetList,
        &[("arg:c_weight", &[6, 3, 1, 1], &[1.0; 18]), ("arg:d_weight", &[2, 3, 1, 1], &[1.0; 6])],
    );
    let options = Options::new(Format::Safetensors).follow(Arc::new(net)).transform(Rgb);
    let plan = plan(&source, &options, &Place::Stdout).unwrap_or_else(|e| panic!("{e}"));
    let changed = plan.tensors().iter().filter(|tensor| !tensor.changes.is_empty()).map(|tensor| &*tensor.spec.name);
    assert_eq!(changed.collect::<Vec<_>>(), ["arg:c_weight"]);
}

/// Each BatchNorm of a chain is refused by name.
#[test]
fn refusals_do_linear_work_in_linear_memory() {
    let layer = |i: usize| {
        let bottom = if i == 0 { "data" } else { "y" };
        let blob = len(7, &[shape(&[1]), floats(&[1.0])].concat());
        let texts = [(1, &*format!("b{i}")), (2, "BatchNorm"), (3, bottom), (4, "y")];
        let texts = texts.map(|(field, text)| len(field, text.as_bytes())).concat();
        len(100, &[texts, blob.clone(), blob.clone(), blob].concat())
    };
    let broken = broken_bounds(
        "a chain of BatchNorms",
        |size: usize| (0..size / layer(10_000).len()).flat_map(layer).collect(),
        |net| {
            let bytes: Arc<[u8]> = net.into();
            let options = OpenOptions::new().from(Format::CaffeModel);
            let source = options.open_source("net.caffemodel", Box::new(Bytes(bytes))).expect("opens");
            let mut recipe = Recipe::new("", "-").step(Step::fold());
            recipe.target.format = Some(Format::Npz);
            let why =
                recipe.plan_of(&[&source], None, &Registry::default()).map(drop).expect_err("refused").to_string();
            assert!(why.contains("no BatchNorm can be folded") && why.len() < 4096, "{why}");
        },
    );
    assert_eq!(broken, [""; 0]);
}
