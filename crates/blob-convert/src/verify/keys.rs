//! The keys that a receipt may have: the fields of the types that the receipt is read into. An unknown key claims
//! something that nothing checks: the key is misspelt, or of a newer version. A missing key leaves a claim out.
//!
//! Relies on nothing but the text; keeps the first unknown keys alone in memory.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// At most this many unknown keys are named.
const NAMED: usize = 3;

/// The keys that are not as the types have them, each with the path to the key: `source.bytees`.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The first keys for which no type has a field.
    pub(super) unknown: Vec<String>,
    /// The fields that an object lacks. Lists have no place in a path, so that there are few of these.
    pub(super) missing: BTreeSet<String>,
    /// The fields that are `null`.
    pub(super) null: BTreeSet<String>,
}

/// Reads a text as a value of `T`, and lists the keys that are unknown or missing in an object which a type within `T`
/// takes. `None` for a text that is no such value.
pub(super) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Option<(T, Keys)> {
    let keys = RefCell::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Noting { inner: &mut json, at: At { path: "", keys: &keys } }).ok()?;
    json.end().ok()?;
    Some((value, keys.into_inner()))
}

/// A place in the text: the keys that lead there.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a str,
    keys: &'a RefCell<Keys>,
}

impl At<'_> {
    /// The path to a key of the object at this place.
    fn path(self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes that the value at this place is `null`. Free values have no path.
    fn note_null(self) {
        if !self.path.is_empty() {
            self.keys.borrow_mut().null.insert(self.path.to_owned());
        }
    }
}

/// Reads a value with another deserializer, and notes unknown keys.
struct Noting<'a, D> {
    inner: D,
    at: At<'a>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Noting<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Seen { visitor, fields: None, at: self.at })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Seen { visitor, fields: Some(fields), at: self.at })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Seen { visitor, fields: None, at: self.at })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier
    }
}

/// Hands a value on, and each value within through [`Noting`].
struct Seen<'a, V> {
    visitor: V,
    /// The keys that are known, in an object that a type with fields takes.
    fields: Option<&'static [&'static str]>,
    at: At<'a>,
}

/// Hands a value without keys on.
macro_rules! plain {
    ($($visit:ident($kind:ty)),*) => { $(
        fn $visit<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.visitor.$visit(value)
        }
    )* };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Seen<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    plain!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str), visit_string(String));
    plain!(visit_borrowed_str(&'de str));

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.at.note_null();
        self.visitor.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.at.note_null();
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Noting { inner, at: self.at })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        // Types with fields would take a list of values without keys, which no receipt has.
        if self.fields.is_some() {
            return Err(Error::custom("a list in place of an object"));
        }
        self.visitor.visit_seq(Items { inner, at: self.at })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { visitor, fields, at } = self;
        visitor.visit_map(Pairs { inner, fields, at, path: String::new(), seen: Vec::new() })
    }
}

struct Items<'a, A> {
    inner: A,
    at: At<'a>,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(Seed { seed, at: self.at })
    }
}

struct Pairs<'a, A> {
    inner: A,
    fields: Option<&'static [&'static str]>,
    at: At<'a>,
    /// The path to the value behind the last key.
    path: String,
    /// The places of the keys so far among the fields.
    seen: Vec<usize>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Pairs<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let fields = self.fields.unwrap_or_default();
        let Some(key) = self.inner.next_key::<String>()? else {
            let missing = fields.iter().enumerate().filter(|(place, _)| !self.seen.contains(place));
            let missing = missing.map(|(_, field)| self.at.path(field));
            self.at.keys.borrow_mut().missing.extend(missing);
            return Ok(None);
        };
        if self.fields.is_some() {
            self.path = self.at.path(&key);
            let unknown = &mut self.at.keys.borrow_mut().unknown;
            match fields.iter().position(|field| *field == key) {
                // A key that stands twice is an error of the type.
                Some(place) => self.seen.push(place),
                None if unknown.len() < NAMED => unknown.push(self.path.clone()),
                None => {}
            }
        }
        let key: StringDeserializer<A::Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Seed { seed, at: At { path: &self.path, ..self.at } })
    }
}

struct Seed<'a, S> {
    seed: S,
    at: At<'a>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Noting { inner, at: self.at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Part {
        name: String,
        #[serde(default)]
        also: u64,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Whole {
        one: Option<Part>,
        many: Vec<Part>,
        any: Value,
        number: Option<u64>,
    }

    #[test]
    fn keys_that_no_type_has_and_fields_that_an_object_lacks_are_listed_at_any_depth() {
        let text = r#"{"one":{"name":"a","other":1,"also":1},"many":[{"name":"b","also":2},{"x":[{}],"name":"c","also":3}],
            "any":{"free":[{"name":1}]},"number":null,"y":1,"z":2}"#;
        let (whole, keys) = read::<Whole>(text).expect("read");
        assert_eq!((keys.unknown, keys.missing.len()), (["one.other", "many.x", "y"].map(str::to_owned).into(), 0));
        assert!(keys.null.iter().eq(["number"]), "{:?}", keys.null);
        assert_eq!(whole, serde_json::from_str(text).expect("read"));
        let (whole, keys) = read::<Whole>(r#"{"many":[{"name":"b","more":1},{"name":"c","more":1}]}"#).expect("read");
        assert_eq!((whole.many.len(), keys.unknown.len()), (2, 2));
        assert_eq!(keys.missing.iter().collect::<Vec<_>>(), ["any", "many.also", "number", "one"]);
        for text in [r#"{"number":"7"}"#, "{} {}", r#"[null,[],1,2]"#, r#"{"one":["a"]}"#] {
            assert!(read::<Whole>(text).is_none(), "{text}");
        }
    }
}
