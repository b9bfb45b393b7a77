//! The names of a dtype in each interface that hands arrays on: one table.

use std::ffi::CStr;

use blob_core::DType;

/// A dtype's names in the interfaces.
pub(crate) struct Names {
    /// safetensors' name.
    pub(crate) safetensors: &'static str,
    /// numpy's name.
    pub(crate) numpy: &'static str,
    /// The format of Python's buffers, which have none for bf16.
    pub(crate) buffer: Option<&'static CStr>,
    /// DLPack's code: signed, unsigned, float, bfloat, bool.
    pub(crate) dlpack: u8,
}

/// DLPack's `DLDataTypeCode`.
const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

/// The names of a dtype.
pub(crate) fn names(dtype: DType) -> Names {
    let row = |safetensors, numpy, buffer, dlpack| Names { safetensors, numpy, buffer: Some(buffer), dlpack };
    match dtype {
        DType::U8 => row("U8", "u1", c"B", UINT),
        DType::I8 => row("I8", "i1", c"b", INT),
        DType::I16 => row("I16", "i2", c"h", INT),
        DType::U16 => row("U16", "u2", c"H", UINT),
        DType::I32 => row("I32", "i4", c"i", INT),
        DType::U32 => row("U32", "u4", c"I", UINT),
        DType::I64 => row("I64", "i8", c"q", INT),
        DType::U64 => row("U64", "u8", c"Q", UINT),
        DType::F16 => row("F16", "f2", c"e", FLOAT),
        DType::BF16 => Names { safetensors: "BF16", numpy: "bfloat16", buffer: None, dlpack: BFLOAT },
        DType::F32 => row("F32", "f4", c"f", FLOAT),
        DType::F64 => row("F64", "f8", c"d", FLOAT),
        DType::Bool => row("BOOL", "?", c"?", BOOL),
        _ => unreachable!("every dtype is listed"),
    }
}

/// The dtype of DLPack's code and bits.
pub(crate) fn of_dlpack(code: u8, bits: u8) -> Option<DType> {
    let is = |dtype: &&DType| names(**dtype).dlpack == code && dtype.size() * 8 == usize::from(bits);
    DType::ALL.iter().find(is).copied()
}

/// The dtype of a buffer's format and the size of its items, in this machine's byte order.
pub(crate) fn of_buffer(format: &CStr, size: usize) -> Option<DType> {
    let text = format.to_str().ok()?;
    let text = text.strip_prefix(['@', '=', '<', '|']).unwrap_or(text);
    let code = match text {
        "?" => BOOL,
        "b" | "h" | "i" | "l" | "q" | "n" => INT,
        "B" | "H" | "I" | "L" | "Q" | "N" | "c" => UINT,
        "e" | "f" | "d" => FLOAT,
        _ => return None,
    };
    of_dlpack(code, u8::try_from(size * 8).ok()?)
}
