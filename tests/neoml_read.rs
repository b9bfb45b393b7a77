//! Reading NeoML files: every golden blob has the values that were stored, and every net the parameters that NeoML
//! itself reads (`params_truth.jsonl`, which the library wrote layer by layer).

use std::path::PathBuf;

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Format, Kind};
use serde_json::Value;

use crate::support::blobs::shape;
use crate::support::conversion::to_bytes;
use crate::support::neoml::{blob, dims, number, table, words};
use crate::support::{data, open, opened, real, report, sha256};

fn json(path: &str) -> Vec<Value> {
    let text = std::fs::read(data("neoml").join(path)).expect("readable");
    serde_json::from_slice(&text).expect("a list")
}

fn dtype(name: &Value) -> DType {
    match name.as_str() {
        Some("int") => DType::I32,
        Some("float") => DType::F32,
        other => panic!("type {other:?}"),
    }
}

/// Asserts that an array is the one generated from the seed.
#[track_caller]
fn check(file: &Checkpoint, entry: &Entry, of: &Value, type_: &Value, seed: u64) {
    let expected = blob(&shape(&dims(of)), dtype(type_), seed);
    let found = file.load(entry).expect("loads");
    assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()), "{}", file.name());
    assert_eq!(words(&found), words(&expected), "{}", file.name());
    assert!(
        *file.view(entry).expect("a view") == *expected.data().bytes().expect("bytes") || cfg!(target_endian = "big")
    );
}

#[test]
fn every_golden_blob_has_the_values_it_was_stored_with() {
    let mut files = 0;
    for row in table("cpp/cpp_archives.jsonl") {
        let file = opened(data("neoml/cpp").join(row["file"].as_str().expect("a name")));
        files += 1;
        let Some(types) = row["types"].as_array() else {
            assert_eq!((file.format(), file.dialect()), (Format::NeomlBlob, "version 2000"));
            assert_eq!(file.names().collect::<Vec<_>>(), ["@0"]);
            check(&file, &file.entries()[0], &row["dims"], &row["type"], row["seed"].as_u64().expect("a seed"));
            continue;
        };
        assert_eq!(file.format(), Format::NeomlArray);
        assert_eq!(file.names().collect::<Vec<_>>(), ["@0", "@1", "@2", "@3"]);
        for (index, entry) in file.entries().iter().enumerate() {
            assert_eq!(entry.kind(), if types[index].is_null() { Kind::None } else { Kind::Data });
            if !types[index].is_null() {
                let seed = row["seeds"][index].as_u64().expect("a seed");
                check(&file, entry, &row["dims"][index], &types[index], seed);
            }
        }
    }
    for row in json("py/blobs.json") {
        let file = opened(data("neoml/py").join(row["file"].as_str().expect("a name")));
        files += 1;
        let entry = &file.entries()[0];
        assert_eq!(entry.name(), "@0");
        match (row["seed"].as_u64(), row["cells"].as_str()) {
            (Some(seed), _) if row["type"].is_string() => check(&file, entry, &row["dims"], &row["type"], seed),
            (Some(seed), _) => {
                // The flag is at the offset in the table, and 45 more bytes of the record follow.
                assert_eq!(entry.offset(), Some(number(&row["archive_offset"]) as u64 + 46));
                assert_eq!(file.format(), Format::NeomlNet);
                check(&file, entry, &row["dims"], &Value::from("float"), seed);
            }
            (None, Some(cells)) => {
                let found: Vec<_> =
                    words(&file.load(entry).expect("loads")).iter().map(|w| format!("{w:08x}")).collect();
                assert_eq!(found.join(" "), cells);
            }
            _ => panic!("{row}"),
        }
    }
    assert_eq!(files, 17 + 20);
    report(&format!("neoml: {files} files of blobs have their values"));
}

#[test]
fn the_seven_axes_are_named() {
    let file = opened("neoml/py/blob_1x2x3x4x5x6x7_int.neoml");
    let axes = "BatchLength, BatchWidth, ListSize, Height, Width, Depth, Channels";
    assert!(file.metadata().contains(&("axes".to_owned(), axes.to_owned())), "{:?}", file.metadata());
    assert_eq!(file.entries()[0].shape().dims(), [1, 2, 3, 4, 5, 6, 7]);
}

/// The available nets of the table, each with the row.
fn nets() -> Vec<(PathBuf, Value)> {
    let path = |row: &Value| {
        let file = row["file"].as_str().expect("a name");
        match file.strip_prefix("golden/") {
            Some(golden) => Some(data("neoml").join(golden)),
            None => real("neoml").map(|folder| folder.join(file)),
        }
    };
    let rows = table("cpp/params_truth.jsonl").into_iter();
    rows.filter_map(|row| Some((path(&row).filter(|path| path.is_file())?, row))).collect()
}

