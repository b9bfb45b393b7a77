//! A naive interpreter of ONNX models, in f64. Held to outputs of onnxruntime; shares no code with the product.

mod caffe;
mod checked;
mod hostile;
mod loops;
mod loops_of_places;
mod model;
mod mxnet;
mod places;
mod pooling;
mod random;
mod run;
mod sequence;
mod tensor;
mod values;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use blob_core::DType;
use blob_graph::operators;
use blob_io::Checkpoint;
use blob_io::net::Framework;

use self::tensor::{Kind, Tensor};
use crate::fold_net::{layer, net};
use crate::support::floats::wide;
use crate::support::message::{len, var};
use crate::support::random::Random;
use crate::support::{Folder, blob, data, opened, report};

/// The arrays of a golden case, by the names after the case's: `model`, `in/x`, `out/y`.
struct Case {
    name: String,
    arrays: BTreeMap<String, Tensor>,
}

fn tensor(file: &Checkpoint, name: &str) -> Tensor {
    let entry = file.entry(name).expect("listed");
    let is_float = matches!(entry.dtype().expect("a dtype"), DType::F32);
    Tensor::new(entry.shape().dims(), wide(file, name), if is_float { Kind::Float } else { Kind::Integer })
}

/// The cases of an archive, sorted by name.
fn cases(path: &str) -> Vec<Case> {
    let file = opened(path);
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for whole in file.names() {
        let (name, part) = whole.split_once('/').expect("CASE/ARRAY");
        cases
            .entry(name.to_owned())
            .or_insert_with(|| Case { name: name.to_owned(), arrays: BTreeMap::new() })
            .arrays
            .insert(part.to_owned(), tensor(&file, whole));
    }
    cases.into_values().collect()
}

impl Case {
    fn bytes(&self, name: &str) -> Vec<u8> {
        self.arrays[name].values.iter().map(|value| *value as u8).collect()
    }

    /// The arrays of one side, `in` or `out`, by name.
    fn side(&self, side: &str) -> Vec<(String, Tensor)> {
        self.arrays
            .iter()
            .filter_map(|(name, tensor)| Some((name.strip_prefix(side)?.to_owned(), tensor.clone())))
            .collect()
    }
}

/// The greatest difference relative to the greatest value, or `None` if the shapes differ.
fn difference(found: &Tensor, expected: &Tensor) -> Option<f64> {
    (found.dims == expected.dims).then_some(())?;
    let scale = expected.values.iter().fold(1e-30f64, |most, x| most.max(x.abs()));
    let by = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() / scale };
    Some(
        found
            .values
            .iter()
            .zip(&expected.values)
            .map(by)
            .fold(0.0, |most: f64, by: f64| if by.is_nan() { f64::INFINITY } else { most.max(by) }),
    )
}

#[test]
fn the_interpreter_computes_what_onnxruntime_computed() {
    let (mut kinds, mut most) = (BTreeSet::new(), 0f64);
    let cases = cases("onnx_graph/ops.npz");
    for case in &cases {
        let model = model::model(&case.bytes("model"));
        kinds.extend(model.nodes.iter().map(|node| node.kind.clone()));
        let found: BTreeMap<String, Tensor> = run::run(&model, &case.side("in/")).into_iter().collect();
        for (name, expected) in case.side("out/") {
            let by = difference(&found[&name], &expected);
            let by = by.unwrap_or_else(|| panic!("{}: {:?}, not {:?}", case.name, found[&name].dims, expected.dims));
            assert!(by <= 2e-6, "{}: {name} differs by {by:e}\n{:?}\n{expected:?}", case.name, found[&name]);
            most = most.max(by);
        }
    }
    report(&format!("onnx operators: {} cases of {} operators, difference {most:.1e}", cases.len(), kinds.len()));
}

/// Nets of Caffe's with the outputs of OpenCV, and the shape of the input where the net states none.
const NETS: [(&str, &str, &str); 8] = [
    ("lenet", "lenet", ""),
    ("lenet_v1", "lenet", "--input=data=1,1,14,14"),
    ("resnet", "resnet", ""),
    ("mobilenet", "mobilenet", ""),
    ("inception", "inception", ""),
    ("segnet", "segnet", ""),
    ("upsample", "upsample", ""),
    ("lstm", "lstm", "--input=data=5,1,3,--input=cont=5,1"),
];

