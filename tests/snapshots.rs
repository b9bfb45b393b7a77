//! The tool's output on terminals of 60, 80 and 120 columns, in ASCII and in a pipe is compared with `tests/snapshots`
//! byte by byte.
//!
//! `UPDATE_EXPECT=1 cargo test -p blob-tests snapshots` rewrites them; review the difference before you commit it.

use std::path::Path;

use expect_test::expect_file;

use crate::support::{command, on_terminal, ran, report};

/// The files of snapshots, each with the command lines whose output it has.
const SHOWN: &[(&str, &[&str])] = &[
    ("info", &["info caffe/net/v1.caffemodel other/mxnet2_row_sparse.npz", "caffe/net/f32_v2.caffemodel"]),
    ("ls", &["ls caffe/net/f32_v2.caffemodel", "ls other/zw.safetensors", "ls other/escape-collision.safetensors"]),
    ("ls-long", &["ls -l caffe/net/f32_v2.caffemodel", "ls -l other/mxnet2_row_sparse.npz"]),
    ("ls-tree", &["ls --tree caffe/net/f32_v2.caffemodel"]),
    ("stats", &["stats caffe/net/f32_v2.caffemodel", "stats caffe/net/v1.caffemodel conv1/0 --per-channel 0"]),
    ("stats-hist", &["stats --hist caffe/net/f32_v2.caffemodel"]),
    ("show", &["show caffe/net/v1.caffemodel ip/0 --slice 0,0,:3", "show caffe/blobproto/f32_special.binaryproto"]),
    ("verify", &["verify caffe/net/v1.caffemodel", "verify caffe/net/truncated.caffemodel"]),
    ("convert", &["convert -n caffe/net/v1.caffemodel -o x.safetensors"]),
    ("formats", &["formats"]),
    (
        "errors",
        &[
            "ls caffe/net/empty.caffemodel",
            "ls no/such.params",
            "ls caffe/net/truncated.caffemodel",
            "ls caffe/net/v1.caffemodel convv1/0",
            "ls caffe/net/v1.caffemodel caffe/net/v0.caffemodel",
            "show caffe/net/v1.caffemodel",
            "show caffe/net/v1.caffemodel ip/0 --slice 9",
            "ls caffe/blobproto/count_short.binaryproto",
            "vrify caffe/net/v1.caffemodel",
            "convert caffe/net/v1.caffemodel -o x.onnx",
        ],
    ),
];

/// Masks durations: `in 0.4 ms` becomes `in TIME`.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        // The duration can be wrapped to the next line.
        let mut words: Vec<&str> = line.split(' ').collect();
        for i in 1..words.len() {
            let number = words[i - 1].parse::<f64>().is_ok();
            if number && matches!(words[i], "ms)" | "s)") {
                (words[i - 1], words[i]) = ("TIME", ")");
            }
        }
        out += words.join(" ").replace("TIME )", "TIME)").trim_end();
        out.push('\n');
    }
    out
}

/// One file: every command line on every kind of output. Equal outputs are grouped.
fn snapshot(lines: &[&str]) -> Option<String> {
    let mut text = String::new();
    for line in lines {
        let mut shown = Vec::new();
        for (title, columns, flags) in
            [("60 columns", 60, ""), ("80", 80, ""), ("120", 120, ""), ("80 with --ascii", 80, " --ascii")]
        {
            let out = on_terminal(columns, &format!("{line}{flags}"), &[("NO_COLOR", "1")])?;
            shown.push((title, masked(&out)));
        }
        let mut piped = command(&line.split(' ').collect::<Vec<_>>());
        piped.env("NO_COLOR", "1");
        let piped = ran(piped, b"");
        shown.push(("a pipe", format!("{}{}", masked(&piped.out), masked(&piped.err))));
        for alike in shown.chunk_by(|a, b| a.1 == b.1) {
            let titles: Vec<&str> = alike.iter().map(|(title, _)| *title).collect();
            text += &format!("$ blob {line}   # {}\n{}\n", titles.join(", "), alike[0].1);
        }
    }
    Some(text)
}

#[test]
fn the_tool_looks_as_it_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    for (name, lines) in SHOWN {
        let Some(found) = snapshot(lines) else {
            return report("NOT TESTED: what the tool looks like on a terminal (no `script`)");
        };
        expect_file![folder.join(format!("{name}.txt"))].assert_eq(&found);
    }
}

#[test]
fn only_durations_are_masked() {
    let line = "4 tensors, 1.45 KiB  (read 1.64 KiB of 1.64 KiB in 0.3 ms)";
    assert_eq!(masked(line), "4 tensors, 1.45 KiB  (read 1.64 KiB of 1.64 KiB in TIME)\n");
    assert_eq!(masked("0.4 ms)\n"), "TIME)\n");
}
