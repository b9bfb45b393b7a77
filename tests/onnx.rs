//! ONNX models: tensors in onnx's own reading, values beside the model, values put into a model, false models.
//!
//! `tests/data/onnx` has the goldens and the readings of onnx 1.23.

use std::collections::BTreeMap;
use std::path::PathBuf;

use blob_convert::{Options, Place, Silent, plan, plan_into, verify};
use blob_core::DType;
use blob_io::onnx::proto::{
    GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, tensor_proto,
};
use blob_io::{Checkpoint, Entry, Error, Format, IfExists, Limits, OpenOptions};
use prost::Message;
use serde_json::Value;

use crate::support::{Folder, data, files, open, report, sha256};
use blob_convert::RECEIPT_KEY;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(data("onnx").join(name)).expect("readable")
}

/// A model with these tensors and no node.
fn model(initializer: Vec<TensorProto>) -> ModelProto {
    let graph = GraphProto { name: Some("g".to_owned()), initializer, ..GraphProto::default() };
    let opset = OperatorSetIdProto { domain: None, version: Some(17) };
    ModelProto { ir_version: Some(8), graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() }
}

fn tensor(name: &str, data_type: i32, dims: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(data_type),
        dims: dims.to_vec(),
        ..TensorProto::default()
    }
}

fn pair(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: Some(key.to_owned()), value: Some(value.to_owned()) }
}

/// Eight values of f32 in the file at `location`.
fn outside(location: &str, rest: &[(&str, &str)]) -> TensorProto {
    let external_data = [("location", location)].iter().chain(rest).map(|(key, value)| pair(key, value)).collect();
    TensorProto { external_data, data_location: Some(1), ..tensor("w", 1, &[2, 4]) }
}

fn inside() -> TensorProto {
    TensorProto { float_data: vec![1.0, 2.0], ..tensor("here", 1, &[2]) }
}

fn bytes<'a>(file: &'a Checkpoint, name: &str) -> std::borrow::Cow<'a, [u8]> {
    file.view(file.entry(name).unwrap_or_else(|| panic!("no {name:?}"))).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn tensors_are_what_onnx_reads() {
    let truth: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_slice(&golden("truth.json")).expect("JSON");
    let (mut equal, mut listed) = (0, 0);
    for (path, tensors) in &truth {
        let file = Checkpoint::open(data("onnx").join(path)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(file.format(), Format::Onnx);
        assert_eq!(file.entries().len(), tensors.len(), "{path}");
        assert_eq!((file.warnings(), file.faults()), (&[][..], &[][..]), "{path}");
        for entry in file.entries() {
            let wanted = &tensors[entry.name()];
            let dims: Vec<u64> = entry.shape().dims().iter().map(|dim| *dim as u64).collect();
            assert_eq!(Value::from(dims), wanted[1], "{path}: {}", entry.name());
            let native = entry.dtype().map(DType::name);
            let dtype = native.or(entry.foreign_dtype()).expect("listed");
            assert_eq!(dtype, wanted[0], "{path}: {}", entry.name());
            let Some(digest) = wanted[2].as_str() else {
                assert_eq!(file.load(entry).expect_err("foreign").reason(), blob_io::Reason::Unsupported);
                listed += 1;
                continue;
            };
            assert_eq!(sha256(&file.view(entry).expect("readable")), digest, "{path}: {}", entry.name());
            let blob = file.load(entry).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(blob.shape(), entry.shape());
            equal += 1;
        }
    }
    report(&format!("onnx: {equal} tensors equal to onnx's, {listed} listed only"));
    assert!(equal > 55 && listed == 4, "{equal}, {listed}");
}

#[test]
fn a_model_says_its_versions_and_its_words() {
    let file = Checkpoint::open(data("onnx/net.onnx")).expect("opens");
    assert_eq!(file.dialect(), "opset 17, IR 8, 4 nodes");
    let metadata: BTreeMap<&str, &str> = file.metadata().iter().map(|(key, value)| (&**key, &**value)).collect();
    let wanted = [
        ("author", "nobody"),
        ("doc_string", "a small net"),
        ("domain", "org.example"),
        ("license", "CC0"),
        ("model_version", "3"),
        ("name", "g"),
        ("producer_name", "blob"),
        ("producer_version", "1.0"),
    ];
    assert_eq!(metadata, wanted.into());
    let external = Checkpoint::open(data("onnx/external/model.onnx")).expect("opens");
    assert_eq!(external.dialect(), "opset 17, IR 8, 0 nodes, values in 2 other files");
    assert_eq!(external.shards(), ["weights.bin", "sub/more.bin"]);
}

/// Protobuf messages have no magic: no golden of another format is taken for a model, whatever the name, and every
/// model is known without a name.
#[test]
fn a_model_is_told_from_every_other_golden() {
    let (mut todo, mut models, mut others) = (vec![data("")], 0, 0);
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).expect("readable");
            let is_model = path.extension().is_some_and(|extension| extension == "onnx");
            let found = open("x", &bytes).is_ok_and(|file| file.format() == Format::Onnx);
            assert_eq!(found, is_model, "{}", path.display());
            models += usize::from(is_model);
            others += usize::from(!is_model);
            // A name promises, and the content decides.
            if !is_model && let Ok(file) = open("x.onnx", &bytes) {
                assert_ne!(file.format(), Format::Onnx, "{}", path.display());
            }
            if is_model {
                let wrong = open("x.caffemodel", &bytes).expect("opens");
                assert_eq!(wrong.format(), Format::Onnx, "{}", path.display());
            }
        }
    }
    report(&format!("onnx: {models} models told from {others} other goldens"));
    assert!(models >= 7 && others > 900, "{models}, {others}");
}

