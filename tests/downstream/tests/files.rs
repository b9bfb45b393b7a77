//! Files of every format: opened, a tensor found by its name, a range of it read; written again as a user writes them.

use std::io::Read;
use std::path::Path;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists};

/// A file of the tests' data with its format, one of its tensors, that one's shape.
const FILES: &[(&str, Format, &str, &[usize])] = &[
    ("caffe/net/v1.caffemodel", Format::CaffeModel, "conv1/0", &[4, 3, 3, 3]),
    ("caffe/blobproto/f32_2x3x4x5.binaryproto", Format::BlobProto, "@0", &[2, 3, 4, 5]),
    (MXNET, Format::MxnetList, "arg:mobilenet0_25_conv0_weight", &[8, 3, 3, 3]),
    ("other/two.safetensors", Format::Safetensors, "w", &[2, 3]),
    ("other/fortran_big_endian.npy", Format::Npy, "@0", &[2, 3]),
    ("other/numpy_savez.npz", Format::Npz, "w", &[2, 3]),
];
const MXNET: &str = "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params";

fn open(path: &str) -> Checkpoint {
    Checkpoint::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(path)).unwrap()
}

#[test]
fn a_tensor_of_every_format_is_found_and_read_in_part() {
    for (path, format, name, shape) in FILES {
        let checkpoint = open(path);
        assert_eq!(checkpoint.format(), *format);
        let entry = checkpoint.entry(name).unwrap();
        assert_eq!((entry.shape().dims(), entry.dtype()), (*shape, Some(DType::F32)), "{path}");
        let whole = checkpoint.load(entry).unwrap();
        let mut reader = checkpoint.reader(entry).unwrap();
        let mut part = [0; 12];
        reader.by_ref().take(8).read_to_end(&mut Vec::new()).unwrap();
        reader.read_exact(&mut part).unwrap();
        assert_eq!(part, whole.data().range(2..5).unwrap().bytes().unwrap()[..], "{path}");
        assert!(part.iter().any(|byte| *byte != 0), "{path}");
        assert_eq!(checkpoint.names().filter(|found| found == name).count(), 1, "{path}");
    }
}

#[test]
fn tensors_are_written_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (1..=24).collect();
    let blob = AnyBlob::from_vec(Shape::new([2, 3]).unwrap(), DType::F32, bytes.clone()).unwrap();
    for (format, file) in [(Format::Safetensors, "t.safetensors"), (Format::Npz, "t.npz"), (Format::Npy, "t.npy")] {
        let path = folder.path().join(file);
        blob_io::write_tensors(&path, format, &[("w", &blob)], &[], IfExists::Refuse).unwrap();
        let checkpoint = Checkpoint::from_bytes(file, std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((checkpoint.format(), checkpoint.entries().len()), (format, 1));
        assert_eq!(checkpoint.view(&checkpoint.entries()[0]).unwrap()[..], bytes);
    }
}

#[test]
fn a_checkpoint_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.npz");
    let source = open("caffe/net/v1.caffemodel");
    let target = blob_convert::Target::File { path: &path, if_exists: IfExists::Refuse };
    let options = blob_convert::Options::new(Format::Npz);
    blob_convert::plan(&source, &options, &target).unwrap().run(&blob_convert::Silent).unwrap();
    let target = Checkpoint::open(&path).unwrap();
    let (old, new) = (source.entry("ip/0").unwrap(), target.entry("ip/0").unwrap());
    assert!(source.view(old).unwrap() == target.view(new).unwrap());
}
