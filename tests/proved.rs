//! Receipts held against files: earlier sources, names that come back, a solver's history, arrays that are not read.

use blob_io::{Checkpoint, Format};
use serde_json::json;

use crate::support::archive::safetensors;
use crate::support::floats::{self, bytes_of};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, blob, data, open};

/// Writes a file without a receipt.
fn write(path: &str, format: Format, tensors: &[(&str, &[usize], &[f32])]) {
    std::fs::write(path, bytes_of(format, tensors)).expect("written");
}

/// The values of a tensor of a file.
fn values(path: &str, name: &str) -> Vec<f32> {
    floats::values(&Checkpoint::open(path).expect("opens"), name)
}

/// Steps of several conversions in a row are repeated from the first file on; the receipt tells each.
#[test]
fn a_file_is_proved_from_an_earlier_source_too() {
    let folder = Folder::new();
    let net = data("caffe/forward/resnet.caffemodel");
    let net = net.to_str().expect("UTF-8");
    let [folded, named, narrow] = ["f.safetensors", "n.safetensors", "h.npz"].map(|name| folder.file(name));
    blob(&["fold", net, "-o", &folded]).ok();
    blob(&["rename", &folded, "--sed", "s/^/net./", "-o", &named]).ok();
    blob(&["convert", &named, "--dtype", "f16", "-o", &narrow]).ok();
    for (file, of, steps) in [
        (&named, &*folded, "what 1 transform makes of"),
        (&named, net, "what 2 transforms make of"),
        (&narrow, net, "what 3 transforms make of"),
        (&narrow, &*folded, "what 2 transforms make of"),
    ] {
        blob(&["verify", "--strict", file, "--against", of]).ok().stdout_has(&format!("6 tensors bit for bit {steps}"));
    }
    let bytes = std::fs::read(&named).expect("there");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    lie["history"][0]["transforms"][0]["settings"]["layers"][0]["eps"] = json!(0.5);
    let lying = folder.with("lying.safetensors", with_receipt(&bytes, &lie, "", None));
    blob(&["verify", &lying, "--against", net]).no().stdout_has("\"net.conv1/0\" differs");
    // A step that the receipt has no room for is why nothing is proved.
    lie["history"][0]["transforms"][0]["settings"] = json!(null);
    let cut = folder.with("cut.safetensors", with_receipt(&bytes, &lie, "", None));
    blob(&["verify", &cut, "--against", net]).no().stdout_has("the transform \"fold\" of the receipt");
}

/// The label of an image is lost where nothing but the tensor is written.
#[test]
fn a_label_that_is_left_out_is_a_loss() {
    let folder = Folder::new();
    let image = data("caffe/misc/u8.datum");
    let [copy, back] = ["x.safetensors", "y.datum"].map(|name| folder.file(name));
    blob(&["convert", image.to_str().expect("UTF-8"), "-o", &copy]).ok();
    blob(&["convert", &copy, "--anew", "--strict", "-o", &back]).refused("without the label 5");
    assert!(!std::path::Path::new(&back).exists());
    blob(&["convert", &copy, "--anew", "-o", &back])
        .ok()
        .stderr_has("warning: the datum is written without the label 5");
}

/// The history of a solver is told from weights wherever values are shown, and in copies.
#[test]
fn the_history_of_a_solver_is_not_taken_for_weights() {
    let folder = Folder::new();
    let state = data("caffe/misc/state.solverstate");
    let state = state.to_str().expect("UTF-8");
    let copy = folder.file("x.npz");
    blob(&["convert", state, "-o", &copy]).ok();
    let words = "a solver's history (momentum), not weights; those are in \"golden_iter_123.caffemodel\"";
    for file in [state, &copy] {
        for args in [&["ls", file][..], &["stats", file], &["diff", file, file]] {
            blob(args).ok().stderr_has(words);
        }
        blob(&["fold", file, "-o", &folder.file("y.npz")]).refused(words);
        for command in ["info", "verify"] {
            blob(&[command, file]).ok().stdout_has(words);
        }
        let json = blob(&["ls", "--json", file]).ok();
        assert!(json.err.is_empty(), "{json:?}");
    }
}

