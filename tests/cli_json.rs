//! The tool's JSON is complete even after an error. `support` checks each line against the schema.

use serde_json::{Value, json};
use zip::CompressionMethod::Deflated;

use crate::support::archive::{npy, theirs};
use crate::support::{Folder, blob};

/// The sessions mask these numbers, because the receipt and the clock change them.
#[test]
fn a_conversion_says_how_long_its_files_are() {
    let folder = Folder::new();
    let source = folder.with("a.npy", npy("'<f4'", "(3,)", &[0; 12]));
    for (to, anew) in [("x.npz", false), ("y.npy", true)] {
        let out = folder.file(to);
        let run = |more: &str| blob(&["convert", &source, "-o", &out, "--force", more]).ok();
        let line = &run("--json").json()[0];
        let len = |file: &str| std::fs::metadata(folder.file(file)).unwrap().len();
        assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&json!(len("a.npy")), &json!(len(to))), "{line}");
        assert!(line["seconds"].as_f64().is_some_and(|seconds| (0.0..600.0).contains(&seconds)), "{line}");
        if anew {
            let said = run("--anew").err;
            assert!(said.contains(&format!("{} B → {} B, in ", len("a.npy"), len(to))), "{said}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_line_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        (write("empty.npy", b""), "empty"),
        (write("page.npy", b"<!DOCTYPE html><html></html>"), "html"),
        (write("lfs.npy", b"version https://git-lfs.github.com/spec/v1\n"), "lfs-pointer"),
        (write("h5.npy", b"\x89HDF\r\n\x1A\n0123"), "malformed"),
        (write("gguf.npy", b"GGUF\x03\0\0\0\0\0\0\0"), "unsupported"),
        ("no/such.npy".to_owned(), "missing"),
    ];
    for (file, reason) in &files {
        for args in [
            &["info", file][..],
            &["ls", file],
            &["show", file],
            &["stats", file],
            &["convert", file, "-o", "x.npz"],
            &["extract", file, "-o", "x.npy"],
        ] {
            let ran = blob(&[args, &["--json"]].concat());
            assert_eq!(ran.code, Some(2), "{ran:?}");
            let lines = ran.json();
            assert_eq!(lines.len(), 1, "{ran:?}");
            assert_eq!(lines[0]["schema"], "blob.error/1");
            assert_eq!(lines[0]["command"], args[0]);
            assert_eq!(lines[0]["file"], **file);
            assert_eq!(lines[0]["error"]["reason"], *reason, "{ran:?}");
            assert!(!ran.err.is_empty());
        }
        let verify = blob(&["verify", "--json", file]);
        let line = &verify.json()[0];
        match *reason {
            "unsupported" | "missing" => {
                assert_eq!((verify.code, &line["error"]["reason"]), (Some(2), &json!(reason)));
            }
            _ => {
                let found = &line["findings"][0]["reason"];
                assert_eq!((verify.code, found), (Some(1), &json!(reason)));
            }
        }
    }
}

/// A row of `stats` about a tensor that cannot be measured: the page tells of all that it lacks.
#[test]
fn the_page_says_what_a_row_may_lack() {
    let page = blob(&["schemas"]).out;
    let stats = page.split("## blob.stats/1").nth(1).unwrap().split("\n## ").next().unwrap();
    let ran = blob(&["stats", "--json", "caffe/blobproto/count_short.binaryproto"]).json();
    let row = ran[0]["tensors"][0].as_object().unwrap();
    let mut rows = 0;
    for line in stats.lines().filter_map(|l| l.strip_prefix("| `tensors[].")) {
        let name = line.split('`').next().unwrap();
        if !name.contains('.') {
            rows += 1;
            let lacks = !row.contains_key(name);
            assert!(!lacks || line.contains(", may be missing |"), "{line}");
            assert!(row.get(name) != Some(&Value::Null) || line.contains(" or `null` |"), "{line}");
        }
    }
    assert!(row.contains_key("error") && rows > 14, "{row:?}, {rows}");
}

/// Bytes that were not read for a limit may be sound: that is no verdict.
#[test]
fn a_limit_is_trouble_and_no_finding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.npz");
    let content = npy("'|u1'", "(2000000,)", &[5; 2_000_000]);
    std::fs::write(&path, theirs(Deflated, &[("a.npy", &content), ("b.npy", &npy("'|u1'", "(1,)", &[1]))])).unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(blob(&["verify", path]).code, Some(0));
    for args in [&["verify", path][..], &["verify", "--json", path], &["verify", path, "--finite"]] {
        let ran = blob(&[args, &["--max-alloc", "1MiB"]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(!ran.out.contains("FAIL") && ran.err.contains("--max-alloc"), "{ran:?}");
    }
}
