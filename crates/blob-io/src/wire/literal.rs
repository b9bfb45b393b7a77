//! Reads the tokens that a JSON header and a Python dict have in common from a [`Cursor`], with offsets.
//!
//! Strict, and bounded in memory: a text is kept only up to a limit of the caller. Knows no format. Stands beside
//! serde_json, which reads no Python dict, says a line and a column in place of an offset in the file, and takes a
//! string of any length into memory before a limit can be asked.

use crate::error::{FaultKind, ReadError};
use crate::limits::Limit;
use crate::wire::cursor::Cursor;

/// A reader of tokens up to `end`.
pub(crate) struct Literal<'c, 's> {
    cursor: &'c mut Cursor<'s>,
    end: u64,
}

impl<'c, 's> Literal<'c, 's> {
    /// Reads from the cursor's position up to `end`.
    pub(crate) fn new(cursor: &'c mut Cursor<'s>, end: u64) -> Self {
        Self { cursor, end }
    }

    pub(crate) fn pos(&self) -> u64 {
        self.cursor.pos()
    }

    /// The next byte, which is not consumed; `None` at the end.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        self.cursor.peek(self.end)
    }

    fn next(&mut self) -> Result<u8, ReadError> {
        self.cursor.u8(self.end, "the header")
    }

    /// Skips the byte that `peek` returned.
    pub(crate) fn step(&mut self) {
        self.cursor.seek(self.cursor.pos() + 1);
    }

    /// Skips blanks. The next byte, which is not consumed; `None` at the end.
    pub(crate) fn blank(&mut self) -> Result<Option<u8>, ReadError> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.step(),
                next => return Ok(next),
            }
        }
    }

    /// Skips blanks, and then `byte` if that is next.
    pub(crate) fn take(&mut self, byte: u8) -> Result<bool, ReadError> {
        let found = self.blank()? == Some(byte);
        if found {
            self.step();
        }
        Ok(found)
    }

    /// Skips blanks and then `byte`, which must be next; `expected` describes the byte in the error.
    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), ReadError> {
        if self.take(byte)? {
            return Ok(());
        }
        Err(self.unexpected(expected)?)
    }

    /// `{`, members separated by commas, `}`.
    pub(crate) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        self.expect(b'{', "a JSON object")?;
        if self.take(b'}')? {
            return Ok(());
        }
        loop {
            member(self)?;
            if !self.take(b',')? {
                return self.expect(b'}', "a comma or a closing brace");
            }
        }
    }

    /// `[`, items separated by commas, `]`.
    pub(crate) fn items(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), ReadError>) -> Result<(), ReadError> {
        self.expect(b'[', "a JSON list")?;
        if self.take(b']')? {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',')? {
                return self.expect(b']', "a comma or a closing bracket");
            }
        }
    }

    /// A member's key and the following colon; a key of over 64 bytes, longer than all known ones, is read as empty.
    pub(crate) fn key(&mut self) -> Result<String, ReadError> {
        self.blank()?;
        let key = self.json_string_up_to(64)?.unwrap_or_default();
        self.expect(b':', "a colon")?;
        self.blank()?;
        Ok(key)
    }

    /// Skips any JSON value that nests at most `depth` deep.
    pub(crate) fn skip_json(&mut self, depth: u32) -> Result<(), ReadError> {
        self.blank()?;
        let at = self.pos();
        match self.peek()? {
            Some(b'"') => self.json_string_up_to(0).map(|_| ()),
            Some(b'[' | b'{') if depth == 0 => {
                Err(ReadError::fault(at, FaultKind::words("a JSON value", "a deeper one")))
            }
            Some(open @ (b'[' | b'{')) => self.skip_list(open, depth - 1),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.unexpected("a JSON value")?),
        }
    }

    fn skip_list(&mut self, open: u8, depth: u32) -> Result<(), ReadError> {
        let close = if open == b'[' { b']' } else { b'}' };
        self.step();
        if self.take(close)? {
            return Ok(());
        }
        loop {
            if open == b'{' {
                self.json_string_up_to(0)?;
                self.expect(b':', "a colon")?;
            }
            self.skip_json(depth)?;
            if !self.take(b',')? {
                return self.expect(close, "a comma or the end of the value");
            }
        }
    }

    /// `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`
    fn skip_number(&mut self) -> Result<(), ReadError> {
        if self.peek()? == Some(b'-') {
            self.step();
        }
        match self.peek()? {
            Some(b'0') => self.step(),
            _ => self.digits()?,
        }
        if self.peek()? == Some(b'.') {
            self.step();
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek()? {
            self.step();
            if let Some(b'+' | b'-') = self.peek()? {
                self.step();
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ReadError> {
        let start = self.pos();
        while let Some(b'0'..=b'9') = self.peek()? {
            self.step();
        }
        if self.pos() > start { Ok(()) } else { Err(self.unexpected("a digit")?) }
    }

    /// Skips the word that must begin here.
    pub(crate) fn word(&mut self, word: &'static str) -> Result<(), ReadError> {
        for byte in word.bytes() {
            if self.peek()? != Some(byte) {
                return Err(self.unexpected(word)?);
            }
            self.step();
        }
        Ok(())
    }

    /// The fault for a next byte that is not the expected one.
    pub(crate) fn unexpected(&mut self, expected: &'static str) -> Result<ReadError, ReadError> {
        let found = match self.peek()? {
            None => "the end of the text".to_owned(),
            Some(byte) => format!("{:?}", char::from(byte)),
        };
        Ok(ReadError::fault(self.pos(), FaultKind::words(expected, found)))
    }

    /// A number of only digits, without a leading zero.
    pub(crate) fn number(&mut self, expected: &'static str) -> Result<u64, ReadError> {
        self.blank()?;
        let start = self.pos();
        let mut number = Some(0u64);
        let mut leading = false;
        while let Some(digit @ b'0'..=b'9') = self.peek()? {
            leading |= number == Some(0) && self.pos() > start;
            number = number.and_then(|n| n.checked_mul(10)).and_then(|n| n.checked_add(u64::from(digit - b'0')));
            self.step();
        }
        if self.pos() == start {
            return Err(self.unexpected(expected)?);
        }
        let found = if leading { "a leading zero" } else { "one over 64 bits" };
        number.filter(|_| !leading).ok_or_else(|| ReadError::fault(start, FaultKind::words(expected, found)))
    }

    /// Numbers separated by commas, up to `close`; the opening bracket is already taken. After the last one there may
    /// be a comma before a parenthesis, as in Python, but not before a bracket, as in JSON. Keeps at most one number
    /// more than a shape may have axes, and counts the others.
    pub(crate) fn numbers(&mut self, close: u8, expected: &'static str) -> Result<Numbers, ReadError> {
        let mut numbers = Numbers::default();
        while numbers.comma && close == b']' || !self.take(close)? {
            let number = self.number(expected)?;
            if numbers.kept.len() <= blob_core::MAX_AXES {
                numbers.kept.push(number);
            }
            numbers.count += 1;
            // Python 2 wrote long integers as `3L`.
            if close == b')' {
                self.take(b'L')?;
            }
            numbers.comma = self.take(b',')?;
            if !numbers.comma {
                self.expect(close, "a comma or the end of the list")?;
                break;
            }
        }
        Ok(numbers)
    }

    /// A JSON string of at most `limit` bytes.
    pub(crate) fn json_string(&mut self, limit: u64, field: &'static str) -> Result<String, ReadError> {
        let start = self.pos();
        match self.json_string_up_to(limit)? {
            Some(text) => Ok(text),
            None => {
                let found = self.pos() - start;
                let what = FaultKind::Limit { field, needed: found, allowed: limit, limit: Limit::Fixed };
                Err(ReadError::fault(start, what))
            }
        }
    }

    /// A JSON string; a string over `limit` bytes is skipped and `None`.
    pub(crate) fn json_string_up_to(&mut self, limit: u64) -> Result<Option<String>, ReadError> {
        self.expect(b'"', "a JSON string")?;
        let start = self.pos();
        let mut text = Vec::new();
        let mut fits = true;
        loop {
            let mut rest = self.cursor.at_hand(self.end)?;
            let all = rest.len();
            let is_end = loop {
                let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F));
                let (plain, behind) = rest.split_at(special.unwrap_or(rest.len()));
                let escaped = behind.get(1).and_then(|byte| unescaped(*byte)).filter(|_| behind[0] == b'\\');
                let read = [plain, escaped.as_slice()];
                fits &= (text.len() + read[0].len() + read[1].len()) as u64 <= limit;
                if fits {
                    read.iter().for_each(|bytes| text.extend_from_slice(bytes));
                }
                let is_end = behind.first() == Some(&b'"');
                rest = &behind[if escaped.is_some() { 2 } else { usize::from(is_end) }..];
                if is_end || escaped.is_none() {
                    break is_end;
                }
            };
            let taken = (all - rest.len()) as u64;
            let at = self.pos() + taken;
            self.cursor.seek(at);
            if is_end {
                break;
            }
            if taken > 0 {
                continue;
            }
            if self.next()? != b'\\' {
                return Err(ReadError::fault(at, FaultKind::words("a JSON string", "a control character")));
            }
            let mut utf8 = [0; 4];
            let bytes = self.escape(at)?.encode_utf8(&mut utf8).as_bytes();
            fits &= (text.len() + bytes.len()) as u64 <= limit;
            if fits {
                text.extend_from_slice(bytes);
            }
        }
        if !fits {
            return Ok(None);
        }
        let text = String::from_utf8(text);
        text.map(Some).map_err(|_| ReadError::fault(start, FaultKind::words("a JSON string in UTF-8", "other bytes")))
    }

    /// Reads an escape after the backslash.
    fn escape(&mut self, at: u64) -> Result<char, ReadError> {
        let escaped = self.next()?;
        if let Some(byte) = unescaped(escaped) {
            return Ok(char::from(byte));
        }
        Ok(match escaped {
            b'u' => {
                let mut units = [self.hex(at)?, 0];
                let mut len = 1;
                if (0xD800..0xDC00).contains(&units[0]) && self.next()? == b'\\' && self.next()? == b'u' {
                    units[1] = self.hex(at)?;
                    len = 2;
                }
                match char::decode_utf16(units[..len].iter().copied()).next() {
                    Some(Ok(c)) => c,
                    _ => {
                        return Err(ReadError::fault(at, FaultKind::words("a character", "half a surrogate pair")));
                    }
                }
            }
            other => {
                let found = format!("\\{}", char::from(other).escape_default());
                return Err(ReadError::fault(at, FaultKind::words("a JSON escape", found)));
            }
        })
    }

    fn hex(&mut self, at: u64) -> Result<u16, ReadError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16);
            let digit =
                digit.ok_or_else(|| ReadError::fault(at, FaultKind::words("four hexadecimal digits", "others")))?;
            unit = unit << 4 | digit as u16;
        }
        Ok(unit)
    }
}

