//! Which argument of an operation an [`Error`](crate::Error) names, and how that differs from the operation's needs.

use blob_core::{DType, Shape};
use std::fmt;

/// An argument of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// The part at this place, from 0.
    Part(usize),
    /// The blob that is read.
    In,
    /// The blob that is written.
    Out,
    /// The diff of the blob that is written, where the diff is read.
    Diff,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Part(index) => write!(f, "part {index}"),
            Argument::In => f.write_str("the input"),
            Argument::Out => f.write_str("the output"),
            Argument::Diff => f.write_str("the diff"),
        }
    }
}

/// How an argument differs from the operation's needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// Elements of another type.
    #[non_exhaustive]
    DType {
        /// The type that is needed.
        wanted: DType,
        /// The type that was found.
        got: DType,
    },
    /// Too many axes, or too few.
    #[non_exhaustive]
    Rank {
        /// The number of axes that is needed.
        wanted: usize,
        /// The shape that was found.
        got: Shape,
    },
    /// Another extent along an axis.
    #[non_exhaustive]
    Extent {
        /// The axis, from the left.
        axis: usize,
        /// The extent that is needed there.
        wanted: usize,
        /// The extent that was found there.
        got: usize,
    },
    /// Another number of objects.
    #[non_exhaustive]
    Objects {
        /// The number that is needed.
        wanted: usize,
        /// The number that was found.
        got: usize,
    },
    /// Objects of another size.
    #[non_exhaustive]
    ObjectSize {
        /// The elements of an object that are needed.
        wanted: usize,
        /// The elements that were found.
        got: usize,
    },
    /// The memory of another output.
    #[non_exhaustive]
    Shared {
        /// The other output.
        with: Argument,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::DType { wanted, got } => write!(f, "holds {got}, wanted {wanted}"),
            Mismatch::Rank { wanted, got } => {
                write!(f, "has {} axes ({got}), wanted {wanted}", got.num_axes())
            }
            Mismatch::Extent { axis, wanted, got } => {
                write!(f, "has extent {got} along axis {axis}, wanted {wanted}")
            }
            Mismatch::Objects { wanted, got } => write!(f, "has {got} objects, wanted {wanted}"),
            Mismatch::ObjectSize { wanted, got } => {
                write!(f, "has objects of {got} elements, wanted {wanted}")
            }
            Mismatch::Shared { with } => write!(f, "shares the memory of {with}"),
        }
    }
}
