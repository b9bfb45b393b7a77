//! `show`, `stats` and `extract` give the values that the library loads.

use std::fs;

use blob_io::Checkpoint;
use serde_json::Value;

use crate::support::{blob, command, data};

#[test]
fn show_prints_what_the_file_holds() {
    let path = "caffe/blobproto/f32_2x3x4x5.binaryproto";
    let file = Checkpoint::open(data(path)).unwrap();
    let blob_of = file.load(&file.entries()[0]).unwrap();
    let values = blob_of.data().elements::<f32>().unwrap();
    let json = &blob(&["show", path, "--json"]).json()[0];
    assert_eq!(json["schema"], "blob.show/1");
    for (i, expected) in values.iter().enumerate() {
        let shown = &json["values"][i / 60][i / 20 % 3][i / 5 % 4][i % 5];
        assert_eq!(shown.as_f64().map(|v| v as f32), Some(*expected), "{i}");
    }
    let csv = blob(&["show", path, "@0", "--csv"]).out;
    assert_eq!(csv.lines().count(), 24);
    let numbers: Vec<f32> = csv.split([',', '\n']).filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
    assert_eq!(numbers, *values);
    let slice = &blob(&["show", path, "--json", "--slice", "1,:,-1,::2"]).json()[0];
    assert_eq!(slice["shape"], serde_json::json!([3, 3]));
    assert_eq!(slice["values"][2][1].as_f64().map(|v| v as f32), Some(values[60 + 40 + 15 + 2]));
    let head = &blob(&["show", path, "--json", "--head", "7"]).json()[0];
    assert_eq!(head["values"].as_array().map(Vec::len), Some(7));
}

#[test]
fn stats_agree_with_a_naive_sum() {
    let path = "caffe/blobproto/f32_2x3x4x5.binaryproto";
    let file = Checkpoint::open(data(path)).unwrap();
    let blob_of = file.load(&file.entries()[0]).unwrap();
    let values: Vec<f64> = blob_of.data().elements::<f32>().unwrap().iter().map(|v| f64::from(*v)).collect();
    let stats = &blob(&["stats", path, "--json", "--hist"]).json()[0];
    assert_eq!(stats["schema"], "blob.stats/1");
    let tensor = &stats["tensors"][0];
    let near = |field: &str, expected: f64| {
        let found = tensor[field].as_f64().unwrap();
        assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{field}: {found}, {expected}");
    };
    let mean = values.iter().sum::<f64>() / 120.0;
    near("min", values.iter().copied().fold(f64::INFINITY, f64::min));
    near("max", values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    near("mean", mean);
    near("std", (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 120.0).sqrt());
    near("l1", values.iter().map(|v| v.abs()).sum());
    near("l2", values.iter().map(|v| v * v).sum::<f64>().sqrt());
    let bins: u64 = tensor["histogram"]["counts"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!((bins, &tensor["count"]), (120, &120.into()));
    let channels = &blob(&["stats", path, "--json", "--per-channel", "-3"]).json()[0];
    let sums: f64 = channels["tensors"].as_array().unwrap().iter().filter_map(|c| c["l1"].as_f64()).sum();
    assert_eq!(channels["tensors"].as_array().map(Vec::len), Some(3));
    assert!((sums - tensor["l1"].as_f64().unwrap()).abs() < 1e-9);
}

/// A number of the JSON, where infinities are texts.
fn number(value: &Value) -> f64 {
    match value.as_str() {
        Some(text) => text.parse().expect("a number"),
        None => value.as_f64().expect("a number"),
    }
}

#[test]
fn the_lines_of_stats_are_its_json() {
    let special = "caffe/blobproto/f32_special.binaryproto";
    for args in [
        &["stats", "caffe/net/f32_v2.caffemodel", "--hist"][..],
        &["stats", special, "--hist"],
        &["stats", "other/two.safetensors"],
        &["stats", "caffe/net/v1.caffemodel", "conv1/0", "--per-channel", "1"],
    ] {
        let (lines, json) = (blob(args).ok().out, &blob(&[args, &["--json"]].concat()).ok().json()[0]);
        let mut lines = lines.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let header = lines.next().expect("a header");
        let (lines, tensors): (Vec<_>, _) = (lines.collect(), json["tensors"].as_array().expect("tensors"));
        assert_eq!(lines.len(), tensors.len());
        for (line, tensor) in lines.iter().zip(tensors) {
            assert_eq!(line.len(), header.len());
            for (column, field) in header.iter().zip(line) {
                let value = &tensor[*column];
                let joined = |list: &Value, by: &str| {
                    list.as_array().map(|all| all.iter().map(Value::to_string).collect::<Vec<_>>().join(by))
                };
                match *column {
                    "name" | "dtype" => assert_eq!(value, field),
                    "shape" => assert_eq!(joined(value, "x").as_deref(), Some(*field)),
                    "histogram" => assert_eq!(joined(&value["counts"], ",").as_deref(), Some(*field)),
                    "channel" if value.is_null() => assert_eq!(*field, "-"),
                    _ => {
                        // The parser of the JSON may be off by the last bit.
                        let (line, json) = (field.parse::<f64>().expect("a number"), number(value));
                        assert!(line == json || ((line - json) / json).abs() < 1e-15, "{column}: {line:e}, {json:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_tensor_is_extracted_in_each_format() {
    const NET: &str = "caffe/net/v1.caffemodel";
    let folder = tempfile::tempdir().unwrap();
    let file = Checkpoint::open(data(NET)).unwrap();
    let expected = file.view(&file.entries()[0]).unwrap();
    for (name, to) in [("x.npy", "npy"), ("x.raw", "raw"), ("x.csv", "csv")] {
        let path = folder.path().join(name);
        blob(&["extract", NET, "conv1/0", "-o", path.to_str().unwrap()]).ok();
        let bytes = fs::read(&path).unwrap();
        let piped = command(&["extract", NET, "#0", "-o", "-", "--to", to]).output().unwrap();
        assert_eq!(piped.stdout, bytes);
        let values = match to {
            "csv" => {
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(text.lines().count(), 36);
                let numbers = text.split([',', '\n']).filter(|s| !s.is_empty());
                numbers.flat_map(|n| n.parse::<f32>().unwrap().to_le_bytes()).collect()
            }
            "npy" => bytes[bytes.len() - expected.len()..].to_vec(),
            _ => bytes,
        };
        assert_eq!(values, *expected, "{to}");
    }
}
