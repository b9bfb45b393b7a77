//! The element types of ONNX's tensors, in one table: the number, the bits of an element, the field of typed values.
//!
//! Knows no bytes. The numbers are those of `TensorProto.DataType` in onnx 1.23.

use blob_core::DType;

/// The field that holds the values of a tensor without `raw_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Floats,
    Doubles,
    Ints,
    Texts,
}

/// One element type.
#[derive(Debug)]
pub(super) struct ElementType {
    number: i32,
    /// ONNX's name.
    pub(super) name: &'static str,
    /// The dtype of blobs; `None` for a type that blobs do not have.
    pub(super) dtype: Option<DType>,
    /// The bits of an element in `raw_data`; 0 for texts, which have no fixed width.
    pub(super) bits: u64,
    pub(super) typed: Typed,
}

const fn native(number: i32, name: &'static str, dtype: DType, typed: Typed) -> ElementType {
    ElementType { number, name, dtype: Some(dtype), bits: dtype.size() as u64 * 8, typed }
}

const fn foreign(number: i32, name: &'static str, bits: u64, typed: Typed) -> ElementType {
    ElementType { number, name, dtype: None, bits, typed }
}

const TYPES: &[ElementType] = &[
    native(1, "FLOAT", DType::F32, Typed::Floats),
    native(2, "UINT8", DType::U8, Typed::Ints),
    native(3, "INT8", DType::I8, Typed::Ints),
    native(4, "UINT16", DType::U16, Typed::Ints),
    native(5, "INT16", DType::I16, Typed::Ints),
    native(6, "INT32", DType::I32, Typed::Ints),
    native(7, "INT64", DType::I64, Typed::Ints),
    foreign(8, "STRING", 0, Typed::Texts),
    native(9, "BOOL", DType::Bool, Typed::Ints),
    native(10, "FLOAT16", DType::F16, Typed::Ints),
    native(11, "DOUBLE", DType::F64, Typed::Doubles),
    native(12, "UINT32", DType::U32, Typed::Ints),
    native(13, "UINT64", DType::U64, Typed::Ints),
    foreign(14, "COMPLEX64", 64, Typed::Floats),
    foreign(15, "COMPLEX128", 128, Typed::Doubles),
    native(16, "BFLOAT16", DType::BF16, Typed::Ints),
    foreign(17, "FLOAT8E4M3FN", 8, Typed::Ints),
    foreign(18, "FLOAT8E4M3FNUZ", 8, Typed::Ints),
    foreign(19, "FLOAT8E5M2", 8, Typed::Ints),
    foreign(20, "FLOAT8E5M2FNUZ", 8, Typed::Ints),
    foreign(21, "UINT4", 4, Typed::Ints),
    foreign(22, "INT4", 4, Typed::Ints),
    foreign(23, "FLOAT4E2M1", 4, Typed::Ints),
    foreign(24, "FLOAT8E8M0", 8, Typed::Ints),
    foreign(25, "UINT2", 2, Typed::Ints),
    foreign(26, "INT2", 2, Typed::Ints),
    foreign(27, "FLOAT6E2M3", 6, Typed::Ints),
    foreign(28, "FLOAT6E3M2", 6, Typed::Ints),
];

/// The element type of this number, where ONNX 1.23 has one.
pub(super) fn of_number(number: i32) -> Option<&'static ElementType> {
    TYPES.iter().find(|known| known.number == number)
}

/// The number of a dtype's element type.
pub(super) fn number_of(dtype: DType) -> Option<i32> {
    TYPES.iter().find(|known| known.dtype == Some(dtype)).map(|known| known.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::tensor_proto::DataType;

    #[test]
    fn names_and_numbers_are_those_of_the_proto() {
        for number in 0..64 {
            let proto = DataType::try_from(number).ok().filter(|of| *of != DataType::Undefined);
            assert_eq!(of_number(number).map(|known| known.name), proto.map(|of| of.as_str_name()), "{number}");
        }
    }
}
