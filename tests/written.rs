//! Files written can be read: safetensors and npy in both directions with other crates, the layout of files, file
//! names, pipes.

use std::collections::HashMap;

use blob_core::{DType, Shape};
use blob_io::layout::{Frame, Layout, TensorSpec, file_names};
use blob_io::{Error, Format, IfExists};
use proptest::collection::vec;
use proptest::prelude::*;
use safetensors::tensor::{SafeTensors, TensorView};
use serde_json::Value;

use crate::support::open;
use crate::support::tensors::{Tensor, check_identity, tensor, tensors, write, writer, written};

proptest! {
    #[test]
    fn what_is_written_as_safetensors_is_read(tensors in tensors(), value in any::<String>()) {
        let metadata = [("blob.receipt".to_owned(), value), ("a \"key\"".to_owned(), "ü\n".to_owned())];
        let bytes = written(Format::Safetensors, &tensors, &metadata);
        let file = open("x", &bytes).unwrap();
        prop_assert_eq!(file.format(), Format::Safetensors);
        check_identity(&file, &tensors, DType::BF16)?;
        prop_assert_eq!(file.metadata(), &metadata[..]);
        // The crate of the format's authors reads the same.
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        prop_assert_eq!(theirs.len(), tensors.len());
        for tensor in &tensors {
            let view = theirs.tensor(&tensor.name).unwrap();
            prop_assert_eq!(view.dtype().to_string().to_lowercase(), tensor.dtype.name());
            prop_assert_eq!((view.shape(), view.data()), (&tensor.dims[..], &tensor.bytes[..]));
        }
        let (_, read) = SafeTensors::read_metadata(&bytes).unwrap();
        let map: HashMap<String, String> = metadata.into_iter().collect();
        prop_assert_eq!(read.metadata(), &Some(map));
    }

    #[test]
    fn what_the_safetensors_crate_writes_is_read(tensors in tensors()) {
        let dtype = |dtype: DType| {
            let name = Value::from(dtype.name().to_uppercase());
            serde_json::from_value::<safetensors::Dtype>(name).unwrap()
        };
        let views = tensors.iter().map(|t| {
            let view = TensorView::new(dtype(t.dtype), t.dims.clone(), &t.bytes);
            (t.name.as_str(), view.unwrap())
        });
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let bytes = safetensors::serialize(views, Some(metadata)).unwrap();
        let file = open("x", &bytes).unwrap();
        check_identity(&file, &tensors, DType::BF16)?;
        prop_assert_eq!(file.metadata(), [("format".to_owned(), "pt".to_owned())]);
    }

    #[test]
    fn what_is_written_as_npy_is_read(tensor in tensor()) {
        let tensors = [tensor];
        let bytes = written(Format::Npy, &tensors, &[]);
        check_identity(&open("x", &bytes).unwrap(), &tensors, DType::U16)?;
        let header = npyz::NpyHeader::from_reader(&bytes[..]).unwrap();
        let dims: Vec<u64> = tensors[0].dims.iter().map(|d| *d as u64).collect();
        prop_assert_eq!(header.shape(), &dims[..]);
        prop_assert_eq!((bytes.len() - tensors[0].bytes.len()) % 64, 0);
    }

    #[test]
    fn names_of_files_are_safe_and_differ(names in vec(prop_oneof![any::<String>(), "[./\\\\:%aA~2]{0,12}", "[Bb]lob[.][Rr]eceipt[.]json/{0,2}x?"], 0..20)) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let paths = file_names(&names);
        let mut seen = std::collections::HashSet::new();
        for (name, path) in names.iter().zip(&paths) {
            prop_assert!(seen.insert(path.to_lowercase()), "{path:?} twice");
            let (first, rest) = path.split_once('/').unwrap_or((path, ""));
            prop_assert!(rest.is_empty() || !first.eq_ignore_ascii_case("blob.receipt.json"), "{path:?}");
            for part in path.split('/') {
                prop_assert!(!part.is_empty() && part != "." && part != ".." && part.len() <= 220, "{path:?}");
                prop_assert!(!part.contains(['\\', ':', '\0']) && !part.contains(char::is_control));
                prop_assert!(!part.ends_with(['.', ' ']));
            }
            // A name that is neither cut nor numbered can be decoded.
            if path == &file_names(&[name])[0] && !path.contains('~') && !name.is_empty() {
                let decoded: Vec<String> = path.split('/').map(decode).collect();
                prop_assert_eq!(decoded.join("/"), *name);
            }
        }
    }
}

