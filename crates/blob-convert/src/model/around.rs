//! The digests of a model's bytes around the values of its tensors: of a model to be written, and of one in a file.
//!
//! The receipt itself is left out, so that the receipt can hold such a digest.

use blake3::{Hash, Hasher};
use blob_io::layout::{self, Frame, Layout, TensorSpec};
use blob_io::onnx::Model;
use blob_io::{Checkpoint, Error};

use crate::hash::{self, PIECE};
use crate::history::KEY;
use crate::planned::Planned;

/// The BLAKE3 of the bytes around the values of a model to be written, with these pairs of metadata.
///
/// # Errors
/// A model that does not fit the tensors.
pub(crate) fn blake3(model: &Model, tensors: &[Planned], metadata: &[(String, String)]) -> Result<Hash, Error> {
    let specs: Vec<TensorSpec> = tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let layout = Layout::new(&specs, Frame::Onnx { model, metadata })?;
    let mut hasher = Hasher::new();
    for (_, bytes) in layout.frame(metadata, &[])? {
        hasher.update(&bytes);
    }
    Ok(hasher.finalize())
}

/// The digests of a model in a file.
pub(crate) struct Around {
    /// Without all metadata.
    pub(crate) model: Hash,
    /// With the metadata behind, but for the receipt.
    pub(crate) whole: Hash,
}

impl Around {
    /// # Errors
    /// A file that is no model, or no whole one; errors of reading.
    pub(crate) fn of(file: &Checkpoint) -> Result<Self, Error> {
        let around = layout::Around::of(file, KEY)?;
        let mut hasher = Hasher::new();
        let mut model = hasher.finalize();
        for (is_model, ranges) in [(true, around.model), (false, around.metadata)] {
            for range in ranges {
                let mut at = range.start;
                while at < range.end {
                    let mut piece = vec![0; (range.end - at).min(PIECE as u64) as usize];
                    hash::read(file, file.source(), at, &mut piece)?;
                    hasher.update(&piece);
                    at += piece.len() as u64;
                }
            }
            if is_model {
                model = hasher.finalize();
            }
        }
        Ok(Self { model, whole: hasher.finalize() })
    }
}
