//! `blob merge`: the sources' other content stays or its loss is said, and so is a source that lies.

use std::fs;
use std::path::PathBuf;

use blob_convert::Place;
use blob_convert::regroup::Union;
use blob_io::{Checkpoint, Format};
use serde_json::{Value, json};

use crate::support::archive::safetensors;
use crate::support::{Folder, blob, data};

/// A safetensors file of one tensor of this name, with this metadata.
fn with_metadata(name: &str, metadata: &Value) -> Vec<u8> {
    let tensor = json!({"dtype": "U8", "shape": [1], "data_offsets": [0, 1]});
    safetensors(&json!({"__metadata__": metadata, name: tensor}).to_string(), &[7])
}

#[test]
fn metadata_that_a_merge_drops_is_said() {
    let folder = Folder::new();
    let a = folder.with("a.safetensors", with_metadata("a", &json!({"author": "A", "licence": "L", "format": "pt"})));
    let b = folder.with("b.safetensors", with_metadata("b", &json!({"author": "A", "licence": "M"})));
    for (out, dropped, kept) in [
        ("m.npz", "\"author\", \"licence\"", None),
        ("m.params", "\"author\", \"licence\"", None),
        ("m.safetensors", "\"licence\"", Some("A")),
    ] {
        let ran = blob(&["merge", &a, &b, "-o", &folder.file(out)]).ok();
        let said = format!(": {dropped}\n");
        assert!(ran.err.contains("metadata left out") && ran.err.contains(&said), "{out}: {}", ran.err);
        let merged = Checkpoint::open(folder.file(out)).expect("opens");
        let author = merged.metadata().iter().find(|(key, _)| key == "author").map(|(_, text)| &**text);
        assert_eq!(author, kept, "{out}");
    }
}

#[test]
fn merged_solver_states_keep_their_iteration_and_are_known() {
    let folder = Folder::new();
    let golden = data("caffe/misc/state.solverstate");
    let source = Checkpoint::open(&golden).expect("opens");
    let out = folder.file("s.solverstate");
    blob(&["merge", golden.to_str().expect("UTF-8"), "-o", &out]).ok();
    let merged = Checkpoint::open(&out).expect("opens");
    assert_eq!((merged.format(), merged.entries().len()), (Format::SolverState, source.entries().len()));
    assert_eq!(merged.metadata(), source.metadata());
    // Of tensors alone there is no iteration, without which readers would take the file for a net.
    let parts = folder.file("parts.npz");
    blob(&["convert", golden.to_str().expect("UTF-8"), "-o", &parts]).ok();
    blob(&["merge", &parts, "-o", &out, "--force"]).ok();
    let merged = Checkpoint::open(&out).expect("opens");
    assert_eq!(merged.format(), Format::SolverState);
    assert!(merged.metadata().contains(&("iter".to_owned(), "0".to_owned())), "{:?}", merged.metadata());
}

/// One byte of a converted file changes after the conversion.
#[test]
fn a_source_that_contradicts_its_receipt_is_said() {
    let folder = Folder::new();
    let (z, out) = (folder.file("z.safetensors"), folder.file("m.safetensors"));
    let net = data("caffe/net/f32_v2_diff.caffemodel").to_str().expect("UTF-8").to_owned();
    blob(&["convert", &net, "-o", &z]).ok();
    assert!(!blob(&["merge", &z, "-o", &out]).ok().err.contains("receipt in"));
    let mut bytes = fs::read(&z).expect("readable");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&z, bytes).expect("written");
    for args in [&["-o", &out, "--force"][..], &["-o", &out, "--force", "--json"]] {
        let ran = blob(&[&["merge", &z], args].concat()).ok();
        assert!((ran.out + &ran.err).contains("is not what the receipt in"), "{args:?}");
    }
}

#[test]
fn names_that_clash_are_no_plan() {
    let folder = Folder::new();
    let paths = ["a", "b"].map(|name| {
        let file = with_metadata("w", &json!({}));
        PathBuf::from(folder.with(&format!("{name}.safetensors"), file))
    });
    let sources = paths.each_ref().map(|path| Checkpoint::open(path).expect("opens"));
    let union = Union::of(&paths, &sources, false).expect("a union");
    let refused = union.plan(Format::Npz, &Place::Stdout).expect_err("a clash").to_string();
    assert!(refused.contains("\"w\" in "), "{refused}");
    let union = Union::of(&paths, &sources, true).expect("a union");
    assert_eq!(union.plan(Format::Npz, &Place::Stdout).expect("a plan").tensors().len(), 2);
}
