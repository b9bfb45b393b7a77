//! JSON for programs: one object per line, streamed, beginning with the name of its schema.
//!
//! Each field is described once: its name, type, meaning and value. The lines, their JSON Schema and `docs/json.md` are
//! made from that. Besides what JSON requires, DEL, the C1 control characters and those that reorder text are escaped
//! as `\u009b`, so that no name in a line can control a terminal.

use std::io::{self, Write};
use std::vec;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// A JSON document, which a command prints as one line.
pub(crate) trait Document: Fields {
    const SCHEMA: &'static str;
    /// The command that prints it.
    const COMMAND: &'static str;
    /// A description for the schema.
    const WHAT: &'static str;
}

/// A JSON object.
pub(crate) trait Fields: Sized {
    /// The fields in the order of printing.
    fn fields() -> Vec<Field<Self>>;
}

/// One field of the JSON object for a `T`.
pub(crate) struct Field<T> {
    pub(crate) shape: Shape,
    /// `None` if the command streams the value itself.
    get: Option<fn(&T) -> Value>,
}

/// A field's name, type and meaning.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) is: Is,
    pub(crate) presence: Presence,
    pub(crate) says: &'static str,
}

/// Whether a field always has a value.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Presence {
    Always,
    /// It may be `null`.
    OrNull,
    /// It may be missing.
    Sometimes,
}

/// The type of a value.
#[derive(Clone, Copy)]
pub(crate) enum Is {
    Text,
    Whole,
    /// A number, or `"NaN"`, `"Infinity"`, `"-Infinity"`.
    Real,
    Flag,
    OneOf(&'static [&'static str]),
    List(&'static Is),
    /// An object whose keys are names.
    Map(&'static Is),
    Object(fn() -> Vec<Shape>),
    /// An object of one of two kinds.
    Either(fn() -> Vec<Shape>, fn() -> Vec<Shape>),
    /// Numbers, or lists of them as deep as the shape.
    Nested,
}

/// A list of texts, and a shape.
pub(crate) const TEXTS: Is = Is::List(&Is::Text);
pub(crate) const DIMS: Is = Is::List(&Is::Whole);

/// Descriptions of fields that several commands share.
pub(crate) const FILE: &str = "the file as it was named; `standard input` for `-`";
pub(crate) const FORMAT: &str = "the format's short name: `blob formats`";
pub(crate) const DIALECT: &str = "its generation in words, empty where there is one";
pub(crate) const NAME: &str = "the tensor's name, unique in the file";
pub(crate) const DTYPE: &str = "the element type; `null` without one";

/// A field that always has a value.
pub(crate) fn field<T>(name: &'static str, is: Is, says: &'static str, get: fn(&T) -> Value) -> Field<T> {
    Field { shape: Shape { name, is, presence: Presence::Always, says }, get: Some(get) }
}

/// A field whose value may be null.
pub(crate) fn or_null<T>(name: &'static str, is: Is, says: &'static str, get: fn(&T) -> Value) -> Field<T> {
    Field { shape: Shape { name, is, presence: Presence::OrNull, says }, get: Some(get) }
}

/// A field that is left out if its value is null.
pub(crate) fn sometimes<T>(name: &'static str, is: Is, says: &'static str, get: fn(&T) -> Value) -> Field<T> {
    Field { shape: Shape { name, is, presence: Presence::Sometimes, says }, get: Some(get) }
}

/// A field whose value is streamed.
pub(crate) fn streamed<T>(name: &'static str, is: Is, says: &'static str) -> Field<T> {
    Field { shape: Shape { name, is, presence: Presence::Always, says }, get: None }
}

impl<T> Field<T> {
    /// Its value, unless it is missing.
    fn value(&self, of: &T) -> Option<Value> {
        let value = self.get?(of);
        (!value.is_null() || self.shape.presence != Presence::Sometimes).then_some(value)
    }
}

/// The shapes of an object's fields.
pub(crate) fn shapes<T: Fields>() -> Vec<Shape> {
    T::fields().into_iter().map(|field| field.shape).collect()
}

/// An object as a value; its keys are sorted.
pub(crate) fn value<T: Fields>(of: &T) -> Value {
    let fields = T::fields().into_iter();
    let values = fields.filter_map(|field| Some((field.shape.name.to_owned(), field.value(of)?)));
    Value::Object(values.collect::<Map<_, _>>())
}

/// An object that keeps the order of its fields.
pub(crate) struct Ordered<'a, T>(pub(crate) &'a T);

impl<T: Fields> Serialize for Ordered<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in T::fields() {
            if let Some(value) = field.value(self.0) {
                map.serialize_entry(field.shape.name, &value)?;
            }
        }
        map.end()
    }
}

/// Writes a whole line without streamed values.
pub(crate) fn line<T: Document>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    Line::begin(out, value).map(drop)
}

/// Any value as a line.
pub(crate) fn plain_line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    write_value(out, value)?;
    out.write_all(b"\n")
}

