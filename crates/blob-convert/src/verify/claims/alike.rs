//! Compares two values of a receipt, one as said and one as made again, field by field.
//!
//! Each field counts unless a list here names the field: a new field is compared without a word here.

use serde_json::{Map, Value};

use super::said::OPTIONAL;
use crate::receipt::MAX_TEXT;

/// A receipt is shorter than the limit by less than this where a list had no room: paths and the words on a frame may
/// be longer than in the receipt that is made again.
const SLACK: usize = 64 << 10;

/// The fields that nothing makes again, or that other checks compare: with the values, with the source, or in parts.
const ELSEWHERE: &[&str] = &[
    "schema", "tool", "recipe", "source.name", "source.bytes", "source.blake3", "source.sha256", "source.format",
    "source.dialect", "source.compression", "source.member", "source.unpacked_bytes", "source.unpacked_blake3",
    "sources.name", "sources.bytes", "sources.blake3", "sources.sha256", "sources.format", "sources.dialect",
    "sources.compression", "sources.member", "sources.unpacked_bytes", "sources.unpacked_blake3", "tensors",
    "contents", "contents_blake3", "graph_blake3", "frame", "frame_left_out", "changes", "left_out",
    // A net beside the source may have been named, and the other way round.
    "told_by.from", "sources.told_by.from", "transforms.settings.net.from",
];

/// The fields in words, which another version of the tool may have otherwise.
const WORDS: &[&str] = &["warnings"];

/// The net that a step followed.
const NET: &str = "transforms.settings.net";

/// The fields about the moment of the conversion: where a net lay, and paths in the words of an error.
const OF_THE_MOMENT: &[&str] =
    &["told_by.name", "sources.told_by.name", "transforms.settings.net.name", "salvaged.why", "sources.salvaged.why"];

/// The counts that the values tell: here they are there or not.
const COUNTS: &[&str] = &["lost_values", "zeroed_values"];

/// A field that is not as it is made again.
#[derive(Debug)]
pub(super) struct Difference {
    /// The keys to the field. Items of lists have no place in it.
    pub(super) path: String,
    pub(super) said: Value,
    pub(super) is: Value,
}

/// A receipt that is compared.
pub(super) struct Alike {
    /// Whether this version wrote the receipt.
    pub(super) is_ours: bool,
    /// The length of the receipt that is made again. A receipt itself may be spelled with blanks, and have long names.
    len: usize,
    /// Whether the lists of bf16 are compared, which stand in for a list of changes without room.
    pub(super) has_changes: bool,
    /// Whether the receipt lacks something that was not compared.
    pub(super) is_less: bool,
    /// The fields that differ and that nothing proves.
    pub(super) unproven: Vec<Difference>,
}

impl Alike {
    pub(super) fn new(is_ours: bool, len: usize) -> Self {
        Self { is_ours, len, has_changes: true, is_less: false, unproven: Vec::new() }
    }

    /// A comparison with fields that no receipt was made of: any list may have had no room.
    pub(super) fn of_fields(is_ours: bool) -> Self {
        Self::new(is_ours, MAX_TEXT)
    }

