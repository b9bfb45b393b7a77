//! JSON for programs: one object per line, streamed, beginning with the name of a schema.
//!
//! Each field is declared once: name, type, meaning and value. The lines, the JSON Schema and `docs/json.md` are
//! generated from that. JSON requires some characters to be escaped; DEL, the C1 control characters and those that
//! reorder text are escaped too, as `\u009b`, so that no name in a line can control a terminal.

use std::io::{self, Write};
use std::vec;

use blob_io::Checkpoint;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// A JSON document, which a command prints as one line.
pub trait Document: Fields {
    const SCHEMA: &'static str;
    /// The command that prints the document.
    const COMMAND: &'static str;
    /// A description for the schema.
    const DESCRIPTION: &'static str;
    /// Whether the document is about files of tensors, with the field `salvaged`.
    const IS_OF_FILES: bool = true;

    /// The open files of the document; `salvaged` says where one breaks off.
    fn sources(&self) -> Vec<&Checkpoint>;
}

/// The field that every document about files has where one breaks off.
pub const SALVAGED: Property = Property {
    name: "salvaged",
    ty: Type::String,
    presence: Presence::Optional,
    description: "with --salvage: where the file breaks off, of which its whole arrays alone are taken",
};

/// A JSON object.
pub trait Fields: Sized {
    /// The fields in the order of printing.
    fn fields() -> Vec<Field<Self>>;
}

/// One field of the JSON object for a `T`.
pub struct Field<T> {
    pub property: Property,
    /// `None` if the command streams the value itself.
    get: Option<fn(&T) -> Value>,
}

/// A field's name, type and meaning.
#[derive(Clone, Copy)]
pub struct Property {
    pub name: &'static str,
    pub ty: Type,
    pub presence: Presence,
    pub description: &'static str,
}

/// Whether a field always has a value.
#[derive(Clone, Copy, PartialEq)]
pub enum Presence {
    Always,
    /// The value may be `null`.
    Nullable,
    /// The field may be missing.
    Optional,
}

/// The type of a value.
#[derive(Clone, Copy)]
pub enum Type {
    String,
    Integer,
    /// A number, or `"NaN"`, `"Infinity"`, `"-Infinity"`.
    Number,
    Boolean,
    Enum(&'static [&'static str]),
    Array(&'static Type),
    /// An object whose keys are names.
    Map(&'static Type),
    Object(fn() -> Vec<Property>),
    /// An object of one of two types.
    Either(fn() -> Vec<Property>, fn() -> Vec<Property>),
    /// An object of another schema.
    Foreign,
    /// The elements of a tensor: arrays nested as deep as the rank; a scalar is a bare value.
    Nested,
}

pub const STRINGS: Type = Type::Array(&Type::String);
/// A shape.
pub const DIMS: Type = Type::Array(&Type::Integer);

/// Descriptions of fields that several commands share.
pub const FILE: &str = "the file as it was named; `standard input` for `-`";
pub const FORMAT: &str = "the format's short name: `blob formats`";
pub const DIALECT: &str = "its generation in words, empty where there is one";
pub const NAME: &str = "the tensor's name, unique in the file";
pub const DTYPE: &str = "the element type; `null` without one";

/// A field that always has a value.
pub fn field<T>(name: &'static str, ty: Type, description: &'static str, get: fn(&T) -> Value) -> Field<T> {
    Field { property: Property { name, ty, presence: Presence::Always, description }, get: Some(get) }
}

/// A field whose value may be null.
pub fn nullable<T>(name: &'static str, ty: Type, description: &'static str, get: fn(&T) -> Value) -> Field<T> {
    Field { property: Property { name, ty, presence: Presence::Nullable, description }, get: Some(get) }
}

/// A field that is left out where null.
pub fn optional<T>(name: &'static str, ty: Type, description: &'static str, get: fn(&T) -> Value) -> Field<T> {
    Field { property: Property { name, ty, presence: Presence::Optional, description }, get: Some(get) }
}

/// A field whose value is streamed.
pub fn streamed<T>(name: &'static str, ty: Type, description: &'static str) -> Field<T> {
    Field { property: Property { name, ty, presence: Presence::Always, description }, get: None }
}

impl<T> Field<T> {
    /// The field's value in the object; `None` if the field is left out.
    fn value(&self, of: &T) -> Option<Value> {
        let value = self.get?(of);
        (!value.is_null() || self.property.presence != Presence::Optional).then_some(value)
    }
}

/// The properties of a JSON object, in the order of printing.
pub fn properties<T: Fields>() -> Vec<Property> {
    T::fields().into_iter().map(|field| field.property).collect()
}

/// An object as a `Value`, whose keys are sorted. [`Ordered`] keeps the order.
pub fn value<T: Fields>(of: &T) -> Value {
    let fields = T::fields().into_iter();
    let values = fields.filter_map(|field| Some((field.property.name.to_owned(), field.value(of)?)));
    Value::Object(values.collect::<Map<_, _>>())
}

/// Serializes an object with the fields in the order of [`Fields::fields`].
pub struct Ordered<'a, T>(pub &'a T);

impl<T: Fields> Serialize for Ordered<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in T::fields() {
            if let Some(value) = field.value(self.0) {
                map.serialize_entry(field.property.name, &value)?;
            }
        }
        map.end()
    }
}

/// Writes a document that has no streamed values.
pub fn line<T: Document>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    Line::begin(out, value).map(drop)
}

/// Writes any value as a line.
pub fn plain_line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    write_value(out, value)?;
    out.write_all(b"\n")
}

