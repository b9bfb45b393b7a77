//! The layers of nets: the same from a prototxt and from weights that protoc and Caffe wrote, for every generation;
//! layers of a symbol; hostile texts.

use std::fs;

use blob_convert::transform::ignored;
use blob_io::Checkpoint;
use blob_io::caffe::prototxt;
use blob_io::mxnet::Symbol;
use blob_io::net::{Layer, LayerKind, Net, Role};

use crate::support::message::{floats, len, shape, var};
use crate::support::{compare_cases, data, files, real, report};

fn of_text(path: &str) -> Net {
    let bytes = fs::read(data(path)).expect("readable");
    prototxt(path, &bytes).unwrap_or_else(|e| panic!("{e}"))
}

fn of_weights(path: &str) -> Net {
    Checkpoint::open(data(path)).and_then(|file| file.net()).unwrap_or_else(|e| panic!("{e}")).expect("a net")
}

/// The properties of a layer that do not depend on the generation.
fn facts(layer: &Layer) -> impl PartialEq + std::fmt::Debug {
    let wires = (layer.bottoms.to_vec(), layer.tops.to_vec());
    let window = layer.window.clone();
    let said = (layer.num_output, layer.group, layer.kernel.to_vec(), window, layer.axis, layer.bias_term, layer.eps);
    (layer.name.to_owned(), layer.kind, layer.type_name.to_owned(), wires, said)
}

fn all(net: &Net) -> Vec<impl PartialEq + std::fmt::Debug> {
    net.layers().iter().map(facts).collect()
}

#[test]
fn a_prototxt_and_the_weights_of_its_net_have_the_same_layers() {
    let stems = files(&data("caffe/forward"), |name| name.ends_with(".prototxt"));
    assert!(stems.len() >= 7);
    for path in &stems {
        let stem = format!("caffe/forward/{}", path.file_stem().expect("a name").to_string_lossy());
        let (text, weights) = (of_text(&format!("{stem}.prototxt")), of_weights(&format!("{stem}.caffemodel")));
        assert_eq!(all(&text), all(&weights), "{stem}");
        let names = |net: &Net| -> Vec<String> {
            net.layers()
                .iter()
                .flat_map(|layer| layer.tensors().map(|(role, name)| format!("{role:?} {name}")))
                .collect()
        };
        // A prototxt does not have the number of a layer's tensors.
        let of_text = names(&text);
        assert!(names(&weights).iter().all(|name| of_text.contains(name)), "{stem}");
        assert!(!names(&weights).is_empty());
    }
    report(&format!("topology: {} prototxts as the weights have them", stems.len()));
}

