//! Reads a safetensors file as entries: the header token by token, never as a whole.

use blob_core::{DType, Shape};

use crate::entry::{Entry, Kind, Payload, Runs, Segment};
use crate::error::{Fault, FaultKind, ReadError};
use crate::limits::LONGEST_NAME;
use crate::metadata;
use crate::names::NameTable;
use crate::safetensors::{DTYPES, FOREIGN, LONGEST_HEADER};
use crate::wire::cursor::Cursor;
use crate::wire::literal::{Literal, Numbers, repeated_key};

/// How deep the value of an unknown key may nest. serde_json, and with serde_json the reference implementation, allows
/// 128, including the two objects around the value.
const MAX_NESTED: u32 = 126;

/// No file's data end behind this byte.
const MAX_END: u64 = 1 << 62;

/// Lists the tensors in the order of the data.
pub(crate) fn read(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let len = cursor.u64("the header's length")?;
    if len > LONGEST_HEADER {
        let found = format!("one of {len}");
        return Err(of_header(ReadError::fault(0, FaultKind::words("a header of at most 100000000 bytes", found))));
    }
    let file_len = cursor.file_len();
    cursor.need(len, file_len, "the header")?;
    let data = cursor.pos() + len;
    let mut cut = Cut { room: file_len - data, fault: None };
    header(&mut Literal::new(cursor, data), table, &mut cut).map_err(of_header)?;
    let placed = place(table.entries_mut(), data);
    if let Some(fault) = cut.fault {
        // The data have no holes, so the tensors that the file covers come first.
        let whole = placed.map_or(0, |_| {
            let runs = table.entries_mut().iter().map(|entry| entry.segments());
            runs.take_while(|runs| runs.iter().all(|run| run.offset + run.count * run.stride <= file_len)).count()
        });
        table.truncate(whole);
        return Err(ReadError::Fault(fault));
    }
    let end = placed?;
    if end < file_len {
        let left = file_len - end;
        table.warn_of_loss(
            Some(end),
            format!("{left} bytes follow the tensors; the reference reader refuses such a file"),
        );
        let found = format!("{left} bytes behind them");
        table.fault(Fault::new(end, FaultKind::words("a file that ends with its tensors", found)));
    }
    Ok(String::new())
}

/// A fault in words as one of the header.
fn of_header(mut stop: ReadError) -> ReadError {
    if let ReadError::Fault(fault) = &mut stop
        && let FaultKind::Words { expected, found } = &mut fault.kind
    {
        fault.kind = FaultKind::Header { expected, found: std::mem::take(found) };
    }
    stop
}

/// The bytes that the file has for the tensors, and the fault of the first tensor that needs more.
struct Cut {
    room: u64,
    fault: Option<Fault>,
}

/// `{"__metadata__":{…},"name":{…},…}`, then blanks.
fn header(text: &mut Literal<'_, '_>, table: &mut NameTable, cut: &mut Cut) -> Result<(), ReadError> {
    let mut metadata = false;
    text.members(|text| {
        text.blank()?;
        let at = text.pos();
        let name = text.json_string(LONGEST_NAME, "a tensor's name")?;
        text.expect(b':', "a colon")?;
        if name == "__metadata__" {
            if std::mem::replace(&mut metadata, true) {
                return Err(repeated_key(at, &name));
            }
            text.blank()?;
            if text.peek()? == Some(b'n') {
                table.warn(Some(at), "the metadata are null; read as none");
                return text.word("null");
            }
            return metadata::read(text, table);
        }
        if table.has(&name) {
            return Err(repeated_key(at, &name));
        }
        let mut entry = Entry::new(0, 0, Kind::Data);
        if tensor(text, at, cut, &mut entry)? {
            table
                .warn_of_loss(Some(at), "a tensor has keys beside dtype, shape and data_offsets; they are passed over");
        }
        table.push(entry, &name, at)
    })?;
    text.blank()?;
    match text.peek()? {
        None => Ok(()),
        Some(_) => Err(text.unexpected("blanks after the header")?),
    }
}

