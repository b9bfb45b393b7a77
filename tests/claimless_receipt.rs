//! Receipts that claim less than this version writes, or something beside what is checked: `verify` says so of each.

use blob_convert::Options;
use blob_io::{Checkpoint, Format};
use serde_json::{Value, json};

use crate::edited_receipt::remarks;
use crate::support::conversion::to_file;
use crate::support::receipt::{receipt, with_receipt, with_receipt_text};
use crate::support::{Folder, blob, data, open};

/// An edit of a receipt, and words of the answer.
struct Lie {
    edit: fn(&mut Value),
    said: &'static str,
}

const fn lie(edit: fn(&mut Value), said: &'static str) -> Lie {
    Lie { edit, said }
}

fn without(receipt: &mut Value, key: &str) {
    receipt.as_object_mut().expect("an object").remove(key);
}

fn list<'r>(receipt: &'r mut Value, key: &str) -> &'r mut Vec<Value> {
    receipt[key].as_array_mut().expect("a list")
}

/// The settings of a step by place.
fn settings(receipt: &mut Value, step: usize) -> &mut Value {
    &mut list(receipt, "transforms")[step]["settings"]
}

/// Receipts of a conversion by `strip-diff` and `dtype` that claim less than this version writes, or something beside
/// what is checked.
const CLAIMS: &[Lie] = &[
    lie(|r| without(r, "source"), "the receipt names no source"),
    lie(|r| (r["sources"], r["source"]) = (json!([]), json!(null)), "the receipt names no source"),
    lie(|r| without(r, "left_out"), "lacks fields that this version writes: left_out"),
    lie(|r| without(r, "tool"), "names no tool and version"),
    lie(|r| without(r, "contents"), "the receipt lists no tensors"),
    lie(|r| r["contents"] = json!(null), "the receipt lists no tensors"),
    lie(|r| without(r, "contents_blake3"), "lacks fields that this version writes: contents_blake3"),
    lie(|r| without(r, "tensors"), "lacks fields that this version writes: tensors"),
    lie(
        |r| (r["changes"], r["sparse"]) = (json!(null), json!(null)),
        "had no room for lists, which were not checked: changes, sparse",
    ),
    lie(
        |r| {
            let first = r["contents"][0].clone();
            list(r, "contents").push(first);
        },
        "twice among its contents",
    ),
    lie(|r| r["transforms"] = json!(null), "has no transforms but null"),
    lie(|r| settings(r, 0)["x"] = json!(1), "step \"strip-diff\", which has a setting that it does not take: x"),
    lie(|r| settings(r, 1)["by"] = json!(1), "step \"dtype\", which has a setting that it does not take: by"),
    lie(|r| settings(r, 0)["net"] = json!(7), "step \"strip-diff\", which names a net that cannot be read"),
    lie(
        |r| {
            r["transforms"][0] = json!({"name": "select", "settings": {"patterns": ["conv1"], "regex": "yes"}});
        },
        "does not take: regex",
    ),
    lie(
        |r| {
            r["transforms"][0] = json!({"name": "select", "settings": {"patterns": ["conv1"], "shape": []}});
        },
        "does not take: shape",
    ),
    lie(
        |r| {
            let layer = json!({"layer": "bn", "scale_layer": null, "weight": "w", "bias": "b", "has_bias": false,
                "side": "first", "eps": 1e-5, "mean": null, "variance": null, "factor": null, "gamma": null,
                "fix_gamma": false, "beta": null, "scale": null, "shift": null, "epss": 1});
            r["transforms"][0] = json!({"name": "fold", "settings": {"layers": [layer]}});
        },
        "does not take: layers: epss",
    ),
    lie(|r| r["graph_blake3"] = json!("00"), "has graph_blake3 of \"00\""),
];

#[test]
fn a_receipt_that_claims_nothing_is_not_believed() {
    let folder = Folder::new();
    let source = Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens");
    let out = folder.file("x.safetensors");
    let options = Options::new(Format::Safetensors).transform(blob_convert::transform::StripDiff);
    let options = options.transform(crate::transform::float(blob_core::DType::F16));
    to_file(&source, &options, &out).expect("converts");
    let bytes = std::fs::read(&out).expect("readable");
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    let said = |edit: fn(&mut Value), source: Option<&Checkpoint>| {
        let mut lie = honest.clone();
        edit(&mut lie);
        remarks(&open("x.safetensors", &with_receipt(&bytes, &lie, "", None)).expect("opens"), source)
    };
    assert_eq!(said(|_| {}, Some(&source)), [""; 0]);
    for Lie { edit, said: wanted } in CLAIMS {
        let found = said(*edit, None);
        assert!(found.iter().any(|found| found.contains(wanted)), "{wanted}: {found:?}");
    }
    let none = said(|r| list(r, "left_out").clear(), Some(&source));
    let more = format!("and {} more was left out", list(&mut honest.clone(), "left_out").len() - 1);
    assert!(none.iter().any(|found| found.contains("does not say that") && found.contains(&more)), "{more}: {none:?}");
    let one = said(|r| drop(list(r, "left_out").remove(0)), Some(&source));
    assert!(one.iter().any(|found| found.ends_with("\" was left out")), "{one:?}");
    // Of a receipt of another version nothing is known of a missing list, which is said.
    let other = said(
        |r| {
            r["tool"] = json!("blob 99.0.0");
            without(r, "left_out");
        },
        None,
    );
    assert_eq!(other, ["the receipt lacks fields, and so nothing of these was checked: left_out"]);
}

