//! The next steps that the tool names: each command of a `help:` line in the sessions is one that the tool takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use blob_core::DType;
use blob_io::Format;

use crate::support::tensors::{Tensor, write};
use crate::support::{data, goldens, in_locale, ran, report, tool};

/// What a reader puts in place of words that stand for something else, longer words first.
const STAND_INS: &[(&str, &str)] = &[
    ("extract … -o", "extract net.caffemodel conv1/0 -o"),
    ("-o …", "-o made.npz"),
    ("\"$f\"", "net.caffemodel"),
    ("…", "net.caffemodel"),
    ("merge FILE", "merge qkv.npz"),
    ("FILE", "net.caffemodel"),
    ("AXIS,...", "1,0,2,3"),
    ("TENSOR", "conv1/0"),
    ("JOBS", "jobs.ndjson"),
    ("OUT", "out.npz"),
    ("DIR", "folder"),
    ("OLD NEW", "old new"),
];

/// Words of a command line that the tool does not take.
const REFUSALS: &[&str] =
    &["unexpected argument", "unrecognized", "no command", "invalid value", "cannot be used with", "takes one file"];

/// A command that a help line names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    line: String,
    /// Whether the command can be run as it stands. Within backquotes only the command and its options count.
    is_whole: bool,
}

/// The commands of a help line: those in backquotes, and one that begins the line, or that follows `for instance: ` or
/// `do `.
fn commands_of(help: &str) -> Vec<Named> {
    let quoted = help.split('`').skip(1).step_by(2).filter(|text| text.starts_with("blob "));
    let mut all: Vec<Named> = quoted.map(|line| Named { line: line.to_owned(), is_whole: false }).collect();
    let bare = ["for instance: ", "do "].iter().find_map(|lead| Some(help.split_once(lead)?.1)).unwrap_or(help);
    if bare.starts_with("blob ") {
        let line = bare.split("; ").next().unwrap_or(bare).to_owned();
        all.push(Named { line, is_whole: true });
    }
    all
}

#[test]
fn each_command_of_a_help_line_is_taken() {
    let mut all = BTreeSet::new();
    for session in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("sessions")).expect("sessions") {
        let text = fs::read_to_string(session.expect("a file").path()).expect("text");
        all.extend(
            text.lines().filter_map(|line| line.split_once("!   help: ")).flat_map(|(_, help)| commands_of(help)),
        );
    }
    let folder = goldens();
    let copy = |from: &str, to: &str| fs::copy(data(from), folder.path().join(to)).expect("copied");
    copy("caffe/forward/resnet.caffemodel", "net.caffemodel");
    copy("caffe/forward/resnet.prototxt", "deploy.prototxt");
    fs::create_dir(folder.path().join("models")).expect("a folder");
    copy("other/numpy_savez.npz", "models/a.npz");
    folder.with("jobs.ndjson", "");
    let vectors = ["q", "k", "v"].map(|name| Tensor::new(name, DType::U8, &[1], &[7]));
    write(&folder.path().join("qkv.npz"), Format::Npz, &vectors, &[]);
    for Named { line, is_whole } in &all {
        let typed = STAND_INS.iter().fold(line.clone(), |line, (word, given)| line.replace(word, given));
        assert!(
            !typed.split([' ', '=', ',']).any(|word| word.len() > 1 && word.bytes().all(|b| b.is_ascii_uppercase())),
            "{line}: a word without a stand-in in {typed:?}"
        );
        let mut command = Command::new(tool());
        command.args(typed.split(' ').skip(1)).current_dir(folder.path());
        in_locale(&mut command);
        let ran = ran(command, b"");
        let refusal = REFUSALS.iter().find(|words| ran.err.contains(**words));
        assert!(refusal.is_none() && (!is_whole || ran.code == Some(0)), "{line}: {ran:?}");
        let made = ["out.npz", "made.npz", "x.npz", "x.npy", "x.onnx", "o.npz"];
        made.iter().for_each(|made| drop(fs::remove_file(folder.path().join(made))));
    }
    let whole = all.iter().filter(|named| named.is_whole).count();
    assert!(whole > 8 && all.len() > whole + 8, "{all:?}");
    report(&format!("help: {whole} whole commands run, {} more are commands of the tool", all.len() - whole));
}

#[test]
fn commands_are_found_in_a_help_line() {
    let found =
        |help: &str| commands_of(help).into_iter().map(|named| (named.line, named.is_whole)).collect::<Vec<_>>();
    let owned = |line: &str, is_whole: bool| (line.to_owned(), is_whole);
    assert_eq!(found("blob convert a -o OUT"), [owned("blob convert a -o OUT", true)]);
    assert_eq!(found("`blob ls` lists them; --to x"), [owned("blob ls", false)]);
    assert_eq!(
        found("run it: for f in …; do blob convert \"$f\" -o …; done; `blob merge` puts"),
        [owned("blob merge", false), owned("blob convert \"$f\" -o …", true)]
    );
    assert_eq!(found("say it, `x`"), []);
}
