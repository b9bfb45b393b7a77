//! ONNX models with their values in a file beside them: written by an option and past a limit, read by protobuf and by
//! every command, never half.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use blob_io::Checkpoint;
use blob_io::onnx::proto::{ModelProto, TensorProto};
use prost::Message;
use serde_json::json;

use crate::support::message::{floats, len, shape, var};
use crate::support::random::Random;
use crate::support::{Folder, Ran, blob, data, report};

/// A layer with blobs of these extents.
fn layer(name: &str, kind: &str, bottom: &str, top: &str, blobs: &[(&[u64], Vec<f32>)], more: &[u8]) -> Vec<u8> {
    let texts = [(1, name), (2, kind), (3, bottom), (4, top)];
    let texts = texts.iter().flat_map(|(number, text)| len(*number, text.as_bytes()));
    let blobs = blobs.iter().flat_map(|(dims, values)| len(7, &[floats(values), shape(dims)].concat()));
    len(100, &[texts.collect(), blobs.collect(), more.to_vec()].concat())
}

/// `conv`, whose weights have 5,120 bytes, with a normalisation behind; and `fc`, whose weights have 1,024.
fn source(folder: &Folder) -> String {
    let mut random = Random::new(0x0B1);
    let mut values = |dims: &'static [u64]| {
        let count = dims.iter().product::<u64>();
        (dims, (0..count).map(|_| random.below(2000) as f32 / 1000.0 + 0.5).collect::<Vec<f32>>())
    };
    let convolution = [values(&[32, 40, 1, 1]), values(&[32])];
    let normalisation = [values(&[32]), values(&[32]), (&[1][..], vec![1.0])];
    let full = [values(&[2, 128])];
    let layers = [
        layer("conv", "Convolution", "d", "conv", &convolution, &len(106, &[var(1, 32), var(4, 1)].concat())),
        layer("bn", "BatchNorm", "conv", "bn", &normalisation, &[]),
        layer("fc", "InnerProduct", "bn", "fc", &full, &len(117, &[var(1, 2), var(2, 0)].concat())),
    ];
    folder.with("x.caffemodel", layers.concat())
}

fn convert(source: &str, out: &str, more: &[&str]) -> Ran {
    blob(&[&["convert", source, "--input", "d=1,40,2,2", "-o", out], more].concat())
}

/// The model as protobuf reads it, and the values of its tensors, each with whether it is in another file. This reader
/// goes by ONNX's description of `external_data` alone.
fn by_protobuf(path: &str) -> (ModelProto, Vec<(String, Vec<u8>, bool)>) {
    let mut model = ModelProto::decode(&*fs::read(path).expect("a model")).expect("a message");
    let folder = Path::new(path).parent().expect("a folder").to_owned();
    let values = |tensor: &mut TensorProto| {
        let is_outside = tensor.data_location.take() == Some(1);
        let pairs = std::mem::take(&mut tensor.external_data);
        let of = |key: &str| pairs.iter().find(|pair| pair.key() == key).map(|pair| pair.value().to_owned());
        let bytes = match of("location") {
            None => tensor.raw_data.take().expect("values"),
            Some(location) => {
                let file = fs::read(folder.join(location)).expect("the file of the values");
                let number = |key: &str| of(key).expect(key).parse::<usize>().expect("a number");
                assert_eq!((number("offset") % 4096, tensor.raw_data.take()), (0, None));
                file[number("offset")..][..number("length")].to_vec()
            }
        };
        (tensor.name().to_owned(), bytes, is_outside)
    };
    let values = model.graph.as_mut().expect("a graph").initializer.iter_mut().map(values).collect();
    model.metadata_props.clear();
    (model, values)
}

