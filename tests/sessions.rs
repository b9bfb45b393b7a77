//! Shell sessions with the tool: `tests/sessions/NAME.txt` has command lines and their complete output.
//!
//! A line `$ …` runs in `sh`, in a temporary folder for each file, which contains the goldens (`caffe/`, `mxnet/`, …).
//! Its output follows, indented by two spaces: standard output, then standard error with `! ` before each line, then
//! `[2]` for each `blob` whose status is not 0 (or for that of the line). A line `60$ blob …` runs the tool alone, on a
//! terminal of 60 columns, in `tests/data`. `UPDATE_EXPECT=1 cargo test -p blob-tests sessions` rewrites the output;
//! review the difference before you commit it.

use std::fs;
use std::path::Path;
use std::process::Command;

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Format};

use crate::support::archive::{named, npy, safetensors, theirs};
use crate::support::message::{len, shape, var};
use crate::support::schemas;
use crate::support::tensors::{Tensor, written};
use crate::support::{Folder, changed, compare_cases, data, find, goldens, in_locale, on_terminal, ran, report, tool};

/// Runs the session of this name in a folder that `prepare` has filled.
fn play(name: &str, prepare: impl FnOnce(&Folder)) {
    let folder = goldens();
    prepare(&folder);
    compare_cases(&format!("sessions/{name}.txt"), |line| match line.split_once("$ ") {
        Some(("", typed)) => shown(&folder, typed),
        // A line without columns is a comment.
        Some((columns, typed)) => columns.parse().map_or(String::new(), |columns| on_columns(columns, typed)),
        None => String::new(),
    });
}

/// A shell function `blob` that appends a status other than 0 to a file, because the shell returns only the last status
/// of a pipe or a list.
const BLOB: &str = r#"blob() { command blob "$@"; s=$?; [ $s = 0 ] || echo "[$s]" >> "$STATUSES"; return $s; }"#;

/// The output of a command line.
fn shown(folder: &Folder, line: &str) -> String {
    let (mut shell, notes) = (Command::new("sh"), Folder::new());
    let statuses = notes.path().join("statuses");
    let path = format!("{}:{}", tool().parent().unwrap().display(), std::env::var("PATH").unwrap());
    shell
        .args(["-c", &format!("{BLOB}\n{line}")])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("STATUSES", &statuses);
    in_locale(&mut shell);
    let ran = ran(shell, b"");
    assert!(!ran.out.contains("panicked"), "{line}: {}", ran.out);
    let mut shown = String::new();
    for (mark, text) in [("", &ran.out), ("! ", &ran.err)] {
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, "\n\\ no newline\n"), |line| (line, "\n"));
            if line.starts_with("{\"schema\":") {
                schemas::check(&serde_json::from_str(line).unwrap());
            }
            shown += &format!("{mark}{}{end}", masked(line));
        }
    }
    match (fs::read_to_string(statuses), ran.code.unwrap()) {
        (Ok(noted), _) => shown + &noted,
        (Err(_), 0) => shown,
        (Err(_), status) => shown + &format!("[{status}]\n"),
    }
}

/// The output of the tool on a terminal with this number of columns.
fn on_columns(columns: usize, line: &str) -> String {
    let arguments = line.strip_prefix("blob ").expect("a terminal runs the tool alone");
    let shown = on_terminal(columns, arguments, &[("NO_COLOR", "1")]).expect("there is `script`");
    shown.lines().map(|line| masked(line.trim_end()) + "\n").collect()
}

/// Masks the parts of a line that change with each run, such as durations, or with each version of the tool: receipts.
fn masked(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut masked = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let is_number = words[at].parse::<f64>().is_ok();
        let unit = words.get(at + 1).filter(|_| is_number).copied().unwrap_or_default();
        let plain = unit.trim_end_matches([',', ';', ')']);
        // The size of the file written: after an arrow, or before the time.
        let is_output = at.checked_sub(1).is_some_and(|at| ["→", "->"].contains(&words[at]))
            || unit.ends_with(',') && words.get(at + 2) == Some(&"in");
        let mask = match plain {
            "ms" | "s" => "TIME",
            "B" | "KiB" | "MiB" if is_output => "SIZE",
            _ => {
                masked.push(words[at].to_owned());
                at += 1;
                continue;
            }
        };
        masked.push(format!("{mask}{}", &unit[plain.len()..]));
        at += 2;
    }
    let mut line = masked.join(" ");
    for key in ["\"bytes_out\":", "\"seconds\":"] {
        if let Some(from) = line.find(key).map(|at| at + key.len()) {
            let to = line[from..].find([',', '}']).map_or(line.len(), |len| from + len);
            line.replace_range(from..to, "0");
        }
    }
    line
}

