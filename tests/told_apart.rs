//! Files that begin like something else are read in their own format, and in the one that the caller names.

use blob_io::{Bytes, Checkpoint, Error, Format, OpenOptions};

use crate::support::archive::{npy, safetensors, tarred};
use crate::support::message::{floats, shape};
use crate::support::{blob, data, open};

fn open_as(from: Format, name: &str, bytes: &[u8]) -> Result<Checkpoint, Error> {
    OpenOptions::new().from(from).open_source(name, Box::new(Bytes(bytes.to_vec())))
}

/// Changes a byte from `at` on until the first 512 bytes add up to `sum` as signed bytes, those of a tar's checksum
/// counted as blanks.
fn summed(mut bytes: Vec<u8>, at: usize, sum: i64) -> Vec<u8> {
    for at in at..512 {
        let others = bytes[..148].iter().chain(&bytes[156..512]).map(|byte| i64::from(*byte as i8)).sum::<i64>();
        let left = sum - others - 256;
        bytes[at] = (i64::from(bytes[at] as i8) + left).clamp(-128, 127) as i8 as u8;
    }
    bytes
}

#[test]
pub(crate) fn values_that_add_up_to_zero_are_no_tar() {
    // A blob of 240 zeros, whose bytes in the place of a tar's checksum are zeros too.
    let zeros = [shape(&[240]), floats(&[0.0; 240])].concat();
    let bytes = summed(zeros, 300, 0);
    let file = open("t.binaryproto", &bytes).expect("opens");
    assert_eq!((file.format(), file.entries()[0].shape().dims()), (Format::BlobProto, &[240][..]));
    let net = std::fs::read(data("findings/tarlike.caffemodel")).expect("readable");
    for file in [open("net.caffemodel", &net), open_as(Format::CaffeModel, "x", &net)] {
        assert_eq!(file.expect("opens").format(), Format::CaffeModel);
    }
    // The same with a list, which has a magic.
    let words = [0x112_u32, 0, 0, 0, 1, 0, 0xF993_FAC9, 0, 1, 240, 0, 1, 0, 0];
    let mut list: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    list.extend([0; 960]);
    list.extend([1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'w']);
    let list = summed(list, 300, 0);
    for file in [open("t.params", &list), open_as(Format::MxnetList, "t.params", &list)] {
        assert_eq!(file.expect("opens").names().collect::<Vec<_>>(), ["w"]);
    }
}

#[test]
pub(crate) fn the_callers_format_wins_over_a_checksum() {
    // A blob whose values are a tar header, checksum and all, but for the magic: a tar from before 1988.
    let mut header = tarred([("a", &b""[..])])[..512].to_vec();
    header[257..265].fill(0);
    let head = [shape(&[240]), vec![0x2A, 0xC0, 0x07]].concat();
    header[..head.len()].copy_from_slice(&head);
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let bytes = [header, vec![0; head.len() + 960 - 512]].concat();
    assert!(open("x", &bytes).is_err(), "it begins with a header of a tar");
    let file = open_as(Format::BlobProto, "x", &bytes).expect("opens");
    assert_eq!((file.format(), file.entries()[0].shape().dims()), (Format::BlobProto, &[240][..]));
}

