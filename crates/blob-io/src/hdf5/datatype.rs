//! Reads a dataset's datatype from the bytes of a message: a dtype for numbers that blobs have, a name for all others.
//!
//! Source: HDF5 File Format Specification 3.0, IV.A.2.d.

use std::borrow::Cow;

use blob_core::DType;

/// The type of a dataset's elements.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// A number that blobs have; `swapped` where the number is big-endian.
    Number { dtype: DType, swapped: bool },
    /// Any other type: a name, and an element's size in bytes.
    Foreign { name: Cow<'static, str>, size: u64 },
}

/// Parses a datatype message; `None` if the message ends too early.
pub(super) fn element(message: &[u8]) -> Option<Element> {
    let (class, flags) = (message.first()? & 0x0F, *message.get(1)?);
    let size = u32::from_le_bytes(*message.get(4..)?.first_chunk()?);
    let body = message.get(8..)?;
    let number = match class {
        0 => integer(flags, size, body)?,
        1 => float(size, body)?,
        8 => boolean(message, body)?,
        _ => None,
    };
    let is_big = flags & 1 == 1 && class != 8;
    Some(match number {
        Some(dtype) => Element::Number { dtype, swapped: is_big && dtype.size() > 1 },
        None => Element::Foreign { name: name(class, size), size: size.into() },
    })
}

/// An integer without padding bits.
fn integer(flags: u8, size: u32, body: &[u8]) -> Option<Option<DType>> {
    let [offset, precision] = u16_pair(body)?;
    let is_signed = flags & 8 != 0;
    let whole = offset == 0 && u64::from(precision) == u64::from(size) * 8;
    let dtype = match (size, is_signed) {
        (1, false) => Some(DType::U8),
        (1, true) => Some(DType::I8),
        (2, false) => Some(DType::U16),
        (2, true) => Some(DType::I16),
        (4, false) => Some(DType::U32),
        (4, true) => Some(DType::I32),
        (8, false) => Some(DType::U64),
        (8, true) => Some(DType::I64),
        _ => None,
    };
    Some(dtype.filter(|_| whole))
}

/// A float with the fields of IEEE 754, or of bfloat16.
fn float(size: u32, body: &[u8]) -> Option<Option<DType>> {
    let [offset, precision] = u16_pair(body)?;
    let [exponent_at, exponent, mantissa_at, mantissa] = *body.get(4..)?.first_chunk()?;
    let bias = u32::from_le_bytes(*body.get(8..)?.first_chunk()?);
    let whole =
        offset == 0 && u64::from(precision) == u64::from(size) * 8 && mantissa_at == 0 && exponent_at == mantissa;
    let dtype = match (size, exponent, mantissa, bias) {
        (2, 5, 10, 15) => Some(DType::F16),
        (2, 8, 7, 127) => Some(DType::BF16),
        (4, 8, 23, 127) => Some(DType::F32),
        (8, 11, 52, 1023) => Some(DType::F64),
        _ => None,
    };
    Some(dtype.filter(|_| whole))
}

/// h5py's bool: an enumeration of one byte with the members FALSE, 0, and TRUE, 1.
fn boolean(message: &[u8], body: &[u8]) -> Option<Option<DType>> {
    let members = u16::from_le_bytes([message[1], message[2]]);
    // The message of the base type: 8 bytes, and 4 for an integer.
    let (base, rest) = body.split_at_checked(12)?;
    let is_byte = base[0] & 0x0F == 0 && base[4..8] == [1, 0, 0, 0];
    // Names are padded to 8 bytes before version 3.
    let names: [&[u8]; 2] = [b"FALSE\0TRUE\0\0\x01", b"FALSE\0\0\0TRUE\0\0\0\0\0\x01"];
    let is_bool = names.iter().any(|names| rest.starts_with(names));
    Some((is_byte && members == 2 && is_bool).then_some(DType::Bool))
}

fn u16_pair(body: &[u8]) -> Option<[u16; 2]> {
    let [a, b, c, d] = *body.first_chunk()?;
    Some([u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])])
}

/// HDF5's name of a datatype class.
fn name(class: u8, size: u32) -> Cow<'static, str> {
    let word = match class {
        0 => return format!("integer of {size} bytes").into(),
        1 => return format!("float of {size} bytes").into(),
        2 => "time",
        3 => "string",
        4 => "bitfield",
        5 => "opaque",
        6 => "compound",
        7 => "reference",
        8 => "enum",
        9 => "variable-length",
        10 => "array",
        _ => "of an unknown class",
    };
    word.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1, class, flags, size; the body.
    fn message(class: u8, flags: u8, size: u8, body: &[u8]) -> Vec<u8> {
        [&[0x10 | class, flags, 0, 0, size, 0, 0, 0], body].concat()
    }

    #[test]
    fn a_float_is_what_its_fields_say() {
        let float = |flags, size: u8, fields: [u8; 4], bias: u32| {
            let body = [&[0, 0, size * 8, 0], &fields[..], &bias.to_le_bytes()].concat();
            element(&message(1, flags, size, &body)).unwrap()
        };
        let number = |dtype, swapped| Element::Number { dtype, swapped };
        assert_eq!(float(0x20, 4, [23, 8, 0, 23], 127), number(DType::F32, false));
        assert_eq!(float(0x21, 8, [52, 11, 0, 52], 1023), number(DType::F64, true));
        assert_eq!(float(0x20, 2, [10, 5, 0, 10], 15), number(DType::F16, false));
        assert_eq!(float(0x20, 2, [7, 8, 0, 7], 127), number(DType::BF16, false));
        for odd in [float(0x20, 2, [9, 6, 0, 9], 31), float(0x20, 4, [23, 8, 0, 23], 126)] {
            assert!(matches!(odd, Element::Foreign { .. }), "{odd:?}");
        }
    }

    #[test]
    fn an_integer_with_unused_bits_is_foreign() {
        let integer = |precision| element(&message(0, 8, 4, &[0, 0, precision, 0])).unwrap();
        assert_eq!(integer(32), Element::Number { dtype: DType::I32, swapped: false });
        assert_eq!(integer(24), Element::Foreign { name: "integer of 4 bytes".into(), size: 4 });
        assert_eq!(element(&message(0, 8, 4, &[0, 0])), None);
    }
}
