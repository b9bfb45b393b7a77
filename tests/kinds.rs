//! Files of other programs are recognized, and arrays of unsupported dtypes are listed: neither is reported as broken.

use std::fs;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Bytes, Checkpoint, Error, Format, IfExists, OpenOptions, Reason, Writer};

use crate::support::archive::tarred;
use crate::support::archive::{npy, safetensors, theirs};
use crate::support::message::{floats, len, shape, var, varint};
use crate::support::{changed, compare_cases, data, find, open, unescaped};

fn refused(name: &str, bytes: &[u8]) -> (Reason, String) {
    let error = open(name, bytes).map(|file| panic!("{name}: taken for {:?}", file.format()));
    let error = error.expect_err("refused");
    (error.reason(), error.to_string())
}

#[test]
fn files_of_other_frameworks_are_named() {
    let frozen = std::fs::read(data("other/frozen.pb")).unwrap();
    let node = [len(1, b"x"), len(2, b"Placeholder")].concat();
    let input = len(1, &[len(1, b"image"), len(3, b"")].concat());
    let core_ml = [vec![0x08, 1], len(2, &input), vec![0xA2, 0x1F, 0]].concat();
    let meta = len(1, &len(2, &len(1, b"op")));
    let saved = [vec![0x08, 1], len(2, &meta)].concat();
    let floats: Vec<u8> = (1..40).flat_map(|i| (i as f32 * 0.1).to_le_bytes()).collect();
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let darknet = [words(&[0, 2, 0, 64, 0]), floats.clone()].concat();
    let paddle = [words(&[0, 0, 0, 0, 4]), vec![0x08, 5, 0x10, 3], floats.clone()].concat();
    let torch = [words(&[3, 1, 2, 2, 4]), b"bias".to_vec()].concat();
    for (name, bytes, what) in [
        ("frozen.pb", &frozen[..], "TensorFlow graph"),
        ("x", &len(1, &node), "TensorFlow graph"),
        ("x", &saved, "SavedModel"),
        ("x", &core_ml, "Core ML"),
        ("yolo.weights", &darknet, "Darknet"),
        ("x.pdiparams", &paddle, "PaddlePaddle"),
        ("x.t7", &torch, "Torch7"),
        ("x.bin", &[words(&[0x0130_6B47]), floats.clone()].concat(), "ncnn"),
        ("x.bin", &[words(&[0]), floats.clone()].concat(), "ncnn"),
    ] {
        let (found, text) = refused(name, bytes);
        assert_eq!(found, Reason::Unsupported, "{name}: {text}");
        assert!(text.contains(what), "{name}: {text}");
    }
}

#[test]
fn what_is_no_file_of_tensors_is_named_with_its_reason() {
    compare_cases("cases/kinds.txt", |line| {
        let (name, content) = line.split_once(' ').unwrap_or((line, ""));
        let error = open(name, &unescaped(content)).expect_err("refused");
        let help = error.help().map_or_else(String::new, |help| format!("\nhelp: {help}"));
        format!("{}: {error}{help}", error.reason().as_str())
    });
}

#[test]
fn text_and_noise_are_no_caffe_messages() {
    for file in ["note.txt", "001240.safetensors"] {
        let bytes = std::fs::read(data(&format!("other/{file}"))).unwrap();
        assert!(open("x", &bytes).is_err(), "{file}");
    }
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    let mut opened = Vec::new();
    for round in 0..200_000 {
        let bytes: [u8; 16] = std::array::from_fn(|_| match round % 2 {
            0 => 0x20 + next() % 95,
            _ => next(),
        });
        if let Ok(file) = Checkpoint::from_source("x", Box::new(Bytes(bytes)))
            && file.entries().iter().all(|e| e.fault().is_none())
        {
            opened.push(bytes);
        }
    }
    assert!(opened.is_empty(), "{}: {opened:?}", opened.len());
}