#[test]
fn values_beside_a_model_are_those_within() {
    let folder = Folder::new();
    let source = source(&folder);
    for (name, more) in [("plain", &[][..]), ("folded", &["--fold"]), ("half", &["--dtype", "f16"])] {
        let (within, beside) = (folder.file(&format!("{name}.onnx")), folder.file(&format!("{name}2.onnx")));
        convert(&source, &within, more).ok();
        let said = format!("values of 1024 bytes and more are in \"{name}2.onnx.data\", beside the model");
        convert(&source, &beside, &[more, &["--external-data"]].concat()).ok().stderr_has(&said);
        let ((model, values), (other, others)) = (by_protobuf(&within), by_protobuf(&beside));
        assert_eq!(model, other, "{name}");
        let long: Vec<&str> = others.iter().filter(|(.., is_outside)| *is_outside).map(|(name, ..)| &**name).collect();
        assert_eq!(long, if name == "half" { &["conv/0"][..] } else { &["conv/0", "fc/0"] });
        for ((name, bytes, is_outside), (_, other, is_other)) in values.iter().zip(&others) {
            assert_eq!((bytes, *is_outside, *is_other), (other, false, bytes.len() >= 1024), "{name}");
        }
        assert!(!folder.path().join(format!("{name}.onnx.data")).exists());
        blob(&["verify", &beside]).ok();
        blob(&["verify", &beside, "--against", &source]).ok().stdout_has("its graph made again of the net");
        blob(&["diff", &within, &beside]).ok();
        blob(&["ls", &beside]).ok().stdout_has("conv/0");
        let out = folder.file(&format!("{name}.npz"));
        blob(&["convert", &beside, "-o", &out]).ok();
        blob(&["diff", &out, &within]).ok();
    }
}

/// The values of a model that is replaced by one without a second file are removed, where that model named them.
#[test]
fn values_that_no_model_names_are_removed() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("x.onnx"));
    let data = format!("{out}.data");
    let is_there = || Path::new(&data).exists();
    convert(&source, &out, &["--external-data"]).ok();
    let words = "\"x.onnx.data\" has the values of the model that is replaced, and is removed";
    convert(&source, &out, &["--force", "-n"]).ok().stderr_has(words);
    assert!(is_there());
    convert(&source, &out, &["--force"]).ok().stderr_has(words);
    assert!(!is_there());
    blob(&["verify", &out, "--against", &source]).ok();
    // A file of that name that the model does not name is none of its values.
    fs::write(&data, "mine").expect("written");
    let ran = convert(&source, &out, &["--force"]).ok();
    assert!(is_there() && !ran.err.contains("removed"), "{ran:?}");
    // Nor is the source, whatever it is called, and values under a name that is not ours are not touched.
    convert(&source, &out, &["--external-data", "--force"]).ok();
    fs::copy(&source, &data).expect("copied");
    convert(&data, &out, &["--force"]).ok();
    assert!(is_there());
    convert(&source, &out, &["--external-data", "--force"]).ok();
    fs::rename(&data, folder.file("mine.bin")).expect("renamed");
    let mut model = ModelProto::decode(&*fs::read(&out).expect("a model")).expect("a message");
    for tensor in &mut model.graph.as_mut().expect("a graph").initializer {
        let places = tensor.external_data.iter_mut().filter(|pair| pair.key() == "location");
        places.for_each(|pair| pair.value = Some("mine.bin".to_owned()));
    }
    fs::write(&out, model.encode_to_vec()).expect("written");
    convert(&source, &out, &["--force"]).ok();
    assert!(folder.path().join("mine.bin").exists());
}

/// Whatever is changed in one of the two files is found, and named.
#[test]
fn a_pair_that_does_not_fit_is_found() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("x.onnx"));
    convert(&source, &out, &["--external-data"]).ok();
    let data = format!("{out}.data");
    let sound = fs::read(&data).expect("the values");
    let wrong = |bytes: &[u8], words: &str| {
        fs::write(&data, bytes).expect("written");
        for more in [&[][..], &["--against", &source]] {
            let ran = blob(&[&["verify", &out][..], more].concat()).no();
            assert!(ran.out.contains(words), "{ran:?}");
        }
    };
    let mut changed = sound.clone();
    changed[9000] ^= 1;
    wrong(&changed, "fc/0");
    wrong(&sound[..sound.len() - 1], "values within the file that holds them, found bytes 8192 and 1024 more of 9215");
    wrong(&[], "bytes 0 and 5120 more of 0, of \"x.onnx.data\"");
    // The byte and the length are those of the model, which says where the values are.
    let of_model = format!(" of {} in array \"fc/0\"", fs::metadata(&out).expect("a model").len());
    wrong(&sound[..9000], &of_model);
    fs::remove_file(&data).expect("removed");
    blob(&["verify", &out]).no().stdout_has("the file of the values beside the model, found \"x.onnx.data\", which is");
    blob(&["convert", &out, "-o", &folder.file("y.npz")]).refused("\"x.onnx.data\", which is not there");
    fs::write(&data, &sound).expect("written");
    blob(&["verify", &out]).ok();
    // A tensor that is said to be elsewhere.
    let sound = ModelProto::decode(&*fs::read(&out).expect("a model")).expect("a message");
    for (key, value, words) in [
        ("offset", "0", "is of another graph"),
        ("offset", "9216", "found bytes 9216 and 1024 more of 9216, of \"x.onnx.data\""),
        ("length", "1020", "the length of the values in another file"),
        ("location", "/etc/hostname", "which is no path within the model's folder"),
        ("location", "../x.onnx.data", "which is no path within the model's folder"),
    ] {
        let mut model = sound.clone();
        let tensor = model.graph.as_mut().expect("a graph").initializer.last_mut().expect("fc");
        let pair = tensor.external_data.iter_mut().find(|pair| pair.key() == key).expect(key);
        pair.value = Some(value.to_owned());
        fs::write(&out, model.encode_to_vec()).expect("written");
        blob(&["verify", &out]).no().stdout_has(words);
    }
}