#[test]
fn a_converted_net_computes_what_its_framework_computed() {
    let folder = Folder::new();
    for (net, golden, inputs) in NETS {
        let (weights, text) =
            (data(&format!("caffe/forward/{net}.caffemodel")), data(&format!("caffe/forward/{net}.prototxt")));
        let file = opened(format!("caffe/forward/{golden}.npz"));
        let (x, expected) = (tensor(&file, "data"), tensor(&file, "output"));
        let options = inputs.split(",--").map(|option| format!("--{}", option.trim_start_matches("--")));
        let options: Vec<String> = options.filter(|option| option.len() > 2).collect();
        for more in [&[][..], &["--fold"], &["--dynamic-batch"], &["--opset", "13"]] {
            if more == ["--fold"] && !matches!(net, "resnet" | "mobilenet" | "inception" | "upsample") {
                continue;
            }
            // The first extent of the inputs is that of the steps.
            if more == ["--dynamic-batch"] && net == "lstm" {
                continue;
            }
            let (output, weights, text) =
                (folder.path().join("x.onnx"), weights.to_str().unwrap(), text.to_str().unwrap());
            let output = output.to_str().unwrap();
            let mut line = vec!["convert", weights, "--net", text, "-o", output, "--force", "-q"];
            line.extend(options.iter().map(|option| &**option).chain(more.iter().copied()));
            blob(&line).ok();
            blob(&["verify", output, "--against", weights, "--net", text]).ok();
            let model = model::model(&std::fs::read(output).unwrap());
            let dims: Vec<usize> = if net == "lstm" { vec![5, 1, 3] } else { x.dims.clone() };
            let given = [("data".to_owned(), Tensor::float(&dims, x.values.clone()))];
            let found = run::run(&model, &given).swap_remove(0).1;
            let found = Tensor::float(&expected.dims, found.values);
            let by = difference(&found, &expected).expect("of one shape");
            assert!(by <= 2e-6, "{net} {more:?}: {by:e}");
            if more == ["--dynamic-batch"] {
                images_of_a_batch_are_alone(net, &model, &x);
            }
        }
    }
}

/// A model with an open batch computes of three images, and of one, what it computes of each.
fn images_of_a_batch_are_alone(net: &str, model: &model::Model, x: &Tensor) {
    let image = &x.values[..x.dims[1..].iter().product::<usize>()];
    let images = [image.to_vec(), image.iter().map(|x| 0.5 - x).collect(), image.iter().rev().copied().collect()];
    let run = |batch: usize, values: Vec<f64>| {
        run::run(model, &[("data".to_owned(), Tensor::float(&[&[batch], &x.dims[1..]].concat(), values))])
            .swap_remove(0)
            .1
    };
    let (all, alone) = (run(3, images.concat()), images.map(|image| run(1, image)));
    let joined = Tensor::float(&all.dims, alone.iter().flat_map(|one| one.values.clone()).collect());
    assert_eq!((all.dims[0], alone[0].dims[0], alone[0].dims[1..].to_vec()), (3, 1, all.dims[1..].to_vec()), "{net}");
    assert!(difference(&all, &joined).is_some_and(|by| by <= 1e-9), "{net}: a batch of 3");
    assert!(difference(&alone[0], &alone[1]).is_some_and(|by| by > 1e-3), "{net}: the images differ");
}

/// A field that no message of Caffe's has may change a layer's result, so that the layer is refused; where it
/// cannot, as in a rate of learning, the field is passed over.
#[test]
fn a_field_of_a_fork_is_refused_by_its_number() {
    let folder = Folder::new();
    let out = folder.file("x.onnx");
    let convert = |field: &[u8]| {
        let pooling = len(121, &[var(1, 1), var(2, 2)].concat());
        let more = [&pooling[..], field].concat();
        let file = folder.with("x.caffemodel", net(&[layer("p", "Pooling", "d", "p", &[], &more)]));
        blob(&["convert", &file, "--input", "d=1,1,4,4", "-o", &out, "--force"])
    };
    convert(&[]).ok();
    for (field, named) in [
        (len(121, &var(99, 7)), "\"p\" (Pooling): pooling_param.#99 is \"1 byte\", which is not supported"),
        (len(121, &len(2, b"abcd")), "pooling_param.#2 is \"5 bytes\""),
        (len(300, b"fork"), "#300 is \"5 bytes\""),
        (len(106, &var(98, 300)), "convolution_param.#98 is \"2 bytes\""),
    ] {
        convert(&field).refused(named);
    }
    // A filler, a rate of learning, a condition.
    for field in [len(106, &len(7, &var(99, 1))), len(6, &var(99, 1)), len(8, &[var(1, 1), var(99, 1)].concat())] {
        let ran = convert(&field);
        assert!(ran.code == Some(0) || ran.err.contains("convolution_param"), "{ran:?}");
        assert!(!ran.err.contains('#'), "{ran:?}");
    }
}

