//! `blob fold`, and what `blob convert` does about names, BatchNorms and fixed gammas: files, messages, JSON, exit codes.

use std::fs;

use blob_io::Checkpoint;

use crate::support::{Folder, blob};

const RESNET: &str = "caffe/forward/resnet.caffemodel";
const BLOCK: &str = "mxnet/forward/block-0000.params";

/// The names of a file's tensors.
fn names(path: &str) -> Vec<String> {
    Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}")).names().map(str::to_owned).collect()
}

#[test]
fn a_caffemodel_is_folded_by_its_own_layers() {
    let folder = Folder::new();
    let out = folder.file("out.caffemodel");
    let fold = blob(&["fold", RESNET, "-o", &out]).ok();
    assert!(fold.err.contains("3 BatchNorms folded"), "{fold:?}");
    assert!(fold.err.contains("the largest change of a weight is 1.5198 in res_branch2b/0"), "{fold:?}");
    assert!(
        fold.err.contains(r#"warning: fold: "conv1/1" is new; the layer of "conv1/0" must be said to have a bias"#)
    );
    let kept =
        ["conv1", "res_branch2a", "res_branch2b"].iter().flat_map(|layer| [format!("{layer}/0"), format!("{layer}/1")]);
    assert_eq!(names(&out), kept.collect::<Vec<_>>());
    let safetensors = folder.file("out.safetensors");
    let json = blob(&["fold", "--json", RESNET, "-o", &safetensors]).json()[0].clone();
    assert_eq!((&json["layers"], &json["changed"]), (&3.into(), &"res_branch2b/0".into()));
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(3 * 3 + 5));
    // The receipt does it again.
    blob(&["verify", &safetensors, "--against", RESNET]).ok();
    assert_eq!(blob(&["fold", RESNET, "-o", &safetensors]).code, Some(2));
    let dry = blob(&["fold", "-n", RESNET, "-o", &folder.file("dry.npz")]);
    assert!(
        dry.code == Some(0)
            && dry.err.contains("would fold 3 BatchNorms")
            && !fs::exists(folder.file("dry.npz")).unwrap()
    );
}

