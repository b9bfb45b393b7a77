//! The receipt: where the tensors came from, what was changed, what was left out, and each tensor's digest.
//!
//! Its text has the same length before and after the digests are known, so that a header can be laid out first.

mod contents;

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::hash::Digests;
use crate::options::Options;
use crate::planned::Planned;
use crate::transform::Transform;
use contents::Contents;
pub(crate) use contents::of_all;

/// The key of the receipt: in safetensors' `__metadata__`, and, with `.json` behind it, as a member of an npz.
pub const KEY: &str = "blob.receipt";

/// What is changed about bf16 in npy and npz.
pub(crate) const BITS_OF_BF16: &str = "bf16 bits stored as u2: NumPy has no bfloat16";

/// A longer receipt is not read.
const LONGEST: usize = 16 << 20;
/// The longest receipt that we write, not counting a folder's list of files: our readers accept 4 MiB of metadata.
const MOST_TEXT: usize = (4 << 20) - 4096;
/// How many earlier sources a receipt names: the first, and the last of them.
const MOST_EARLIER: usize = 64;
/// Earlier sources with a longer text are left out of the history.
const LONGEST_TEXT: usize = 1024;

/// A receipt whose digests are still to come.
#[derive(Debug)]
pub(crate) struct Receipt {
    /// The source's fields as a JSON object, without the digests.
    source: String,
    /// All other fields as a JSON object, without the contents.
    rest: String,
    contents: Contents,
    pub(crate) sha256: bool,
    pub(crate) is_untransformed: bool,
}

impl Receipt {
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        options: &Options,
        tensors: &[Planned],
        left_out: &[(String, String)],
        files: &[String],
        frame: Result<Value, &str>,
    ) -> Result<Self, Error> {
        let file = checkpoint.file();
        let name = std::path::Path::new(file).file_name().map_or(file.into(), |n| n.to_string_lossy());
        let mut source = Map::new();
        source.insert("name".into(), json!(name));
        source.insert("bytes".into(), json!(checkpoint.stored().len()));
        if checkpoint.is_gzip() {
            // Length and digests are the gzip file's own; places in the warnings are those of what it unpacks to.
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
            // The source's receipt goes into the history: as a text it would be escaped once more at each conversion.
            .filter(|(k, _)| k != KEY)
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        source.insert("metadata".into(), Value::Object(metadata));
        let mut rest = json!({
            "schema": "blob.receipt/1",
            "tool": concat!("blob ", env!("CARGO_PKG_VERSION")),
            "tensors": tensors.len(),
            "changes": changes(tensors),
            "sparse": sparse(checkpoint, tensors),
            "left_out": left_out.iter().map(|(name, why)| json!({"name": name, "reason": why})).collect::<Vec<_>>(),
            "warnings": warnings(checkpoint),
            "history": history(checkpoint),
            "frame": frame.as_ref().ok(),
        });
        if !options.transforms.is_empty() {
            let step = |step: &Arc<dyn Transform>| json!({"name": step.name(), "settings": step.settings()});
            rest["transforms"] = options.transforms.iter().map(step).collect();
        }
        let contents = Contents::new(tensors, files)?;
        let room = MOST_TEXT - if files.is_empty() { contents.len() } else { 0 };
        let mut source = Value::Object(source);
        shorten(&mut source, &mut rest, room);
        if rest["changes"].is_null() {
            rest["bf16_as_u16"] = json!(tensors.iter().any(|t| t.keeps_bf16));
        }
        if rest["frame"].is_null() {
            rest["frame_left_out"] = json!(frame.err().unwrap_or("there was no room for it"));
        }
        let (sha256, is_untransformed) = (options.sha256, options.transforms.is_empty());
        Ok(Self { source: source.to_string(), rest: rest.to_string(), contents, sha256, is_untransformed })
    }

    /// Key and text with digests of the right width that are not the real ones.
    pub(crate) fn placeholder(&self) -> (String, String) {
        (KEY.to_owned(), self.fill(None))
    }

    /// Key and text with the digests.
    pub(crate) fn finished(&self, digests: &Digests) -> (String, String) {
        (KEY.to_owned(), self.fill(Some(digests)))
    }

    fn fill(&self, digests: Option<&Digests>) -> String {
        let zeros = "0".repeat(64);
        let blake3 = digests.map_or(&zeros, |all| &all.blake3);
        let sha256 = match self.sha256 {
            true => {
                let known = digests.and_then(|all| all.sha256.as_ref());
                format!("\"sha256\":\"{}\",", known.unwrap_or(&zeros))
            }
            false => String::new(),
        };
        let contents = self.contents.fields(digests.map(|all| &all.tensors[..]));
        let (source, rest) = (&self.source[1..], &self.rest[1..]);
        format!("{{\"source\":{{\"blake3\":\"{blake3}\",{sha256}{source},{contents},{rest}")
    }
}