#[test]
fn an_input_has_one_shape_and_its_preparation_is_told() {
    let folder = Folder::new();
    let text = "layer { name: \"data\" type: \"Data\" top: \"d\" transform_param { scale: 0.5 mean_value: 104 } }
        layer { name: \"r\" type: \"ReLU\" bottom: \"d\" top: \"r\" }";
    let (text, file) = (
        folder.with("net.prototxt", text),
        folder.with("x.caffemodel", net(&[layer("r", "ReLU", "d", "r", &[], &[])])),
    );
    let out = folder.file("x.onnx");
    let line = ["convert", &file, "--net", &text, "-o", &out, "--input", "d=1,1,2,2"];
    blob(&line).ok().stderr_has(
        "prepares it, and does not prepare it: transform_param.scale = \"0.5\", transform_param.mean_value",
    );
    blob(&[&line[..], &["--input", "d=1,1,2,3"]].concat()).refused("--input gives \"d\" two shapes");
    blob(&["graph", &file, "--net", &text, "--input", "d=1,1,2,2", "--input", "d=1,1,2,2"]).refused("two shapes");
}

/// Caffe copies each layer's tensor into the parameter that layers share by a name: the last one counts for all.
#[test]
fn layers_that_share_a_parameter_have_the_last_copy() {
    let folder = Folder::new();
    let convolution = |name: &str, weights: &[f32], param: &str| {
        let more = [len(106, &[var(1, 2), var(2, 0), var(4, 1)].concat()), len(6, &len(1, param.as_bytes()))].concat();
        layer(name, "Convolution", "d", name, &[weights], &more)
    };
    let layers =
        [convolution("a", &[1.0, 2.0], "w"), convolution("b", &[3.0, 5.0], "w"), convolution("c", &[7.0, 9.0], "own")];
    let file = folder.with("x.caffemodel", net(&layers));
    let out = folder.file("x.onnx");
    let ran = blob(&["convert", &file, "--input", "d=1,1,1,1", "-o", &out]).ok();
    let ran = ran.stderr_has("onnx: layers share a param, and Caffe takes its last copy, not \"a/0\"");
    assert!(!ran.err.contains("no layer of the net reads"), "{ran:?}");
    blob(&["verify", &out, "--against", &file]).ok();
    let model = model::model(&std::fs::read(&out).unwrap());
    let found = run::run(&model, &[("d".to_owned(), Tensor::float(&[1, 1, 1, 1], vec![2.0]))]);
    let found: Vec<(&str, &[f64])> = found.iter().map(|(name, tensor)| (&**name, &*tensor.values)).collect();
    assert_eq!(found, [("a", &[6.0, 10.0][..]), ("b", &[6.0, 10.0]), ("c", &[14.0, 18.0])]);
    // A file of another order than the net's: `CopyTrainedLayersFrom` goes through the layers of the file.
    let prototxt = |names: &[&str]| {
        let layers = names.iter().map(|name| {
            format!(
                "layer {{ name: \"{name}\" type: \"Convolution\" bottom: \"d\" top: \"{name}\" param {{ name: \"w\" }}
                          convolution_param {{ num_output: 2 kernel_size: 1 bias_term: false }} }}"
            )
        });
        let layers: String = layers.collect();
        folder.with("y.prototxt", format!("input: \"d\" input_shape {{ dim: 1 dim: 1 dim: 1 dim: 1 }} {layers}"))
    };
    let text = prototxt(&["b", "e", "a"]);
    let more = [layers[1].clone(), convolution("e", &[4.0, 1.0], "x"), layers[0].clone(), layers[2].clone()];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let file = folder.with("y.caffemodel", net(&order.map(|place| more[place].clone())));
        let line = ["convert", &file, "--net", &text, "-o", &out, "--force"];
        let ran = blob(&line).ok();
        let ran = ran.stderr_has("takes its last copy, not ");
        let kept = ["\"b/0\"", "\"e/0\"", "\"a/0\""][order[2]];
        assert!(!ran.err.contains(kept), "{order:?} {ran:?}");
        blob(&["verify", &out, "--against", &file, "--net", &text]).ok();
        let model = model::model(&std::fs::read(&out).unwrap());
        let found = run::run(&model, &[("d".to_owned(), Tensor::float(&[1, 1, 1, 1], vec![2.0]))]);
        let wanted = [[6.0, 10.0], [8.0, 2.0], [2.0, 4.0]][order[2]];
        assert!(found.len() == 3 && found.iter().all(|(_, tensor)| tensor.values == wanted), "{order:?} {found:?}");
    }
    // A file of which the last layer's tensor is missing, as HDF5's files have one for all.
    let file = folder.with("y.caffemodel", net(&layers[..1]));
    let text = prototxt(&["a", "z"]);
    blob(&["convert", &file, "--net", &text, "-o", &out, "--force"]).ok();
    let model = model::model(&std::fs::read(&out).unwrap());
    let found = run::run(&model, &[("d".to_owned(), Tensor::float(&[1, 1, 1, 1], vec![2.0]))]);
    assert!(found.iter().all(|(_, tensor)| tensor.values == [2.0, 4.0]), "{found:?}");
}

