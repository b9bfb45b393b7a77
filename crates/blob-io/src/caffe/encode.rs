//! Encodes one BlobProto like Caffe's `ToProto` (BVLC/caffe `9b891540`, `blob.cpp`), in floats or doubles; with the
//! four dimensions from before 2015; or with the raw bytes that NVCaffe writes.
//!
//! Fields are in ascending order of number, as in protobuf's own output. Unknown fields come last.

use blob_core::{DType, Shape};

use crate::caffe::proto_fields::blob_proto::{DATA, DIFF, DOUBLE_DATA, DOUBLE_DIFF, NUM, SHAPE};
use crate::caffe::proto_fields::blob_shape::DIM;
use crate::caffe::proto_fields::nv_blob_proto::{RAW_DATA, RAW_DATA_TYPE, RAW_DIFF, RAW_DIFF_TYPE};
use crate::error::Remedy;
use crate::parts::{FilePart, varint};

/// The wire types of a value with a key of its own.
const FIXED64: u8 = 1;
const FIXED32: u8 = 5;

/// How blobs are stored. The default is Caffe's form since 2015: a shape of any number of axes, floats or doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobForm {
    /// With `num`, `channels`, `height` and `width`, Caffe's form before March 2015: at most four axes, with leading
    /// extents of 1 added, as `ShapeEquals` compares shapes.
    pub legacy: bool,
    /// With `raw_data`, NVCaffe's form, in floats, doubles or halves. No other Caffe reads this form.
    pub raw: bool,
    /// In V1 layers, whose types are numbers, as Caffe stored nets in 2014.
    pub v1: bool,
}

/// Where the values of a blob come from.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    Tensor(usize),
    /// Runs of the file that is being changed.
    Kept(Vec<KeptRun>),
}

/// Values in the file that is being changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptRun {
    pub(crate) from: u64,
    pub(crate) len: u64,
    /// Whether each value but the first has its key before it, as unpacked values have: the run stays as it is stored.
    pub(crate) is_keyed: bool,
}

/// A BlobProto to be written.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) data: Values,
    pub(crate) diff: Option<Values>,
    /// Fields that no BlobProto has, as (offset, length) in the file that is being changed.
    pub(crate) unknown: Vec<(u64, u64)>,
}

/// Why a tensor does not fit a BlobProto of this form.
pub(crate) fn problem(dtype: DType, shape: &Shape, form: BlobForm) -> Option<String> {
    const MAX: usize = i32::MAX as usize;
    let dims = shape.dims();
    if form.raw && raw_type(dtype).is_none() {
        return Some(format!("is of {dtype}; NVCaffe's raw_data holds f16, f32 and f64"));
    }
    if !form.raw && !matches!(dtype, DType::F32 | DType::F64) {
        return Some(format!("is of {dtype}; Caffe's blobs hold f32 and f64"));
    }
    if form.legacy && dims.len() > 4 {
        return Some(format!("has {} axes; the dimensions from before 2015 are four", dims.len()));
    }
    if let Some(dim) = dims.iter().find(|dim| **dim > MAX) {
        return Some(format!("has an axis of {dim}; Caffe's are at most {MAX}"));
    }
    (shape.count() > MAX).then(|| format!("has {} elements; Caffe's blobs hold at most {MAX}", shape.count()))
}

/// The way out for a dtype that this form does not hold: a form that does, or another dtype.
pub(crate) fn remedy(dtype: DType, form: BlobForm) -> Option<Remedy> {
    match dtype {
        DType::F32 | DType::F64 => None,
        _ if !form.raw && raw_type(dtype).is_some() => Some(Remedy::RawData),
        _ => dtype.is_float().then_some(Remedy::Dtype),
    }
}

/// The number of a dtype in NVCaffe's `Type`, if NVCaffe's reader accepts the dtype.
fn raw_type(dtype: DType) -> Option<i32> {
    match dtype {
        DType::F64 => Some(0),
        DType::F32 => Some(1),
        DType::F16 => Some(2),
        _ => None,
    }
}

