//! The values of a BlobProto's fields: the location of the values, and which field is used if several hold values.
//!
//! Pure rules: FromProto's, NVCaffe's and the opencl branch's.

use blob_core::{DType, Shape};

use crate::caffe::protobuf::Span;
use crate::entry::Segment;
use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::{Limit, Limits};

/// The values of one repeated field, packed or single.
#[derive(Debug, Default)]
pub(crate) struct Values {
    runs: Vec<Segment>,
    pub(crate) count: u64,
    pub(crate) seen: bool,
    /// Offset and length of the first packed chunk whose length is no multiple of the element.
    ragged: Option<(u64, u64)>,
}

impl Values {
    pub(crate) fn packed(&mut self, span: Span, width: u64, limits: &Limits) -> Result<(), ReadError> {
        self.seen = true;
        if !span.len().is_multiple_of(width) {
            self.ragged.get_or_insert((span.start, span.len()));
            return Ok(());
        }
        let run = Segment { offset: span.start, count: span.len() / width, stride: width };
        self.count += run.count;
        append(&mut self.runs, run, limits)
    }

    /// Whether the field holds values, even of a wrong length.
    pub(crate) fn is_stored(&self) -> bool {
        self.count > 0 || self.ragged.is_some()
    }

    /// Adds one unpacked value, which has a separate tag.
    pub(crate) fn single(&mut self, offset: u64, width: u64, limits: &Limits) -> Result<(), ReadError> {
        self.seen = true;
        self.count += 1;
        let run = Segment { offset, count: 1, stride: width };
        append(&mut self.runs, run, limits)
    }
}

/// Appends a run of values; single values at equal distances become one run.
pub(crate) fn append(runs: &mut Vec<Segment>, run: Segment, limits: &Limits) -> Result<(), ReadError> {
    if run.count == 0 {
        return Ok(());
    }
    if let (Some(last), 1) = (runs.last_mut(), run.count) {
        let gap = run.offset - (last.offset + (last.count - 1) * last.stride);
        if (last.count == 1 && gap <= MAX_STRIDE) || gap == last.stride {
            last.stride = gap;
            last.count += 1;
            return Ok(());
        }
    }
    let (needed, allowed) = (runs.len() as u64 + 1, limits.max_segments as u64);
    check_limit(run.offset, Limit::Segments, "the number of separate runs of values", needed, allowed)?;
    runs.push(run);
    Ok(())
}

/// The longest stride of unpacked values that form one run: usually only a tag lies between two values.
const MAX_STRIDE: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    None,
    NvCaffe,
    OpenCl,
}

/// The values that are used.
pub(crate) struct Choice {
    field: &'static str,
    pub(crate) dtype: DType,
    count: u64,
    pub(crate) runs: Vec<Segment>,
    pub(crate) several: bool,
    at: u64,
}

impl Choice {
    pub(crate) fn checked(self, shape: Shape) -> Result<(Shape, Self), Fault> {
        if shape.count() as u64 == self.count {
            return Ok((shape, self));
        }
        Err(Fault::new(
            self.at,
            FaultKind::Count { field: self.field, expected: shape.count() as u64, found: self.count },
        ))
    }
}

/// A fork's raw bytes, the element type's number, and the field's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) span: Span,
    pub(crate) flag: Option<u64>,
    pub(crate) field: &'static str,
}

/// FromProto's precedence: doubles where there are any, then floats, then a fork's raw bytes.
pub(crate) fn choose(
    fork: Fork,
    (float_field, float): (&'static str, Values),
    (double_field, double): (&'static str, Values),
    raw: Option<Raw>,
    at: u64,
) -> Result<Choice, Fault> {
    let sources = [float.is_stored(), double.is_stored(), raw.is_some()];
    // Without any values, an empty field that is present decides the dtype.
    let stored = (double.is_stored(), float.is_stored(), raw);
    let (field, values, dtype, width) = match stored {
        (false, false, Some(raw)) => return raw_choice(fork, raw, at),
        (true, ..) => (double_field, double, DType::F64, 8),
        (false, false, None) if double.seen => (double_field, double, DType::F64, 8),
        _ => (float_field, float, DType::F32, 4),
    };
    if let Some((offset, len)) = values.ragged {
        return Err(Fault::new(offset, FaultKind::Multiple { field, len, width }));
    }
    let runs = values.runs;
    Ok(Choice {
        field,
        dtype,
        count: values.count,
        at: runs.first().map_or(at, |run| run.offset),
        runs,
        several: sources.iter().filter(|stored| **stored).count() > 1,
    })
}

fn raw_choice(fork: Fork, raw: Raw, at: u64) -> Result<Choice, Fault> {
    let Raw { span, flag, field } = raw;
    let dtype = raw_dtype(fork, flag).ok_or_else(|| {
        Fault::new(
            at,
            FaultKind::Flag {
                field: if fork == Fork::NvCaffe { "raw_data_type" } else { "data_type" },
                found: flag.map_or(-1, |f| f as i64),
                known: "the number of a known element type",
            },
        )
    })?;
    let width = dtype.size() as u64;
    if !span.len().is_multiple_of(width) {
        let len = span.len();
        return Err(Fault::new(span.start, FaultKind::Multiple { field, len, width }));
    }
    let count = span.len() / width;
    let runs = if count == 0 { Vec::new() } else { vec![Segment { offset: span.start, count, stride: width }] };
    Ok(Choice { field, dtype, count, runs, several: false, at: span.start })
}

/// NVCaffe: DOUBLE 0, FLOAT 1, FLOAT16 2, INT 3, UINT 4, BOOL 5; the type must be stated. opencl: FLOAT 0, HALF 1,
/// DOUBLE 2; opencl's quantised and packed types need scales that the blob does not hold.
fn raw_dtype(fork: Fork, flag: Option<u64>) -> Option<DType> {
    Some(match (fork, flag) {
        (Fork::NvCaffe, Some(0)) => DType::F64,
        (Fork::NvCaffe, Some(1)) => DType::F32,
        (Fork::NvCaffe, Some(2)) => DType::F16,
        (Fork::NvCaffe, Some(3)) => DType::I32,
        (Fork::NvCaffe, Some(4)) => DType::U32,
        (Fork::NvCaffe, Some(5)) => DType::Bool,
        (Fork::OpenCl, None | Some(0)) => DType::F32,
        (Fork::OpenCl, Some(1)) => DType::F16,
        (Fork::OpenCl, Some(2)) => DType::F64,
        _ => return None,
    })
}
