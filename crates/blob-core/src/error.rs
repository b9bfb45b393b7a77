//! Everything that can be wrong with a shape, a dtype or a blob, as one enum.
//! An error carries the wanted and the found; no file, no device.

use std::fmt;
use std::ops::Range;

use crate::dtype::DType;
use crate::extents::{MAX_AXES, Shape};
use crate::names::{BlobDim, Nchw};
use crate::part::Part;

/// A failed blob operation. Whatever failed, the blob is as it was before, but for copies of both parts: the data may
/// have been copied when the diff fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A shape with more than [`MAX_AXES`] axes.
    #[non_exhaustive]
    TooManyAxes {
        /// The number of axes asked for.
        got: usize,
    },
    /// The extents multiply to more than an address can count; an extent of zero does not excuse the others.
    #[non_exhaustive]
    ShapeTooLarge {
        /// The axis at which the product left the range.
        axis: usize,
        /// All extents asked for.
        dims: Vec<usize>,
    },
    /// An axis number that the shape does not have.
    #[non_exhaustive]
    AxisOutOfRange {
        /// The axis asked for; numbers beyond `i64` are the largest `i64`.
        axis: i64,
        /// The shape asked.
        shape: Shape,
    },
    /// A range of axes that the shape does not have, or whose start lies behind its end.
    #[non_exhaustive]
    AxesOutOfRange {
        /// The first axis asked for.
        start: usize,
        /// The axis behind the last.
        end: usize,
        /// The shape asked.
        shape: Shape,
    },
    /// One of Caffe's names for an axis, asked of a shape that has fewer axes.
    #[non_exhaustive]
    NoNchwAxis {
        /// The name.
        axis: Nchw,
        /// The shape asked.
        shape: Shape,
    },
    /// Caffe's names and legacy accessors, asked of a shape of more than four axes.
    #[non_exhaustive]
    TooManyAxesForLegacy {
        /// The shape asked.
        shape: Shape,
    },
    /// A legacy index that is not one of −4 to 3.
    #[non_exhaustive]
    LegacyAxisOutOfRange {
        /// The index asked for.
        axis: i32,
    },
    /// NeoML's names, asked of a shape that does not have seven axes.
    #[non_exhaustive]
    NotSevenAxes {
        /// The name, or none where all seven were asked for.
        axis: Option<BlobDim>,
        /// The shape asked.
        shape: Shape,
    },
    /// A list of extents that is too long for NeoML's seven axes.
    #[non_exhaustive]
    TooManyExtents {
        /// The length of the list.
        got: usize,
    },
    /// An index that its axis does not have.
    #[non_exhaustive]
    IndexOutOfRange {
        /// The axis.
        axis: usize,
        /// The index asked for.
        index: usize,
        /// The extent of the axis.
        extent: usize,
    },
    /// More indices than the shape has axes.
    #[non_exhaustive]
    TooManyIndices {
        /// The number of indices.
        got: usize,
        /// The shape asked.
        shape: Shape,
    },
    /// An offset at which the shape has no element.
    #[non_exhaustive]
    OffsetOutOfRange {
        /// The offset asked for, in elements.
        offset: usize,
        /// The shape asked.
        shape: Shape,
    },
    /// Steps of the outermost axis that a blob or a window does not have, or whose start lies behind their end.
    #[non_exhaustive]
    StepsOutOfRange {
        /// The first step asked for; below zero where a window was shifted too far back. Steps that an `i64` cannot
        /// hold are the last that it can.
        start: i64,
        /// The step behind the last.
        end: i64,
        /// The number of steps.
        extent: usize,
    },
    /// A range of elements that a blob does not have, or whose start lies behind its end.
    #[non_exhaustive]
    ElementsOutOfRange {
        /// The elements asked for.
        range: Range<usize>,
        /// The number of elements.
        count: usize,
    },
    /// A shape whose elements fit in no memory.
    #[non_exhaustive]
    BlobTooLarge {
        /// The shape asked for.
        shape: Shape,
        /// The dtype asked for.
        dtype: DType,
    },
    /// A name that is no dtype's.
    #[non_exhaustive]
    UnknownDType {
        /// The name.
        name: String,
    },
    /// A blob was accessed as elements of another type.
    #[non_exhaustive]
    WrongDType {
        /// The type that the caller asked for.
        wanted: DType,
        /// The type that the blob holds.
        got: DType,
    },
    /// A memory does not have the length that shape and dtype ask for.
    #[non_exhaustive]
    WrongLength {
        /// The memory's part of the blob.
        part: Part,
        /// The length that shape and dtype ask for, in bytes.
        wanted: usize,
        /// The length of the memory, in bytes.
        got: usize,
    },
    /// A slice does not have as many elements as the shape counts.
    #[non_exhaustive]
    WrongCount {
        /// The shape's count.
        wanted: usize,
        /// The slice's length.
        got: usize,
    },
    /// Two shapes should be the same.
    #[non_exhaustive]
    ShapeMismatch {
        /// The first axis at which they differ; where one shape has no more axes, their number.
        axis: usize,
        /// The shape that was needed.
        wanted: Shape,
        /// The shape that was given.
        got: Shape,
    },
    /// Two shapes should count the same number of elements.
    #[non_exhaustive]
    CountMismatch {
        /// The shape whose count was needed.
        wanted: Shape,
        /// The shape that was given.
        got: Shape,
    },
    /// Adopted memory starts at an address that the element type does not allow.
    #[non_exhaustive]
    Misaligned {
        /// The dtype of the access.
        dtype: DType,
        /// The alignment of the type, in bytes.
        wanted: usize,
        /// The address of the first byte.
        address: usize,
    },
    /// A byte of a bool blob is neither 0 nor 1.
    #[non_exhaustive]
    InvalidBool {
        /// The index of the first such element.
        index: usize,
        /// The byte there.
        byte: u8,
    },
    /// The memory underneath failed.
    Memory(synced_mem::Error),
    /// A tensor of DLPack contradicts itself, or is one that no blob can be, or that no consumer can be given.
    #[non_exhaustive]
    Dlpack {
        /// What the tensor has.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooManyAxes { got } => {
                write!(f, "a shape has at most {MAX_AXES} axes, got {got}")
            }
            Error::ShapeTooLarge { axis, dims } => {
                write!(f, "the product of the extents {dims:?} overflows at axis {axis}, with extent {}", dims[*axis])
            }
            Error::AxisOutOfRange { .. }
            | Error::AxesOutOfRange { .. }
            | Error::NoNchwAxis { .. }
            | Error::TooManyAxesForLegacy { .. }
            | Error::LegacyAxisOutOfRange { .. }
            | Error::NotSevenAxes { .. }
            | Error::TooManyExtents { .. } => self.fmt_axis(f),
            Error::IndexOutOfRange { .. }
            | Error::TooManyIndices { .. }
            | Error::OffsetOutOfRange { .. }
            | Error::StepsOutOfRange { .. }
            | Error::ElementsOutOfRange { .. } => self.fmt_index(f),
            Error::BlobTooLarge { shape, dtype } => {
                write!(f, "a blob of {shape} elements of {dtype} fits in no memory")
            }
            Error::UnknownDType { name } => write!(f, "unknown dtype {name:?}"),
            Error::WrongDType { wanted, got } => {
                write!(f, "wanted elements of {wanted}, the blob holds {got}")
            }
            Error::WrongLength { part, wanted, got } => {
                write!(f, "the {part} memory needs {wanted} bytes, got {got}")
            }
            Error::WrongCount { wanted, got } => {
                write!(f, "the shape counts {wanted} elements, got {got}")
            }
            Error::ShapeMismatch { axis, wanted, got } => {
                write!(f, "wanted shape {wanted}, got {got}: they differ at axis {axis}")
            }
            Error::CountMismatch { wanted, got } => {
                write!(f, "wanted {} elements, as {wanted} has, got {} of {got}", wanted.count(), got.count())
            }
            Error::Misaligned { dtype, wanted, address } => write!(
                f,
                "elements of {dtype} need an address that is a multiple of {wanted}, the memory starts at {address:#x}"
            ),
            Error::InvalidBool { index, byte } => {
                write!(f, "element {index} of a bool blob is {byte}, neither 0 nor 1")
            }
            Error::Memory(error) => error.fmt(f),
            Error::Dlpack { reason } => write!(f, "the tensor of DLPack has {reason}"),
        }
    }
}

