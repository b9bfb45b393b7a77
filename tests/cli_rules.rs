//! Rules that every command keeps: one JSON line for an error, -n writes nothing, one form for the files written, and
//! no binary data for a terminal.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Folder, Ran, blob, commands, data, in_locale, on_terminal, ran, report, tool};

const NET: &str = "caffe/net/f32_v2.caffemodel";

/// The commands that read files, each with its other arguments; `OUT` is the output.
const READERS: [&[&str]; 15] = [
    &["info", "FILE"],
    &["ls", "FILE"],
    &["show", "FILE", "conv1/1"],
    &["stats", "FILE"],
    &["verify", "FILE"],
    &["diff", "FILE", "FILE"],
    &["hash", "FILE"],
    &["plot", "FILE", "conv1/1", "-o", "OUT.svg"],
    &["report", "FILE", "-o", "OUT.html"],
    &["convert", "FILE", "-o", "OUT.npz"],
    &["fold", "FILE", "-o", "OUT.npz"],
    &["extract", "FILE", "conv1/0", "-o", "OUT.npy"],
    &["split", "FILE", "--by-layer", "-o", "OUT-{}.npz"],
    &["transpose", "FILE", "conv1/0", "--perm", "1,0,2,3", "-o", "OUT.npz"],
    &["rename", "FILE", "--sed", "s/conv/c/", "-o", "OUT.npz"],
];

const MERGE: &[&str] = &["merge", "FILE", "-o", "OUT.npz"];

/// The commands that write, from -o.
fn writers() -> impl Iterator<Item = &'static [&'static str]> {
    READERS.into_iter().chain([MERGE]).filter(|line| line.contains(&"-o"))
}

/// The words of a command line about a net, which for a fold has BatchNorms.
fn of_net(line: &[&str], out: &str) -> Vec<String> {
    filled(line, if line[0] == "fold" { "caffe/forward/resnet.caffemodel" } else { NET }, out)
}

fn filled(line: &[&str], file: &str, out: &str) -> Vec<String> {
    line.iter().map(|word| word.replace("FILE", file).replace("OUT", out)).collect()
}

fn run(words: &[String], more: &[&str]) -> Ran {
    let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
    blob(&words)
}

