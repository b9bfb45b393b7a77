//! Writing Caffe's files: the bytes are those that Caffe wrote for the same blobs, counters and labels.

use blob_core::{AnyBlob, Blob, DType, Shape};
use blob_io::caffe::proto::{BlobProto, Datum, NetParameter};
use blob_io::caffe::{BlobForm, Layer, Message, Pair};
use blob_io::layout::{Frame, Layout, TensorSpec};
use blob_io::{Checkpoint, Error, Format, IfExists, Kind, OpenOptions, Writer};
use proptest::prelude::*;
use prost::Message as _;

use crate::support::conversion::to_file;
use crate::support::{command, data, files, open, report};

/// The file of a layout with the tensors' bytes.
pub(crate) fn assembled(layout: &Layout, tensors: &[&[u8]], base: &[u8]) -> Vec<u8> {
    let mut file = vec![0xAA; layout.len() as usize];
    let mut written = 0;
    let mut put = |at: u64, bytes: &[u8]| {
        file[at as usize..][..bytes.len()].copy_from_slice(bytes);
        written += bytes.len();
    };
    for copied in layout.copies() {
        put(copied.to, &base[copied.from as usize..][..copied.len as usize]);
    }
    layout.frame(&[], &[]).expect("a frame").iter().for_each(|(at, bytes)| put(*at, bytes));
    layout.offsets().iter().zip(tensors).for_each(|(at, bytes)| put(*at, bytes));
    assert_eq!(written, file.len(), "every byte is written once");
    file
}

/// The arrays of a file as tensors to write, and the bytes.
pub(crate) fn tensors(source: &Checkpoint) -> (Vec<TensorSpec>, Vec<Vec<u8>>) {
    let entries = source.entries().iter();
    (
        entries
            .clone()
            .map(|entry| TensorSpec::new(entry.name(), entry.dtype().expect("an array"), entry.shape().clone()))
            .collect(),
        entries.map(|entry| source.view(entry).expect("views").into_owned()).collect(),
    )
}

fn laid_out(specs: &[TensorSpec], message: &Message, form: BlobForm) -> Result<Layout, Error> {
    Layout::new(specs, Frame::Caffe { message, form })
}

/// A file written from only the tensors of another.
fn rewritten(source: &Checkpoint, metadata: &[(String, String)], form: BlobForm) -> Result<Vec<u8>, Error> {
    let (specs, bytes) = tensors(source);
    let message = Message::named(source.format(), source.names(), metadata)?;
    let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    Ok(assembled(&laid_out(&specs, &message, form)?, &bytes, &[]))
}

/// The files that Caffe or NVCaffe would write, without the odd ones made by hand.
#[test]
fn blobs_and_lists_are_written_as_caffe_wrote_them() {
    let mut count = 0;
    for path in files(&data("caffe/blobproto"), |name| name.ends_with(".binaryproto")) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let form = match &*name {
            "f32_zero_axis_3x0x2.binaryproto" => BlobForm::default(),
            "no_shape_one_value.binaryproto" => BlobForm::default(),
            name if ["f32_", "f64_"].iter().any(|start| name.starts_with(start)) => BlobForm::default(),
            "legacy_2_3_4_5.binaryproto" | "legacy_bias_1_1_1_7.binaryproto" | "legacy_1_1_3_2_diff.binaryproto" => {
                BlobForm { legacy: true, ..BlobForm::default() }
            }
            name if name.starts_with("nv_raw") => BlobForm { raw: true, ..BlobForm::default() },
            _ => continue,
        };
        let source = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let bytes = rewritten(&source, &[], form).unwrap_or_else(|e| panic!("{e}"));
        assert!(bytes == std::fs::read(&path).expect("readable"), "{name}");
        count += 1;
    }
    for name in ["state.solverstate", "vector3.blobprotovector", "u8.datum"] {
        let path = data("caffe/misc").join(name);
        let source = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let bytes = rewritten(&source, source.metadata(), BlobForm::default()).unwrap_or_else(|e| panic!("{e}"));
        assert!(bytes == std::fs::read(&path).expect("readable"), "{name}");
        count += 1;
    }
    let none: [&str; 0] = [];
    let empty = Message::named(Format::BlobProtoVector, none, &[]).expect("a vector");
    assert_eq!(laid_out(&[], &empty, BlobForm::default()).expect("held").len(), 0);
    assert_eq!(count, 22);
    report(&format!("caffe: {count} messages written byte for byte"));
}