/// The character of an escape of two.
fn unescaped(byte: u8) -> Option<u8> {
    Some(match byte {
        b'b' => 8,
        b'f' => 0xC,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'"' | b'\\' | b'/' => byte,
        _ => return None,
    })
}

/// The fault for a key that an object has twice.
pub(crate) fn repeated_key(at: u64, key: &str) -> ReadError {
    let key: String = key.chars().take(64).collect();
    ReadError::fault(at, FaultKind::words("each key once", format!("{key:?} again")))
}

/// The numbers of a list.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The first numbers: at most one more than a shape may have axes.
    pub(crate) kept: Vec<u64>,
    /// How many numbers there are.
    pub(crate) count: u64,
    /// Whether a comma follows the last one.
    pub(crate) comma: bool,
}

impl Numbers {
    /// The numbers as a shape; a fault for too many axes or too large extents.
    pub(crate) fn shape(&self) -> Result<blob_core::Shape, FaultKind> {
        let max = blob_core::MAX_AXES as u64;
        if self.count > max {
            let found = self.count;
            return Err(FaultKind::Axes { found, max });
        }
        let axes = self.count as u32;
        let dims: Result<Vec<usize>, _> = self.kept.iter().map(|d| usize::try_from(*d)).collect();
        let shape = dims.ok().and_then(|dims| blob_core::Shape::new(dims).ok());
        shape.ok_or(FaultKind::Overflow { axes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::source::Bytes;

    /// Strings with escapes everywhere around the ends of the cursor's windows, as serde_json reads them.
    #[test]
    fn escapes_mean_the_same_wherever_a_window_ends() {
        let tail = r#"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀 x\"\""#;
        for before in (0..40).chain(230..262).chain(740..772) {
            let text = format!("\"{}{tail}\" ", "a".repeat(before));
            let wanted: String = serde_json::from_str(text.trim_end()).unwrap();
            let source = Bytes(text.clone().into_bytes());
            for limit in [wanted.len() as u64, wanted.len() as u64 - 1] {
                let mut cursor = Cursor::new(&source);
                let mut literal = Literal::new(&mut cursor, text.len() as u64);
                let read = literal.json_string_up_to(limit).unwrap();
                assert_eq!(read, (limit >= wanted.len() as u64).then(|| wanted.clone()), "{before}");
                assert_eq!(literal.pos(), text.len() as u64 - 1);
            }
        }
        for (wrong, at) in [("\"a\\x\"", 2), ("\"\\\"\n\"", 3), ("\"\\\"ab\\", 6), ("\"\\ud800\\n\"", 1)] {
            let source = Bytes(wrong.as_bytes().to_vec());
            let mut cursor = Cursor::new(&source);
            let error = Literal::new(&mut cursor, wrong.len() as u64).json_string_up_to(64).unwrap_err();
            let ReadError::Fault(fault) = error else { panic!("{wrong}: {error:?}") };
            assert_eq!(fault.offset(), at, "{wrong}: {fault}");
        }
    }
}
