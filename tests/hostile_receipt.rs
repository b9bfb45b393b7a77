//! Receipts that lie: only the parts that the tensors need reach an output.

use std::path::Path;

use blob_convert::{Options, Place, RECEIPT_KEY, Silent, plan, verify};
use blob_io::{Checkpoint, Format};
use serde_json::{Value, json};

use crate::edited_receipt::remarks;
use crate::support::archive::{Zip, npy, safetensors, theirs};
use crate::support::receipt::{deflated, receipt, with_receipt};
use crate::support::{Folder, alloc, blob, command, data, find, open};

/// A safetensors file of one tensor `w`, 2×3, with this receipt.
fn carrier(receipt: &Value, values: &[u8]) -> Vec<u8> {
    let json = json!({
        "__metadata__": { RECEIPT_KEY: receipt.to_string() },
        "w": { "dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24] },
    });
    safetensors(&json.to_string(), values)
}

/// The receipt of a conversion of this npz, in which the values of `w` lie at a hole.
fn framed(file: &[u8], values: &[u8]) -> Value {
    let at = find(file, values);
    let kept = [&file[..at], &file[at + values.len()..]].concat();
    json!({
        "schema": "blob.receipt/1", "tool": "x", "tensors": 1, "changes": [],
        "contents": [{"name": "w", "dtype": "F32", "shape": [2, 3], "blake3": blake3::hash(values).to_hex().as_str()}],
        "source": {
            "name": "f.npz", "bytes": file.len(), "format": "npz", "blake3": blake3::hash(file).to_hex().as_str(),
        },
        "frame": {
            "format": "npz", "bytes": file.len(), "holes": [[at, values.len()]],
            "blake3": blake3::hash(&kept).to_hex().as_str(), "deflate": deflated(&kept),
        },
    })
}

#[test]
pub(crate) fn a_frame_of_an_npz_holds_its_tensors_alone() {
    let values: Vec<u8> = (1..7).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let member = npy("'<f4'", "(2, 3)", &values);
    let object = npy("'|O'", "(1,)", b"\x80\x04cposix\nsystem\n(X\x04\0\0\0truetR.");
    let plain = || Zip::default().add("w.npy", &member);
    let honest = plain().end();
    let mut comment = honest.clone();
    let end = comment.len();
    comment[end - 2] = 5;
    comment.extend(b"hello");
    let shifted = |by: usize| {
        // Offsets count from the beginning of the file, as in an archive that unpacks itself.
        let mut file = [&b"#!/bin/sh\n"[..by], &honest].concat();
        let record = find(&file, b"PK\x01\x02");
        file[record + 42..record + 46].copy_from_slice(&(by as u32).to_le_bytes());
        let end = file.len();
        file[end - 6..end - 2].copy_from_slice(&(record as u32).to_le_bytes());
        file
    };
    assert_eq!(shifted(0), honest);
    let long = npy("'<f4'", "(2, 3)", &[&values[..], b"MoRe"].concat());
    let lies: [(&str, Vec<u8>); 8] = [
        ("an array of objects", plain().add("x.npy", &object).end()),
        ("a name that leads out", plain().add("../../slip.py", b"print(1)").end()),
        ("a text", plain().add("note.txt", b"hello").end()),
        ("a comment", comment),
        ("bytes in front", shifted(10)),
        ("bytes behind", [&honest[..], b"hello"].concat()),
        ("bytes behind an array", Zip::default().add("w.npy", &long).end()),
        ("a member of another name", Zip::default().add("a/../w.npy", &member).end()),
    ];
    let folder = Folder::new();
    let back = folder.file("back.npz");
    for (what, lie) in &lies {
        let evil = folder.with("evil.safetensors", carrier(&framed(lie, &values), &values));
        blob(&["convert", &evil, "-o", &back, "--force"]).ok();
        let written = std::fs::read(&back).expect("written");
        assert!(written != *lie, "{what}");
        for text in [&b"system"[..], b"slip", b"hello", b"#!/bin", b"MoRe"] {
            assert!(!written.windows(text.len()).any(|w| w == text), "{what}: {}", String::from_utf8_lossy(text));
        }
        let names: Vec<String> = Checkpoint::open(&back).expect("opens").names().map(str::to_owned).collect();
        assert_eq!(names, ["w"], "{what}");
    }
    for honest in [honest, theirs(zip::CompressionMethod::Stored, &[("w.npy", &member)])] {
        let sound = folder.with("sound.safetensors", carrier(&framed(&honest, &values), &values));
        let ran = blob(&["convert", &sound, "-o", &back, "--force"]).ok();
        assert!(std::fs::read(&back).expect("written") == honest, "{ran:?}");
        let said = format!("{} B around the tensors come from the receipt", honest.len() - 24);
        ran.stderr_has(&said);
        let other: Vec<u8> = values.iter().rev().copied().collect();
        let sound = folder.with("sound.safetensors", carrier(&framed(&honest, &values), &other));
        blob(&["convert", &sound, "-o", &back, "--force"]).ok();
        blob(&["verify", &back]).ok();
    }
}

#[test]
pub(crate) fn no_receipt_makes_a_pickle() {
    let folder = Folder::new();
    let golden = std::fs::read(data("neoml/py/blob.pickle")).expect("readable");
    let pickle = folder.with("blob.pickle", &golden);
    let carrier = folder.file("x.safetensors");
    blob(&["convert", &pickle, "-o", &carrier]).ok();
    let bytes = std::fs::read(&carrier).expect("written");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    assert!(lie["frame"].is_null(), "{lie}");
    // The frame that the file would have, with code in front.
    let source = Checkpoint::open(&pickle).expect("opens");
    let code = b"\x80\x03cos\nsystem\n(X\x04\0\0\0truetR0";
    let evil = [&code[..], &golden[2..]].concat();
    let shift = code.len() - 2;
    let (mut holes, mut kept, mut at) = (Vec::new(), Vec::new(), 0);
    let mut entries: Vec<_> = source.entries().iter().collect();
    entries.sort_by_key(|entry| entry.offset());
    for entry in entries.into_iter().filter(|entry| entry.byte_len() > 0) {
        let begin = entry.offset().expect("a place") as usize + shift;
        let len = entry.byte_len() as usize;
        holes.push(json!([begin, len]));
        kept.extend(&evil[at..begin]);
        at = begin + len;
    }
    kept.extend(&evil[at..]);
    lie["frame"] = json!({
        "format": "neoml-net", "bytes": evil.len(), "holes": holes,
        "blake3": blake3::hash(&kept).to_hex().as_str(), "deflate": deflated(&kept),
    });
    lie["source"]["bytes"] = json!(evil.len());
    let lying = folder.with("evil.safetensors", with_receipt(&bytes, &lie, "", None));
    let out = folder.file("back.cnnarch");
    blob(&["convert", &lying, "-o", &out]).refused("its layers are not known");
    assert!(!Path::new(&out).exists());
    let ran = blob(&["verify", &lying]).no();
    assert!(ran.out.contains("a frame that makes no file: it holds more than the tensors"), "{ran:?}");
}

#[test]
pub(crate) fn a_receipt_of_transforms_on_shapes_without_values_computes_nothing() {
    let file = |dims: [u64; 2], steps: &Value| {
        let receipt = json!({
            "schema": "blob.receipt/1", "tool": "x", "tensors": 1, "sparse": [], "transforms": steps,
            "source": {"name": "z", "bytes": 1, "blake3": "0".repeat(64), "format": "safetensors"},
        });
        let json = json!({
            "__metadata__": { RECEIPT_KEY: receipt.to_string() },
            "w": { "dtype": "F32", "shape": dims, "data_offsets": [0, 0] },
        });
        open("x.safetensors", &safetensors(&json.to_string(), &[])).expect("opens")
    };
    let fold = json!({
        "layer": "bn", "scale_layer": null, "weight": "w", "bias": "b", "has_bias": false, "side": "first", "eps": 1.0,
        "mean": null, "variance": null, "factor": null, "gamma": null, "fix_gamma": false, "beta": null, "scale": null,
        "shift": null,
    });
    for (ours, source, steps) in [
        ([1 << 40, 0], [1 << 40, 0], json!([{"name": "fold", "settings": {"layers": [fold]}}])),
        ([1 << 30, 0], [1 << 30, 0], json!([{"name": "fold", "settings": {"layers": [fold]}}])),
        (
            [1 << 62, 0],
            [0, 1 << 62],
            json!([{
                "name": "torch-layout",
                "settings": {"gates": [], "second_biases": [], "transposed": ["w"], "slopes": []},
            }]),
        ),
        ([0, 1 << 62], [1 << 62, 0], json!([{"name": "permute", "settings": {"tensors": ["w"], "axes": [1, 0]}}])),
    ] {
        let (ours, source) = (file(ours, &steps), file(source, &json!([])));
        let most = alloc::peak(|| drop(verify::against(&ours, &source, &Silent, &mut |_| {})));
        assert!(most < 4 << 20, "{steps}: {most} bytes");
    }
}

#[test]
fn steps_that_read_each_other_are_bounded() {
    // Each step folds the outcome of the one before into another weight, seven times over.
    let names: Vec<String> = (0..40).map(|i| format!("w{i}")).collect();
    let steps = (0..39).map(|i: usize| {
        let x = format!("w{i}");
        json!({"name": "fold", "settings": {"layers": [{
            "layer": "bn", "scale_layer": null, "weight": format!("w{}", i + 1), "bias": format!("b{i}"),
            "has_bias": false, "side": "first", "eps": 1.0, "mean": x, "variance": x, "factor": x, "gamma": x,
            "fix_gamma": false, "beta": x, "scale": x, "shift": x,
        }]}})
    });
    let steps: Vec<Value> = steps.collect();
    let tensors = names.iter().enumerate().map(|(i, name): (usize, &String)| {
        (name.clone(), json!({"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}))
    });
    let tensors: serde_json::Map<String, Value> = tensors.collect();
    let values: Vec<u8> = names.iter().flat_map(|_| 1.0f32.to_le_bytes()).collect();
    let source = open("s.safetensors", &safetensors(&json!(tensors).to_string(), &values)).expect("opens");
    let mut lying = tensors;
    let claims = json!({"schema": "blob.receipt/1", "source": {}, "sparse": [], "transforms": steps});
    lying.insert("__metadata__".to_owned(), json!({RECEIPT_KEY: claims.to_string()}));
    let ours = open("x.safetensors", &safetensors(&json!(lying).to_string(), &values)).expect("opens");
    let found = remarks(&ours, Some(&source));
    let said = "would read the file's tensors";
    assert!(found.iter().any(|found| found.contains(said) && found.contains("1024 are allowed")), "{found:?}");
}

#[test]
fn what_is_not_recognised_says_so_and_is_proven_with_from() {
    let folder = Folder::new();
    let record = data("mxnet/golden/mxnet-0.9.5-2/raw_record.bin");
    let [safe, back] = ["x.safetensors", "back.bin"].map(|name| folder.file(name));
    blob(&["convert", "--from", "mxnet-record", record.to_str().expect("UTF-8"), "-o", &safe]).ok();
    let ran = blob(&["convert", &safe, "--to", "mxnet-record", "-o", &back, "--params-version", "0"]).ok();
    assert!(ran.err.contains("does not show its format: --from mxnet-record reads it"), "{ran:?}");
    assert!(ran.err.contains("--from mxnet-record --against"), "{ran:?}");
    blob(&["verify", &back, "--from", "mxnet-record", "--against", &safe]).ok();
}

#[test]
fn a_file_without_values_comes_back_with_its_dtype_or_it_is_said() {
    let folder = Folder::new();
    let json = r#"{"w/0":{"dtype":"F64","shape":[0,3],"data_offsets":[0,0]}}"#;
    let source = folder.with("x.safetensors", safetensors(json, &[]));
    let out = folder.file("x.caffemodel");
    blob(&["convert", &source, "-o", &out]).ok();
    blob(&["verify", &out, "--against", &source]).ok().stdout_has("Caffe stores no dtype without values");
}

#[test]
fn a_history_that_has_no_room_is_why_a_file_is_refused() {
    let steps = vec![json!({"name": "n".repeat(1010)}); 64];
    let origin = json!({"name": "a", "bytes": 1, "blake3": "0", "format": "npz", "transforms": steps});
    let receipt = json!({"schema": "blob.receipt/1", "tool": "x", "source": origin, "history": vec![origin; 63]});
    let file = open("x.safetensors", &carrier(&receipt, &[0; 24])).expect("opens");
    let refused = plan(&file, &Options::new(Format::Safetensors), &Place::Stdout).expect_err("no room").to_string();
    assert!(refused.contains("so long a history") && !refused.contains("bf16"), "{refused}");
}

/// The file of a receipt, whose frame, or whose word for the source, is another.
struct Framed {
    folder: Folder,
    /// The net that the honest receipt names.
    net: Vec<u8>,
    /// The tensors in safetensors, with the honest receipt.
    copy: Vec<u8>,
    honest: Value,
    /// The receipt with the frame of a net in which one byte outside of the tensors is another.
    lying: Value,
}

impl Framed {
    fn new() -> Self {
        let (folder, net) = (Folder::new(), std::fs::read(data("caffe/net/v1.caffemodel")).expect("a golden"));
        let at = find(&net, b"golden");
        let mut other = net.clone();
        other[at] = b'G';
        let [(copy, honest), (_, of_other)] = [("one", &net), ("two", &other)].map(|(name, bytes)| {
            let (file, copy) = (format!("{name}.caffemodel"), folder.file(&format!("{name}.safetensors")));
            blob(&["convert", &folder.with(&file, bytes), "-o", &copy]).ok();
            let copy = std::fs::read(copy).expect("a copy");
            let receipt = receipt(&open("x.safetensors", &copy).expect("opens"));
            (copy, receipt)
        });
        let mut lying = honest.clone();
        lying["frame"] = of_other["frame"].clone();
        assert_ne!(lying, honest);
        Self { folder, net, copy, honest, lying }
    }

    /// The tensors with another receipt.
    fn with(&self, name: &str, receipt: &Value) -> String {
        self.folder.with(name, with_receipt(&self.copy, receipt, "", None))
    }
}

/// A net with one byte changed outside the tensors has another frame, which fits the tensors just as well.
#[test]
fn a_frame_of_another_file_makes_no_file() {
    let framed = Framed::new();
    let (folder, lying) = (&framed.folder, framed.with("lying.safetensors", &framed.lying));
    let honest = framed.with("honest.safetensors", &framed.honest);
    let (back, words) = (folder.file("back.caffemodel"), "are not those of the file that it names");
    blob(&["convert", &honest, "-o", &back]).ok();
    assert!(std::fs::read(&back).expect("a file") == framed.net);
    let piped = command(&["convert", &honest, "--to", "caffemodel", "-o", "-"]).output().expect("runs");
    assert!(piped.stdout == framed.net, "{piped:?}");
    std::fs::remove_file(&back).expect("removed");
    let job = json!({"sources": [{"path": lying}], "target": {"path": back}});
    let jobs = folder.with("jobs.ndjson", format!("{job}\n"));
    for ran in [
        blob(&["convert", &lying, "-o", &back]).refused(words),
        blob(&["convert", &lying, "-n", "-o", &back]).refused(words),
        blob(&["convert", &lying, "--to", "caffemodel", "-o", "-"]).refused(words),
    ] {
        assert!(ran.out.is_empty(), "{ran:?}");
        ran.stderr_has("--anew");
        assert!(!Path::new(&back).exists());
    }
    let ran = blob(&["batch", &jobs]);
    assert!(ran.err.contains(words) || ran.out.contains(words), "{ran:?}");
    assert!(!Path::new(&back).exists());
    // The pass that writes the file proves it: the file before stays, and nothing lies beside.
    let count = || std::fs::read_dir(folder.path()).expect("readable").count();
    folder.with("back.caffemodel", "before");
    let files = count();
    blob(&["convert", &lying, "--force", "-o", &back]).refused(words);
    assert_eq!((std::fs::read(&back).expect("a file"), count()), (b"before".to_vec(), files));
    std::fs::remove_file(&back).expect("removed");
    // A folder's receipt is a file of its own.
    let as_folder = folder.file("folder");
    blob(&["convert", &honest, "-o", &format!("{as_folder}/")]).ok();
    let path = format!("{as_folder}/blob.receipt.json");
    let mut of_folder: Value = serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    assert!(of_folder["frame"].is_object());
    of_folder["frame"] = framed.lying["frame"].clone();
    std::fs::write(&path, of_folder.to_string()).expect("written");
    blob(&["convert", &as_folder, "-o", &back]).refused(words);
    blob(&["verify", &as_folder]).no().stdout_has("has a frame that is not of the file");
    blob(&["convert", &lying, "-o", &back, "--anew"]).ok();
}

#[test]
fn a_frame_of_another_file_is_not_vouched_for() {
    let framed = Framed::new();
    let (folder, lying) = (&framed.folder, framed.with("lying.safetensors", &framed.lying));
    let honest = framed.with("honest.safetensors", &framed.honest);
    blob(&["verify", &honest]).ok();
    blob(&["verify", &lying]).no().stdout_has("has a frame that is not of the file that it names as its first source");
    // The next file keeps a frame of the file before, and no other.
    for (file, has_frame) in [(&honest, true), (&lying, false)] {
        let next = folder.file("next.npz");
        let ran = blob(&["convert", file, "--force", "-o", &next]).ok();
        assert_eq!(ran.err.contains("the receipt keeps no frame"), !has_frame, "{ran:?}");
        let said = receipt(&Checkpoint::open(&next).expect("opens"));
        assert_eq!((said["frame"].is_object(), said["frame_left_out"].is_string()), (has_frame, !has_frame), "{said}");
        blob(&["verify", &next, "--strict"]).ok();
    }
    // The copy of a frame, in a receipt with a history.
    let second = folder.file("second.safetensors");
    blob(&["convert", &honest, "--anew", "-o", &second]).ok();
    let bytes = std::fs::read(&second).expect("there");
    let mut copied = receipt(&open("x.safetensors", &bytes).expect("opens"));
    copied["frame"] = framed.lying["frame"].clone();
    let copied = folder.with("copied.safetensors", with_receipt(&bytes, &copied, "", None));
    blob(&["verify", &copied]).no().stdout_has("has a frame that is not of the file");
}

#[test]
fn a_frame_that_nothing_proves_is_not_used() {
    let framed = Framed::new();
    let back = framed.folder.file("back.caffemodel");
    let convert = |receipt: &Value| {
        let file = framed.with("x.safetensors", receipt);
        blob(&["convert", &file, "--force", "-o", &back])
    };
    let without = |keys: &[&str]| {
        let mut receipt = framed.lying.clone();
        keys.iter().for_each(|key| drop(receipt.as_object_mut().expect("an object").remove(*key)));
        receipt
    };
    convert(&without(&["source"])).ok().stderr_has("the receipt does not name the file that they are of");
    let mut longer = framed.lying.clone();
    longer["source"]["bytes"] = json!(5);
    convert(&longer).ok().stderr_has("the receipt names a file of another length");
    convert(&without(&["contents", "contents_blake3"])).refused("are not those of the file that it names");
    longer["source"]["unpacked_bytes"] = json!(framed.net.len());
    convert(&longer).ok().stderr_has("the receipt has no digest of the unpacked file");
    longer["source"]["unpacked_blake3"] = json!("0".repeat(64));
    convert(&longer).refused("are not those of the file that it names");
}

/// Values that a user has changed since go back into the bytes around them; the next receipt has no frame that its
/// digests would contradict.
#[test]
fn changed_values_go_back_into_their_frame() {
    let framed = Framed::new();
    let back = framed.folder.file("back.caffemodel");
    let mut edited = with_receipt(&framed.copy, &framed.honest, "", None);
    *edited.last_mut().expect("values") ^= 1;
    let edited = framed.folder.with("edited.safetensors", edited);
    blob(&["convert", &edited, "-o", &back]).ok().stderr_has("around the tensors come from the receipt");
    let written = std::fs::read(&back).expect("written");
    let differ = written.iter().zip(&framed.net).filter(|(a, b)| a != b).count();
    assert_eq!((written.len(), differ), (framed.net.len(), 1));
    let next = framed.folder.file("next.npz");
    blob(&["convert", &edited, "-o", &next])
        .ok()
        .stderr_has("the receipt keeps no frame: the tensors were changed since");
    blob(&["verify", &next]).ok();
    blob(&["convert", &next, "--force", "-o", &back]).ok();
}