#[test]
fn a_net_beside_the_weights_is_found_or_named() {
    let folder = Folder::new();
    let out = folder.file("out.params");
    blob(&["fold", BLOCK, "-o", &out]).ok().tells("4 BatchNorms folded");
    assert!(names(&out).contains(&"arg:conv0_bias".to_owned()) && !names(&out).iter().any(|name| name.contains("bn")));
    // Weights without their net, and the prototxt that says it.
    let npz = folder.file("raw.npz");
    assert_eq!(blob(&["convert", RESNET, "-o", &npz]).code, Some(0));
    blob(&["fold", &npz, "-o", &folder.file("a.npz")]).refused("--net deploy.prototxt");
    blob(&["fold", &npz, "--net", "caffe/forward/resnet.prototxt", "-o", &folder.file("a.npz")])
        .ok()
        .tells("3 BatchNorms folded");
    let broken = folder.with("broken.prototxt", "layer {\n  name \"conv1\" }");
    blob(&["fold", &npz, "--net", &broken, "-o", &folder.file("b.npz")]).refused("line 2, column 8");
    let other = folder.with("other-symbol.json", r#"{"nodes": []}"#);
    blob(&["fold", BLOCK, "--symbol", &other, "-o", &folder.file("c.params")])
        .refused("it is in the file, and the net has no such BatchNorm");
}

#[test]
fn what_stays_is_told_with_its_reason() {
    let folder = Folder::new();
    let text = fs::read_to_string(crate::support::data("caffe/forward/resnet.prototxt")).expect("readable");
    let more =
        "layer { name: \"beside\" type: \"Pooling\" bottom: \"conv1\" top: \"beside\" }\nlayer {\n  name: \"bn_conv1\"";
    let net = folder.with("net.prototxt", text.replacen("layer {\n  name: \"bn_conv1\"", more, 1));
    let out = folder.file("out.npz");
    let fold = blob(&["fold", RESNET, "--net", &net, "-o", &out]).ok();
    assert!(
        fold.err.contains(
            r#"warning: "bn_conv1" is not folded: it is not the only one that reads "conv1": "beside" would"#
        ),
        "{fold:?}"
    );
    assert!(fold.err.contains("2 BatchNorms folded") && names(&out).contains(&"bn_conv1/0".to_owned()));
    let only =
        folder.with("only.prototxt", "layer { name: \"bn_conv1\" type: \"BatchNorm\" bottom: \"x\" top: \"x\" }");
    blob(&["fold", RESNET, "--net", &only, "-o", &folder.file("none.npz")])
        .refused("no BatchNorm can be folded: \"bn_conv1\" is not folded: it reads the net's input");
}

#[test]
fn names_imply_what_belongs_to_them() {
    let folder = Folder::new();
    let torch = folder.file("torch.safetensors");
    blob(&["convert", "--json", RESNET, "--names", "torch", "-o", &torch]).ok();
    assert!(names(&torch).contains(&"bn_conv1.running_var".to_owned()) && names(&torch).len() == 15);
    assert_eq!(blob(&["verify", &torch, "--against", RESNET]).code, Some(0));
    let replay = blob(&["verify", "--replay", &torch]).out;
    let steps = ["squeeze-legacy", "bn {", "names {"];
    assert!(
        steps.iter().enumerate().all(|(at, step)| replay.contains(&format!("step {} of 3: {step}", at + 1))),
        "{replay}"
    );
    // Each can be set alone.
    let raw = folder.file("raw.npz");
    assert_eq!(blob(&["convert", RESNET, "--names", "torch", "--bn", "raw", "-o", &raw]).code, Some(0));
    assert!(names(&raw).contains(&"bn_conv1.factor".to_owned()));
    let folded = folder.file("bn.npz");
    assert_eq!(blob(&["convert", RESNET, "--bn", "fold-factor", "-o", &folded]).code, Some(0));
    assert!(names(&folded).contains(&"bn_conv1/0".to_owned()) && !names(&folded).contains(&"bn_conv1/2".to_owned()));
    // Names by a file.
    let map = folder.with("map.txt", "bn_*/* $1.bn$2\n");
    let mapped = folder.file("mapped.npz");
    assert_eq!(blob(&["convert", RESNET, "--names", &map, "-o", &mapped]).code, Some(0));
    assert!(names(&mapped).contains(&"conv1.bn0".to_owned()));
    let wrong = folder.with("wrong.txt", "bn_*/* one\n");
    blob(&["convert", RESNET, "--names", &wrong, "-o", &folder.file("x.npz")]).refused(r#"would all be called "one""#);
    assert!(
        blob(&["convert", RESNET, "--names", "pytorch", "-o", &folder.file("y.npz")])
            .err
            .contains("--names is raw, torch, or a file")
    );
}

#[test]
fn a_missing_symbol_is_told() {
    let folder = Folder::new();
    let alone = folder.file("alone-0000.params");
    fs::copy(crate::support::data(BLOCK), &alone).expect("copied");
    blob(&["convert", &alone, "--names", "torch", "-o", &folder.file("a.npz")])
        .ok()
        .tells("no symbol says which of them MXNet takes as 1");
    blob(&["convert", BLOCK, "--names", "torch", "-o", &folder.file("b.npz")])
        .ok()
        .tells("fix-gamma: gamma of 1 layer set to 1");
    let off = blob(&["convert", BLOCK, "--names", "torch", "--fix-gamma", "off", "-o", &folder.file("c.npz")]);
    assert!(off.code == Some(0) && !off.err.contains("fix-gamma"), "{off:?}");
}

/// Caffe wants as many tensors as a layer has.
#[test]
fn a_factor_is_1_in_a_file_of_caffes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.caffemodel");
    let net = "caffe/forward/mobilenet.caffemodel";
    blob(&["convert", net, "--bn", "fold-factor", "-o", out.to_str().expect("a path")]).ok();
    let shown = blob(&["show", out.to_str().expect("a path"), "conv_dw_bn/2"]);
    assert!(shown.out.contains("[1"), "{shown:?}");
    let before = blob(&["ls", net]).out.lines().count();
    assert_eq!(names(out.to_str().expect("a path")).len(), before);
}

#[test]
fn a_net_of_another_file_is_told_or_refused() {
    let folder = Folder::new();
    let symbol = "mxnet/forward/block-symbol.json";
    let out = folder.file("out.npz");
    let other = folder.with("other-symbol.json", r#"{"nodes": []}"#);
    let told = blob(&["convert", BLOCK, "--names", "torch", "--symbol", &other, "-o", &out]);
    let gammas = r#"fix-gamma: "arg:bn0_gamma", "arg:bn1_gamma""#;
    assert!(told.code == Some(0) && told.err.contains(gammas) && told.err.contains("stay as stored"), "{told:?}");
    blob(&["convert", RESNET, "--names", "torch", "--symbol", symbol, "-o", &folder.file("a.npz")])
        .ok()
        .tells(r#"bn: "bn_conv1", "#);
    // What is asked for by name is not passed over.
    blob(&["convert", BLOCK, "--fix-gamma", "auto", "--symbol", &other, "-o", &folder.file("b.npz")])
        .refused("no BatchNorm of the net has its gamma");
    blob(&["convert", RESNET, "--bn", "fold-factor", "--symbol", symbol, "-o", &folder.file("b.npz")])
        .refused("no BatchNorm of the net has its factor");
    let fits = blob(&["convert", BLOCK, "--fix-gamma", "auto", "--symbol", symbol, "-o", &folder.file("c.npz")]);
    assert!(fits.code == Some(0) && !fits.err.contains("stay as stored"), "{fits:?}");
}

#[test]
fn two_layers_of_one_name_are_refused() {
    let folder = Folder::new();
    let text = r#"layer { name: "b" type: "BatchNorm" bottom: "x" top: "x" }
        layer { name: "b" type: "Scale" bottom: "x" top: "x" }"#;
    let net = folder.with("net.prototxt", text);
    for command in [&["convert", "--names", "torch"][..], &["fold"]] {
        let out = folder.file("out.npz");
        let refused = blob(&[command, &[RESNET, "--net", &net, "-o", &out]].concat());
        let both = r#""b/0" is claimed by two layers called "b", BatchNorm and Scale"#;
        assert!(refused.code == Some(2) && refused.err.contains(both), "{refused:?}");
    }
    // One for training and one for use are one layer.
    let net = folder.with("phases.prototxt", text.replace("Scale", "BatchNorm"));
    blob(&["convert", RESNET, "--names", "torch", "--net", &net, "-o", &folder.file("b.npz")]).ok();
}

/// A receipt can ask for any gamma to be 1, and then has a file that is so: who says that it is right, is told.
#[test]
fn a_gamma_that_only_the_receipt_fixes_is_told() {
    let folder = Folder::new();
    let text = fs::read_to_string(crate::support::data("mxnet/forward/block-symbol.json")).expect("readable");
    let lie = folder.with("lie-symbol.json", text.replace("\"fix_gamma\": \"False\"", "\"fix_gamma\": \"True\""));
    let (honest, lying) = (folder.file("honest.safetensors"), folder.file("lying.npz"));
    let gamma = |symbol: &str, out: &str| {
        let ran = blob(&["convert", BLOCK, "--fix-gamma", "auto", "--symbol", symbol, "-o", out]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let verify = blob(&["verify", out, "--against", BLOCK]);
        let json = blob(&["verify", "--json", out, "--against", BLOCK]).json().remove(0);
        assert_eq!((verify.code, json["ok"].as_bool()), (Some(0), Some(true)), "{verify:?}");
        (verify.out, json["redone"][0].clone())
    };
    let (out, json) = gamma("mxnet/forward/block-symbol.json", &honest);
    let words = "fix-gamma gives 1 tensor other values, as the receipt and block-symbol.json say: \"arg:bn0_gamma\"\n";
    assert!(out.contains(words), "{out}");
    assert_eq!(
        (&json["transform"], &json["tensors"], &json["first"][0]),
        (&"fix-gamma".into(), &1.into(), &"arg:bn0_gamma".into())
    );
    let (out, json) = gamma(&lie, &lying);
    assert!(
        out.contains("other values, as the receipt says, and block-symbol.json does not: \"arg:bn0_gamma\", "),
        "{out}"
    );
    assert!(
        json["tensors"].as_u64() > Some(1) && json["said_by"] == "the receipt says, and block-symbol.json does not"
    );
    // Without the symbol beside the source, there is only the receipt.
    let alone = folder.file("alone-0000.params");
    fs::copy(crate::support::data(BLOCK), &alone).expect("copied");
    let verify = blob(&["verify", &lying, "--against", &alone]);
    assert!(
        verify.code == Some(0) && verify.out.contains("as the receipt alone says: \"arg:bn0_gamma\""),
        "{verify:?}"
    );
}
