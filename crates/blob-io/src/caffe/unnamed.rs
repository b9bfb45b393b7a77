//! Caffe's messages whose blobs have no names: BlobProto, BlobProtoVector, SolverState, Datum. An array is called `@0`,
//! `@1`, … by position.

use crate::caffe::proto_fields::{blob_proto_vector, datum, solver_state};
use crate::caffe::{blob, layer};
use crate::entry::{Entry, Kind, Payload, Runs, Segment};
use crate::error::{Fault, FaultKind, ReadError};
use crate::names::{NameTable, faulty, name_from_bytes};
use crate::repeated;
use crate::tensor_name::TensorName;
use crate::warning::Flag;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Wire};
use blob_core::{DType, Shape};

/// Lists a bare BlobProto: `@0`, and the diff `@0.diff`.
pub(crate) fn blob_proto(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let whole = Span::whole(cursor);
    table.next_position(0)?;
    let fields = match blob::walk(cursor, whole, table.limits()) {
        Ok(fields) => fields,
        // The message is whole; the array is in more pieces than are allowed.
        Err(ReadError::Fault(fault)) if matches!(fault.kind, FaultKind::Limit { .. }) => {
            table.push(faulty(0, 0, Kind::Data, fault), "@0", 0)?;
            return Ok(String::new());
        }
        Err(stop) => return Err(stop),
    };
    let dialect = if fields.is_legacy() { "legacy dimensions" } else { "" };
    let (data, diff) = fields.into_entries(0, 0);
    push_pair(table, data, diff, "@0", 0)?;
    Ok(dialect.to_owned())
}

/// Lists the blobs of a BlobProtoVector (field 1): `@0`, `@1`, ….
pub(crate) fn vector(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let whole = Span::whole(cursor);
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, whole.end)? {
        match (tag.number, tag.wire) {
            (blob_proto_vector::BLOBS, Wire::Len) => record(cursor, table, whole)?,
            _ => protobuf::skip(cursor, tag, whole.end)?,
        }
    }
    Ok(String::new())
}

/// Lists a SolverState's history (field 3): `@0`, `@1`, ….
pub(crate) fn solver(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let whole = Span::whole(cursor);
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, whole.end)? {
        match (tag.number, tag.wire) {
            (n @ (solver_state::ITER | solver_state::CURRENT_STEP), Wire::Varint) => {
                let value = protobuf::varint(cursor, whole.end, "a counter")? as i32;
                let key = if n == solver_state::ITER { "iter" } else { "current_step" };
                table.note(key, value.to_string());
            }
            (solver_state::LEARNED_NET, Wire::Len) => {
                let field = protobuf::field(cursor, tag, whole.end, "learned_net")?;
                let path = layer::text(cursor, Some(field), "learned_net")?;
                table.note("learned_net", name_from_bytes(&path).into_owned());
            }
            (solver_state::HISTORY, Wire::Len) => record(cursor, table, whole)?,
            _ => protobuf::skip(cursor, tag, whole.end)?,
        }
    }
    Ok(String::new())
}

/// One unnamed blob of a list.
fn record(cursor: &mut Cursor<'_>, table: &mut NameTable, whole: Span) -> Result<(), ReadError> {
    let span =
        layer::take(cursor, whole, "a blob").map_err(|stop| stop.within(format!("blob #{}", table.positions)))?;
    let position = table.next_position(span.start)?;
    let (data, diff) = layer::entries(cursor, table, span, position, 0)?;
    push_pair(table, data, diff, &format!("@{position}"), span.start)?;
    cursor.seek(span.end);
    Ok(())
}

fn push_pair(
    table: &mut NameTable,
    data: Entry,
    diff: Option<Entry>,
    name: &str,
    offset: u64,
) -> Result<(), ReadError> {
    table.push(data, name, offset)?;
    match diff {
        Some(diff) => table.push(diff, &TensorName::diff_of(name), offset),
        None => Ok(()),
    }
}

/// A Datum, field by field.
#[derive(Default)]
struct Datum {
    /// channels, height, width
    dims: [i32; 3],
    bytes: Option<Span>,
    floats: Vec<Segment>,
    encoded: bool,
}