/// Links are followed, as Hugging Face's cache consists of links; a file that changes after the model was opened is
/// noticed; several tensors may have one range.
#[cfg(unix)]
#[test]
fn values_are_those_of_the_file_that_was_opened() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("x.onnx"));
    convert(&source, &out, &["--external-data"]).ok();
    let (data, moved) = (format!("{out}.data"), folder.file("blobs"));
    let sound = fs::read(&data).expect("the values");
    fs::rename(&data, &moved).expect("moved");
    std::os::unix::fs::symlink(&moved, &data).expect("a link");
    blob(&["verify", &out, "--against", &source]).ok();
    let opened = || Checkpoint::open(&out).expect("opens");
    let file = opened();
    fs::write(&moved, &sound[..9000]).expect("written");
    let said = file.view(file.entry("fc/0").expect("listed")).expect_err("shorter").to_string();
    assert!(said.contains("x.onnx.data: is of another length than when it was listed"), "{said}");
    fs::write(&moved, &sound).expect("written");
    let file = opened();
    file.view(file.entry("fc/0").expect("listed")).expect("values");
    fs::File::options().write(true).open(&moved).and_then(|file| file.set_len(8200)).expect("cut");
    let said = file.view(file.entry("fc/0").expect("listed")).expect_err("cut").to_string();
    assert!(said.contains("x.onnx.data, at byte 8192 of it: "), "{said}");
    fs::write(&moved, &sound).expect("written");
    let file = opened();
    file.unchanged().expect("as it was");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(&moved).and_then(|file| file.set_modified(later)).expect("touched");
    file.unchanged().expect_err("another time");
    let mut model = ModelProto::decode(&*fs::read(&out).expect("a model")).expect("a message");
    let tensors = &mut model.graph.as_mut().expect("a graph").initializer;
    let (first, last) = (tensors[0].clone(), tensors.last_mut().expect("fc"));
    last.external_data[1].value = Some("8".to_owned());
    assert_eq!(first.external_data[1].value(), "0");
    fs::write(&out, model.encode_to_vec()).expect("written");
    let file = opened();
    assert_eq!(*file.view(file.entry("fc/0").expect("listed")).expect("values"), sound[8..][..1024]);
    assert_eq!(*file.view(file.entry("conv/0").expect("listed")).expect("values"), sound[..5120]);
}

