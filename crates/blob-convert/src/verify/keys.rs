//! The keys that a receipt may have: the fields of the types that the receipt is read into. An unknown key claims
//! something that nothing checks: the key is misspelt, or of a newer version.
//!
//! Relies on nothing but the text; keeps the first unknown keys alone in memory.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// At most this many unknown keys are named.
const NAMED: usize = 3;

/// Reads a text as a value of `T`, and lists the first keys for which no type within `T` has a field, each with the
/// path to the key: `source.bytees`. `None` for a text that is no such value.
pub(super) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Option<(T, Vec<String>)> {
    let unknown = RefCell::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Noting { inner: &mut json, at: At { path: "", unknown: &unknown } }).ok()?;
    json.end().ok()?;
    Some((value, unknown.into_inner()))
}

/// A place in the text: the keys that lead there.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a str,
    unknown: &'a RefCell<Vec<String>>,
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
        self.visitor.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Noting { inner, at: self.at })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Items { inner, at: self.at })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { visitor, fields, at } = self;
        visitor.visit_map(Pairs { inner, fields, at, path: String::new() })
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
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Pairs<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(key) = self.inner.next_key::<String>()? else { return Ok(None) };
        if let Some(fields) = self.fields {
            self.path = if self.at.path.is_empty() { key.clone() } else { format!("{}.{key}", self.at.path) };
            let mut unknown = self.at.unknown.borrow_mut();
            if !fields.contains(&&*key) && unknown.len() < NAMED {
                unknown.push(self.path.clone());
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
    fn keys_without_a_field_are_listed_at_any_depth() {
        let text = r#"{"one":{"name":"a","other":1},"many":[{"name":"b"},{"x":[{}],"name":"c"}],
            "any":{"free":[{"name":1}]},"number":7,"y":null,"z":2}"#;
        let (whole, unknown) = read::<Whole>(text).expect("read");
        assert_eq!(unknown, ["one.other", "many.x", "y"]);
        assert_eq!(whole, serde_json::from_str(text).expect("read"));
        assert_eq!(read::<Whole>("{}"), Some((Whole::default(), Vec::new())));
        assert_eq!(read::<Whole>(r#"{"number":"7"}"#), None);
        assert_eq!(read::<Whole>("{} {}"), None);
    }
}
