//! The facts about a source that each plan of its tensors needs: read once, though a plan may have many files.

use blob_io::Checkpoint;
use serde_json::{Map, Value, json};

use super::lineage::{Origin, history_from, lineage_of};
use super::{receipt_text, salvaged, source_fields};

/// The facts about a source.
#[derive(Debug)]
pub(crate) struct About {
    /// The files that the source was made from, as in [`lineage_of`].
    pub(crate) lineage: Vec<Origin>,
    /// The fields of a receipt about the source, without the digests.
    pub(super) source: Map<String, Value>,
    /// The other fields of a receipt that are the same for each file of a plan: `warnings`, `history`, `salvaged`.
    pub(super) rest: Map<String, Value>,
}

impl About {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        let lineage = receipt_text(checkpoint).map(lineage_of).unwrap_or_default();
        let mut rest = Map::new();
        rest.insert("warnings".into(), json!(super::warnings(checkpoint)));
        rest.insert("history".into(), json!(history_from(lineage.clone())));
        rest.extend(salvaged(checkpoint).map(|salvaged| ("salvaged".to_owned(), salvaged)));
        Self { lineage, source: source_fields(checkpoint), rest }
    }
}