/// NeoML can change shapes while loading: readers of old classes give free terms other extents.
fn is_same(found: &[usize], truth: &[usize]) -> bool {
    let long = |dims: &[usize]| dims.iter().copied().filter(|dim| *dim != 1).collect::<Vec<_>>();
    found == truth || long(found) == long(truth) && long(found).len() <= 1
}

#[test]
fn every_net_has_the_parameters_that_neoml_finds_in_it() {
    let nets = nets();
    let (mut parameters, mut turned, mut split, mut more) = (0, 0, 0, 0);
    for (path, row) in &nets {
        let file = opened(path);
        let at = path.display();
        assert_eq!(file.format(), Format::NeomlNet, "{at}");
        assert_eq!(file.dialect(), format!("version {}", row["version"].as_i64().expect("a version").abs()), "{at}");
        assert!(file.warnings().is_empty(), "{at}: {:?}", file.warnings());
        for truth in row["params"].as_array().expect("a list") {
            let name = format!("{}/{}", truth["path"].as_str().expect("a path"), truth["i"]);
            let entry = file.entry(&name);
            let same =
                entry.filter(|entry| sha256(&file.view(entry).expect("a view")) == truth["sha256"].as_str().unwrap());
            let Some(entry) = same else {
                // NeoML's reader splits a matrix of a v1001 LSTM.
                assert!(at.to_string().contains("Lstm"), "{at}: {name}: {truth}");
                split += 1;
                continue;
            };
            let (found, wanted) = (entry.shape().dims(), dims(&truth["dims"]));
            assert!(is_same(found, &wanted), "{at}: {name}: {found:?}, {wanted:?}");
            turned += usize::from(found != wanted);
            assert_eq!(entry.dtype(), Some(if truth["type"] == 1 { DType::F32 } else { DType::I32 }), "{at}: {name}");
            assert_eq!(entry.layer_type(), truth["class"].as_str(), "{at}: {name}");
            parameters += 1;
        }
        more += file.entries().len();
    }
    let others =
        nets.iter().filter(|(_, row)| row["file"].as_str().is_some_and(|file| file.starts_with("real"))).count();
    report(&format!(
        "neoml: {} nets, {others} real: {parameters} parameters as NeoML finds them, {turned} of other extents, {split} split; {} blobs more",
        nets.len(),
        more - parameters
    ));
    assert!(parameters >= 11 && (others == 0 || parameters >= 45), "{parameters}");
}

#[test]
fn the_layers_inside_a_composite_have_its_name_in_front() {
    let file = opened("neoml/py/net_lstm.cnnarch");
    let names: Vec<_> = file.names().collect();
    assert_eq!(names, ["lstm/InputHidden/0", "lstm/InputHidden/1", "lstm/RecurHidden/0", "lstm/RecurHidden/1"]);
}

/// A layer in NeoML's form: class, versions of the class and the bases, name, input, an optional blob, then the
/// fields of the class.
fn layer(class: &str, versions: usize, names: [&str; 2], has_blob: bool, own: &[u8]) -> Vec<u8> {
    let string = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let [name, input] = names;
    let mut bytes = [string(class), b"\xFF\xD0\x07\0\0".repeat(versions + 1), string(name)].concat();
    match input {
        "" => bytes.extend([0; 4]),
        _ => bytes.extend([&[1, 0, 0, 0][..], &string(input), &[0; 4]].concat()),
    }
    bytes.extend([0, 1]);
    bytes.extend(1_f32.to_le_bytes().repeat(3));
    bytes.extend([u8::from(has_blob), 0, 0, 0]);
    if has_blob {
        bytes.push(0);
        bytes.extend(std::fs::read(data("neoml/cpp/cpp_blob_00_float.arch")).expect("readable"));
    }
    bytes.extend(own);
    bytes
}

#[test]
fn a_layer_is_in_the_net_that_counts_it() {
    const FC: &str = "FmlCnnFullyConnectedLayer";
    let count = |count: u8| [count, 0, 0, 0];
    let net = [
        &[&2000_i32.to_le_bytes()[..], &count(100), &count(4)].concat()[..],
        &layer("FmlCnnCompositeLayer", 1, ["outer", ""], false, &count(2)),
        &layer("FmlCnnRecurrentLayer", 2, ["inner", "CompositeSource.0"], true, &count(1)),
        &layer(FC, 1, ["fc", "CompositeSource.0"], true, &[7; 5]),
        // The inner net's outputs, then another layer of the outer one.
        &count(0),
        &layer(FC, 1, ["fc", "inner"], true, &[]),
        // The outer net's outputs.
        &[&count(1)[..], b"\x02fc", &count(0)].concat(),
        &layer(FC, 1, ["fc", "outer"], true, &count(9)),
        // A class of three versions that stores a number and is not a composite; the next layer follows it.
        &layer("FmlCnnRepeat", 2, ["repeat", "fc"], true, &count(1)),
        &layer(FC, 1, ["fc", "repeat"], true, &count(9)),
        &[1],
    ]
    .concat();
    let file = open("x.cnnarch", &net).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<_> = file.names().collect();
    // The second layer with the same name gets the position as a suffix.
    assert_eq!(names, ["outer/inner/0", "outer/inner/fc/0", "outer/fc/0", "fc/0", "repeat/0", "fc@6/0"]);
    assert_eq!(file.entries()[1].layer_type(), Some(FC));
}

