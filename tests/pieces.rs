//! Values stored in pieces, as protobuf allows: a receipt's frame records where each piece is, and a restoration puts
//! it there. A change of the blob leaves pieces that stay as they are.

use std::path::Path;
use std::process::Stdio;

use blob_convert::Options;
use blob_core::{DType, Shape};
use blob_io::caffe::BlobForm;
use blob_io::layout::{Layout, Splice, TensorSpec};
use blob_io::{Bytes, Checkpoint, Format, OpenOptions};
use serde_json::json;

use crate::caffe_splice::spliced;
use crate::support::message::{layer, len, shape};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{blob, command, open};
use crate::there_and_back::{convert, read};

/// Caffe files whose values are in pieces: packed in several fields, unpacked with a key each, or both.
fn in_pieces() -> Vec<(&'static str, Vec<u8>)> {
    let floats = |from: u32, count: u32| (from..from + count).map(|i| (i as f32).to_le_bytes()).collect::<Vec<_>>();
    let packed = |from, count| len(5, &floats(from, count).concat());
    let unpacked = |from, count| floats(from, count).iter().flat_map(|value| [&[0x2D], &value[..]].concat()).collect();
    let shape = |dim: u8| len(7, &len(1, &[dim]));
    let mixed: [Vec<u8>; 6] = [packed(0, 3), unpacked(3, 4), shape(12), packed(7, 1), unpacked(8, 1), packed(9, 3)];
    // The bytes between the values differ: each is followed by an unknown field with another value.
    let odd = (0..40_u8).flat_map(|i| [&[0x2D], &f32::from(i).to_le_bytes()[..], &[0xA0, 0x06, i]].concat()).collect();
    let doubles = (0..9).flat_map(|i| [&[0x41], &f64::from(i).to_le_bytes()[..]].concat()).collect();
    vec![
        ("mixed", mixed.concat()),
        ("odd", [odd, shape(40)].concat()),
        ("doubles", [shape(9), doubles].concat()),
        ("many", [unpacked(0, 100), shape(100)].concat()),
    ]
}

#[test]
fn values_in_pieces_come_back_to_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    for (name, bytes) in in_pieces() {
        std::fs::write(place("source"), &bytes).expect("written");
        for via in ["x.safetensors", "x.npz"] {
            blob(&["convert", "--force", &place("source"), "-o", &place(via)]).ok();
            blob(&["convert", "--force", "--to", "binaryproto", &place(via), "-o", &place("back")]).ok();
            assert!(read(Path::new(&place("back"))) == bytes, "{name} through {via}");
            let mut piped = command(&["convert", "--to", "binaryproto", &place(via), "-o", "-"]);
            assert!(
                piped.stdin(Stdio::null()).output().expect("runs").stdout == bytes,
                "{name} through {via} and a pipe"
            );
        }
        // Other values replace the old ones, piece by piece.
        let carrier = read(Path::new(&place("x.safetensors")));
        let source = Checkpoint::open(place("source")).expect("opens");
        let at = open("x.safetensors", &carrier).expect("opens").entries()[0].offset().expect("a place") as usize;
        let width = source.entries()[0].dtype().expect("a dtype").size();
        let (mut changed, mut wanted) = (carrier, bytes);
        let runs = source.entries()[0].segments().iter();
        let places = runs.flat_map(|run| (0..run.count).map(move |i| (run.offset + i * run.stride) as usize));
        for (value, place) in places.enumerate() {
            let new = &(value as u64 * 7 + 1).to_le_bytes()[..width];
            changed[at + value * width..][..width].copy_from_slice(new);
            wanted[place..][..width].copy_from_slice(new);
        }
        let out = folder.path().join("other");
        let notes = convert(&open("x.safetensors", &changed).expect("opens"), &Options::new(Format::BlobProto), &out);
        assert_eq!(notes.expect("converts"), [""; 0]);
        assert!(read(&out) == wanted, "{name}");
        std::fs::remove_file(&out).expect("removable");
    }
}

/// A Datum of one row of floats, as field 6 with a key each.
fn datum(count: u32) -> Vec<u8> {
    let mut file = vec![8, 1, 16, 1, 24];
    let mut rest = count;
    while rest >= 128 {
        file.push(rest as u8 | 128);
        rest >>= 7;
    }
    file.push(rest as u8);
    file.extend((0..count).flat_map(|i| [&[0x35], &i.to_le_bytes()[..]].concat()));
    file
}