/// Lists a Datum's one array: the bytes as u8, or the floats.
pub(crate) fn datum(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let whole = Span::whole(cursor);
    let position = table.next_position(0)?;
    let mut found = Datum::default();
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, whole.end)? {
        match (tag.number, tag.wire) {
            (n @ datum::CHANNELS..=datum::WIDTH, Wire::Varint) => {
                found.dims[(n - datum::CHANNELS) as usize] = protobuf::varint(cursor, whole.end, "a dimension")? as i32;
            }
            (datum::DATA, Wire::Len) => found.bytes = Some(layer::take(cursor, whole, "data")?),
            (datum::LABEL, Wire::Varint) => {
                let label = protobuf::varint(cursor, whole.end, "label")? as i32;
                table.note("label", label.to_string());
            }
            (datum::FLOAT_DATA, Wire::Len | Wire::Fixed32) => found.float(cursor, tag.wire, whole, table)?,
            (datum::ENCODED, Wire::Varint) => found.encoded = protobuf::varint(cursor, whole.end, "encoded")? != 0,
            _ => protobuf::skip(cursor, tag, whole.end)?,
        }
    }
    let dialect = if found.encoded { "encoded image" } else { "" };
    let mut entry = Entry::new(position, 0, Kind::Data);
    if let Err(fault) = found.describe(&mut entry) {
        entry.fault = Some(Box::new(fault));
    }
    table.push(entry, "@0", 0)?;
    Ok(dialect.to_owned())
}

impl Datum {
    fn float(&mut self, cursor: &mut Cursor<'_>, wire: Wire, whole: Span, table: &NameTable) -> Result<(), ReadError> {
        let run = if wire == Wire::Len {
            let span = layer::take(cursor, whole, "float_data")?;
            if span.len() % 4 != 0 {
                let len = span.len();
                let what = FaultKind::Multiple { field: "float_data", len, width: 4 };
                return Err(ReadError::fault(span.start, what));
            }
            Segment { offset: span.start, count: span.len() / 4, stride: 4 }
        } else {
            let offset = cursor.pos();
            cursor.need(4, whole.end, "float_data")?;
            cursor.seek(offset + 4);
            Segment { offset, count: 1, stride: 4 }
        };
        repeated::append(&mut self.floats, run, table.limits())
    }

    /// Caffe's DatumToBlob takes the bytes where there are any, else the floats. In a Datum without either, an empty
    /// field of bytes makes the dtype u8.
    fn describe(self, entry: &mut Entry) -> Result<(), Fault> {
        let bytes = self.bytes.filter(|span| span.len() > 0 || self.floats.is_empty());
        if bytes.is_some() && !self.floats.is_empty() {
            entry.flags.set(Flag::SeveralSources);
        }
        let floats: u64 = self.floats.iter().map(|run| run.count).sum();
        let (field, count, dtype, runs) = match bytes {
            Some(span) => {
                let run = Segment { offset: span.start, count: span.len(), stride: 1 };
                ("data", span.len(), DType::U8, Runs::One(run))
            }
            None => ("float_data", floats, DType::F32, Runs::from_vec(self.floats)),
        };
        let shape = if self.encoded {
            entry.flags.set(Flag::Encoded);
            Shape::new([count as usize])
        } else {
            if let Some(axis) = self.dims.iter().position(|d| *d < 0) {
                let what = FaultKind::Dim { axis: axis as u32, found: self.dims[axis].into(), max: i32::MAX as u64 };
                return Err(Fault::new(0, what));
            }
            Shape::new(self.dims.map(|d| d as usize))
        };
        let shape = shape.map_err(|_| Fault::new(0, FaultKind::Overflow { axes: 3 }))?;
        if shape.count() as u64 != count {
            let what = FaultKind::Count { field, expected: shape.count() as u64, found: count };
            return Err(Fault::new(0, what));
        }
        entry.shape = shape;
        entry.dtype = Some(dtype);
        entry.payload = Payload::Runs(if count == 0 { Runs::None } else { runs });
        Ok(())
    }
}
