//! Maps of names, long ones too, and names that a receipt had no room for. PyTorch's names are rows of
//! `cases/steps.txt`.

use blob_convert::transform::{Names, Transform};
use blob_convert::{Options, Target, plan};
use blob_io::Format;
use serde_json::Value;

use crate::support::floats::{SAFETENSORS, file};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, blob, data, open};

/// A receipt in which the map of names gave way to other lists leads nowhere, which is said.
#[test]
fn names_that_the_receipt_had_no_room_for_do_not_come_back_in_silence() {
    let folder = Folder::new();
    for (golden, out) in [("mxnet/forward/block-0000.params", "params"), ("caffe/net/v1.caffemodel", "caffemodel")] {
        let (torch, back) = (folder.file("torch.safetensors"), folder.file(&format!("back.{out}")));
        blob(&["convert", data(golden).to_str().unwrap(), "--names", "torch", "-o", &torch, "--force"]).ok();
        let bytes = std::fs::read(&torch).unwrap();
        let mut cut = receipt(&open("torch.safetensors", &bytes).unwrap());
        let steps = cut["transforms"].as_array_mut().unwrap();
        steps.iter_mut().for_each(|step| step["settings"] = Value::Null);
        let without_settings = cut.clone();
        cut["transforms"] = Value::Null;
        for receipt in [without_settings, cut] {
            folder.with("cut.safetensors", with_receipt(&bytes, &receipt, "", None));
            // The second conversion hands on what the first receipt says.
            let (cut, more) = (folder.file("cut.safetensors"), folder.file("more.npz"));
            blob(&["convert", &cut, "--dtype", "f64", "-o", &more, "--force"]).ok();
            for file in [&cut, &more] {
                let ran = blob(&["convert", file, "-o", &back, "--force"]);
                if out == "params" {
                    ran.ok()
                        .stderr_has("warning: the names that an earlier conversion gave stay: its receipt had no room");
                    blob(&["convert", file, "-o", &back, "--strict", "--force"]).refused("would not come out as it is");
                } else {
                    ran.refused("its receipt does not say what they were before");
                }
            }
        }
    }
}

#[test]
fn a_map_has_globs_with_captures() {
    let names = ["conv1/0", "conv12/1", "a b", "res2/branch1/0", "left", "$"];
    let text = "# names\n\nconv*/0\tc$1.weight\nconv*/*  c$1.w$2$$\r\na b\tspaced name\n*/*/0 $2_$1.weight\nconv* never\n$ dollar\n";
    let source = file(Format::Npz, &names.map(|name| (name, &[1][..], &[0.0][..])));
    let map = Names::from_file(text, names).expect("a map");
    let planned =
        plan(&source, &Options::new(SAFETENSORS).transform(map), &Target::Stdout).expect("plans").tensors().to_vec();
    let new: Vec<&str> = planned.iter().map(|tensor| &*tensor.spec.name).collect();
    assert_eq!(new, ["c1.weight", "c12.w1$", "spaced name", "branch1_res2.weight", "left", "dollar"]);
    assert_eq!(planned[0].changes[0].to_string(), r#"was "conv1/0""#);
    let options = Options::new(SAFETENSORS).transform(Names::from_file(text, names).expect("a map"));
    assert_eq!(
        plan(&source, &options, &Target::Stdout).expect("plans").notes(),
        ["names: line 7, \"conv*\", fits no tensor"]
    );
    let wrong = Names::from_file("a\na b c\n*a $2\n* $x\n", names).expect_err("wrong");
    let lines = [
        "line 1: expected an old name and a new one, found 1 names",
        "line 2: ",
        "line 3: expected $1 to $1",
        "line 4: ",
    ];
    assert!(lines.iter().all(|line| wrong.contains(line)), "{wrong}");
}

/// This would take minutes if each line were tried for each name.
#[test]
fn a_long_map_is_read_at_once() {
    const LINES: usize = 60_000;
    let old = |i: usize| format!("layer{i}/weight");
    let names: Vec<String> = (0..LINES).map(old).collect();
    let mut text: String = (0..LINES).rev().map(|i| format!("{} new.{i}\n", old(i))).collect();
    // The first line that matches decides, with or without a star.
    text.insert_str(0, "layer7*/weight star.$1\n");
    text += "layer5*/weight never.$1\nlayer1/weight never\n";
    let begun = std::time::Instant::now();
    let map = Names::from_file(&text, names.iter().map(String::as_str)).expect("a map");
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(map.settings()["map"].as_object().map(|map| map.len()), Some(LINES));
    assert!(seconds < 20.0, "{seconds} s");
    let source = file(
        Format::Npz,
        &[("layer70/weight", &[1], &[0.0]), ("layer50/weight", &[1], &[0.0]), ("layer1/weight", &[1], &[0.0])],
    );
    let planned = plan(&source, &Options::new(SAFETENSORS).transform(map), &Target::Stdout).expect("plans");
    let new: Vec<&str> = planned.tensors().iter().map(|tensor| &*tensor.spec.name).collect();
    assert_eq!(new, ["star.0", "new.50", "new.1"]);
}
