//! `blob fold`, and what `blob convert` does about names, BatchNorms and fixed gammas: files, messages, JSON, exit codes.

use std::fs;

use blob_io::Checkpoint;

use crate::support::blob;

const RESNET: &str = "caffe/forward/resnet.caffemodel";
const BLOCK: &str = "mxnet/forward/block-0000.params";

/// The names of a file's tensors.
fn names(path: &str) -> Vec<String> {
    Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}")).names().map(str::to_owned).collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    fn with(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        path
    }
}

#[test]
fn a_caffemodel_is_folded_by_its_own_layers() {
    let folder = Folder::new();
    let out = folder.path("out.caffemodel");
    let fold = blob(&["fold", RESNET, "-o", &out]);
    assert_eq!(fold.code, Some(0), "{fold:?}");
    assert!(fold.err.contains("3 BatchNorms folded"), "{fold:?}");
    assert!(fold.err.contains("the largest change of a weight is 1.5198 in res_branch2b/0"), "{fold:?}");
    assert!(
        fold.err.contains(r#"warning: fold: "conv1/1" is new; the layer of "conv1/0" must be said to have a bias"#)
    );
    let kept =
        ["conv1", "res_branch2a", "res_branch2b"].iter().flat_map(|layer| [format!("{layer}/0"), format!("{layer}/1")]);
    assert_eq!(names(&out), kept.collect::<Vec<_>>());
    let safetensors = folder.path("out.safetensors");
    let json = blob(&["fold", "--json", RESNET, "-o", &safetensors]).json()[0].clone();
    assert_eq!((&json["layers"], &json["changed"]), (&3.into(), &"res_branch2b/0".into()));
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(3 * 3 + 5));
    // The receipt does it again.
    let verify = blob(&["verify", &safetensors, "--against", RESNET]);
    assert_eq!(verify.code, Some(0), "{verify:?}");
    assert_eq!(blob(&["fold", RESNET, "-o", &safetensors]).code, Some(2));
    let dry = blob(&["fold", "-n", RESNET, "-o", &folder.path("dry.npz")]);
    assert!(
        dry.code == Some(0)
            && dry.err.contains("would fold 3 BatchNorms")
            && !fs::exists(folder.path("dry.npz")).unwrap()
    );
}

