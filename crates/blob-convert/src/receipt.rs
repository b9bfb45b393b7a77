//! The receipt: where the tensors came from, what was changed, what was left out.
//!
//! Its text has the same length before and after the digests are known, so that a header can be laid out first.

use blob_io::Checkpoint;
use serde_json::{Map, Value, json};

use crate::hash::Digests;
use crate::plan::{How, Planned};

/// The key of the receipt: in safetensors' `__metadata__`, and, with `.json` behind it, as a member of an npz.
pub const KEY: &str = "blob.receipt";

/// A receipt whose digests are still to come.
#[derive(Debug)]
pub(crate) struct Receipt {
    /// The source's fields as a JSON object, without the digests.
    source: String,
    /// All other fields as a JSON object.
    rest: String,
    pub(crate) sha256: bool,
}

impl Receipt {
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        sha256: bool,
        tensors: &[Planned],
        left_out: &[(String, String)],
    ) -> Self {
        let name = std::path::Path::new(checkpoint.name())
            .file_name()
            .map_or(checkpoint.name().into(), |n| n.to_string_lossy());
        let mut source = Map::new();
        source.insert("name".into(), json!(name));
        source.insert("bytes".into(), json!(checkpoint.file_len()));
        source.insert("format".into(), json!(checkpoint.format().name()));
        source.insert("dialect".into(), json!(checkpoint.dialect()));
        let metadata: Map<String, Value> = checkpoint
            .metadata()
            .iter()
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        source.insert("metadata".into(), Value::Object(metadata));
        let rest = json!({
            "schema": "blob.receipt/1",
            "tool": concat!("blob ", env!("CARGO_PKG_VERSION")),
            "tensors": tensors.len(),
            "changes": changes(tensors),
            "sparse": sparse(checkpoint, tensors),
            "left_out": left_out.iter().map(|(name, why)| json!({"name": name, "reason": why})).collect::<Vec<_>>(),
            "warnings": warnings(checkpoint),
        })
        .to_string();
        Self {
            source: Value::Object(source).to_string(),
            rest,
            sha256,
        }
    }

    /// Key and text with digests of the right width that are not the real ones.
    pub(crate) fn placeholder(&self) -> (String, String) {
        let zeros = "0".repeat(64);
        let unknown = Digests {
            blake3: zeros.clone(),
            sha256: Some(zeros),
        };
        (KEY.to_owned(), self.fill(&unknown))
    }

    /// Key and text with the digests.
    pub(crate) fn finished(&self, digests: &Digests) -> (String, String) {
        (KEY.to_owned(), self.fill(digests))
    }

    fn fill(&self, digests: &Digests) -> String {
        let sha256 = match (&digests.sha256, self.sha256) {
            (Some(sha256), true) => format!("\"sha256\":\"{sha256}\","),
            _ => String::new(),
        };
        let (blake3, source, rest) = (&digests.blake3, &self.source[1..], &self.rest[1..]);
        format!("{{\"source\":{{\"blake3\":\"{blake3}\",{sha256}{source},{rest}")
    }
}

fn changes(tensors: &[Planned]) -> Vec<Value> {
    tensors
        .iter()
        .filter(|t| !t.changes.is_empty())
        .map(|t| json!({"name": t.name(), "changes": t.changes}))
        .collect()
}

/// The sparse arrays that were written as their parts: what they are, for whoever puts them together again.
fn sparse(checkpoint: &Checkpoint, tensors: &[Planned]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut last = None;
    for tensor in tensors.iter().filter(|t| t.how != How::Dense) {
        let entry = &checkpoint.entries()[tensor.entry];
        let Some(sparse) = entry.sparse() else {
            continue;
        };
        if last != Some(entry.position()) {
            all.push(json!({
                "name": sparse.name(),
                "kind": sparse.kind().name(),
                "shape": sparse.shape().dims(),
            }));
            last = Some(entry.position());
        }
    }
    all
}

fn warnings(checkpoint: &Checkpoint) -> Vec<Value> {
    let whole = checkpoint.warnings().iter().map(|w| json!(w.to_string()));
    let each = checkpoint.entries().iter().flat_map(|entry| {
        entry
            .warnings()
            .map(|w| json!(format!("{}: {w}", entry.name())))
            .collect::<Vec<_>>()
    });
    whole.chain(each).collect()
}