/// A list that is `null` had no room by the receipt made again: neither blanks nor long names take the room away.
#[test]
fn a_list_that_had_room_is_missed_however_the_receipt_is_spelled() {
    let folder = Folder::new();
    let source = Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens");
    let out = folder.file("x.safetensors");
    let options = Options::new(Format::Safetensors).transform(crate::transform::float(blob_core::DType::F16));
    to_file(&source, &options, &out).expect("converts");
    let bytes = std::fs::read(&out).expect("readable");
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    // The longest text that the readers take, less the receipt.
    let blanks = " ".repeat((4 << 20) - 8192 - honest.to_string().len());
    type Padding = fn(&Value, &str) -> String;
    let paddings: [Padding; 4] = [
        |receipt, blanks| receipt.to_string().replacen('{', &format!("{{{blanks}"), 1),
        |receipt, blanks| padded(receipt, &["recipe"], blanks),
        |receipt, blanks| padded(receipt, &["source", "name"], blanks),
        |receipt, blanks| padded(receipt, &["frame_left_out"], blanks),
    ];
    let lists = ["/changes", "/left_out", "/sparse", "/warnings", "/history", "/source/metadata"];
    for (number, list) in lists.iter().enumerate() {
        let mut lie = honest.clone();
        *lie.pointer_mut(list).expect("a field") = json!(null);
        // A text of 4 MiB takes a while, so that each list is seen beside one of the paddings.
        for text in [lie.to_string(), paddings[number % paddings.len()](&lie, &blanks)] {
            let file = open("x.safetensors", &with_receipt_text(&bytes, text, "", None)).expect("opens");
            let (all, field) = (remarks(&file, Some(&source)), list[1..].replace('/', "."));
            let wanted = format!("says that {field} is null, and by the conversion made again");
            assert!(all.iter().any(|said| said.contains(&wanted)), "{number} {field}: {all:?}");
            let alone = remarks(&file, None).join("; ");
            assert!(alone.contains("had no room for lists") && alone.contains(&field), "{number} {field}: {alone}");
        }
    }
}

/// A receipt with a field of this length.
fn padded(receipt: &Value, path: &[&str], blanks: &str) -> String {
    let mut receipt = receipt.clone();
    let field = path.iter().fold(&mut receipt, |value, key| &mut value[*key]);
    *field = json!(blanks);
    receipt.to_string()
}

#[test]
fn a_place_without_an_array_that_is_not_said_to_be_left_out_is_noticed() {
    let source = Checkpoint::open(data("mxnet/golden/mxnet-0.11.0/none_first.nd")).expect("opens");
    let folder = Folder::new();
    let out = folder.file("x.safetensors");
    to_file(&source, &Options::new(Format::Safetensors), &out).expect("converts");
    let bytes = std::fs::read(&out).expect("readable");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    assert!(!lie["left_out"].as_array().expect("a list").is_empty(), "{lie}");
    lie["left_out"] = json!([]);
    let lie = open("x.safetensors", &with_receipt(&bytes, &lie, "", None)).expect("opens");
    let found = remarks(&lie, Some(&source));
    assert!(found.iter().any(|found| found.contains("was left out")), "{found:?}");
}

/// A selection leaves tensors out, of which the receipt tells; a file of several of them says that it is a part.
#[test]
fn an_emptied_list_beside_a_selection_is_noticed() {
    let folder = Folder::new();
    let path = data("caffe/net/f32_v2_diff.caffemodel");
    let (path, source) = (path.to_str().expect("UTF-8"), Checkpoint::open(&path).expect("opens"));
    let out = folder.file("x.safetensors");
    blob(&["convert", path, "--only", "conv1", "-o", &out]).ok();
    let bytes = std::fs::read(&out).expect("readable");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    assert!(!list(&mut lie, "left_out").is_empty() && lie["part"].is_null(), "{lie}");
    let said = |receipt: &Value| {
        let file = open("x.safetensors", &with_receipt(&bytes, receipt, "", None)).expect("opens");
        remarks(&file, Some(&source))
    };
    assert_eq!(said(&lie), [""; 0]);
    list(&mut lie, "left_out").clear();
    assert!(said(&lie).iter().any(|found| found.contains("does not say that")), "{:?}", said(&lie));
    lie["part"] = json!("yes");
    assert!(said(&lie).iter().any(|found| found.contains("has part of \"yes\"")), "{:?}", said(&lie));
    std::fs::create_dir(folder.file("parts")).expect("a folder");
    blob(&["split", path, "--by-layer", "-o", &folder.file("parts/{}.safetensors")]).ok();
    let mut parts = 0;
    for part in std::fs::read_dir(folder.file("parts")).expect("a folder") {
        let part = part.expect("a file").path();
        let part = part.to_str().expect("UTF-8");
        assert_eq!(receipt(&Checkpoint::open(part).expect("opens"))["part"], json!(true), "{part}");
        blob(&["verify", "--strict", part, "--against", path]).ok();
        parts += 1;
    }
    assert!(parts > 1, "{parts}");
}
