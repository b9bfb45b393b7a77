//! Conversions that follow a net: which one counts, and the results of the converted weights, against OpenCV and MXNet.
//!
//! Files whose order and names mislead. The layers here are naive, in f64, and share no code with the transforms.

use std::fs;

use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::support::floats::wide;
use crate::support::receipt::receipt;
use crate::support::{Folder, Ran, blob, data};

const CASES: &str = "findings/conversions";

/// The path of a case, as an argument.
pub(crate) fn case(file: &str) -> String {
    format!("{CASES}/{file}")
}

/// Runs a conversion to safetensors.
pub(crate) fn run(folder: &Folder, command: &str, source: &str, more: &[&str]) -> Ran {
    let out = folder.file("out.safetensors");
    let mut args = vec![command, source, "-o", &*out, "--force"];
    args.extend(more);
    blob(&args)
}

/// A conversion's output, and its text on standard error.
pub(crate) fn made(folder: &Folder, command: &str, source: &str, more: &[&str]) -> (Checkpoint, String) {
    let ran = run(folder, command, source, more).ok();
    (Checkpoint::open(folder.file("out.safetensors")).expect("opens"), ran.err)
}

pub(crate) fn dims(file: &Checkpoint, name: &str) -> Vec<usize> {
    file.entry(name).expect("there").shape().dims().to_vec()
}

/// The images of a golden as (channels, positions), and the output, image after image.
fn golden(stem: &str) -> (Vec<Map>, Vec<f64>) {
    let file = Checkpoint::open(data(&case(&format!("{stem}.golden.npz")))).expect("opens");
    let [count, channels, ..] = dims(&file, "data")[..] else { panic!("images") };
    let values = wide(&file, "data");
    let images = values.chunks_exact(values.len() / count);
    (images.map(|image| Map { channels, values: image.to_vec() }).collect(), wide(&file, "output"))
}

/// Channels × positions.
#[derive(Clone)]
struct Map {
    channels: usize,
    values: Vec<f64>,
}

impl Map {
    fn positions(&self) -> usize {
        self.values.len() / self.channels
    }

    /// A 1×1 convolution; `weight(o, i)` is the weight of an output and an input.
    fn mixed(&self, outputs: usize, weight: impl Fn(usize, usize) -> f64) -> Self {
        let n = self.positions();
        let places = (0..outputs).flat_map(|o| (0..n).map(move |p| (o, p)));
        let values = places.map(|(o, p)| (0..self.channels).map(|i| weight(o, i) * self.values[i * n + p]).sum());
        Self { channels: outputs, values: values.collect() }
    }

    fn by_channel(mut self, value: impl Fn(usize, f64) -> f64) -> Self {
        let n = self.positions();
        self.values.iter_mut().enumerate().for_each(|(at, x)| *x = value(at / n, *x));
        self
    }

    fn reversed(&self) -> Self {
        let n = self.positions();
        let values = self.values.chunks_exact(n).rev().flatten().copied();
        Self { channels: self.channels, values: values.collect() }
    }

    /// Positions outside, channels inside, as TensorFlow flattens.
    fn channels_last(&self) -> Vec<f64> {
        let n = self.positions();
        (0..n).flat_map(|p| (0..self.channels).map(move |c| self.values[c * n + p])).collect()
    }
}

#[track_caller]
fn near(ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let off = ours.iter().zip(theirs).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    assert!(off <= 1e-5 * largest, "off by {off} of {largest}");
}

/// The output of z, then a, two 1×1 convolutions.
fn two_convs(file: &Checkpoint, x: &Map) -> Vec<f64> {
    let (z, a) = (wide(file, "z/0"), wide(file, "a/0"));
    x.mixed(3, |o, i| z[o * 3 + i]).mixed(4, |o, i| a[o * 3 + i]).values
}

