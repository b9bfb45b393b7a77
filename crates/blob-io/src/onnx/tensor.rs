//! Reads one TensorProto as an entry: first a walk that collects every field, then the rules that choose the values.
//!
//! Values in another file are left to `external`: here the entry gets a fault, which goes away once that file is there.

use blob_core::{DType, MAX_AXES, Shape};

use crate::entry::{Entry, Kind, Payload, Runs, Segment, Varints};
use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::{LONGEST_NAME, Limit, Limits};
use crate::onnx::numbers::{string_string_entry_proto as pair, tensor_proto as number};
use crate::onnx::place::Place;
use crate::onnx::types::{self, ElementType, Typed};
use crate::repeated::Values;
use crate::warning::Flag;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Tag, Wire};

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: u64 = 1;
/// The longest varint.
const LONGEST_VARINT: u64 = 10;

/// A TensorProto, field by field.
#[derive(Debug, Default)]
pub(super) struct TensorFields {
    at: u64,
    dims: Vec<i64>,
    axes: u64,
    data_type: i32,
    name: Option<Span>,
    is_segment: bool,
    is_external: bool,
    raw: Option<Span>,
    floats: Values,
    doubles: Values,
    /// `int32_data`, `int64_data`, `uint64_data`.
    ints: [Vec<Span>; 3],
    /// The bytes of all texts.
    texts: u64,
    /// The place in another file, by `location`, `offset` and `length`.
    place: [Option<Span>; 3],
    /// Whether a SHA-1 of that file is stated.
    has_checksum: bool,
    /// The first fault of the values.
    fault: Option<Fault>,
}

/// An entry, and where the values are, if not in the model.
pub(super) struct Read {
    pub(super) entry: Entry,
    pub(super) place: Option<Place>,
}

/// Walks one TensorProto. A fault of the values is kept, since the fields behind them are still sound.
pub(super) fn walk(cursor: &mut Cursor<'_>, span: Span, limits: &Limits) -> Result<TensorFields, ReadError> {
    let mut fields = TensorFields { at: span.start, ..TensorFields::default() };
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        fields.field(cursor, tag, span.end, limits)?;
    }
    Ok(fields)
}

/// The name in a TensorProto that may be cut off.
pub(super) fn name_before_cut(cursor: &mut Cursor<'_>, span: Span) -> Option<Span> {
    cursor.seek(span.start);
    while let Ok(Some(tag)) = protobuf::tag(cursor, span.end) {
        if (tag.number, tag.wire) == (number::NAME, Wire::Len) {
            return protobuf::span(cursor, span.end, "a tensor's name").ok();
        }
        protobuf::skip(cursor, tag, span.end).ok()?;
    }
    None
}

impl TensorFields {
    fn field(&mut self, cursor: &mut Cursor<'_>, tag: Tag, end: u64, limits: &Limits) -> Result<(), ReadError> {
        let mut take = |name| protobuf::field(cursor, tag, end, name).map(|field| field.content);
        match (tag.number, tag.wire) {
            (number::DIMS, Wire::Len) => {
                let packed = take("dims")?;
                cursor.seek(packed.start);
                while cursor.pos() < packed.end {
                    self.dim(protobuf::varint(cursor, packed.end, "dims")?);
                }
            }
            (number::DIMS, Wire::Varint) => self.dim(protobuf::varint(cursor, end, "dims")?),
            (number::DATA_TYPE, Wire::Varint) => self.data_type = protobuf::varint(cursor, end, "data_type")? as i32,
            (number::DATA_LOCATION, Wire::Varint) => {
                self.is_external = protobuf::varint(cursor, end, "data_location")? == EXTERNAL;
            }
            (number::NAME, Wire::Len) => self.name = Some(take("a tensor's name")?),
            (number::SEGMENT, Wire::Len) => {
                take("segment")?;
                self.is_segment = true;
            }
            (number::RAW_DATA, Wire::Len) => self.raw = Some(take("raw_data")?),
            (number::STRING_DATA, Wire::Len) => self.texts += take("string_data")?.len(),
            (number::EXTERNAL_DATA, Wire::Len) => {
                let content = take("external_data")?;
                self.place(cursor, content)?;
                cursor.seek(content.end);
            }
            (number::FLOAT_DATA, Wire::Len | Wire::Fixed32) => {
                let added = values(&mut self.floats, cursor, tag, end, 4, limits);
                self.keep(added)?;
            }
            (number::DOUBLE_DATA, Wire::Len | Wire::Fixed64) => {
                let added = values(&mut self.doubles, cursor, tag, end, 8, limits);
                self.keep(added)?;
            }
            (number::INT32_DATA | number::INT64_DATA | number::UINT64_DATA, Wire::Len | Wire::Varint) => {
                let content = if tag.wire == Wire::Len {
                    take("packed integers")?
                } else {
                    let start = cursor.pos();
                    protobuf::varint(cursor, end, "an integer")?;
                    Span { start, end: cursor.pos() }
                };
                self.integers(tag.number, content, limits)?;
            }
            _ => protobuf::skip(cursor, tag, end)?,
        }
        Ok(())
    }

