//! Small nets: the nodes, the names and the shapes that come of them. Each row of the table is in `rows`.

mod mxnet;
mod refusals;
mod rows;

use std::collections::HashSet;

use blob_io::caffe::prototxt;
use blob_io::net::{Net, Phase};
use blob_io::onnx::{Attribute, Dim, Initializer, Model};

use crate::{Graph, Make, Need, Shapes, Ssd, Target, Unsupported, to_onnx};

fn net(text: &str) -> Net {
    prototxt("net.prototxt", text.as_bytes()).expect("a net").in_phase(Phase::Test)
}

/// A net of one layer. The text is that of the layer behind the name; the inputs are `a`, `b`, `c`.
fn layer(shapes: &[&[u64]], text: &str) -> Net {
    let mut all = String::new();
    for (name, shape) in ["a", "b", "c"].iter().zip(shapes) {
        all += &format!("input: \"{name}\" ");
        all += &format!("input_shape {{ {} }} ", shape.iter().map(|dim| format!("dim: {dim} ")).collect::<String>());
    }
    net(&format!("{all} layer {{ name: \"l\" {text} }}"))
}

fn one(shape: &[u64], text: &str) -> Net {
    layer(&[shape], &format!("bottom: \"a\" top: \"y\" {text}"))
}

fn model(net: &Net) -> Result<(Model, Vec<Need>), Unsupported> {
    to_onnx(&Graph::from_net(net, &Shapes::default())?, &Target::default())
}

fn ops(model: &Model) -> Vec<&str> {
    model.nodes.iter().map(|node| &*node.op_type).collect()
}

fn shape(model: &Model, output: usize) -> Vec<u64> {
    model.outputs[output].shape.iter().map(|dim| if let Dim::Size(size) = dim { *size } else { 0 }).collect()
}

