//! The names of a dtype in each interface that hands arrays on: one table.

use std::ffi::CStr;

use blob_core::DType;
use blob_core::dlpack::{DLDataType, data_type, dtype};

/// A dtype's names in the interfaces.
pub(crate) struct Names {
    /// safetensors' name.
    pub(crate) safetensors: &'static str,
    /// numpy's name.
    pub(crate) numpy: &'static str,
    /// The format of Python's buffers, which have none for bf16.
    pub(crate) buffer: Option<&'static CStr>,
}

/// The names of a dtype.
pub(crate) fn names(dtype: DType) -> Names {
    let row = |safetensors, numpy, buffer| Names { safetensors, numpy, buffer: Some(buffer) };
    match dtype {
        DType::U8 => row("U8", "u1", c"B"),
        DType::I8 => row("I8", "i1", c"b"),
        DType::I16 => row("I16", "i2", c"h"),
        DType::U16 => row("U16", "u2", c"H"),
        DType::I32 => row("I32", "i4", c"i"),
        DType::U32 => row("U32", "u4", c"I"),
        DType::I64 => row("I64", "i8", c"q"),
        DType::U64 => row("U64", "u8", c"Q"),
        DType::F16 => row("F16", "f2", c"e"),
        DType::BF16 => Names { safetensors: "BF16", numpy: "bfloat16", buffer: None },
        DType::F32 => row("F32", "f4", c"f"),
        DType::F64 => row("F64", "f8", c"d"),
        DType::Bool => row("BOOL", "?", c"?"),
        _ => unreachable!("every dtype is listed"),
    }
}

/// The dtype of a buffer's format and the size of its items, in this machine's byte order.
pub(crate) fn of_buffer(format: &CStr, size: usize) -> Option<DType> {
    let text = format.to_str().ok()?;
    let text = text.strip_prefix(['@', '=', '<', '|']).unwrap_or(text);
    // One of the dtypes with the code; the size is the format's.
    let kind = match text {
        "?" => DType::Bool,
        "b" | "h" | "i" | "l" | "q" | "n" => DType::I8,
        "B" | "H" | "I" | "L" | "Q" | "N" | "c" => DType::U8,
        "e" | "f" | "d" => DType::F32,
        _ => return None,
    };
    dtype(DLDataType { bits: u8::try_from(size * 8).ok()?, ..data_type(kind) })
}