#[test]
fn only_what_changes_is_masked() {
    let line = "✔ x.npz: npz, 4 tensors, 1.64 KiB → 3.93 KiB, in 12.4 ms; 1 folded";
    assert_eq!(masked(line), "✔ x.npz: npz, 4 tensors, 1.64 KiB → SIZE, in TIME; 1 folded");
    assert_eq!(masked("✔ x.html: html, 1 tensor, 3.93 KiB, in 2 s"), "✔ x.html: html, 1 tensor, SIZE, in TIME");
    assert_eq!(masked("(read 1.64 KiB in 0.3 ms)"), "(read 1.64 KiB in TIME)");
    assert_eq!(masked(r#"{"bytes_out":8,"seconds":0.1}"#), r#"{"bytes_out":0,"seconds":0}"#);
}

/// Every file of the folder has a test.
#[test]
fn every_session_is_played() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions");
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let played = "batch changes drawing fold folders into names onnx piped reading recipes regroup salvaging selecting shards slips \
                  symbol terminal unread writing";
    let played: Vec<String> = played.split(' ').map(|name| format!("{name}.txt")).collect();
    assert_eq!(names, played);
}

#[test]
fn names() {
    play("names", |_| ());
}

#[test]
fn recipes() {
    play("recipes", |folder| {
        let hostile = [
            ("deep.json", "[".repeat(200_000)),
            ("steps.json", format!(r#"{{"steps": [{}]}}"#, vec![r#"{"name": "rgb"}"#; 70].join(","))),
            ("slip.json", r#"{"steps": [{"name": "dtype", "setting": {"to": "f16"}}]}"#.to_owned()),
            ("other.json", r#"{"schema": "blob.recipe/2"}"#.to_owned()),
        ];
        hostile.into_iter().for_each(|(name, text)| drop(folder.with(name, text)));
    });
}

#[test]
fn piped() {
    play("piped", |_| ());
}

#[test]
fn shards() {
    play("shards", |_| ());
}

/// Two arrays, and a copy in which one is broken.
fn with_broken(folder: &Folder) {
    let content = npy("'<f4'", "(4,)", &[0; 16]);
    let good = theirs(zip::CompressionMethod::Stored, &[("v.npy", &content), ("w.npy", &content)]);
    let last = find(&good, &content) + content.len() - 1;
    folder.with("broken.npz", changed(&good, last, &[1]));
    folder.with("good.npz", good);
}

#[test]
fn slips() {
    play("slips", with_broken);
}

#[test]
fn symbol() {
    play("symbol", |_| ());
}

#[test]
fn terminal() {
    if on_terminal(80, "--version", &[]).is_none() {
        return report("NOT TESTED: the tool on a terminal (no `script`)");
    }
    play("terminal", |_| ());
}

#[test]
fn unread() {
    play("unread", with_broken);
}

#[test]
fn reading() {
    play("reading", |folder| {
        let (plain, values) = (npy("'<f4'", "(2, 3)", &[0; 24]), npy("'<f4'", "(2, 3)", &[7; 24]));
        let foreign = [npy("'<c8'", "(2,)", &[0; 16]), npy("'<c8'", "()", &[0; 8])];
        let members: [(&str, &[u8]); 3] = [("a.npy", &plain), ("z.npy", &foreign[0]), ("y.npy", &foreign[1])];
        folder.with("foreign.npz", theirs(zip::CompressionMethod::Stored, &members));
        let names = ["conv1/0", "conv2/0", "block/conv/0", "a*/0", "ab/0", "#3"];
        named(&folder.path().join("names.safetensors"), &names.map(str::to_owned));
        // Of three arrays, the deflate stream of the second one is broken.
        let members: [(&str, &[u8]); 3] = [("a.npy", &values), ("b.npy", &values), ("c.npy", &values)];
        let mut bytes = theirs(zip::CompressionMethod::Deflated, &members);
        let headers = bytes.windows(4).enumerate().filter(|(_, window)| window == b"PK\x03\x04");
        let third = headers.map(|(at, _)| at).nth(2).unwrap();
        bytes[third - 6..third - 1].fill(0xFF);
        folder.with("broken.npz", bytes);
        let image = [1., 2., 3., 4., 10., 10., 10., 10., 0., 0., 0., 2.].map(f32::to_le_bytes).concat();
        folder.with("mean.npy", npy("'<f4'", "(1, 3, 2, 2)", &image));
    });
}

/// Files with names that are cut alike in the middle, names that a spreadsheet takes for formulas, and three dtypes.
fn with_names(folder: &Folder) {
    let deep = ["net_stage1_unit_conv0_weight", "net_stage1_unit_conv1_weight", "net_stage2_unit_conv1_weight"];
    named(&folder.path().join("deep.safetensors"), &deep.map(str::to_owned));
    named(
        &folder.path().join("formula.safetensors"),
        &["=cmd|A0", "-w", "+w", "@SUM(1)", "@0", "w"].map(str::to_owned),
    );
    let (a, b) = (npy("'<f4'", "(2, 3)", &[0; 24]), npy("'|u1'", "(2, 1)", &[0; 2]));
    let c = npy("'<i8'", "()", &[0; 8]);
    let members: [(&str, &[u8]); 3] = [("a.npy", &a), ("b.npy", &b), ("c.npy", &c)];
    folder.with("mixed.npz", theirs(zip::CompressionMethod::Stored, &members));
}

#[test]
fn selecting() {
    play("selecting", with_names);
}

#[test]
fn salvaging() {
    play("salvaging", |folder| {
        with_names(folder);
        let net = fs::read(data("caffe/net/v1.caffemodel")).unwrap();
        folder.with("cut.caffemodel", &net[..1000]);
        folder.with("mean.npy", npy("'<f4'", "(1,)", &[0; 4]));
    });
}

#[test]
fn folders() {
    play("folders", |folder| {
        let net = fs::read(data("caffe/net/v1.caffemodel")).unwrap();
        let names: Vec<String> = (0..258).map(|i| format!("{i:03}.caffemodel")).collect();
        let mut files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &net[..])).collect();
        files[1].1 = &net[..900];
        folder.with("many.tar", crate::support::archive::tarred(files));
    });
}

#[test]
fn fold() {
    play("fold", |folder| {
        let net = fs::read_to_string(data("caffe/forward/resnet.prototxt")).unwrap();
        let norm = "layer {\n  name: \"bn_conv1\"";
        let pool = "layer { name: \"beside\" type: \"Pooling\" bottom: \"conv1\" top: \"beside\" }";
        folder.with("beside.prototxt", net.replacen(norm, &format!("{pool}\n{norm}"), 1));
    });
}

#[test]
fn batch() {
    play("batch", |_| {});
}
#[test]
fn onnx() {
    play("onnx", |_| {});
}

#[test]
fn writing() {
    play("writing", |folder| {
        let blobs = len(7, &shape(&[1])).repeat(5000);
        folder.with("many.caffemodel", len(100, &[len(1, b"a"), len(2, b"X"), blobs].concat()));
        // Each has both kinds of shape, which gives a warning.
        let blob = [var(1, 1), var(2, 1), var(3, 1), var(4, 1), shape(&[1]), len(5, &1.0_f32.to_le_bytes())].concat();
        folder.with("odd.vector", len(1, &blob).repeat(25));
        let header = concat!(
            r#"{"ip/0":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},"#,
            r#""ip/0.diff":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}"#
        );
        folder.with("odd-diff.safetensors", safetensors(header, &[0; 24]));
    });
}

#[test]
fn regroup() {
    play("regroup", |folder| {
        let names = ["../../up/w", "/abs/w", "a/b/w", "a.b/w", "nul/w"];
        let tensors = names
            .iter()
            .enumerate()
            .map(|(i, name)| format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, i + 1));
        let tensors: Vec<String> = tensors.collect();
        folder.with("odd.safetensors", safetensors(&format!("{{{}}}", tensors.join(",")), &[1; 5]));
        folder.with("empty.safetensors", safetensors("{}", b""));
        let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        folder.with("large.safetensors", safetensors(header, &[1.0_f32, 1e9].map(f32::to_le_bytes).concat()));
    });
}

#[test]
fn changes() {
    play("changes", |folder| {
        let header = r#"{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
        let values = [1.0_f32, 1e-9, 1e9, 0.0].map(f32::to_le_bytes).concat();
        folder.with("small.safetensors", safetensors(header, &values));
        let header = r#"{"../up":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]}}"#;
        folder.with("hostile.safetensors", safetensors(header, &values));
        let header =
            r#"{"__metadata__":{"format":"tf","by":"me"},"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
        folder.with("pt.safetensors", safetensors(header, &values));
        let header = r#"{"a":{"dtype":"U16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[2],"data_offsets":[8,16]}}"#;
        folder.with("odd.safetensors", safetensors(header, &values));
        let two = |dtypes: [&str; 2]| {
            let [a, b] = dtypes.map(|dtype| format!(r#"{{"dtype":"{dtype}","shape":[4],"data_offsets":"#));
            safetensors(&format!(r#"{{"a":{a}[0,8]}},"b":{b}[8,16]}}}}"#), &values)
        };
        folder.with("ints.safetensors", two(["U16", "I16"]));
        folder.with("bf.safetensors", two(["BF16", "BF16"]));
    });
}

#[test]
fn into() {
    play("into", |folder| {
        let golden = "caffe/net/f32_v2.caffemodel";
        let place = Checkpoint::open(data(golden)).unwrap().entry("conv2/0").and_then(Entry::offset).unwrap();
        folder.with("new.caffemodel", changed(&fs::read(data(golden)).unwrap(), place as usize, &[1, 2, 3, 4]));
        let values: Vec<u8> = (0..15).flat_map(|i| (i as f32 + 0.5).to_le_bytes()).collect();
        let of = |name: &str, at: usize| {
            format!(r#""{name}":{{"dtype":"F32","shape":[1,3,1,1,1,1,5],"data_offsets":[{at},{}]}}"#, at + 60)
        };
        folder.with("tuned.safetensors", safetensors(&format!("{{{}}}", of("fc2/0", 0)), &values));
        let both = format!("{{{},{}}}", of("fc1/0", 0), of("fc9/0", 60));
        folder.with("wrong.safetensors", safetensors(&both, &values.repeat(2)));
        let one = r#"{"w":{"dtype":"U8","shape":[1,2,3],"data_offsets":[0,6]}}"#;
        folder.with("one.safetensors", safetensors(one, &[0; 6]));
        let unnamed = r#"{"@0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}}"#;
        folder.with("unnamed.safetensors", safetensors(unnamed, &[0; 24]));
        let flat = r#"{"fc1/1":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}}"#;
        folder.with("flat.safetensors", safetensors(flat, &values[..20]));
        let seven = r#"{"__metadata__":{"iter":"7"},"@0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        folder.with("seven.safetensors", safetensors(seven, &[0; 8]));
    });
}

#[test]
fn drawing() {
    play("drawing", |folder| {
        let content = npy("'<f4'", "(4,)", &[0; 16]);
        let good = theirs(zip::CompressionMethod::Stored, &[("w.npy", &content)]);
        let last = find(&good, &content) + content.len() - 1;
        folder.with("bad.npz", changed(&good, last, &[1]));
        folder.with("good.npz", good);
        let markup = r#"{"</text><script>alert(1)</script>&\u202e":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
        folder.with("markup.safetensors", safetensors(markup, &[0, 9, 9, 3]));
        with_changes(folder);
    });
}

/// Files for `blob diff`, with a change of each kind.
fn with_changes(folder: &Folder) {
    let of = |name: &str, dims: &[usize], from: f32| {
        let values = (0..dims.iter().product()).map(|i: usize| from + i as f32);
        Tensor::new(name, DType::F32, dims, &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    };
    let mut edited = of("edited", &[2, 3], 0.0);
    edited.bytes[16..20].copy_from_slice(&4.25_f32.to_le_bytes());
    let wide: Vec<u8> = (0..5).flat_map(|i| (100.0 + f64::from(i)).to_le_bytes()).collect();
    let before = [
        of("same", &[2, 3], 0.0),
        of("old", &[5], 100.0),
        of("gone", &[4], 7.0),
        of("flat", &[20], 0.0),
        of("shape", &[2, 3], 0.0),
        of("edited", &[2, 3], 0.0),
        of("wide", &[5], 100.0),
    ];
    let after = [
        of("same", &[2, 3], 0.0),
        of("now", &[5], 100.0),
        of("new", &[4], 8.0),
        of("flat", &[1, 1, 1, 20], 0.0),
        of("shape", &[3, 2], 0.0),
        edited,
        Tensor::new("wide", DType::F64, &[5], &wide),
    ];
    for (name, tensors) in [
        ("before.safetensors", &before[..]),
        ("after.safetensors", &after),
        ("low.safetensors", &[of("low", &[2, 6], 0.0), of("other", &[3, 4], 1.0)]),
        ("high.safetensors", &[of("high", &[3, 4], 0.0)]),
    ] {
        folder.with(name, written(Format::Safetensors, tensors, &[]));
    }
}