#[test]
fn the_size_of_an_input_is_read_wherever_it_stands() {
    let conv = [len(1, b"c"), len(2, b"Convolution"), len(3, b"data"), len(4, b"c")].concat();
    let (name, dims) = (len(3, b"data"), [1, 3, 5, 7].map(|extent| var(4, extent)).concat());
    let old = [len(2, b"data"), len(3, b"c"), len(4, b"c"), var(5, 4)].concat();
    for (what, bytes) in [
        ("input_dim", [name.clone(), dims.clone(), len(100, &conv)].concat()),
        ("input_shape", [name.clone(), len(8, &[var(1, 1), len(1, &[3, 5, 7])].concat()), len(100, &conv)].concat()),
        ("V1 has its layers first", [len(2, &old), name, dims].concat()),
    ] {
        let file = Checkpoint::from_bytes("net.caffemodel", bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
        let net = file.net().unwrap_or_else(|e| panic!("{what}: {e}")).expect("a net");
        assert_eq!(net.extents(net.layers()[0].bottoms[0]), Some([1, 3, 5, 7]), "{what}");
    }
}

#[test]
fn the_generations_say_the_same() {
    let today = of_text("caffe/forward/lenet.prototxt");
    for other in ["lenet_v0", "lenet_v1"] {
        let other = of_text(&format!("caffe/forward/{other}.prototxt"));
        assert_eq!(all(&today), all(&other));
    }
    // Equal to Caffe's own upgrade, which removes the padding layer and pads the reader.
    for (old, new) in [("v0", "v0.upgraded"), ("v1", "v1.upgraded")] {
        let (old, new) =
            (of_weights(&format!("caffe/net/{old}.caffemodel")), of_weights(&format!("caffe/net/{new}.caffemodel")));
        let named = |net: &Net| -> Vec<String> {
            net.layers()
                .iter()
                .map(|layer| {
                    let bottoms: Vec<&str> = layer.bottoms.iter().map(|value| net.value_name(*value)).collect();
                    format!("{} {:?} {} {bottoms:?} {:?}", layer.type_name, layer.kind, layer.name, layer.window.pad)
                })
                .collect()
        };
        // Caffe adds a layer for the input.
        let upgraded: Vec<_> = named(&new).into_iter().filter(|layer| !layer.starts_with("Input ")).collect();
        assert_eq!(named(&old), upgraded);
    }
}

#[test]
fn a_layer_in_place_writes_a_new_value() {
    let net = of_text("caffe/forward/resnet.prototxt");
    let layer = |name: &str| net.layers().iter().find(|layer| layer.name == name).unwrap_or_else(|| panic!("{name}"));
    let (conv, bn, scale, relu) = (layer("conv1"), layer("bn_conv1"), layer("scale_conv1"), layer("relu_conv1"));
    assert_eq!((&bn.bottoms, &scale.bottoms, &relu.bottoms), (&conv.tops, &bn.tops, &scale.tops));
    let readers: Vec<&str> = net.readers(relu.tops[0]).map(|layer| &*layer.name).collect();
    assert_eq!(readers, ["res_branch2a", "res"]);
    assert_eq!((net.uses(conv.tops[0]), net.uses(relu.tops[0])), (1, 2));
    assert_eq!(net.writer(bn.bottoms[0]).map(|layer| &*layer.name), Some("conv1"));
    assert!(net.writer(conv.bottoms[0]).is_none());
    // Caffe's eps is an f32, also the default.
    assert_eq!((bn.eps, layer("bn_branch2b").eps), (f64::from(1e-5_f32), f64::from(0.01_f32)));
    let bias = |name: &str| layer(name).bias_term;
    assert_eq!((bias("conv1"), bias("res_branch2b"), bias("scale_conv1")), (false, true, true));
    assert!(!layer("scale_branch2b").bias_term);
}

#[test]
fn tensors_have_their_roles() {
    let text = r#"
        layer { name: "seq" type: "LSTM" bottom: "x" bottom: "cont" top: "h" recurrent_param { num_output: 3 } }
        layer { name: "lit" type: "LSTM" bottom: "x" bottom: "cont" bottom: "still" top: "h" }
        layer { name: "own" type: "Scale" bottom: "x" bottom: "by" top: "y" scale_param { bias_term: true axis: -1 } }
        layer { name: "a" type: "Convolution" param { name: "w" } bottom: "x" top: "a" }
        layer { name: "b" type: "DepthwiseConvolution" param { name: 'w' lr_mult: 1 } bottom: "x" top: "b" }"#;
    let net = prototxt("net", text.as_bytes()).expect("a net");
    let roles = |index: usize| net.layers()[index].tensors().map(|(role, _)| role).collect::<Vec<_>>();
    assert_eq!(roles(0), [Role::Weight, Role::Bias, Role::Hidden]);
    assert_eq!(roles(1), [Role::Weight, Role::Bias, Role::Static, Role::Hidden]);
    assert_eq!(roles(2), [Role::Bias]);
    assert_eq!((net.layers()[2].axis, net.layers()[0].num_output), (-1, Some(3)));
    let shared: Vec<bool> = net.layers().iter().map(|layer| layer.shares_tensors).collect();
    assert_eq!(shared, [false, false, false, true, true]);
    assert_eq!(net.layers()[4].kind, LayerKind::Convolution);
}

#[test]
fn the_text_format_is_read_as_protobuf_reads_it() {
    let text = concat!(
        "# a comment\nname: \"n\" \"et\"; input_shape <dim: [1, 3], dim: 5>\n",
        "layer: { name: 'a\\x62\\143\\n' type: \"Conv\" 'olution', bottom: [\"x\"], top: \"y\"\n",
        "  convolution_param: < num_output: 0x10 group: 2; [fork.ext] { deep { er: -1.5e-3f } } kernel_size: [3, 5] > empty: [] }\n",
        "layer { name: \"bn\" type: \"BatchNorm\" bottom: \"y\" top: \"y\" batch_norm_param { eps: 1e-3f use_global_stats: true } }",
    );
    let net = prototxt("net", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let [conv, bn] = net.layers() else { panic!("{net:?}") };
    assert_eq!((&*conv.name, &*conv.type_name, conv.num_output), ("abc\n", "Convolution", Some(16)));
    assert_eq!((&conv.kernel[..], conv.group, bn.eps), (&[3, 5][..], 2, f64::from(1e-3_f32)));
}

#[test]
fn an_error_says_the_line_and_the_column() {
    let refused = |text: &str| prototxt("net.prototxt", text.as_bytes()).expect_err("it is broken").to_string();
    compare_cases("cases/prototxt.txt", |line| refused(&line.replace('⏎', "\n")));
    assert!(refused(&"a {".repeat(101)).contains("messages nested at most 100 deep"));
    assert!(refused(&format!("layer {{}} {}", " ".repeat(17 << 20))).contains("the bytes of a prototxt"));
    assert!(refused(&"layer{}".repeat(70_000)).contains("the number of layers"));
}

#[test]
fn every_prefix_and_every_changed_byte_is_a_net_or_an_error() {
    for name in ["resnet", "lenet_v0", "lenet_v1"] {
        let text = fs::read(data(&format!("caffe/forward/{name}.prototxt"))).expect("readable");
        for end in 0..text.len() {
            let _ = prototxt(name, &text[..end]);
        }
        for at in 0..text.len() {
            for byte in [0, b'{', b'}', b'"', b'[', b'<', b':', b'\\', b'-', 0xFF, text[at] ^ 0x20] {
                let mut broken = text.clone();
                broken[at] = byte;
                let _ = prototxt(name, &broken);
            }
        }
        let weights = fs::read(data(&format!("caffe/forward/{name}.caffemodel"))).expect("readable");
        for at in 0..weights.len() {
            let mut broken = weights.clone();
            broken[at] = !broken[at];
            let _ = Checkpoint::from_bytes("net.caffemodel", broken).and_then(|file| file.net());
        }
    }
}

#[test]
fn what_a_layer_says_of_kernels_and_phases_is_understood() {
    let text = br#"layer { name: "a" type: "Convolution" bottom: "data" top: "a"
                           convolution_param { kernel_w: 5 kernel_h: 3 num_output: 010 } }
                   layer { name: "b" type: "BatchNorm" bottom: "a" top: "a" }
                   layer { name: "c" type: "Dropout" bottom: "a" top: "a" exclude { phase: TEST } }
                   layer { name: "d" type: "Scale" bottom: "a" top: "a" }"#;
    let net = prototxt("net", text).unwrap();
    let [a, b, _, d] = net.layers() else { panic!("{net:?}") };
    // The outermost axis is first; protobuf parses `010` as octal, like C.
    assert_eq!((&a.kernel[..], a.num_output), (&[3, 5][..], Some(8)));
    assert_eq!(d.bottoms, b.tops, "what is there in training alone hides nothing");
}

/// A name of 60 kB that is used 60,000 times is stored once.
#[test]
fn hostile_nets_take_no_more_than_their_bytes() {
    let name = "n".repeat(60_000) + "weight";
    let inputs = vec!["[0,0,1]"; 60_000].join(",");
    let symbol = format!(
        r#"{{"nodes":[{{"op":"null","name":"{name}","inputs":[]}},{{"op":"X","name":"x","inputs":[{inputs}]}}]}}"#
    );
    let list = format!(r#"layer {{ {}: [{}] }}"#, "f".repeat(200_000), vec!["1"; 200_000].join(","));
    let bottoms = format!("layer {{ bottom: [{}] }}", vec!["''"; 70_000].join(","));
    let names = "input: \"\" ".repeat(80_000) + "layer {}";
    let dims = format!("input: \"x\" input_shape {{ {} }} layer {{}}", "dim: 1 ".repeat(80_000));
    let shapes = format!("input: \"x\" {} layer {{}}", "input_shape {} ".repeat(80_000));
    let window = format!("layer {{ convolution_param {{ {} }} }}", "pad: 1 ".repeat(80_000));
    let stated = format!("layer {{ top: \"x\" input_param {{ shape {{ {} }} }} }}", "dim: 1 ".repeat(80_000));
    for (what, bytes, refused) in [
        ("symbol", &symbol, None),
        ("list", &list, None),
        ("bottoms", &bottoms, Some("at most")),
        ("names of inputs", &names, None),
        ("extents of an input", &dims, None),
        ("shapes of inputs", &shapes, None),
        ("a window", &window, None),
        ("extents of a layer", &stated, None),
    ] {
        let mut result = Ok(());
        let peak = crate::support::alloc::peak(|| {
            result = match what {
                "symbol" => Symbol::from_bytes(what, bytes.as_bytes()).map(drop),
                _ => prototxt(what, bytes.as_bytes()).map(drop),
            };
        });
        assert!(peak < 24 * bytes.len() as u64, "{what}: {peak} bytes held for {}", bytes.len());
        match (result, refused) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
            (other, _) => panic!("{what}: {other:?}"),
        }
    }
}

/// Of more inputs or extents than are kept, the first ones count.
#[test]
fn inputs_of_a_net_are_bounded() {
    let net = |inputs: usize, dims: usize| {
        let dims = "dim: 3 ".repeat(dims);
        let last = inputs - 1;
        let text = (0..inputs)
            .map(|input: usize| format!("input: \"{input}\" input_shape {{ {dims} }}\n"))
            .collect::<String>()
            + &format!("layer {{ bottom: \"{last}\" }}");
        let net = prototxt("net", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        net.extents(net.layers()[0].bottoms[0])
    };
    assert_eq!((net(1, 4), net(1, 5), net(1, 300)), (Some([3; 4]), None, None));
    assert_eq!((net(1 << 16, 4), net((1 << 16) + 1, 4)), (Some([3; 4]), None));
    // Extents beyond the bound are not those of the next input.
    let (many, few) = ("dim: 1 ".repeat(40), "dim: 3 ".repeat(4));
    let both =
        format!("input: 'a' input_shape {{ {many} }} input: 'b' input_shape {{ {few} }} layer {{ bottom: 'b' }}");
    let net = prototxt("net", both.as_bytes()).expect("a net");
    assert_eq!(net.extents(net.layers()[0].bottoms[0]), Some([3; 4]));
    // The same in bytes.
    let conv = [len(1, b"c"), len(2, b"Convolution"), len(3, b"data"), len(4, b"c")].concat();
    let of = |dims: &[u8]| {
        let bytes = [len(3, b"data"), len(8, &len(1, dims)), len(100, &conv)].concat();
        let net =
            Checkpoint::from_bytes("net.caffemodel", bytes).and_then(|file| file.net()).expect("reads").expect("a net");
        net.extents(net.layers()[0].bottoms[0])
    };
    // An extent may be left open, as -1.
    let open = crate::support::message::varint(u64::MAX);
    assert_eq!(of(&[&open[..], &[3, 5, 7]].concat()), Some([0, 3, 5, 7]));
    assert_eq!(of(&[&[1, 3][..], &open, &[7]].concat()), None);
    assert_eq!((of(&[1, 3, 5, 7]), of(&[1, 3, 5, 7, 9]), of(&[1; 5000])), (Some([1, 3, 5, 7]), None, None));
}

#[test]
fn a_symbol_is_a_net() {
    for name in ["block", "block-0.9", "block-0.8"] {
        let symbol = Symbol::open(data(&format!("mxnet/symbol/{name}.json"))).expect("opens");
        let net = symbol.net;
        let layer =
            |name: &str| net.layers().iter().find(|layer| layer.name == name).unwrap_or_else(|| panic!("{name}"));
        let kinds = ["conv", "bn", "act", "up", "fc"].map(|name| layer(name).kind);
        use LayerKind::{BatchNorm, Convolution, Deconvolution, InnerProduct, PRelu};
        assert_eq!(kinds, [Convolution, BatchNorm, PRelu, Deconvolution, InnerProduct], "{name}");
        let bn = layer("bn");
        assert_eq!(bn.bottoms, layer("conv").tops);
        assert_eq!((bn.fix_gamma, bn.eps, bn.axis), (false, 1e-3, 1));
        let roles = [Role::Weight, Role::Bias, Role::Mean, Role::Variance].map(|role| bn.tensor(role));
        assert_eq!(roles, ["bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"].map(Some));
        assert_eq!((layer("conv").group, layer("up").group, layer("fc").num_output), (2, 2, Some(10)));
        // The net's output counts as one use.
        assert_eq!(net.uses(layer("softmax").tops[0]), 1);
    }
    let json = br#"{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "g", "inputs": []},
        {"op": "BatchNorm", "name": "bn", "inputs": [[0, 0, 0], [1, 0, 0]]}], "heads": [[2, 0, 0]]}"#;
    let bn = Symbol::from_bytes("absent", json).expect("opens");
    assert!(bn.net.layers()[0].fix_gamma);
    assert_eq!(bn.net.layers()[0].eps, 1e-3);
}