/// A second file has no place beside a pipe; what is there is replaced where that is asked, and a source never.
#[test]
fn two_files_are_written_or_none() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("x.onnx"));
    let to = |out: &str, more: &[&str]| convert(&source, out, &[&["--external-data", "--to", "onnx"], more].concat());
    to("-", &[]).refused("no file beside a pipe or a device").stderr_has("help: name a file: -o net.onnx");
    to("/dev/null", &[]).refused("no file beside a pipe or a device");
    let names = || {
        let all = fs::read_dir(folder.path()).expect("a folder");
        let mut all: Vec<String> =
            all.map(|file| file.expect("a file").file_name().into_string().expect("text")).collect();
        all.sort();
        all
    };
    assert_eq!(names(), ["x.caffemodel"]);
    to(&out, &["-n"]).ok().stdout_has("conv/0");
    assert_eq!(names(), ["x.caffemodel"]);
    fs::write(format!("{out}.data"), "mine").expect("written");
    to(&out, &[]).refused("x.onnx.data");
    to(&out, &["-n"]).refused("x.onnx.data");
    assert_eq!(fs::read(format!("{out}.data")).expect("there"), b"mine");
    assert_eq!(names(), ["x.caffemodel", "x.onnx.data"]);
    to(&out, &["--force"]).ok();
    assert_eq!(names(), ["x.caffemodel", "x.onnx", "x.onnx.data"]);
    blob(&["verify", &out, "--against", &source]).ok();
    // A source that is called as the values would be.
    let odd = folder.file("y.onnx.data");
    fs::copy(&source, &odd).expect("copied");
    let line = ["convert", &odd, "--input", "d=1,40,2,2", "-o", &folder.file("y.onnx"), "--external-data", "--force"];
    blob(&line).refused("a source is never replaced by its copy");
    // Without a tensor of 1,024 bytes there is no second file.
    let small = layer("p", "PReLU", "d", "p", &[(&[40], vec![0.5; 40])], &[]);
    let small = folder.with("s.caffemodel", small);
    let line = ["convert", &small, "--input", "d=1,40,2,2", "-o", &folder.file("s.onnx"), "--external-data"];
    let ran = blob(&line).ok();
    assert!(!ran.err.contains("beside the model") && !folder.path().join("s.onnx.data").exists(), "{ran:?}");
}

/// While a pair is replaced, the model's name always stands for a model.
#[test]
fn a_model_is_there_at_every_moment() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("x.onnx"));
    let other = ["--external-data", "--force", "--opset", "13"];
    convert(&source, &out, &other[..2]).ok();
    let (is_done, mut found) = (AtomicBool::new(false), BTreeSet::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..8).for_each(|i| drop(convert(&source, &out, &other[..2 + 2 * (i % 2)]).ok()));
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            let model = ModelProto::decode(&*fs::read(&out).expect("a model")).expect("a message");
            let last = model.graph.expect("a graph").initializer.pop().expect("fc");
            found.insert(last.external_data[0].value().to_owned());
        }
    });
    report(&format!("onnx: {} names of values while pairs are replaced", found.len()));
    assert!(found.remove("x.onnx.data") && found.iter().all(|name| name.starts_with(".x.onnx.blob-tmp-")), "{found:?}");
    let listed = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(listed, 3);
    blob(&["verify", &out, "--against", &source]).ok();
}

/// A recipe has the setting, and a job whose values are gone is done again.
#[test]
fn a_job_is_done_with_both_files() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("x.onnx"));
    let recipe = json!({"schema": "blob.recipe/1", "sources": [{"path": source}],
        "target": {"path": out, "format": "onnx", "onnx": {"inputs": {"d": [1, 40, 2, 2]}, "external_data": true}}});
    let jobs = folder.with("jobs.ndjson", format!("{recipe}\n"));
    let state = || {
        let ran = blob(&["batch", &jobs, "--json"]).ok();
        ran.json()[0]["state"].as_str().expect("a state").to_owned()
    };
    assert_eq!((state(), state()), ("written".to_owned(), "done".to_owned()));
    let data = format!("{out}.data");
    let bytes = fs::read(&data).expect("values");
    fs::remove_file(&data).expect("removed");
    // The model has the bytes of before, and still something was written.
    assert_eq!((state(), state()), ("redone".to_owned(), "done".to_owned()));
    assert_eq!(fs::read(&data).expect("values"), bytes);
    report(&format!("onnx: {} tensors beside a model", Checkpoint::open(&out).expect("opens").entries().len()));
}

/// Without a receipt a log tells of both files.
#[test]
fn a_log_is_believed_of_a_model_and_its_values() {
    let folder = Folder::new();
    let (source, out, log) = (source(&folder), folder.file("x.onnx"), folder.file("log"));
    let of_net = json!({"inputs": {"d": [1, 40, 2, 2]}, "external_data": true});
    let target = json!({"path": out, "if_exists": "replace", "receipt": false, "onnx": of_net});
    let jobs = folder.with("jobs", json!({"sources": [{"path": source}], "target": target}).to_string());
    let run = || blob(&["batch", &jobs, "--log", &log]).ok();
    run().stderr_has("1 written");
    run().stderr_has("1 done before");
    for name in [out.clone(), format!("{out}.data")] {
        let whole = fs::read(&name).expect("there");
        let mut other = whole.clone();
        // The end of a text in the model, of a value in the other file.
        let place = whole.windows(4).rposition(|text| text == b"conv").map_or(whole.len() - 1, |at| at + 3);
        other[place] ^= 2;
        fs::write(&name, other).expect("written");
        run().stderr_has("redone: has other bytes than the log says");
        assert!(fs::read(&name).expect("there") == whole, "{name}");
        run().stderr_has("1 done before");
    }
}

