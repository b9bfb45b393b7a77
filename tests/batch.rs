//! `blob batch`: many conversions, which can be killed anywhere and run again; every hostile file costs one line.
//! `batch_done` tells when a job is done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use blob_convert::Recipe;
use blob_convert::transform::Dtype;
use blob_core::DType;
use blob_io::{Checkpoint, Format};
use serde_json::{Value, json};

use crate::support::random::Random;
use crate::support::{Folder, Ran, blob, command, data, ran, report};

/// A job as a line.
pub(crate) fn job(source: &str, output: &str) -> Value {
    serde_json::to_value(Recipe::new(source, output)).expect("JSON")
}

/// Writes jobs, and returns the file.
pub(crate) fn jobs(folder: &Folder, jobs: &[Value]) -> String {
    folder.with("jobs.ndjson", jobs.iter().map(|job| format!("{job}\n")).collect::<String>())
}

pub(crate) fn golden(path: &str) -> String {
    data(path).to_str().expect("UTF-8").to_owned()
}

/// Every file below a folder, hidden ones too, with its content.
pub(crate) fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = todo.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                todo.push(path);
            } else {
                all.insert(path.strip_prefix(folder).expect("below").to_owned(), fs::read(&path).expect("readable"));
            }
        }
    }
    all
}

pub(crate) fn states(ran: &Ran) -> Vec<String> {
    ran.json().iter().map(|line| line["state"].as_str().expect("a state").to_owned()).collect()
}

/// Jobs of several kinds: with and without receipts, in shards, in folders, with steps.
fn several(folder: &Folder, output: &str) -> Vec<Value> {
    let out = |name: String| folder.file(&format!("{output}/{name}"));
    let net = golden("caffe/forward/resnet.caffemodel");
    let mut all = Vec::new();
    for n in 0..3 {
        all.push(job(&net, &out(format!("{n}.safetensors"))));
        all.push(job(&net, &out(format!("{n}.npz"))));
        all.push(job(&net, &out(format!("{n}.params"))));
        all.push(job(&net, &out(format!("deep/{n}.caffemodel"))));
        all.push(job(&net, &out(format!("folders/{n}/"))));
        let mut shards = job(&net, &out(format!("shards/{n}.safetensors")));
        shards["target"]["shard_size"] = json!(400);
        all.push(shards);
        let half = Recipe::new(&net, out(format!("half/{n}.safetensors")));
        let half = half.step(Dtype::new(DType::F16).expect("a dtype of floats"));
        all.push(serde_json::to_value(half).expect("JSON"));
    }
    all
}

#[test]
fn every_format_is_read_and_every_hostile_file_costs_one_line() {
    let folder = Folder::new();
    let sources: Vec<PathBuf> = tree(&data("")).into_keys().map(|path| data(path.to_str().expect("UTF-8"))).collect();
    let all: Vec<Value> = sources
        .iter()
        .enumerate()
        .map(|(n, source)| job(source.to_str().expect("UTF-8"), &folder.file(&format!("out/{n}.safetensors"))))
        .collect();
    let (file, log) = (jobs(&folder, &all), folder.file("log"));
    let first = blob(&["batch", &file, "--keep-going", "--json", "--log", &log]).no();
    let lines = first.json();
    assert_eq!(lines.len(), sources.len());
    let mut formats = BTreeSet::new();
    let mut written = 0;
    for ((n, source), line) in sources.iter().enumerate().zip(&lines) {
        assert_eq!((&line["line"], &line["source"]), (&json!(n + 1), &json!(source)), "{line}");
        let output = folder.path().join(format!("out/{n}.safetensors"));
        if line["state"] == "written" {
            written += 1;
            formats.extend(Checkpoint::open(source).map(|file| file.format().name()));
            assert!(output.exists() && line["error"].is_null(), "{line}");
        } else {
            assert!(line["state"] == "failed" && line["error"]["reason"].is_string() && !output.exists(), "{line}");
        }
    }
    // Some formats are read only if they are named.
    let unread: Vec<&str> =
        Format::ALL.iter().map(|format| format.name()).filter(|name| !formats.contains(name)).collect();
    assert!(unread.is_empty(), "{unread:?}");
    let before = tree(&folder.path().join("out"));
    let again = blob(&["batch", &file, "--keep-going", "--json", "--log", &log]).no();
    let again = states(&again);
    assert_eq!(again.iter().filter(|state| *state == "done").count(), written);
    assert!(again.iter().all(|state| state != "written"));
    assert!(tree(&folder.path().join("out")) == before, "a second run changes nothing");
    report(&format!("batch: {written} files converted, {} refused, a line each", lines.len() - written));
}

