//! Reads the header of an npy file or member: a Python dict, parsed token by token, never evaluated.

use blob_core::{DType, Shape};

use crate::entry::{Entry, Order, Payload, Runs, Segment};
use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::Limit;
use crate::npy::MAGIC;
use crate::wire::cursor::Cursor;
use crate::wire::literal::{Literal, Numbers};

/// A longer header is refused. 32 axes take under 1 KiB; NumPy itself reads at most 10,000 bytes unless told otherwise.
pub(crate) const LONGEST: u64 = 64 << 10;

/// The limit for a deflated header and prefix: NumPy's limit, plus the prefix. A hundred deflated bytes could inflate
/// to a long header, in each of many members.
pub(crate) const LONGEST_INFLATED: u64 = 10 << 10;

/// Reads the header of a file or member that ends at `end`; returns the header and the offset of the data.
pub(crate) fn read(cursor: &mut Cursor<'_>, end: u64) -> Result<(Header, u64), ReadError> {
    let data = prefix(cursor, end)?;
    Ok((dict(cursor, data)?, data))
}

/// Reads the bytes before the dict: magic, version, length. Returns where the dict ends, at most `end`.
pub(crate) fn prefix(cursor: &mut Cursor<'_>, end: u64) -> Result<u64, ReadError> {
    let start = cursor.pos();
    let magic: [u8; 6] = cursor.array(end, "npy's magic")?;
    if magic != *MAGIC {
        let found = magic.escape_ascii().to_string();
        return Err(ReadError::fault(start, FaultKind::words("npy's magic \\x93NUMPY", found)));
    }
    let [major, minor] = cursor.array(end, "npy's version")?;
    let len = match (major, minor) {
        (1, 0) => u16::from_le_bytes(cursor.array(end, "the header's length")?).into(),
        (2 | 3, 0) => u32::from_le_bytes(cursor.array(end, "the header's length")?).into(),
        _ => {
            let what = FaultKind::unsupported("npy version 1.0, 2.0 or 3.0", format!("{major}.{minor}"));
            return Err(ReadError::fault(start + 6, what));
        }
    };
    let dict = cursor.pos();
    check_limit(dict, Limit::Fixed, "the header's length", len, LONGEST)?;
    cursor.need(len, end, "the header")?;
    Ok(dict + len)
}

/// The fields of the dict.
#[derive(Debug)]
pub(crate) struct Header {
    dtype: Result<Element, Fault>,
    shape: Result<Shape, Fault>,
    fortran: bool,
}

/// The type of an element.
#[derive(Debug)]
enum Element {
    /// A dtype of blobs, and whether the bytes are big-endian.
    Native(DType, bool),
    /// A valid type that blobs do not have: descr, and size in bytes; a record's size follows from the file's length.
    Foreign(String, Option<u64>),
}

/// Reads the dict that ends at `end`: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` and blanks.
fn dict(cursor: &mut Cursor<'_>, end: u64) -> Result<Header, ReadError> {
    let start = cursor.pos();
    let text = &mut Literal::new(cursor, end);
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    text.expect(b'{', "a Python dict")?;
    while !text.take(b'}')? {
        text.blank()?;
        let at = text.pos();
        let key = string(text)?;
        text.expect(b':', "a colon")?;
        text.blank()?;
        let repeated = match key.as_str() {
            "descr" => descr.replace(self::descr(text)?).is_some(),
            "fortran_order" => fortran.replace(boolean(text)?).is_some(),
            "shape" => shape.replace(self::shape(text)?).is_some(),
            _ => true,
        };
        if repeated {
            let what = FaultKind::words("descr, fortran_order and shape, each once", format!("{key:?}"));
            return Err(ReadError::fault(at, what));
        }
        if !text.take(b',')? {
            text.expect(b'}', "a comma or a closing brace")?;
            break;
        }
    }
    text.blank()?;
    if text.peek()?.is_some() {
        return Err(text.unexpected("blanks after the dict")?);
    }
    let missing = |key| ReadError::fault(start, FaultKind::words(key, "a header without it"));
    Ok(Header {
        dtype: descr.ok_or_else(|| missing("'descr'"))?,
        shape: shape.ok_or_else(|| missing("'shape'"))?,
        fortran: fortran.ok_or_else(|| missing("'fortran_order'"))?,
    })
}

/// A Python string without escapes, of at most 64 bytes.
fn string(text: &mut Literal<'_, '_>) -> Result<String, ReadError> {
    text.blank()?;
    let at = text.pos();
    // Python 2 wrote u'…' for some.
    if text.peek()? == Some(b'u') {
        text.step();
    }
    let quote = match text.peek()? {
        Some(quote @ (b'\'' | b'"')) => quote,
        _ => return Err(text.unexpected("a string in quotes")?),
    };
    let mut found = String::with_capacity(16);
    text.step();
    loop {
        match text.peek()? {
            Some(byte) if byte == quote => break,
            Some(byte @ 0x20..=0x7E) if byte != b'\\' && found.len() < 64 => found.push(char::from(byte)),
            _ => {
                return Err(ReadError::fault(at, FaultKind::words("a short plain string", "another")));
            }
        }
        text.step();
    }
    text.step();
    Ok(found)
}

