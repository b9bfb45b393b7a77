//! The keys that a receipt may have. An unknown key claims something that nothing checks: the key is misspelt, or of a
//! newer version.
//!
//! Relies on nothing but the text; keeps the first unknown keys alone in memory.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// At most this many unknown keys are named.
const NAMED: usize = 3;

/// The form of a value, as far as the keys in it are known.
#[derive(Clone, Copy)]
enum Form {
    /// Keys or values of any kind, as in a source's metadata.
    Any,
    /// An object of these keys.
    Object(&'static [(&'static str, Form)]),
    /// A list of values of this form.
    List(&'static Form),
}

const SALVAGED: Form = Form::Object(&[("arrays", Form::Any), ("byte", Form::Any), ("why", Form::Any)]);
const SOURCE: Form = Form::Object(&[
    ("name", Form::Any),
    ("bytes", Form::Any),
    ("blake3", Form::Any),
    ("sha256", Form::Any),
    ("format", Form::Any),
    ("dialect", Form::Any),
    ("metadata", Form::Any),
    ("compression", Form::Any),
    ("unpacked_bytes", Form::Any),
    ("member", Form::Any),
    ("prefix", Form::Any),
    ("salvaged", SALVAGED),
]);
const STEP: Form = Form::Object(&[("name", Form::Any), ("settings", Form::Any)]);
const ORIGIN: Form = Form::Object(&[
    ("name", Form::Any),
    ("bytes", Form::Any),
    ("blake3", Form::Any),
    ("format", Form::Any),
    ("dialect", Form::Any),
    ("tool", Form::Any),
    ("transforms", Form::List(&STEP)),
    ("several", Form::Any),
]);
const SELECTION: Form = Form::Object(&[
    ("patterns", Form::Any),
    ("regex", Form::Any),
    ("exclude", Form::Any),
    ("dtypes", Form::Any),
    ("shapes", Form::Any),
]);
const TENSOR: Form = Form::Object(&[
    ("name", Form::Any),
    ("dtype", Form::Any),
    ("shape", Form::Any),
    ("blake3", Form::Any),
    ("file", Form::Any),
    ("file_bytes", Form::Any),
]);
const FRAME: Form = Form::Object(&[
    ("format", Form::Any),
    ("bytes", Form::Any),
    ("holes", Form::Any),
    ("blake3", Form::Any),
    ("deflate", Form::Any),
]);
const RECEIPT: Form = Form::Object(&[
    ("schema", Form::Any),
    ("tool", Form::Any),
    ("recipe", Form::Any),
    ("source", SOURCE),
    ("sources", Form::List(&SOURCE)),
    ("sources_left_out", Form::Any),
    ("prefixed", Form::Any),
    ("select", SELECTION),
    ("tensors", Form::Any),
    ("contents", Form::List(&TENSOR)),
    ("contents_blake3", Form::Any),
    ("changes", Form::List(&Form::Object(&[("name", Form::Any), ("changes", Form::Any), ("bits_of", Form::Any)]))),
    ("bf16_as_u16", Form::Any),
    ("u16", Form::Any),
    ("transforms", Form::List(&STEP)),
    ("sparse", Form::List(&Form::Object(&[("name", Form::Any), ("kind", Form::Any), ("shape", Form::Any)]))),
    ("left_out", Form::List(&Form::Object(&[("name", Form::Any), ("reason", Form::Any)]))),
    ("salvaged", SALVAGED),
    ("warnings", Form::Any),
    ("lost_values", Form::Any),
    ("zeroed_values", Form::Any),
    ("history", Form::List(&ORIGIN)),
    ("frame", FRAME),
    ("frame_left_out", Form::Any),
]);

/// The first keys that a receipt of ours does not have, each with the path to it: `source.bytees`.
pub(super) fn unknown(text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let walk = Walk { form: RECEIPT, path: "", unknown: &mut keys };
    // A text that is no JSON is a finding of its own.
    let _ = walk.deserialize(&mut serde_json::Deserializer::from_str(text));
    keys
}

/// A walk through one value.
struct Walk<'a> {
    form: Form,
    /// The keys that lead to the value.
    path: &'a str,
    unknown: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        match self.form {
            Form::Any => IgnoredAny::deserialize(text).map(drop),
            _ => text.deserialize_any(self),
        }
    }
}

/// Passes over a value without keys.
macro_rules! plain {
    ($($visit:ident($kind:ty)),*) => { $(
        fn $visit<E>(self, _: $kind) -> Result<(), E> {
            Ok(())
        }
    )* };
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    plain!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let form = if let Form::List(form) = self.form { *form } else { Form::Any };
        while items.next_element_seed(Walk { form, path: self.path, unknown: self.unknown })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            let Form::Object(known) = self.form else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            match known.iter().find(|(name, _)| *name == key) {
                Some((_, form)) => fields.next_value_seed(Walk { form: *form, path: &path, unknown: self.unknown })?,
                None => {
                    if self.unknown.len() < NAMED {
                        self.unknown.push(path);
                    }
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
