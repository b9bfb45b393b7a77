//! When a job of `blob batch` is done, by its output, its source, its recipe, and a log; and why it is done again.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::batch::{golden, job, jobs, states, tree};
use crate::support::archive::tarred;
use crate::support::{Folder, blob, changed, data, find};

#[test]
fn a_copy_is_done_where_its_bytes_are_the_source_s() {
    let folder = Folder::new();
    for source in ["other/numpy_savez.npz", "other/two.safetensors", "other/fortran_big_endian.npy"] {
        let extension = source.rsplit('.').next().expect("an extension");
        let from = folder.with(&format!("a.{extension}"), fs::read(data(source)).expect("a golden"));
        let out = folder.file(&format!("out/a.{extension}"));
        let mut copy = job(&from, &out);
        let run = |job: &Value, more: &[&str]| {
            let file = jobs(&folder, std::slice::from_ref(job));
            states(&blob(&[&["batch", &file, "--json"], more].concat())).remove(0)
        };
        assert_eq!((run(&copy, &[]), run(&copy, &[])), ("written".to_owned(), "done".to_owned()), "{source}");
        let value = Checkpoint::open(&out).expect("opens").entries()[0].offset().expect("values") as usize;
        let mut bytes = fs::read(&out).expect("there");
        bytes[value] ^= 1;
        fs::write(&out, &bytes).expect("written");
        assert_eq!(run(&copy, &[]), "failed", "{source}");
        assert_eq!(run(&copy, &["--trust", "mtime"]), "done", "{source}: the length alone is compared");
        fs::write(&out, vec![0; bytes.len()]).expect("written");
        assert_eq!(run(&copy, &["--trust", "mtime"]), "failed", "{source}: an output that does not open");
        copy["target"]["if_exists"] = json!("replace");
        assert_eq!(run(&copy, &[]), "redone", "{source}");
        // Another recipe may have written the same bytes; this one asks for more than a copy.
        copy["target"]["sha256"] = json!(true);
        assert_eq!(run(&copy, &[]), "written", "{source}");
    }
}

#[test]
fn a_new_symbol_is_a_part_of_the_output() {
    let folder = Folder::new();
    let source = folder.with("net-0000.params", fs::read(data("mxnet/forward/block-0000.params")).expect("a golden"));
    folder.with("net-symbol.json", fs::read(data("mxnet/forward/block-symbol.json")).expect("a golden"));
    let (log, symbol) = (folder.file("log"), folder.path().join("out/net-symbol.json"));
    for output in ["out/net-0000.params", "out/net-0000.safetensors"] {
        let mut fold = job(&source, &folder.file(output));
        fold["steps"] = json!([{"name": "fold"}]);
        let run = |job: &Value| {
            let ran = blob(&["batch", &jobs(&folder, std::slice::from_ref(job)), "--json", "--log", &log]);
            let line = ran.json().remove(0);
            (line["state"].as_str().expect("a state").to_owned(), line["error"]["message"].to_string())
        };
        let _ = fs::remove_file(&symbol);
        assert_eq!((run(&fold).0, run(&fold).0), ("written".to_owned(), "done".to_owned()), "{output}");
        let text = fs::read(&symbol).expect("a symbol");
        fs::remove_file(&symbol).expect("removed");
        assert_eq!((run(&fold).0, run(&fold).0), ("redone".to_owned(), "done".to_owned()), "{output}");
        assert!(fs::read(&symbol).expect("a symbol") == text);
        let mut other = text.clone();
        other[0] = b' ';
        fs::write(&symbol, &other).expect("written");
        let (state, message) = run(&fold);
        assert!(state == "failed" && message.contains("net-symbol.json: exists with other bytes"), "{message}");
        fold["target"]["if_exists"] = json!("replace");
        assert_eq!((run(&fold).0, run(&fold).0), ("redone".to_owned(), "done".to_owned()), "{output}");
        assert!(fs::read(&symbol).expect("a symbol") == text);
    }
}

