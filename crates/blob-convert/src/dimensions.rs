//! The four dimensions with which Caffe stored blobs before 2015: a tensor of fewer axes gets ones before its own.

use blob_core::Shape;
use blob_io::Checkpoint;

use crate::change::{Change, Effect};
use crate::options::Options;
use crate::planned::Planned;

/// Gives four dimensions to all tensors, where that form is asked for; without a form, to those of another shape than
/// the blob of `base` which they fit into: that one is stored so.
pub(crate) fn pad(options: &Options, base: Option<&Checkpoint>, tensors: &mut [Planned]) {
    let is_legacy = options.to.is_caffe() && options.form.is_some_and(|form| form.legacy);
    let base = base.filter(|_| options.form.is_none());
    for tensor in tensors {
        let there = base.and_then(|base| base.entry(&tensor.spec.name));
        if is_legacy || there.is_some_and(|entry| *entry.shape() != tensor.spec.shape) {
            pad_one(tensor);
        }
    }
}

fn pad_one(tensor: &mut Planned) {
    let dims = tensor.spec.shape.dims();
    let ones = std::iter::repeat_n(1, 4_usize.saturating_sub(dims.len()));
    let Ok(four) = Shape::new(ones.chain(dims.iter().copied()).collect::<Vec<_>>()) else { return };
    if four != tensor.spec.shape {
        let was = std::mem::replace(&mut tensor.spec.shape, four);
        tensor.changes.push(Change::asked(Effect::Reshaped { was }));
    }
}
