//! Receipts in which one field or one key is another: `verify` notices each that claims something.

use std::path::Path;

use blob_convert::transform::Registry;
use blob_convert::verify::{self, Remark};
use blob_convert::{Options, Silent};
use blob_io::{Checkpoint, Format};
use serde_json::{Value, json};

use crate::support::conversion::to_file;
use crate::support::receipt::{deflated, inflated, receipt, with_receipt};
use crate::support::{Folder, blob, data, open, report};

/// The findings and notes of every check of a file with the source.
pub(crate) fn remarks(file: &Checkpoint, source: Option<&Checkpoint>) -> Vec<String> {
    let mut all = Vec::new();
    let mut take = |remark| match remark {
        Remark::Finding(finding) => all.push(format!("{} {}", finding.tensor, finding.message)),
        Remark::Unproven(finding) => all.push(finding.message),
        Remark::Note(note) => all.push(note),
        _ => {}
    };
    verify::claims(file, &mut take);
    verify::receipt(file, &Silent, &mut |finding| take(Remark::Finding(finding))).expect("checked");
    verify::replay(file, &Registry::default(), &mut |remark| {
        if let Remark::Finding(finding) = remark {
            take(Remark::Finding(finding));
        }
    });
    if let Some(source) = source {
        verify::against(file, source, &Silent, &mut take).expect("compared");
    }
    all
}

/// The paths of all values in a receipt that are not objects.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, field)| {
            leaves(field, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), found)
        }),
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) => {
            found.push(path.to_owned());
            items.iter().enumerate().for_each(|(i, item)| leaves(item, &format!("{path}/{i}"), found));
        }
        Value::Null => {}
        _ => found.push(path.to_owned()),
    }
}

/// Another value of the same kind.
fn edited(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let middle = text.char_indices().nth(text.chars().count() / 2);
            let (at, c) = middle.unwrap_or((0, ' '));
            let other = if c == 'e' { 'f' } else { 'e' };
            json!(format!("{}{other}{}", &text[..at], text.get(at + c.len_utf8()..).unwrap_or_default()))
        }
        Value::Number(n) if n.is_u64() => json!(n.as_u64().expect("a number") + 1),
        Value::Number(n) => json!(n.as_f64().expect("a number") + 1.0),
        Value::Bool(is) => json!(!is),
        Value::Array(items) => json!(items[1..]),
        other => panic!("{other}"),
    }
}

/// Whether a field claims nothing that a file or its source can contradict: names that a user may change, the version
/// of the tool, and why there is no frame.
fn is_free(path: &str) -> bool {
    ["/tool", "/source/name", "/source/member", "/frame_left_out"].contains(&path)
        || path.starts_with("/sources/") && path.ends_with("/name")
}

/// Each receipt with one key misspelt, and the path to the key.
fn misspelt(receipt: &Value) -> Vec<(String, Value)> {
    let mut paths = vec![String::new()];
    let mut all = Vec::new();
    while let Some(path) = paths.pop() {
        // A source's metadata has keys of other people, and settings are those of a step.
        if path.ends_with("/metadata") || path.ends_with("/settings") {
            continue;
        }
        match receipt.pointer(&path).expect("there") {
            Value::Object(fields) => {
                for key in fields.keys() {
                    let mut lie = receipt.clone();
                    let fields = lie.pointer_mut(&path).and_then(Value::as_object_mut).expect("an object");
                    let value = fields.remove(key).expect("there");
                    fields.insert(format!("{key}e"), value);
                    all.push((format!("{path}/{key}"), lie));
                    paths.push(format!("{path}/{key}"));
                }
            }
            Value::Array(items) => paths.extend((0..items.len()).map(|item| format!("{path}/{item}"))),
            _ => {}
        }
    }
    all
}