#[test]
fn a_job_is_done_by_its_source_its_recipe_and_the_files_that_it_reads() {
    let folder = Folder::new();
    let copy = |from: &str, name: &str| fs::copy(data(from), folder.path().join(name)).map(drop).expect("copied");
    copy("mxnet/forward/block-0000.params", "net-0000.params");
    copy("mxnet/forward/block-symbol.json", "net-symbol.json");
    let names = folder.with("names", "* all/$1\n");
    let (source, out) = (folder.file("net-0000.params"), folder.file("out.safetensors"));
    let mut named = job(&source, &out);
    named["steps"] = json!([{"name": "names", "settings": {"file": names}}]);
    let state = |job: &Value| {
        let ran = blob(&["batch", &jobs(&folder, std::slice::from_ref(job)), "--json"]);
        let line = ran.json().remove(0);
        (line["state"].as_str().expect("a state").to_owned(), line["error"]["message"].as_str().map(str::to_owned))
    };
    let is_other = |(state, message): (String, Option<String>)| {
        state == "failed"
            && message.is_some_and(|message| message.ends_with("out.safetensors: exists with other bytes"))
    };
    assert_eq!(state(&named).0, "written");
    assert_eq!(state(&named).0, "done");
    // Another place of the same names changes nothing.
    let mut moved = named.clone();
    moved["steps"][0]["settings"]["file"] = json!(folder.with("moved", "* all/$1\n"));
    assert_eq!(state(&moved).0, "done");
    // Other names, an other net, another recipe, another source.
    folder.with("names", "* other/$1\n");
    assert!(is_other(state(&named)));
    folder.with("names", "* all/$1\n");
    assert_eq!(state(&named).0, "done");
    let symbol = fs::read(folder.path().join("net-symbol.json")).expect("there");
    fs::write(folder.path().join("net-symbol.json"), [&symbol[..], b"\n"].concat()).expect("written");
    assert!(is_other(state(&named)));
    fs::write(folder.path().join("net-symbol.json"), &symbol).expect("written");
    let mut strict = named.clone();
    strict["target"]["strict"] = json!(true);
    assert!(is_other(state(&strict)));
    let mut bytes = fs::read(&source).expect("there");
    let last = bytes.len() - 200;
    bytes[last] ^= 1;
    fs::write(&source, &bytes).expect("written");
    assert!(is_other(state(&named)));
    // An output that is damaged is not done, and a recipe may replace it.
    named["target"]["if_exists"] = json!("replace");
    assert_eq!(state(&named).0, "redone");
    let whole = fs::read(&out).expect("there");
    fs::write(&out, &whole[..whole.len() - 1]).expect("written");
    assert_eq!(state(&named).0, "redone");
    assert!(fs::read(&out).expect("there") == whole);
    assert_eq!(state(&named).0, "done");
}

/// A job is another one where the symbol beside the source is, whatever the steps, and where the list of a source's
/// files is, by which the tensors have their names.
#[test]
fn a_job_is_another_one_with_another_symbol_or_list() {
    let folder = Folder::new();
    fs::copy(data("mxnet/forward/block-0000.params"), folder.path().join("net-0000.params")).map(drop).expect("copied");
    let symbol = fs::read_to_string(data("mxnet/forward/block-symbol.json")).expect("a golden");
    let net = golden("caffe/forward/resnet.caffemodel");
    blob(&["convert", &net, "-o", &folder.file("parts/"), "-q"]).ok();
    blob(&["convert", &net, "--shard-size", "400", "-o", &folder.file("s.safetensors"), "-q"]).ok();
    let onnx = json!({"inputs": {"data": [1, 3, 4, 4]}});
    for (source, output, list, (was, is)) in [
        ("net-0000.params", "x.onnx", "net-symbol.json", ("\"relu\"", "\"tanh\"")),
        ("net-0000.params", "x.npz", "net-symbol.json", ("\"fix_gamma\": \"False\"", "\"fix_gamma\": \"True\"")),
        ("parts", "folder.npz", "parts/blob.receipt.json", ("\"name\":\"conv1/0\"", "\"name\":\"other/0\"")),
        ("s.safetensors.index.json", "s.npz", "s.safetensors.index.json", ("resnet.caffemodel", "resner.caffemodel")),
    ] {
        folder.with("net-symbol.json", &symbol);
        let mut job = job(&folder.file(source), &folder.file(output));
        job["target"]["if_exists"] = json!("replace");
        if output == "x.onnx" {
            job["target"]["onnx"] = onnx.clone();
        }
        let file = jobs(&folder, &[job]);
        let run = || {
            let states = states(&blob(&["batch", &file, "--json"]).ok());
            (states[0].clone(), fs::read(folder.file(output)).expect("an output"))
        };
        let (written, before) = run();
        assert_eq!((written, run()), ("written".to_owned(), ("done".to_owned(), before.clone())), "{output}");
        let text = fs::read_to_string(folder.file(list)).expect("a list");
        folder.with(list, text.replace(was, is));
        let (again, after) = run();
        assert!(again == "redone" && after != before, "{output}: {again}");
        assert_eq!(run(), ("done".to_owned(), after), "{output}");
    }
}