    fn dim(&mut self, dim: u64) {
        self.axes += 1;
        if self.dims.len() < MAX_AXES {
            self.dims.push(dim as i64);
        }
    }

    /// Adds a range of integers: one packed field, or one that is stored alone.
    fn integers(&mut self, number: u32, content: Span, limits: &Limits) -> Result<(), ReadError> {
        if content.len() == 0 {
            return Ok(());
        }
        let spans = &mut self.ints[integer_field(number)];
        let field = "the number of separate runs of values";
        let checked =
            check_limit(content.start, Limit::Segments, field, spans.len() as u64 + 1, limits.max_segments as u64);
        if checked.is_ok() {
            spans.push(content);
        }
        self.keep(checked.map_err(ReadError::Fault))
    }

    /// Keeps the first fault of values; the error is one of reading.
    fn keep(&mut self, added: Result<(), ReadError>) -> Result<(), ReadError> {
        match added {
            Err(ReadError::Fault(fault)) if matches!(fault.kind, FaultKind::Limit { .. }) => {
                self.fault.get_or_insert(fault);
                Ok(())
            }
            other => other,
        }
    }

    /// One pair of `external_data`. Of a key that comes again the last value counts; others are passed
    /// over.
    fn place(&mut self, cursor: &mut Cursor<'_>, span: Span) -> Result<(), ReadError> {
        let Pair { key, value } = Pair::read(cursor, span)?;
        let Some(key) = key.filter(|key| key.len() < 16) else { return Ok(()) };
        cursor.seek(key.start);
        let key = cursor.bytes(key.len(), key.end, 16, "a key")?;
        let known = [&b"location"[..], b"offset", b"length"];
        self.has_checksum |= key == b"checksum";
        if let Some(which) = known.iter().position(|known| *known == key) {
            self.place[which] = value;
        }
        Ok(())
    }

    /// The bytes of the tensor's name; none where there is no name.
    pub(super) fn name(&self, cursor: &mut Cursor<'_>) -> Result<Vec<u8>, ReadError> {
        let Some(name) = self.name else { return Ok(Vec::new()) };
        cursor.seek(name.start);
        cursor.bytes(name.len(), name.end, LONGEST_NAME, "a tensor's name")
    }

    /// The tensor as the entry at `position`.
    pub(super) fn into_entry(mut self, cursor: &mut Cursor<'_>, position: u32) -> Result<Read, ReadError> {
        let mut entry = Entry::new(position, 0, Kind::Data);
        let mut place = None;
        let chosen = self.shape().and_then(|shape| {
            entry.shape = shape;
            self.choose(&mut entry)
        });
        match chosen {
            Ok(Chosen::Here) => {}
            Ok(Chosen::Elsewhere(dtype)) => match Place::read(cursor, self.place, dtype, self.at)? {
                Ok(mut found) => {
                    found.has_checksum = self.has_checksum;
                    let fault = FaultKind::words(NOT_HERE, format!("them in {:?}", found.location));
                    entry.fault = Some(Box::new(Fault::new(self.at, fault)));
                    place = Some(found);
                }
                Err(fault) => entry.fault = Some(Box::new(fault)),
            },
            Err(fault) => entry.fault = Some(Box::new(fault)),
        }
        Ok(Read { entry, place })
    }