/// The page on ONNX has each operator that has a form.
#[test]
fn the_page_lists_every_operator() {
    let page = std::fs::read_to_string(data("../../docs/onnx.md")).expect("the page");
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let lacks = |name: &&'static str| !words.contains(*name);
    let caffe: Vec<&str> = operators(Framework::Caffe).flat_map(|own| own.types).filter(lacks).collect();
    // The page shortens MXNet's spellings of one row.
    let mxnet: Vec<&str> = operators(Framework::Mxnet).map(|own| own.types[0]).filter(lacks).collect();
    assert!(caffe.is_empty() && mxnet.is_empty(), "{caffe:?} {mxnet:?}");
}

/// The weights are f16 and the net computes in f32, so that places, boxes and sums are what they are without f16.
#[test]
fn weights_in_f16_are_cast_and_the_net_computes_in_f32() {
    let folder = Folder::new();
    let [file, text] = ["lenet.caffemodel", "lenet.prototxt"]
        .map(|name| data("caffe/forward").join(name).to_str().expect("UTF-8").to_owned());
    let [out, half, rounded, back] = ["x.onnx", "half.onnx", "rounded.npz", "back.onnx"].map(|name| folder.file(name));
    blob(&["convert", &file, "--net", &text, "-o", &out, "--no-receipt"]).ok();
    blob(&["convert", &file, "--net", &text, "-o", &half, "--dtype", "f16"]).ok();
    blob(&["verify", &half, "--against", &file, "--net", &text]).ok();
    // The same net with the rounded weights, as f32.
    blob(&["convert", &half, "--dtype", "f32", "-o", &rounded]).ok();
    blob(&["convert", &rounded, "--into", &out, "-o", &back]).ok();
    let [whole, narrow, back] = [&out, &half, &back].map(|path| model::model(&std::fs::read(path).expect("read")));
    let element = |values: &[model::Value]| values.iter().map(|value| value.element).collect::<Vec<_>>();
    const FLOAT: u64 = 1;
    assert_eq!((element(&narrow.inputs), element(&narrow.outputs)), (vec![FLOAT], vec![FLOAT]));
    let casts: Vec<&model::Node> = narrow.nodes.iter().filter(|node| node.kind == "Cast").collect();
    let weights: Vec<String> = opened(&half).names().map(str::to_owned).collect();
    assert_eq!(casts.iter().map(|node| &node.inputs[0]).collect::<Vec<_>>(), weights.iter().collect::<Vec<_>>());
    assert_eq!((casts.len(), narrow.nodes.len()), (8, whole.nodes.len() + 8));
    let others = narrow.nodes.iter().filter(|node| node.kind != "Cast").flat_map(|node| &node.inputs);
    assert!(others.clone().all(|input| !weights.contains(input)));
    let mut random = Random::new(5);
    let image: Vec<f64> = (0..14 * 14).map(|_| random.below(257) as f64 / 128.0 - 1.0).collect();
    let x = Tensor::float(&[1, 1, 14, 14], image);
    let [whole, narrow, back] =
        [whole, narrow, back].map(|model| run::run(&model, &[("data".to_owned(), x.clone())]).swap_remove(0).1.values);
    assert_eq!(narrow, back);
    assert_ne!(narrow, whole);
}

