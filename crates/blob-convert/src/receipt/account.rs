//! A summary of a receipt for people: the changes, the tensors of each change, and the files that the tensors came
//! from.

use std::collections::BTreeMap;

use blob_io::words::Listed;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::history::{MAX_STEPS, Origin, history_of, parse, reduce_list};
use crate::step::Step;

/// At most this many kinds of changes are listed.
const KINDS: usize = 64;
/// At most this many tensors of each kind are named.
const NAMED: usize = 3;

/// A summary of a conversion and of the conversions before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Account {
    /// The files that the tensors came from, the first one first; the last ones are the sources.
    pub history: Vec<Origin>,
    /// How many of these files are sources: several for a merged file.
    pub sources: usize,
    /// Why the receipt of a merged file names no sources.
    pub sources_left_out: Option<String>,
    /// The transforms, in order; `None` where the receipt's list cannot be read.
    pub transforms: Option<Vec<Step>>,
    /// The kinds of changes, sorted by the words, each with the number of tensors; at most 64.
    pub changes: Vec<Changed>,
    /// How many tensors were left out.
    pub left_out: u64,
    /// How many values the transforms lost, where there were any transforms.
    pub lost_values: Option<u64>,
}

/// One kind of change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// The change, in words.
    pub what: String,
    /// The number of tensors with this change.
    pub tensors: u64,
    /// The names of the first of these tensors.
    pub named: Vec<String>,
}

#[derive(Deserialize)]
struct Fields {
    changes: Option<Kinds>,
    left_out: Option<Count>,
    transforms: Option<Value>,
    lost_values: Option<u64>,
    sources_left_out: Option<String>,
}

#[derive(Default)]
struct Kinds(BTreeMap<String, Listed<String, NAMED>>);

#[derive(Deserialize)]
struct TensorChanges {
    name: String,
    #[serde(default)]
    changes: Vec<String>,
}

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        reduce_list(text, Self::default(), |kinds, change: TensorChanges| {
            for what in change.changes {
                if kinds.0.len() == KINDS && !kinds.0.contains_key(&what) {
                    continue;
                }
                kinds.0.entry(what).or_default().push(|| change.name.clone());
            }
        })
    }
}

#[derive(Default)]
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        reduce_list(text, Self::default(), |count, _: serde::de::IgnoredAny| count.0 += 1)
    }
}

impl Account {
    /// Summarises a receipt's text; `None` if the text is no receipt or over 16 MiB.
    #[must_use]
    pub fn of_receipt(text: &str) -> Option<Self> {
        let named = Origin::of_receipt(text);
        let history = history_of(text);
        // Of many sources, the history has the last ones.
        let last = history.iter().rev();
        let sources = last.take_while(|origin| named.iter().any(|source| source.blake3 == origin.blake3)).count();
        let fields: Fields =
            parse(text).filter(|fields: &Fields| !named.is_empty() || fields.sources_left_out.is_some())?;
        let steps = fields.transforms.map_or(Some(Vec::new()), |steps| serde_json::from_value(steps).ok());
        let kinds = fields.changes.unwrap_or_default().0.into_iter();
        Some(Self {
            history,
            sources,
            transforms: steps.filter(|steps: &Vec<Step>| steps.len() <= MAX_STEPS),
            changes: kinds.map(|(what, of)| Changed { what, tensors: of.count, named: of.first }).collect(),
            sources_left_out: fields.sources_left_out,
            left_out: fields.left_out.unwrap_or_default().0,
            lost_values: fields.lost_values,
        })
    }
}
