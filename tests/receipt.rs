//! The receipt proves a converted file without the source, by each tensor's digest and the list of tensors.

use std::path::Path;

use blob_convert::{Options, Silent, verify};
use blob_io::{Bytes, Checkpoint, Format};

use crate::convert::{by_safetensors, convert, folders, lenet, named, readable};
use crate::support::{Folder, blob, data};
use crate::there_and_back;

/// The result of `verify::receipt` for a file: the number of equal digests, and the findings.
fn against_receipt(path: &Path) -> (Option<u64>, Vec<String>) {
    let checkpoint = Checkpoint::open(path).expect("opens");
    let mut found = Vec::new();
    let right = verify::receipt(&checkpoint, &Silent, &mut |finding: verify::Finding| {
        found.push(format!("{}: {}", finding.tensor, finding.message));
    });
    (right.expect("is checked"), found)
}

#[test]
fn one_wrong_bit_in_a_converted_file_is_found_without_its_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = lenet();
    let count = source.entries().len() as u64;
    let path = folder.path().join("out.safetensors");
    convert(&source, Format::Safetensors, &path).expect("converts");
    assert_eq!(against_receipt(&path), (Some(count), vec![]));
    let written = Checkpoint::open(&path).expect("opens");
    let last = written.entries().last().expect("a tensor");
    let mut bytes = std::fs::read(&path).expect("readable");
    *bytes.last_mut().expect("bytes") ^= 0x10;
    std::fs::write(&path, &bytes).expect("writable");
    let (right, found) = against_receipt(&path);
    assert_eq!((right, found.len()), (Some(count - 1), 1), "{found:?}");
    let name = format!("{}: has other bytes", last.name());
    assert!(found[0].starts_with(&name), "{found:?}");
    let ran = blob(&["verify", path.to_str().expect("UTF-8")]).no();
    assert!(ran.out.contains(last.name()), "{ran:?}");
}

#[test]
fn the_digests_are_those_of_the_bytes_that_other_readers_find() {
    let folder = tempfile::tempdir().expect("a folder");
    for (i, (path, checkpoint)) in readable(&folders()).iter().enumerate().step_by(5) {
        let safe = folder.path().join(format!("{i}.safetensors"));
        convert(checkpoint, Format::Safetensors, &safe).unwrap_or_else(|e| panic!("{e}"));
        let bytes = std::fs::read(&safe).expect("readable");
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("a header");
        let metadata = header.metadata().as_ref().expect("metadata");
        let receipt: serde_json::Value = serde_json::from_str(&metadata[blob_convert::RECEIPT_KEY]).expect("JSON");
        let theirs = by_safetensors(&safe);
        let contents = receipt["contents"].as_array().expect("a list");
        assert_eq!(contents.len(), theirs.len(), "{}", path.display());
        for item in contents {
            let (shape, bytes) = &theirs[item["name"].as_str().expect("a name")];
            assert_eq!(item["shape"], serde_json::json!(shape));
            assert_eq!(item["blake3"], blake3::hash(bytes).to_hex().as_str());
        }
        let npz = folder.path().join(format!("{i}.npz"));
        // Also from npz.
        let anew = Options::new(Format::Npz).with(|o| o.anew = true);
        there_and_back::convert(checkpoint, &anew, &npz).unwrap_or_else(|e| panic!("{e}"));
        let count = theirs.len() as u64;
        assert_eq!(against_receipt(&npz), (Some(count), vec![]), "{}", path.display());
    }
}

#[test]
fn a_receipt_of_other_tensors_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let file = [named(b"a"), named(b"b")].concat();
    let source = Checkpoint::from_source("x.caffemodel", Box::new(Bytes(file)));
    convert(&source.expect("opens"), Format::Safetensors, &path).expect("converts");
    let bytes = std::fs::read(&path).expect("readable");
    for (from, to, what) in [
        // In the header, then in the receipt, which is escaped.
        (r#""b/0":{"dtype""#, r#""c/0":{"dtype""#, "c/0: is not in the receipt|b/0: is missing"),
        (r#"\"shape\":[1]"#, r#"\"shape\":[2]"#, "and was written as f32 2"),
        (r#"\"dtype\":\"f32\""#, r#"\"dtype\":\"i32\""#, "and was written as i32 1"),
    ] {
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes());
        let at = at.unwrap_or_else(|| panic!("{from}"));
        let mut other = bytes.clone();
        other[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, &other).expect("writable");
        let (_, found) = against_receipt(&path);
        for part in what.split('|') {
            assert!(found.iter().any(|f| f.contains(part)), "{part}: {found:?}");
        }
    }
}

#[test]
fn many_tensors_have_one_digest_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let names: Vec<String> = (0..40_000).map(|i| format!("n{i:05}")).collect();
    let file: Vec<u8> = names.iter().flat_map(|n| named(n.as_bytes())).collect();
    let source = Checkpoint::from_source("x.caffemodel", Box::new(Bytes(file)));
    convert(&source.expect("opens"), Format::Safetensors, &path).expect("converts");
    assert_eq!(against_receipt(&path), (Some(40_000), vec![]));
    let mut bytes = std::fs::read(&path).expect("readable");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&path, &bytes).expect("writable");
    let (right, found) = against_receipt(&path);
    assert_eq!(right, Some(0));
    assert!(found[0].contains("together"), "{found:?}");
}

#[test]
fn receipts_do_not_grow_from_conversion_to_conversion() {
    const NET: &str = "caffe/net/v1.caffemodel";
    let folder = Folder::new();
    let path = |i: usize| folder.file(&format!("{i}.{}", if i.is_multiple_of(2) { "npz" } else { "safetensors" }));
    let mut from = data(NET).to_str().expect("UTF-8").to_owned();
    for i in 0..20 {
        blob(&["convert", &from, "-o", &path(i)]).ok();
        from = path(i);
    }
    let last = Checkpoint::open(&from).expect("opens");
    let (_, text) = last.metadata().iter().find(|(key, _)| key == "blob.receipt").expect("a receipt");
    assert!(text.len() < 8 << 10, "{}", text.len());
    let receipt: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let history = receipt["history"].as_array().expect("a list");
    let first = blake3::hash(&std::fs::read(data(NET)).expect("readable"));
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
