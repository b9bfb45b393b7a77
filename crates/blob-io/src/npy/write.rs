//! Lays out an npy file: the header, then one array.

use blob_core::DType;

use crate::error::Error;
use crate::npy::MAGIC;
use crate::parts::Placed;
use crate::spec::{TensorSpec, refuse, total};

/// The header's length is a multiple of this, as in NumPy since 1.14, so that the data of a mapped file are aligned.
const ALIGN: usize = 64;

pub(crate) fn plan(specs: &[TensorSpec]) -> Result<Placed, Error> {
    let [spec] = specs else {
        return Err(refuse("npy", format!("holds one array, not {}", specs.len())));
    };
    let header = header(spec)?;
    let offset = header.len() as u64;
    Ok(Placed::new(vec![(0, header)], vec![offset], total("npy", offset, spec.byte_len())?))
}

/// The header with magic, version and length.
pub(crate) fn header(spec: &TensorSpec) -> Result<Vec<u8>, Error> {
    let descr = descr(spec.dtype).ok_or_else(|| {
        let message = format!("tensor {:?}: no {} in this format", spec.name, spec.dtype);
        refuse("npy", message)
    })?;
    let dims: Vec<String> = spec.shape.dims().iter().map(usize::to_string).collect();
    let shape = match &dims[..] {
        [one] => format!("({one},)"),
        _ => format!("({})", dims.join(", ")),
    };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // 32 axes of 20 digits end far below 65535 bytes, so version 1.0 always fits.
    let len = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(ALIGN);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&((len - 10) as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(len - 1, b' ');
    bytes.push(b'\n');
    Ok(bytes)
}

/// NumPy's name of a dtype; bf16, which NumPy does not know, is written as bits (`<u2`).
fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::Bool => "|b1",
        DType::I16 => "<i2",
        DType::U16 | DType::BF16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        _ => return None,
    })
}
