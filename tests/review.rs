//! Findings of a review, kept as tests: bounds that summed up, warnings that were missing, guesses that were wrong.

use blob_io::{Bytes, Checkpoint, Format, Kind};

use crate::alloc::peak;
use crate::support::varint;

/// A length-delimited field.
fn len(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A varint field.
fn var(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn shape(dims: &[u64]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|d| varint(*d)).collect();
    len(7, &len(1, &dims))
}

fn floats(values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    len(5, &bytes)
}

fn layer(name: &str, blob: &[u8]) -> Vec<u8> {
    len(100, &[len(1, name.as_bytes()), len(2, b"X"), len(7, blob)].concat())
}

fn open(name: &str, bytes: Vec<u8>) -> Result<Checkpoint, blob_io::Error> {
    Checkpoint::from_source(name, Box::new(Bytes::new(bytes)))
}

fn warnings(checkpoint: &Checkpoint) -> Vec<String> {
    let entries = checkpoint.entries().iter();
    entries.flat_map(|e| e.warnings().map(|w| w.text().to_owned())).collect()
}

#[test]
fn arrays_in_many_pieces_stay_within_the_file_s_bound() {
    let pieces = floats(&[1.0, 2.0]).repeat(60_000);
    let blob = [shape(&[120_000]), pieces].concat();
    let file: Vec<u8> = (0..60).flat_map(|i| layer(&format!("l{i}"), &blob)).collect();
    let mut checkpoint = None;
    let used = peak(|| checkpoint = Some(open("pieces.caffemodel", file).expect("opens")));
    let checkpoint = checkpoint.expect("opened");
    assert!(used < (16 << 20) + 256 * 60, "{used}");
    // The first two fit; what is beyond the bound is listed with what is wrong.
    assert!(checkpoint.load(&checkpoint.entries()[1]).is_ok());
    let error = checkpoint.load(&checkpoint.entries()[59]).expect_err("too many pieces");
    assert!(error.to_string().contains("separate runs"), "{error}");
}

#[test]
fn a_million_faults_stay_within_their_bound() {
    let blobs = [0x3A, 0x02, 0x62, 0x00].repeat(1 << 20);
    let file = len(100, &[len(1, b"x"), blobs].concat());
    let used = peak(|| {
        let checkpoint = open("faults.caffemodel", file).expect("opens");
        assert!(checkpoint.entries().iter().all(|e| e.fault().is_some()));
    });
    assert!(used < (16 << 20) + (256 << 20), "{used}");
}

#[test]
fn an_entry_of_another_file_is_an_error() {
    let small = open("a.binaryproto", [floats(&[1.0]), shape(&[1])].concat()).expect("opens");
    let big = open("b.binaryproto", [floats(&[1.0; 1000]), shape(&[1000])].concat()).expect("opens");
    assert!(small.view(&big.entries()[0]).is_err());
    assert!(small.load(&big.entries()[0]).is_err());
}

#[test]
fn a_repeated_layer_name_is_told() {
    let blob = [floats(&[1.0]), shape(&[1])].concat();
    let once = open("a.caffemodel", layer("conv1", &blob)).expect("opens");
    assert_eq!(warnings(&once).len(), 0);
    let file = [layer("conv1", &blob), layer("conv1", &blob)].concat();
    let twice = open("a.caffemodel", file).expect("opens");
    assert_eq!(twice.entries()[1].name(), "conv1@1/0");
    assert!(warnings(&twice)[0].contains("used before"));
}

#[test]
fn weights_around_a_v0_layer_are_told() {
    let nested = len(1, &[len(1, b"in"), len(2, b"conv")].concat());
    let blob = len(6, &[floats(&[3.0]), shape(&[1])].concat());
    let file = len(2, &[nested, len(4, b"out"), var(5, 4), blob].concat());
    let net = open("a.caffemodel", file).expect("opens");
    assert_eq!(net.entries()[0].name(), "in/0");
    assert_eq!(net.entries()[0].layer_type(), Some("Convolution"));
    assert!(warnings(&net)[0].contains("V1 layer around a V0 layer"));
}

#[test]
fn names_in_a_solver_state_make_no_onnx_model() {
    let blob = [floats(&[1.0]), shape(&[1])].concat();
    let state = [var(1, 10), len(2, b"mxnet/lenet_iter_10.caffemodel"), len(3, &blob)].concat();
    assert_eq!(open("x", state).expect("opens").format(), Format::SolverState);
    let legacy = [var(1, 1), shape(&[1, 1, 1, 2]), var(2, 1), var(3, 1), var(4, 2), floats(&[1.0, 2.0])];
    assert_eq!(open("x", legacy.concat()).expect("opens").format(), Format::BlobProto);
    let onnx = [var(1, 7), len(2, b"pytorch"), len(7, b""), len(8, b"")].concat();
    assert!(open("x", onnx).expect_err("ONNX").to_string().contains("ONNX"));
}

#[test]
fn empty_doubles_leave_room_for_raw_data() {
    let raw = [1.0_f32, 2.0].map(f32::to_le_bytes).concat();
    let blob = [shape(&[2]), len(8, b""), var(10, 1), len(12, &raw)].concat();
    let checkpoint = open("a.binaryproto", blob).expect("opens");
    let loaded = checkpoint.load(&checkpoint.entries()[0]).expect("loads");
    assert_eq!(*loaded.data().elements::<f32>().expect("floats"), [1.0, 2.0]);
}

#[test]
fn interleaved_doubles_are_two_runs() {
    let mut blob = shape(&[70_000]);
    for i in 0..70_000_u32 {
        for (number, value) in [(8_u64, f64::from(i)), (9, -f64::from(i))] {
            blob.extend(varint(number << 3 | 1));
            blob.extend(value.to_le_bytes());
        }
    }
    let checkpoint = open("a.binaryproto", blob).expect("opens");
    let pair = checkpoint.load_pair(&checkpoint.entries()[0]).expect("loads");
    assert_eq!(pair.data().elements::<f64>().expect("doubles")[69_999], 69_999.0);
    assert_eq!(pair.diff().elements::<f64>().expect("doubles")[69_999], -69_999.0);
    assert_eq!(checkpoint.entries()[1].kind(), Kind::Diff);
    assert_eq!(checkpoint.entries()[0].segments().len(), 1);
}

#[test]
fn a_label_tells_a_datum_whatever_its_name() {
    let mut datum = [var(1, 1), var(2, 1), var(3, 2)].concat();
    for value in [1.5_f32, 2.5] {
        datum.extend(varint(6 << 3 | 5));
        datum.extend(value.to_le_bytes());
    }
    datum.extend(var(5, 7));
    let checkpoint = open("x.binaryproto", datum).expect("opens");
    assert_eq!(checkpoint.format(), Format::Datum);
    assert_eq!(checkpoint.entries()[0].shape().dims(), [1, 1, 2]);
}
