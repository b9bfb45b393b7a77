//! The output and exit codes of the commands that read, on golden and real files.
//!
//! Only text that is documented as stable is compared; JSON is compared by its fields.

use crate::support::message::{floats, layer, shape};
use crate::support::{blob, blob_with, data, files, report};

#[test]
fn no_name_reaches_the_terminal_as_a_command() {
    let name = "a\x1b[31m\n\t\u{9b}2J\u{202e}\x7f";
    let net = layer(name, &[floats(&[1.0]), shape(&[1])].concat());
    for args in [
        &["info", "-"][..],
        &["ls", "-"],
        &["ls", "-l", "-"],
        &["ls", "--tree", "-"],
        &["show", "-"],
        &["stats", "-"],
        &["verify", "-", "--sha256", &"0".repeat(64)],
        &["ls", "-", "b"],
        &["convert", "-", "-n", "-o", "x.npz"],
        &["ls", "--json", "-"],
    ] {
        let ran = blob_with(args, &net);
        let unsafe_char = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!ran.out.contains(unsafe_char) && !ran.err.contains(unsafe_char), "{ran:?}");
    }
    let ls = blob_with(&["ls", "-"], &net);
    assert!(ls.out.contains("\na\\u{1b}[31m\\n\\t\\u{9b}2J\\u{202e}\\u{7f}/0\t"), "{ls:?}");
    let json = blob_with(&["ls", "--json", "-"], &net);
    assert_eq!(json.json()[0]["tensors"][0]["name"], format!("{name}/0"));
}

/// The commands that read only headers agree on every golden file.
#[test]
fn every_golden_is_listed_and_verified() {
    let folders = [
        "caffe/net",
        "caffe/blobproto",
        "caffe/misc",
        "mxnet/golden/mxnet-1.9.1",
        "mxnet/golden/mxnet-2.0.0beta1/npz",
        "mxnet/malformed",
        "hdf5",
        "hdf5/tiny",
    ];
    let (mut listed, mut broken) = (0, 0);
    for folder in folders {
        let skip = [".json", ".tsv", ".f32", ".f64", ".md", ".txt", ".py"];
        let paths = files(&data(folder), |name| !skip.iter().any(|s| name.ends_with(s)));
        let paths: Vec<&str> = paths.iter().map(|p| p.to_str().unwrap()).collect();
        let verdicts = blob(&[&["verify", "--json"], &paths[..]].concat()).json();
        assert_eq!(verdicts.len(), paths.len());
        for (path, verdict) in paths.iter().zip(verdicts) {
            let ls = blob(&["ls", "--json", path]);
            match (ls.code, verdict["ok"].as_bool()) {
                (Some(0), Some(true)) => listed += 1,
                // Wrong sparse indices or a bool of 7 are in the values, which `ls` does not read.
                (Some(0), Some(false)) if ["/csr_", "/rsp_", "/bool_"].iter().any(|n| path.contains(n)) => broken += 1,
                (Some(2), Some(false)) => broken += 1,
                // Unsupported HDF5 filters are a note.
                (Some(2), Some(true)) if verdict["note_count"].as_u64() > Some(0) => broken += 1,
                // An unsupported file, which may be sound.
                (Some(2), None) if verdict["schema"] == "blob.error/1" => {
                    broken += 1;
                    continue;
                }
                code => panic!("{path}: {code:?}"),
            }
            let tensors = ls.json().first().and_then(|l| l["tensors"].as_array().map(Vec::len));
            assert_eq!(verdict["tensors"], tensors.unwrap_or(0), "{path}");
        }
    }
    assert!(listed > 100 && broken > 20, "{listed} listed, {broken} broken");
    report(&format!("cli: {listed} golden files listed and verified, {broken} refused"));
}
