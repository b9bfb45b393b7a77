//! Everything that can be wrong with a shape, a dtype or a blob, as one enum.
//! An error carries what was wanted and what was there; it knows no file and no device.

use std::fmt;

use crate::{DType, MAX_AXES, Shape};

/// A failed blob operation. Whatever failed, the blob is as it was before.
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
    /// A blob was accessed as elements of another type than its own.
    #[non_exhaustive]
    WrongDType {
        /// What the caller asked for.
        wanted: DType,
        /// What the blob holds.
        got: DType,
    },
    /// A memory does not have the length that shape and dtype ask for.
    #[non_exhaustive]
    WrongLength {
        /// `"data"` or `"diff"`.
        part: &'static str,
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
    /// Adopted memory starts at an address that the element type does not allow.
    #[non_exhaustive]
    Misaligned {
        /// The dtype of the access.
        dtype: DType,
        /// The alignment it needs, in bytes.
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooManyAxes { got } => {
                write!(f, "a shape has at most {MAX_AXES} axes, got {got}")
            }
            Error::ShapeTooLarge { axis, dims } => write!(
                f,
                "the product of the extents {dims:?} overflows at axis {axis}, with extent {}",
                dims[*axis]
            ),
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
            Error::Misaligned {
                dtype,
                wanted,
                address,
            } => write!(
                f,
                "elements of {dtype} need an address that is a multiple of {wanted}, the memory starts at {address:#x}"
            ),
            Error::InvalidBool { index, byte } => {
                write!(
                    f,
                    "element {index} of a bool blob is {byte}, neither 0 nor 1"
                )
            }
            Error::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its message is our own, so the chain goes on behind it.
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

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<Error>();

    #[test]
    fn messages_name_what_was_wanted_and_what_was_there() {
        let shape = Shape::new([2, 3]).unwrap();
        let dtype = DType::F32;
        let cases = [
            (
                Error::TooManyAxes { got: 33 },
                "a shape has at most 32 axes, got 33",
            ),
            (
                Error::ShapeTooLarge {
                    axis: 1,
                    dims: vec![2, usize::MAX / 2],
                },
                "the product of the extents [2, 9223372036854775807] overflows at axis 1, with extent 9223372036854775807",
            ),
            (
                Error::BlobTooLarge { shape, dtype },
                "a blob of 2×3 elements of f32 fits in no memory",
            ),
            (
                Error::WrongDType {
                    wanted: DType::F64,
                    got: dtype,
                },
                "wanted elements of f64, the blob holds f32",
            ),
            (
                Error::WrongLength {
                    part: "diff",
                    wanted: 24,
                    got: 20,
                },
                "the diff memory needs 24 bytes, got 20",
            ),
            (
                Error::WrongCount { wanted: 6, got: 5 },
                "the shape counts 6 elements, got 5",
            ),
            (
                Error::Misaligned {
                    dtype,
                    wanted: 4,
                    address: 0x1001,
                },
                "elements of f32 need an address that is a multiple of 4, the memory starts at 0x1001",
            ),
            (
                Error::InvalidBool { index: 7, byte: 2 },
                "element 7 of a bool blob is 2, neither 0 nor 1",
            ),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
        let memory = synced_mem::SharedMem::new(2);
        let error = Error::from(memory.host(0..3).unwrap_err());
        assert_eq!(
            error.to_string(),
            "byte range 0..3 does not lie within a memory of 2 bytes"
        );
        assert!(error.source().is_none(), "its message is not said twice");
    }
}