#[test]
fn real_weights_have_their_net() {
    let Some(folder) = real("caffe/real") else {
        return report("NOT TESTED: topology: real weights, BLOB_REAL_DATA is not set");
    };
    let files = files(&folder, |name| name.ends_with(".caffemodel") && !name.starts_with("BAD"));
    for path in &files {
        let file = Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"));
        let net = file.net().unwrap_or_else(|e| panic!("{e}")).expect("a net");
        let tensors: usize = net.layers().iter().map(|layer| layer.tensors().count()).sum();
        let data = file.entries().iter().filter(|entry| entry.kind() == blob_io::Kind::Data).count();
        assert_eq!(tensors, data, "{}", path.display());
        let known = net.layers().iter().flat_map(Layer::tensors).filter(|(role, _)| *role != Role::Other).count();
        assert_eq!(known, data, "{}", path.display());
    }
    report(&format!("topology: {} real caffemodels", files.len()));
}

/// A fork's message under a number of Caffe's makes the description unreadable; the factor's blob says enough.
#[test]
fn a_factor_of_zero_is_told_without_the_net_s_description() {
    let blob = |value: f32| len(7, &[shape(&[1]), floats(&[value])].concat());
    let norm = [len(1, b"bn"), len(2, b"BatchNorm"), blob(1.0), blob(2.0), blob(0.0)].concat();
    let fork = [len(1, b"c"), len(106, b"text")].concat();
    let file = Checkpoint::from_bytes("a.caffemodel", [len(100, &norm), len(100, &fork)].concat()).expect("opens");
    assert!(file.net().is_err());
    let told = ignored(&file, None);
    let names: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].contains("\"bn/2\""), "{names:?}");
}