#[test]
fn the_net_that_the_user_names_counts_for_rgb() {
    let folder = Folder::new();
    let (x, theirs) = golden("two_convs");
    let net = data(&case("two_convs.prototxt"));
    let net = net.to_str().expect("UTF-8");
    for source in ["two_convs.caffemodel.h5", "two_convs.caffemodel"] {
        let (file, said) = made(&folder, "convert", &case(source), &["--rgb", "--net", net]);
        near(&two_convs(&file, &x[0].reversed()), &theirs);
        assert!(said.contains("the net in two_convs.prototxt is followed"), "{said}");
        let digest = blake3::hash(&fs::read(net).expect("readable")).to_hex().to_string();
        let followed = json!({"from": "option", "name": "two_convs.prototxt", "blake3": digest});
        assert_eq!(receipt(&file)["transforms"], json!([{"name": "rgb", "settings": {"net": followed}}]));
        // The replay needs the same net.
        let (out, source) = (folder.file("out.safetensors"), case(source));
        let said = blob(&["verify", &out, "--against", &source]).no().out;
        assert!(said.contains("--net can name it"), "{said}");
        blob(&["verify", &out, "--against", &source, "--net", net]).ok();
        let other = folder.with("two_convs.prototxt", fs::read_to_string(net).expect("readable") + "\n");
        blob(&["verify", &out, "--against", &source, "--net", &other]).no();
        let json = blob(&["convert", &source, "-o", &out, "--force", "--rgb", "--net", net, "--json"]).ok();
        assert_eq!(json.json()[0]["net"], followed);
    }
    // Without an option the file's own net counts.
    let (file, said) = made(&folder, "convert", &case("two_convs.caffemodel"), &["--rgb"]);
    near(&two_convs(&file, &x[0].reversed()), &theirs);
    assert!(said.contains("the net in the file itself is followed"), "{said}");
    blob(&["verify", &folder.file("out.safetensors"), "--against", &case("two_convs.caffemodel")]).ok();
}

#[test]
fn an_image_that_reaches_the_output_elsewhere_is_not_reversed() {
    let folder = Folder::new();
    let refused = run(&folder, "convert", &case("residual_rgb.caffemodel"), &["--rgb"]);
    refused.refused("\"e\" is a Eltwise and reads the net's input");
}

#[test]
fn eps_is_a_fact_of_a_conversion_for_torch() {
    let folder = Folder::new();
    let (x, theirs) = golden("capitals");
    let output = |file: &Checkpoint, eps: f64| {
        let of = |name: &str| wide(file, name);
        let (w, gamma, beta) = (of("c.weight"), of("b.weight"), of("b.bias"));
        let (mean, variance) = (of("b.running_mean"), of("b.running_var"));
        let y = x[0].mixed(3, |o, i| w[o * 2 + i]);
        y.by_channel(|c, y| (y - mean[c]) / (variance[c] + eps).sqrt() * gamma[c] + beta[c]).values
    };
    let source = case("capitals-0000.params");
    let (file, said) = made(&folder, "convert", &source, &["--names", "torch"]);
    near(&output(&file, 1e-3), &theirs);
    assert!(said.contains("names: eps 1e-3, not torch's 1e-5, for \"b\""), "{said}");
    assert!(said.contains("the net in capitals-symbol.json, which lies beside the file, is followed"), "{said}");
    let eps = |file: &Checkpoint| {
        let transforms = receipt(file)["transforms"].as_array().expect("a list").clone();
        transforms.iter().find(|step| step["name"] == "names").expect("names")["settings"]["eps"].clone()
    };
    assert_eq!(eps(&file), json!([{"eps": 1e-3, "modules": ["b"]}]));
    let out = folder.file("out.safetensors");
    let replayed = blob(&["verify", &out, "--replay"]).ok().out;
    assert!(replayed.contains("{\"eps\":[{\"eps\":0.001,\"modules\":[\"b\"]}]"), "{replayed}");
    let (file, said) = made(&folder, "convert", &source, &["--names", "torch", "--eps", "1e-5"]);
    near(&output(&file, 1e-5), &theirs);
    assert!(!said.contains("not torch's"), "{said}");
    assert_eq!(eps(&file), Value::Null);
    blob(&["verify", &out, "--against", &source]).ok();
    // A variance that would become negative.
    let refused = run(&folder, "convert", &source, &["--names", "torch", "--eps", "100"]);
    refused.refused("and would be -9");
}