/// The messages about one subject each. [`Display`](fmt::Display) alone names every variant, and sends each here.
impl Error {
    fn fmt_axis(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AxisOutOfRange { axis, shape } => {
                // Caffe's words, and the indices that Caffe takes.
                write!(f, "axis {axis} out of range for {}; ", Blob(shape))?;
                match shape.num_axes() {
                    0 => write!(f, "it has no axes"),
                    n => write!(f, "wanted -{n} to {}", n - 1),
                }
            }
            Error::AxesOutOfRange { start, end, shape } => write!(
                f,
                "axes {start}..{end} out of range for {}; wanted a start that is not behind the end, and an end of at most {}",
                Blob(shape),
                shape.num_axes()
            ),
            Error::NoNchwAxis { axis, shape } => write!(
                f,
                "{axis} is axis {} of a blob of num, channels, height, width; there is none in a {}",
                *axis as usize,
                Blob(shape)
            ),
            Error::TooManyAxesForLegacy { shape } => {
                write!(f, "cannot use legacy accessors on blobs with more than 4 axes, got a {}", Blob(shape))
            }
            Error::LegacyAxisOutOfRange { axis } => {
                write!(f, "legacy axis {axis} out of range; wanted -4 to 3")
            }
            Error::NotSevenAxes { axis, shape } => {
                match axis {
                    Some(axis) => write!(f, "{axis} names an axis of a blob of 7 axes")?,
                    None => write!(f, "wanted a blob of 7 axes")?,
                }
                write!(f, ", got a {}", Blob(shape))
            }
            Error::TooManyExtents { got } => write!(f, "wanted at most 7 extents, got {got}"),
            _ => fmt::Debug::fmt(self, f),
        }
    }

    fn fmt_index(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::IndexOutOfRange { axis, index, extent } => {
                write!(f, "index {index} out of range for axis {axis}, whose extent is {extent}")
            }
            Error::TooManyIndices { got, shape } => {
                write!(f, "wanted at most {} indices, got {got} for a {}", shape.num_axes(), Blob(shape))
            }
            Error::OffsetOutOfRange { offset, shape } => {
                write!(f, "offset {offset} out of range for a {}", Blob(shape))
            }
            Error::StepsOutOfRange { start, end, extent } => {
                write!(f, "steps {start}..{end} of the outermost axis out of range; there are {extent}")
            }
            Error::ElementsOutOfRange { range, count } => {
                write!(f, "elements {}..{} out of range; there are {count}", range.start, range.end)
            }
            _ => fmt::Debug::fmt(self, f),
        }
    }
}