#[test]
fn a_named_format_is_checked() {
    let net = std::fs::read(data("caffe/net/f32_v2.caffemodel")).expect("readable");
    let options = OpenOptions::new().from(Format::Onnx);
    let error = options.open_source("x", Box::new(blob_io::Bytes(net))).expect_err("refused").to_string();
    assert_eq!(error, "x is caffemodel, not onnx");
    let options = OpenOptions::new().from(Format::CaffeModel);
    let error = options.open_source("x", Box::new(blob_io::Bytes(golden("net.onnx")))).expect_err("refused");
    assert_eq!(error.to_string(), "x is onnx, not caffemodel");
    let error = open("x.onnx", b"\x08\x08\x12\x01x").expect_err("refused").to_string();
    assert!(error.contains("expected an ONNX model with a graph, found none"), "{error}");
}

#[test]
fn a_file_beside_the_model_lies_within_its_folder() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("m/in")).expect("made");
    for place in ["w.bin", "m/w.bin", "m/in/w.bin"] {
        std::fs::write(folder.path().join(place), [1; 40]).expect("written");
    }
    std::fs::write(folder.path().join("m/empty"), b"").expect("written");
    let absolute = folder.path().join("w.bin").display().to_string();
    let fails = [
        (outside("../w.bin", &[]), "which is no path within the model's folder"),
        (outside("in/../../w.bin", &[]), "which is no path within the model's folder"),
        (outside(&absolute, &[]), "which is no path within the model's folder"),
        (outside("", &[]), "which is no path within the model's folder"),
        (outside("in", &[]), "is no ordinary file"),
        (outside("none.bin", &[]), "which is not there"),
        (outside("empty", &[]), "bytes 0 and 32 more of 0, of \"empty\""),
        (outside("w.bin", &[("offset", "9")]), "bytes 9 and 32 more of 40"),
        (outside("w.bin", &[("offset", "18446744073709551615")]), "more of 40"),
        (outside("w.bin", &[("length", "31")]), "the length of the values in another file"),
        (outside("w.bin", &[("offset", "-1")]), "a number of bytes in decimal digits"),
        (outside("w.bin", &[("offset", "184467440737095516150")]), "a number of bytes in decimal digits"),
        (TensorProto { external_data: vec![], ..outside("", &[]) }, "the file that holds the values, found none named"),
    ];
    let path = folder.path().join("m/model.onnx");
    for (wrong, why) in fails {
        std::fs::write(&path, model(vec![wrong, inside()]).encode_to_vec()).expect("written");
        let file = Checkpoint::open(&path).expect("the rest is read");
        let fault = file.entries()[0].fault().unwrap_or_else(|| panic!("{why}")).to_string();
        assert!(fault.contains(why), "{fault}");
        assert_eq!(*bytes(&file, "here"), [1.0_f32, 2.0].map(f32::to_le_bytes).concat());
    }
    let sound = [
        (outside("w.bin", &[("offset", "8"), ("length", "32")]), 8),
        (outside("./in/w.bin", &[]), 0),
        (outside("w.bin", &[("offset", "1"), ("checksum", "0")]), 1),
    ];
    for (right, offset) in sound {
        std::fs::write(&path, model(vec![inside(), right]).encode_to_vec()).expect("written");
        let file = Checkpoint::open(&path).expect("opens");
        let is_unchecked =
            file.warnings().iter().any(|warning| warning.text.contains("a SHA-1 of a file of its values"));
        assert_eq!(is_unchecked, offset == 1);
        assert_eq!(*bytes(&file, "w"), [1; 32]);
        assert_eq!(*bytes(&file, "here"), [1.0_f32, 2.0].map(f32::to_le_bytes).concat());
    }
    // Without a folder, the values are missing, and an error says where they are.
    let file = open("model.onnx", &std::fs::read(&path).expect("readable")).expect("opens");
    let fault = file.entries()[1].fault().expect("not there").to_string();
    assert!(fault.ends_with("found them in \"w.bin\""), "{fault}");
}