#[test]
fn every_edited_field_of_a_receipt_is_noticed() {
    let folder = Folder::new();
    let path = data("caffe/net/f32_v2_diff.caffemodel");
    let source = Checkpoint::open(&path).expect("opens");
    let options = || Options::new(Format::Safetensors).with(|options| options.sha256 = true);
    let narrow = crate::transform::float(blob_core::DType::F16);
    let squeezed = options().transform(blob_convert::transform::StripDiff);
    let map = [("conv1/0".to_owned(), "conv1.weight".to_owned())];
    let named = squeezed.transform(blob_convert::transform::Names::new(map)).transform(narrow);
    let mut count = 0;
    for (name, options) in [("framed.safetensors", options()), ("transformed.safetensors", named)] {
        let out = folder.file(name);
        to_file(&source, &options, &out).expect("converts");
        // A second conversion has a history, with the first one as the source.
        let second = folder.file(&format!("second-{name}"));
        to_file(
            &Checkpoint::open(&out).expect("opens"),
            &Options::new(Format::Safetensors).with(|o| (o.anew, o.sha256) = (true, true)),
            &second,
        )
        .expect("converts");
        for (file, of) in [(&out, &path), (&second, &Path::new(&out).to_owned())] {
            let of = Checkpoint::open(of).expect("opens");
            let bytes = std::fs::read(file).expect("readable");
            let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
            let opened = open("x.safetensors", &bytes).expect("opens");
            let before: Vec<String> =
                remarks(&opened, Some(&of)).into_iter().filter(|remark| !remark.contains("no transforms")).collect();
            assert_eq!(before, [""; 0], "{file}");
            let mut paths = Vec::new();
            leaves(&honest, "", &mut paths);
            for (path, lie) in misspelt(&honest) {
                let lie = open("x.safetensors", &with_receipt(&bytes, &lie, "", None)).expect("opens");
                assert!(!remarks(&lie, Some(&of)).is_empty(), "{file}: the key {path} is not noticed");
                count += 1;
            }
            for path in paths.iter().filter(|path| !is_free(path)) {
                let mut lie = honest.clone();
                let field = lie.pointer_mut(path).expect("a field");
                *field = edited(field);
                let lie = open("x.safetensors", &with_receipt(&bytes, &lie, "", None)).expect("opens");
                assert!(!remarks(&lie, Some(&of)).is_empty(), "{file}: {path} is not noticed");
                count += 1;
            }
        }
    }
    report(&format!("receipts: {count} edits of a field, each noticed"));
}

#[test]
fn every_edited_field_about_several_sources_is_noticed() {
    let folder = Folder::new();
    let path = data("caffe/net/f32_v2_diff.caffemodel");
    let [first, second, merged] = ["a.safetensors", "b.npz", "m.safetensors"].map(|name| folder.file(name));
    blob(&["convert", path.to_str().expect("UTF-8"), "--strip-diff", "-o", &first]).ok();
    blob(&["convert", &first, "-o", &second]).ok();
    blob(&["merge", &first, &second, "--prefix", "-o", &merged]).ok();
    let bytes = std::fs::read(&merged).expect("readable");
    let said = |receipt: &Value| {
        let file = open("x.safetensors", &with_receipt(&bytes, receipt, "", None)).expect("opens");
        let mut all = remarks(&file, None);
        all.retain(|remark| !remark.contains("no transforms"));
        let sources = [&first, &second].map(|file| Checkpoint::open(file).expect("opens"));
        verify::against_all(&file, &sources, &verify::By::default(), &Silent, &mut |remark| match remark {
            Remark::Finding(finding) => all.push(finding.message),
            Remark::Note(note) => all.push(note),
            _ => {}
        })
        .expect("compared");
        all
    };
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    assert_eq!(said(&honest), [""; 0]);
    for (path, lie) in misspelt(&honest) {
        assert!(!said(&lie).is_empty(), "the key {path} is not noticed");
    }
    let mut paths = Vec::new();
    leaves(&honest, "", &mut paths);
    for path in paths.iter().filter(|path| !is_free(path)) {
        let mut lie = honest.clone();
        let field = lie.pointer_mut(path).expect("a field");
        *field = edited(field);
        assert!(!said(&lie).is_empty(), "{path} is not noticed");
    }
}

#[test]
fn a_receipt_without_its_sources_says_so() {
    let folder = Folder::new();
    let path = data("caffe/net/f32_v2_diff.caffemodel");
    let path = path.to_str().expect("UTF-8");
    let [first, merged, page] = ["a.npz", "m.safetensors", "r.html"].map(|name| folder.file(name));
    blob(&["rename", path, "--sed", "s/^/z./", "-o", &first]).ok();
    blob(&["merge", path, &first, "-o", &merged]).ok();
    let bytes = std::fs::read(&merged).expect("readable");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    lie.as_object_mut().expect("an object").remove("sources");
    lie["sources_left_out"] = json!("there was no room for them");
    let file = folder.with("l.safetensors", with_receipt(&bytes, &lie, "", None));
    let why = "does not name the files that were merged: there was no room for them";
    blob(&["verify", &file]).ok().stdout_has(why);
    blob(&["info", &file]).ok().stdout_has("from several files, which it does not name: there was no room for them");
    blob(&["report", &file, "-o", &page]).ok();
    let page = std::fs::read_to_string(&page).expect("written");
    assert!(page.contains("files without names: there was no room for them") && !page.contains("cannot be read"));
}

#[test]
fn a_field_of_another_version_is_a_note_and_a_strange_one_of_ours_a_finding() {
    let folder = Folder::new();
    let out = folder.file("x.safetensors");
    let source = Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens");
    to_file(&source, &Options::new(Format::Safetensors), &out).expect("converts");
    let bytes = std::fs::read(&out).expect("readable");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    lie["source"]["digest"] = json!([{"more": 1}]);
    let own = folder.with("own.safetensors", with_receipt(&bytes, &lie, "", None));
    blob(&["verify", &own]).no().stdout_has("has a field \"source.digest\", which this version does not write");
    lie["tool"] = json!("blob 99.0.0");
    let newer = folder.with("newer.safetensors", with_receipt(&bytes, &lie, "", None));
    blob(&["verify", &newer]).ok().stdout_has("\"source.digest\", which this version does not know and did not check");
}

