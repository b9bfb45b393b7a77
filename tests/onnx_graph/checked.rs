//! Each model of a golden net is one that `onnx.checker` has accepted, by its digest. In tests/interop
//! `side_onnx_layers.py BLOB FRAMEWORK check` runs the checker, with strict inference of shapes, and writes the lists.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::{Case, cases};
use crate::support::message::fields;
use crate::support::{Folder, blob, data, report, sha256};

/// The first 16 digits of the SHA-256 of a model's versions and graph, as they are encoded: all but the producer's
/// words and the receipt.
fn digest(model: &[u8]) -> String {
    let kept = fields(model).into_iter().filter(|(key, _)| [1, 7, 8].contains(&(key >> 3)));
    let mut digest = sha256(&kept.flat_map(|(_, field)| field.to_vec()).collect::<Vec<u8>>());
    digest.truncate(16);
    digest
}

/// The digest of the model that the tool makes of a case; none where the net is refused.
fn converted(case: &Case, framework: &str) -> Option<String> {
    let folder = Folder::new();
    let [net, option, weights] = match framework {
        "caffe" => [folder.with("x.prototxt", case.bytes("prototxt")), "--net".to_owned(), folder.file("x.caffemodel")],
        _ => [folder.with("x-symbol.json", case.bytes("symbol")), "--symbol".to_owned(), folder.file("x.params")],
    };
    std::fs::write(&weights, case.bytes("weights")).expect("written");
    let out = folder.file("x.onnx");
    let shapes = case.side("in/").into_iter().filter(|_| framework == "mxnet").map(|(name, tensor)| {
        let dims: Vec<String> = tensor.dims.iter().map(ToString::to_string).collect();
        format!("--input={name}={}", dims.join(","))
    });
    let shapes: Vec<String> = shapes.collect();
    let line = ["convert", &weights, &option, &net, "-o", &out, "-q"].into_iter();
    let ran = blob(&line.chain(shapes.iter().map(|option| &**option)).collect::<Vec<_>>());
    (ran.code == Some(0)).then(|| digest(&std::fs::read(&out).expect("written")))
}

#[test]
fn each_model_is_one_that_the_checker_accepted() {
    for framework in ["caffe", "mxnet"] {
        let list = std::fs::read_to_string(data(&format!("onnx_graph/checked_{framework}.txt"))).expect("the list");
        let checked: BTreeMap<&str, &str> = list.lines().filter_map(|line| line.split_once(' ')).collect();
        let cases = cases(&format!("onnx_graph/{framework}.npz"));
        let found = cases.par_iter().map(|case| (&*case.name, converted(case, framework)));
        let unlike = found.filter(|(name, found)| checked.get(name).copied() != found.as_deref());
        let unlike: Vec<&str> = unlike.map(|(name, _)| name).collect();
        assert!(
            unlike.is_empty(),
            "the checker has not seen the models of {unlike:?}: run the command of this file's head"
        );
        report(&format!(
            "onnx: {} models of {framework}'s cases are those that onnx's checker accepted",
            checked.len()
        ));
    }
}
