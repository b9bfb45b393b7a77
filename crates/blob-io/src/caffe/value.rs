//! A setting's value, stored in a message or written in a prototxt, the types that settings have, and their receiver.

use std::fmt;

use crate::caffe::schema::Field;

/// A field's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A text, or anything in a prototxt.
    Text(&'a str),
    /// An integer, a bool, or an enum's value that Caffe does not have.
    Int(i64),
    Float(f32),
}

/// The receiver of a message's fields, by the names in `caffe.proto`.
pub(super) trait Receiver {
    /// Begins the message whose name is the last of the path; the first is a field of the whole. False for a message
    /// that is not read.
    fn open(&mut self, path: &[&str]) -> bool;

    /// Whether a text of a message is wanted; others are skipped, however long they are.
    fn reads(&self, _path: &[&str], _field: &'static Field) -> bool {
        true
    }

    /// Sets a field to a value that a message stores.
    fn state(&mut self, path: &[&str], field: &'static Field, value: Value<'_>);

    /// Takes note of a field of a message that is not the schema's: another number, or a value of another kind.
    /// `bytes` is the length of the field.
    fn strange(&mut self, _path: &[&str], _number: u32, _bytes: u64) {}
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
        }
    }
}

/// An extent of a shape; 0 for an extent that the net leaves open, as -1.
pub(super) fn extent(value: Value<'_>) -> u64 {
    number(value).unwrap_or(0)
}

/// Protobuf's text format has hexadecimal and octal numbers, like C.
pub(super) fn number(value: Value<'_>) -> Result<u64, &'static str> {
    const EXPECTED: &str = "a whole number";
    let text = match value {
        Value::Text(text) => text,
        Value::Int(number) => return u64::try_from(number).map_err(|_| EXPECTED),
        Value::Float(_) => return Err(EXPECTED),
    };
    let (digits, radix) = match text.strip_prefix('0') {
        Some(rest) if rest.starts_with(['x', 'X']) => (&rest[1..], 16),
        Some(rest) if !rest.is_empty() => (rest, 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).map_err(|_| EXPECTED)
}

pub(super) fn integer(value: Value<'_>) -> Result<i64, &'static str> {
    match value {
        Value::Int(number) => Ok(number),
        Value::Text(text) if text.starts_with('-') => {
            i64::try_from(number(Value::Text(&text[1..]))?).map(|n| -n).map_err(|_| "a whole number")
        }
        other => i64::try_from(number(other)?).map_err(|_| "a whole number"),
    }
}

/// Protobuf's text format allows an `f` after a float.
pub(super) fn float(value: Value<'_>) -> Result<f32, &'static str> {
    let text = match value {
        Value::Text(text) => text,
        Value::Float(number) => return Ok(number),
        Value::Int(number) => return Ok(number as f32),
    };
    let bare = text.strip_suffix(['f', 'F']).filter(|bare| bare.bytes().any(|b| b.is_ascii_digit()));
    bare.unwrap_or(text).parse().map_err(|_| "a number")
}

pub(super) fn flag(value: Value<'_>) -> Result<bool, &'static str> {
    match value {
        Value::Text("true" | "True" | "t" | "1") => Ok(true),
        Value::Text("false" | "False" | "f" | "0") => Ok(false),
        _ => Err("true or false"),
    }
}