fn attribute(model: &Model, node: usize, name: &str) -> Option<Attribute> {
    model.nodes[node].attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

/// Pooling's paddings go up to the last window's end; where Caffe's average counts less, factors follow.
#[test]
fn pooling_pads_as_caffe_does() {
    let pads = |text: &str, size: u64| {
        let (model, _) =
            model(&one(&[1, 1, size, size], &format!("type: \"Pooling\" pooling_param {{ {text} }}"))).expect(text);
        let Some(Attribute::Ints(pads)) = attribute(&model, 0, "pads") else { panic!("pads") };
        (pads, model.nodes.len() > 1, shape(&model, 0)[2])
    };
    assert_eq!(pads("kernel_size: 3 stride: 2", 8), (vec![0, 0, 1, 1], false, 4));
    assert_eq!(pads("kernel_size: 3 stride: 2", 9), (vec![0, 0, 0, 0], false, 4));
    // The last window would begin at 8, which is 7 and the padding: it is left out.
    assert_eq!(pads("kernel_size: 2 stride: 2 pad: 1", 7), (vec![1, 1, 0, 0], false, 4));
    assert_eq!(pads("pool: AVE kernel_size: 3 stride: 2", 8), (vec![0, 0, 1, 1], true, 4));
    assert_eq!(pads("pool: AVE kernel_size: 3 stride: 2 pad: 1", 9), (vec![1, 1, 1, 1], false, 5));
    assert_eq!(pads("pool: AVE kernel_size: 2 stride: 2 pad: 1", 7), (vec![1, 1, 0, 0], false, 4));
}

/// Window by window, as Caffe's loops have it: the number of windows, and how many elements an average counts.
#[test]
fn any_pooling_has_caffe_s_windows() {
    for size in 1..12_u64 {
        for kernel in 1..6 {
            for (stride, pad) in (1..5).flat_map(|stride| (0..3).map(move |pad| (stride, pad))) {
                let text = format!("kernel_size: {kernel} stride: {stride} pad: {pad}");
                let net = one(&[1, 1, size, size], &format!("type: \"Pooling\" pooling_param {{ pool: AVE {text} }}"));
                let Ok((model, _)) = model(&net) else { continue };
                let Some(Attribute::Ints(pads)) = attribute(&model, 0, "pads") else { panic!("pads") };
                let padded = size + (pads[0] + pads[2]) as u64;
                let windows = shape(&model, 0)[2];
                assert_eq!((padded - kernel) / stride + 1, windows, "{size}: {text}");
                let factors = model.initializers.first().map_or(vec![1.0; (windows * windows) as usize], |own| {
                    let Initializer::Constant { bytes, .. } = own else { panic!("factors") };
                    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four"))).collect()
                });
                let counted = |window: u64| ((window * stride + kernel).min(size + 2 * pad) - window * stride) as f32;
                for (place, factor) in factors.iter().enumerate() {
                    let area = counted(place as u64 / windows) * counted(place as u64 % windows);
                    assert_eq!(*factor, (kernel * kernel) as f32 / area, "{size}: {text}, window {place}");
                }
            }
        }
    }
}

#[test]
fn a_net_keeps_its_names() {
    let text = "input: \"data\" input_dim: 1 input_dim: 1 input_dim: 28 input_dim: 28
        layer { name: \"conv1\" type: \"Convolution\" bottom: \"data\" top: \"conv1\" convolution_param { num_output: 20 kernel_size: 5 } }
        layer { name: \"pool1\" type: \"Pooling\" bottom: \"conv1\" top: \"pool1\" pooling_param { kernel_size: 2 stride: 2 } }
        layer { name: \"ip1\" type: \"InnerProduct\" bottom: \"pool1\" top: \"ip1\" inner_product_param { num_output: 50 } }
        layer { name: \"relu1\" type: \"ReLU\" bottom: \"ip1\" top: \"ip1\" }
        layer { name: \"drop1\" type: \"Dropout\" bottom: \"ip1\" top: \"ip1\" }
        layer { name: \"ip2\" type: \"InnerProduct\" bottom: \"ip1\" top: \"ip2\" inner_product_param { num_output: 10 } }
        layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"ip2\" bottom: \"label\" top: \"loss\" include { phase: TRAIN } }
        layer { name: \"prob\" type: \"Softmax\" bottom: \"ip2\" top: \"prob\" }";
    let net = net(text);
    let graph = Graph::from_net(&net, &Shapes::default()).expect("a graph");
    let (model, needs) = to_onnx(&graph, &Target::default()).expect("a model");
    let nodes: Vec<_> = model.nodes.iter().map(|node| (&*node.op_type, &*node.name, &*node.outputs[0])).collect();
    assert_eq!(
        nodes,
        [
            ("Conv", "conv1", "conv1"),
            ("MaxPool", "pool1", "pool1"),
            ("Flatten", "ip1/Flatten", "ip1/Flatten"),
            ("Gemm", "ip1", "ip1:ip1"),
            ("Relu", "relu1", "ip1:relu1"),
            ("Gemm", "ip2", "ip2"),
            ("Softmax", "prob", "prob"),
        ]
    );
    let tensors: Vec<&str> = needs.iter().map(|need| &*need.tensor).collect();
    assert_eq!(tensors, ["conv1/0", "conv1/1", "ip1/0", "ip1/1", "ip2/0", "ip2/1"]);
    assert!(needs.iter().all(|need| need.make == Make::AsIs && need.initializer == need.tensor));
    assert_eq!((model.inputs.len(), model.outputs.len(), model.ir_version), (1, 1, 8));
    // Every value has a shape, and is declared once.
    let values: Vec<&str> = model.values.iter().map(|value| &*value.name).collect();
    assert_eq!(values, ["conv1", "pool1", "ip1/Flatten", "ip1:ip1", "ip1:relu1", "ip2"]);
    let open = Target { dynamic_batch: true, ..Target::default() };
    let (open, _) = to_onnx(&graph, &open).expect("a model");
    assert!(
        open.inputs
            .iter()
            .chain(&open.values)
            .chain(&open.outputs)
            .all(|value| value.shape[0].clone() == Dim::Name("N".into()))
    );
    assert_eq!(open.nodes, model.nodes);
}

/// A factor for each image of a batch is a weight, whose length is the batch.
#[test]
fn a_batch_that_a_weight_knows_is_not_open() {
    let net = one(&[2, 3], "type: \"Scale\" scale_param { axis: 0 }");
    let graph = Graph::from_net(&net, &Shapes::default()).expect("a graph");
    to_onnx(&graph, &Target { dynamic_batch: true, ..Target::default() }).expect_err("a weight of the batch");
}

#[test]
fn weights_have_forms() {
    let makes = |text: &str| {
        let (model, needs) = model(&one(&[1, 3, 4, 4], text)).expect(text);
        assert_eq!(
            model.initializers.iter().filter(|own| matches!(own, Initializer::Stored { .. })).count(),
            needs.len()
        );
        needs.into_iter().map(|need| (need.tensor, need.make)).collect::<Vec<_>>()
    };
    let own = |index: u64, make: Make| (format!("l/{index}"), make);
    let wide = || Make::Reshape(vec![1, 3, 1, 1]);
    assert_eq!(makes("type: \"Scale\" scale_param { bias_term: true }"), [own(0, wide()), own(1, wide())]);
    let divided = || Make::BatchNorm("l/2".to_owned());
    assert_eq!(makes("type: \"BatchNorm\""), [own(0, divided()), own(1, divided())]);
    assert_eq!(makes("type: \"PReLU\" prelu_param { channel_shared: true }"), [own(0, Make::Reshape(vec![1; 3]))]);
}

/// SegNet's pair of a Pooling with a mask and an Upsample.
#[test]
fn a_mask_is_a_place_in_a_plane() {
    let text = "input: \"a\" input_dim: 2 input_dim: 3 input_dim: 8 input_dim: 10
        layer { name: \"p\" type: \"Pooling\" bottom: \"a\" top: \"p\" top: \"m\" pooling_param { kernel_size: 2 stride: 2 } }
        layer { name: \"u\" type: \"Upsample\" bottom: \"p\" bottom: \"m\" top: \"u\" upsample_param { scale: 2 } }";
    let (model, _) = model(&net(text)).expect("a model");
    assert_eq!(ops(&model), ["MaxPool", "Mod", "Reshape", "Reshape", "Expand", "ScatterElements", "Reshape"]);
    assert_eq!(shape(&model, 0), [2, 3, 8, 10]);
}

const SSD: &str = "input: \"data\" input_shape { dim: 1 dim: 3 dim: 32 dim: 32 }
    layer { name: \"map\" type: \"Convolution\" bottom: \"data\" top: \"map\" convolution_param { num_output: 8 kernel_size: 8 stride: 8 } }
    layer { name: \"loc\" type: \"InnerProduct\" bottom: \"map\" top: \"loc\" inner_product_param { num_output: 256 } }
    layer { name: \"conf\" type: \"InnerProduct\" bottom: \"map\" top: \"conf\" inner_product_param { num_output: 192 } }
    layer { name: \"prior\" type: \"PriorBox\" bottom: \"map\" bottom: \"data\" top: \"prior\"
            prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 2 clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
    layer { name: \"out\" type: \"DetectionOutput\" bottom: \"loc\" bottom: \"conf\" bottom: \"prior\" top: \"out\"
            detection_output_param { num_classes: 3 code_type: CENTER_SIZE keep_top_k: 20 confidence_threshold: 0.1
                                     nms_param { nms_threshold: 0.45 top_k: 40 } } }";

#[test]
fn detections_have_three_forms() {
    let graph = Graph::from_net(&net(SSD), &Shapes::default()).expect("a graph");
    let of = |ssd| to_onnx(&graph, &Target { ssd, ..Target::default() }).expect("a model").0;
    let standard = of(Ssd::Standard);
    assert_eq!(standard.outputs[0].name, "out");
    assert_eq!(shape(&standard, 0), [1, 1, 0, 7]);
    assert_eq!(ops(&standard).iter().filter(|op| **op == "TopK").count(), 2);
    assert!(ops(&standard).contains(&"NonMaxSuppression") && !ops(&standard).contains(&"PriorBox"));
    let opencv = of(Ssd::OpenCv);
    assert_eq!(ops(&opencv)[5..], ["PriorBox", "DetectionOutput"]);
    let raw = of(Ssd::Raw);
    let outputs: Vec<&str> = raw.outputs.iter().map(|output| &*output.name).collect();
    assert_eq!(outputs.len(), 3);
    assert_eq!(ops(&raw), ["Conv", "Flatten", "Gemm", "Flatten", "Gemm"]);
}

/// ONNX's operator takes no other threshold.
#[test]
fn an_overlap_is_between_0_and_1() {
    for (overlap, is_one) in [("0", true), ("1", true), ("1.5", false), ("-0.1", false)] {
        let text = SSD.replace("nms_threshold: 0.45", &format!("nms_threshold: {overlap}"));
        assert_eq!(Graph::from_net(&net(&text), &Shapes::default()).is_ok(), is_one, "{overlap}");
    }
}

/// OpenCV 5 has room for one row where `keep_top_k` is −1, and takes no variances where the places are in their sizes.
#[test]
fn opencv_s_node_has_what_opencv_reads() {
    let text = SSD.replace("keep_top_k: 20", "variance_encoded_in_target: true");
    let graph = Graph::from_net(&net(&text), &Shapes::default()).expect("a graph");
    let (model, _) = to_onnx(&graph, &Target { ssd: Ssd::OpenCv, ..Target::default() }).expect("a model");
    assert_eq!(ops(&model)[5..], ["PriorBox", "Slice", "DetectionOutput"]);
    assert_eq!(attribute(&model, 7, "keep_top_k"), Some(Attribute::Int(40 * 3)));
}

/// The first boxes of a 4×4 map on an image of 32: around (4, 4), of sides 4, 6 and 4·√2 by 4/√2.
#[test]
fn boxes_are_those_of_the_paper() {
    let graph = Graph::from_net(&net(SSD), &Shapes::default()).expect("a graph");
    let (model, _) = to_onnx(&graph, &Target { ssd: Ssd::Raw, ..Target::default() }).expect("a model");
    let boxes = model.initializers.iter().find_map(|own| match own {
        Initializer::Constant { shape, bytes, .. } if shape.dims() == [1, 2, 256] => Some(bytes.clone()),
        _ => None,
    });
    let bytes = boxes.expect("the boxes");
    let numbers: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four"))).collect();
    let expected = [2.0, 2.0, 6.0, 6.0, 1.0, 1.0, 7.0, 7.0, 1.171_572_9, 2.585_786_4, 6.828_427, 5.414_213_7];
    for (number, edge) in numbers.iter().zip(expected) {
        assert!((number * 32.0 - edge).abs() < 1e-5, "{number} {edge}");
    }
    assert_eq!(numbers[256..260], [0.1, 0.1, 0.2, 0.2]);
}

/// As many layers as a net may have take linear time.
#[test]
fn a_net_of_many_layers_is_a_graph() {
    let mut text = "input: \"d\" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1 ".to_owned();
    for layer in 0..65_536 {
        let bottom = if layer % 2 == 0 { "d".to_owned() } else { format!("t{}", layer - 1) };
        text += &format!("layer{{name:\"l\" type:\"ReLU\" bottom:\"{bottom}\" top:\"t{layer}\"}}");
    }
    let (model, _) = model(&net(&text)).expect("a model");
    assert_eq!((model.nodes.len(), model.outputs.len()), (65_536, 32_768));
}

/// OpenCV 5.0.0 reads beyond an axis of 1 element when it makes the axis longer.
#[test]
fn one_element_is_repeated() {
    for (shape, expected) in
        [([1, 3, 1, 1], &["Expand"][..]), ([1, 3, 1, 5], &["Resize", "Expand"]), ([1, 3, 5, 5], &["Resize"])]
    {
        let (model, _) = model(&one(&shape, "type: \"Interp\" interp_param { height: 4 width: 6 }")).expect("a model");
        assert_eq!(ops(&model), expected);
    }
}

/// V0's settings stand in the layer itself.
#[test]
fn old_generations_are_the_same_net() {
    let text = "input: \"d\" input_dim: 1 input_dim: 1 input_dim: 8 input_dim: 8
        layers { layer { name: \"c\" type: \"conv\" num_output: 2 kernelsize: 3 stride: 2 pad: 1 blobs_lr: 1. weight_decay: 0.
                         weight_filler { type: \"xavier\" } } bottom: \"d\" top: \"c\" }
        layers { layer { name: \"p\" type: \"pool\" pool: AVE kernelsize: 2 stride: 2 } bottom: \"c\" top: \"p\" }
        layers { layer { name: \"s\" type: \"softmax\" } bottom: \"p\" top: \"s\" }";
    let (model, _) = model(&net(text)).expect("a model");
    assert_eq!((ops(&model), shape(&model, 0)), (vec!["Conv", "AveragePool", "Softmax"], vec![1, 2, 2, 2]));
}

#[test]
fn shapes_of_the_caller_stand_first() {
    let net = one(&[1, 3, 8, 8], "type: \"ReLU\"");
    let named = Shapes { named: [("a".to_owned(), vec![2, 3])].into(), ..Shapes::default() };
    let only = Shapes { only: Some(vec![4]), ..Shapes::default() };
    for (shapes, expected) in [(named, vec![2, 3]), (only, vec![4])] {
        let graph = Graph::from_net(&net, &shapes).expect("a graph");
        assert_eq!(graph.values()[graph.outputs()[0]].shape, expected);
    }
}

/// Layers in place that end a net, two layers of one name, a layer that is called like an inner node of another.
#[test]
fn no_two_nodes_have_one_name() {
    let text = "input: \"a\" input_shape { dim: 2 dim: 3 }
        layer { name: \"fc\" type: \"InnerProduct\" bottom: \"a\" top: \"fc\" inner_product_param { num_output: 4 } }
        layer { name: \"relu\" type: \"ReLU\" bottom: \"fc\" top: \"fc\" }
        layer { name: \"fc/Gemm\" type: \"TanH\" bottom: \"fc\" top: \"b\" }
        layer { name: \"relu\" type: \"ReLU\" bottom: \"b\" top: \"c\" }
        layer { name: \"drop\" type: \"Dropout\" bottom: \"c\" top: \"c\" }";
    let (model, _) = model(&net(text)).expect("a model");
    let names: HashSet<&str> = model.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names.len(), model.nodes.len(), "{:?}", model.nodes);
}

/// The first extents of the outputs where the batch is open, or why it cannot be.
fn opened(text: &str) -> Result<Vec<Dim>, String> {
    let graph = Graph::from_net(&net(text), &Shapes::default()).map_err(|e| e.to_string())?;
    let target = Target { dynamic_batch: true, ..Target::default() };
    let (model, _) = to_onnx(&graph, &target).map_err(|e| e.to_string())?;
    Ok(model.outputs.iter().map(|output| output.shape[0].clone()).collect())
}

#[test]
fn an_open_extent_is_called_the_batch_where_it_is_the_batch() {
    let name = |name: &str| Dim::Name(name.to_owned());
    let input = |name: &str, batch: u64| format!("input: \"{name}\" input_shape {{ dim: {batch} dim: 3 }} ");
    let join = "layer { name: \"q\" type: \"Concat\" bottom: \"a\" bottom: \"b\" top: \"q\" concat_param { axis: 0 } }
        layer { name: \"p\" type: \"ReLU\" bottom: \"a\" top: \"p\" }";
    for batch in [1, 2] {
        let text = input("a", batch) + &input("b", batch) + join;
        assert_eq!(opened(&text), Ok(vec![name("q_0"), name("N")]), "{batch}");
    }
    let refused = opened(&(input("a", 2) + &input("b", 3) + join)).expect_err("two batches");
    assert!(refused.contains("\"b\" has another batch"), "{refused}");
}

/// Caffe has no output of a value that is silenced, and its layers of data prepare images before the net.
#[test]
fn a_silenced_value_is_no_output_and_prepared_values_are_told() {
    let text = "layer { name: \"data\" type: \"Data\" top: \"d\" top: \"label\"
            transform_param { scale: 0.0039 mean_value: 104 mean_value: 117 mirror: false } data_param { batch_size: 2 } }
        layer { name: \"other\" type: \"Data\" top: \"o\" transform_param { scale: 2 } }
        layer { name: \"s\" type: \"Slice\" bottom: \"d\" top: \"a\" top: \"b\" }
        layer { name: \"r\" type: \"ReLU\" bottom: \"a\" top: \"a\" }
        layer { name: \"q\" type: \"Silence\" bottom: \"b\" bottom: \"label\" }";
    let shapes = Shapes { named: [("d".to_owned(), vec![1, 4])].into(), ..Shapes::default() };
    let graph = Graph::from_net(&net(text), &shapes).expect("a graph");
    let names: Vec<&str> = graph.outputs().iter().map(|value| &*graph.values()[*value].name).collect();
    assert_eq!(names, ["a"]);
    let [prepared] = graph.prepared() else { panic!("{:?}", graph.prepared()) };
    let settings: Vec<String> = prepared.settings.iter().map(|(path, text)| format!("{path}={text}")).collect();
    assert_eq!(prepared.layer, "data");
    let wanted = ["transform_param.scale=0.0039", "transform_param.mean_value=104,117", "transform_param.mirror=false"];
    assert_eq!(settings, wanted);
    let silent = "layer { name: \"d\" type: \"Input\" top: \"d\" input_param { shape { dim: 1 dim: 3 } } }
        layer { name: \"r\" type: \"ReLU\" bottom: \"d\" top: \"r\" } layer { name: \"q\" type: \"Silence\" bottom: \"r\" }";
    let error = Graph::from_net(&net(silent), &Shapes::default()).expect_err("no output");
    assert!(error.to_string().contains("no layer of the net has an output"), "{error}");
}
