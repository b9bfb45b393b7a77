//! Reads one BlobProto as entries: the shape, the data and, if stored, the diff.
//!
//! First a walk collects every field, then the rules in `values` choose the fields that count.

use blob_core::{MAX_AXES, Shape};

use crate::caffe::proto_fields::blob_proto::{DATA, DIFF, DOUBLE_DATA, DOUBLE_DIFF, NUM, SHAPE, WIDTH};
use crate::caffe::proto_fields::blob_shape::DIM;
use crate::caffe::proto_fields::nv_blob_proto::{RAW_DATA_TYPE, RAW_DIFF};
use crate::caffe::values::{Choice, Fork, Raw, Repeated, choose};
use crate::entry::{Entry, Kind, Payload, Runs};
use crate::error::{Fault, FaultKind, ReadError};
use crate::limits::Limits;
use crate::repeated::Values;
use crate::warning::Flag;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Tag, Wire};

/// A BlobProto, field by field.
#[derive(Debug, Default)]
pub(crate) struct BlobFields {
    offset: u64,
    /// num, channels, height, width, where present.
    legacy: [Option<i32>; 4],
    dims: Vec<i64>,
    axes: u64,
    shape_at: Option<u64>,
    data: Values,
    diff: Values,
    double_data: Values,
    double_diff: Values,
    /// Fields 10 to 13 by wire type: NVCaffe's and the opencl branch's meanings collide.
    varint: [Option<u64>; 4],
    span: [Option<Span>; 4],
}

/// Walks one BlobProto.
pub(crate) fn walk(cursor: &mut Cursor<'_>, span: Span, limits: &Limits) -> Result<BlobFields, ReadError> {
    let mut fields = BlobFields { offset: span.start, ..BlobFields::default() };
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        fields.field(cursor, tag, span.end, limits)?;
    }
    Ok(fields)
}

impl BlobFields {
    fn field(&mut self, cursor: &mut Cursor<'_>, tag: Tag, end: u64, limits: &Limits) -> Result<(), ReadError> {
        match (tag.number, tag.wire) {
            (n @ NUM..=WIDTH, Wire::Varint) => {
                // proto2 keeps the low 32 bits of an int32's varint.
                let value = protobuf::varint(cursor, end, "a legacy dimension")? as i32;
                self.legacy[(n - NUM) as usize] = Some(value);
                Ok(())
            }
            (SHAPE, Wire::Len) => {
                let shape = protobuf::span(cursor, end, "shape")?;
                self.shape_at.get_or_insert(shape.start);
                self.shape(cursor, shape)
            }
            (DATA | DIFF, Wire::Len | Wire::Fixed32) | (DOUBLE_DATA | DOUBLE_DIFF, Wire::Len | Wire::Fixed64) => {
                self.values(cursor, tag, end, limits)
            }
            (n @ RAW_DATA_TYPE..=RAW_DIFF, Wire::Varint) => {
                self.varint[(n - RAW_DATA_TYPE) as usize] = Some(protobuf::varint(cursor, end, "a fork's data type")?);
                Ok(())
            }
            (n @ RAW_DATA_TYPE..=RAW_DIFF, Wire::Len) => {
                let span = protobuf::span(cursor, end, "a fork's data")?;
                self.span[(n - RAW_DATA_TYPE) as usize] = Some(span);
                cursor.seek(span.end);
                Ok(())
            }
            _ => protobuf::skip(cursor, tag, end),
        }
    }

    fn values(&mut self, cursor: &mut Cursor<'_>, tag: Tag, end: u64, limits: &Limits) -> Result<(), ReadError> {
        let (values, width, field) = match tag.number {
            DATA => (&mut self.data, 4, "data"),
            DIFF => (&mut self.diff, 4, "diff"),
            DOUBLE_DATA => (&mut self.double_data, 8, "double_data"),
            _ => (&mut self.double_diff, 8, "double_diff"),
        };
        if tag.wire == Wire::Len {
            let span = protobuf::span(cursor, end, field)?;
            cursor.seek(span.end);
            return values.packed(span, width, limits);
        }
        let at = cursor.pos();
        cursor.need(width, end, field)?;
        cursor.seek(at + width);
        values.single(at, width, limits)
    }

    /// One `shape` message; several messages concatenate, as protobuf merges messages.
    fn shape(&mut self, cursor: &mut Cursor<'_>, span: Span) -> Result<(), ReadError> {
        while let Some(tag) = protobuf::tag(cursor, span.end)? {
            match (tag.number, tag.wire) {
                (DIM, Wire::Varint) => {
                    let dim = protobuf::varint(cursor, span.end, "dim")?;
                    self.dim(dim as i64);
                }
                (DIM, Wire::Len) => {
                    let packed = protobuf::span(cursor, span.end, "dim")?;
                    while cursor.pos() < packed.end {
                        let dim = protobuf::varint(cursor, packed.end, "dim")?;
                        self.dim(dim as i64);
                    }
                }
                _ => protobuf::skip(cursor, tag, span.end)?,
            }
        }
        Ok(())
    }

    fn dim(&mut self, dim: i64) {
        self.axes += 1;
        if self.dims.len() < MAX_AXES {
            self.dims.push(dim);
        }
    }

