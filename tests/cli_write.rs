//! The tool from outside: its verdicts, and the files that it writes.

use std::fs;

use blob_io::Checkpoint;

use crate::support::{blob, command, data};

const NET: &str = "caffe/net/v1.caffemodel";

#[test]
fn a_tensor_is_extracted_in_each_format() {
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
    blob(&["extract", NET, "conv1/0", "-o", folder.path().to_str().unwrap(), "--to", "npy"])
        .refused("writes one file, and this is a folder");
    let again = blob(&["extract", NET, "conv1/0", "-o", folder.path().join("x.npy").to_str().unwrap()]);
    assert_eq!(again.code, Some(2), "{again:?}");
}

#[test]
fn receipts_do_not_grow_from_conversion_to_conversion() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |i: usize| {
        let extension = if i.is_multiple_of(2) { "npz" } else { "safetensors" };
        let path = folder.path().join(format!("{i}.{extension}"));
        path.to_str().expect("UTF-8").to_owned()
    };
    let mut from = data(NET).to_str().expect("UTF-8").to_owned();
    for i in 0..20 {
        blob(&["convert", &from, "-o", &path(i)]).ok();
        from = path(i);
    }
    let last = Checkpoint::open(&from).expect("opens");
    let (_, text) = &last.metadata()[0];
    assert!(text.len() < 8 << 10, "{}", text.len());
    let receipt: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let history = receipt["history"].as_array().expect("a list");
    let first = blake3::hash(&fs::read(data(NET)).expect("readable"));
    assert_eq!(history.len(), 19);
    assert_eq!(history[0]["blake3"], first.to_hex().to_string());
    assert_eq!(history[0]["name"], "v1.caffemodel");
    assert_eq!(history[1]["format"], "npz");
    assert!(history[18]["tool"].as_str().expect("words").starts_with("blob "));
    assert_eq!(receipt["source"]["name"], "18.npz");
    assert!(receipt["source"]["metadata"].get(blob_convert::RECEIPT_KEY).is_none());
    let info = blob(&["info", &from]);
    assert!(info.out.contains("from 18.npz (npz, "), "{info:?}");
}