/// Many tensors may name one range: all together take no more than the limit allows.
#[test]
fn values_in_another_file_are_within_the_limits() {
    let folder = Folder::new();
    folder.with("w.bin", vec![0; 32]);
    let path = folder.with("m.onnx", model(vec![outside("w.bin", &[]); 4000]).encode_to_vec());
    let limits = Limits { max_alloc: 1 << 10, ..Limits::default() };
    assert_eq!(OpenOptions::new().limits(limits.clone()).open(&path).expect("opens").entries().len(), 4000);
    let large = TensorProto { dims: vec![1 << 20], ..outside("w.bin", &[]) };
    std::fs::write(folder.path().join("w.bin"), vec![0; 4 << 20]).expect("written");
    std::fs::write(&path, model(vec![large; 2000]).encode_to_vec()).expect("written");
    let file = OpenOptions::new().limits(limits).open(&path).expect("opens");
    let faulty = file.entries().iter().filter(|entry| entry.fault().is_some()).count();
    assert!((900..1100).contains(&faulty), "{faulty}");
}

#[test]
fn integers_are_as_many_as_the_shape_says() {
    let numbers = |int64_data: Vec<i64>, dims: &[i64]| TensorProto { int64_data, ..tensor("n", 7, dims) };
    // A listing shows impossible values only; decoding, as in `verify`, shows the rest.
    for (made, is_listed) in [
        (numbers(vec![1; 3], &[4]), true),
        (numbers(vec![1; 41], &[4]), true),
        (numbers(vec![300; 3], &[4]), false),
        (numbers(vec![1; 5], &[4]), false),
        (numbers(vec![1], &[0]), true),
        (numbers(vec![], &[1 << 40]), true),
    ] {
        let file = open("x", &model(vec![made, inside()]).encode_to_vec()).expect("opens");
        let entry = &file.entries()[0];
        assert_eq!(entry.fault().is_some(), is_listed, "{entry:?}");
        assert!(file.load(entry).expect_err("refused").to_string().contains(if is_listed {
            "int64_data"
        } else {
            "as many values"
        }));
        let mut findings = 0;
        verify::arrays(&file, &Silent, &mut |remark| {
            findings += usize::from(matches!(remark, verify::Remark::Finding(_)));
        })
        .expect("readable");
        assert_eq!(findings, 1);
        assert_eq!(*bytes(&file, "here"), [1.0_f32, 2.0].map(f32::to_le_bytes).concat());
    }
    let truths = TensorProto { int32_data: vec![0, 1, 256, -1], ..tensor("b", 9, &[4]) };
    let file = open("x", &model(vec![truths]).encode_to_vec()).expect("opens");
    assert_eq!(*bytes(&file, "b"), [0, 1, 1, 1]);
    // A tensor of one-byte varints unpacks to eight times as much, within the limit.
    let wide = model(vec![numbers(vec![1; 1 << 12], &[1 << 12])]).encode_to_vec();
    for (max_alloc, is_read) in [(7 << 12, true), (6 << 12, false)] {
        let options = OpenOptions::new().limits(Limits { max_alloc, ..Limits::default() });
        let file = options.open_source("x", Box::new(blob_io::Bytes(wide.clone()))).expect("opens");
        assert_eq!(file.load(&file.entries()[0]).is_ok(), is_read);
    }
}