    /// Whether one of the four dimensions from before 2015 is present: then the four are the shape.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy.iter().any(Option::is_some)
    }

    /// Whether NVCaffe's raw bytes are the values.
    pub(crate) fn is_raw(&self) -> bool {
        let is_stored = self.data.is_stored() || self.double_data.is_stored();
        matches!(self.fork(), Ok(Fork::NvCaffe)) && self.span[2].is_some() && !is_stored
    }

    /// Whether a shape is stored, in either way.
    pub(crate) fn has_shape(&self) -> bool {
        self.is_legacy() || self.shape_at.is_some()
    }

    /// Whether any value is stored, in any field.
    pub(crate) fn has_values(&self) -> bool {
        let floats = self.data.seen || self.diff.seen;
        floats || self.double_data.seen || self.double_diff.seen || self.span.iter().any(Option::is_some)
    }

    /// FromProto's shape: the legacy dimensions where any is present, an absent one counting 0; else `shape`'s.
    pub(crate) fn stored_shape(&self) -> Result<Shape, Fault> {
        let at = self.shape_at.unwrap_or(self.offset);
        let dims: Vec<i64> = if self.is_legacy() {
            self.legacy.iter().map(|d| d.unwrap_or(0).into()).collect()
        } else {
            self.dims.clone()
        };
        if !self.is_legacy() && self.axes > MAX_AXES as u64 {
            return Err(Fault::new(at, FaultKind::Axes { found: self.axes, max: MAX_AXES as u64 }));
        }
        const MAX_DIM: i64 = i32::MAX as i64;
        if let Some(axis) = dims.iter().position(|d| !(0..=MAX_DIM).contains(d)) {
            return Err(Fault::new(at, FaultKind::Dim { axis: axis as u32, found: dims[axis], max: MAX_DIM as u64 }));
        }
        let dims: Vec<usize> = dims.iter().map(|d| *d as usize).collect();
        Shape::new(&dims).map_err(|_| Fault::new(at, FaultKind::Overflow { axes: dims.len() as u32 }))
    }

    /// The fork that wrote fields 10 to 13, known by the wire types.
    fn fork(&self) -> Result<Fork, Fault> {
        let nv = self.varint[0].is_some() || self.varint[1].is_some() || self.span[3].is_some();
        let opencl = self.span[0].is_some() || self.span[1].is_some() || self.varint[3].is_some();
        let found = match (nv, opencl) {
            (true, true) => "fields 10 to 13 of both",
            (true, false) => return Ok(Fork::NvCaffe),
            (false, true) => return Ok(Fork::OpenCl),
            (false, false) if self.span[2].is_some() => {
                "field 12 alone, which is raw_data in one and packed_diff in the other"
            }
            (false, false) => return Ok(Fork::None),
        };
        Err(Fault::new(self.offset, FaultKind::words("fields of NVCaffe or of the opencl branch", found)))
    }

    /// The blob's data and, if stored, the diff, as entries at (`position`, `index`).
    pub(crate) fn into_entries(mut self, position: u32, index: u32) -> (Entry, Option<Entry>) {
        let legacy_and_shape = self.is_legacy() && self.shape_at.is_some();
        let make = |kind, choice: Result<Choice, Fault>, shape: &Result<Shape, Fault>| {
            let mut entry = Entry::new(position, index, kind);
            if legacy_and_shape {
                entry.flags.set(Flag::LegacyAndShape);
            }
            let checked = shape.clone().and_then(|shape| choice.and_then(|c| c.checked(shape)));
            match checked {
                Ok((shape, choice)) => {
                    entry.shape = shape;
                    entry.dtype = Some(choice.dtype);
                    entry.payload = Payload::Runs(Runs::from_vec(choice.runs));
                    if choice.several {
                        entry.flags.set(Flag::SeveralSources);
                    }
                }
                Err(fault) => entry.fault = Some(Box::new(fault)),
            }
            entry
        };
        let shape = self.stored_shape();
        let fork = self.fork();
        let data = fork.clone().and_then(|fork| self.choose_data(fork));
        let diff = match fork {
            Ok(fork) => self.choose_diff(fork),
            Err(_) => None,
        };
        let data = make(Kind::Data, data, &shape);
        let diff = diff.map(|choice| make(Kind::Diff, choice, &shape));
        (data, diff)
    }

    /// A fork's bytes and element type; `bytes` and `flag` are indices among fields 10 to 13.
    fn raw(&self, bytes: usize, flag: usize, field: &'static str) -> Option<Raw> {
        let flag = self.varint[flag];
        self.span[bytes].map(|span| Raw { span, flag, field })
    }

    fn choose_data(&mut self, fork: Fork) -> Result<Choice, Fault> {
        let raw = match fork {
            Fork::None => None,
            Fork::NvCaffe => self.raw(2, 0, "raw_data"),
            Fork::OpenCl => self.raw(1, 3, "packed_data"),
        };
        let double = Repeated { field: "double_data", values: std::mem::take(&mut self.double_data) };
        let float = Repeated { field: "data", values: std::mem::take(&mut self.data) };
        choose(fork, float, double, raw, self.offset)
    }

    fn choose_diff(&mut self, fork: Fork) -> Option<Result<Choice, Fault>> {
        let raw = match fork {
            Fork::None => None,
            Fork::NvCaffe => self.raw(3, 1, "raw_diff"),
            Fork::OpenCl => self.raw(2, 3, "packed_diff"),
        }
        .filter(|raw| raw.span.len() > 0);
        let double = Repeated { field: "double_diff", values: std::mem::take(&mut self.double_diff) };
        let float = Repeated { field: "diff", values: std::mem::take(&mut self.diff) };
        let is_stored = raw.is_some() || double.values.is_stored() || float.values.is_stored();
        is_stored.then(|| choose(fork, float, double, raw, self.offset))
    }
}
