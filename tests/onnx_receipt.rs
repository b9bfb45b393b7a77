//! Receipts of ONNX models whose graph or receipt was edited: `verify` notices each edit of the graph, and `--against`
//! makes the graph again of the net.

use blob_convert::RECEIPT_KEY;
use blob_io::Checkpoint;
use blob_io::onnx::proto::{ModelProto, NodeProto, StringStringEntryProto};
use prost::Message;
use serde_json::{Value, json};

use crate::edited_receipt::remarks;
use crate::support::{Folder, blob, data, find, open};

/// LeNet as a model, with the receipt.
fn model(more: &[&str]) -> ModelProto {
    let folder = Folder::new();
    let (source, out) = (source_path(), folder.file("net.onnx"));
    blob(&[&["convert", &source, "--input", "data=1,1,14,14", "-o", &out], more].concat()).ok();
    let bytes = std::fs::read(&out).expect("written");
    let model = ModelProto::decode(&*bytes).expect("a message");
    assert_eq!(model.encode_to_vec(), bytes, "each edit is of the message, not of how it is encoded");
    model
}

fn source_path() -> String {
    data("caffe/forward/lenet.caffemodel").to_str().expect("UTF-8").to_owned()
}

/// All that is said of a model: with the source, or without.
fn said(model: &ModelProto, source: Option<&Checkpoint>) -> Vec<String> {
    let mut said = remarks(&open("net.onnx", &model.encode_to_vec()).expect("opens"), source);
    said.retain(|remark| !remark.contains("no transforms"));
    said
}

fn pair(model: &mut ModelProto) -> &mut StringStringEntryProto {
    model.metadata_props.iter_mut().find(|pair| pair.key() == RECEIPT_KEY).expect("a receipt")
}

/// The model with an edited receipt.
fn with(model: &ModelProto, edit: impl FnOnce(&mut Value)) -> ModelProto {
    let mut model = model.clone();
    let mut receipt: Value = serde_json::from_str(pair(&mut model).value()).expect("JSON");
    edit(&mut receipt);
    pair(&mut model).value = Some(receipt.to_string());
    model
}

/// The digest of a model's bytes without the tensors' values and without the receipt, made by cutting both out.
fn digest(model: &ModelProto) -> String {
    let mut model = model.clone();
    model.metadata_props.retain(|pair| pair.key() != RECEIPT_KEY);
    let marks: Vec<Vec<u8>> = model
        .graph
        .iter_mut()
        .flat_map(|graph| &mut graph.initializer)
        .zip(0_u64..)
        .map(|(tensor, number)| {
            let mut mark = vec![0; tensor.raw_data().len()];
            blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut mark);
            tensor.raw_data = Some(mark.clone());
            mark
        })
        .collect();
    let mut bytes = model.encode_to_vec();
    for mark in marks.iter().filter(|mark| !mark.is_empty()) {
        let at = find(&bytes, mark);
        bytes.drain(at..at + mark.len());
    }
    blake3::hash(&bytes).to_hex().to_string()
}

/// Edits of a graph, each with a name.
type Edit = (&'static str, fn(&mut ModelProto));

const EDITS: &[Edit] = &[
    ("an operator", |model| node(model, "MaxPool").op_type = Some("AveragePool".to_owned())),
    ("an attribute", |model| {
        let strides = node(model, "Conv").attribute.iter_mut().find(|own| own.name() == "strides").expect("strides");
        strides.ints[0] += 1;
    }),
    ("another input of a node", |model| node(model, "Gemm").input[1] = "ip2/0".to_owned()),
    ("a node that is gone", |model| drop(graph(model).node.pop())),
    ("a node more", |model| {
        let more = node(model, "Relu").clone();
        graph(model).node.push(NodeProto { output: vec!["more".to_owned()], ..more });
    }),
    ("the shape of the input", |model| {
        let tensor = graph(model).input[0].r#type.as_mut().and_then(|of| of.tensor_type.as_mut()).expect("a tensor");
        tensor.shape.as_mut().expect("a shape").dim[0].dim_value = Some(2);
    }),
    ("the output's name", |model| graph(model).output[0].name = Some("other".to_owned())),
    ("an initializer's name", |model| graph(model).node[0].input[1] = "conv2/0".to_owned()),
    ("the opset", |model| model.opset_import[0].version = Some(13)),
    ("the version of the format", |model| model.ir_version = Some(7)),
    ("words about the graph", |model| graph(model).doc_string = Some("other".to_owned())),
];

fn graph(model: &mut ModelProto) -> &mut blob_io::onnx::proto::GraphProto {
    model.graph.as_mut().expect("a graph")
}

fn node<'m>(model: &'m mut ModelProto, kind: &str) -> &'m mut NodeProto {
    graph(model).node.iter_mut().find(|node| node.op_type() == kind).expect("a node")
}

