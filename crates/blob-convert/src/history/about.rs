//! The facts about a source that each plan of its tensors needs: read once, though a plan may have many files.

use std::path::Path;

use blob_io::{Checkpoint, work};
use serde_json::{Map, Value, json};

use super::{KEY, Origin, history_from, lineage_of, receipt_text};

/// The facts about a source.
#[derive(Debug)]
pub(crate) struct About {
    /// The files that the source was made from, as in [`lineage_of`].
    pub(crate) lineage: Vec<Origin>,
    /// The fields of a receipt about the source, without the digests.
    pub(crate) source: Map<String, Value>,
    /// The other fields of a receipt that are the same for each file of a plan: `warnings`, `history`, `salvaged`.
    pub(crate) rest: Map<String, Value>,
}

impl About {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        let lineage = receipt_text(checkpoint).map(lineage_of).unwrap_or_default();
        let mut rest = Map::new();
        rest.insert("warnings".into(), json!(warnings(checkpoint)));
        rest.insert("history".into(), json!(history_from(lineage.clone())));
        rest.extend(salvaged(checkpoint).map(|salvaged| ("salvaged".to_owned(), salvaged)));
        Self { lineage, source: source_fields(checkpoint), rest }
    }
}

/// The name of a source, without its folder.
pub(crate) fn source_name(checkpoint: &Checkpoint) -> String {
    source_name_of(Path::new(checkpoint.file()))
}

/// The name that a receipt has for a source that lies here.
pub(crate) fn source_name_of(path: &Path) -> String {
    path.file_name().map_or(path.to_string_lossy(), |name| name.to_string_lossy()).into_owned()
}

/// The fields of a receipt about a source, without the digests.
pub(crate) fn source_fields(checkpoint: &Checkpoint) -> Map<String, Value> {
    let mut source = Map::new();
    source.insert("name".into(), json!(source_name(checkpoint)));
    source.insert("bytes".into(), json!(checkpoint.stored().len()));
    if checkpoint.is_gzip() {
        // Length and digests belong to the gzip file; offsets in the warnings count in the unpacked file.
        source.insert("compression".into(), json!("gzip"));
    }
    if let Some(member) = checkpoint.member() {
        source.insert("member".into(), json!(member));
    }
    if checkpoint.is_packed() {
        source.insert("unpacked_bytes".into(), json!(checkpoint.file_len()));
    }
    source.insert("format".into(), json!(checkpoint.format().name()));
    source.insert("dialect".into(), json!(checkpoint.dialect()));
    let metadata: Map<String, Value> = checkpoint
        .metadata()
        .iter()
        // The source's receipt goes into the history. As a text here, a receipt would be escaped once more by each
        // conversion.
        .filter(|(k, _)| k != KEY)
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect();
    source.insert("metadata".into(), Value::Object(metadata));
    source
}

/// The place where a source breaks off whose whole arrays are taken.
pub(crate) fn salvaged(checkpoint: &Checkpoint) -> Option<Value> {
    let error = checkpoint.salvaged()?;
    Some(json!({"arrays": checkpoint.entries().len(), "byte": error.offset(), "why": error.to_string()}))
}

/// The warnings about a source and its arrays.
pub(crate) fn warnings(checkpoint: &Checkpoint) -> Vec<Value> {
    work::visit(0, checkpoint.entries().len() as u64);
    let whole = checkpoint.warnings().iter().map(|w| json!(w.to_string()));
    let of_entries = checkpoint
        .entries()
        .iter()
        .flat_map(|entry| entry.warnings().map(|w| json!(format!("{}: {w}", entry.name()))).collect::<Vec<_>>());
    whole.chain(of_entries).collect()
}
