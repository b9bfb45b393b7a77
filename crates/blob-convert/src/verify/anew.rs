//! The receipt of a conversion that is planned again: for the comparison with the receipt of the file. Reads headers
//! and the bytes around the tensors only, so that digests are zeros and counts of lost values are 0.

use blob_io::{Checkpoint, Error, Files};

use crate::layout::keeps_names;
use crate::options::Options;
use crate::pipeline::Chained;
use crate::plan::frame_of;
use crate::receipt::Receipt;
use crate::regroup::Union;
use crate::stored::Storage;

impl Receipt {
    /// The text of the receipt of these tensors, as [`chosen`](crate::chosen::chosen) has them.
    ///
    /// # Errors
    /// Errors of reading; a receipt without room for what must stay in it.
    pub(crate) fn remade(checkpoint: &Checkpoint, options: &Options, chained: Chained) -> Result<String, Error> {
        let Chained { mut tensors, mut left_out, net, told_by, .. } = chained;
        let options = &Options { followed: net, told_by, ..options.clone() };
        let is_folder = options.to.holds().files == Files::Folder;
        let storage = Storage { to: options.to, is_folder, has_receipt: true };
        let files = storage.encode(&mut tensors);
        if !keeps_names(checkpoint, options, &tensors) {
            storage.note_names(checkpoint, &mut tensors);
        }
        left_out.retain(|_| !options.is_part);
        let frame = frame_of(checkpoint, options, &tensors, true)?;
        let receipt = Self::new(checkpoint, options, &tensors, &left_out, &files, &[], frame)?;
        Ok(receipt.placeholder().1)
    }

    /// The text of the receipt of a file that is made of several, once their changes are noted.
    ///
    /// # Errors
    /// As [`Receipt::remade`].
    pub(crate) fn remade_of_several(union: &Union<'_>) -> Result<String, Error> {
        let Union { sources, tensors, is_prefixed, selection, .. } = union;
        Ok(Self::of_several(sources, tensors, *is_prefixed, selection)?.placeholder().1)
    }
}
