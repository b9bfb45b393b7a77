//! JSON for programs: one object a line, with a schema's name first, streamed.
//!
//! Besides what JSON escapes itself, DEL, the C1 control characters and those that reorder text are written as `\u009b`,
//! so that a terminal that shows the line obeys no name in it.

use std::io::{self, Write};

use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::failure::Problem;

/// Writes a value and the end of the line.
pub(crate) fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(Guarded(&mut *out), value).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// A sequence that is made while it is written.
pub(crate) struct Streamed<F>(pub(crate) F);

impl<F, I> Serialize for Streamed<F>
where
    F: Fn() -> I,
    I: Iterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// An object whose fields stand in the order in which they were put: the schema first.
#[derive(Debug, Default)]
pub(crate) struct Object(Vec<(&'static str, Value)>);

impl Object {
    /// An object that says what it is.
    pub(crate) fn of(schema: &'static str) -> Self {
        Self(Vec::new()).with("schema", schema)
    }

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    pub(crate) fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((key, value.into()));
        self
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// What went wrong, as the field `error` of an object has it.
pub(crate) fn error(problem: &Problem) -> Value {
    json!({
        "reason": problem.reason,
        "subject": problem.subject,
        "offset": problem.offset,
        "message": problem.message,
        "help": problem.help,
    })
}

/// The line in place of a command's own where it has no answer for a file.
pub(crate) fn failed(command: &'static str, file: Option<&str>, problem: &Problem) -> Object {
    Object::of("blob.error/1").with("command", command).with("file", file).with("error", error(problem))
}

/// An array within an object, whose elements are written one by one, so that none is kept. However the work ends, the
/// array and the object are to be closed.
#[must_use]
pub(crate) struct Rows {
    is_empty: bool,
}

impl Rows {
    /// Writes the head of the object and opens the array.
    pub(crate) fn begin(out: &mut dyn Write, head: &Object, array: &str) -> io::Result<Self> {
        open(out, head)?;
        write!(out, ",\"{array}\":[")?;
        Ok(Self { is_empty: true })
    }

    pub(crate) fn push(&mut self, out: &mut dyn Write, row: &impl Serialize) -> io::Result<()> {
        if !std::mem::take(&mut self.is_empty) {
            out.write_all(b",")?;
        }
        serde_json::to_writer(Guarded(out), row).map_err(io::Error::from)
    }

    /// Closes the array and opens the next one.
    pub(crate) fn then(self, out: &mut dyn Write, array: &str) -> io::Result<Self> {
        write!(out, "],\"{array}\":[")?;
        Ok(Self { is_empty: true })
    }

    /// Closes the array, writes the fields behind it, and closes the object.
    pub(crate) fn end(self, out: &mut dyn Write, tail: &Object) -> io::Result<()> {
        out.write_all(b"]")?;
        close(out, tail)
    }
}

/// Writes an object without its closing brace: more fields follow.
pub(crate) fn open(out: &mut dyn Write, head: &Object) -> io::Result<()> {
    let mut text = Vec::new();
    line(&mut text, head)?;
    out.write_all(text.strip_suffix(b"}\n").unwrap_or(&text))
}

/// Writes the last fields of an object that is open, its brace and the end of the line.
pub(crate) fn close(out: &mut dyn Write, tail: &Object) -> io::Result<()> {
    for (key, value) in &tail.0 {
        write!(out, ",\"{key}\":")?;
        serde_json::to_writer(Guarded(&mut *out), value).map_err(io::Error::from)?;
    }
    out.write_all(b"}\n")
}

/// Escapes the characters that serde_json leaves as they are and a terminal might obey. serde_json hands over text in
/// whole characters, and such characters stand only inside strings.
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
        line(&mut out, &json!({ "name": name, "é": [1.5, null] })).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.trim_end().chars().any(char::is_control), "{text}");
        assert!(text.contains("\\u009b") && text.contains("\\u202e") && text.contains('名'));
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["name"], name);
    }

    #[test]
    fn fields_keep_their_order_and_rows_follow() {
        let head = Object::of("z/1").with("b", 1).with("a", json!({}));
        for (rows, text) in [
            (0, "{\"schema\":\"z/1\",\"b\":1,\"a\":{},\"r\":[],\"s\":[],\"t\":0}\n"),
            (2, "{\"schema\":\"z/1\",\"b\":1,\"a\":{},\"r\":[0,1],\"s\":[],\"t\":2}\n"),
        ] {
            let mut out = Vec::new();
            let mut array = Rows::begin(&mut out, &head, "r").unwrap();
            for i in 0..rows {
                array.push(&mut out, &i).unwrap();
            }
            let tail = Object::new().with("t", rows);
            array.then(&mut out, "s").unwrap().end(&mut out, &tail).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn a_streamed_sequence_is_an_array() {
        let mut out = Vec::new();
        line(&mut out, &Streamed(|| 1..4)).unwrap();
        assert_eq!(out, b"[1,2,3]\n");
    }
}
