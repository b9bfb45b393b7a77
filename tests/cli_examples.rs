//! The examples of every page of help, run as they stand there, in a folder that has the files that they name.

use std::path::Path;
use std::process::Command;

use blob_core::{AnyBlob, Blob, Shape};
use blob_io::{Format, IfExists, Writer};

use crate::support::{blob, data, ran, report, tool};

/// Lines whose nets `tests/fold.rs` has.
const ELSEWHERE: &[&str] = &["blob fold"];

/// A tensor that counts from 0.
fn counting(dims: &[usize]) -> AnyBlob {
    let shape = Shape::new(dims).expect("fits");
    let values = (0..shape.count()).map(|i| i as f32).collect();
    AnyBlob::from(Blob::from_vec(shape, values).expect("as many values"))
}

fn write(path: &Path, format: Format, tensors: &[(&str, &[usize])]) {
    let blobs: Vec<(&str, AnyBlob)> = tensors.iter().map(|(name, dims)| (*name, counting(dims))).collect();
    let writer = blobs.iter().fold(Writer::new(format), |writer, (name, blob)| writer.tensor(*name, blob));
    writer.write(path, IfExists::Refuse).expect("written");
}

/// The files that examples read.
fn prepare(folder: &Path) {
    let net: &[(&str, &[usize])] =
        &[("conv1/0", &[4, 3, 3, 3]), ("conv1/1", &[4]), ("conv2/0", &[2, 4, 3, 3]), ("fc6/0", &[2, 25088])];
    write(&folder.join("net.caffemodel"), Format::CaffeModel, net);
    let net = &net[..3];
    let net = &[net, &[("fc6/0", &[5, 36][..])]].concat();
    for name in ["model", "old", "a"] {
        write(&folder.join(name).with_extension("caffemodel"), Format::CaffeModel, net);
    }
    for name in ["out.safetensors", "new.safetensors", "tuned.safetensors"] {
        write(&folder.join(name), Format::Safetensors, net);
    }
    write(&folder.join("b.npz"), Format::Npz, net);
    write(&folder.join("half.npz"), Format::Npz, net);
    let params: &[(&str, &[usize])] = &[
        ("arg:conv0_weight", &[2, 3]),
        ("arg:bn0_gamma", &[2]),
        ("arg:fc1_weight", &[4, 6]),
        ("aux:bn0_moving_mean", &[2]),
    ];
    for name in ["model.params", "net.params", "old.params", "a.params", "backbone.params", "model-0000.params"] {
        write(&folder.join(name), Format::MxnetList, params);
    }
    write(&folder.join("head.params"), Format::MxnetList, &[("arg:fc2_weight", &[4, 4])]);
    let parts: &[(&str, &[usize])] =
        &[("q", &[64, 2]), ("k", &[64, 2]), ("v", &[64, 2]), ("fc.weight", &[5, 36]), ("qkv", &[192, 2])];
    // In the example of `merge` the result is what `split` begins with.
    write(&folder.join("net.npz"), Format::Npz, &parts[..4]);
    write(&folder.join("whole.npz"), Format::Npz, &parts[4..]);
    write(&folder.join("model.npz"), Format::Npz, params);
    write(&folder.join("mean.binaryproto"), Format::BlobProto, &[("@0", &[1, 3, 8, 8])]);
    for name in ["mean.npy", "std.npy"] {
        write(&folder.join(name), Format::Npy, &[("x", &[3])]);
    }
    std::fs::create_dir(folder.join("models")).expect("made");
    std::fs::copy(data("caffe/net/v1.caffemodel"), folder.join("models/v1.caffemodel")).expect("copied");
}

/// The examples of a page: each line without the words behind it.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim_start().split("  ").next().expect("a command").to_owned()).collect()
}

#[cfg(unix)]
#[test]
fn every_example_of_every_page_of_help_works() {
    let mut pages: Vec<String> = blob(&["__complete", "blob "]).out.lines().skip(1).map(str::to_owned).collect();
    assert!(pages.len() > 15, "{pages:?}");
    pages.push(String::new());
    let path = format!("{}:{}", tool().parent().expect("a folder").display(), std::env::var("PATH").expect("a path"));
    let (mut count, mut without) = (0, Vec::new());
    for page in &pages {
        let command = page.split('\t').next().unwrap_or_default().trim();
        let help = if command.is_empty() { blob(&["--help"]) } else { blob(&[command, "--help"]) };
        let lines = examples(&help.out);
        if lines.is_empty() {
            without.push(command);
        }
        for line in lines {
            if ELSEWHERE.iter().any(|begin| line.starts_with(begin)) {
                continue;
            }
            let folder = tempfile::tempdir().expect("a folder");
            prepare(folder.path());
            if line.starts_with("blob split net.npz") {
                std::fs::rename(folder.path().join("whole.npz"), folder.path().join("net.npz")).expect("renamed");
            }
            // Outputs of some examples are inputs of others.
            if let Some(out) = line.split(" -o ").nth(1).and_then(|rest| rest.split(' ').next()) {
                let _ = std::fs::remove_file(folder.path().join(out.trim_matches('\'')));
            }
            let mut shell = Command::new("sh");
            shell.current_dir(folder.path()).env("PATH", &path).env("LC_ALL", "C.UTF-8").args(["-c", &line]);
            let done = ran(shell, b"");
            // What differs is an answer, too.
            let most = if line.starts_with("blob diff") { 1 } else { 0 };
            assert!(done.code.is_some_and(|code| code <= most) && !done.err.contains("error"), "{line}: {done:?}");
            count += 1;
        }
    }
    // These take no argument, or a shell.
    assert_eq!(without, ["formats", "completions", "man"], "pages without an example");
    report(&format!("help: {count} examples run"));
}