/// A loss computes the probabilities on its way: Caffe's SoftmaxWithLossLayer and SigmoidCrossEntropyLossLayer have a
/// layer of these types within, and the first gives its values as a second output.
#[test]
fn a_loss_becomes_the_probabilities_that_it_computes() {
    let folder = Folder::new();
    let file = folder.with("x.caffemodel", net(&[layer("p", "Power", "d", "s", &[], &[])]));
    let model = |name: &str, last: &str| {
        let text = format!(
            "input: \"d\" input_shape {{ dim: 2 dim: 3 dim: 4 dim: 5 }} input: \"label\" input_shape {{ dim: 2 }}
             layer {{ name: \"p\" type: \"Power\" bottom: \"d\" top: \"s\" power_param {{ scale: 0.5 }} }} {last}"
        );
        let (text, out) = (folder.with("net.prototxt", text), folder.file(name));
        let ran = blob(&["convert", &file, "--net", &text, "-o", &out, "--force"]).ok();
        blob(&["verify", &out, "--against", &file, "--net", &text]).ok();
        (model::model(&std::fs::read(&out).expect("read")), ran.err)
    };
    let graph = |model: &model::Model| -> Vec<(String, Vec<String>, Vec<String>, i64)> {
        let nodes = model.nodes.iter();
        nodes.map(|n| (n.kind.clone(), n.inputs.clone(), n.outputs.clone(), n.int("axis", -7))).collect()
    };
    for (kind, made) in [("SoftmaxWithLoss", "Softmax"), ("SigmoidCrossEntropyLoss", "Sigmoid")] {
        for parameters in ["", "softmax_param { axis: 3 }", "loss_param { ignore_label: 255 } loss_weight: 1"] {
            for tops in ["top: \"y\"", "top: \"loss\" top: \"y\""] {
                if kind != "SoftmaxWithLoss" && (tops.contains("loss") || parameters.contains("axis")) {
                    continue;
                }
                let loss = format!("bottom: \"s\" bottom: \"label\" {tops} {parameters}");
                let (found, said) = model("loss.onnx", &format!("layer {{ name: \"l\" type: \"{kind}\" {loss} }}"));
                let plain = if parameters.contains("axis") { parameters } else { "" };
                let plain = format!("layer {{ name: \"l\" type: \"{made}\" bottom: \"s\" top: \"y\" {plain} }}");
                let (expected, _) = model("plain.onnx", &plain);
                assert_eq!(graph(&found), graph(&expected), "{kind} {tops} {parameters}");
                let names = |values: &[model::Value]| values.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
                assert_eq!((names(&found.inputs), names(&found.outputs)), (vec!["d".to_owned()], vec!["y".to_owned()]));
                assert!(said.contains(&format!("\"l\" ({kind}) gives its probabilities, as a {made} does")), "{said}");
            }
        }
        let (found, _) =
            model("none.onnx", &format!("layer {{ name: \"l\" type: \"{kind}\" bottom: \"s\" bottom: \"label\" }}"));
        assert_eq!(found.outputs.iter().map(|value| &*value.name).collect::<Vec<_>>(), ["s"]);
    }
}

/// Where a layer reads the loss itself, a model has nothing to give it.
#[test]
fn a_layer_that_reads_a_loss_is_refused() {
    let folder = Folder::new();
    let file = folder.with("x.caffemodel", net(&[layer("p", "Power", "d", "s", &[], &[])]));
    let (soft, sigmoid) = ("type: \"SoftmaxWithLoss\"", "type: \"SigmoidCrossEntropyLoss\"");
    let (power, eltwise) =
        ("type: \"Power\" bottom: \"l\" top: \"y\"", "type: \"Eltwise\" bottom: \"l\" bottom: \"s\" top: \"y\"");
    let in_place = "bottom: \"s\" bottom: \"label\" top: \"s\" top: \"prob\"";
    for (loss, tops, reader, value) in [
        (soft, "top: \"l\"", power, "l"),
        (soft, "top: \"l\" top: \"prob\"", power, "l"),
        (soft, "top: \"l\" top: \"prob\"", eltwise, "l"),
        (sigmoid, "top: \"l\"", eltwise, "l"),
        (soft, in_place, "type: \"ReLU\" bottom: \"s\" top: \"y\"", "s"),
    ] {
        let ends = if tops == in_place { tops.to_owned() } else { format!("bottom: \"s\" bottom: \"label\" {tops}") };
        let text = format!(
            "input: \"d\" input_shape {{ dim: 2 dim: 3 }} input: \"label\" input_shape {{ dim: 2 }}
             layer {{ name: \"p\" type: \"Power\" bottom: \"d\" top: \"s\" }}
             layer {{ name: \"loss\" {loss} {ends} }} layer {{ name: \"reader\" {reader} }}"
        );
        let (text, out) = (folder.with("net.prototxt", text), folder.file("x.onnx"));
        let said = format!("reads {value:?}, which only training computes");
        blob(&["convert", &file, "--net", &text, "-o", &out]).refused(&said);
    }
}