#[test]
fn every_layer_is_listed_with_its_class_and_its_inputs() {
    let mut layers = 0;
    for (path, row) in &nets() {
        let listed = opened(path).neoml_layers().unwrap_or_else(|e| panic!("{e}"));
        for truth in row["layers"].as_array().expect("a list") {
            let found = listed.iter().find(|layer| Some(&*layer.path) == truth[0].as_str());
            let found = found.unwrap_or_else(|| panic!("{}: {truth}", path.display()));
            assert_eq!(found.class.as_deref(), truth[1].as_str(), "{}: {truth}", path.display());
            // The record is inside the layer.
            assert!(
                (truth[2].as_u64()..truth[3].as_u64()).contains(&Some(found.offset)),
                "{}: {truth}",
                path.display()
            );
            layers += 1;
        }
    }
    assert!(layers > 20, "{layers}");
    report(&format!("neoml: {layers} layers have the class that NeoML finds"));
    // The layers are connected as in `gen_py.py`.
    let file = opened("neoml/py/net_noparams.cnnarch");
    let listed = file.neoml_layers().expect("read");
    let inputs = |layer: usize| listed[layer].inputs.iter().map(|(name, n)| (&**name, *n)).collect::<Vec<_>>();
    let paths: Vec<_> = listed.iter().map(|layer| &layer.path).collect();
    assert_eq!(paths, ["a", "b", "cat", "split", "o1", "o2"]);
    assert_eq!((inputs(0), inputs(2), inputs(3)), (vec![], vec![("a", 0), ("b", 0)], vec![("cat", 0)]));
    assert_eq!((inputs(4), inputs(5)), (vec![("split", 0)], vec![("split", 1)]));
    let blob = opened("neoml/cpp/cpp_blob_00_float.arch");
    assert_eq!(blob.neoml_layers().expect("none"), []);
}

#[test]
fn blobs_beside_the_parameters_of_a_layer_are_its_next_ones() {
    let file = opened("neoml/py/net_conv_bn.cnnarch");
    let names: Vec<_> = file.names().collect();
    // The final parameters of the batch normalisation are fields of the class.
    assert_eq!(names, ["conv/0", "conv/1", "bn/0", "bn/1", "bn/2", "fc/0", "fc/1"]);
    let checkpoint = opened("neoml/py/net_conv_bn_checkpoint.cnnarch");
    let all: Vec<_> = checkpoint.names().collect();
    // The solver's history belongs to no layer.
    let history: Vec<_> = (8..18).map(|position| format!("@{position}")).collect();
    assert_eq!(all[..7], names);
    assert_eq!(all[7..], history);
    let solver = ("solver".to_owned(), "NeoMLDnnNesterovGradientSolver".to_owned());
    assert!(checkpoint.metadata().contains(&solver), "{:?}", checkpoint.metadata());
}

/// A golden net in which a layer has another name, as an input of others too.
fn renamed(net: &str, from: &str, to: &[u8]) -> Vec<u8> {
    let string = |text: &[u8]| match u8::try_from(text.len()) {
        Ok(len @ ..=254) => [&[len][..], text].concat(),
        _ => [&[255][..], &(text.len() as u32).to_le_bytes(), text].concat(),
    };
    let (mut rest, mut bytes) = (std::fs::read(data("neoml/py").join(net)).expect("readable"), Vec::new());
    while let Some(at) = rest.windows(from.len() + 1).position(|window| window == string(from.as_bytes())) {
        bytes.extend(rest.drain(..at));
        bytes.extend(string(to));
        rest.drain(..=from.len());
    }
    [bytes, rest].concat()
}