/// A receipt describes repeated pieces by four numbers. It is not used if they describe too many pieces or are false.
#[test]
fn pieces_are_described_shortly_and_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let carried = |count: u32| {
        let (out, options) = (folder.path().join(count.to_string()), OpenOptions::new().from(Format::Datum));
        let source = options.open_source("x.datum", Box::new(Bytes(datum(count)))).expect("opens");
        convert(&source, &Options::new(Format::Safetensors), &out).expect("converts");
        read(&out)
    };
    let bytes = carried(1000);
    let short = receipt(&open("x.safetensors", &bytes).expect("opens"));
    assert_eq!(short["frame"]["holes"], json!([[8, 4, 1000, 5]]));
    let long = receipt(&open("x.safetensors", &carried((1 << 20) + 1)).expect("opens"));
    assert_eq!(long["frame_left_out"], json!("values lie in more than 1,048,576 pieces"));
    for lie in [
        json!([[8, 4, u64::MAX, 5]]),
        json!([[8, 4, 1000, u64::MAX]]),
        json!([[8, 4, 1000, 4]]),
        json!([[8, 4, 999, 5]]),
        json!([[8, 4, 1000, 0]]),
        json!([[8, 4, 0, 5]]),
        json!([[8, 4, 1000]]),
    ] {
        let mut receipt = short.clone();
        receipt["frame"]["holes"] = lie.clone();
        let carrier = open("x.safetensors", &with_receipt(&bytes, &receipt, "", None)).expect("opens");
        let notes = convert(&carrier, &Options::new(Format::Datum), &folder.path().join("back")).expect("converts");
        assert!(notes.len() == 1 && notes[0].starts_with("the datum is written anew"), "{notes:?}: {lie}");
        std::fs::remove_file(folder.path().join("back")).expect("removable");
    }
}

/// Interleaved values of data and diff have no frame.
#[test]
fn a_receipt_says_that_data_and_diff_lie_between_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let shape = shape(&[4]);
    let order: [&[u8]; 2] = [&[5, 6, 5, 6, 5, 6, 5, 6], &[5, 5, 6, 6, 6, 5, 5, 6]];
    let after: &[u8] = &[5, 5, 5, 5, 6, 6, 6, 6];
    for (place, (numbers, kept)) in order.iter().map(|order| (*order, false)).chain([(after, true)]).enumerate() {
        let values = numbers
            .iter()
            .enumerate()
            .flat_map(|(i, number)| [&[*number << 3 | 5][..], &(i as f32).to_le_bytes()].concat());
        let file: Vec<u8> = shape.iter().copied().chain(values).collect();
        let out = folder.path().join(format!("{place}.safetensors"));
        convert(&open("x.binaryproto", &file).expect("opens"), &Options::new(Format::Safetensors), &out).expect("fits");
        let receipt = receipt(&Checkpoint::open(&out).expect("opens"));
        assert_eq!(receipt["frame"].is_object(), kept, "{receipt}");
        let why = "values of two tensors, as data and diff, lie between each other, or share bytes";
        assert!(kept || receipt["frame_left_out"] == why, "{receipt}");
    }
}

/// A net of one blob with a diff, each value with a key of its own, and the fields of the data and of the diff.
fn unpacked() -> (Vec<u8>, [Vec<u8>; 2]) {
    let values = |number: u8, from: u8| -> Vec<u8> {
        (from..from + 3).flat_map(|i| [&[number << 3 | 5][..], &f32::from(i).to_le_bytes()].concat()).collect()
    };
    let [data, diff] = [values(5, 1), values(6, 4)];
    (layer("conv", &[&data[..], &diff, &shape(&[3])].concat()), [data, diff])
}

/// Values with a key each stay as they are stored, where another part of their blob changes.
#[test]
fn unpacked_values_are_kept_beside_a_change() {
    let (bytes, [data, diff]) = unpacked();
    let base = Checkpoint::from_bytes("x.caffemodel", bytes.clone()).expect("opens");
    let spec = [TensorSpec::new("t", DType::F32, Shape::new([3]).expect("a shape"))];
    let new: Vec<u8> = [7_f32, 8.0, 9.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut splice = Splice::new(&base).expect("of Caffe");
    splice.remove("conv/0.diff").expect("there");
    let net = |values: [&[u8]; 2]| layer("conv", &[values.concat(), shape(&[3])].concat());
    assert!(spliced(&bytes, &splice, &[], &[]) == net([&data, &[]]));
    for (name, wanted) in [("conv/0", net([&len(5, &new), &diff])), ("conv/0.diff", net([&data, &len(6, &new)]))] {
        let mut splice = Splice::new(&base).expect("of Caffe");
        splice.replace(name, 0).expect("there");
        assert!(spliced(&bytes, &splice, &spec, std::slice::from_ref(&new)) == wanted, "{name}");
        splice.form = Some(BlobForm { raw: true, ..BlobForm::default() });
        let error = Layout::spliced(&spec, &splice).expect_err("has no place").to_string();
        assert!(error.contains("keeps unpacked values, which raw_data does not hold"), "{error}");
    }
    // Of data and diff that lie between each other, neither is one run.
    let between: Vec<u8> =
        (0..6_u8).flat_map(|i| [&[(5 + i % 2) << 3 | 5][..], &f32::from(i).to_le_bytes()].concat()).collect();
    let bytes = layer("conv", &[&between[..], &shape(&[3])].concat());
    let base = Checkpoint::from_bytes("x.caffemodel", bytes).expect("opens");
    let mut splice = Splice::new(&base).expect("of Caffe");
    splice.replace("conv/0", 0).expect("there");
    let error = Layout::spliced(&spec, &splice).expect_err("lies between").to_string();
    assert!(error.contains("keeps values between which other fields lie"), "{error}");
}
