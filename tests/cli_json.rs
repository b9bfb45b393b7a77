//! The tool's JSON is whole whatever happens, and findings are counted, not kept. `support` checks each line's schema.

use serde_json::{Value, json};
use zip::CompressionMethod::{Deflated, Stored};

use crate::support::archive::{ints, npy, theirs};
use crate::support::message::{len, shape};
use crate::support::{blob, blob_with};

const NET: &str = "caffe/net/v1.caffemodel";
const TWO: &str = "other/two.safetensors";

/// An npz of three arrays, whose second one is a deflate stream that breaks.
fn second_broken() -> (tempfile::TempDir, String) {
    let content = npy("'<f4'", "(2, 3)", &[7; 24]);
    let members: [(&str, &[u8]); 3] = [("a.npy", &content), ("b.npy", &content), ("c.npy", &content)];
    let mut bytes = theirs(Deflated, &members);
    let headers = bytes.windows(4).enumerate();
    let local: Vec<usize> = headers.filter(|(_, w)| w == b"PK\x03\x04").map(|(i, _)| i).collect();
    let stream = local[1] + 30 + "b.npy".len();
    let end = bytes[stream..local[2]].len();
    // Behind the npy header, of which the first bytes of the stream are.
    for byte in &mut bytes[stream + end - 6..stream + end - 1] {
        *byte = 0xFF;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.npz");
    std::fs::write(&path, &bytes).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

/// A 2×3 array of f4 and two arrays of dtypes that are not read.
fn with_foreign() -> (tempfile::TempDir, String) {
    let members: [(&str, &[u8]); 3] = [
        ("a.npy", &npy("'<f4'", "(2, 3)", &[0; 24])),
        ("z.npy", &npy("'<c8'", "(2,)", &[0; 16])),
        ("y.npy", &npy("'<c8'", "()", &[0; 8])),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.npz");
    std::fs::write(&path, theirs(Stored, &members)).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

#[test]
fn dtypes_that_are_not_read_are_counted_and_left_out_aloud() {
    let (_folder, path) = with_foreign();
    let info = blob(&["info", "--json", &path]);
    assert_eq!(info.json()[0]["dtypes"], json!({"f32": 1, "<c8": 2}));
    assert_eq!(info.json()[0]["parameters"], 9);
    let text = blob(&["info", &path]);
    assert!(text.out.contains("3, 1 f32, 2 <c8\n"), "{text:?}");
    let ran = blob(&["stats", "--json", &path]).ok();
    let skipped = json!([
        {"name": "z", "shape": [2], "reason": "unsupported"},
        {"name": "y", "shape": [], "reason": "unsupported"},
    ]);
    assert_eq!(ran.json()[0]["skipped"], skipped);
    let said = "2 tensors of a dtype that is not read: \"z\" (<c8), \"y\" (<c8) (skipped)";
    assert!(ran.err.contains(said), "{ran:?}");
    let table = blob(&["stats", &path]);
    assert_eq!((table.code, table.out.lines().count()), (Some(0), 2));
    assert!(table.err.contains(said), "{table:?}");
    assert_eq!(blob(&["stats", &path, "z"]).code, Some(1));
    blob(&["verify", "--json", &path]).ok();
    let finite = blob(&["verify", "--finite", &path]);
    assert_eq!(finite.code, Some(2), "{finite:?}");
}

#[test]
fn what_is_wrong_with_a_file_whose_arrays_can_all_be_had_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longer.safetensors");
    let mut bytes = std::fs::read(crate::support::data(TWO)).unwrap();
    let end = bytes.len();
    bytes.extend(b"more");
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    let ran = blob(&["verify", "--json", path]).no();
    let finding = &ran.json()[0]["findings"][0];
    assert_eq!((&finding["offset"], &finding["reason"]), (&json!(end), &json!("malformed")));
    let text = blob(&["verify", path]);
    assert!(text.out.contains(&format!("at byte {end} of {}: ", end + 4)), "{text:?}");
}

#[test]
fn a_tensor_without_the_axis_is_skipped_and_said() {
    let ran = blob(&["stats", "--json", "--per-channel", "1", TWO]).ok();
    let stats = &ran.json()[0];
    assert_eq!(stats["tensors"].as_array().map(Vec::len), Some(3));
    assert_eq!(stats["skipped"], json!([{"name": "b", "shape": [1], "reason": "no-axis"}]));
    assert!(ran.err.contains("1 tensor without an axis 1: \"b\" (skipped)"));
    let table = blob(&["stats", "--per-channel", "1", TWO]).ok();
    assert_eq!(table.out.lines().count(), 4, "{table:?}");
    // Where no tensor has it, the answer is no.
    let none = blob(&["stats", "--json", "--per-channel", "9", TWO]).no();
    assert_eq!(none.json()[0]["tensors"], json!([]));
    assert_eq!(blob(&["stats", "--per-channel", "9", TWO]).code, Some(1));
}

#[test]
fn a_tensor_that_cannot_be_measured_is_an_error_in_its_place() {
    let (_folder, path) = second_broken();
    for args in [&["stats", "--json", &path][..], &["stats", "--json", "--hist", "--per-channel", "0", &path]] {
        let ran = blob(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let stats = &ran.json()[0];
        let tensors = stats["tensors"].as_array().unwrap();
        let broken: Vec<&Value> = tensors.iter().filter(|t| t.get("error").is_some()).collect();
        assert_eq!(broken.len(), 1, "{ran:?}");
        assert_eq!(broken[0]["name"], "b");
        assert_eq!(tensors.last().unwrap()["name"], "c");
        assert!(ran.err.contains("array \"b\": "), "{ran:?}");
    }
    let table = blob(&["stats", &path]);
    assert_eq!((table.code, table.out.lines().count()), (Some(2), 4));
}

#[test]
fn values_that_end_too_early_are_closed_and_said() {
    let (_folder, path) = second_broken();
    let ran = blob(&["show", "--json", &path, "b"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let lines = ran.json();
    assert_eq!(lines.len(), 1, "{ran:?}");
    assert!(lines[0]["error"]["message"].is_string(), "{ran:?}");
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
fn many_files_have_a_line_each_in_their_order() {
    let broken = "caffe/blobproto/count_short.binaryproto";
    let ran = blob(&["info", "--json", NET, "nosuch", broken, TWO]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let lines = ran.json();
    let files: Vec<&Value> = lines.iter().map(|l| &l["file"]).collect();
    assert_eq!(files, [NET, "nosuch", broken, TWO]);
    assert_eq!(lines[2]["errors"][0]["offset"], 2);
    // A message about an array names its file.
    assert!(ran.err.contains(&format!("error: {broken}: array \"@0\": at byte 2: ")));
}

#[test]
fn what_is_no_request_is_a_line_too() {
    let ran = blob(&["ls", "--json", NET, "nothing*"]).no();
    assert_eq!(ran.json()[0]["error"]["reason"], "no-match");
    let ran = blob(&["show", "--json", NET, "conv1/0", "--slice", "9"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(ran.json()[0]["error"]["reason"], "usage");
    assert_eq!(ran.json()[0]["file"], NET);
}

#[test]
fn verify_sums_up_many_files_and_can_leave_out_the_good_ones() {
    let cut = "caffe/net/truncated.caffemodel";
    let ran = blob(&["verify", NET, TWO, cut, "nosuch"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.out.ends_with("\n2 ok, 1 failed, 1 not read\n"), "{ran:?}");
    let ran = blob(&["verify", NET, TWO]);
    assert!(ran.out.ends_with("\n2 ok\n"), "{ran:?}");
    let ran = blob(&["verify", "--failed-only", NET, TWO, cut]).no();
    assert!(ran.out.starts_with(&format!("{cut}: FAIL")), "{ran:?}");
    let ran = blob(&["verify", "--failed-only", "--json", NET, cut]);
    assert_eq!(ran.json().len(), 1);
    // One name for standard input, whatever is said of it.
    let good = std::fs::read(crate::support::data(NET)).unwrap();
    for bytes in [&good[..], &good[..good.len() - 9], b""] {
        let ran = blob_with(&["verify", "-"], bytes);
        assert!(ran.out.starts_with("standard input: "), "{ran:?}");
    }
}

/// A net whose one layer holds `n` blobs that are broken: a shape of one, and no values.
fn broken_blobs(n: usize) -> Vec<u8> {
    let blobs = len(7, &shape(&[1])).repeat(n);
    len(100, &[len(1, b"a"), len(2, b"X"), blobs].concat())
}

#[test]
fn findings_are_counted_and_the_first_ones_printed() {
    const MANY: usize = 5000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.caffemodel");
    std::fs::write(&path, broken_blobs(MANY)).unwrap();
    let path = path.to_str().unwrap();
    let short = blob(&["verify", path]).no();
    let lines: Vec<&str> = short.out.lines().collect();
    assert_eq!(lines.len(), 22, "{short:?}");
    assert_eq!(lines[21], "  and 4,980 more; --all prints them");
    let all = blob(&["verify", "--all", path]);
    assert_eq!(all.out.lines().count(), MANY + 1);
    let last = all.out.lines().last().unwrap();
    assert!(last.contains(": FAIL ") && last.ends_with(", 5,000 findings"));
    let first = &blob(&["verify", "--json", path]).json()[0];
    assert_eq!(first["finding_count"], MANY);
    assert_eq!(first["findings"].as_array().map(Vec::len), Some(20));
    let whole = &blob(&["verify", "--json", "--all", path]).json()[0];
    assert_eq!(whole["findings"].as_array().map(Vec::len), Some(MANY));
    let info = blob(&["info", "--json", path]);
    assert_eq!(info.json()[0]["broken"], MANY);
    assert_eq!(info.json()[0]["errors"].as_array().map(Vec::len), Some(20));
    assert!(info.err.lines().count() < 20, "{info:?}");
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
    // The range is that of the finite values, as `show` prints them.
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
