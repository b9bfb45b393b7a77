//! One tensor of the output: its name, type and shape, where its bytes come from and what changes on the way.

use std::borrow::Cow;

use blob_core::DType;
use blob_io::TensorSpec;

/// One tensor of the output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planned {
    /// Its name, dtype and shape in the output.
    pub spec: TensorSpec,
    /// The source's entry that the data come from, as an index into [`Checkpoint::entries`](blob_io::Checkpoint::entries).
    pub entry: usize,
    pub(crate) how: How,
    /// What is changed on the way, in words; empty where the name and the bytes are kept as they are.
    pub changes: Vec<Cow<'static, str>>,
    /// Which of the layout's tensors it is; none where its bytes are copied with those around them.
    pub(crate) slot: Option<usize>,
    /// Whether bf16 is stored as u16: NumPy has no bf16.
    pub(crate) keeps_bf16: bool,
}

impl Planned {
    /// The dtype that a reader of the output finds.
    pub(crate) fn stored_dtype(&self) -> DType {
        if self.keeps_bf16 { DType::U16 } else { self.spec.dtype }
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
    /// Read on their own, each value written as f64.
    Double,
    /// Copied with the bytes around them.
    Kept,
}
