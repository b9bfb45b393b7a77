//! safetensors: a JSON header, then the tensors' bytes without gaps.
//!
//! The format: <https://github.com/huggingface/safetensors#format>.

pub(crate) mod read;
pub(crate) mod write;

use blob_core::DType;

/// The format's own limit on the header.
const LONGEST_HEADER: u64 = 100_000_000;

/// The names of the dtypes that blobs have too.
const DTYPES: [(&str, DType); 13] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
    ("BOOL", DType::Bool),
];

/// The dtypes that blobs do not have, and the bits of an element. Source: the `Dtype` of safetensors 0.8.
const FOREIGN: [(&str, u64); 9] = [
    ("F8_E4M3", 8),
    ("F8_E5M2", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("F4", 4),
    ("C64", 64),
];
