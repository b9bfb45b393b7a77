//! The tensors of several files for one file, and which tensors of a file go into one together: what `blob merge` and
//! `blob split` decide. Reads headers only.

mod groups;
mod taken;
mod union;

use blob_core::DType;
use blob_io::{Checkpoint, Format};

use crate::receipt::{history_of, receipt_of_others, receipt_text};
pub use groups::name_beside;
pub(crate) use groups::{by_layer, by_size, singles};
pub use taken::Taken;
pub use union::Union;

/// The receipt, as key and text, of a file that is made of tensors of several others: what was done to them before, and
/// which of them have bf16 that an npz stores as u16. `None` where there is nothing to say, or no room for a receipt.
///
/// # Errors
/// There is no room for the names of so many arrays, in words that follow the file's name.
pub fn receipt<'t>(
    sources: &[&Checkpoint],
    tensors: impl Iterator<Item = (&'t str, DType)> + Clone,
    to: Format,
) -> Result<Option<(String, String)>, &'static str> {
    if !to.holds().receipt {
        return Ok(None);
    }
    let history = sources.iter().filter_map(|source| receipt_text(source)).flat_map(history_of);
    receipt_of_others(history.collect(), tensors.filter(|_| to == Format::Npz))
}