#[test]
fn the_eps_that_a_receipt_states_counts_and_no_other() {
    let folder = Folder::new();
    let symbol = data(&case("capitals-symbol.json"));
    let [torch, raw, out] = ["torch.safetensors", "raw.npz", "out.safetensors"].map(|name| folder.file(name));
    blob(&["convert", &case("capitals-0000.params"), "--names", "torch", "-o", &torch]).ok();
    let was = wide(&Checkpoint::open(&torch).expect("opens"), "b.running_var");
    for eps in [1e-5, 1e-2] {
        blob(&["convert", &torch, "--eps", &eps.to_string(), "--names", "raw", "-o", &out, "--force"]).ok();
        let is = wide(&Checkpoint::open(&out).expect("opens"), "b.running_var");
        near(&is, &was.iter().map(|variance| variance + 1e-3 - eps).collect::<Vec<_>>());
        blob(&["verify", &out, "--against", &torch]).ok();
    }
    // The same tensors under MXNet's names again, and nets of this eps and of another one.
    let back = "c.weight c_weight\nb.weight b_gamma\nb.bias b_beta\nb.running_mean b_moving_mean\nb.running_var b_moving_var\n";
    blob(&["convert", &torch, "--names", &folder.with("back.txt", back), "-o", &raw]).ok();
    let text = std::fs::read_to_string(&symbol).expect("readable");
    let other = folder.with("other-symbol.json", text.replace("\"FALSE\"", "\"FALSE\", \"eps\": \"0.5\""));
    let symbol = symbol.to_str().expect("UTF-8");
    for step in [&["--eps", "1e-5"][..], &["--fold"], &["--names", "torch"]] {
        let run = |net: &str| blob(&[&["convert", &raw, "--symbol", net, "-o", &out, "--force"], step].concat());
        run(&other).refused("its receipt says that the eps of \"b\" is 1e-3, and other-symbol.json says 5e-1");
        run(symbol).ok();
    }
    // A net whose BatchNorms the file does not have.
    let net = folder.with("net.prototxt", "layer { name: \"q\" type: \"BatchNorm\" bottom: \"x\" top: \"y\" }");
    let weights = ["convert", "--eps", "1e-4", "--net", &net, "-o", &out, "--force", &case("k1x5.npz")];
    blob(&weights).refused("eps: no BatchNorm of the net has its variance in the file");
}

/// MXNet finds the symbol by the weights' name, and adds the eps that the symbol says.
#[test]
fn variances_for_another_eps_do_not_lie_beside_a_symbol_with_the_old_one() {
    let folder = Folder::new();
    let source = case("capitals-0000.params");
    let case_symbol = data(&case("capitals-symbol.json"));
    let symbol = fs::read_to_string(&case_symbol).expect("readable");
    let case_symbol = case_symbol.to_string_lossy().into_owned();
    let symbol_path = folder.with("net-symbol.json", &symbol);
    let eps = |out: &str| blob(&["convert", &source, "-o", &folder.file(out), "--force", "--eps", "1e-5"]);
    for out in ["net-0001.params", "net.params"] {
        eps(out).refused("says an eps of 1e-3 for \"b\", and the variances would be for 1e-5");
    }
    eps("other-0001.params").ok();
    // The receipt says the eps, and MXNet does not load the symbol with such a file.
    ["net.safetensors", "net-0001.npz"].into_iter().for_each(|out| drop(eps(out).ok()));
    // Under PyTorch's names, the file is none of the symbol's.
    let torch = ["--eps", "1e-5", "--names", "torch", "--force"];
    blob(&[&["convert", &source, "-o", &folder.file("net.safetensors")], &torch[..]].concat()).ok();
    // So is one of which another tensor alone has another name; the way through other files changes nothing.
    let same = folder.with("same.txt", "arg:c_weight arg:d_weight\n");
    let moved = folder.file("moved.safetensors");
    blob(&["convert", &source, "-o", &moved, "--force", "--eps", "1e-5"]).ok();
    let [torch, out] = ["torch.safetensors", "net-0001.params"].map(|name| folder.file(name));
    blob(&["convert", &moved, "--symbol", &case_symbol, "--names", "torch", "-o", &torch]).ok();
    for ways in [
        &["convert", &source, "--eps", "1e-5", "--names", &same][..],
        &["convert", &moved],
        &["convert", &moved, "--names", &same],
        &["convert", &torch],
        &["merge", &moved],
        &["rename", &moved, "--map", &same],
    ] {
        let refused = blob(&[ways, &["-o", &out, "--force"][..]].concat());
        refused.refused("says an eps of 1e-3 for \"b\", and the variances would be for 1e-5");
    }
    blob(&["convert", &moved, "-o", &folder.file("other-0002.params")]).ok();
    let back = folder.file("back.safetensors");
    blob(&["convert", &moved, "--symbol", &case_symbol, "--eps", "1e-3", "-o", &back]).ok();
    blob(&["convert", &back, "-o", &out, "--force"]).ok();
    // A symbol with the new eps is right, and one of another net is no match.
    let moved = symbol.replace("\"FALSE\"", "\"FALSE\", \"eps\": \"1e-05\"");
    fs::write(&symbol_path, moved).expect("written");
    eps("net-0001.params").ok();
    fs::write(&symbol_path, symbol.replace("moving_var", "other_var")).expect("written");
    eps("net-0001.params").ok();
    fs::write(&symbol_path, "no symbol").expect("written");
    eps("net-0001.params").ok();
}