/// A shape as Caffe's messages tell it: `4-D Blob with shape 2 3 4 5 (120)`.
struct Blob<'a>(&'a Shape);

impl fmt::Display for Blob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blob(shape) = self;
        let (num_axes, text) = (shape.num_axes(), shape.shape_string());
        write!(f, "{num_axes}-D Blob with shape {text}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The cause's message is our own, so the chain goes on behind.
            Error::Memory(error) => error.source(),
            _ => None,
        }
    }
}

impl From<synced_mem::Error> for Error {
    fn from(error: synced_mem::Error) -> Self {
        Error::Memory(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::Dims7;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<Error>();

    #[test]
    fn messages_about_axes_name_the_axis_the_shape_and_what_was_wanted() {
        let shape = Shape::new([2, 3, 4, 5]).unwrap();
        let cases = [
            (shape.axis(4).unwrap_err(), "axis 4 out of range for 4-D Blob with shape 2 3 4 5 (120); wanted -4 to 3"),
            (
                Shape::default().axis(-1).unwrap_err(),
                "axis -1 out of range for 0-D Blob with shape (1); it has no axes",
            ),
            (
                shape.count_range(3..6).unwrap_err(),
                "axes 3..6 out of range for 4-D Blob with shape 2 3 4 5 (120); \
                 wanted a start that is not behind the end, and an end of at most 4",
            ),
            (
                Shape::new([2, 3]).unwrap().axis(Nchw::Width).unwrap_err(),
                "Width is axis 3 of a blob of num, channels, height, width; \
                 there is none in a 2-D Blob with shape 2 3 (6)",
            ),
            (
                Shape::new([1; 5]).unwrap().axis(Nchw::Num).unwrap_err(),
                "cannot use legacy accessors on blobs with more than 4 axes, \
                 got a 5-D Blob with shape 1 1 1 1 1 (1)",
            ),
            (shape.legacy_extent(-5).unwrap_err(), "legacy axis -5 out of range; wanted -4 to 3"),
            (
                shape.axis(BlobDim::Depth).unwrap_err(),
                "Depth names an axis of a blob of 7 axes, got a 4-D Blob with shape 2 3 4 5 (120)",
            ),
            (Dims7::try_from(&shape).unwrap_err(), "wanted a blob of 7 axes, got a 4-D Blob with shape 2 3 4 5 (120)"),
            (Dims7::from_leading(&[1; 9]).unwrap_err(), "wanted at most 7 extents, got 9"),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn messages_about_indices_name_the_index_and_its_bound() {
        let shape = Shape::new([2, 3]).unwrap();
        let cases = [
            (shape.offset(&[1, 3]).unwrap_err(), "index 3 out of range for axis 1, whose extent is 3"),
            (shape.offset(&[0; 3]).unwrap_err(), "wanted at most 2 indices, got 3 for a 2-D Blob with shape 2 3 (6)"),
            (shape.index(6).unwrap_err(), "offset 6 out of range for a 2-D Blob with shape 2 3 (6)"),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn messages_about_two_shapes_show_both() {
        let shape = |dims: &[usize]| Shape::new(dims).unwrap();
        let (axis, wanted, got) = (1, shape(&[2, 3]), shape(&[2, 4]));
        assert_eq!(
            Error::ShapeMismatch { axis, wanted, got }.to_string(),
            "wanted shape 2×3, got 2×4: they differ at axis 1"
        );
        let (wanted, got) = (shape(&[2, 3]), shape(&[5, 1]));
        assert_eq!(Error::CountMismatch { wanted, got }.to_string(), "wanted 6 elements, as 2×3 has, got 5 of 5×1");
    }

    #[test]
    fn messages_name_what_was_wanted_and_what_was_there() {
        let shape = Shape::new([2, 3]).unwrap();
        let dtype = DType::F32;
        let cases = [
            (Error::TooManyAxes { got: 33 }, "a shape has at most 32 axes, got 33"),
            (
                Error::ShapeTooLarge { axis: 1, dims: vec![2, usize::MAX / 2] },
                "the product of the extents [2, 9223372036854775807] overflows at axis 1, with extent 9223372036854775807",
            ),
            (Error::BlobTooLarge { shape, dtype }, "a blob of 2×3 elements of f32 fits in no memory"),
            (Error::WrongDType { wanted: DType::F64, got: dtype }, "wanted elements of f64, the blob holds f32"),
            (Error::WrongLength { part: Part::Diff, wanted: 24, got: 20 }, "the diff memory needs 24 bytes, got 20"),
            (Error::WrongCount { wanted: 6, got: 5 }, "the shape counts 6 elements, got 5"),
            (
                Error::Misaligned { dtype, wanted: 4, address: 0x1001 },
                "elements of f32 need an address that is a multiple of 4, the memory starts at 0x1001",
            ),
            (Error::InvalidBool { index: 7, byte: 2 }, "element 7 of a bool blob is 2, neither 0 nor 1"),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
        let memory = synced_mem::SharedMem::new(2);
        let error = Error::from(memory.host(0..3).unwrap_err());
        assert_eq!(error.to_string(), "byte range 0..3 does not lie within a memory of 2 bytes");
        assert!(error.source().is_none(), "its message is not said twice");
    }
}
