//! The tensors that a written file is to have. Relies on entries, and knows of formats how a dtype is stored; a listing
//! asks while the file is read, which knows nothing of checkpoints.

use std::hash::{BuildHasher, RandomState};

use blob_core::{DType, Shape};

use crate::entry::Entry;
use crate::format::{Bf16, Format};
use crate::spec::TensorSpec;

/// A tensor of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The tensor's name, dtype and shape.
    pub spec: &'a TensorSpec,
    /// Where the bytes begin in the file; `None` for a tensor that is found by name alone.
    pub offset: Option<u64>,
}

/// The tensors of a plan as hashes, by which a listing knows the entries that are as planned.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Hashes with keys that no file can know.
    hasher: RandomState,
    hashes: Vec<u64>,
}

impl Expected {
    pub(crate) fn new<'a>(format: Format, wanted: impl Iterator<Item = Wanted<'a>>) -> Self {
        let hasher = RandomState::new();
        let hashes = wanted.map(|Wanted { spec, offset }| {
            hasher.hash_one((&*spec.name, stored_dtype(format, spec.dtype), &spec.shape, offset))
        });
        Self { hashes: hashes.collect(), hasher }
    }

    /// Whether the tensor at a place of the plan has the name, the dtype, the shape and the offset of this entry.
    pub(crate) fn has(&self, place: usize, entry: &Entry) -> bool {
        let found = (entry.name(), entry.stored_dtype(), entry.offset());
        let (name, Some(dtype), Some(offset)) = found else { return false };
        let shape: &Shape = entry.shape();
        let hash = self.hasher.hash_one((name, dtype, shape, Some(offset)));
        entry.fault().is_none() && self.hashes.get(place) == Some(&hash)
    }
}

/// The dtype that a format stores.
pub(crate) fn stored_dtype(format: Format, dtype: DType) -> DType {
    let keeps_bits = dtype == DType::BF16 && format.holds().bf16 == Bf16::AsU16;
    if keeps_bits { DType::U16 } else { dtype }
}