#[test]
fn a_net_beside_the_weights_is_found_or_named() {
    let folder = Folder::new();
    let out = folder.path("out.params");
    let fold = blob(&["fold", BLOCK, "-o", &out]);
    assert!(fold.code == Some(0) && fold.err.contains("4 BatchNorms folded"), "{fold:?}");
    assert!(names(&out).contains(&"arg:conv0_bias".to_owned()) && !names(&out).iter().any(|name| name.contains("bn")));
    // Weights without their net, and the prototxt that says it.
    let npz = folder.path("raw.npz");
    assert_eq!(blob(&["convert", RESNET, "-o", &npz]).code, Some(0));
    let lacking = blob(&["fold", &npz, "-o", &folder.path("a.npz")]);
    assert!(lacking.code == Some(2) && lacking.err.contains("--net deploy.prototxt"), "{lacking:?}");
    let fold = blob(&["fold", &npz, "--net", "caffe/forward/resnet.prototxt", "-o", &folder.path("a.npz")]);
    assert!(fold.code == Some(0) && fold.err.contains("3 BatchNorms folded"), "{fold:?}");
    let broken = folder.with("broken.prototxt", "layer {\n  name \"conv1\" }");
    let refused = blob(&["fold", &npz, "--net", &broken, "-o", &folder.path("b.npz")]);
    assert!(refused.code == Some(2) && refused.err.contains("line 2, column 8"), "{refused:?}");
    let other = folder.with("other-symbol.json", r#"{"nodes": []}"#);
    let none = blob(&["fold", BLOCK, "--symbol", &other, "-o", &folder.path("c.params")]);
    assert!(
        none.code == Some(2) && none.err.contains("it is in the file, and the net has no such BatchNorm"),
        "{none:?}"
    );
}

#[test]
fn what_stays_is_told_with_its_reason() {
    let folder = Folder::new();
    let text = fs::read_to_string(crate::support::data("caffe/forward/resnet.prototxt")).expect("readable");
    let more =
        "layer { name: \"beside\" type: \"Pooling\" bottom: \"conv1\" top: \"beside\" }\nlayer {\n  name: \"bn_conv1\"";
    let net = folder.with("net.prototxt", &text.replacen("layer {\n  name: \"bn_conv1\"", more, 1));
    let out = folder.path("out.npz");
    let fold = blob(&["fold", RESNET, "--net", &net, "-o", &out]);
    assert_eq!(fold.code, Some(0), "{fold:?}");
    assert!(
        fold.err.contains(
            r#"warning: "bn_conv1" is not folded: it is not the only one that reads "conv1": "beside" would"#
        ),
        "{fold:?}"
    );
    assert!(fold.err.contains("2 BatchNorms folded") && names(&out).contains(&"bn_conv1/0".to_owned()));
    let only =
        folder.with("only.prototxt", "layer { name: \"bn_conv1\" type: \"BatchNorm\" bottom: \"x\" top: \"x\" }");
    let none = blob(&["fold", RESNET, "--net", &only, "-o", &folder.path("none.npz")]);
    assert!(
        none.code == Some(2)
            && none.err.contains("no BatchNorm can be folded: \"bn_conv1\" is not folded: it reads the net's input"),
        "{none:?}"
    );
}

#[test]
fn names_imply_what_belongs_to_them() {
    let folder = Folder::new();
    let torch = folder.path("torch.safetensors");
    let convert = blob(&["convert", "--json", RESNET, "--names", "torch", "-o", &torch]);
    assert_eq!(convert.code, Some(0), "{convert:?}");
    assert!(names(&torch).contains(&"bn_conv1.running_var".to_owned()) && names(&torch).len() == 15);
    assert_eq!(blob(&["verify", &torch, "--against", RESNET]).code, Some(0));
    let replay = blob(&["verify", "--replay", &torch]).out;
    let steps = ["squeeze-legacy", "bn {", "names {"];
    assert!(
        steps.iter().enumerate().all(|(at, step)| replay.contains(&format!("step {} of 3: {step}", at + 1))),
        "{replay}"
    );
    // Each can be set alone.
    let raw = folder.path("raw.npz");
    assert_eq!(blob(&["convert", RESNET, "--names", "torch", "--bn", "raw", "-o", &raw]).code, Some(0));
    assert!(names(&raw).contains(&"bn_conv1.factor".to_owned()));
    let folded = folder.path("bn.npz");
    assert_eq!(blob(&["convert", RESNET, "--bn", "fold-factor", "-o", &folded]).code, Some(0));
    assert!(names(&folded).contains(&"bn_conv1/0".to_owned()) && !names(&folded).contains(&"bn_conv1/2".to_owned()));
    // Names by a file.
    let map = folder.with("map.txt", "bn_*/* $1.bn$2\n");
    let mapped = folder.path("mapped.npz");
    assert_eq!(blob(&["convert", RESNET, "--names", &map, "-o", &mapped]).code, Some(0));
    assert!(names(&mapped).contains(&"conv1.bn0".to_owned()));
    let wrong = folder.with("wrong.txt", "bn_*/* one\n");
    let clash = blob(&["convert", RESNET, "--names", &wrong, "-o", &folder.path("x.npz")]);
    assert!(clash.code == Some(2) && clash.err.contains(r#"would all be called "one""#), "{clash:?}");
    assert!(
        blob(&["convert", RESNET, "--names", "pytorch", "-o", &folder.path("y.npz")])
            .err
            .contains("--names is raw, torch, or a file")
    );
}

#[test]
fn a_missing_symbol_is_told() {
    let folder = Folder::new();
    let alone = folder.path("alone-0000.params");
    fs::copy(crate::support::data(BLOCK), &alone).expect("copied");
    let convert = blob(&["convert", &alone, "--names", "torch", "-o", &folder.path("a.npz")]);
    assert!(
        convert.code == Some(0) && convert.err.contains("no symbol says which of them MXNet takes as 1"),
        "{convert:?}"
    );
    let beside = blob(&["convert", BLOCK, "--names", "torch", "-o", &folder.path("b.npz")]);
    assert!(beside.code == Some(0) && beside.err.contains("fix-gamma: gamma of 1 layer set to 1"), "{beside:?}");
    let off = blob(&["convert", BLOCK, "--names", "torch", "--fix-gamma", "off", "-o", &folder.path("c.npz")]);
    assert!(off.code == Some(0) && !off.err.contains("fix-gamma"), "{off:?}");
}

/// Caffe wants as many tensors as a layer has.
#[test]
fn a_factor_is_1_in_a_file_of_caffes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.caffemodel");
    let net = "caffe/forward/mobilenet.caffemodel";
    let done = blob(&["convert", net, "--bn", "fold-factor", "-o", out.to_str().expect("a path")]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let shown = blob(&["show", out.to_str().expect("a path"), "conv_dw_bn/2"]);
    assert!(shown.out.contains("[1"), "{shown:?}");
    let before = blob(&["ls", net]).out.lines().count();
    assert_eq!(names(out.to_str().expect("a path")).len(), before);
}

#[test]
fn a_net_of_another_file_is_told_or_refused() {
    let folder = Folder::new();
    let symbol = "mxnet/forward/block-symbol.json";
    let out = folder.path("out.npz");
    let other = folder.with("other-symbol.json", r#"{"nodes": []}"#);
    let told = blob(&["convert", BLOCK, "--names", "torch", "--symbol", &other, "-o", &out]);
    let gammas = r#"fix-gamma: "arg:bn0_gamma", "arg:bn1_gamma""#;
    assert!(told.code == Some(0) && told.err.contains(gammas) && told.err.contains("stay as stored"), "{told:?}");
    let told = blob(&["convert", RESNET, "--names", "torch", "--symbol", symbol, "-o", &folder.path("a.npz")]);
    assert!(told.code == Some(0) && told.err.contains(r#"bn: "bn_conv1", "#), "{told:?}");
    // What is asked for by name is not passed over.
    let refused = blob(&["convert", BLOCK, "--fix-gamma", "auto", "--symbol", &other, "-o", &folder.path("b.npz")]);
    assert!(refused.code == Some(2) && refused.err.contains("no BatchNorm of the net has its gamma"), "{refused:?}");
    let refused = blob(&["convert", RESNET, "--bn", "fold-factor", "--symbol", symbol, "-o", &folder.path("b.npz")]);
    assert!(refused.code == Some(2) && refused.err.contains("no BatchNorm of the net has its factor"), "{refused:?}");
    let fits = blob(&["convert", BLOCK, "--fix-gamma", "auto", "--symbol", symbol, "-o", &folder.path("c.npz")]);
    assert!(fits.code == Some(0) && !fits.err.contains("stay as stored"), "{fits:?}");
}

#[test]
fn two_layers_of_one_name_are_refused() {
    let folder = Folder::new();
    let text = r#"layer { name: "b" type: "BatchNorm" bottom: "x" top: "x" }
        layer { name: "b" type: "Scale" bottom: "x" top: "x" }"#;
    let net = folder.with("net.prototxt", text);
    for command in [&["convert", "--names", "torch"][..], &["fold"]] {
        let out = folder.path("out.npz");
        let refused = blob(&[command, &[RESNET, "--net", &net, "-o", &out]].concat());
        let both = r#""b/0" is claimed by two layers called "b", BatchNorm and Scale"#;
        assert!(refused.code == Some(2) && refused.err.contains(both), "{refused:?}");
    }
    // One for training and one for use are one layer.
    let net = folder.with("phases.prototxt", &text.replace("Scale", "BatchNorm"));
    let told = blob(&["convert", RESNET, "--names", "torch", "--net", &net, "-o", &folder.path("b.npz")]);
    assert_eq!(told.code, Some(0), "{told:?}");
}

/// A receipt can ask for any gamma to be 1, and then has a file that is so: who says that it is right, is told.
#[test]
fn a_gamma_that_only_the_receipt_fixes_is_told() {
    let folder = Folder::new();
    let text = fs::read_to_string(crate::support::data("mxnet/forward/block-symbol.json")).expect("readable");
    let lie = folder.with("lie-symbol.json", &text.replace("\"fix_gamma\": \"False\"", "\"fix_gamma\": \"True\""));
    let (honest, lying) = (folder.path("honest.safetensors"), folder.path("lying.npz"));
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
    let alone = folder.path("alone-0000.params");
    fs::copy(crate::support::data(BLOCK), &alone).expect("copied");
    let verify = blob(&["verify", &lying, "--against", &alone]);
    assert!(
        verify.code == Some(0) && verify.out.contains("as the receipt alone says: \"arg:bn0_gamma\""),
        "{verify:?}"
    );
}
