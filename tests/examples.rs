//! Runs every example of `--help` and every command of the recipes, with stand-ins for the user's files; follows the
//! links of the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use blob_core::{AnyBlob, Blob, Shape};
use blob_io::{Checkpoint, Format, IfExists, Writer};

use crate::support::{blob, data, report, tool};

/// The placeholders of the README, each with a file in place.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("FILE", "model.caffemodel"), ("OUT", "out.safetensors"), ("IN", "model.caffemodel"), ("FOLDER/", "folder/")];

fn values(dims: &[usize]) -> AnyBlob {
    let shape = Shape::new(dims).unwrap();
    let values: Vec<f32> = (0..shape.count()).map(|at| (at as f32 * 0.37).sin()).collect();
    Blob::from_slice(shape, &values).unwrap().into()
}

fn write(folder: &Path, file: &str, format: Format, tensors: &[(&str, &[usize])]) {
    let blobs: Vec<(&str, AnyBlob)> = tensors.iter().map(|(name, dims)| (*name, values(dims))).collect();
    let writer = blobs.iter().fold(Writer::new(format), |writer, (name, blob)| writer.tensor(*name, blob));
    writer.write(folder.join(file), IfExists::Refuse).unwrap_or_else(|e| panic!("{file}: {e}"));
}

/// Creates files with the names that the examples use.
fn stand_ins(folder: &Path) {
    let copies = [
        ("net.caffemodel", "caffe/forward/resnet.caffemodel"),
        ("net.onnx", "onnx/net.onnx"),
        ("deploy.prototxt", "caffe/forward/resnet.prototxt"),
        ("net-0000.params", "mxnet/forward/block-0000.params"),
        ("net-symbol.json", "mxnet/forward/block-symbol.json"),
        ("model-0000.params", "mxnet/forward/block-0000.params"),
        ("model-symbol.json", "mxnet/forward/block-symbol.json"),
    ];
    for (name, golden) in copies {
        fs::copy(data(golden), folder.join(name)).unwrap_or_else(|e| panic!("{golden}: {e}"));
    }
    let whole = fs::read(folder.join("net.caffemodel")).unwrap();
    fs::write(folder.join("cut.caffemodel"), &whole[..whole.len() / 2]).unwrap();
    let layers: [(&str, &[usize]); 4] =
        [("conv1/0", &[4, 3, 3, 3]), ("conv1/1", &[4]), ("fc6/0", &[5, 50]), ("fc6/1", &[5])];
    for name in ["model.caffemodel", "old.caffemodel", "a.caffemodel"] {
        write(folder, name, Format::CaffeModel, &layers);
    }
    for name in ["new.safetensors", "net.safetensors", "weights.npz"] {
        let (net, new) = (folder.join("net.caffemodel"), folder.join(name));
        assert_eq!(blob(&["convert", net.to_str().unwrap(), "-o", new.to_str().unwrap()]).code, Some(0));
    }
    for name in ["tuned.safetensors", "out.safetensors"] {
        write(folder, name, Format::Safetensors, &layers);
    }
    for name in ["b.npz", "half.npz", "model.npz"] {
        write(folder, name, Format::Npz, &layers);
    }
    let parameters: [(&str, &[usize]); 6] = [
        ("fc6_weight", &[2, 2]),
        ("arg:fc1_weight", &[8, 4]),
        ("arg:fc1_bias", &[8]),
        ("arg:bn0_gamma", &[3]),
        ("aux:bn0_moving_mean", &[3]),
        ("arg:embed", &[40, 6]),
    ];
    for name in ["model.params", "net.params", "a.params", "old.params", "backbone.params"] {
        write(folder, name, Format::MxnetList, &parameters);
    }
    write(folder, "head.params", Format::MxnetList, &[("arg:head_weight", &[2, 8])]);
    let projections: [(&str, &[usize]); 3] = [("q", &[2, 4]), ("k", &[2, 4]), ("v", &[2, 4])];
    write(folder, "net.npz", Format::Npz, &projections);
    for name in ["mean.npy", "std.npy"] {
        write(folder, name, Format::Npy, &[("@0", &[3, 4, 4])]);
    }
    write(folder, "mean.binaryproto", Format::BlobProto, &[("@0", &[1, 3, 4, 4])]);
    fs::write(folder.join("names.txt"), "conv1/* first/$1\n").expect("written");
    fs::create_dir(folder.join("models")).unwrap();
    fs::copy(folder.join("net.npz"), folder.join("models/net.npz")).unwrap();
    let job = blob_convert::Recipe::new("models/net.npz", "made/net.safetensors").to_json().unwrap();
    fs::write(folder.join("jobs.ndjson"), job.replace('\n', " ") + "\n").unwrap();
}

/// A file whose name is used differently by several commands: the beginning of the line, the file, and the tensors.
type Meant = (&'static str, &'static str, &'static [(&'static str, &'static [usize])]);

const MEANT: [Meant; 4] = [
    ("blob split net.npz", "net.npz", &[("qkv", &[192, 4])]),
    ("blob rename net.npz", "net.npz", &[("fc.weight", &[3, 5])]),
    ("blob transpose net.npz", "net.npz", &[("fc.weight", &[3, 5])]),
    (
        "blob transpose net.caffemodel",
        "net.caffemodel",
        &[("conv1/0", &[4, 3, 3, 3]), ("conv2/0", &[2, 4, 3, 3]), ("fc6/0", &[2, 512 * 7 * 7])],
    ),
];

/// The lines below `Examples:`, without the descriptions.
fn examples_of(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim_start().split("  ").next().unwrap_or_default().trim_end().to_owned()).collect()
}