    /// Whether the receipt that is made again has room for so many bytes more.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.len + len + SLACK < MAX_TEXT
    }

    /// The first field of two receipts that differs.
    pub(super) fn fields(&mut self, said: &Map<String, Value>, is: &Map<String, Value>) -> Option<Difference> {
        self.objects("", said, is)
    }

    /// The first difference of two values at a path.
    pub(super) fn difference(&mut self, path: &str, said: &Value, is: &Value) -> Option<Difference> {
        match (said, is) {
            _ if said == is => None,
            (Value::Null, _) if !self.has_room(0) => self.unknown(),
            (said, Value::Null) if !self.has_room(said.to_string().len()) => self.unknown(),
            _ if COUNTS.contains(&path) && !said.is_null() && !is.is_null() => None,
            _ if WORDS.contains(&path) && !self.is_ours => None,
            (Value::Object(said), Value::Object(is)) => self.objects(path, said, is),
            (Value::Array(said), Value::Array(is)) if said.len() == is.len() => {
                said.iter().zip(is).find_map(|(said, is)| self.difference(path, said, is))
            }
            _ => self.other(path, said, is),
        }
    }

    /// A field that differs, unless nothing here can tell which is right.
    fn other(&mut self, path: &str, said: &Value, is: &Value) -> Option<Difference> {
        let found = Difference { path: path.to_owned(), said: said.clone(), is: is.clone() };
        let is_of_the_moment = OF_THE_MOMENT.contains(&path) && said.is_string() && is.is_string();
        // The net that was followed may not be at hand.
        let is_away = path == NET && said.is_object() && is.is_null();
        if !is_of_the_moment && !is_away {
            return Some(found);
        }
        self.unproven.push(found);
        None
    }

    fn unknown(&mut self) -> Option<Difference> {
        self.is_less = true;
        None
    }

    fn objects(&mut self, path: &str, said: &Map<String, Value>, is: &Map<String, Value>) -> Option<Difference> {
        let keys = is.keys().chain(said.keys().filter(|key| !is.contains_key(*key)));
        let keys: Vec<&String> = keys.collect();
        keys.into_iter().find_map(|key| {
            let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let is_of_bits = matches!(&*at, "bf16_as_u16" | "u16") && !self.has_changes;
            if ELSEWHERE.contains(&&*at) || is_of_bits {
                return None;
            }
            match (said.get(key), is.get(key)) {
                (Some(said), Some(is)) => self.difference(&at, said, is),
                // Another version may write other fields; those that this one does not know were told.
                (None, _) if !self.is_ours => self.unknown(),
                (_, None) if !self.is_ours && !OPTIONAL.contains(&&*at) => None,
                (said, is) => self.other(&at, said.unwrap_or(&Value::Null), is.unwrap_or(&Value::Null)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_counts_and_null_alone_where_there_was_no_room() {
        let is = json!({"a": [{"b": 1, "c": [1, 2]}], "told_by": {"name": "n", "blake3": "0"}, "tool": "x"});
        let path = |said: Value, is_ours: bool, len: usize| {
            let (said, is) = (said.as_object().cloned(), is.as_object().cloned());
            let mut alike = Alike::new(is_ours, len);
            let found = alike.fields(&said.expect("an object"), &is.expect("an object"));
            (found.map(|found| found.path), alike.unproven.len())
        };
        let with = |at: &str, value: Value| {
            let mut said = is.clone();
            *said.pointer_mut(at).expect("there") = value;
            said
        };
        for (said, at, unproven) in [
            (is.clone(), None, 0),
            (with("/tool", json!("y")), None, 0),
            (with("/told_by/name", json!("m")), None, 1),
            (with("/told_by/name", Value::Null), Some("told_by.name"), 0),
            (with("/told_by/blake3", json!("1")), Some("told_by.blake3"), 0),
            (with("/a/0/c/1", Value::Null), Some("a.c"), 0),
            (with("/a/0/c", json!([2, 1])), Some("a.c"), 0),
            (with("/a/0", json!({"b": 1, "c": [1, 2], "d": 1})), Some("a.d"), 0),
            (with("/a/0", json!({"b": 1})), Some("a.c"), 0),
        ] {
            assert_eq!(path(said.clone(), true, 99), (at.map(str::to_owned), unproven), "{said}");
        }
        assert_eq!(path(with("/a/0/c", Value::Null), true, MAX_TEXT - SLACK), (None, 0));
        assert_eq!(path(with("/a/0", json!({"b": 1, "d": 1})), false, 99), (None, 0));
        assert_eq!(path(with("/a/0", json!({"b": 2})), false, 99), (Some("a.b".to_owned()), 0));
    }
}