#[test]
fn an_edited_field_is_noticed_without_the_source_where_the_file_tells() {
    let folder = Folder::new();
    let out = folder.file("x.safetensors");
    let source = Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens");
    to_file(&source, &Options::new(Format::Safetensors), &out).expect("converts");
    let bytes = std::fs::read(&out).expect("readable");
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    let mut middle = inflated(honest["frame"]["deflate"].as_str().expect("text"));
    let at = middle.len() / 2;
    middle[at] ^= 1;
    for (path, value, said) in [
        ("/schema", json!("blob.receipt/2"), "the receipt is of blob.receipt/2, which this version does not know"),
        ("/schema", json!("blob.recipe/1"), "has the schema \"blob.recipe/1\", not blob.receipt/1"),
        ("/tensors", json!(25), "says that 25 tensors were written, and there are 24"),
        ("/tensors", json!("24"), "says that \"24\" tensors were written, and there are 24"),
        ("/contents_blake3", json!("00"), "has a contents_blake3 that is not that of its contents: 00"),
        ("/source/blake3", json!("00"), "has a source.blake3 that is no digest: \"00\""),
        ("/source/bytes", json!(-1), "has a source.bytes of -1"),
        ("/source/bytes", json!(5), "makes no file: the receipt names a file of another length"),
        ("/source/format", json!("caffemodem"), "has a source.format that is not known"),
        ("/frame/format", json!("solverstate"), "has a frame that makes no file"),
        ("/frame/format", json!("coffee"), "has a frame that makes no file: it is of a format that is not known"),
        ("/frame/bytes", json!(17), "has a frame that makes no file: it is damaged"),
        ("/frame/blake3", json!("0".repeat(64)), "has a frame that makes no file: it is damaged"),
        ("/frame/deflate", json!(deflated(&middle)), "has a frame that makes no file: it is damaged"),
        ("/frame/holes/0/0", json!(1), "has a frame that makes no file: it is damaged"),
        ("/frame", json!("none"), "has a frame that makes no file: it is damaged"),
        ("/history", json!([7]), "cannot be read"),
        ("/zeroed_values", json!("7"), "has zeroed_values of \"7\""),
        ("/salvaged", json!({"arrays": "2", "byte": 1}), "has salvaged.arrays of \"2\""),
        ("/prefixed", json!(1), "has prefixed of 1"),
        ("/bf16_as_u16", json!(["conv1/9"]), "has bf16_as_u16 of [\"conv1/9\"]"),
        ("/u16", json!(["conv1/9"]), "has u16 of"),
        ("/changes", json!([{"name": "conv1/0", "bits_of": "bf17"}]), "has bits_of \"bf17\""),
    ] {
        let mut lie = honest.clone();
        match lie.pointer_mut(path) {
            Some(field) => *field = value,
            None => lie[&path[1..]] = value,
        }
        let lie = open("x.safetensors", &with_receipt(&bytes, &lie, "", None)).expect("opens");
        let found = remarks(&lie, None);
        assert!(found.iter().any(|found| found.contains(said)), "{path}: {said}: {found:?}");
    }
}

#[test]
fn another_source_is_said_to_be_another() {
    let folder = Folder::new();
    let path = data("caffe/net/f32_v2_diff.caffemodel");
    let source = path.to_str().expect("UTF-8");
    let [first, second] = ["x.npz", "y.safetensors"].map(|name| folder.file(name));
    blob(&["convert", source, "-o", &first]).ok();
    blob(&["convert", &first, "-o", &second]).ok();
    let said = |file: &str, of: &str| blob(&["verify", file, "--against", of]).ok().out;
    assert!(!said(&second, &first).contains("note"), "{}", said(&second, &first));
    assert!(said(&second, source).contains("is an earlier source of the receipt's history"));
    let other = folder.with("net.caffemodel", [&std::fs::read(&path).expect("readable")[..], b"\x0a\x00"].concat());
    let words = "is not the file that the receipt names as its source: BLAKE3";
    assert!(said(&first, &other).contains(words));
    // A comparison with another file proves nothing of the receipt.
    blob(&["verify", "--strict", &first, "--against", &other]).no().stdout_has(words);
    blob(&["verify", "--strict", &first, "--against", source]).ok();
    blob(&["verify", "--strict", &second, "--against", source]).ok();
    blob(&["verify", "--strict", &second, "--against", &first]).ok();
    blob(&["verify", "--replay", source]).no().stdout_has("there is no receipt");
}