#[test]
fn odd_tensors_do_not_hide_the_others() {
    let raw =
        |data_type, dims: &[i64], len| TensorProto { raw_data: Some(vec![0; len]), ..tensor("odd", data_type, dims) };
    let faults = [
        (raw(1, &[2], 7), "the bytes of raw_data: expected 8, found 7"),
        (raw(1, &[-1], 0), "-1"),
        (raw(1, &[1 << 40, 1 << 40], 0), "2 axes whose product does not"),
        (raw(1, &[1; 33], 4), "33"),
        (raw(0, &[1], 4), "an element type, found none"),
        (tensor("odd", 1, &[2]), "float_data"),
        (TensorProto { double_data: vec![1.0], ..tensor("odd", 1, &[1]) }, "float_data"),
        (TensorProto { segment: Some(tensor_proto::Segment::default()), ..raw(1, &[1], 4) }, "a segment of one"),
    ];
    for (odd, why) in faults {
        let file = open("x", &model(vec![odd, inside()]).encode_to_vec()).expect("opens");
        let fault = file.entries()[0].fault().unwrap_or_else(|| panic!("{why}")).to_string();
        assert!(fault.contains(why), "{fault}");
        assert_eq!(file.names().collect::<Vec<_>>(), ["odd", "here"]);
        assert_eq!(bytes(&file, "here").len(), 8);
    }
    // An element type of the future, and values that are stored twice.
    let twice = TensorProto { float_data: vec![1.0], ..raw(1, &[1], 4) };
    let file = open("x", &model(vec![raw(99, &[3], 5), twice, inside()]).encode_to_vec()).expect("opens");
    let [future, twice, _] = file.entries() else { panic!("three tensors") };
    assert_eq!((future.foreign_dtype(), future.byte_len()), (Some("type 99"), 5));
    assert!(twice.warnings().any(|warning| warning.is_loss && warning.text.contains("raw_data")), "{twice:?}");
    assert_eq!(file.names().collect::<Vec<_>>(), ["odd", "odd@1", "here"]);
}

/// A receipt in the metadata is compared as in every other format.
#[test]
fn a_receipt_in_a_model_is_checked() {
    let (folder, source) = (Folder::new(), Checkpoint::open(data("onnx/net.onnx")).expect("opens"));
    let npz = folder.path().join("x.npz");
    let target = Place::File { path: &npz, if_exists: IfExists::Refuse };
    plan(&source, &Options::new(Format::Npz), &target).and_then(|plan| plan.run(&Silent)).expect("converts");
    let carrier = Checkpoint::open(&npz).expect("opens");
    let (_, text) = carrier.metadata().iter().find(|(key, _)| key == RECEIPT_KEY).expect("a receipt");
    let mut with = ModelProto::decode(&*golden("net.onnx")).expect("decodes");
    with.metadata_props.push(pair(RECEIPT_KEY, text));
    let findings = |model: &ModelProto| {
        let file = open("x.onnx", &model.encode_to_vec()).expect("opens");
        let mut findings = Vec::new();
        verify::receipt(&file, &Silent, &mut |remark| findings.push(format!("{remark:?}"))).expect("readable");
        findings.iter().filter(|finding| finding.starts_with("Finding")).count()
    };
    assert_eq!(findings(&with), 0);
    let graph = with.graph.as_mut().expect("a graph");
    graph.initializer[0].raw_data.as_mut().expect("raw")[0] ^= 1;
    assert_eq!(findings(&with), 1);
}

