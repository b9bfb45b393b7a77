//! Small files of f32 tensors, each a name, a shape and values, and the values of such files.

use blob_convert::Options;
use blob_core::{AnyBlob, DType, Shape};
use blob_io::caffe::prototxt;
use blob_io::net::Net;
use blob_io::{Checkpoint, Format, IfExists, Writer};

use super::conversion::to_bytes;

pub(crate) const SAFETENSORS: Format = Format::Safetensors;

/// A file of these tensors.
pub(crate) fn file(format: Format, tensors: &[(&str, &[usize], &[f32])]) -> Checkpoint {
    Checkpoint::from_bytes("file", bytes_of(format, tensors)).expect("opens")
}

/// The bytes of a file of these tensors.
pub(crate) fn bytes_of(format: Format, tensors: &[(&str, &[usize], &[f32])]) -> Vec<u8> {
    let blob = |(name, dims, values): &(&str, &[usize], &[f32])| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = Shape::new(dims).expect("a shape");
        (name.to_string(), AnyBlob::from_vec(shape, DType::F32, bytes).expect("a blob"))
    };
    let blobs: Vec<(String, AnyBlob)> = tensors.iter().map(blob).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let writer = blobs.iter().fold(Writer::new(format), |writer, (name, blob)| writer.tensor(name, blob));
    writer.write(&path, IfExists::Refuse).expect("written");
    std::fs::read(&path).expect("readable")
}

/// The values of a tensor of f32.
pub(crate) fn values(file: &Checkpoint, name: &str) -> Vec<f32> {
    let entry = file.entry(name).unwrap_or_else(|| panic!("no {name:?} in {:?}", file.names().collect::<Vec<_>>()));
    let bytes = file.view(entry).expect("views").into_owned();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The values of a tensor of any dtype, as doubles.
pub(crate) fn wide(file: &Checkpoint, name: &str) -> Vec<f64> {
    let entry = file.entry(name).unwrap_or_else(|| panic!("no {name:?} in {:?}", file.names().collect::<Vec<_>>()));
    let (dtype, mut wide) = (entry.dtype().expect("a dtype"), Vec::new());
    blob_ops::convert_bytes(dtype, &file.view(entry).expect("views"), DType::F64, &mut wide);
    wide.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

pub(crate) fn net(text: &str) -> Net {
    prototxt("net.prototxt", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a conversion to safetensors.
pub(crate) fn run(source: &Checkpoint, options: &Options) -> Checkpoint {
    let bytes = to_bytes(source, options).unwrap_or_else(|e| panic!("{e}"));
    Checkpoint::from_bytes("out.safetensors", bytes).expect("opens")
}