/// Reads one tensor: `{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}`, in any order. The entry's segment has an
/// offset within the data and a length in bytes, until `place` has sorted all tensors. Returns whether there are other
/// keys, which the reference implementation skips too.
fn tensor(text: &mut Literal<'_, '_>, at: u64, cut: &mut Cut, entry: &mut Entry) -> Result<bool, ReadError> {
    let mut dtype = None;
    let mut shape: Option<(u64, Numbers)> = None;
    let mut offsets = None;
    let mut others = false;
    text.members(|text| {
        text.blank()?;
        let at = text.pos();
        let key = text.key()?;
        let value = text.pos();
        let repeated = match key.as_str() {
            "dtype" => dtype.replace((value, text.json_string(64, "a dtype")?)).is_some(),
            "shape" => {
                text.expect(b'[', "a list of numbers")?;
                shape.replace((value, text.numbers(b']', "a number")?)).is_some()
            }
            "data_offsets" => {
                text.expect(b'[', "a list of numbers")?;
                offsets.replace((value, text.numbers(b']', "a number")?)).is_some()
            }
            _ => {
                others = true;
                text.skip_json(MAX_NESTED)?;
                false
            }
        };
        if repeated { Err(repeated_key(at, &key)) } else { Ok(()) }
    })?;
    let missing = |key: &'static str| ReadError::fault(at, FaultKind::words(key, "a tensor without it"));
    let (dtype_at, dtype) = dtype.ok_or_else(|| missing("a dtype"))?;
    let (shape_at, shape) = shape.ok_or_else(|| missing("a shape"))?;
    let (offsets_at, offsets) = offsets.ok_or_else(|| missing("data_offsets"))?;
    let (begin, end) = range(offsets_at, &offsets, cut)?;
    entry.payload = Payload::Runs(Runs::One(Segment { offset: begin, count: end - begin, stride: 1 }));
    let described = shape.shape().map_err(|what| Fault::new(shape_at, what)).and_then(|shape| {
        entry.shape = shape;
        let (known, bits) = parse_dtype(&dtype).map_err(|what| Fault::new(dtype_at, what))?;
        fits(&entry.shape, bits, end - begin).map_err(|what| Fault::new(offsets_at, what))?;
        Ok(known)
    });
    match described {
        Ok(Known::Native(dtype)) => entry.dtype = Some(dtype),
        Ok(Known::Foreign(name)) => entry.set_foreign(dtype_at, name, end - begin),
        Err(fault) => entry.fault = Some(Box::new(fault)),
    }
    Ok(others)
}

/// A dtype of the format: either a dtype of blobs, or a foreign one, which is only listed.
enum Known {
    Native(DType),
    Foreign(&'static str),
}

/// The dtype, and the bits of an element.
fn parse_dtype(dtype: &str) -> Result<(Known, u64), FaultKind> {
    if let Some((_, ours)) = DTYPES.iter().find(|(name, _)| *name == dtype) {
        return Ok((Known::Native(*ours), ours.size() as u64 * 8));
    }
    let foreign = FOREIGN.iter().find(|(name, _)| *name == dtype);
    let foreign = foreign.map(|(name, bits)| (Known::Foreign(name), *bits));
    foreign.ok_or_else(|| FaultKind::unsupported("a dtype of safetensors 0.8", dtype.to_owned()))
}

fn fits(shape: &Shape, bits: u64, len: u64) -> Result<(), FaultKind> {
    let axes = shape.num_axes() as u32;
    let expected = (shape.count() as u64).checked_mul(bits);
    let expected = expected.ok_or(FaultKind::Overflow { axes })?;
    if !expected.is_multiple_of(8) {
        let found = format!("{expected} bits");
        return Err(FaultKind::words("elements that fill whole bytes", found));
    }
    let expected = expected / 8;
    if expected == len {
        return Ok(());
    }
    Err(FaultKind::Mismatch { field: "the bytes between data_offsets", expected, found: len })
}

/// The two offsets, checked to be in order. An end behind the data is noted, and is an error where no file is as long.
fn range(at: u64, offsets: &Numbers, cut: &mut Cut) -> Result<(u64, u64), ReadError> {
    let [begin, end] = offsets.kept[..] else {
        let what = FaultKind::Mismatch { field: "data_offsets", expected: 2, found: offsets.count };
        return Err(ReadError::fault(at, what));
    };
    if begin > end {
        let what = FaultKind::words("data_offsets in order", format!("{begin} and then {end}"));
        return Err(ReadError::fault(at, what));
    }
    if end > cut.room {
        let what = FaultKind::Truncated { field: "the tensors' data", needed: end, left: cut.room };
        if end > MAX_END {
            return Err(ReadError::fault(at, what));
        }
        cut.fault.get_or_insert(Fault::new(at, what));
    }
    Ok((begin, end))
}

/// Sorts the entries by data, and gives the segments the offsets in the file. Checks that the data have neither holes
/// nor overlaps; returns where the data end.
fn place(entries: &mut [Entry], data: u64) -> Result<u64, ReadError> {
    let bytes = |entry: &Entry| entry.segments().first().map_or((0, 0), |s| (s.offset, s.count));
    entries.sort_unstable_by(|a, b| (bytes(a), &a.name).cmp(&(bytes(b), &b.name)));
    let mut end = 0;
    for (position, entry) in entries.iter_mut().enumerate() {
        let (offset, len) = bytes(entry);
        if offset != end {
            let what = FaultKind::Mismatch {
                field: "where the next tensor's data begin (the format allows neither holes nor overlaps)",
                expected: end,
                found: offset,
            };
            return Err(ReadError::fault(data + end, what));
        }
        end += len;
        entry.position = position as u32;
        let width = entry.dtype.map_or(1, DType::size) as u64;
        entry.payload = Payload::Runs(match len {
            0 => Runs::None,
            _ => Runs::One(Segment { offset: data + offset, count: len / width, stride: width }),
        });
    }
    Ok(data + end)
}