/// A line that has been written up to a streamed value. Even after an error, [`Line::advance`] must complete it.
pub struct Line<T> {
    fields: vec::IntoIter<Field<T>>,
    /// Whether the streamed value is an array, and whether that has no items yet.
    is_array: bool,
    is_empty: bool,
}

impl<T: Document> Line<T> {
    /// Writes the line up to the first streamed value.
    pub fn begin(out: &mut dyn Write, value: &T) -> io::Result<Self> {
        write!(out, "{{\"schema\":\"{}\"", T::SCHEMA)?;
        let salvaged: Vec<String> =
            value.sources().iter().filter_map(|file| Some(file.salvaged()?.to_string())).collect();
        if !salvaged.is_empty() {
            write!(out, ",\"{}\":", SALVAGED.name)?;
            write_value(out, &salvaged.join("; "))?;
        }
        Self { fields: T::fields().into_iter(), is_array: false, is_empty: true }.advance(out, value)
    }

    /// Writes an item of the streamed array.
    pub fn push(&mut self, out: &mut dyn Write, item: &impl Serialize) -> io::Result<()> {
        if !std::mem::take(&mut self.is_empty) {
            out.write_all(b",")?;
        }
        write_value(out, item)
    }

    /// Writes the line up to the next streamed value, or to the end.
    pub fn advance(mut self, out: &mut dyn Write, value: &T) -> io::Result<Self> {
        if self.is_array {
            out.write_all(b"]")?;
        }
        (self.is_array, self.is_empty) = (false, true);
        while let Some(field) = self.fields.next() {
            if field.get.is_none() {
                write!(out, ",\"{}\":", field.property.name)?;
                self.is_array = matches!(field.property.ty, Type::Array(_));
                out.write_all(if self.is_array { b"[" } else { b"" })?;
                return Ok(self);
            }
            if let Some(value) = field.value(value) {
                write!(out, ",\"{}\":", field.property.name)?;
                write_value(out, &value)?;
            }
        }
        out.write_all(b"}\n")?;
        Ok(self)
    }
}

fn write_value(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(Escaping(out), value).map_err(io::Error::from)
}

/// A JSON number; values that JSON cannot represent become strings: "Infinity", "-Infinity", "NaN".
pub fn number(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// Escapes the control characters that serde_json leaves alone. A control character is escaped wherever found: such
/// occur only in strings, and serde_json never splits a character between two writes.
struct Escaping<'a>(&'a mut dyn Write);

impl Write for Escaping<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let is_suspicious = buf.iter().any(|byte| matches!(byte, 0x7F | 0xC2 | 0xE2 | 0xEF));
        let text = if is_suspicious { std::str::from_utf8(buf).ok() } else { None };
        let Some(text) = text else {
            self.0.write_all(buf)?;
            return Ok(buf.len());
        };
        let mut done = 0;
        for (at, c) in text.char_indices() {
            let code = c as u32;
            let is_control = matches!(code, 0x7F..=0x9F | 0x200E | 0x200F | 0x2028..=0x202E | 0x2066..=0x2069 | 0xFEFF);
            if is_control {
                self.0.write_all(&buf[done..at])?;
                write!(self.0, "\\u{code:04x}")?;
                done = at + c.len_utf8();
            }
        }
        self.0.write_all(&buf[done..])?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_parse_back() {
        let name = "a\x1b[31m\x7f\u{9b}1m\u{202e}名\n";
        let mut out = Vec::new();
        plain_line(&mut out, &json!({ "name": name, "é": [1.5, null] })).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.trim_end().chars().any(char::is_control), "{text}");
        assert!(text.contains("\\u009b") && text.contains("\\u202e") && text.contains('名'));
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["name"], name);
    }

    /// The number of items in the streamed array, which the following field `t` repeats.
    struct Z(u64);

    impl Fields for Z {
        fn fields() -> Vec<Field<Self>> {
            vec![
                field("b", Type::Integer, "", |_| json!(1)),
                field("a", Type::Map(&Type::String), "", |_| json!({})),
                streamed("r", DIMS, ""),
                streamed("s", DIMS, ""),
                optional("t", Type::Integer, "", |z| json!(z.0)),
                nullable("n", Type::Number, "", |_| Value::Null),
                optional("m", Type::Number, "", |_| Value::Null),
            ]
        }
    }

    impl Document for Z {
        const SCHEMA: &'static str = "z/1";
        const COMMAND: &'static str = "";
        const DESCRIPTION: &'static str = "";

        fn sources(&self) -> Vec<&Checkpoint> {
            Vec::new()
        }
    }

    #[test]
    fn fields_keep_their_order_and_arrays_are_streamed() {
        for (rows, text) in [
            (0, "{\"schema\":\"z/1\",\"b\":1,\"a\":{},\"r\":[],\"s\":[],\"t\":0,\"n\":null}\n"),
            (2, "{\"schema\":\"z/1\",\"b\":1,\"a\":{},\"r\":[0,1],\"s\":[],\"t\":2,\"n\":null}\n"),
        ] {
            let mut out = Vec::new();
            let mut line = Line::begin(&mut out, &Z(rows)).unwrap();
            for i in 0..rows {
                line.push(&mut out, &i).unwrap();
            }
            line.advance(&mut out, &Z(rows)).unwrap().advance(&mut out, &Z(rows)).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn numbers_that_json_lacks_are_strings() {
        assert_eq!(number(1.5), json!(1.5));
        assert_eq!(number(f64::NAN), json!("NaN"));
        assert_eq!(number(f64::NEG_INFINITY), json!("-Infinity"));
    }
}