/// An int32 field; empty without a value. A negative value is a varint of ten bytes.
pub(crate) fn int(number: u32, value: Option<i32>) -> FilePart {
    let mut bytes = Vec::new();
    if let Some(value) = value {
        varint(&mut bytes, u64::from(number) << 3);
        varint(&mut bytes, i64::from(value) as u64);
    }
    FilePart::Bytes(bytes)
}

/// Extents, filled up to the four from before 2015 with leading ones.
pub(crate) fn padded(dims: &[usize]) -> Vec<usize> {
    let ones = std::iter::repeat_n(1, 4_usize.saturating_sub(dims.len()));
    ones.chain(dims.iter().copied()).collect()
}

impl Blob {
    /// The message's parts.
    pub(crate) fn parts(&self, form: BlobForm) -> Vec<FilePart> {
        let mut parts = Vec::new();
        if form.legacy {
            let dims = padded(self.shape.dims()).into_iter().zip(NUM..);
            parts.extend(dims.map(|(dim, number)| int(number, Some(dim as i32))));
        }
        // A shape without axes has no field: Caffe adds the shape axis by axis.
        let mut shape = Vec::new();
        if !form.legacy && self.shape.num_axes() > 0 {
            let mut dims = Vec::new();
            self.shape.dims().iter().for_each(|dim| varint(&mut dims, *dim as u64));
            shape.push(FilePart::Field(SHAPE, vec![FilePart::Field(DIM, vec![FilePart::Bytes(dims)])]));
        }
        let is_double = self.dtype == DType::F64;
        if let (true, Some(number)) = (form.raw, raw_type(self.dtype)) {
            parts.extend(shape);
            parts.push(int(RAW_DATA_TYPE, Some(number)));
            parts.extend(self.diff.as_ref().map(|_| int(RAW_DIFF_TYPE, Some(number))));
            // These are bytes fields, which are stored even when empty.
            parts.push(FilePart::Field(RAW_DATA, self.data.parts()));
            parts.extend(self.diff.as_ref().map(|diff| FilePart::Field(RAW_DIFF, diff.parts())));
        } else {
            let numbers = if is_double { [DOUBLE_DATA, DOUBLE_DIFF] } else { [DATA, DIFF] };
            let values = [Some(&self.data), self.diff.as_ref()].into_iter().zip(numbers);
            let values = values.filter_map(|(values, number)| Some((number, values?)));
            // A packed field of no values is not stored.
            let values = values.flat_map(|(number, values)| match self.shape.count() {
                0 => values.parts(),
                _ => values.fields(number, is_double),
            });
            let values: Vec<FilePart> = values.collect();
            let (first, then) = if is_double { (shape, values) } else { (values, shape) };
            parts.extend(first);
            parts.extend(then);
        }
        parts.extend(self.unknown.iter().map(|&(from, len)| FilePart::Copy { from, len }));
        parts
    }
}

impl Values {
    /// Whether some values are kept with their keys, which raw bytes have no place for.
    pub(crate) fn has_keys(&self) -> bool {
        matches!(self, Self::Kept(runs) if runs.iter().any(|run| run.is_keyed))
    }

    fn parts(&self) -> Vec<FilePart> {
        match self {
            Self::Tensor(tensor) => vec![FilePart::Values(*tensor)],
            Self::Kept(runs) => runs.iter().map(|run| run.copy()).collect(),
        }
    }

    /// The values as fields of this number: one packed field, or of unpacked values a field for each run.
    fn fields(&self, number: u32, is_double: bool) -> Vec<FilePart> {
        let Self::Kept(runs) = self else { return vec![FilePart::Field(number, self.parts())] };
        if !self.has_keys() {
            return vec![FilePart::Field(number, self.parts())];
        }
        let key = (number << 3) as u8 | if is_double { FIXED64 } else { FIXED32 };
        let fields = runs.iter().flat_map(|run| {
            if run.is_keyed {
                vec![FilePart::Bytes(vec![key]), run.copy()]
            } else {
                vec![FilePart::Field(number, vec![run.copy()])]
            }
        });
        fields.collect()
    }
}

impl KeptRun {
    fn copy(self) -> FilePart {
        FilePart::Copy { from: self.from, len: self.len }
    }
}