#[test]
fn a_bare_message_of_caffe_needs_a_value_or_its_extension() {
    let blob = b"\x2A\x08\0\0\x80\x3F\0\0\0\x40\x3A\x03\x0A\x01\x02";
    assert_eq!(open("x", blob).unwrap().format(), Format::BlobProto);
    // A value without a shape is a scalar if the file name says BlobProto.
    let scalar = b"\x2D\0\0\x80\x3F";
    assert!(open("x", scalar).is_err());
    assert_eq!(open("x.binaryproto", scalar).unwrap().format(), Format::BlobProto);
    let named = len(1, b"a net's name");
    assert!(open("x", &named).is_err());
    assert_eq!(open("x.caffemodel", &named).unwrap().format(), Format::CaffeModel);
    let vector = [len(1, blob), len(1, blob)].concat();
    assert_eq!(open("x", &vector).unwrap().format(), Format::BlobProtoVector);
    let state = [vec![0x08, 9], len(2, b"net.caffemodel"), len(3, blob)].concat();
    assert_eq!(open("x", &state).unwrap().format(), Format::SolverState);
    assert!(open("x", &[0x08, 9]).is_err());
    assert_eq!(open("x.solverstate", &[0x08, 9]).unwrap().format(), Format::SolverState);
}

#[test]
fn what_the_reference_readers_refuse_is_a_finding() {
    let header = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    let whole = safetensors(header, b"abREST");
    assert!(safetensors::SafeTensors::deserialize(&whole).is_err());
    let file = open("x", &whole).unwrap();
    let fault = &file.faults()[0];
    assert_eq!(fault.offset(), whole.len() as u64 - 4);
    assert!(fault.message().contains("found 4 bytes behind them"), "{fault}");
    // A V0 layer, and in the V1 layer around the first a blob that is not a message.
    let blob = b"\x2A\x08\0\0\x80\x3F\0\0\0\x40\x3A\x03\x0A\x01\x02";
    // Field 50, length-delimited.
    let nested = [len(1, b"ip"), vec![0x92, 0x03, blob.len() as u8], blob.to_vec()].concat();
    let net = len(2, &[len(1, &nested), len(6, &[0x07])].concat());
    let file = open("x", &net).unwrap();
    assert_eq!(file.entries().len(), 1);
    assert_eq!(file.faults().len(), 1, "{:?}", file.faults());
}

#[test]
fn a_member_of_two_names_is_a_fault() {
    let content = npy("'<f4'", "(1,)", &[0; 4]);
    let bytes = theirs(zip::CompressionMethod::Stored, &[("a.npy", &content)]);
    let local = find(&bytes, b"a.npy");
    let file = open("x", &changed(&bytes, local, b"b")).unwrap();
    let fault = file.entries()[0].fault().expect("a fault");
    assert_eq!(fault.offset(), local as u64);
    assert!(fault.message().ends_with("found \"b.npy\""), "{fault}");
}

/// Asserts that the array is listed with this dtype, shape and size, without a fault, and does not load.
fn listed(name: &str, bytes: &[u8], dtype: &str, dims: &[usize], len: u64) {
    let file = open(name, bytes).unwrap();
    let entry = &file.entries()[0];
    assert_eq!(entry.fault(), None, "{dtype}");
    assert_eq!(entry.foreign_dtype(), Some(dtype));
    assert_eq!((entry.dtype(), entry.shape().dims()), (None, dims), "{dtype}");
    assert_eq!(entry.byte_len(), len, "{dtype}");
    let loaded = [file.load(entry).map(drop), file.view(entry).map(drop), file.reader(entry).map(drop)];
    for outcome in loaded {
        let error = outcome.expect_err(dtype);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(error.reason(), Reason::Unsupported);
        assert!(error.to_string().contains(dtype), "{error}");
    }
    // A copy of the file would need no array to be read.
    let options = blob_convert::Options::new(Format::Npz).with(|options| options.anew = true);
    let refused = blob_convert::plan(&file, &options, &blob_convert::Place::Stdout).expect_err("not converted");
    assert_eq!(refused.reason(), Reason::Unsupported, "{refused}");
}

