//! Everything that can be wrong with a call. Each text names the operation, the argument, the found and the needed.

use crate::argument::{Argument, Mismatch};
use crate::cpu::bins::MAX_BINS;
use crate::scalar::Scalar;
use blob_core::{DType, Part, Shape};
use std::fmt;

/// An argument that an operation cannot work with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A histogram of no bins, or of too many.
    #[non_exhaustive]
    Bins {
        /// The number asked for.
        bins: usize,
    },
    /// A histogram over a range that is empty or not finite.
    #[non_exhaustive]
    Range {
        /// The lower end asked for.
        min: f64,
        /// The upper end asked for.
        max: f64,
    },
    /// Arithmetic on a dtype that has none.
    #[non_exhaustive]
    NoArithmetic {
        /// The function.
        op: &'static str,
        /// The dtype of the blob.
        dtype: DType,
    },
    /// A value that a dtype does not hold: out of range, or not whole where only whole numbers are.
    #[non_exhaustive]
    Value {
        /// The function.
        op: &'static str,
        /// The dtype that had to hold the value.
        dtype: DType,
        /// The value asked for.
        value: Scalar,
    },
    /// An element that does not survive a checked conversion.
    #[non_exhaustive]
    Lost {
        /// The part with the element.
        part: Part,
        /// The index of the first such element.
        index: usize,
        /// The element's value.
        value: Scalar,
        /// The dtype that does not hold the value.
        dtype: DType,
    },
    /// The exact sum of integers is beyond u64.
    #[non_exhaustive]
    Overflow {
        /// The function.
        op: &'static str,
        /// The dtype of the elements.
        dtype: DType,
    },
    /// An object that the blob does not have.
    #[non_exhaustive]
    ObjectOutOfRange {
        /// The function.
        op: &'static str,
        /// The object asked for.
        object: usize,
        /// How many there are.
        objects: usize,
    },
    /// Nothing to merge, or nothing to split into.
    #[non_exhaustive]
    NoParts {
        /// The function.
        op: &'static str,
    },
    /// An argument that does not fit the others, or the result.
    #[non_exhaustive]
    Mismatch {
        /// The function.
        op: &'static str,
        /// Which argument.
        argument: Argument,
        /// The value that does not fit.
        mismatch: Mismatch,
    },
    /// The parts of a split do not add up to the whole.
    #[non_exhaustive]
    PartsSum {
        /// The function.
        op: &'static str,
        /// The axis, from the left; `None` where whole objects are split.
        axis: Option<usize>,
        /// The extent, or the size of an object, that is split.
        wanted: usize,
        /// The sum of the parts; `None` where that is more than an address can count.
        got: Option<usize>,
    },
    /// An order of axes that does not name each axis of the shape once.
    #[non_exhaustive]
    Order {
        /// The order asked for.
        order: Vec<usize>,
        /// The shape.
        shape: Shape,
    },
    /// A transposition in place of matrices that are not square, or of fewer than two axes.
    #[non_exhaustive]
    NotSquare {
        /// The shape.
        shape: Shape,
    },
    /// The memory of an argument could not be borrowed: another guard is held (a conflict, as where an output
    /// shares memory with an input), there is no room for the bytes, or a device failed.
    #[non_exhaustive]
    Memory {
        /// The function.
        op: &'static str,
        /// Which argument.
        argument: Argument,
        /// The memory's own error.
        error: blob_core::Error,
    },
    /// A device's kernels could not be loaded, or refused work. Where no kernel was loaded, or the GPU was known to be
    /// lost, every operand is as before. Where a launch was refused the outputs are unspecified.
    #[non_exhaustive]
    Device {
        /// The function.
        op: &'static str,
        /// The device's own error.
        error: blob_core::Error,
    },
    /// An axis that an argument does not have, or a shape that no blob can have.
    #[non_exhaustive]
    Blob {
        /// The function.
        op: &'static str,
        /// Which argument.
        argument: Argument,
        /// The reason.
        error: blob_core::Error,
    },
}

impl Error {
    /// For an element that was looked at alone: the index among all.
    pub(crate) fn at(self, at: usize) -> Error {
        match self {
            Error::Lost { part, value, dtype, .. } => Error::Lost { part, index: at, value, dtype },
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Bins { bins } => write!(f, "histogram: bins = {bins} is not between 1 and {}", MAX_BINS),
            Error::Range { min, max } => write!(f, "histogram: range {min} to {max} is not finite and rising"),
            Error::NoArithmetic { op, dtype } => write!(f, "{op}: there is no arithmetic on {dtype}"),
            Error::Value { op, dtype, value } => write!(f, "{op}: {dtype} does not hold {value}"),
            Error::Lost { part, index, value, dtype } => {
                write!(f, "convert checked: element {index} of the {part} is {value}, which {dtype} does not hold")
            }
            Error::Overflow { op, dtype } => {
                write!(f, "{op}: the sum of these elements of {dtype} is beyond 64 bits")
            }
            Error::ObjectOutOfRange { op, object, objects } => {
                write!(f, "{op}: object {object} of a blob that has {objects}")
            }
            Error::NoParts { op } => write!(f, "{op}: there are no parts"),
            Error::Mismatch { op, argument, mismatch } => write!(f, "{op}: {argument} {mismatch}"),
            Error::PartsSum { op, axis, wanted, got } => parts_sum(f, op, *axis, *wanted, *got),
            Error::Order { order, shape } => {
                write!(f, "permute: the order {order:?} does not name each axis of {shape} once")
            }
            Error::NotSquare { shape } => {
                write!(f, "transpose in place: the last two axes of {shape} are no square matrix")
            }
            Error::Device { op, error } => write!(f, "{op}: {error}"),
            Error::Memory { op, argument, error } | Error::Blob { op, argument, error } => {
                write!(f, "{op}: {argument}: {error}")
            }
        }
    }
}

fn parts_sum(
    f: &mut fmt::Formatter<'_>,
    op: &str,
    axis: Option<usize>,
    wanted: usize,
    got: Option<usize>,
) -> fmt::Result {
    write!(f, "{op}: the parts add up to ")?;
    match got {
        Some(got) => write!(f, "{got}")?,
        None => f.write_str("more than an address can count")?,
    }
    match axis {
        Some(axis) => write!(f, " along axis {axis}, wanted {wanted}"),
        None => write!(f, " elements an object, wanted {wanted}"),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The cause's message is in our own, so the chain goes on behind.
            Error::Memory { error, .. } | Error::Blob { error, .. } | Error::Device { error, .. } => error.source(),
            _ => None,
        }
    }
}