#[test]
fn killed_anywhere_and_run_again_gives_the_same_folder() {
    let folder = Folder::new();
    let undisturbed = jobs(&folder, &several(&folder, "whole"));
    let start = SystemTime::now();
    blob(&["batch", &undisturbed, "--jobs", "2"]).ok();
    // How long a run takes, from what the last ones took: other programs are at work, too.
    let mut took = start.elapsed().expect("time goes on").as_micros() as usize;
    let whole = tree(&folder.path().join("whole"));
    assert!(whole.len() > several(&folder, "").len(), "{:?}", whole.keys());
    let mut random = Random::new(7);
    let (mut moments, mut killed) = (0, 0);
    for round in 0..6 {
        let output = format!("out{round}");
        let (file, log) = (jobs(&folder, &several(&folder, &output)), folder.file(&format!("log{round}")));
        let with_log: &[&str] = if round % 2 == 0 { &["--log", &log] } else { &[] };
        let mut kills = 0;
        for _ in 0..9 {
            let mut begun = command(&[&["batch", &file, "--jobs", "2"], with_log].concat());
            let mut child = begun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tool runs");
            std::thread::sleep(Duration::from_micros(random.below(took + 1) as u64));
            child.kill().expect("killed");
            let is_killed = !child.wait().expect("ended").success();
            took = if is_killed { took + took / 4 } else { took - took / 3 };
            kills += u32::from(is_killed);
        }
        (moments, killed) = (moments + 9, killed + kills);
        blob(&[&["batch", &file, "--jobs", "2"], with_log].concat()).ok();
        let after = tree(&folder.path().join(&output));
        assert_eq!(after.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>(), "after {kills} kills");
        assert!(after == whole, "the bytes are the same");
        let last = states(&blob(&[&["batch", &file, "--json"], with_log].concat()).ok());
        let done = last.iter().filter(|state| *state == "done").count();
        // Outputs without receipts are done where a log says so.
        assert_eq!(done, if with_log.is_empty() { 15 } else { last.len() }, "{last:?}");
    }
    assert!(moments >= 50 && killed > 10, "{killed} of {moments} runs were killed before their end");
    report(&format!("batch: killed at {moments} moments, {killed} of them before its end, and the folder is the same"));
}

#[test]
fn shards_at_once_are_the_whole() {
    let folder = Folder::new();
    let whole = jobs(&folder, &several(&folder, "whole"));
    blob(&["batch", &whole]).ok();
    let file = jobs(&folder, &several(&folder, "out"));
    let children: Vec<_> = (0..3)
        .map(|index| {
            let mut share = command(&["batch", &file, "--json", "--shard", &format!("{index}/3")]);
            share.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the tool runs")
        })
        .collect();
    let mut lines = 0;
    for child in children {
        let ended = child.wait_with_output().expect("ended");
        assert!(ended.status.success());
        lines += String::from_utf8(ended.stdout).expect("UTF-8").lines().count();
    }
    assert_eq!(lines, several(&folder, "").len());
    assert!(tree(&folder.path().join("out")) == tree(&folder.path().join("whole")));
}