#[test]
fn dtypes_that_blobs_do_not_have_are_listed() {
    for (dtype, bits) in [
        ("F8_E4M3", 8),
        ("F8_E5M2", 8),
        ("F8_E8M0", 8),
        ("F8_E4M3FNUZ", 8),
        ("F8_E5M2FNUZ", 8),
        ("F6_E2M3", 6),
        ("F6_E3M2", 6),
        ("F4", 4),
        ("C64", 64),
    ] {
        let len = 4 * bits / 8;
        let header = format!(r#"{{"a":{{"dtype":"{dtype}","shape":[2,2],"data_offsets":[0,{len}]}}}}"#);
        let bytes = safetensors(&header, &vec![0; len]);
        safetensors::SafeTensors::deserialize(&bytes).expect("sound");
        listed("x", &bytes, dtype, &[2, 2], len as u64);
    }
    for (descr, size) in
        [("<c8", 8), (">c16", 16), ("<f16", 16), ("|S5", 5), ("<U3", 12), ("<M8[ns]", 8), ("<m8[s]", 8), ("|V7", 7)]
    {
        let bytes = npy(&format!("'{descr}'"), "(2, 2)", &vec![0; 4 * size]);
        listed("x.npy", &bytes, descr, &[2, 2], 4 * size as u64);
        let zip = theirs(zip::CompressionMethod::Deflated, &[("a.npy", &bytes)]);
        listed("x.npz", &zip, descr, &[2, 2], 4 * size as u64);
    }
    let record = npy("[('a', '<f4'), ('b', '<f4', (2, 2))]", "(3,)", &[0; 60]);
    listed("x.npy", &record, "record", &[3], 60);
}

#[test]
fn an_order_may_be_missing_or_the_machine_s_own() {
    for descr in ["'f4'", "'=f4'", "u'<f4'", "'|f4'"] {
        let file = open("x.npy", &npy(descr, "(1,)", &1.5_f32.to_le_bytes())).unwrap();
        let blob = file.load(&file.entries()[0]).unwrap();
        assert_eq!(*blob.data().elements::<f32>().unwrap(), [1.5], "{descr}");
    }
}

#[test]
fn names_in_a_solver_state_make_no_onnx_model() {
    let blob = [floats(&[1.0]), shape(&[1])].concat();
    let state = [var(1, 10), len(2, b"mxnet/lenet_iter_10.caffemodel"), len(3, &blob)].concat();
    assert_eq!(open("x", &state).expect("opens").format(), Format::SolverState);
    let legacy = [var(1, 1), shape(&[1, 1, 1, 2]), var(2, 1), var(3, 1), var(4, 2), floats(&[1.0, 2.0])];
    assert_eq!(open("x", &legacy.concat()).expect("opens").format(), Format::BlobProto);
    let onnx = [var(1, 7), len(2, b"pytorch"), len(7, b""), len(8, b"")].concat();
    assert_eq!(open("x", &onnx).expect("opens").format(), Format::Onnx);
}

#[test]
fn a_label_tells_a_datum_whatever_its_name() {
    let mut datum = [var(1, 1), var(2, 1), var(3, 2)].concat();
    for value in [1.5_f32, 2.5] {
        datum.extend(varint(6 << 3 | 5));
        datum.extend(value.to_le_bytes());
    }
    datum.extend(var(5, 7));
    let checkpoint = open("x.binaryproto", &datum).expect("opens");
    assert_eq!(checkpoint.format(), Format::Datum);
    assert_eq!(checkpoint.entries()[0].shape().dims(), [1, 1, 2]);
}

#[test]
fn values_that_look_like_the_mark_of_a_tar_are_values() {
    // A BlobProto of 600 bytes of values.
    let blob = changed(&[len(5, &[0; 600]), shape(&[150])].concat(), 257, b"ustar");
    let opened = OpenOptions::new().from(Format::BlobProto).open_source("x", Box::new(Bytes(blob)));
    assert_eq!(opened.expect("opens").entries().len(), 1);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.params");
    let zeros = AnyBlob::new(Shape::new([600]).expect("fits"), DType::U8).expect("a blob");
    Writer::new(Format::MxnetList).tensor("w", &zeros).write(&path, IfExists::Refuse).expect("written");
    let marked = changed(&fs::read(&path).expect("readable"), 257, b"ustar");
    for options in [OpenOptions::new(), OpenOptions::new().from(Format::MxnetList)] {
        let opened = options.open_source("x", Box::new(Bytes(marked.clone()))).expect("opens");
        assert_eq!((opened.format(), opened.entries().len()), (Format::MxnetList, 1));
    }
}

#[test]
fn a_path_out_of_an_error_opens_its_member() {
    let params = fs::read(data("mxnet/golden/mxnet-0.11.0/none_first.nd")).expect("readable");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.tar");
    for odd in ["a//net.params", "./a/./net.params"] {
        fs::write(&path, tarred([(odd, &params[..]), ("other.params", &params[..])])).expect("written");
        let said = Checkpoint::open(&path).expect_err("two").to_string();
        let (_, named) = said.rsplit_once("by its path: ").expect("a path");
        assert_eq!(
            Checkpoint::open(named).expect(odd).entries().len(),
            open("x", &params).expect("opens").entries().len()
        );
    }
}
