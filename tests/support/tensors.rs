//! Generates tensors of any dtype, shape and name, writes them, and checks that a file contains exactly these.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Error, Format, IfExists, Writer};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A tensor to write.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    pub(crate) fn new(name: &str, dtype: DType, dims: &[usize], bytes: &[u8]) -> Self {
        Self { name: name.to_owned(), dtype, dims: dims.to_vec(), bytes: bytes.to_vec() }
    }
}

impl blob_io::Tensor for Tensor {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(Shape::new(&self.dims)?)
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        // Pieces of seven bytes, so that they end inside elements.
        Ok(Box::new(BufReader::with_capacity(7, &self.bytes[..])))
    }
}

/// Generates a tensor `@0` of any dtype and a small shape.
pub(crate) fn tensor() -> impl Strategy<Value = Tensor> {
    let dims = vec(select(vec![0usize, 1, 2, 3, 5, 8]), 0..4);
    (select(DType::ALL.to_vec()), dims).prop_flat_map(|(dtype, dims)| {
        let len = dims.iter().product::<usize>() * dtype.size();
        let byte = if dtype == DType::Bool { 0..=1u8 } else { 0..=255 };
        vec(byte, len).prop_map(move |bytes| Tensor::new("@0", dtype, &dims, &bytes))
    })
}

/// Generates tensors with unique names of all kinds.
pub(crate) fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let odd = ["", ".", "..", "../x", "/x", "a\\b", "C:\\x", "\u{0}", "\"quoted\"\n", "aux", "%41"];
    let name = prop_oneof![
        "[a-z]{1,6}(/[0-9])?",
        "(arg|aux):[a-z]{1,4}\\.[a-zA-Z]{1,4}",
        "[A-Ca-c]",
        any::<String>(),
        select(odd.to_vec()).prop_map(str::to_owned),
    ];
    let named = (name, tensor()).prop_map(|(name, tensor)| Tensor { name, ..tensor });
    vec(named, 0..8).prop_map(|mut all| {
        let mut seen = HashSet::new();
        all.retain(|t| t.name != "__metadata__" && seen.insert(t.name.clone()));
        all
    })
}

/// Writes the tensors to a file and returns its bytes.
pub(crate) fn written(format: Format, tensors: &[Tensor], metadata: &[(String, String)]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    write(&path, format, tensors, metadata);
    std::fs::read(path).unwrap()
}

pub(crate) fn write(path: &Path, format: Format, tensors: &[Tensor], metadata: &[(String, String)]) {
    writer(format, tensors, metadata).write(path, IfExists::Refuse).unwrap();
}

pub(crate) fn writer<'a>(format: Format, tensors: &'a [Tensor], metadata: &[(String, String)]) -> Writer<'a> {
    let writer = tensors.iter().fold(Writer::new(format), |writer, tensor| writer.tensor(&tensor.name, tensor));
    metadata.iter().fold(writer, |writer, (key, value)| writer.metadata(key, value))
}

/// Checks that a file contains exactly these tensors, stored plainly and without warnings. bf16 is read as `bf16`.
pub(crate) fn check_identity(file: &Checkpoint, tensors: &[Tensor], bf16: DType) -> Result<(), TestCaseError> {
    for entry in file.entries() {
        prop_assert!(entry.is_plain() && entry.warnings().next().is_none());
    }
    check_values(file, tensors, bf16)
}

/// Checks that a file contains exactly these tensors, in whatever form. bf16 is read as `bf16`.
pub(crate) fn check_values(file: &Checkpoint, tensors: &[Tensor], bf16: DType) -> Result<(), TestCaseError> {
    prop_assert_eq!(file.entries().len(), tensors.len());
    prop_assert!(file.warnings().is_empty(), "{:?}", file.warnings());
    for tensor in tensors {
        let entry = file.entries().iter().find(|e| e.name() == tensor.name);
        let entry = entry.ok_or_else(|| TestCaseError::fail(format!("no {:?}", tensor.name)))?;
        let dtype = if tensor.dtype == DType::BF16 { bf16 } else { tensor.dtype };
        prop_assert_eq!(entry.dtype(), Some(dtype));
        prop_assert_eq!(entry.shape().dims(), &tensor.dims[..]);
        prop_assert_eq!(&*file.view(entry).unwrap(), &tensor.bytes[..]);
        let blob = file.load(entry).unwrap();
        prop_assert_eq!(&*blob.data().bytes().unwrap(), &tensor.bytes[..]);
    }
    Ok(())
}