    fn shape(&self) -> Result<Shape, Fault> {
        if self.axes > MAX_AXES as u64 {
            return Err(Fault::new(self.at, FaultKind::Axes { found: self.axes, max: MAX_AXES as u64 }));
        }
        let extents: Result<Vec<usize>, _> = self.dims.iter().map(|dim| usize::try_from(*dim)).collect();
        match extents {
            Ok(extents) => Shape::new(&extents).map_err(|_| self.overflow()),
            Err(_) => {
                let axis = self.dims.iter().position(|dim| *dim < 0).unwrap_or(0);
                let max = i64::MAX as u64;
                Err(Fault::new(self.at, FaultKind::Dim { axis: axis as u32, found: self.dims[axis], max }))
            }
        }
    }

    fn overflow(&self) -> Fault {
        Fault::new(self.at, FaultKind::Overflow { axes: self.axes as u32 })
    }

    /// Chooses the values of a tensor whose shape is known: raw bytes where the field is present, as ONNX does, else
    /// the typed field of the element type.
    fn choose(&mut self, entry: &mut Entry) -> Result<Chosen, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if self.is_segment {
            return Err(Fault::new(self.at, FaultKind::unsupported("a whole tensor", "a segment of one")));
        }
        let Some(known) = types::of_number(self.data_type) else {
            if self.data_type == 0 {
                return Err(Fault::new(self.at, FaultKind::words("an element type", "none")));
            }
            let bytes = self.raw.map_or(0, Span::len);
            entry.set_foreign(self.at, format!("type {}", self.data_type), bytes);
            return Ok(Chosen::Here);
        };
        let count = entry.shape.count() as u64;
        let Some(dtype) = known.dtype else {
            entry.set_foreign(self.at, known.name, self.foreign_len(known, count)?);
            return Ok(Chosen::Here);
        };
        let width = dtype.size() as u64;
        if count.checked_mul(width).is_none_or(|len| len > i64::MAX as u64) {
            return Err(self.overflow());
        }
        if self.is_external {
            return Ok(Chosen::Elsewhere(dtype));
        }
        entry.payload = match self.raw {
            Some(raw) => {
                if self.floats.is_stored() || self.doubles.is_stored() || self.ints.iter().any(|of| !of.is_empty()) {
                    entry.flags.set(Flag::RawAndTyped);
                }
                raw_payload(raw, count, width)?
            }
            None => self.typed_payload(known, count)?,
        };
        entry.dtype = Some(dtype);
        Ok(Chosen::Here)
    }

    fn typed_payload(&mut self, known: &ElementType, count: u64) -> Result<Payload, Fault> {
        let (field, values, width) = match known.typed {
            Typed::Floats => ("float_data", std::mem::take(&mut self.floats), 4),
            Typed::Doubles => ("double_data", std::mem::take(&mut self.doubles), 8),
            Typed::Ints | Typed::Texts => return self.integer_payload(known, count),
        };
        if let Some((offset, len)) = values.ragged {
            return Err(Fault::new(offset, FaultKind::Multiple { field, len, width }));
        }
        if values.count != count {
            let at = values.runs.first().map_or(self.at, |run| run.offset);
            return Err(Fault::new(at, FaultKind::Count { field, expected: count, found: values.count }));
        }
        Ok(Payload::Runs(Runs::from_vec(values.runs)))
    }

    /// The integers of a tensor. How many there are shows when they are decoded; here it must be possible.
    fn integer_payload(&mut self, known: &ElementType, count: u64) -> Result<Payload, Fault> {
        let (field, number) = match known.dtype {
            Some(DType::I64) => ("int64_data", number::INT64_DATA),
            Some(DType::U32 | DType::U64) => ("uint64_data", number::UINT64_DATA),
            _ => ("int32_data", number::INT32_DATA),
        };
        let spans = std::mem::take(&mut self.ints[integer_field(number)]);
        let bytes: u64 = spans.iter().map(|span| span.len()).sum();
        if bytes < count || bytes > count.saturating_mul(LONGEST_VARINT) {
            let at = spans.first().map_or(self.at, |span| span.start);
            let found = if bytes < count { bytes } else { bytes.div_ceil(LONGEST_VARINT) };
            return Err(Fault::new(at, FaultKind::Count { field, expected: count, found }));
        }
        if count == 0 {
            return Ok(Payload::Runs(Runs::None));
        }
        Ok(Payload::Varints(Box::new(Varints { spans: spans.into_boxed_slice() })))
    }

    /// The bytes of a tensor that is only listed, as the type and the shape say; those that are stored of texts.
    fn foreign_len(&self, known: &ElementType, count: u64) -> Result<u64, Fault> {
        if known.typed == Typed::Texts {
            return Ok(self.texts);
        }
        let bytes = count.checked_mul(known.bits).ok_or_else(|| self.overflow())?.div_ceil(8);
        match self.raw.filter(|_| !self.is_external) {
            Some(raw) if raw.len() != bytes => Err(Fault::new(raw.start, mismatch(bytes, raw.len()))),
            _ => Ok(bytes),
        }
    }
}