/// The whole of a converted file.
fn into(source: &Checkpoint, base: &Checkpoint, folder: &Folder) -> Result<Vec<u8>, Error> {
    let path = folder.path().join("out.onnx");
    let target = Place::File { path: &path, if_exists: IfExists::Replace };
    plan_into(source, base, &Options::new(Format::Onnx), &target)?.run(&Silent)?;
    Ok(std::fs::read(&path).expect("readable"))
}

#[test]
fn values_go_into_a_model_and_every_other_byte_stays() {
    let folder = Folder::new();
    let made = |tensors| open("new.onnx", &model(tensors).encode_to_vec()).expect("opens");
    let bias = |value: f32| TensorProto { float_data: vec![value; 2], ..tensor("conv1.bias", 1, &[2]) };
    let (base, mut wanted) = (Checkpoint::open(data("onnx/net.onnx")).expect("opens"), golden("net.onnx"));
    let at = base.entry("conv1.bias").and_then(Entry::offset).expect("a place") as usize;
    wanted[at..at + 8].copy_from_slice(&[7.0_f32; 2].map(f32::to_le_bytes).concat());
    assert_eq!(into(&made(vec![bias(7.0)]), &base, &folder).expect("written"), wanted);
    // Typed floats lie in one run, too.
    let typed = Checkpoint::open(data("onnx/typed.onnx")).expect("opens");
    let f64 = TensorProto { double_data: vec![2.5; 8], ..tensor("f64", 11, &[2, 4]) };
    let written = into(&made(vec![f64]), &typed, &folder).expect("written");
    let again = open("again.onnx", &written).expect("opens");
    assert_eq!(*bytes(&again, "f64"), [2.5_f64; 8].map(f64::to_le_bytes).concat());
    assert_eq!(bytes(&again, "i32"), bytes(&typed, "i32"));
    let i32 = TensorProto { int32_data: vec![1; 8], ..tensor("i32", 6, &[2, 4]) };
    let external = Checkpoint::open(data("onnx/external/model.onnx")).expect("opens");
    for (tensors, base, why) in [
        (vec![i32], &typed, "\"i32\" is not one run of bytes there"),
        (vec![tensor("none", 1, &[0])], &base, "is not there"),
        (vec![TensorProto { dims: vec![1, 2], ..bias(1.0) }], &base, "conv1.bias"),
        (vec![bias(1.0)], &external, "has values in \"weights.bin\", \"sub/more.bin\""),
    ] {
        let error = into(&made(tensors), base, &folder).expect_err("refused").to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn no_model_is_made_of_tensors_alone() {
    for (path, why) in [
        ("caffe/net/f32_v2.caffemodel", "cannot be converted to an ONNX model: blob has no graph"),
        ("mxnet/forward/block-0000.params", "cannot be converted to an ONNX model: blob has no graph"),
        ("onnx/net.onnx", "cannot be written as another ONNX model: blob does not change graphs"),
    ] {
        let source = Checkpoint::open(data(path)).expect("opens");
        let options = Options::new(Format::Onnx).with(|options| options.anew = true);
        let error = plan(&source, &options, &Place::Stdout).expect_err("refused").to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// Each golden to the formats with names, and the tensors in them.
#[test]
fn models_become_files_of_other_formats() {
    let folder = Folder::new();
    let paths: Vec<PathBuf> = files(&data("onnx"), |name| name.ends_with(".onnx") && name != "foreign.onnx");
    let mut count = 0;
    for path in paths.iter().chain([&data("onnx/external/model.onnx")]) {
        let source = Checkpoint::open(path).expect("opens");
        for to in [Format::Npz, Format::Safetensors, Format::Hdf5, Format::MxnetList] {
            let out = folder.path().join(format!("out.{}", to.extensions()[0]));
            let target = Place::File { path: &out, if_exists: IfExists::Replace };
            let mut options = Options::new(to);
            if to == Format::MxnetList {
                options = options.with(|options| options.params_version = Some(blob_io::mxnet::Version::V3));
            }
            plan(&source, &options, &target).and_then(|plan| plan.run(&Silent)).unwrap_or_else(|e| panic!("{to}: {e}"));
            let written = Checkpoint::open(&out).expect("opens");
            for entry in source.entries() {
                assert_eq!(bytes(&written, entry.name()), bytes(&source, entry.name()), "{to}: {}", entry.name());
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count}");
}