/// A line that is written up to a streamed value. [`Line::go_on`] must follow, also after an error.
pub(crate) struct Line<T> {
    fields: vec::IntoIter<Field<T>>,
    /// The streamed value is a list, and has no items yet.
    is_list: bool,
    is_empty: bool,
}

impl<T: Document> Line<T> {
    /// Writes the line up to its first streamed value.
    pub(crate) fn begin(out: &mut dyn Write, value: &T) -> io::Result<Self> {
        write!(out, "{{\"schema\":\"{}\"", T::SCHEMA)?;
        Self { fields: T::fields().into_iter(), is_list: false, is_empty: true }.go_on(out, value)
    }

    /// Writes an item of the streamed list.
    pub(crate) fn push(&mut self, out: &mut dyn Write, item: &impl Serialize) -> io::Result<()> {
        if !std::mem::take(&mut self.is_empty) {
            out.write_all(b",")?;
        }
        write_value(out, item)
    }

    /// Writes the line up to its next streamed value, or to its end.
    pub(crate) fn go_on(mut self, out: &mut dyn Write, value: &T) -> io::Result<Self> {
        if self.is_list {
            out.write_all(b"]")?;
        }
        (self.is_list, self.is_empty) = (false, true);
        while let Some(field) = self.fields.next() {
            if field.get.is_none() {
                write!(out, ",\"{}\":", field.shape.name)?;
                self.is_list = matches!(field.shape.is, Is::List(_));
                out.write_all(if self.is_list { b"[" } else { b"" })?;
                return Ok(self);
            }
            if let Some(value) = field.value(value) {
                write!(out, ",\"{}\":", field.shape.name)?;
                write_value(out, &value)?;
            }
        }
        out.write_all(b"}\n")?;
        Ok(self)
    }
}

fn write_value(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(Guarded(out), value).map_err(io::Error::from)
}

/// A JSON number; values that JSON cannot represent become strings: "Infinity", "-Infinity", "NaN".
pub(crate) fn real(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// Escapes control characters that serde_json does not. serde_json writes whole characters, and these occur only in
/// strings.
struct Guarded<'a>(&'a mut dyn Write);

impl Write for Guarded<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let suspicious = |b: &u8| matches!(b, 0x7F | 0xC2 | 0xE2 | 0xEF);
        let text = match buf.iter().any(suspicious) {
            true => std::str::from_utf8(buf).ok(),
            false => None,
        };
        let Some(text) = text else {
            self.0.write_all(buf)?;
            return Ok(buf.len());
        };
        let mut done = 0;
        for (at, c) in text.char_indices() {
            let code = c as u32;
            let obeyed = matches!(code, 0x7F..=0x9F | 0x200E | 0x200F | 0x2028..=0x202E | 0x2066..=0x2069 | 0xFEFF);
            if obeyed {
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
    fn no_control_character_survives_and_none_is_lost() {
        let name = "a\x1b[31m\x7f\u{9b}1m\u{202e}名\n";
        let mut out = Vec::new();
        plain_line(&mut out, &json!({ "name": name, "é": [1.5, null] })).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.trim_end().chars().any(char::is_control), "{text}");
        assert!(text.contains("\\u009b") && text.contains("\\u202e") && text.contains('名'));
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["name"], name);
    }

    /// The number of items of a list, and what stands behind it.
    struct Z(u64);

    impl Fields for Z {
        fn fields() -> Vec<Field<Self>> {
            vec![
                field("b", Is::Whole, "", |_| json!(1)),
                field("a", Is::Map(&Is::Text), "", |_| json!({})),
                streamed("r", DIMS, ""),
                streamed("s", DIMS, ""),
                sometimes("t", Is::Whole, "", |z| json!(z.0)),
                or_null("n", Is::Real, "", |_| Value::Null),
                sometimes("m", Is::Real, "", |_| Value::Null),
            ]
        }
    }

    impl Document for Z {
        const SCHEMA: &'static str = "z/1";
        const COMMAND: &'static str = "";
        const WHAT: &'static str = "";
    }

    #[test]
    fn fields_keep_their_order_and_lists_are_streamed() {
        for (rows, text) in [
            (0, "{\"schema\":\"z/1\",\"b\":1,\"a\":{},\"r\":[],\"s\":[],\"t\":0,\"n\":null}\n"),
            (2, "{\"schema\":\"z/1\",\"b\":1,\"a\":{},\"r\":[0,1],\"s\":[],\"t\":2,\"n\":null}\n"),
        ] {
            let mut out = Vec::new();
            let mut line = Line::begin(&mut out, &Z(rows)).unwrap();
            for i in 0..rows {
                line.push(&mut out, &i).unwrap();
            }
            line.go_on(&mut out, &Z(rows)).unwrap().go_on(&mut out, &Z(rows)).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn there_are_words_for_what_has_no_number() {
        assert_eq!(real(1.5), json!(1.5));
        assert_eq!(real(f64::NAN), json!("NaN"));
        assert_eq!(real(f64::NEG_INFINITY), json!("-Infinity"));
    }
}