/// What a tensor without the file beside has instead of values.
const NOT_HERE: &str = "the values in the model, or the file that holds them beside it";

enum Chosen {
    Here,
    Elsewhere(DType),
}

fn integer_field(number: u32) -> usize {
    match number {
        number::INT32_DATA => 0,
        number::INT64_DATA => 1,
        _ => 2,
    }
}

fn mismatch(expected: u64, found: u64) -> FaultKind {
    FaultKind::Mismatch { field: "the bytes of raw_data", expected, found }
}

fn raw_payload(raw: Span, count: u64, width: u64) -> Result<Payload, Fault> {
    if raw.len() != count * width {
        return Err(Fault::new(raw.start, mismatch(count * width, raw.len())));
    }
    let run = Segment { offset: raw.start, count, stride: width };
    Ok(Payload::Runs(if count == 0 { Runs::None } else { Runs::One(run) }))
}

/// Adds numbers of a fixed width: one packed field, or one that is stored alone.
fn values(
    values: &mut Values,
    cursor: &mut Cursor<'_>,
    tag: Tag,
    end: u64,
    width: u64,
    limits: &Limits,
) -> Result<(), ReadError> {
    if tag.wire == Wire::Len {
        let packed = protobuf::field(cursor, tag, end, "packed numbers")?.content;
        return values.packed(packed, width, limits);
    }
    let at = cursor.pos();
    cursor.need(width, end, "a number")?;
    cursor.seek(at + width);
    values.single(at, width, limits)
}

/// Where the key and the value of a message of texts lie (`StringStringEntryProto`).
#[derive(Default)]
pub(super) struct Pair {
    pub(super) key: Option<Span>,
    pub(super) value: Option<Span>,
}

impl Pair {
    /// Reads one pair. Of a field that comes again the last one counts.
    pub(super) fn read(cursor: &mut Cursor<'_>, span: Span) -> Result<Self, ReadError> {
        let mut read = Self::default();
        cursor.seek(span.start);
        while let Some(tag) = protobuf::tag(cursor, span.end)? {
            match (tag.number, tag.wire) {
                (pair::KEY, Wire::Len) => read.key = Some(protobuf::field(cursor, tag, span.end, "a key")?.content),
                (pair::VALUE, Wire::Len) => {
                    read.value = Some(protobuf::field(cursor, tag, span.end, "a value")?.content);
                }
                _ => protobuf::skip(cursor, tag, span.end)?,
            }
        }
        Ok(read)
    }
}
