//! PyTorch's names, maps of names, and the order of values that PyTorch's names imply.

use std::sync::Arc;

use blob_convert::transform::{BatchNorm, Bound, Layout, Names, Topology, TorchLayout, Transform};
use blob_convert::{Options, Target, plan};
use blob_io::Format;
use blob_io::caffe::prototxt;
use serde_json::Value;

use crate::folds::{SAFETENSORS, file, net, run, value};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, blob, data, open};

#[test]
fn a_clash_of_names_lists_all_of_them() {
    let source =
        file(Format::Npz, &[("a", &[1], &[1.0]), ("b", &[1], &[2.0]), ("c", &[1], &[3.0]), ("d", &[1], &[4.0])]);
    let names = Names::from_file("a x\nb x\nc y\nd y\n", source.names()).expect("a map");
    let refused =
        plan(&source, &Options::new(SAFETENSORS).transform(names), &Target::Stdout).expect_err("clashes").to_string();
    assert!(
        refused
            .ends_with(r#"does not allow names: "a", "b" would all be called "x"; "c", "d" would all be called "y""#),
        "{refused}"
    );
}

/// A receipt in which the map of names gave way to other lists leads nowhere, which is said.
#[test]
fn names_that_the_receipt_had_no_room_for_do_not_come_back_in_silence() {
    let folder = Folder::new();
    for (golden, out) in [("mxnet/forward/block-0000.params", "params"), ("caffe/net/v1.caffemodel", "caffemodel")] {
        let (torch, back) = (folder.file("torch.safetensors"), folder.file(&format!("back.{out}")));
        blob(&["convert", data(golden).to_str().unwrap(), "--names", "torch", "-o", &torch, "--force"]).ok();
        let bytes = std::fs::read(&torch).unwrap();
        let mut cut = receipt(&open("torch.safetensors", &bytes).unwrap());
        let steps = cut["transforms"].as_array_mut().unwrap();
        steps.iter_mut().for_each(|step| step["settings"] = Value::Null);
        let without_settings = cut.clone();
        cut["transforms"] = Value::Null;
        for receipt in [without_settings, cut] {
            folder.with("cut.safetensors", with_receipt(&bytes, &receipt, "", None));
            // The second conversion hands on what the first receipt says.
            let (cut, more) = (folder.file("cut.safetensors"), folder.file("more.npz"));
            blob(&["convert", &cut, "--dtype", "f64", "-o", &more, "--force"]).ok();
            for file in [&cut, &more] {
                let ran = blob(&["convert", file, "-o", &back, "--force"]);
                if out == "params" {
                    ran.ok()
                        .stderr_has("warning: the names that an earlier conversion gave stay: its receipt had no room");
                    blob(&["convert", file, "-o", &back, "--strict", "--force"]).refused("would not come out as it is");
                } else {
                    ran.refused("its receipt does not say what they were before");
                }
            }
        }
    }
}

#[test]
fn a_map_has_globs_with_captures() {
    let names = ["conv1/0", "conv12/1", "a b", "res2/branch1/0", "left", "$"];
    let text = "# names\n\nconv*/0\tc$1.weight\nconv*/*  c$1.w$2$$\r\na b\tspaced name\n*/*/0 $2_$1.weight\nconv* never\n$ dollar\n";
    let source = file(Format::Npz, &names.map(|name| (name, &[1][..], &[0.0][..])));
    let map = Names::from_file(text, names).expect("a map");
    let planned =
        plan(&source, &Options::new(SAFETENSORS).transform(map), &Target::Stdout).expect("plans").tensors().to_vec();
    let new: Vec<&str> = planned.iter().map(|tensor| &*tensor.spec.name).collect();
    assert_eq!(new, ["c1.weight", "c12.w1$", "spaced name", "branch1_res2.weight", "left", "dollar"]);
    assert_eq!(planned[0].changes[0].to_string(), r#"was "conv1/0""#);
    let options = Options::new(SAFETENSORS).transform(Names::from_file(text, names).expect("a map"));
    assert_eq!(
        plan(&source, &options, &Target::Stdout).expect("plans").notes(),
        ["names: line 7, \"conv*\", fits no tensor"]
    );
    let wrong = Names::from_file("a\na b c\n*a $2\n* $x\n", names).expect_err("wrong");
    let lines = [
        "line 1: expected an old name and a new one, found 1 names",
        "line 2: ",
        "line 3: expected $1 to $1",
        "line 4: ",
    ];
    assert!(lines.iter().all(|line| wrong.contains(line)), "{wrong}");
}

#[test]
fn torchs_names_follow_the_layers() {
    let text = r#"
        layer { name: "c" type: "Convolution" bottom: "data" top: "c" }
        layer { name: "c/bn" type: "BatchNorm" bottom: "c" top: "c" }
        layer { name: "c/scale" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
        layer { name: "alone" type: "Scale" bottom: "c" top: "d" }
        layer { name: "e" type: "Embed" bottom: "w" top: "e" }
        layer { name: "p" type: "PReLU" bottom: "d" top: "d" }
        layer { name: "odd" type: "Fork" bottom: "d" top: "f" }"#;
    let names =
        ["c/0", "c/1", "c/bn/0", "c/bn/1", "c/bn/2", "c/scale/0", "c/scale/1", "alone/0", "e/0", "p/0", "odd/0"];
    let source = file(Format::Npz, &names.map(|name| (name, &[1][..], &[1.0][..])));
    let net = net(text);
    let bound = Bound::new(&net, &source);
    let options =
        Options::new(SAFETENSORS).transform(BatchNorm::of(&bound)).transform(Names::torch(Some(&bound), &source));
    let planned = plan(&source, &options, &Target::Stdout).expect("plans");
    let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
    let expected = [
        "c.weight",
        "c.bias",
        "c/bn.running_mean",
        "c/bn.running_var",
        "c/bn.weight",
        "c/bn.bias",
        "alone.weight",
        "e.weight",
        "p.weight",
        "odd/0",
    ];
    assert_eq!(new, expected);
    let notes = planned.notes();
    for said in
        ["names: 1 Scale merged with their BatchNorm, found by topology", "names: 1 of 11 stay as they are: \"odd/0\""]
    {
        assert!(notes.contains(&said.to_owned()), "{notes:?}");
    }
    // Without tops and bottoms the names decide, and a note says so.
    let bare: String = text.replace("bottom: \"c\"", "").replace("top: \"c\"", "");
    let bare = prototxt("bare", bare.as_bytes()).expect("a net");
    let bound = Bound::new(&bare, &source);
    let planned =
        plan(&source, &Options::new(SAFETENSORS).transform(Names::torch(Some(&bound), &source)), &Target::Stdout)
            .expect("plans")
            .notes()
            .to_vec();
    assert_eq!(planned[0], "names: 1 Scale merged with their BatchNorm, found by name");
    // Without a net no layer is guessed.
    let planned = plan(&source, &Options::new(SAFETENSORS).transform(Names::torch(None, &source)), &Target::Stdout)
        .expect("plans")
        .notes()
        .to_vec();
    assert_eq!(
        planned,
        [
            "names: 11 of 11 stay as they are: \"c/0\", \"c/1\", \"c/bn/0\", \"c/bn/1\", \"c/bn/2\" and 6 more; no net says what they are, and --net can name one"
        ]
    );
}

/// A Scale on another axis, or with one factor for all channels, is not part of a BatchNorm.
#[test]
fn a_scale_that_is_not_by_channel_keeps_a_module_of_its_own() {
    for param in ["axis: 2", "num_axes: 0", "num_axes: -1"] {
        let net = net(&format!(
            r#"layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "x" }}
               layer {{ name: "s" type: "Scale" bottom: "x" top: "x" scale_param {{ {param} }} }}"#
        ));
        let names = ["bn/0", "bn/1", "bn/2", "s/0"];
        let source = file(Format::Npz, &names.map(|name| (name, &[1][..], &[1.0][..])));
        let bound = Bound::new(&net, &source);
        let options = Options::new(SAFETENSORS).transform(Names::torch(Some(&bound), &source));
        let planned = plan(&source, &options, &Target::Stdout).expect("plans");
        let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
        assert_eq!(new[3], "s.weight", "{param}: {new:?}");
    }
}

#[test]
fn mxnets_names_go_by_their_endings() {
    let pairs = [
        ("arg:conv0_weight", "conv0.weight"),
        ("arg:bn_gamma", "bn.weight"),
        ("arg:bn_beta", "bn.bias"),
        ("aux:bn_moving_mean", "bn.running_mean"),
        ("aux:bn_running_var", "bn.running_var"),
        ("features.0.gamma", "features.0.weight"),
        ("arg:lstm0_l1_i2h_weight", "lstm0.weight_ih_l1"),
        ("arg:lstm0_r0_h2h_bias", "lstm0.bias_hh_l0_reverse"),
        ("arg:scale", "arg:scale"),
    ];
    let source = file(Format::MxnetList, &pairs.map(|(old, _)| (old, &[1][..], &[1.0][..])));
    let planned = plan(&source, &Options::new(SAFETENSORS).transform(Names::torch(None, &source)), &Target::Stdout)
        .expect("plans")
        .tensors()
        .to_vec();
    for ((_, expected), tensor) in pairs.iter().zip(planned) {
        assert_eq!(tensor.spec.name, *expected);
    }
}

#[test]
fn fully_connected_weights_become_output_by_input() {
    let text = r#"layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { transpose: true } }
        layer { name: "p" type: "PReLU" bottom: "y" top: "z" prelu_param { channel_shared: true } }"#;
    let net = Arc::new(Topology::prototxt("net.prototxt", text.as_bytes()).expect("a net"));
    let source = file(Format::Npz, &[("ip/0", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ("p/0", &[], &[0.5])]);
    let options = Options::new(SAFETENSORS).transform(TorchLayout::of(&Bound::new(net.net(), &source)));
    let options = options.transform(Layout::Oihw).follow(net);
    let planned = plan(&source, &options, &Target::Stdout).expect("plans");
    assert_eq!(planned.tensors()[0].spec.shape.dims(), [3, 2]);
    assert_eq!(planned.tensors()[1].spec.shape.dims(), [1]);
    assert_eq!(value(&run(&source, &options), "ip/0"), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

/// This would take minutes if each line were tried for each name.
#[test]
fn a_long_map_is_read_at_once() {
    const LINES: usize = 60_000;
    let old = |i: usize| format!("layer{i}/weight");
    let names: Vec<String> = (0..LINES).map(old).collect();
    let mut text: String = (0..LINES).rev().map(|i| format!("{} new.{i}\n", old(i))).collect();
    // The first line that matches decides, with or without a star.
    text.insert_str(0, "layer7*/weight star.$1\n");
    text += "layer5*/weight never.$1\nlayer1/weight never\n";
    let begun = std::time::Instant::now();
    let map = Names::from_file(&text, names.iter().map(String::as_str)).expect("a map");
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(map.settings()["map"].as_object().map(|map| map.len()), Some(LINES));
    assert!(seconds < 20.0, "{seconds} s");
    let source = file(
        Format::Npz,
        &[("layer70/weight", &[1], &[0.0]), ("layer50/weight", &[1], &[0.0]), ("layer1/weight", &[1], &[0.0])],
    );
    let planned = plan(&source, &Options::new(SAFETENSORS).transform(map), &Target::Stdout).expect("plans");
    let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
    assert_eq!(new, ["star.0", "new.50", "new.1"]);
}

/// An LSTM that exposes its states reads two of them besides; only another input is static.
#[test]
fn the_states_of_an_lstm_are_no_static_input() {
    let layer = |bottoms: &str, exposes: bool| {
        format!(
            "layer {{ name: \"l\" type: \"LSTM\" {bottoms} top: \"y\" recurrent_param {{ num_output: 1 expose_hidden: {exposes} }} }}"
        )
    };
    let states = "bottom: \"x\" bottom: \"cont\" bottom: \"h\" bottom: \"c\"";
    let three = ["l/0", "l/1", "l/2"];
    let four = ["l/0", "l/1", "l/2", "l/3"];
    let torch = ["l.weight_ih_l0", "l.bias_ih_l0", "l.weight_hh_l0"];
    for (bottoms, exposes, names, expected) in [
        (states, true, &three[..], &torch[..]),
        ("bottom: \"x\" bottom: \"cont\"", false, &three, &torch),
        // PyTorch has no static input, and its names say none.
        (&*format!("{states} bottom: \"s\""), true, &four, &four),
        ("bottom: \"x\" bottom: \"cont\" bottom: \"s\"", false, &four, &four),
    ] {
        let net = net(&layer(bottoms, exposes));
        let tensors: Vec<(&str, &[usize], &[f32])> =
            names.iter().map(|name| (*name, &[4][..], &[0.0; 4][..])).collect();
        let source = file(Format::Npz, &tensors);
        let options = Options::new(SAFETENSORS).transform(Names::torch(Some(&Bound::new(&net, &source)), &source));
        let planned = plan(&source, &options, &Target::Stdout).expect("plans");
        let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
        assert_eq!(new, expected, "{bottoms}");
    }
}