/// Two nets of one name in a tar: a job of the one is no job of the other.
#[test]
fn a_net_in_an_archive_is_a_file_that_a_job_reads() {
    let folder = Folder::new();
    let symbol = fs::read_to_string(data("mxnet/forward/block-symbol.json")).expect("a golden");
    let other = symbol.replace("\"relu\"", "\"tanh\"");
    let nets = [("a/net-symbol.json", symbol.as_bytes()), ("b/net-symbol.json", other.as_bytes())];
    folder.with("nets.tar", tarred(nets));
    let mut job = job(&golden("mxnet/forward/block-0000.params"), &folder.file("x.onnx"));
    job["target"]["onnx"] = json!({"inputs": {"data": [1, 3, 4, 4]}});
    job["target"]["if_exists"] = json!("replace");
    assert_eq!(
        ["a", "a", "b", "b"].map(|net| {
            let mut job = job.clone();
            job["net"] = json!({"symbol": folder.file(&format!("nets.tar/{net}/net-symbol.json"))});
            states(&blob(&["batch", &jobs(&folder, &[job]), "--json"]).ok()).remove(0)
        }),
        ["written", "done", "redone", "done"]
    );
}

/// The bytes of this file are a BlobProto, and a net without layers, too.
#[test]
fn a_job_is_another_one_as_another_format() {
    let folder = Folder::new();
    let mut job = job(&golden("caffe/blobproto/f32_scalar0axes.binaryproto"), &folder.file("x.npz"));
    job["target"]["if_exists"] = json!("replace");
    let file = jobs(&folder, &[job]);
    let run = |more: &[&str]| states(&blob(&[&["batch", &file, "--json"], more].concat()).ok()).remove(0);
    let as_net = ["--from", "caffemodel"];
    assert_eq!((run(&as_net), run(&as_net)), ("written".to_owned(), "done".to_owned()));
    assert_eq!((run(&[]), run(&[])), ("redone".to_owned(), "done".to_owned()));
    assert_eq!(Checkpoint::open(folder.file("x.npz")).expect("opens").entries().len(), 2);
    assert_eq!(run(&as_net), "redone");
}