#[test]
#[cfg(unix)]
fn a_link_beside_a_model_is_not_followed() {
    let folder = Folder::new();
    let (source, out) = (source(&folder), folder.file("m.onnx"));
    let other = folder.with("other.txt", "keep");
    std::os::unix::fs::symlink("other.txt", folder.file("m.onnx.data")).expect("a link");
    convert(&source, &out, &["--external-data", "--force"]).refused("\"m.onnx.data\", which is a link");
    assert_eq!((fs::read(other).expect("a file"), Path::new(&out).exists()), (b"keep".to_vec(), false));
}

/// The model would be written where the link leads, and its values or its symbol beside the link.
#[test]
#[cfg(unix)]
fn a_link_to_one_of_two_files_is_not_followed() {
    let folder = Folder::new();
    let (source, real, link) = (source(&folder), folder.file("real.onnx"), folder.file("link.onnx"));
    convert(&source, &real, &["--external-data"]).ok();
    let before = fs::read(&real).expect("a model");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    convert(&source, &link, &["--external-data", "--force"]).refused("is a link: name its file");
    assert!(fs::read(&real).expect("a model") == before && !Path::new(&format!("{link}.data")).exists());
    blob(&["verify", &real, "--against", &source]).ok();
    let weights = folder.with("real-0000.params", "weights");
    let link = folder.file("link-0000.params");
    std::os::unix::fs::symlink(&weights, &link).expect("a link");
    let block = data("mxnet/forward/block-0000.params");
    let fold = blob(&["fold", block.to_str().expect("UTF-8"), "-o", &link, "--force"]);
    fold.refused("is a link, and a symbol goes beside the file");
    assert_eq!(
        (fs::read(weights).expect("a file"), folder.path().join("link-symbol.json").exists()),
        (b"weights".to_vec(), false)
    );
}

#[test]
fn an_extent_of_0_is_refused_in_a_recipe_as_in_an_option() {
    let folder = Folder::new();
    let (source, out, recipe) = (source(&folder), folder.file("m.onnx"), folder.file("r.json"));
    convert(&source, &out, &["--recipe-out", &recipe]).ok();
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&recipe).expect("a recipe")).expect("JSON");
    let extents = text.pointer_mut("/target/onnx/inputs/d").expect("a shape");
    assert_eq!(*extents, json!([1, 40, 2, 2]));
    *extents = json!([0, 40, 2, 2]);
    fs::write(&recipe, text.to_string()).expect("written");
    blob(&["convert", "--recipe", &recipe, "-o", &out, "--force"]).refused("whose input \"d\" has an extent of 0");
    blob(&["verify", &out]).ok();
}

/// A file without bytes is one that the model names, as any other.
#[test]
fn a_model_with_an_empty_file_beside_it_is_not_changed_alone() {
    let folder = Folder::new();
    let location = len(13, &[len(1, b"location"), len(2, b"w.bin")].concat());
    let empty = [var(1, 0), var(1, 3), var(2, 1), len(8, b"w"), location, var(14, 1)].concat();
    let within = [var(1, 1), var(2, 1), len(8, b"v"), len(9, &1_f32.to_le_bytes())].concat();
    let graph = [len(2, b"g"), len(5, &empty), len(5, &within)].concat();
    let model = folder.with("m.onnx", [var(1, 8), len(7, &graph), len(8, &var(2, 13))].concat());
    folder.with("w.bin", b"");
    blob(&["ls", &model]).ok().stdout_has("w\tf32\t0x3\t0\t-");
    for (only, values) in [("v", "v.npz"), ("w", "w.npz")] {
        let values = folder.file(values);
        blob(&["convert", &model, "--only", only, "-o", &values]).ok();
        let refused = blob(&["convert", &values, "--into", &model, "-o", &folder.file("x.onnx")]);
        refused.refused("has values in \"w.bin\", and values are replaced in one file only");
    }
}