/// Caffe divides mean and variance by a factor, which a part of a file may lack.
#[test]
fn variances_that_nothing_divides_are_not_moved() {
    let folder = Folder::new();
    let source = "caffe/forward/resnet.caffemodel";
    let [part, out, net] = ["part.safetensors", "out.safetensors", "part.caffemodel"].map(|name| folder.file(name));
    let all = |args: &[&str]| blob(&[args, &["-o", &out, "--force"][..]].concat());
    for chosen in [&["--exclude", "bn_conv1/2"][..], &["--only", "bn_conv1/0", "--only", "bn_conv1/1"]] {
        all(&[&["convert", source, "--eps", "1e-3"], chosen].concat())
            .refused("\"bn_conv1/1\" is divided by \"bn_conv1/2\", which is not selected");
    }
    all(&["convert", source, "--eps", "1e-3", "--bn", "fold-factor", "--exclude", "bn_conv1"]).ok();
    // In two steps, by a receipt, and by a net of Caffe's without one.
    let prototxt = data("caffe/forward/resnet.prototxt");
    let prototxt = prototxt.to_str().expect("UTF-8");
    blob(&["convert", source, "--exclude", "bn_conv1/2", "-o", &part]).ok();
    all(&["convert", &part, "--eps", "1e-3", "--net", prototxt])
        .refused("\"bn_conv1/1\" is divided by \"bn_conv1/2\", which an earlier conversion left out");
    let written = ["convert", source, "--exclude", "bn_conv1/2", "-o", &net, "--force"];
    let words = "Caffe takes no BatchNorm without its factor, which is left out: \"bn_conv1/2\"";
    blob(&[&written[..], &["--strict"]].concat()).refused(words);
    assert!(blob(&written).ok().err.contains(words));
    for step in [&["--names", "torch"][..], &["--eps", "1e-3"], &["--bn", "fold-factor"]] {
        all(&[&["convert", &net], step].concat()).refused("is divided by \"bn_conv1/2\", which the file lacks");
    }
}

/// The weights of the NHWC convolution at (o, i, y, x): MXNet stores (o, y, x, i).
fn nhwc() -> impl Fn(usize, usize, usize, usize) -> f64 {
    let file = Checkpoint::open(data(&case("nhwc-0000.params"))).expect("opens");
    let values = wide(&file, "arg:c_weight");
    move |o, i, y, x| values[((o * 3 + y) * 3 + x) * 3 + i]
}

#[test]
fn the_layout_of_a_weight_is_that_of_its_net() {
    let (folder, weight) = (Folder::new(), nhwc());
    let source = case("nhwc-0000.params");
    let all = || (0..4).flat_map(|o| (0..3).flat_map(move |i| (0..9).map(move |at| (o, i, at / 3, at % 3))));
    let (file, _) = made(&folder, "convert", &source, &["--names", "torch"]);
    assert_eq!(dims(&file, "c.weight"), [4, 3, 3, 3]);
    let torch = wide(&file, "c.weight");
    all().for_each(|(o, i, y, x)| assert_eq!(torch[((o * 3 + i) * 3 + y) * 3 + x], weight(o, i, y, x)));
    blob(&["verify", &folder.file("out.safetensors"), "--against", &source]).ok();
    for names in [&["--layout", "hwio"][..], &["--layout", "hwio", "--names", "torch"]] {
        let (file, _) = made(&folder, "convert", &source, names);
        let name = file.names().next().expect("one").to_owned();
        assert_eq!(dims(&file, &name), [3, 3, 3, 4]);
        let keras = wide(&file, &name);
        all().for_each(|(o, i, y, x)| assert_eq!(keras[((y * 3 + x) * 3 + i) * 4 + o], weight(o, i, y, x)));
    }
    let (file, _) = made(&folder, "convert", &source, &["--layout", "oihw"]);
    assert_eq!(wide(&file, "arg:c_weight"), torch);
    let (file, _) = made(&folder, "convert", &source, &["--layout", "ohwi"]);
    let same = wide(&file, "arg:c_weight");
    all().for_each(|(o, i, y, x)| assert_eq!(same[((o * 3 + y) * 3 + x) * 3 + i], weight(o, i, y, x)));
    // The input channels are the last axis.
    let (file, _) = made(&folder, "convert", &source, &["--rgb", "--layout", "oihw"]);
    let rgb = wide(&file, "arg:c_weight");
    all().for_each(|(o, i, y, x)| assert_eq!(rgb[((o * 3 + i) * 3 + y) * 3 + x], weight(o, 2 - i, y, x)));
}

