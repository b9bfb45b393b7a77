//! The values of a BlobProto's fields: the location of the values, and which field is used if several hold values.
//!
//! Pure rules: FromProto's, NVCaffe's and the opencl branch's.

use blob_core::{DType, Shape};

use crate::entry::Segment;
use crate::error::{Fault, FaultKind};
use crate::repeated::Values;
use crate::wire::protobuf::Span;

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

/// The values of a repeated field, and the field's name.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(crate) field: &'static str,
    pub(crate) values: Values,
}

/// FromProto's precedence: doubles where there are any, then floats, then a fork's raw bytes.
pub(crate) fn choose(
    fork: Fork,
    float: Repeated,
    double: Repeated,
    raw: Option<Raw>,
    at: u64,
) -> Result<Choice, Fault> {
    let sources = [float.values.is_stored(), double.values.is_stored(), raw.is_some()];
    // Without any values, an empty field that is present decides the dtype.
    let (Repeated { field, values }, dtype, width) = match (sources, raw) {
        ([false, false, _], Some(raw)) => return raw_choice(fork, raw, at),
        ([_, true, _], _) => (double, DType::F64, 8),
        ([false, false, _], None) if double.values.seen => (double, DType::F64, 8),
        _ => (float, DType::F32, 4),
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