#[test]
fn two_runs_of_the_same_jobs_at_once_end_in_the_same_folder() {
    let folder = Folder::new();
    blob(&["batch", &jobs(&folder, &several(&folder, "whole"))]).ok();
    let whole = tree(&folder.path().join("whole"));
    for round in 0..6 {
        let output = format!("out{round}");
        let file = jobs(&folder, &several(&folder, &output));
        let run = || command(&["batch", &file, "--jobs", "2"]).stderr(Stdio::piped()).spawn().expect("the tool runs");
        for child in [run(), run()] {
            let ended = child.wait_with_output().expect("ended");
            assert!(ended.status.success(), "{round}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        assert!(tree(&folder.path().join(&output)) == whole, "{round}");
    }
}

#[test]
fn two_jobs_of_one_output_are_an_error_before_anything_is_read() {
    let folder = Folder::new();
    let all = [job("no/such", &folder.file("out/a.npz")), job("no/other", &folder.file("out/../out/a.npz"))];
    let log = folder.file("log");
    let refused = blob(&["batch", &jobs(&folder, &all), "--keep-going", "--log", &log]).refused("as line 1 does");
    assert!(refused.out.is_empty() && !Path::new(&log).exists());
    blob(&["batch", &folder.with("odd", "{\"sources\":[]}\n")]).refused("line 1: a job has one source");
}

#[test]
fn made_jobs_name_the_format_of_sources_that_hide_it() {
    let folder = Folder::new();
    let hidden = fs::read(golden("caffe/blobproto/zero_axis_fresh.binaryproto")).expect("readable");
    let (source, out) = (folder.with("w.bin", hidden), folder.file("out"));
    let make = ["batch", "--make", &source, "--from", "binaryproto", "--to", "safetensors", "-o", &out];
    let made = blob(&make).ok();
    let line: Value = serde_json::from_str(&made.out).expect("a job is a line of JSON");
    assert_eq!(line["sources"], json!([{"path": source, "format": "binaryproto"}]));
    let file = folder.with("jobs.ndjson", &made.out);
    assert_eq!(states(&blob(&["batch", &file, "--json"]).ok()), ["written"]);
    assert_eq!(states(&blob(&["batch", &file, "--json", "--from", "binaryproto"]).ok()), ["done"]);
}

#[test]
fn a_file_that_is_too_large_for_the_disk_is_a_failed_job() {
    let folder = Folder::new();
    let whole = jobs(&folder, &several(&folder, "whole"));
    blob(&["batch", &whole]).ok();
    let file = jobs(&folder, &several(&folder, "out"));
    // A net of 2 KiB has outputs of both sides of the limit.
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=4096").arg(crate::support::tool()).args(["batch", &file, "--keep-going", "--json"]);
    if limited.output().is_err() {
        report("NOT TESTED: a limit on the size of files (no prlimit)");
        return;
    }
    let states = states(&ran(limited, b"").no());
    assert!(states.iter().any(|state| state == "failed") && states.iter().any(|state| state != "failed"), "{states:?}");
    blob(&["batch", &file]).ok();
    assert!(tree(&folder.path().join("out")) == tree(&folder.path().join("whole")));
}

/// Runs the jobs on a disk of 24 KiB, which then grows to 64 MiB, and again. `$1` is the disk, `$2` gets what was said
/// and found.
const ON_A_FULL_DISK: &str = r#"disk=$1 said=$2; shift 2
mount -t tmpfs -o size=24k none "$disk" || exit 77
"$@" --keep-going --json > "$said/first" 2> "$said/errors"; echo $? > "$said/code"
find "$disk" -type f | sort > "$said/left"
mount -o remount,size=64m "$disk" && "$@" --json > "$said/second" && cp -a "$disk" "$said/disk""#;

#[test]
fn a_full_disk_is_a_failed_job_and_keeps_no_half_of_a_file() {
    let folder = Folder::new();
    let whole = jobs(&folder, &several(&folder, "whole"));
    blob(&["batch", &whole]).ok();
    let (disk, said) = (folder.file("disk"), folder.file("said"));
    for made in [&disk, &said] {
        fs::create_dir(made).expect("made");
    }
    let file = jobs(&folder, &several(&folder, "disk"));
    let mut alone = Command::new("unshare");
    alone.args(["-rm", "sh", "-c", ON_A_FULL_DISK, "sh", &disk, &said]).arg(crate::support::tool());
    let ended = alone.args(["batch", &file]).output();
    let Some(ended) = ended.ok().filter(|ended| said_code(&said).is_some() || ended.status.success()) else {
        return report("NOT TESTED: a full disk (no unshare, or a user may not mount a tmpfs)");
    };
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(said_code(&said).as_deref(), Some("1\n"));
    let read = |name: &str| fs::read_to_string(format!("{said}/{name}")).expect("written");
    let lines: Vec<Value> = read("first").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), several(&folder, "").len(), "a line each");
    let failed: Vec<&Value> = lines.iter().filter(|line| line["state"] == "failed").collect();
    assert!(!failed.is_empty() && failed.len() < lines.len(), "{lines:?}");
    assert!(
        failed.iter().all(|line| line["error"]["reason"] == "io")
            && failed
                .iter()
                .any(|line| line["error"]["message"].as_str().is_some_and(|text| text.contains("No space left"))),
        "{failed:?}"
    );
    let left: Vec<PathBuf> = read("left").lines().map(|path| below(path, &disk)).collect();
    let whole = tree(&folder.path().join("whole"));
    assert!(left.iter().all(|path| whole.contains_key(path)), "halves were left: {left:?}");
    assert!(tree(&Path::new(&said).join("disk")) == whole, "{}", read("second"));
}

fn said_code(said: &str) -> Option<String> {
    fs::read_to_string(format!("{said}/code")).ok()
}

fn below(path: &str, folder: &str) -> PathBuf {
    Path::new(path).strip_prefix(folder).expect("below").to_owned()
}
