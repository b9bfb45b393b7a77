//! Reads protobuf's text format as a stream of events: a message opens, a field has a value, a message closes.
//!
//! Knows no message type. Keeps only the names of the open messages.

use crate::error::{Fault, FaultKind};
use crate::names::name_from_bytes;
use crate::work;

/// Messages nest at most this deep: protobuf's own limit.
const MAX_DEPTH: usize = 100;

/// The next thing in a text.
pub(super) enum Event<'a> {
    /// The message whose name is the last of the path.
    Open,
    /// A field's name and value, without quotes; each item of a list is a separate event.
    Value(&'a str, String),
    /// A list without items.
    Empty,
    /// The end of a message, which is no longer in the path.
    Close,
}

/// A reader of a text.
pub(super) struct Text<'a> {
    bytes: &'a [u8],
    pos: usize,
    /// Where the last event begins.
    at: usize,
    path: Vec<&'a str>,
    /// The closing bracket of each open message, and whether the message is an item of a list.
    closing: Vec<(u8, bool)>,
    /// The field whose list is open.
    list: Option<&'a str>,
}

impl<'a> Text<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let pos = if bytes.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        Self { bytes, pos, at: pos, path: Vec::new(), closing: Vec::new(), list: None }
    }

    /// The names of the open messages, outermost first.
    pub(super) fn path(&self) -> &[&'a str] {
        &self.path
    }

    /// Where the last event begins.
    pub(super) fn at(&self) -> u64 {
        self.at as u64
    }

    /// The fault that the last event is not the expected one.
    pub(super) fn fault(&self, expected: &'static str, found: impl Into<String>) -> Fault {
        self.fault_at(self.at, expected, found)
    }

    fn fault_at(&self, at: usize, expected: &'static str, found: impl Into<String>) -> Fault {
        let before = &self.bytes[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = at - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1) + 1;
        let mut fault = Fault::new(at as u64, FaultKind::words(expected, found.into()));
        fault.subject = Some(Box::new(format!("line {line}, column {column}")));
        fault
    }

    /// The next event; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Event<'a>>, Fault> {
        // The event before this one.
        work::visit((self.pos - self.at) as u64, 1);
        if let Some(field) = self.list.take() {
            return self.item(field).map(Some);
        }
        self.blank();
        self.at = self.pos;
        match (self.peek(), self.closing.last()) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(self.unexpected("the end of a message")),
            (Some(byte), Some((close, in_list))) if byte == *close => {
                let in_list = *in_list;
                self.pos += 1;
                self.closing.pop();
                let name = self.path.pop();
                if in_list {
                    self.item_end(name.unwrap_or_default())?;
                } else {
                    self.separator();
                }
                return Ok(Some(Event::Close));
            }
            _ => {}
        }
        let field = self.field()?;
        self.blank();
        let has_colon = self.take(b':');
        self.blank();
        match self.peek() {
            Some(b'{' | b'<') => self.open(field, false).map(Some),
            Some(b'[') => {
                self.pos += 1;
                self.blank();
                if self.take(b']') {
                    self.separator();
                    return Ok(Some(Event::Empty));
                }
                self.item(field).map(Some)
            }
            _ if has_colon => {
                let value = self.value()?;
                self.separator();
                Ok(Some(Event::Value(field, value)))
            }
            _ => Err(self.unexpected("a colon or an opening brace")),
        }
    }

    /// Reads an item of a list.
    fn item(&mut self, field: &'a str) -> Result<Event<'a>, Fault> {
        self.blank();
        self.at = self.pos;
        if let Some(b'{' | b'<') = self.peek() {
            return self.open(field, true);
        }
        let value = self.value()?;
        self.item_end(field)?;
        Ok(Event::Value(field, value))
    }

    /// Reads the comma behind an item of a list, or the end of the list.
    fn item_end(&mut self, field: &'a str) -> Result<(), Fault> {
        self.blank();
        if self.take(b',') {
            self.list = Some(field);
        } else if self.take(b']') {
            self.separator();
        } else {
            return Err(self.unexpected("a comma or the end of the list"));
        }
        Ok(())
    }

    fn open(&mut self, field: &'a str, in_list: bool) -> Result<Event<'a>, Fault> {
        if self.path.len() >= MAX_DEPTH {
            return Err(self.fault_at(self.pos, "messages nested at most 100 deep", "deeper ones"));
        }
        let close = if self.take(b'{') { b'}' } else { b'>' };
        if close == b'>' {
            self.pos += 1;
        }
        self.closing.push((close, in_list));
        self.path.push(field);
        Ok(Event::Open)
    }

    /// Reads a field's name; an extension's name is in brackets.
    fn field(&mut self) -> Result<&'a str, Fault> {
        let start = self.pos;
        let is_extension = self.take(b'[');
        while let Some(byte) = self.peek()
            && (byte.is_ascii_alphanumeric() || byte == b'_' || is_extension && b"./ -".contains(&byte))
        {
            self.pos += 1;
        }
        if self.pos == start || is_extension && !self.take(b']') {
            return Err(self.unexpected("a field's name"));
        }
        // The name's bytes are ASCII.
        Ok(std::str::from_utf8(&self.bytes[start..self.pos]).unwrap_or_default())
    }

    /// Reads a number, a word, or quoted texts, of which adjacent ones are concatenated.
    fn value(&mut self) -> Result<String, Fault> {
        if let Some(b'"' | b'\'') = self.peek() {
            let mut text = Vec::new();
            while let Some(quote @ (b'"' | b'\'')) = self.peek() {
                self.quoted(quote, &mut text)?;
                self.blank();
            }
            return Ok(name_from_bytes(&text).into_owned());
        }
        let start = self.pos;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
        while self.peek().is_some_and(is_part) {
            self.pos += 1;
        }
        // There may be blanks between a minus and the number.
        if &self.bytes[start..self.pos] == b"-" {
            self.blank();
            let digits = self.pos;
            while self.peek().is_some_and(is_part) {
                self.pos += 1;
            }
            return Ok(format!("-{}", String::from_utf8_lossy(&self.bytes[digits..self.pos])));
        }
        if self.pos == start {
            return Err(self.unexpected("a value"));
        }
        Ok(String::from_utf8_lossy(&self.bytes[start..self.pos]).into_owned())
    }

    fn quoted(&mut self, quote: u8, text: &mut Vec<u8>) -> Result<(), Fault> {
        let start = self.pos;
        self.pos += 1;
        loop {
            match self.step() {
                None | Some(b'\n') => return Err(self.fault_at(start, "a closing quote", "the end of the line")),
                Some(byte) if byte == quote => return Ok(()),
                Some(b'\\') => text.push(self.escape()?),
                Some(byte) => text.push(byte),
            }
        }
    }

    /// Reads an escape after the backslash: a letter, three octal digits, or `x` and two hexadecimal ones.
    fn escape(&mut self) -> Result<u8, Fault> {
        let at = self.pos - 1;
        let Some(byte) = self.step() else {
            return Err(self.fault_at(at, "an escape", "the end of the text"));
        };
        Ok(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'x' | b'X' => self.digits(16, 2, 0),
            b'0'..=b'7' => self.digits(8, 2, u32::from(byte - b'0')),
            other => other,
        })
    }

    /// Reads at most `max` more digits; like protobuf, takes the value's low byte.
    fn digits(&mut self, radix: u32, max: usize, mut value: u32) -> u8 {
        for _ in 0..max {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(radix)) else {
                break;
            };
            value = value * radix + digit;
            self.pos += 1;
        }
        value as u8
    }

    /// Skips blanks and comments.
    fn blank(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.pos += 1;
                    }
                }
                b' ' | b'\t' | b'\r' | b'\n' | 11 | 12 => self.pos += 1,
                _ => return,
            }
        }
    }

    /// Skips the comma or the semicolon that may follow a field.
    fn separator(&mut self) {
        self.blank();
        if let Some(b',' | b';') = self.peek() {
            self.pos += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn step(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.pos += 1;
        Some(byte)
    }

    fn unexpected(&self, expected: &'static str) -> Fault {
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some(byte) => format!("{:?}", char::from(byte)),
        };
        self.fault_at(self.pos, expected, found)
    }
}