/// A tensor that gives three bytes at a time.
struct Slow(Vec<f32>);

impl blob_io::Tensor for Slow {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn shape(&self) -> Result<Shape, blob_io::Error> {
        Ok(Shape::new([3, 2, self.0.len() / 6])?)
    }

    fn reader(&self) -> Result<Box<dyn std::io::BufRead + '_>, blob_io::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(Box::new(std::io::BufReader::with_capacity(3, std::io::Cursor::new(bytes))))
    }
}

/// Caffe's own message classes do not pack the floats of a Datum: each is a field. prost encodes the same.
#[test]
fn a_datum_of_floats_is_written_as_caffe_wrote_it() {
    let golden = std::fs::read(data("caffe/misc/float.datum")).expect("readable");
    let datum = Datum::decode(&golden[..]).expect("a Datum");
    assert_eq!((datum.float_data.len(), datum.label), (12, Some(-1)));
    assert_eq!(datum.encode_to_vec(), golden);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.datum");
    for count in [0, 6, 12, 600_000] {
        let values: Vec<f32> = (0..count).map(|i| i as f32 - 0.25).collect();
        let label = (count != 6).then_some(-1);
        let writer = label.map_or(Writer::new(Format::Datum), |label: i32| {
            Writer::new(Format::Datum).metadata("label", label.to_string())
        });
        let tensor = Slow(values.clone());
        writer.tensor("@0", &tensor).write(&path, IfExists::Replace).unwrap_or_else(|e| panic!("{e}"));
        let (channels, height, width) = (Some(3), Some(2), Some(count / 6));
        let expected = Datum { channels, height, width, label, float_data: values.clone(), ..Datum::default() };
        let written = std::fs::read(&path).expect("written");
        assert!(written == expected.encode_to_vec(), "{count}");
        // A conversion writes the same to a file and to a pipe. A BlobProto's values begin at an odd offset, so the
        // pieces of the pass end inside values.
        let source = Checkpoint::from_bytes("x.datum", written).expect("opens");
        let unlabelled = Datum { label: None, ..expected }.encode_to_vec();
        for (format, carrier) in [(Format::Npz, "x.npz"), (Format::BlobProto, "x.binaryproto")] {
            let carrier = folder.path().join(carrier);
            let convert = |source: &Checkpoint, to: Format, path: &std::path::Path| {
                to_file(source, &blob_convert::Options::new(to).with(|o| o.anew = true), path)
                    .unwrap_or_else(|e| panic!("{e}"));
            };
            convert(&source, format, &carrier);
            let source = Checkpoint::open(&carrier).expect("opens");
            convert(&source, Format::Datum, &path);
            assert!(std::fs::read(&path).expect("written") == unlabelled, "{count} from {format}");
            let carrier = carrier.to_str().expect("UTF-8");
            let output = command(&["convert", carrier, "--anew", "--to", "datum", "-o", "-"]).output().expect("runs");
            assert!(output.stdout == unlabelled, "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// prost, which shares no code with the writer, encodes the same bytes for the same blobs. V1 has other field numbers.
#[test]
fn nets_are_written_as_another_encoder_writes_them() {
    let (mut count, mut of_v1) = (0, 0);
    for path in files(&data("caffe/net"), |name| name.ends_with(".caffemodel")) {
        let bytes = std::fs::read(&path).expect("readable");
        let (Ok(mut net), Ok(source)) = (NetParameter::decode(&bytes[..]), Checkpoint::open(&path)) else { continue };
        let v1 = source.dialect() == "V1 layers";
        let named = source.names().all(|name| !name.contains('@'));
        if net.layers.is_empty() == v1 || source.entries().is_empty() || !named {
            continue;
        }
        // The fields of a net that has only names and blobs.
        (net.input, net.input_dim, net.input_shape) = Default::default();
        net.layer.retain(|layer| !layer.blobs.is_empty());
        net.layer.iter_mut().for_each(|layer| (layer.bottom, layer.top) = Default::default());
        net.layers.retain(|layer| !layer.blobs.is_empty());
        net.layers.iter_mut().for_each(|layer| (layer.bottom, layer.top) = Default::default());
        let blobs = net.layer.iter().flat_map(|layer| &layer.blobs);
        let legacy = blobs.chain(net.layers.iter().flat_map(|layer| &layer.blobs)).any(|blob| blob.num.is_some());
        let (specs, values) = tensors(&source);
        let message = Message::named(Format::CaffeModel, source.names(), source.metadata()).expect("named");
        let message = message.with_types(|tensor| source.entries()[tensor].layer_type());
        let values: Vec<&[u8]> = values.iter().map(|bytes| &bytes[..]).collect();
        let written = assembled(
            &laid_out(&specs, &message, BlobForm { legacy, v1, raw: false }).unwrap_or_else(|e| panic!("{e}")),
            &values,
            &[],
        );
        assert!(written == net.encode_to_vec(), "{}", path.display());
        (count, of_v1) = (count + 1, of_v1 + usize::from(v1));
    }
    assert!(count >= 7 && of_v1 >= 1, "{count}, {of_v1}");
    let layer = Layer { name: "bn".to_owned(), layer_type: Some("BatchNorm".to_owned()), blobs: Vec::new() };
    let net = Message::Net { name: String::new(), layers: vec![layer] };
    let error = laid_out(&[], &net, BlobForm { v1: true, ..BlobForm::default() }).expect_err("refused").to_string();
    assert!(error.contains("\"bn\" is of type \"BatchNorm\", which V1 does not have"), "{error}");
}

fn spec(name: &str, dtype: DType, dims: &[usize]) -> TensorSpec {
    TensorSpec::new(name, dtype, Shape::new(dims).expect("a shape"))
}

#[test]
fn what_a_blob_cannot_hold_is_refused_with_all_their_names() {
    let refusal = |specs: &[TensorSpec], form: BlobForm| {
        let names = specs.iter().map(|spec| &*spec.name);
        let message = Message::named(Format::CaffeModel, names, &[]).expect("named");
        laid_out(specs, &message, form).expect_err("refused").to_string()
    };
    let specs = [
        spec("a/0", DType::I64, &[2]),
        spec("a/1", DType::F32, &[1; 5]),
        spec("b/0", DType::F32, &[1 << 31, 0]),
        spec("c/0", DType::F64, &[65536, 65536]),
        spec("d/0", DType::F64, &[2]),
        spec("d/0.diff", DType::F32, &[2]),
    ];
    let error = refusal(&specs, BlobForm { legacy: true, ..BlobForm::default() });
    for words in [
        "\"a/0\" is of i64; Caffe's blobs hold f32 and f64",
        "\"a/1\" has 5 axes; the dimensions from before 2015 are four",
        "\"b/0\" has an axis of 2147483648; Caffe's are at most 2147483647",
        "\"c/0\" has 4294967296 elements; Caffe's blobs hold at most 2147483647",
        "\"d/0.diff\" is not of its data's dtype and shape, f64 and 2",
    ] {
        assert!(error.contains(words), "{error}");
    }
    let error = refusal(&specs[..1], BlobForm { raw: true, ..BlobForm::default() });
    assert!(error.contains("is of i64; NVCaffe's raw_data holds f16, f32 and f64"), "{error}");
    // Each blob fits, but the file does not.
    let specs = [spec("a/0", DType::F32, &[300_000_000]), spec("b/0", DType::F32, &[300_000_000])];
    let error = refusal(&specs, BlobForm::default());
    assert!(error.contains("the file would have 2400000062 bytes; Caffe reads at most 2147483647"), "{error}");
    let message = Message::Vector(vec![Pair { data: 1, diff: None }]);
    let error = laid_out(&specs[..1], &message, BlobForm::default()).expect_err("refused").to_string();
    assert!(error.contains("is a blob of tensor 1, which does not exist"), "{error}");
    let error =
        laid_out(&specs[..1], &Message::Vector(Vec::new()), BlobForm::default()).expect_err("refused").to_string();
    assert!(error.contains("tensor \"a/0\" is nowhere in the file"), "{error}");
    let message = Message::Vector(vec![Pair { data: 0, diff: None }; 2]);
    let error =
        laid_out(&[spec("x", DType::F32, &[2])], &message, BlobForm::default()).expect_err("refused").to_string();
    assert!(error.contains("tensor 0 is in the file twice"), "{error}");
    let error = Layout::new(
        &[spec("x", DType::F32, &[2])],
        Frame::Caffe { message: &Message::Datum { tensor: 0, label: None }, form: BlobForm::default() },
    )
    .expect_err("refused");
    assert!(error.to_string().contains("a Datum is written of u8 or f32 of three axes"), "{error}");
}

#[test]
fn names_that_are_no_layers_are_refused_with_all_of_them() {
    let refusal = |format: Format, names: &[&str]| {
        Message::named(format, names.iter().copied(), &[]).expect_err("refused").to_string()
    };
    let long: Vec<String> = (0..30).map(|i| format!("{i}{}", "é".repeat(30_000))).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let error = refusal(Format::CaffeModel, &long);
    assert!(error.len() < 8000 && error.contains("é\"…, \"19é") && error.contains("and 10 more"), "{error}");
    let error = refusal(Format::CaffeModel, &["a/0", "weight", "/0", "b/1", "c/0.diff", "d/00", "d/x", "a/-1"]);
    assert!(error.starts_with("as caffemodel: names that do not fit: "), "{error}");
    for name in ["weight", "/0", "b/1", "c/0.diff", "d/00", "d/x", "a/-1"] {
        assert!(error.contains(&format!("{name:?}")), "{name}: {error}");
    }
    assert!(!error.contains("\"a/0\""), "{error}");
    let error = refusal(Format::BlobProtoVector, &["@0", "@3", "x", "@1.diff"]);
    assert!(error.contains("\"@3\"") && error.contains("\"x\"") && error.contains("\"@1.diff\""), "{error}");
    assert!(refusal(Format::BlobProto, &["a", "b"]).contains("not 2 arrays"));
    assert!(refusal(Format::Npz, &["a"]).contains("not a Caffe format"));
    let odd = [("iter".to_owned(), "x".to_owned())];
    let error = Message::named(Format::SolverState, ["@0"], &odd).expect_err("refused").to_string();
    assert_eq!(error, "as solverstate: iter is a whole number of 32 bits, not \"x\"");
    let error = Message::named(Format::BlobProto, ["@0"], &odd).expect_err("refused").to_string();
    assert_eq!(error, "as binaryproto: there is no place for metadata called \"iter\"");
}

/// A file that cannot hold the tensors is refused before creation.
#[test]
fn blobs_are_written_in_one_call() {
    let golden = data("caffe/misc/state.solverstate");
    let source = Checkpoint::open(&golden).expect("opens");
    let blobs: Vec<AnyBlob> = source.entries().iter().map(|entry| source.load(entry).expect("loads")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.solverstate");
    let writer =
        source.names().zip(&blobs).fold(Writer::new(Format::SolverState), |w, (name, blob)| w.tensor(name, blob));
    let writer = source.metadata().iter().fold(writer, |w, (key, value)| w.metadata(key, value));
    writer.write(&path, IfExists::Refuse).unwrap_or_else(|e| panic!("{e}"));
    assert!(std::fs::read(&path).expect("written") == std::fs::read(&golden).expect("readable"));
    let other = AnyBlob::new(Shape::new([2]).expect("a shape"), DType::I32).expect("memory");
    let refused = folder.path().join("y.caffemodel");
    Writer::new(Format::CaffeModel).tensor("a/0", &other).write(&refused, IfExists::Refuse).expect_err("refused");
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1);
}

/// `ToProto` of a blob without axes has no shape at all.
#[test]
fn a_blob_becomes_the_message_that_caffe_writes() {
    for path in files(&data("caffe/blobproto"), |name| name.starts_with("f32_") || name.starts_with("f64_")) {
        let bytes = std::fs::read(&path).expect("readable");
        let source = OpenOptions::new().from(Format::BlobProto).open(&path).expect("opens");
        let entry = source.entries().iter().find(|entry| entry.kind() == Kind::Data).expect("data");
        let proto = BlobProto::try_from(&source.load_pair(entry).expect("loads")).expect("a message");
        assert!(proto.encode_to_vec() == bytes, "{}", path.display());
    }
    let scalar = Blob::from_slice(Shape::default(), &[1.0f32]).expect("memory").into();
    assert_eq!(BlobProto::try_from(&scalar).expect("a message").shape, None);
}

proptest! {
    #[test]
    fn a_net_that_is_written_is_read(
        layers in prop::collection::vec(
            ("[a-z/.@]{1,8}", prop::collection::vec((prop::collection::vec(0..4usize, 0..4), any::<bool>(), any::<bool>()), 1..4)), 0..5),
        form in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let form = BlobForm { legacy: form.0, raw: form.1, v1: form.2 };
        let (mut specs, mut bytes): (Vec<TensorSpec>, Vec<Vec<u8>>) = Default::default();
        let mut seen = std::collections::HashSet::new();
        for (layer, blobs) in layers.iter().filter(|(layer, _)| seen.insert(layer.clone())) {
            for (index, (dims, double, diff)) in blobs.iter().enumerate() {
                let dtype = if *double { DType::F64 } else { DType::F32 };
                for suffix in ["", ".diff"].into_iter().take(1 + usize::from(*diff && !dims.contains(&0))) {
                    let spec = spec(&format!("{layer}/{index}{suffix}"), dtype, dims);
                    bytes.push((0..spec.byte_len()).map(|i| (i as u8).wrapping_mul(31)).collect());
                    specs.push(spec);
                }
            }
        }
        let message = Message::named(Format::CaffeModel, specs.iter().map(|spec| &*spec.name), &[]).expect("named");
        let values: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
        let file = assembled(&laid_out(&specs, &message, form).expect("held"), &values, &[]);
        let back = OpenOptions::new().from(Format::CaffeModel).open_source("x", Box::new(blob_io::Bytes(file))).expect("read");
        prop_assert!(back.warnings().is_empty() && back.faults().is_empty());
        let found: Vec<_> = back.entries().iter().map(|entry| {
            (entry.name().to_owned(), entry.dtype(), back.view(entry).expect("views").into_owned())
        }).collect();
        let wanted: Vec<_> = specs.iter().zip(bytes).map(|(spec, bytes)| {
            // An empty blob has no field that determines the dtype, unless it is raw.
            let dtype = if bytes.is_empty() && !back.entry(&spec.name).is_some_and(|e| e.dtype() == Some(spec.dtype)) { DType::F32 } else { spec.dtype };
            (spec.name.clone(), Some(dtype), bytes)
        }).collect();
        prop_assert_eq!(found, wanted);
        for (entry, spec) in back.entries().iter().zip(&specs) {
            let dims = spec.shape.dims();
            prop_assert!(entry.shape().dims().ends_with(dims));
            let padded = entry.shape().dims().len() - dims.len();
            prop_assert!(entry.shape().dims()[..padded].iter().all(|dim| *dim == 1));
        }
    }
}

#[test]
fn a_written_net_opens_by_its_content() {
    let spec = [spec("ip/0", DType::F32, &[2])];
    let message = Message::named(Format::CaffeModel, ["ip/0"], &[]).expect("named");
    let file = assembled(&laid_out(&spec, &message, BlobForm::default()).expect("held"), &[&[0; 8]], &[]);
    assert_eq!(open("x", &file).expect("opens").format(), Format::CaffeModel);
}
