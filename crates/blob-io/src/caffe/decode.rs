//! A BlobProto in memory as a blob and back (Caffe's FromProto and ToProto), and Caffe's rule for equal shapes
//! (ShapeEquals).

use blob_core::{AnyBlob, DType, Shape};
use prost::Message;

use crate::caffe::blob::{self, BlobFields};
use crate::caffe::proto::{BlobProto, BlobShape};
use crate::error::{Error, ReadError};
use crate::limits::Limits;
use crate::payload;
use crate::tensor_name::TensorName;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::Span;
use crate::wire::source::{Bytes, Source};

/// The name in errors for bytes that are not in a file.
const NAME: &str = "BlobProto";

/// Makes a blob of a serialised BlobProto: the data, and the diff where one is stored.
///
/// The shape is `num`, `channels`, `height` and `width` where one of the four is present (always four axes, an absent
/// one counts 0), else `shape`; a message without either makes a scalar. `double_data` is taken before `data`, and
/// NVCaffe's and the opencl branch's raw bytes after both. (`Blob::FromProto`, BVLC/caffe `9b891540`.)
///
/// Unlike in Caffe, a dimension over `i32` is an error instead of being cut to 32 bits, a blob may have no elements, an
/// absent diff leaves the blob's diff untouched, and the blob has the stored dtype.
///
/// # Errors
/// [`Error::Malformed`] with the offset in `bytes`, if the bytes are not a BlobProto, have another number of values
/// than the shape, or a diff of another dtype than the data.
///
/// ```
/// let blob = blob_io::caffe::decode_blob(b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02")?;
/// assert_eq!(blob.shape().shape_string(), "2 (2)");
/// # Ok::<(), blob_io::Error>(())
/// ```
pub fn decode_blob(bytes: &[u8]) -> Result<AnyBlob, Error> {
    let source = Bytes(bytes);
    let limits = Limits::default();
    let (mut data, mut diff) = fields(&source, &limits)?.into_entries(0, 0);
    data.name = "@0".into();
    if let Some(diff) = &mut diff {
        diff.name = TensorName::diff_of("@0").into();
    }
    payload::load(&source, NAME, &data, diff.as_ref(), &limits)
}

/// Whether a serialised BlobProto's shape equals `shape`, as Caffe's `ShapeEquals` decides when a net loads weights.
///
/// With legacy dimensions the shape must have at most four axes, which must equal the legacy dimensions, aligned at the
/// end: `3×2` equals `(1,1,3,2)`, a scalar equals `(1,1,1,1)`. Otherwise all axes must be equal.
///
/// # Errors
/// [`Error::Malformed`] where the bytes are no BlobProto, or a dimension is negative or over `i32` (Caffe cuts such
/// dimensions).
pub fn shape_matches(bytes: &[u8], shape: &Shape) -> Result<bool, Error> {
    let fields = fields(&Bytes(bytes), &Limits::default())?;
    let stored = fields.stored_shape().map_err(|fault| ReadError::Fault(fault).into_error(NAME))?;
    if !fields.is_legacy() {
        return Ok(stored == *shape);
    }
    let dims = shape.dims();
    if dims.len() > 4 {
        return Ok(false);
    }
    let mut padded = [1; 4];
    padded[4 - dims.len()..].copy_from_slice(dims);
    Ok(stored.dims() == padded)
}

/// Makes a blob of the message, like [`decode_blob`] (Caffe's `FromProto`).
impl TryFrom<&BlobProto> for AnyBlob {
    type Error = Error;

    fn try_from(proto: &BlobProto) -> Result<Self, Error> {
        decode_blob(&proto.encode_to_vec())
    }
}

/// A blob of floats or doubles as a message: the shape, the data and, where the blob has one, the diff (Caffe's
/// `ToProto`).
///
/// ```
/// use blob_core::{AnyBlob, Blob, Shape};
/// use blob_io::caffe::proto::BlobProto;
///
/// let blob = AnyBlob::from(Blob::from_slice(Shape::new([2])?, &[1.0f32, 2.0])?);
/// let proto = BlobProto::try_from(&blob)?;
/// assert_eq!(proto.data, [1.0, 2.0]);
/// let back = AnyBlob::try_from(&proto)?;
/// assert_eq!(*back.data().elements::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<&AnyBlob> for BlobProto {
    type Error = Error;

    fn try_from(blob: &AnyBlob) -> Result<Self, Error> {
        let dim = blob.shape().dims().iter().map(|dim| *dim as i64).collect();
        // Caffe adds the shape axis by axis, so a shape without axes has no field.
        let shape = (blob.shape().num_axes() > 0).then_some(BlobShape { dim });
        let mut proto = Self { shape, ..Self::default() };
        match blob.dtype() {
            DType::F32 => {
                proto.data = blob.data().elements::<f32>()?.to_vec();
                if blob.has_diff() {
                    proto.diff = blob.diff().elements::<f32>()?.to_vec();
                }
            }
            DType::F64 => {
                proto.double_data = blob.data().elements::<f64>()?.to_vec();
                if blob.has_diff() {
                    proto.double_diff = blob.diff().elements::<f64>()?.to_vec();
                }
            }
            other => {
                let message = format!("holds float32 and float64, not {other}");
                return Err(Error::Request { file: NAME.to_owned(), message });
            }
        }
        Ok(proto)
    }
}

/// The fields of the whole message.
fn fields(source: &dyn Source, limits: &Limits) -> Result<BlobFields, Error> {
    let span = Span { start: 0, end: source.len() };
    blob::walk(&mut Cursor::new(source), span, limits).map_err(|stop| stop.into_error(NAME))
}