/// `--salvage`, given because one job failed, leaves the others done; and an output of a run with it is done without it
/// where nothing was lost.
#[test]
fn salvaging_makes_no_other_job_of_a_source_that_is_whole() {
    let folder = Folder::new();
    let whole = golden("caffe/forward/resnet.caffemodel");
    let cut = fs::read(&whole).expect("a golden");
    let cut = folder.with("cut.caffemodel", &cut[..cut.len() - 10]);
    let log = folder.file("log");
    let outputs = ["whole.npz", "cut.npz", "logged.params"].map(|name| folder.file(name));
    let sources = [&whole, &cut, &whole];
    let all: Vec<Value> = sources.iter().zip(&outputs).map(|(source, output)| job(source, output)).collect();
    let file = jobs(&folder, &all);
    let run =
        |more: &[&str]| states(&blob(&[&["batch", &file, "--json", "--keep-going", "--log", &log], more].concat()));
    let salvaging = ["--salvage=ok"];
    assert_eq!(run(&[]), ["written", "failed", "written"]);
    assert_eq!(run(&salvaging), ["done", "written", "done"]);
    assert_eq!(run(&[]), ["done", "failed", "done"], "an output with losses is not done");
    assert_eq!(run(&salvaging), ["done", "done", "done"]);
    let ends = |more: &[&str]| blob(&[&["batch", &file, "--log", &log], more].concat()).code;
    assert_eq!((ends(&["--salvage"]), ends(&salvaging)), (Some(1), Some(0)), "as when it was written");
    outputs.iter().chain([&log]).for_each(|path| fs::remove_file(path).expect("removed"));
    assert_eq!(run(&salvaging), ["written", "written", "written"]);
    assert_eq!(run(&[]), ["done", "failed", "done"]);
    assert_eq!(run(&["--check"])[0], "done");
}