/// Caffe's messages are read by the numbers of their fields, and a message of another kind has some of them too.
#[test]
fn a_message_is_no_other_message_than_its_fields_say() {
    let messages = [Format::CaffeModel, Format::BlobProto, Format::BlobProtoVector, Format::SolverState, Format::Datum];
    let goldens = [
        ("caffe/net/f32_v2.caffemodel", Format::CaffeModel),
        ("caffe/net/v1.caffemodel", Format::CaffeModel),
        ("caffe/misc/state.solverstate", Format::SolverState),
        ("caffe/misc/vector3.blobprotovector", Format::BlobProtoVector),
        ("caffe/misc/u8.datum", Format::Datum),
    ];
    for (path, own) in goldens {
        let bytes = std::fs::read(data(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        for named in messages {
            let read = open_as(named, "x", &bytes).map_err(|e| e.to_string());
            if named == own {
                assert!(!read.expect("opens").entries().is_empty(), "{path}")
            } else {
                assert_eq!(read.err(), Some(format!("x is {}, not {}", own.name(), named.name())), "{path}")
            }
        }
    }
    // An unknown message, and a net of TensorFlow's.
    for named in messages {
        let read = open_as(named, "x", &crate::support::message::len(60, b"?")).expect_err("refused").to_string();
        assert_eq!(read, format!("x is no {}: it has none of its fields", named.name()));
    }
}

#[test]
fn a_named_format_is_that_of_an_archives_member() {
    let array = npy("'<f4'", "(2,)", &[0; 8]);
    let mut tar = tarred([("w.npy", &array[..])]);
    let found = |tar: &[u8]| open_as(Format::Npy, "x.tar", tar).expect("opens").member().map(str::to_owned);
    assert_eq!(found(&tar).as_deref(), Some("w.npy"));
    // A tar without a magic is one still, because the bytes are not of the format that was named.
    tar[257..265].fill(0);
    tar[148..156].fill(b' ');
    let sum: u32 = tar[..512].iter().map(|byte| u32::from(*byte)).sum();
    tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(found(&tar).as_deref(), Some("w.npy"));
}

#[test]
fn a_header_as_long_as_mxnets_magic_is_safetensors() {
    for length in 0x100..0x130_usize {
        let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
        let json = format!("{json}{}", " ".repeat(length - json.len()));
        for name in ["x", "x.safetensors", "x.params"] {
            let file = open(name, &safetensors(&json, b"ab")).unwrap_or_else(|e| panic!("{length}: {e}"));
            assert_eq!(file.format(), Format::Safetensors, "{length}");
        }
    }
}

#[test]
pub(crate) fn a_member_that_inflates_to_nothing_is_refused_whatever_its_size() {
    // A deflated npy header for no values, of 2^64 - 1 bytes by its ZIP64 field.
    let member = npy("'|u1'", "(0,)", b"");
    let mut zip = crate::support::archive::theirs(zip::CompressionMethod::Deflated, &[("a.npy", &member)]);
    let central = zip.windows(4).position(|window| window == b"PK\x01\x02").expect("a directory");
    zip[central + 24..central + 28].fill(0xFF);
    let extra = [&[1, 0, 8, 0][..], &u64::MAX.to_le_bytes()].concat();
    zip[central + 30..central + 32].copy_from_slice(&(extra.len() as u16).to_le_bytes());
    let behind = central + 46 + "a.npy".len();
    zip.splice(behind..behind, extra.iter().copied());
    let end = zip.len() - 22;
    let len = (end - central) as u32;
    zip[end + 12..end + 16].copy_from_slice(&len.to_le_bytes());
    let file = open("size.npz", &zip).expect("opens");
    let entry = &file.entries()[0];
    assert!(file.load(entry).is_err());
    assert!(file.check(entry, &mut |_| Ok(())).is_err());
}

#[test]
fn what_is_left_out_of_an_archive_is_said() {
    let zip = crate::support::archive::Zip::default();
    let zip = zip.add("w.npy", &npy("'<f4'", "(1,)", &[0; 4])).add("model/code.py", b"x").add("b.bin", b"y");
    let file = open("x.npz", &zip.end()).expect("opens");
    let said: Vec<String> = file.warnings().iter().map(|warning| warning.text.to_string()).collect();
    assert_eq!(said, ["members that are no npy files are left out: model/code.py, b.bin"]);
    let behind = safetensors(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#, b"abREST");
    let file = open("x", &behind).expect("opens");
    let said: Vec<String> = file.warnings().iter().map(|warning| warning.text.to_string()).collect();
    assert_eq!(said, ["4 bytes follow the tensors; the reference reader refuses such a file"]);
}

#[test]
fn a_server_that_refuses_is_a_broken_file_as_a_web_page_is() {
    let folder = crate::support::Folder::new();
    for answer in ["<!DOCTYPE html><html></html>", "<Error><Code>AccessDenied</Code></Error>", "Entry not found"] {
        let path = folder.with("x.safetensors", answer);
        blob(&["verify", &path]).no();
    }
}

#[test]
fn an_archive_without_models_says_what_to_do() {
    let help = |members: &[(&str, &[u8])]| {
        let error = open("x.tar", &tarred(members.iter().copied())).expect_err("refused");
        error.help().unwrap_or_default()
    };
    assert!(help(&[("a.txt", b"text")]).starts_with("look for the archive with the weights"));
    assert!(help(&[("a.txt", b"text"), ("b.tar.gz", b"?")]).starts_with("an archive within it"));
}
