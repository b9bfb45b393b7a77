//! The fields of a receipt about a source, as text of the same length before and after the digests are known.

use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::hash::Digests;
use crate::history::{salvaged, source_fields};
use crate::planned::SourceFile;

/// The fields of a source as a JSON object, without the digests.
#[derive(Debug)]
pub(super) struct Fields {
    text: String,
    is_packed: bool,
}

impl Fields {
    pub(super) fn new(fields: &Value, source: &Checkpoint) -> Self {
        Self { text: fields.to_string(), is_packed: source.is_packed() }
    }

    /// The object with the digests, or with as many zeros.
    pub(super) fn fill(&self, digests: Option<&Digests>, has_sha256: bool) -> String {
        let zeros = "0".repeat(64);
        let sha256 = digests.and_then(|digests| digests.sha256.as_ref());
        let unpacked = digests.and_then(|digests| digests.unpacked.as_ref());
        let all = [
            ("blake3", digests.map(|digests| &digests.blake3), true),
            ("sha256", sha256, has_sha256),
            ("unpacked_blake3", unpacked, self.is_packed),
        ];
        let all = all.into_iter().filter(|(.., is_there)| *is_there);
        let all = all.map(|(name, digest, _)| format!("\"{name}\":\"{}\",", digest.unwrap_or(&zeros)));
        format!("{{{}{}", all.collect::<String>(), &self.text[1..])
    }
}

/// The fields of one of several sources, without the digest.
pub(super) fn of_several(source: &SourceFile<'_>) -> Value {
    let mut fields = source_fields(source.checkpoint);
    fields.remove("metadata");
    fields.extend(salvaged(source.checkpoint).map(|salvaged| ("salvaged".to_owned(), salvaged)));
    fields.insert("prefix".into(), json!(source.prefix));
    fields.extend(source.told_by.as_ref().map(|net| ("told_by".to_owned(), json!(net))));
    Value::Object(fields)
}
