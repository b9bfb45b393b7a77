//! One tensor of the output: its name, type and shape, where its bytes come from and what changes on the way.

use std::borrow::Cow;

use blob_core::{DType, Shape};
use blob_io::TensorSpec;

/// One tensor of the output.
#[derive(Clone, Debug)]
pub struct Planned {
    pub(crate) spec: TensorSpec,
    pub(crate) entry: usize,
    pub(crate) how: How,
    pub(crate) changes: Vec<Cow<'static, str>>,
    /// Whether bf16 is stored as u16: NumPy has no bf16.
    pub(crate) keeps_bf16: bool,
}

impl Planned {
    /// The name in the output.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.spec.dtype()
    }

    /// The shape, row-major.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.spec.shape()
    }

    /// Bytes of data in the output.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.spec.byte_len()
    }

    /// The source's entry that the data come from, as an index into [`Checkpoint::entries`](blob_io::Checkpoint::entries).
    #[must_use]
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// The dtype that a reader of the output finds.
    pub(crate) fn stored_dtype(&self) -> DType {
        if self.keeps_bf16 { DType::U16 } else { self.dtype() }
    }

    /// What is changed on the way, in words; empty where the name and the bytes are kept as they are.
    #[must_use]
    pub fn changes(&self) -> &[Cow<'static, str>] {
        &self.changes
    }
}

/// Where a tensor's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Copied from the source's segments while the pass goes over them.
    Copy,
    /// Read on their own after the pass: unpacked, inflated, reordered.
    Stream,
    /// A sparse array, expanded.
    Dense,
}