/// Leaves the longest lists out until the two objects fit into `room`: `null` stands for each of them.
fn shorten(source: &mut Value, rest: &mut Value, room: usize) {
    let mut lists: Vec<(usize, &mut Value)> = Vec::new();
    let mut len = source.to_string().len() + rest.to_string().len();
    let lists_of = [source, rest].into_iter().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    lists.extend(lists_of.filter(|v| v.is_array() || v.is_object()).map(|v| (v.to_string().len(), v)));
    lists.sort_unstable_by_key(|(len, _)| *len);
    while len > room
        && let Some((longest, list)) = lists.pop()
    {
        *list = Value::Null;
        len -= longest.saturating_sub("null".len());
    }
}

/// A file that tensors came from, as a receipt names it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The file's name, without its folder.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3, in hexadecimal.
    pub blake3: String,
    /// Its format's short name.
    pub format: String,
    /// What converted it. For the source itself, the receipt has it one level up.
    #[serde(default)]
    tool: String,
}

impl Origin {
    /// The source that a receipt's text names; `None` where the text is no receipt or over 16 MiB.
    #[must_use]
    pub fn of_receipt(text: &str) -> Option<Self> {
        let text = (text.len() <= LONGEST).then_some(text)?;
        Some(read::<Lineage>(text)?.source)
    }

    fn is_short(&self) -> bool {
        [&self.name, &self.blake3, &self.format, &self.tool].iter().all(|text| text.len() <= LONGEST_TEXT)
    }
}

/// What a receipt says of where the tensors came from.
#[derive(Deserialize)]
struct Lineage {
    source: Origin,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    history: Option<Earlier>,
}

/// Earlier sources, from the first on.
#[derive(Default)]
struct Earlier(Vec<Origin>);

impl Earlier {
    fn push(&mut self, origin: Origin) {
        if !origin.is_short() {
            return;
        }
        if self.0.len() == MOST_EARLIER {
            self.0.remove(1);
        }
        self.0.push(origin);
    }
}

impl<'de> Deserialize<'de> for Earlier {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        each(text, Self::default(), Self::push)
    }
}

/// The tensors that a receipt calls bf16, though their dtype says u16.
#[derive(Default, Deserialize)]
pub(crate) struct KeptBits {
    changes: Option<Bf16>,
    /// Where the list of changes is left out: whether there were such tensors.
    #[serde(default)]
    bf16_as_u16: bool,
}

impl KeptBits {
    /// The dtype of an array's values: bf16 where the file stores only its bits.
    pub(crate) fn dtype(&self, entry: &Entry) -> Option<DType> {
        match entry.dtype() {
            Some(DType::U16) if self.contains(entry.name()) => Some(DType::BF16),
            dtype => dtype,
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.changes.as_ref().map_or(self.bf16_as_u16, |changes| changes.0.contains(name))
    }
}

#[derive(Default)]
struct Bf16(HashSet<String>);

impl<'de> Deserialize<'de> for Bf16 {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        each(text, Self::default(), |names, change: Change| {
            if change.bits_of.as_deref() == Some(DType::BF16.name()) {
                names.0.insert(change.name);
            }
        })
    }
}

#[derive(Deserialize)]
struct Change {
    name: String,
    #[serde(default)]
    bits_of: Option<String>,
}

/// Reads a list item by item; only what `take` keeps stays in memory.
pub(crate) fn each<'de, D: Deserializer<'de>, T: Deserialize<'de>, R>(
    text: D,
    so_far: R,
    take: impl Fn(&mut R, T),
) -> Result<R, D::Error> {
    struct Items<T, R, F>(R, F, PhantomData<T>);
    impl<'de, T: Deserialize<'de>, R, F: Fn(&mut R, T)> Visitor<'de> for Items<T, R, F> {
        type Value = R;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<R, A::Error> {
            while let Some(item) = items.next_element()? {
                (self.1)(&mut self.0, item);
            }
            Ok(self.0)
        }
    }
    text.deserialize_seq(Items(so_far, take, PhantomData))
}

/// The fields of a receipt that `T` names; serde skips the others.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    serde_json::from_str(text).ok()
}

pub(crate) fn own(checkpoint: &Checkpoint) -> Option<&str> {
    let mut metadata = checkpoint.metadata().iter();
    metadata.find(|(key, _)| key == KEY).map(|(_, text)| &**text)
}

/// The tensors of a file that its receipt calls bf16, though their dtype says u16.
pub(crate) fn kept_bits(checkpoint: &Checkpoint) -> KeptBits {
    own(checkpoint).and_then(read).unwrap_or_default()
}

