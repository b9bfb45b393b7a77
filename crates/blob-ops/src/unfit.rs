//! Why an argument of an operation on several blobs does not fit the others: part of [`Error`](crate::Error).

use blob_core::{DType, Shape};
use std::fmt;

/// An argument of an operation on several blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// The part at this place, from 0.
    Part(usize),
    /// The blob that is written.
    Out,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Part(index) => write!(f, "part {index}"),
            Argument::Out => f.write_str("the output"),
        }
    }
}

/// What an argument has, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// Elements of another type.
    #[non_exhaustive]
    DType {
        /// The type that it needs.
        wanted: DType,
        /// The type that it has.
        got: DType,
    },
    /// Too many axes, or too few.
    #[non_exhaustive]
    Rank {
        /// The number of axes that it needs.
        wanted: usize,
        /// Its shape.
        got: Shape,
    },
    /// Another extent along an axis.
    #[non_exhaustive]
    Extent {
        /// The axis, from the left.
        axis: usize,
        /// The extent that it needs there.
        wanted: usize,
        /// The extent that it has there.
        got: usize,
    },
    /// Another number of objects.
    #[non_exhaustive]
    Objects {
        /// The number that it needs.
        wanted: usize,
        /// The number that it has.
        got: usize,
    },
    /// Objects of another size.
    #[non_exhaustive]
    ObjectSize {
        /// The elements that an object needs.
        wanted: usize,
        /// The elements that it has.
        got: usize,
    },
    /// The memory of another output.
    #[non_exhaustive]
    Shared {
        /// The other output.
        with: Argument,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::DType { wanted, got } => write!(f, "holds {got}, wanted {wanted}"),
            Unfit::Rank { wanted, got } => {
                write!(f, "has {} axes ({got}), wanted {wanted}", got.num_axes())
            }
            Unfit::Extent { axis, wanted, got } => {
                write!(f, "has extent {got} along axis {axis}, wanted {wanted}")
            }
            Unfit::Objects { wanted, got } => write!(f, "has {got} objects, wanted {wanted}"),
            Unfit::ObjectSize { wanted, got } => {
                write!(f, "has objects of {got} elements, wanted {wanted}")
            }
            Unfit::Shared { with } => write!(f, "shares the memory of {with}"),
        }
    }
}
