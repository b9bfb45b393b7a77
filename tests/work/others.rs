//! What is read beside the files of tensors, made to cost most: descriptions of nets, folders with their receipts. And
//! the datum, of which a file holds one.

use std::fs;

use blob_convert::transform::Topology;
use blob_io::{Checkpoint, Format};
use serde_json::json;

use super::list;
use crate::support::Folder;
use crate::support::archive::npy;
use crate::support::message::var;
use crate::support::work::broken_bounds;

/// A datum of as many values as fit, each a field of its own.
#[test]
fn a_datum_does_linear_work_in_linear_memory() {
    let broken = broken_bounds(
        "datum",
        |size: usize| {
            let count = size as u64 / 5;
            let value = [&[6 << 3 | 5][..], &1.0_f32.to_le_bytes()].concat();
            [var(1, 1), var(2, 1), var(3, count), value.repeat(count as usize)].concat()
        },
        |file| list(file, Some(Format::Datum)),
    );
    assert_eq!(broken, [""; 0]);
}

/// A text of `count` lines of some bytes each.
fn lines(size: usize, each: usize, line: impl Fn(usize) -> String) -> String {
    (0..size / each).map(line).collect()
}

/// Layers in a chain, in place, beside each other, of one name; inputs; a layer that reads all; fields within fields.
#[test]
fn prototxts_do_linear_work_in_linear_memory() {
    let layer = |i: usize, kind: &str, bottom: String, top: String| {
        format!("layer {{ name: \"l{i:06}\" type: \"{kind}\" bottom: \"{bottom}\" top: \"{top}\" }}\n")
    };
    let makers: [(&str, &dyn Fn(usize) -> String); 8] = [
        ("chain", &|size| lines(size, 70, |i| layer(i, "ReLU", format!("v{i}"), format!("v{}", i + 1)))),
        ("in place", &|size| lines(size, 70, |i| layer(i, "Scale", "data".to_owned(), "data".to_owned()))),
        ("beside", &|size| lines(size, 70, |i| layer(i, "BatchNorm", "data".to_owned(), format!("v{i}")))),
        ("one name", &|size| lines(size, 70, |_| layer(0, "ReLU", "v".to_owned(), "v".to_owned()))),
        ("inputs", &|size| lines(size, 60, |i| format!("input: \"v{i}\" input_dim: 1 input_dim: 1 input_dim: 1\n"))),
        ("one reader", &|size| {
            format!("layer {{ name: \"c\" {} }}", lines(size, 14, |i| format!("bottom: \"v{i:05}\" ")))
        }),
        ("a list", &|size| format!("layer {{ name: \"c\" blobs_lr: [{} 1] }}", "1, ".repeat(size / 3))),
        ("deep", &|size| lines(size, 300, |_| format!("layer {{ {} {} }}\n", "p { ".repeat(60), "} ".repeat(60)))),
    ];
    for (name, make) in makers {
        let broken = broken_bounds(name, |size| make(size).into_bytes(), |text| drop(Topology::prototxt("net", text)));
        assert_eq!(broken, [""; 0]);
    }
}

/// Operators in a chain, beside each other with one that reads all, and those that only pass a variable on.
#[test]
fn symbols_do_linear_work_in_linear_memory() {
    let node = |op: &str, i: usize, inputs: String| {
        format!(",\n{{\"op\": \"{op}\", \"name\": \"n{i:06}\", \"inputs\": [{inputs}]}}")
    };
    let symbol = |nodes: String| {
        format!(
            "{{\"nodes\": [{{\"op\": \"null\", \"name\": \"data\", \"inputs\": []}}{nodes}], \"heads\": [[1, 0, 0]]}}"
        )
    };
    let makers: [(&str, &dyn Fn(usize) -> String); 4] = [
        ("chain", &|size| symbol(lines(size, 70, |i| node("Activation", i, format!("[{i}, 0, 0]"))))),
        ("passes", &|size| symbol(lines(size, 70, |i| node("identity", i, format!("[{i}, 0, 0]"))))),
        ("variables", &|size| symbol(lines(size, 50, |i| node("null", i, String::new())))),
        ("one reader", &|size| {
            let all: Vec<String> = (0..size / 12).map(|_| "[0, 0, 0]".to_owned()).collect();
            symbol(node("Concat", 0, all.join(", ")))
        }),
    ];
    for (name, make) in makers {
        let broken = broken_bounds(name, |size| make(size).into_bytes(), |text| drop(Topology::symbol("net", text)));
        assert_eq!(broken, [""; 0]);
    }
}

/// A folder whose receipt lists one file many times, under other names.
#[test]
fn a_folder_does_linear_work_in_linear_memory() {
    let broken = broken_bounds(
        "folder",
        |size: usize| {
            let contents = (0..size / 80)
                .map(|i: usize| json!({"name": format!("t{i:06}"), "dtype": "f32", "shape": [1], "file": "a.npy"}));
            let contents: Vec<_> = contents.collect();
            json!({"schema": "blob.receipt/1", "tool": "x", "tensors": contents.len(), "contents": contents})
                .to_string()
                .into_bytes()
        },
        |receipt| {
            let folder = Folder::new();
            fs::write(folder.path().join("a.npy"), npy("'<f4'", "(1,)", &[0; 4])).expect("written");
            fs::write(folder.path().join("blob.receipt.json"), receipt).expect("written");
            let _ = Checkpoint::open(folder.path());
        },
    );
    assert_eq!(broken, [""; 0]);
}