#[test]
fn names_that_do_not_fit_hdf5_have_a_next_step() {
    let folder = Folder::new();
    let net = data("caffe/forward/resnet.caffemodel");
    for out in ["x.caffemodel.h5", "x.solverstate.h5"] {
        let ran = blob(&["convert", net.to_str().expect("UTF-8"), "--names", "torch", "-o", &folder.file(out)]);
        ran.refused("is not called").stderr_has("`blob rename --map FILE` gives other names");
    }
}

/// Arrays that are not read are named all at once, by every command that needs the arrays, and left out on request.
#[test]
fn merge_and_hash_leave_unread_arrays_out_as_convert_does() {
    let folder = Folder::new();
    let header = json!({
        "a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F8_E5M2", "shape": [1], "data_offsets": [1, 2]},
        "w": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]},
    });
    let file = folder.with("x.safetensors", safetensors(&header.to_string(), &[1, 2, 3, 4]));
    let other = folder.file("y.npz");
    write(&other, Format::Npz, &[("v", &[2], &[0.0, 1.0])]);
    let [out, merged, rest] = ["c.npz", "m.npz", "r.npz"].map(|name| folder.file(name));
    let words = "array \"a\" is of dtype F8_E4M3, which blob lists but does not load; array \"b\" is of dtype F8_E5M2";
    for args in
        [&["convert", &file, "-o", &out][..], &["merge", &file, &other, "-o", &merged], &["hash", "--content", &file]]
    {
        blob(args).refused(words).stderr_has("--skip-unsupported leaves these arrays out");
    }
    blob(&["convert", &file, "-o", &out, "--skip-unsupported"]).ok().stderr_has("2 left out").stderr_has("prove it:");
    // Without a step, too, the receipt tells of the arrays that are not there.
    let ran = blob(&["verify", &out, "--against", &file]).ok();
    ran.stdout_has("its receipt made again").stdout_has("\"a\" is left out: it is of dtype F8_E4M3");
    let ran = blob(&["merge", &file, &other, "-o", &merged, "--skip-unsupported"]).ok();
    ran.stderr_has("2 left out").stderr_has("no proof by `blob verify`: it wants every array of the input");
    let there: Vec<String> = Checkpoint::open(&merged).expect("opens").names().map(str::to_owned).collect();
    assert_eq!(there, ["w", "v"]);
    let hashed = blob(&["hash", "--content", &file, "--skip-unsupported"]).ok();
    hashed.stderr_has("left out of the digest: a; b");
    blob(&["convert", &out, "--anew", "--no-receipt", "-o", &rest]).ok();
    let digest = |file: &str| {
        let ran = blob(&["hash", "--content", "--skip-unsupported", file]).ok();
        ran.out.split_once(' ').expect("a digest").0.to_owned()
    };
    assert_eq!(digest(&file), digest(&rest));
    blob(&["hash", "--skip-unsupported", &file]).refused("tensors are chosen for --content");
}

/// Where names of before do not come back, the message names the tensors that are the cause, and no others.
#[test]
fn the_cause_is_named_where_names_of_before_do_not_come_back() {
    let folder = Folder::new();
    let golden = data("caffe/net/f32_v2.caffemodel");
    let [torch, back] = ["t.safetensors", "back.caffemodel"].map(|name| folder.file(name));
    blob(&["convert", golden.to_str().expect("UTF-8"), "--names", "torch", "-o", &torch]).ok();
    let bytes = std::fs::read(&torch).expect("written");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).expect("JSON");
    let rename = |from: &str, to: &str| {
        let mut header = header.as_object().expect("an object").clone();
        let entry = header.remove(from).expect("there");
        header.insert(to.to_owned(), entry);
        folder.with("e.safetensors", safetensors(&json!(header).to_string(), &bytes[8 + len..]))
    };
    let strange =
        "without a name of before, added or renamed since: \"renamed.weight\"; the names of 10 others come back";
    let renamed = rename("conv1.weight", "renamed.weight");
    let ran = blob(&["convert", &renamed, "-o", &back, "--force"]).refused(strange);
    assert!(!ran.err.contains("no room") && !ran.err.contains("ip.weight"), "{ran:?}");
    let clash = "\"conv1.weight\" and \"conv1/0\" were both \"conv1/0\" before";
    let ran = blob(&["convert", &rename("conv1.bias", "conv1/0"), "-o", &back]).refused("both \"conv1/0\" before");
    assert!(ran.err.contains(clash) || ran.err.contains("\"conv1/0\" and \"conv1.weight\""), "{ran:?}");
    assert!(!ran.err.contains("no room"), "{ran:?}");
}

