//! The header of an npy file or member: a Python dict, read token by token, never evaluated.

use blob_core::{DType, Shape};

use crate::cursor::Cursor;
use crate::entry::{Entry, Order, Payload, Runs, Segment};
use crate::error::{Fault, Stop, What};
use crate::literal::{Literal, Numbers};
use crate::npy::MAGIC;

/// A longer header is refused. 32 axes take under 1 KiB; NumPy itself reads at most 10,000 bytes unless told otherwise.
pub(crate) const LONGEST: u64 = 64 << 10;

/// The same for a header that is inflated, with its prefix: NumPy's limit and room for the prefix. A hundred bytes could
/// stand for a longer one, many times over.
pub(crate) const LONGEST_INFLATED: u64 = 10 << 10;

/// The prefix before the dict: magic, version, length.
pub(crate) struct Prefix {
    /// Where the dict ends and the data begin.
    pub(crate) data: u64,
}

/// Reads the prefix; the dict lies before `end`.
pub(crate) fn prefix(cursor: &mut Cursor<'_>, end: u64) -> Result<Prefix, Stop> {
    let start = cursor.pos();
    let magic: [u8; 6] = cursor.array(end, "npy's magic")?;
    if magic != *MAGIC {
        let found = magic.escape_ascii().to_string();
        return Err(Stop::fault(
            start,
            What::words("npy's magic \\x93NUMPY", found),
        ));
    }
    let [major, minor] = cursor.array(end, "npy's version")?;
    let len = match (major, minor) {
        (1, 0) => u16::from_le_bytes(cursor.array(end, "the header's length")?).into(),
        (2 | 3, 0) => u32::from_le_bytes(cursor.array(end, "the header's length")?).into(),
        _ => {
            let what = What::unsupported("npy version 1.0, 2.0 or 3.0", format!("{major}.{minor}"));
            return Err(Stop::fault(start + 6, what));
        }
    };
    let dict = cursor.pos();
    if len > LONGEST {
        let what = What::Limit {
            field: "the header's length",
            found: len,
            limit: LONGEST,
            option: None,
        };
        return Err(Stop::fault(dict, what));
    }
    cursor.need(len, end, "the header")?;
    Ok(Prefix { data: dict + len })
}

/// What the dict says of the array.
#[derive(Debug)]
pub(crate) struct Header {
    dtype: Result<(DType, bool), Fault>,
    shape: Result<Shape, Fault>,
    fortran: bool,
}

/// Reads the dict that ends at `end`: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` and blanks.
pub(crate) fn dict(cursor: &mut Cursor<'_>, end: u64) -> Result<Header, Stop> {
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
            let what = What::words(
                "descr, fortran_order and shape, each once",
                format!("{key:?}"),
            );
            return Err(Stop::fault(at, what));
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
    let missing = |key| Stop::fault(start, What::words(key, "a header without it"));
    Ok(Header {
        dtype: descr.ok_or_else(|| missing("'descr'"))?,
        shape: shape.ok_or_else(|| missing("'shape'"))?,
        fortran: fortran.ok_or_else(|| missing("'fortran_order'"))?,
    })
}

/// A Python string without escapes, of at most 64 bytes.
fn string(text: &mut Literal<'_, '_>) -> Result<String, Stop> {
    text.blank()?;
    let at = text.pos();
    let quote = match text.peek()? {
        Some(quote @ (b'\'' | b'"')) => quote,
        _ => return Err(text.unexpected("a string in quotes")?),
    };
    let mut bytes = vec![];
    text.step();
    loop {
        match text.peek()? {
            Some(byte) if byte == quote => break,
            Some(byte @ 0x20..=0x7E) if byte != b'\\' && bytes.len() < 64 => {
                bytes.push(char::from(byte))
            }
            _ => {
                return Err(Stop::fault(
                    at,
                    What::words("a short plain string", "another"),
                ));
            }
        }
        text.step();
    }
    text.step();
    Ok(bytes.into_iter().collect())
}

fn boolean(text: &mut Literal<'_, '_>) -> Result<bool, Stop> {
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
        _ => Err(Stop::fault(
            at,
            What::words("True or False", format!("{word:?}")),
        )),
    }
}

fn shape(text: &mut Literal<'_, '_>) -> Result<Result<Shape, Fault>, Stop> {
    let at = text.pos();
    text.expect(b'(', "a tuple of numbers")?;
    let numbers: Numbers = text.numbers(b')', "a number")?;
    if numbers.count == 1 && !numbers.comma {
        return Err(Stop::fault(
            at,
            What::words("a tuple", "a number in parentheses"),
        ));
    }
    Ok(numbers.shape().map_err(|what| Fault::new(at, what)))
}

/// The dtype and whether its bytes are big-endian; a fault of the array alone where blobs have no such dtype.
fn descr(text: &mut Literal<'_, '_>) -> Result<Result<(DType, bool), Fault>, Stop> {
    let at = text.pos();
    let unsupported = |found: String| {
        Fault::new(
            at,
            What::unsupported("a descr of a bool, integer or float of 1 to 8 bytes", found),
        )
    };
    if text.peek()? != Some(b'[') {
        let descr = string(text)?;
        return Ok(simple(&descr).ok_or_else(|| unsupported(format!("{descr:?}"))));
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
    Ok(match &words[..] {
        [name, bits] if name == "bfloat16" && bits == "<u2" => Ok((DType::BF16, false)),
        _ => Err(unsupported(format!("a record of {words:?}"))),
    })
}

fn simple(descr: &str) -> Option<(DType, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let dtype = match kind {
        "b1" => DType::Bool,
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
        _ => return None,
    };
    let wide = dtype.size() > 1;
    match order {
        "<" => Some((dtype, false)),
        ">" => Some((dtype, wide)),
        "|" | "=" if !wide => Some((dtype, false)),
        _ => None,
    }
}

impl Header {
    /// Fills `entry` in for an array whose data begin at `data` and have `room` bytes up to the file's or member's end.
    /// Returns how many of them the array takes. The payload is a plain run.
    pub(crate) fn describe(self, entry: &mut Entry, data: u64, room: u64) -> Result<u64, Fault> {
        // The shape first: it is shown beside the fault of an unknown dtype.
        entry.shape = self.shape?;
        let (dtype, swapped) = self.dtype?;
        let count = entry.shape.count() as u64;
        let axes = entry.shape.num_axes() as u32;
        let len = count
            .checked_mul(dtype.size() as u64)
            .ok_or_else(|| Fault::new(data, What::Overflow { axes }))?;
        if len > room {
            let what = What::Truncated {
                field: "the array's data",
                needed: len,
                left: room,
            };
            return Err(Fault::new(data, what));
        }
        entry.dtype = Some(dtype);
        entry.swapped = swapped;
        if self.fortran && axes > 1 {
            entry.order = Order::ColumnMajor;
        }
        if len > 0 {
            entry.payload = Payload::Runs(Runs::One(Segment {
                offset: data,
                count,
                stride: dtype.size() as u64,
            }));
        }
        Ok(len)
    }
}