#[test]
fn an_edited_graph_is_noticed_by_the_receipt_and_against_the_net() {
    let (honest, source) = (model(&[]), Checkpoint::open(source_path()).expect("opens"));
    assert_eq!(said(&honest, Some(&source)), [""; 0]);
    let recorded: Value = serde_json::from_str(pair(&mut honest.clone()).value()).expect("JSON");
    assert_eq!(recorded["graph_blake3"], digest(&honest));
    for (what, edit) in EDITS {
        let mut lie = honest.clone();
        edit(&mut lie);
        assert_ne!(lie, honest, "{what}");
        let found = said(&lie, None);
        assert!(found.iter().any(|found| found.contains("is of another graph")), "{what}: {found:?}");
        // The receipt of a forger is right of the forged graph, and the net is not.
        let forged = digest(&lie);
        let lie = with(&lie, |receipt| receipt["graph_blake3"] = json!(forged));
        assert_eq!(said(&lie, None), [""; 0], "{what}");
        let found = said(&lie, Some(&source));
        assert!(found.iter().any(|found| found.contains("the graph is not the one")), "{what}: {found:?}");
    }
    let mut lie = honest.clone();
    lie.metadata_props
        .push(StringStringEntryProto { key: Some("classes".to_owned()), value: Some("cat,dog".to_owned()) });
    assert!(said(&lie, None)[0].contains("is of another graph"));
    // Other values are other tensors, and the same graph.
    let mut lie = honest.clone();
    graph(&mut lie).initializer[0].raw_data.as_mut().expect("raw")[0] ^= 1;
    assert!(said(&lie, None).iter().all(|found| found.contains("has other bytes than were written")));
}

/// An edit of a receipt, and words of the answer.
struct Forged {
    what: &'static str,
    edit: fn(&mut Value),
    said: &'static str,
}

const fn forged(what: &'static str, edit: fn(&mut Value), said: &'static str) -> Forged {
    Forged { what, edit, said }
}

/// The settings of the step that makes the model.
fn settings(receipt: &mut Value) -> &mut Value {
    let steps = receipt["transforms"].as_array_mut().expect("a list");
    &mut steps.iter_mut().find(|step| step["name"] == "onnx").expect("the step")["settings"]
}

fn without(object: &mut Value, key: &str) {
    object.as_object_mut().expect("an object").remove(key);
}

const FORGED: &[Forged] = &[
    forged("an open batch", |r| settings(r)["graph"]["dynamic_batch"] = json!(true), "the graph is not"),
    forged("another opset", |r| settings(r)["graph"]["opset"] = json!(13), "the graph is not"),
    forged("another input", |r| settings(r)["graph"]["inputs"]["data"][0] = json!(2), "the graph is not"),
    forged("no input", |r| settings(r)["graph"]["inputs"] = json!({}), "cannot be made again"),
    forged("an opset of none", |r| settings(r)["graph"]["opset"] = json!(99), "cannot be made again"),
    forged("no graph", |r| without(settings(r), "graph"), "does not say how a net became"),
    forged("an unknown setting", |r| settings(r)["graph"]["sdd"] = json!("raw"), "settings that cannot be read"),
    forged(
        "another net",
        |r| settings(r)["net"] = json!({"from": "option", "name": "n.prototxt", "blake3": "0"}),
        "the net of n.prototxt was followed",
    ),
    forged("no steps", |r| r["transforms"] = json!([]), "has no step that makes the graph"),
    forged("steps of null", |r| r["transforms"] = json!(null), "no room for its transforms"),
    forged("no digest", |r| without(r, "graph_blake3"), "has no graph_blake3"),
    forged("an odd digest", |r| r["graph_blake3"] = json!(7), "is of another graph"),
];

#[test]
fn a_forged_step_or_a_receipt_without_claims_of_the_graph_proves_nothing() {
    let source = Checkpoint::open(source_path()).expect("opens");
    for more in [&[][..], &["--dtype", "f16"]] {
        let honest = model(more);
        assert_eq!(said(&honest, Some(&source)), [""; 0], "{more:?}");
        for Forged { what, edit, said: wanted } in FORGED {
            let found = said(&with(&honest, edit), Some(&source));
            assert!(found.iter().any(|found| found.contains(wanted)), "{more:?}, {what}: {wanted}: {found:?}");
        }
        // Without a receipt nothing is proved, which is said.
        let mut bare = honest.clone();
        bare.metadata_props.clear();
        let found = said(&bare, Some(&source));
        assert!(found.iter().any(|found| found.contains("the graph was not compared")), "{more:?}: {found:?}");
    }
}