/// NeoML's wheel 2.0.210 loads such nets: with names in CP1251, with an escape character, with a zero.
#[test]
fn a_layer_may_have_any_bytes_for_a_name() {
    let (short, long) = ([0xE0; 254], [0xE0; 1000]);
    for (net, layer) in [
        ("net_conv_bn.cnnarch", "conv"),
        ("net_conv_bn_checkpoint.cnnarch", "bn"),
        ("net_lstm.cnnarch", "lstm"),
        ("net_lstm.cnnarch", "InputHidden"),
    ] {
        let golden = opened(data("neoml/py").join(net));
        assert!(golden.names().any(|name| name.split('/').any(|part| part == layer)), "{net}: {layer}");
        for (name, shown) in [
            (&b"\xF1\xE2\xB8\xF0\xF2\xEA\xE0"[..], r"\xF1\xE2\xB8\xF0\xF2\xEA\xE0"),
            (b"a\\\xFFb", r"a\\\xFFb"),
            (b"a\x1B[31mb\n", "a\x1B[31mb\n"),
            ("слой".as_bytes(), "слой"),
            (b"\0", "\0"),
            (b"\0\0", "\0\0"),
            (b"a\0b", "a\0b"),
            (&short, &r"\xE0".repeat(254)),
            (&long, &r"\xE0".repeat(1000)),
        ] {
            let bytes = renamed(net, layer, name);
            let file = open(net, &bytes).unwrap_or_else(|e| panic!("{net} {shown:?}: {e}"));
            let new = |old: &str| {
                old.split('/').map(|part| if part == layer { shown } else { part }).collect::<Vec<_>>().join("/")
            };
            let expected: Vec<String> = golden.names().map(new).collect();
            assert_eq!(file.names().collect::<Vec<_>>(), expected, "{net}");
            for (entry, old) in file.entries().iter().zip(golden.entries()) {
                assert_eq!((entry.shape(), entry.layer_type()), (old.shape(), old.layer_type()), "{net} {shown:?}");
                assert_eq!(file.view(entry).expect("a view"), golden.view(old).expect("a view"), "{net} {shown:?}");
            }
            let inputs = |file: &Checkpoint| -> Vec<_> {
                let layers = file.neoml_layers().expect("layers").into_iter();
                layers.map(|layer| (layer.path, layer.class, layer.inputs)).collect()
            };
            let renamed: Vec<_> = inputs(&golden)
                .into_iter()
                .map(|(path, class, inputs)| {
                    (new(&path), class, inputs.into_iter().map(|(name, n)| (new(&name), n)).collect())
                })
                .collect();
            assert_eq!(inputs(&file), renamed, "{net} {shown:?}");
            let options = blob_convert::Options::new(Format::NeomlNet);
            assert!(to_bytes(&file, &options).expect("written") == bytes, "{net} {shown:?}");
        }
    }
}

#[test]
fn no_array_is_listed_under_a_layer_that_is_not_its_own() {
    let golden = std::fs::read(data("neoml/py/net_conv_bn.cnnarch")).expect("readable");
    let whole = opened("neoml/py/net_conv_bn.cnnarch");
    let layers = whole.neoml_layers().expect("layers");
    for layer in &layers {
        // A version, the name, the inputs; then a flag, which becomes neither false nor true.
        let inputs: usize = layer.inputs.iter().map(|(name, _)| name.len() + 5).sum();
        let flag = layer.offset as usize + 5 + 1 + layer.path.len() + 4 + inputs;
        let bytes = crate::support::changed(&golden, flag, &[2]);
        let refused = open("x.cnnarch", &bytes).map(|_| ()).expect_err("a layer less");
        let before = whole.entries().iter().filter(|entry| entry.offset() < Some(layer.offset)).count();
        if whole.entries().len() > before {
            assert_eq!(refused.offset(), Some(layer.offset), "{}: {refused}", layer.path);
        }
        let source = Box::new(blob_io::Bytes(bytes));
        let listed = blob_io::OpenOptions::new().salvage().open_source("x.cnnarch", source);
        let listed = listed.map(|file| file.names().map(str::to_owned).collect::<Vec<_>>()).unwrap_or_default();
        assert_eq!(listed, whole.names().take(before).collect::<Vec<_>>(), "{}", layer.path);
    }
}

#[test]
fn the_blobs_of_a_dictionary_have_its_keys() {
    // The inputs and outputs of a net in the form of NeoML's own tests: a count, then a key and a blob each.
    let record = std::fs::read(data("neoml/cpp/cpp_blob_00_float.arch")).expect("readable");
    let file = [&[2, 0, 0, 0, 3][..], b"src", &record, &[7], b"lab els", &record].concat();
    let file = open("x", &file).expect("opens");
    assert_eq!((file.format(), file.names().collect::<Vec<_>>()), (Format::NeomlNet, vec!["src", "lab els"]));
    let Some(folder) = real("neoml/real/SerializationTestData") else {
        return report("NOT TESTED: NeoML's dictionaries (BLOB_REAL_DATA names no folder)");
    };
    let file = opened(folder.join("FmlCnnConfusionMatrixLayer.1001.arch"));
    assert_eq!(file.names().collect::<Vec<_>>(), ["src", "lab", "CCnnSinkLayer"]);
}