fn commands() -> BTreeSet<String> {
    let help = blob(&["--help"]).out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with("  "));
    listed
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect()
}

/// Runs a command line in a folder with the stand-ins; `blob` is the tool under test. Returns an error in words.
fn run(line: &str, stand_ins: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-R").arg(stand_ins.join(".")).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    for (_, file, tensors) in MEANT.iter().filter(|(begin, ..)| line.starts_with(begin)) {
        fs::remove_file(folder.path().join(file)).unwrap();
        let format = if file.ends_with(".npz") { Format::Npz } else { Format::CaffeModel };
        write(folder.path(), file, format, tensors);
    }
    if line.starts_with("blob fold") {
        fs::copy(folder.path().join("net.caffemodel"), folder.path().join("model.caffemodel")).unwrap();
    }
    // Several examples write a file that another one reads.
    let mut words = line.split(' ').skip_while(|word| *word != "-o").skip(1);
    if let Some(output) = words.next() {
        let _ = fs::remove_file(folder.path().join(output));
    }
    let path = format!("{}:{}", tool().parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let done = Command::new("sh").args(["-c", line]).current_dir(folder.path()).env("PATH", path).output().unwrap();
    // `diff` and `verify` exit with 1 if the answer is no; a command that fails exits with 2.
    let answers = ["blob diff", "blob verify"].iter().any(|begin| line.starts_with(begin));
    match done.status.code() {
        Some(0) => Ok(()),
        Some(1) if answers => Ok(()),
        code => Err(format!("`{line}` ends with {code:?}:\n{}", String::from_utf8_lossy(&done.stderr))),
    }
}

fn run_all(what: &str, lines: &[String]) {
    let folder = tempfile::tempdir().unwrap();
    stand_ins(folder.path());
    let wrong: Vec<String> = lines.iter().filter_map(|line| run(line, folder.path()).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    report(&format!("{what}: {} examples run", lines.len()));
}

#[test]
fn every_help_has_examples_that_run() {
    let commands = commands();
    assert!(commands.len() > 12, "{commands:?}");
    let mut lines = examples_of(&blob(&["--help"]).out);
    assert!(!lines.is_empty());
    for command in &commands {
        let own = examples_of(&blob(&[command, "--help"]).out);
        assert!(!own.is_empty(), "`blob {command} --help` has no example");
        lines.extend(own);
    }
    run_all("help", &lines);
}

/// A page of the repository.
fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).expect(name)
}

#[test]
fn the_recipes_run() {
    let readme = page("README.md");
    let table = readme.split("## Recipes").nth(1).unwrap().split("\n## ").next().unwrap();
    let spans = table.to_owned() + &page("docs/recipes.md");
    let spans =
        spans.split('`').skip(1).step_by(2).filter(|span| span.starts_with("blob ") && !span.contains("COMMAND"));
    // Archives, shards and NeoML's nets are tested elsewhere.
    let lines = spans
        .filter(|span| !["model.tar.gz", ".index.json", ".cnnarch"].iter().any(|end| span.contains(end)))
        .map(|span| {
            let word = |word: &str| {
                PLACEHOLDERS
                    .iter()
                    .find(|(name, _)| *name == word)
                    .map_or(word.to_owned(), |(_, file)| (*file).to_owned())
            };
            span.split(' ').map(word).collect::<Vec<_>>().join(" ")
        });
    let lines: BTreeSet<String> = lines.collect();
    assert!(lines.len() > 12);
    run_all("recipes", &lines.into_iter().collect::<Vec<_>>());
}

/// The README's Rust.
fn front_page() -> Result<(), Box<dyn std::error::Error>> {
    let file = Checkpoint::open("net.caffemodel")?;
    let entry = file.entry("conv1/0").ok_or("no such tensor")?;
    let blob = file.load(entry)?;
    let turned = blob_ops::permute(&blob, &[0, 2, 3, 1])?;
    Writer::new(Format::Safetensors).tensor("conv1", &turned).write("conv1.safetensors", IfExists::Refuse)?;
    Ok(())
}

#[test]
fn the_readmes_rust_compiles() {
    let readme = page("README.md");
    let block = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let lines = block.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let missing: Vec<&str> = lines.filter(|line| !include_str!("examples.rs").contains(line)).collect();
    assert!(missing.is_empty(), "not in `front_page`: {missing:?}");
    assert!(front_page().is_err(), "there is no net.caffemodel here");
}

#[test]
fn every_link_of_the_pages_leads_to_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let book = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let front = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root.join(name));
    let (mut links, mut dead) = (0, Vec::new());
    for page in book.chain(front).filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains("://")) {
            links += 1;
            if !page.parent().unwrap().join(target).exists() {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(links > 30 && dead.is_empty(), "of {links} links: {dead:?}");
}