fn boolean(text: &mut Literal<'_, '_>) -> Result<bool, ReadError> {
    let at = text.pos();
    let mut word = String::new();
    while let Some(letter @ (b'a'..=b'z' | b'A'..=b'Z')) = text.peek()? {
        word.push(char::from(letter));
        if word.len() > 5 {
            break;
        }
        text.step();
    }
    match word.as_str() {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(ReadError::fault(at, FaultKind::words("True or False", format!("{word:?}")))),
    }
}

fn shape(text: &mut Literal<'_, '_>) -> Result<Result<Shape, Fault>, ReadError> {
    let at = text.pos();
    text.expect(b'(', "a tuple of numbers")?;
    let numbers: Numbers = text.numbers(b')', "a number")?;
    if numbers.count == 1 && !numbers.comma {
        return Err(ReadError::fault(at, FaultKind::words("a tuple", "a number in parentheses")));
    }
    Ok(numbers.shape().map_err(|what| Fault::new(at, what)))
}

/// The type of an element, or a fault of this array if the type is not even listed.
fn descr(text: &mut Literal<'_, '_>) -> Result<Result<Element, Fault>, ReadError> {
    let at = text.pos();
    if text.peek()? != Some(b'[') {
        let descr = string(text)?;
        return Ok(parse_descr(&descr).ok_or_else(|| {
            let found = format!("{descr:?}");
            Fault::new(at, FaultKind::unsupported("a descr of numbers, text or times", found))
        }));
    }
    // MXNet 2 writes bf16 as a record of one field of that name.
    text.step();
    let mut words = Vec::new();
    let mut depth = 1;
    while depth > 0 {
        text.blank()?;
        match text.peek()? {
            Some(b'\'' | b'"') => {
                let word = string(text)?;
                if words.len() < 3 {
                    words.push(word);
                }
                continue;
            }
            Some(b'(' | b'[') => depth += 1,
            Some(b')' | b']') => depth -= 1,
            Some(b',' | b' ' | b'0'..=b'9') => {}
            _ => return Err(text.unexpected("a list of fields")?),
        }
        text.step();
    }
    Ok(Ok(match &words[..] {
        [name, bits] if name == "bfloat16" && bits == "<u2" => Element::Native(DType::BF16, false),
        _ => Element::Foreign("record".to_owned(), None),
    }))
}

/// Parses NumPy's byte order and type. No order, or `=`, means the order of the writing machine, taken as
/// little-endian.
fn parse_descr(descr: &str) -> Option<Element> {
    let (order, kind) = match descr.split_at_checked(1)? {
        (order @ ("<" | ">" | "|" | "="), kind) => (order, kind),
        _ => ("=", descr),
    };
    let dtype = match kind {
        "b1" | "?" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "u2" => DType::U16,
        "i2" => DType::I16,
        "u4" => DType::U32,
        "i4" => DType::I32,
        "u8" => DType::U64,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        _ => return parse_foreign(descr, kind),
    };
    Some(Element::Native(dtype, order == ">" && dtype.size() > 1))
}

/// Complex numbers, long doubles, texts, raw bytes and times; not objects, which are pickles.
fn parse_foreign(descr: &str, kind: &str) -> Option<Element> {
    let (letter, size) = kind.split_at_checked(1)?;
    let digits = size.split_once('[').map_or(size, |(digits, _)| digits);
    let n: u64 = digits.parse().ok()?;
    let bytes = match (letter, n) {
        ("c", 8 | 16 | 24 | 32) | ("f", 12 | 16) | ("M" | "m", 8) | ("S" | "a" | "V", _) => n,
        ("U", _) => n.checked_mul(4)?,
        _ => return None,
    };
    Some(Element::Foreign(descr.to_owned(), Some(bytes)))
}

impl Header {
    /// Describes in `entry` an array whose data begin at `data`, with `room` bytes up to the end of the file or member.
    /// Returns how many bytes the array takes. The payload is a plain run.
    pub(crate) fn describe(self, entry: &mut Entry, data: u64, room: u64) -> Result<u64, Fault> {
        // The shape comes first, to be shown with the fault of an unknown dtype.
        entry.shape = self.shape?;
        let element = self.dtype?;
        let count = entry.shape.count() as u64;
        let axes = entry.shape.num_axes() as u32;
        let size = match &element {
            Element::Native(dtype, _) => dtype.size() as u64,
            Element::Foreign(_, Some(size)) => *size,
            Element::Foreign(_, None) => room.checked_div(count).unwrap_or(0),
        };
        let len = count.checked_mul(size).ok_or_else(|| Fault::new(data, FaultKind::Overflow { axes }))?;
        if len > room {
            let what = FaultKind::Truncated { field: "the array's data", needed: len, left: room };
            return Err(Fault::new(data, what));
        }
        match element {
            Element::Native(dtype, swapped) => {
                entry.dtype = Some(dtype);
                entry.swapped = swapped;
            }
            Element::Foreign(name, _) => entry.set_foreign(data, name, len),
        }
        if self.fortran && axes > 1 {
            entry.order = Order::ColumnMajor;
        }
        if len > 0 {
            entry.payload = Payload::Runs(Runs::One(Segment { offset: data, count, stride: size }));
        }
        Ok(len)
    }
}