/// TensorFlow's result for a 1×1 convolution and a matrix of inputs × outputs, with `between` for each flattened
/// value.
fn keras(file: &Checkpoint, x: &Map, outputs: usize, between: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let (w, f) = (wide(file, "c/0"), wide(file, "f/0"));
    let [1, 1, inputs, channels] = dims(file, "c/0")[..] else { panic!("{:?}", dims(file, "c/0")) };
    assert_eq!((inputs, dims(file, "f/0")[1]), (x.channels, outputs));
    let flat = x.mixed(channels, |o, i| w[i * channels + o]).channels_last();
    let flat: Vec<f64> = flat.into_iter().enumerate().map(|(at, value)| between(at, value)).collect();
    (0..outputs).map(|o| flat.iter().enumerate().map(|(at, value)| value * f[at * outputs + o]).sum()).collect()
}

#[test]
fn a_dense_layer_computes_in_tensorflow_what_caffe_does() {
    let folder = Folder::new();
    let (x, theirs) = golden("fc_channels");
    let source = case("fc_channels.caffemodel");
    for right in ["4,2,3", "f=4,2,3", "f/0=4,2,3"] {
        let (file, _) = made(&folder, "convert", &source, &["--layout", "hwio", "--fc-from", right]);
        near(&keras(&file, &x[0], 2, |_, value| value), &theirs);
        blob(&["verify", &folder.file("out.safetensors"), "--against", &source]).ok();
    }
    for wrong in ["2,3,4", "3,2,4", "24,1,1", "8,3,1", "f=2,3,4"] {
        let refused = run(&folder, "convert", &source, &["--layout", "hwio", "--fc-from", wrong]);
        refused.refused("reads 4 channels of the net, not ");
    }
    for turned in ["4,3,2", "4,6,1", "4,1,6", "f=4,3,2", "f/0=4,6,1"] {
        let refused = run(&folder, "convert", &source, &["--layout", "hwio", "--fc-from", turned]);
        refused.refused("reads 4,2,3 (C,H,W) of the net, not 4,");
    }
    run(&folder, "convert", &source, &["--fc-from", "g=4,2,3"]).refused("\"g\" is no inner product of the net");
}

#[test]
fn layers_between_a_flattening_and_a_dense_layer_are_permuted_too() {
    let folder = Folder::new();
    let (x, theirs) = golden("flatten_bn");
    let source = case("flatten_bn.caffemodel");
    let more = ["--layout", "hwio", "--fc-from", "2,3,4", "--bn", "fold-factor"];
    let (file, _) = made(&folder, "convert", &source, &more);
    let [mean, variance, scale, shift] = ["b/0", "b/1", "s/0", "s/1"].map(|name| wide(&file, name));
    let ours = x.iter().flat_map(|x| {
        keras(&file, x, 5, |at: usize, value: f64| {
            (value - mean[at]) / (variance[at] + 1e-5).sqrt() * scale[at] + shift[at]
        })
    });
    let ours: Vec<f64> = ours.collect();
    near(&ours, &theirs);
}

#[test]
fn a_fold_takes_the_statistics_that_mxnet_takes() {
    let folder = Folder::new();
    let (x, theirs) = golden("both_prefixes");
    let (file, said) = made(&folder, "fold", &case("both_prefixes-0000.params"), &[]);
    let (w, b) = (wide(&file, "arg:c_weight"), wide(&file, "arg:c_bias"));
    near(&x[0].mixed(3, |o, i| w[o * 2 + i]).by_channel(|c, y| y + b[c]).values, &theirs);
    assert!(!said.contains("not folded"), "{said}");
}

#[test]
fn a_parameter_that_the_net_needs_and_the_file_lacks_is_not_made_up() {
    let folder = Folder::new();
    for (stem, lacking) in [("no_beta", "b_beta"), ("no_bias_in_file", "c_bias")] {
        let refused = run(&folder, "fold", &case(&format!("{stem}-0000.params")), &[]);
        refused.refused(&format!("needs \"{lacking}\", which the file does not have"));
    }
}

#[test]
fn a_legacy_inner_product_is_folded_into_like_any_other() {
    let folder = Folder::new();
    let (x, theirs) = golden("legacy_ip");
    let (file, said) = made(&folder, "fold", &case("legacy_ip.caffemodel"), &[]);
    assert!(said.contains("2 BatchNorms"), "{said}");
    let (w, bias, f, last) = (wide(&file, "a/0"), wide(&file, "a/1"), wide(&file, "f/0"), wide(&file, "f/1"));
    let y = x[0].mixed(3, |o, i| w[o * 2 + i]).by_channel(|c, y| y + bias[c]).values;
    let ours = (0..5).map(|o| last[o] + y.iter().enumerate().map(|(at, y)| y * f[o * 48 + at]).sum::<f64>());
    near(&ours.collect::<Vec<_>>(), &theirs);
}