/// Where the source came from, if it has a receipt: the first file, then what was made of it.
fn history(checkpoint: &Checkpoint) -> Vec<Origin> {
    let Some(lineage) = own(checkpoint).and_then(read::<Lineage>) else {
        return Vec::new();
    };
    let mut earlier = lineage.history.unwrap_or_default();
    let tool = lineage.tool;
    earlier.push(Origin { tool, ..lineage.source });
    earlier.0
}

fn changes(tensors: &[Planned]) -> Vec<Value> {
    let changed = tensors.iter().filter(|t| !t.changes.is_empty());
    let change = |tensor: &Planned| {
        let mut change = json!({"name": tensor.spec.name, "changes": tensor.changes});
        if tensor.keeps_bf16 {
            change["bits_of"] = json!(DType::BF16.name());
        }
        change
    };
    changed.map(change).collect()
}

/// The receipt of an npz that is written without a conversion, if any of its tensors keep bf16 as u16: only what says so.
pub(crate) fn of_kept_bits<'t>(tensors: impl Iterator<Item = (&'t str, DType)>) -> Option<(String, String)> {
    let kept: Vec<&str> = tensors.filter(|(_, dtype)| *dtype == DType::BF16).map(|(name, _)| name).collect();
    if kept.is_empty() {
        return None;
    }
    let change = |name: &&str| json!({"name": name, "changes": [BITS_OF_BF16], "bits_of": DType::BF16.name()});
    let mut rest = json!({
        "schema": "blob.receipt/1",
        "tool": concat!("blob ", env!("CARGO_PKG_VERSION")),
        "changes": kept.iter().map(change).collect::<Vec<_>>(),
    });
    shorten(&mut Value::Null, &mut rest, MOST_TEXT);
    if rest["changes"].is_null() {
        rest["bf16_as_u16"] = json!(true);
    }
    Some((KEY.to_owned(), rest.to_string()))
}

/// The sparse arrays that were written as parts, with what a reader needs to put them together again.
fn sparse(checkpoint: &Checkpoint, tensors: &[Planned]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut last = None;
    for tensor in tensors {
        let entry = &checkpoint.entries()[tensor.entry];
        let Some(sparse) = tensor.sparse(checkpoint) else {
            continue;
        };
        if last != Some(entry.position()) {
            all.push(json!({
                "name": *sparse.name,
                "kind": sparse.kind.name(),
                "shape": sparse.shape.dims(),
            }));
            last = Some(entry.position());
        }
    }
    all
}

fn warnings(checkpoint: &Checkpoint) -> Vec<Value> {
    let whole = checkpoint.warnings().iter().map(|w| json!(w.to_string()));
    let each = checkpoint
        .entries()
        .iter()
        .flat_map(|entry| entry.warnings().map(|w| json!(format!("{}: {w}", entry.name()))).collect::<Vec<_>>());
    whole.chain(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> String {
        format!(r#"{{"name":"{name}","bytes":1,"blake3":"00","format":"npz","tool":"blob 0","more":[{{}}]}}"#)
    }

    fn lineage(history: &[String]) -> Lineage {
        let (source, history) = (origin("s"), history.join(","));
        let text = format!(r#"{{"source":{source},"tool":"t","changes":[null],"history":[{history}]}}"#);
        read(&text).expect("a receipt")
    }

    #[test]
    fn a_history_keeps_its_first_source_and_the_last_ones() {
        let all: Vec<String> = (0..1000).map(|i| origin(&i.to_string())).collect();
        let kept = lineage(&all).history.expect("a history").0;
        let names: Vec<&str> = kept.iter().map(|origin| &*origin.name).collect();
        assert_eq!((names.len(), names[0]), (64, "0"));
        assert_eq!((names[1], names[63]), ("937", "999"));
    }

    #[test]
    fn a_long_text_is_not_handed_on() {
        let kept = lineage(&[origin(&"n".repeat(1025)), origin("b")]).history.expect("a history").0;
        assert_eq!(kept.iter().map(|origin| &*origin.name).collect::<Vec<_>>(), ["b"]);
        let long = format!("{{\"source\":{}}}{}", origin("s"), " ".repeat(16 << 20));
        assert!(Origin::of_receipt(&long).is_none());
        assert!(Origin::of_receipt(long.trim_end()).is_some());
    }

    #[test]
    fn bf16_is_found_among_the_changes() {
        let text =
            r#"{"changes":[{"name":"a","bits_of":"bf16","changes":["x"]},{"name":"b","changes":["bf16"],"y":1}]}"#;
        let kept = read::<KeptBits>(text).expect("a receipt");
        assert!(kept.contains("a") && !kept.contains("b"));
        for (text, is_kept) in [(r#"{"changes":null}"#, false), (r#"{"changes":null,"bf16_as_u16":true}"#, true)] {
            assert_eq!(read::<KeptBits>(text).expect("a receipt").contains("b"), is_kept);
        }
    }
}
