//! The tool's JSON is complete even after an error, and findings are counted, not kept in memory. `support` checks each
//! line against its schema.

use serde_json::{Value, json};
use zip::CompressionMethod::{Deflated, Stored};

use crate::support::archive::{ints, npy, theirs};
use crate::support::{Folder, blob};

const NET: &str = "caffe/net/v1.caffemodel";

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
            assert!(said.contains(&format!("{} B → {} B  in ", len("a.npy"), len(to))), "{said}");
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

#[test]
fn files_of_other_names_are_compared_without_keeping_findings() {
    let members = |prefix: &str| {
        let names: Vec<String> = (0..30).map(|i| format!("{prefix}{i}.npy")).collect();
        let content = ints(&[1]);
        let members: Vec<(&str, &[u8])> = names.iter().map(|n| (&**n, &content[..])).collect();
        theirs(Stored, &members)
    };
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|prefix| {
        let path = folder.path().join(format!("{prefix}.npz"));
        std::fs::write(&path, members(prefix)).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let ran = blob(&["verify", "--json", &paths[0], "--against", &paths[1]]).no();
    let line = &ran.json()[0];
    assert_eq!(line["finding_count"], 60);
    assert_eq!(line["findings"][0]["reason"], "absent");
}

#[test]
fn a_histogram_leaves_out_what_is_not_finite_and_says_so() {
    let path = "caffe/blobproto/f32_special.binaryproto";
    let stats = &blob(&["stats", "--json", "--hist", path]).json()[0];
    let row = &stats["tensors"][0];
    assert_eq!((&row["nan"], &row["inf"]), (&json!(1), &json!(2)));
    assert_eq!(row["histogram"]["left_out"], 3);
    let counts = row["histogram"]["counts"].as_array().unwrap();
    let sum: u64 = counts.iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(sum, row["count"].as_u64().unwrap() - 3);
    // The range of the histogram is that of the finite values, as `show` prints them.
    let shown = &blob(&["show", "--json", path]).json()[0];
    let mut finite = Vec::new();
    let mut stack = vec![&shown["values"]];
    while let Some(value) = stack.pop() {
        match value {
            Value::Array(values) => stack.extend(values),
            value => finite.extend(value.as_f64()),
        }
    }
    let min = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let max = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let near = |a: &Value, b: f64| (a.as_f64().unwrap() / b - 1.0).abs() < 1e-6;
    assert!(near(&row["histogram"]["min"], min), "{row}");
    assert!(near(&row["histogram"]["max"], max), "{row}");
    let table = blob(&["stats", "--hist", path]);
    let row: Vec<&str> = table.out.lines().nth(1).unwrap().split(' ').filter(|w| !w.is_empty()).collect();
    let not_finite: u64 = row[10..12].iter().map(|n| n.parse::<u64>().unwrap()).sum();
    assert!(not_finite == 3 && row[12..].concat().contains('█'), "{table:?}");
}

#[test]
fn a_conversion_s_json_is_of_its_schema_with_a_digest_and_without() {
    let folder = tempfile::tempdir().unwrap();
    for (name, extra) in [("a.npz", &[][..]), ("b.npz", &["--sha256"]), ("c.npz", &["-n"])] {
        let to = folder.path().join(name);
        let ran = blob(&[&["convert", "--json", NET, "-o", to.to_str().unwrap()], extra].concat());
        let has = ran.json()[0].get("sha256").is_some();
        assert_eq!((ran.code, has), (Some(0), extra == ["--sha256"]), "{ran:?}");
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

/// What was not read for a limit may be sound: that is no verdict.
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
