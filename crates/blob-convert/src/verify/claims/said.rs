//! A receipt as the types that it is read into: each field that a receipt of this version may have.
//!
//! A key without a field here is unknown to [`keys`](super::keys). A field that nothing reads does not compile without
//! the reason: so each field has a default of its own, for a default of the whole reads them all. The values are
//! untrusted, so most of them may be of any kind.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use super::super::keys::Keys;
use crate::frame::FrameText;
use crate::history::Origin;
use crate::receipt::TOOL;
use crate::step::Step;
use crate::transform::NetOrigin;
use crate::written::Items;

/// The fields that a receipt of this version has only where there is something to say. All others are in each.
pub(super) const OPTIONAL: &[&str] = &[
    "recipe", "source", "sources", "sources_left_out", "prefixed", "select", "graph_blake3", "bf16_as_u16", "u16",
    "transforms", "left_out", "part", "told_by", "told_by.blake3", "salvaged", "lost_values", "zeroed_values", "frame",
    "frame_left_out", "source.sha256", "source.compression", "source.member", "source.unpacked_bytes",
    "source.unpacked_blake3", "source.prefix", "source.told_by", "source.salvaged", "sources.sha256",
    "sources.metadata", "sources.compression", "sources.member", "sources.unpacked_bytes", "sources.unpacked_blake3",
    "sources.told_by", "sources.told_by.blake3", "sources.salvaged", "changes.bits_of", "contents.file",
    "contents.file_bytes", "history.dialect", "history.unpacked_bytes", "history.unpacked_blake3",
    "history.transforms", "history.several",
];

/// The fields that are `null` where there was no room, or nothing to say.
const NULLABLE: &[&str] = &[
    "contents", "changes", "sparse", "left_out", "warnings", "transforms", "history", "select", "told_by", "salvaged",
    "salvaged.byte", "sources.salvaged.byte", "frame", "source.metadata", "transforms.settings",
    "history.transforms.settings",
];

/// The fields of a receipt.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Claims {
    pub(super) schema: Option<Value>,
    pub(super) tool: Option<String>,
    /// The digest of a job's recipe, which the batch compares.
    recipe: Option<String>,
    pub(super) source: Option<SaidSource>,
    pub(super) sources: Option<Vec<SaidSource>>,
    pub(super) sources_left_out: Option<String>,
    pub(super) prefixed: Option<Value>,
    pub(super) select: Option<Value>,
    pub(super) tensors: Option<Value>,
    pub(super) contents: Option<Items>,
    pub(super) contents_blake3: Option<String>,
    pub(super) graph_blake3: Option<Value>,
    pub(super) changes: List<Changed>,
    pub(super) bf16_as_u16: Option<Value>,
    pub(super) u16: Option<Value>,
    pub(super) transforms: List<Step>,
    pub(super) sparse: List<SparseArray>,
    pub(super) left_out: List<LeftOut>,
    #[serde(rename = "part")]
    pub(super) is_part: Option<Value>,
    /// The net is followed where the receipt is made again.
    told_by: Option<NetOrigin>,
    pub(super) salvaged: Option<Salvaged>,
    pub(super) warnings: List<String>,
    pub(super) lost_values: Option<Value>,
    pub(super) zeroed_values: Option<Value>,
    pub(super) history: List<Origin>,
    pub(super) frame: Option<FrameText>,
    pub(super) frame_left_out: Option<String>,
}

/// A list that may be absent, or `null` where the receipt had no room for it.
#[derive(Default)]
pub(super) enum List<T> {
    #[default]
    Absent,
    NoRoom,
    Of(Vec<T>),
}

/// A file that tensors came from.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidSource {
    pub(super) name: Value,
    pub(super) bytes: Value,
    pub(super) blake3: Value,
    pub(super) sha256: Value,
    pub(super) format: Value,
    pub(super) dialect: Value,
    pub(super) metadata: Value,
    pub(super) compression: Value,
    pub(super) unpacked_bytes: Value,
    pub(super) unpacked_blake3: Value,
    pub(super) member: Value,
    /// Compared where the receipt is made again.
    prefix: Value,
    /// The net is followed where the receipt is made again.
    told_by: Option<NetOrigin>,
    pub(super) salvaged: Option<Salvaged>,
}

/// Where a source breaks off.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Salvaged {
    pub(super) arrays: Value,
    pub(super) byte: Value,
    /// Words, which are not compared.
    why: Value,
}

/// A tensor that was changed.
#[derive(Deserialize)]
pub(super) struct Changed {
    pub(super) name: String,
    #[serde(default)]
    pub(super) changes: Vec<String>,
    #[serde(default)]
    pub(super) bits_of: Value,
}

/// A sparse array that was written as parts.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct SparseArray {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) shape: Vec<u64>,
}

/// A tensor of the source that was not written.
#[derive(Deserialize)]
pub(super) struct LeftOut {
    pub(super) name: String,
    #[serde(default)]
    pub(super) reason: String,
}

impl<T> List<T> {
    pub(super) fn items(&self) -> &[T] {
        if let Self::Of(items) = self { items } else { &[] }
    }

    pub(super) fn is_there(&self) -> bool {
        matches!(self, Self::Of(_))
    }

    pub(super) fn had_no_room(&self) -> bool {
        matches!(self, Self::NoRoom)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(text)?.map_or(Self::NoRoom, Self::Of))
    }
}

impl Claims {
    /// Whether this version wrote the receipt, by the receipt's own word.
    pub(super) fn is_of_this_version(&self) -> bool {
        self.tool.as_deref() == Some(TOOL)
    }

    /// The lists that the receipt had no room for.
    pub(super) fn without_room(&self) -> Vec<&'static str> {
        let lists = [
            ("changes", self.changes.had_no_room()),
            ("sparse", self.sparse.had_no_room()),
            ("left_out", self.left_out.had_no_room()),
            ("warnings", self.warnings.had_no_room()),
            ("history", self.history.had_no_room()),
            ("source.metadata", self.is_of_this_version() && self.has_null_metadata()),
        ];
        lists.into_iter().filter_map(|(key, is_null)| is_null.then_some(key)).collect()
    }

    fn has_null_metadata(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.metadata.is_null())
    }

    /// The fields that every receipt of this version has, and this one lacks, or has as `null`.
    pub(super) fn lacks(&self, Keys { missing, null, .. }: &Keys) -> Vec<String> {
        let is_conversion = self.source.is_some();
        let has_steps = !self.transforms.items().is_empty();
        let is_missing = |key: &str| missing.contains(key);
        let of_kind = [
            ("left_out", is_conversion && is_missing("left_out")),
            ("frame", is_conversion && is_missing("frame")),
            ("frame_left_out", is_conversion && !is_missing("frame") && self.has_unsaid_frame()),
            ("prefixed", !is_conversion && is_missing("prefixed")),
            ("lost_values", has_steps && is_missing("lost_values")),
            ("zeroed_values", has_steps && is_missing("zeroed_values")),
        ];
        let of_kind = of_kind.into_iter().filter_map(|(key, is_lacking)| is_lacking.then_some(key));
        let always = missing.iter().map(|key| &**key).filter(|key| !OPTIONAL.contains(key));
        let null = null.iter().map(|key| &**key).filter(|key| !NULLABLE.contains(key));
        always.chain(null).chain(of_kind).map(str::to_owned).collect()
    }

    /// Whether there is no frame, and no word on why.
    fn has_unsaid_frame(&self) -> bool {
        self.frame.is_none() && self.frame_left_out.is_none()
    }
}
