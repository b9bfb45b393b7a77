//! What the output's format changes about the tensors, and what of the source has no place in it: read from the
//! format's row of facts alone.

use blob_core::DType;
use blob_io::{Bf16, Checkpoint, Format, Names};

use super::{Change, Effect};
use crate::layout::places;
use crate::planned::Planned;
use crate::receipt::KEY;

/// Where tensors are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) to: Format,
    /// A folder's files have the tensors' names, and are planned as npy.
    pub(crate) is_folder: bool,
}

impl Place {
    /// Notes what the format changes about the tensors of `source`.
    pub(crate) fn note(self, source: &Checkpoint, tensors: &mut [Planned]) {
        tensors.iter_mut().for_each(|tensor| self.note_form(tensor));
        // A folder's files have the tensors' names.
        if self.to.holds().names != Names::None || self.is_folder {
            return;
        }
        let (numbers, holds) = (self.numbers(source, tensors), self.to.holds());
        for (tensor, number) in tensors.iter_mut().zip(numbers) {
            let name = &tensor.spec.name;
            let stored = match tensor.sparse(source).filter(|_| holds.sparse) {
                Some(sparse) => tensor.whole_name(sparse),
                None => name.strip_suffix(".diff").filter(|_| holds.diffs).unwrap_or(name),
            };
            if *stored != format!("@{number}") {
                tensor.changes.push(Change::unasked(Effect::NameLost { format: self.to }));
            }
        }
    }

    /// The positions by which a reader of the output calls the tensors.
    fn numbers(self, source: &Checkpoint, tensors: &[Planned]) -> Vec<usize> {
        // Places without an array are kept, and count.
        if self.to == source.format() {
            return tensors.iter().map(|tensor| source.entries()[tensor.entry].position()).collect();
        }
        match self.to.holds().many {
            true => places(tensors.iter().map(|tensor| &*tensor.spec.name)),
            false => vec![0; tensors.len()],
        }
    }

    fn note_form(self, tensor: &mut Planned) {
        let (holds, spec) = (self.to.holds(), &tensor.spec);
        let mut effects = Vec::new();
        tensor.keeps_bf16 = spec.dtype == DType::BF16 && holds.bf16 == Bf16::AsU16;
        if tensor.keeps_bf16 {
            effects.push(Effect::BitsStored { of: DType::BF16, stored: DType::U16 });
        }
        let axes = spec.shape.num_axes();
        if let Some(to) = holds.axes.filter(|to| axes < *to) {
            effects.push(Effect::Padded { from: axes, to });
        }
        tensor.changes.extend(effects.into_iter().map(Change::unasked));
    }

    /// The metadata of the source that a new file without a receipt has no place for.
    pub(crate) fn dropped_metadata(self, source: &Checkpoint) -> Option<Change> {
        let implied = source.format().holds().implied;
        let keys = source.metadata().iter().map(|(key, _)| key);
        let keys = keys.filter(|key| *key != KEY && !implied.contains(&&***key));
        let kept = |key: &str| self.to.is_caffe() && self.to.holds().metadata.contains(key);
        let keys: Vec<String> = keys.filter(|key| !kept(key)).cloned().collect();
        (!keys.is_empty()).then(|| Change::unasked(Effect::MetadataDropped { format: self.to, keys }))
    }
}