/// Asserts that a run failed with one line of JSON, and returns that.
#[track_caller]
fn one_error(ran: &Ran, command: &str) -> Value {
    assert!(ran.code == Some(2) && !ran.err.is_empty(), "{ran:?}");
    let lines = ran.json();
    assert_eq!(lines.len(), 1, "{ran:?}");
    assert_eq!((&lines[0]["schema"], &lines[0]["command"]), (&"blob.error/1".into(), &command.into()), "{ran:?}");
    assert!(lines[0]["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{ran:?}");
    lines[0].clone()
}

/// Commands of other lines than `READERS`: those without a file of tensors, and those of several.
const OTHERS: [&str; 7] = ["merge", "graph", "batch", "formats", "schemas", "completions", "man"];

#[test]
fn every_command_is_among_the_readers_or_the_others() {
    let mut known: Vec<&str> = READERS.iter().map(|line| line[0]).chain(OTHERS).collect();
    let mut all = commands();
    known.sort_unstable();
    all.sort();
    assert_eq!(known, all);
}

/// Every command that takes tensors has the same words for the choice.
#[test]
fn tensors_are_chosen_alike_everywhere() {
    const BESIDE: [&str; 4] = ["--regex", "--exclude", "--dtype", "--shape"];
    const ONLY: [&str; 5] = ["--only", "--exclude", "--regex", "--only-dtype", "--only-shape"];
    for command in commands() {
        let help = blob(&[&command, "--help"]).ok().out;
        let options: Vec<&str> = help.split_whitespace().filter(|word| word.starts_with("--")).collect();
        let has = |all: &[&str]| all.iter().all(|option| options.contains(option));
        let takes_none = ["graph", "formats", "schemas", "completions", "man"].contains(&&*command);
        assert!(has(&ONLY) || has(&BESIDE) || takes_none, "{command} lacks some of {BESIDE:?}, or of {ONLY:?}");
    }
}

/// Every command that writes tensors refuses losses with --strict, and lists the changes in JSON.
#[test]
fn losses_are_refused_and_changes_listed_alike_everywhere() {
    let of_tensors = writers().filter(|line| !["plot", "report"].contains(&line[0]));
    for line in of_tensors {
        let folder = Folder::new();
        let words = of_net(line, &folder.file("out"));
        let strict = run(&words, &["--strict", "-n", "--json"]);
        let said = strict.json();
        assert!(said[0]["changes"].is_array() || strict.err.contains("would not come out as it is"), "{strict:?}");
        assert!(run(&words, &["-n", "--json"]).ok().json()[0]["changes"].is_array(), "{line:?}");
    }
}

#[test]
fn a_wrong_command_line_is_a_line_of_json() {
    for line in READERS.iter().chain([&MERGE]) {
        let words = filled(line, NET, "x");
        let error = one_error(&run(&words, &["--json", "--nope"]), line[0]);
        assert_eq!(error["error"]["reason"], "usage", "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("--nope"), "{error}");
        // Without arguments.
        one_error(&blob(&[line[0], "--json"]), line[0]);
    }
    for line in [&["formats", "x"][..], &["schemas", "x"], &["completions", "x"], &["man", "x"]] {
        one_error(&blob(&[line, &["--json"]].concat()), line[0]);
    }
    for line in [&["completions", "bash"][..], &["man"]] {
        one_error(&blob(&[line, &["--json"]].concat()), line[0]);
    }
    one_error(&blob(&["--json"]), "");
    one_error(&blob(&["vrify", "--json"]), "");
    let after = blob(&["ls", NET, "--nope", "--", "--json"]);
    assert!(after.code == Some(2) && after.out.is_empty(), "{after:?}");
}

#[test]
fn an_error_about_one_file_names_the_file() {
    for line in &READERS {
        let missing = run(&filled(line, "no/such.params", "x"), &["--json"]);
        assert_eq!(missing.json()[0]["file"], "no/such.params", "{missing:?}");
        if line.contains(&"-o") {
            let words =
                filled(line, NET, "x").join("\n").replace("x.", "no/such/folder/x.").replace("x-{}", "no/such/x-{}");
            let words: Vec<String> = words.split('\n').map(str::to_owned).collect();
            let refused = run(&words, &["--json"]);
            assert_eq!((refused.code, refused.json().len()), (Some(2), 1), "{refused:?}");
        }
    }
    for line in [&["fold", NET, "-o", "a.foo"][..], &["convert", NET, "-o", "a.foo"], &["extract", NET, "-o", "a.foo"]]
    {
        assert_eq!(one_error(&blob(&[line, &["--json"]].concat()), line[0])["file"], NET);
    }
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_the_run_says() {
    for line in writers() {
        let folder = Folder::new();
        let words = of_net(line, &folder.file("out"));
        let dry = run(&words, &["-n"]).ok();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{line:?}");
        let (dry_json, done_json) = (run(&words, &["-n", "--json"]).ok(), run(&words, &["--json"]).ok());
        assert!(fs::read_dir(folder.path()).unwrap().count() > 0, "{line:?}");
        let done = run(&words, &["--force"]).ok();
        let said = |ran: &Ran, lead: &str| {
            let mut lines = ran.err.lines().filter_map(|line| line.strip_prefix(lead));
            lines.next().unwrap_or_else(|| panic!("{lead:?}: {ran:?}")).to_owned()
        };
        // The same words but for the time.
        let (would, wrote) = (said(&dry, "would write "), said(&done, "✔ "));
        let (before, after) = wrote.split_once(", in ").unwrap_or_else(|| panic!("{wrote}"));
        let details = after.split_once("; ").map(|(_, details)| format!("; {details}")).unwrap_or_default();
        let is_same = would == format!("{before}{details}");
        // The figures of a fold are those of its run.
        assert!(is_same || line[0] == "fold" && would.starts_with(before), "{would} / {wrote}");
        assert!(wrote.contains(&folder.file("out")), "{wrote}");
        let (dry, done) = (&dry_json.json()[0], &done_json.json()[0]);
        assert_eq!((&dry["dry_run"], &done["dry_run"]), (&true.into(), &false.into()), "{line:?}");
        for field in ["output", "to", "tensors", "bytes_out"] {
            assert!(
                dry[field] == done[field] && (line[0] == "plot" || !done[field].is_null()),
                "{field}: {dry} {done}"
            );
        }
        let len: u64 = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(done["bytes_out"], len, "{line:?}");
    }
}

/// Commands that need no output for a dry run.
#[test]
fn a_dry_run_of_a_renaming_needs_no_output() {
    for line in [&["rename", NET, "--sed", "s/^conv/c/"][..], &["transpose", NET, "conv1/0", "--perm", "1,0,2,3"]] {
        let dry = blob(&[line, &["-n"]].concat()).ok().stderr_has("would write: caffemodel, 12 tensors");
        assert!(dry.out.contains("conv1/0"), "{dry:?}");
        assert_eq!(blob(&[line, &["-n", "--json"]].concat()).ok().json()[0]["output"], Value::Null);
        assert_eq!(blob(line).code, Some(2));
    }
}

#[test]
fn no_binary_data_goes_to_a_terminal() {
    for line in writers() {
        let mut words = of_net(line, "x");
        let at = words.iter().position(|word| word == "-o").unwrap() + 1;
        let to = words[at].rsplit('.').next().unwrap().to_owned();
        if matches!(line[0], "plot" | "split" | "report") {
            continue;
        }
        words[at] = "-".to_owned();
        let typed = format!("{} --to {to}", words.join(" "));
        let Some(shown) = on_terminal(80, &typed, &[("NO_COLOR", "1")]) else {
            return report("NOT TESTED: binary data on a terminal (no `script`)");
        };
        assert!(shown.starts_with("error: -o - would write binary data to the terminal"), "{typed}: {shown:?}");
        let piped = run(&typed.split(' ').map(str::to_owned).collect::<Vec<_>>(), &["-n"]);
        assert_eq!(piped.code, Some(0), "{piped:?}");
    }
    let text = on_terminal(80, &format!("extract {NET} conv1/1 --to csv -o -"), &[]);
    assert!(text.is_none_or(|shown| !shown.contains("error")));
}

/// The short help fits a screen, and the list of formats stands in `blob formats` alone.
#[test]
fn short_help_is_short() {
    for command in commands() {
        let (short, long) = (blob(&[&command, "-h"]).ok().out, blob(&[&command, "--help"]).ok().out);
        assert!(short.lines().count() <= 50, "{command}: {} lines", short.lines().count());
        for help in [short, long].iter().filter(|_| command != "formats") {
            assert!(!help.contains("blobprotovector"), "{command} lists the formats");
        }
    }
}

/// A file with the name of standard output in messages is a file like any other.
#[cfg(unix)]
#[test]
fn a_pipe_that_is_called_standard_output_is_none() {
    let folder = Folder::new();
    let line = format!(
        "mkfifo 'standard output'; (exec 3< 'standard output'; sleep 0.3) & '{}' convert --force --to npy '{}' -o 'standard output'",
        tool().display(),
        data("other/many.npy").display()
    );
    let zeros = folder.file("zeros.npy");
    crate::support::archive::zeros(std::path::Path::new(&zeros), 1 << 20);
    let line = line.replace(&data("other/many.npy").display().to_string(), &zeros);
    let mut sh = Command::new("sh");
    sh.current_dir(folder.path()).args(["-c", &line]);
    in_locale(&mut sh);
    let broken = ran(sh, b"");
    assert!(broken.code == Some(2) && broken.err.contains("standard output: cannot write"), "{broken:?}");
}

/// A format's name is a file's name, too.
#[test]
fn a_file_that_is_called_npz_is_named_once() {
    let folder = Folder::new();
    fs::copy(data("caffe/net/v1.caffemodel"), folder.file("npz")).unwrap();
    let mut command = Command::new(tool());
    command.current_dir(folder.path()).args(["convert", "npz", "-o", "x.binaryproto"]);
    let refused = ran(command, b"").refused("error: npz: ");
    assert!(!refused.err.contains("npz: as npz"), "{refused:?}");
}