fn decode(part: &str) -> String {
    if part == "%" {
        return String::new();
    }
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                let hex = std::str::from_utf8(&tail[..2]).unwrap();
                bytes.push(u8::from_str_radix(hex, 16).unwrap());
                rest = &tail[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn spec(name: &str, dtype: DType, dims: &[usize]) -> TensorSpec {
    TensorSpec::new(name, dtype, Shape::new(dims).unwrap())
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn safetensors_are_laid_out_by_element_size_without_holes() {
    let specs = [
        spec("u8", DType::U8, &[3]),
        spec("f32", DType::F32, &[1]),
        spec("f64", DType::F64, &[2]),
        spec("bf16", DType::BF16, &[5]),
        spec("i64", DType::I64, &[1]),
        spec("none", DType::F64, &[0]),
    ];
    let layout = Layout::new(&specs, Frame::Safetensors { metadata: &[] }).unwrap();
    let start = layout.offsets()[2];
    assert_eq!(start % 64, 0);
    let offsets: Vec<u64> = layout.offsets().iter().map(|offset| offset - start).collect();
    assert_eq!(offsets, [38, 24, 0, 28, 16, 24]);
    assert_eq!(layout.len(), start + 41);
    assert!(!layout.wants_crc());
    let frame = layout.frame(&[], &[]).unwrap();
    assert_eq!(frame.len(), 1);
    assert_eq!((frame[0].0, frame[0].1.len() as u64), (0, start));
}

#[test]
fn a_frame_takes_the_length_that_was_planned() {
    let specs = [spec("a", DType::U8, &[1])];
    let planned = pairs(&[("blob.receipt", "0000")]);
    for (layout, crcs) in [
        (Layout::new(&specs, Frame::Safetensors { metadata: &planned }).unwrap(), &[][..]),
        (Layout::new(&specs, Frame::Npz { metadata: &planned }).unwrap(), &[0]),
    ] {
        assert!(layout.frame(&pairs(&[("blob.receipt", "12ab")]), crcs).is_ok());
        for other in
            [&[("blob.receipt", "12abc")][..], &[("other", "12ab")], &[], &[("blob.receipt", "0000"), ("x", "")]]
        {
            let refused = layout.frame(&pairs(other), crcs).unwrap_err();
            assert!(matches!(refused, Error::Request { .. }), "{refused}");
        }
    }
    let npz = Layout::new(&specs, Frame::Npz { metadata: &planned }).unwrap();
    assert!(npz.wants_crc() && npz.frame(&planned, &[]).is_err());
}

#[test]
fn what_no_file_can_hold_is_refused() {
    let a = spec("a", DType::U8, &[1]);
    let refusals = [
        Layout::new(&[a.clone(), a.clone()], Frame::Safetensors { metadata: &[] }),
        Layout::new(&[a.clone(), a.clone()], Frame::Npz { metadata: &[] }),
        Layout::new(&[spec("__metadata__", DType::U8, &[1])], Frame::Safetensors { metadata: &[] }),
        Layout::new(&[], Frame::Safetensors { metadata: &pairs(&[("k", "1"), ("k", "2")]) }),
        Layout::new(&[], Frame::Npz { metadata: &pairs(&[("k", "1"), ("k", "2")]) }),
        Layout::new(&[spec("a", DType::F64, &[isize::MAX as usize])], Frame::Safetensors { metadata: &[] }),
        Layout::new(&[spec("a", DType::F64, &[isize::MAX as usize])], Frame::Npz { metadata: &[] }),
        Layout::new(&[spec("a", DType::U8, &[isize::MAX as usize])], Frame::Npy),
        Layout::new(&[], Frame::Safetensors { metadata: &[("k".to_owned(), "x".repeat(100_000_000))] }),
        Layout::new(&[spec(&"é".repeat(32_500), DType::U8, &[1])], Frame::Npz { metadata: &[] }),
    ];
    for refused in refusals {
        assert!(matches!(refused, Err(Error::Request { .. })), "{refused:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let two = [Tensor::new("a", DType::U8, &[], &[1]), Tensor::new("b", DType::U8, &[], &[1])];
    for (format, tensors, metadata) in [
        (Format::Npy, &two[..], pairs(&[])),
        (Format::Npy, &[], pairs(&[])),
        (Format::Npy, &two[..1], pairs(&[("k", "v")])),
        (Format::CaffeModel, &two, pairs(&[])),
    ] {
        let refused = writer(format, tensors, &metadata).write(&path, IfExists::Replace);
        assert!(matches!(refused, Err(Error::Request { .. } | Error::Misfit { .. })), "{refused:?}");
        assert!(!path.exists());
    }
}

#[test]
#[cfg(unix)]
fn through_a_pipe_come_the_same_bytes() {
    let tensors = [
        Tensor::new("a", DType::U8, &[3], &[1, 2, 3]),
        Tensor::new("b", DType::F64, &[0, 4], &[]),
        Tensor::new("c", DType::F32, &[2], &[0, 1, 2, 3, 4, 5, 6, 7]),
    ];
    let metadata = pairs(&[("blob.receipt", "{}")]);
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Safetensors, Format::Npz] {
        let pipe = folder.path().join(format.name());
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        write(&pipe, format, &tensors, &metadata);
        assert_eq!(reader.join().unwrap(), written(format, &tensors, &metadata));
    }
}