/// A job that an earlier run did, and whose output is another since, says so and why.
#[test]
fn a_job_that_is_done_again_says_why() {
    let folder = Folder::new();
    let source = folder.with("source.params", fs::read(data("mxnet/forward/block-0000.params")).expect("a golden"));
    let flip = |path: &str| {
        let mut bytes = fs::read(path).expect("there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(path, bytes).expect("written");
    };
    let log = folder.file("log");
    for (name, options, why) in [
        ("a.params", &["--log", &log][..], "has other bytes than the log says"),
        ("a.safetensors", &["--check"], "is damaged"),
    ] {
        let out = folder.file(name);
        let mut job = job(&source, &out);
        job["target"]["if_exists"] = json!("replace");
        let file = jobs(&folder, &[job]);
        let run = |more: &[&str]| blob(&[&["batch", &file], options, more].concat()).ok();
        run(&[]).stderr_has("1 written");
        let whole = fs::read(&out).expect("there");
        run(&[]).stderr_has("1 done before");
        flip(&out);
        run(&["-n"]).stdout_has("redone: ").stdout_has(why);
        run(&[]).stderr_has("redone: ").stderr_has(why).stderr_has("1 redone");
        assert!(fs::read(&out).expect("there") == whole);
        flip(&out);
        let line = run(&["--json"]).json().remove(0);
        assert!(line["state"] == "redone" && line["why"].as_str().is_some_and(|said| said.contains(why)), "{line}");
        run(&[]).stderr_has("1 done before");
    }
}

/// Every value of the model has its digest, and the model computes something else.
#[test]
fn a_graph_that_was_edited_is_damage_where_outputs_are_checked() {
    let folder = Folder::new();
    let copy = |from: &str, name: &str| fs::copy(data(from), folder.path().join(name)).map(drop).expect("copied");
    copy("mxnet/forward/block-0000.params", "net-0000.params");
    copy("mxnet/forward/block-symbol.json", "net-symbol.json");
    let out = folder.file("x.onnx");
    let mut job = job(&folder.file("net-0000.params"), &out);
    job["target"]["onnx"] = json!({"inputs": {"data": [1, 3, 4, 4]}});
    job["target"]["if_exists"] = json!("replace");
    let file = jobs(&folder, &[job]);
    let run = || blob(&["batch", &file, "--check"]).ok();
    run().stderr_has("1 written");
    run().stderr_has("1 done before");
    let whole = fs::read(&out).expect("a model");
    let at = find(&whole, b"\x22\x04Relu");
    fs::write(&out, changed(&whole, at, b"\x22\x04Tanh")).expect("written");
    run().stderr_has("redone: was written by this job and is damaged: ").stderr_has("of another graph");
    assert!(fs::read(&out).expect("a model") == whole);
}

/// The log has the digest of all files of an output: a change of any of them is seen, and only a change.
#[test]
fn a_log_is_believed_of_shards_without_a_receipt() {
    let folder = Folder::new();
    let mut shards = job(&golden("caffe/forward/resnet.caffemodel"), &folder.file("s.safetensors"));
    shards["target"]["shard_size"] = json!(400);
    shards["target"]["receipt"] = json!(false);
    shards["target"]["if_exists"] = json!("replace");
    let (file, log) = (jobs(&folder, &[shards]), folder.file("log"));
    let run = || blob(&["batch", &file, "--log", &log]).ok();
    run().stderr_has("1 written");
    run().stderr_has("1 done before");
    let written = tree(folder.path());
    let files: Vec<&PathBuf> = written.keys().filter(|path| path.to_string_lossy().contains("s.saf")).collect();
    let shards: Vec<&PathBuf> = written.keys().filter(|path| path.to_string_lossy().contains("-of-0000")).collect();
    assert!(files.len() == 1 && shards.len() > 2, "{files:?} {shards:?}");
    for name in shards.iter().chain(&files) {
        let path = folder.path().join(name);
        let whole = fs::read(&path).expect("there");
        let mut other = whole.clone();
        // A value of a shard, and a blank of the index.
        let place = if name.extension().is_some_and(|extension| extension == "json") { 1 } else { other.len() - 1 };
        other[place] = if place == 1 { b'\t' } else { !other[place] };
        fs::write(&path, other).expect("written");
        run().stderr_has("redone: has other bytes than the log says");
        assert_eq!(fs::read(&path).expect("there"), whole, "{name:?}");
        fs::remove_file(&path).expect("removed");
        let why = if place == 1 { "redone: is gone, and the log tells of it" } else { "redone: does not open: " };
        run().stderr_has(why);
        run().stderr_has("1 done before");
    }
    let lines = fs::read_to_string(&log).expect("a log");
    let (key, rest) = lines.split_once("\"blake3_out\":\"").expect("a digest");
    fs::write(&log, format!("{key}\"former\":\"{}", rest.lines().next().expect("a line").to_owned() + "\n"))
        .expect("written");
    run().stderr_has("redone: has no digest in the log");
    run().stderr_has("1 done before");
}

/// Without leave to replace, other bytes are an error of the run: nothing is promised of them before.
#[test]
fn a_dry_run_promises_no_output_that_may_not_be_replaced() {
    let folder = Folder::new();
    let source = folder.with("a.npz", fs::read(data("other/numpy_savez.npz")).expect("a golden"));
    let out = folder.with("out.safetensors", "not ours");
    let file = jobs(&folder, &[job(&source, &out)]);
    let dry = blob(&["batch", &file, "-n"]);
    assert!(!dry.out.contains("redone") && !dry.err.contains("redone"), "{dry:?}");
    let ran = blob(&["batch", &file]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    ran.stderr_has("exists with other bytes");
}

#[test]
fn a_source_is_not_read_where_its_time_is_trusted() {
    let folder = Folder::new();
    let source = folder.with("a.npz", fs::read(data("other/numpy_savez.npz")).expect("a golden"));
    let out = folder.file("out/a.safetensors");
    let file = jobs(&folder, &[job(&source, &out)]);
    let old = SystemTime::now() - Duration::from_secs(3600);
    let age = || fs::File::options().write(true).open(&source).and_then(|file| file.set_modified(old)).expect("aged");
    age();
    blob(&["batch", &file]).ok();
    fs::write(&source, vec![0; fs::metadata(&source).expect("there").len() as usize]).expect("written");
    let trusted = || states(&blob(&["batch", &file, "--json", "--trust", "mtime"]));
    assert_eq!(trusted(), ["failed"], "a source that was changed after its output is read");
    age();
    assert_eq!(trusted(), ["done"]);
    assert_eq!(states(&blob(&["batch", &file, "--json"])), ["failed"]);
    fs::write(&source, b"short").expect("written");
    age();
    assert_eq!(trusted(), ["failed"], "a source of another length is read");
}
