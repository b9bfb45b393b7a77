//! Maps of names, long ones too, and names that a receipt had no room for. PyTorch's names are rows of
//! `cases/steps.txt`.

use blob_convert::transform::{Bound, Eps, Names, Transform};
use blob_convert::{Options, Place, plan};
use blob_io::Format;
use serde_json::Value;

use crate::channels_last::{DATA, following, params, symbol, told};
use crate::support::floats::{SAFETENSORS, file, run, values};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, blob, data, open};

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
            // The second conversion hands on the first receipt.
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
        plan(&source, &Options::new(SAFETENSORS).transform(map), &Place::Stdout).expect("plans").tensors().to_vec();
    let new: Vec<&str> = planned.iter().map(|tensor| &*tensor.spec.name).collect();
    assert_eq!(new, ["c1.weight", "c12.w1$", "spaced name", "branch1_res2.weight", "left", "dollar"]);
    assert_eq!(planned[0].changes[0].to_string(), r#"was "conv1/0""#);
    let options = Options::new(SAFETENSORS).transform(Names::from_file(text, names).expect("a map"));
    assert_eq!(
        plan(&source, &options, &Place::Stdout).expect("plans").notes(),
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
    let planned = plan(&source, &Options::new(SAFETENSORS).transform(map), &Place::Stdout).expect("plans");
    let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
    assert_eq!(new, ["star.0", "new.50", "new.1"]);
}

const CONV: &str = "kernel=(1, 1); num_filter=3";

#[test]
fn tensors_of_one_layer_are_in_one_module_of_torch() {
    for (own, named) in [
        (["a_weight", "b_bias", "b_weight", "a_bias"], ["a.weight", "a.bias", "b.weight", "b.bias"]),
        (["x_weight", "x_bias", "y_weight", "y_bias"], ["x.weight", "x.bias", "y.weight", "y.bias"]),
        (["x_weight", "y_bias", "z_weight", "z_bias"], ["a.weight", "a.bias", "z.weight", "z.bias"]),
        (["w", "x_bias", "z_weight", "v"], ["x.weight", "x.bias", "z.weight", "z.bias"]),
        // The second layer has the first one's module by name alone.
        (["x_weight", "y_bias", "a_weight", "a_bias"], ["a.weight", "a.bias", "b.weight", "b.bias"]),
    ] {
        let arg: Vec<String> = own.iter().map(|name| format!("arg:{name}")).collect();
        let dims: [&[usize]; 4] = [&[3, 3, 1, 1], &[3], &[3, 3, 1, 1], &[3]];
        let all: Vec<(&str, &[usize])> = arg.iter().zip(dims).map(|(name, dims)| (&**name, dims)).collect();
        let [a, b, c, d] = own.map(|name| ("null", name, "", &[][..]));
        let (first, second) = (("Convolution", "a", CONV, &[0, 1, 2][..]), ("Convolution", "b", CONV, &[3, 4, 5][..]));
        let (net, source) = (symbol(&[DATA, a, b, first, c, d, second], &[6]), params(&all));
        let names = Names::torch(Some(&Bound::new(net.net(), &source)), &source);
        let planned = plan(&source, &following(&net).transform(names), &Place::Stdout).expect("plans");
        let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
        assert_eq!(new, named);
    }
}

#[test]
fn statistics_of_a_batchnorm_are_in_the_module_of_its_gamma() {
    let norm = "eps=1e-5; fix_gamma=False";
    let own =
        ["p_gamma", "p_beta", "q_moving_mean", "q_moving_var", "q_gamma", "q_beta", "p_moving_mean", "p_moving_var"];
    let null = |at: usize| ("null", own[at], "", &[][..]);
    let mut nodes = vec![DATA, null(0), null(1), null(2), null(3), ("BatchNorm", "p", norm, &[0, 1, 2, 3, 4][..])];
    nodes.extend([null(4), null(5), null(6), null(7), ("BatchNorm", "q", norm, &[5, 6, 7, 8, 9])]);
    let net = symbol(&nodes, &[10]);
    let stored: Vec<String> =
        own.iter().map(|name| format!("{}:{name}", if name.contains("moving") { "aux" } else { "arg" })).collect();
    let all: Vec<(&str, &[usize])> = stored.iter().map(|name| (&**name, &[3][..])).collect();
    let source = params(&all);
    let names = Names::torch(Some(&Bound::new(net.net(), &source)), &source);
    let made = run(&source, &following(&net).transform(names));
    for (torch, stored) in [
        ("p.weight", "arg:p_gamma"),
        ("p.bias", "arg:p_beta"),
        ("p.running_mean", "aux:q_moving_mean"),
        ("p.running_var", "aux:q_moving_var"),
        ("q.weight", "arg:q_gamma"),
        ("q.running_mean", "aux:p_moving_mean"),
    ] {
        assert_eq!(values(&made, torch), values(&source, stored), "{torch}");
    }
}

/// A later rename is the user's, and no way back takes it away in silence.
#[test]
fn names_given_after_torchs_are_not_taken_back() {
    let folder = Folder::new();
    let source = data("caffe/forward/lenet.caffemodel");
    let source = source.to_str().unwrap();
    let (torch, other, back) =
        (folder.file("torch.safetensors"), folder.file("other.safetensors"), folder.file("back.caffemodel"));
    blob(&["convert", source, "--names", "torch", "-o", &torch]).ok();
    let why = "was renamed after it got PyTorch's names";
    let swap = folder.with("swap.txt", "conv1.* conv2.$1\nconv2.* conv1.$1\n");
    let map = "stem.* conv1/$1\nconv1.* conv1/$1\nconv2.* conv2/$1\nip1.* ip1/$1\nip2.* ip2/$1\n";
    let map =
        ["weight", "bias"].iter().enumerate().map(|(i, name)| map.replace('*', name).replace("$1", &i.to_string()));
    let map = folder.with("map.txt", map.collect::<String>());
    for renamed in [["--sed", "s/^conv1\\./stem./"], ["--map", &*swap]] {
        blob(&["rename", &torch, renamed[0], renamed[1], "-o", &other, "--force"]).ok();
        blob(&["convert", &other, "-o", &back, "--force"]).refused(why);
        blob(&["convert", &other, "--into", source, "-o", &back, "--force"]).refused(why);
        // Names that the user gives count.
        blob(&["convert", &other, "--names", &map, "-o", &back, "--force"]).ok();
    }
    // Renamed there and back, the names are PyTorch's again.
    blob(&["rename", &torch, "--sed", "s/^conv1\\./stem./", "-o", &other, "--force"]).ok();
    let again = folder.file("again.safetensors");
    blob(&["rename", &other, "--sed", "s/^stem\\./conv1./", "-o", &again]).ok();
    blob(&["convert", &again, "-o", &back, "--force"]).ok();
    blob(&["diff", &back, source]).ok();
}

#[test]
fn the_eps_of_every_normalisation_is_told() {
    let nodes: &[(&str, &str, &str, &[usize])] = &[
        DATA,
        ("null", "a_gamma", "", &[]),
        ("null", "a_beta", "", &[]),
        ("InstanceNorm", "a", "", &[0, 1, 2]),
        ("null", "b_gamma", "", &[]),
        ("null", "b_beta", "", &[]),
        ("LayerNorm", "b", "eps=1e-12", &[3, 4, 5]),
        ("null", "c_gamma", "", &[]),
        ("null", "c_beta", "", &[]),
        ("GroupNorm", "c", "num_groups=1", &[6, 7, 8]),
        ("null", "d_gamma", "", &[]),
        ("null", "d_beta", "", &[]),
        ("null", "d_moving_mean", "", &[]),
        ("null", "d_moving_var", "", &[]),
        ("BatchNorm", "d", "fix_gamma=False", &[9, 10, 11, 12, 13]),
    ];
    let stored = nodes.iter().filter(|node| node.0 == "null" && node.1 != "data");
    let stored: Vec<String> = stored.map(|node| format!("arg:{}", node.1)).collect();
    let all: Vec<(&str, &[usize])> = stored.iter().map(|name| (&**name, &[3][..])).collect();
    let (net, source) = (symbol(nodes, &[14]), params(&all));
    let bound = || Bound::new(net.net(), &source);
    let names = || Names::torch(Some(&bound()), &source);
    let by_input = [
        "names: eps 1e-3, not torch's 1e-5, for \"a\": give it to the modules\n",
        "names: eps 1e-12, not torch's 1e-5, for \"b\": give it to the modules\n",
    ];
    let said = told(&source, &following(&net).transform(names()));
    by_input.iter().for_each(|why| assert!(said.contains(why), "{said}"));
    assert!(
        said.contains("for \"d\": give it to the modules, or --eps 1e-5 here") && !said.contains("\"c\":"),
        "{said}"
    );
    // The step moves stored variances alone.
    let eps = Eps::of(&bound(), 1e-5);
    let said = told(&source, &following(&net).transform(eps).transform(names().after_eps(1e-5)));
    by_input.iter().for_each(|why| assert!(said.contains(why), "{said}"));
    assert!(!said.contains("for \"d\"") && said.contains("the variances of 1 layer are for an eps of 1e-5"), "{said}");
    assert!(
        said.contains("eps: layers that compute the variance of their input keep their eps: \"a\", \"b\"\n"),
        "{said}"
    );
    let said = told(&source, &following(&net).transform(Eps::of(&bound(), 1e-3)));
    assert!(said.contains("eps: nothing is changed: no stored variance is for another eps than 1e-3"), "{said}");
}