/// A map of names in which two tensors of one shape are exchanged puts each into the other's place: the digests of the
/// receipt tell, where the file is the one that the receipt names.
#[test]
fn exchanged_names_do_not_go_into_the_file_that_the_receipt_names() {
    let folder = Folder::new();
    let [base, copy, out] = ["net.caffemodel", "x.safetensors", "y.caffemodel"].map(|name| folder.file(name));
    write(&base, Format::CaffeModel, &[("a/0", &[2], &[1.0, 2.0]), ("b/0", &[2], &[3.0, 4.0])]);
    blob(&["rename", &base, "--sed", "s/^/net./", "-o", &copy]).ok();
    let bytes = std::fs::read(&copy).expect("there");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    let map = lie["transforms"][0]["settings"]["map"].as_object_mut().expect("a map");
    let names: Vec<String> = map.keys().cloned().collect();
    assert_eq!(names, ["a/0", "b/0"]);
    let (a, b) = (map["a/0"].clone(), map["b/0"].clone());
    (map["a/0"], map["b/0"]) = (b, a);
    let lying = folder.with("lying.safetensors", with_receipt(&bytes, &lie, "", None));
    for args in [&["-o", &out][..], &["-n", "-o", &out], &["-o", "-"]] {
        let args = [&["convert", &lying, "--into", &base][..], args].concat();
        blob(&args).refused("where that has other values");
        assert!(!std::path::Path::new(&out).exists());
    }
    blob(&["verify", &lying, "--against", &base]).no().stdout_has("differs");
    // Values that were changed since are those of the tensor all the same.
    let mut changed = bytes.clone();
    *changed.last_mut().expect("values") ^= 1;
    for (name, bytes) in [("same.safetensors", bytes), ("changed.safetensors", changed)] {
        blob(&["convert", &folder.with(name, bytes), "--into", &base, "--force", "-o", &out]).ok();
    }
    assert_eq!(values(&out, "a/0"), [1.0, 2.0]);
}

/// Arrays without names keep the order of their numbers, whatever order a format gives to `@10` and `@2`; the proof
/// pairs them so.
#[test]
fn numbered_arrays_are_written_and_proved_in_the_order_of_their_numbers() {
    let folder = Folder::new();
    let numbers: Vec<[f32; 12]> = (0..12).map(|number| [number as f32; 12]).collect();
    let names: Vec<[String; 2]> = (0..12).map(|number| [format!("@{number}"), format!("@{number}.diff")]).collect();
    let array = |number: usize, part: usize| (&*names[number][part], vec![number + 1], &numbers[number][..=number]);
    let arrays: Vec<_> = (0..12).flat_map(|number| [array(number, 0), array(number, 1)]).collect();
    let mut arrays: Vec<(&str, &[usize], &[f32])> =
        arrays.iter().map(|(name, shape, values)| (*name, &shape[..], *values)).collect();
    arrays.sort_by_key(|(name, ..)| *name);
    for (format, ending) in [(Format::Npz, "npz"), (Format::Hdf5, "h5"), (Format::MxnetList, "params")] {
        let source = folder.file(&format!("sorted.{ending}"));
        write(&source, format, &arrays);
        for (to, tenth) in [("neoml-array", "@20"), ("blobprotovector", "@10")] {
            let written = folder.file(&format!("{ending}.{to}"));
            blob(&["convert", &source, "--to", to, "-o", &written]).ok();
            assert_eq!(values(&written, tenth), [10.0; 11], "{source} to {to}");
            blob(&["verify", &written, "--against", &source]).ok();
        }
    }
}
