//! Reads a receipt's text, which is untrusted: only the requested fields stay in memory, and each text has a limit.
//!
//! Finds where tensors came from, file by file, with the transforms of each conversion.

mod about;

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use blob_io::layout::NOTES;
use blob_io::{Checkpoint, work};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::step::Step;
use crate::transform::Own;
pub(crate) use about::{About, salvaged, source_fields, source_name, source_name_of, warnings};

/// The key of the receipt among a file's metadata: the receipt has the notes by which a file is read.
pub const KEY: &str = NOTES;

/// A longer receipt is not read.
const LONGEST: usize = 16 << 20;
/// How many earlier sources a receipt names: the first one and the most recent ones.
const MAX_EARLIER: usize = 64;
/// Earlier sources with a longer text are left out of the history.
const LONGEST_TEXT: usize = 1024;
/// More transforms than this are not read.
pub(crate) const MAX_STEPS: usize = 64;
/// Settings of earlier conversions that are longer than this may be left out of the history.
const LONGEST_SETTINGS: usize = 256;
/// How many bytes the long settings may have together. A map of names has about 60 bytes a tensor, and the way back
/// needs the map.
const ALL_SETTINGS: usize = 1 << 20;
/// The name of the step that stands for steps without room in a receipt.
pub(crate) const UNKNOWN: &str = "unknown";

/// A file that tensors came from, as a receipt names it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The file's name, without its folder.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The file's BLAKE3, in hexadecimal.
    pub blake3: String,
    /// The short name of the format.
    pub format: String,
    /// The format's generation or dialect, empty where there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dialect: String,
    /// How many bytes a packed file unpacks to: a gzip file, or an archive's member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_bytes: Option<u64>,
    /// The BLAKE3 of these bytes, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_blake3: Option<String>,
    /// The tool that converted the file. For the source itself, the receipt has this field one level up.
    #[serde(default)]
    tool: String,
    /// The steps of the file's conversion; also one level up for the source itself. Settings without room in the
    /// receipt are `null`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<Step>,
    /// Whether the next file was made of this one and of others. For the sources themselves, the length of the
    /// receipt's list says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    several: bool,
}

impl Origin {
    /// The sources that a receipt's text names, several for a merged file; empty where the text is no receipt or over
    /// 16 MiB.
    #[must_use]
    pub fn of_receipt(text: &str) -> Vec<Self> {
        let lineage = (text.len() <= LONGEST).then(|| parse::<Lineage>(text)).flatten();
        lineage.map_or_else(Vec::new, |lineage| lineage.source.into_iter().chain(lineage.sources).collect())
    }

    fn is_short(&self) -> bool {
        let is_short = |text: &String| text.len() <= LONGEST_TEXT;
        let steps = &self.transforms;
        let texts = [&self.name, &self.blake3, &self.format, &self.dialect, &self.tool];
        texts.into_iter().chain(&self.unpacked_blake3).all(is_short)
            && steps.len() <= MAX_STEPS
            && steps.iter().all(|step| is_short(&step.name))
    }

    /// Whether a step of the origin may have done more than leave tensors out.
    fn has_values_changed(&self) -> bool {
        self.transforms.iter().any(|step| !matches!(step.own(), Some(Own::Select | Own::StripDiff)))
    }

    /// The origin without the texts and the steps that are too long.
    fn shortened(mut self) -> Self {
        let texts = [&mut self.name, &mut self.blake3, &mut self.format, &mut self.dialect, &mut self.tool];
        let texts = texts.into_iter().chain(&mut self.unpacked_blake3);
        texts.filter(|text| text.len() > LONGEST_TEXT).for_each(String::clear);
        if !self.is_short() {
            self.transforms = vec![unknown()];
        }
        self
    }
}

/// A step that stands for others.
fn unknown() -> Step {
    Step::new(UNKNOWN, Value::Null)
}

/// The text of the receipt in a file.
pub(crate) fn receipt_text(checkpoint: &Checkpoint) -> Option<&str> {
    let mut metadata = checkpoint.metadata().iter();
    metadata.find(|(key, _)| key == KEY).map(|(_, text)| &**text)
}

/// The fields of a receipt that say where the tensors came from.
#[derive(Deserialize)]
struct Lineage {
    /// Absent where the tensors came from several files. The history then has the earlier sources of each, one after
    /// the other.
    source: Option<Origin>,
    #[serde(default)]
    sources: Vec<Origin>,
    #[serde(default)]
    tool: String,
    history: Option<Earlier>,
    /// Absent, or `null` where the receipt had no room for the list.
    #[serde(default, deserialize_with = "present")]
    transforms: Option<Value>,
}

/// Reads `null` as `Some(Value::Null)`, where serde's default is `None`.
pub(crate) fn present<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(text).map(Some)
}

/// Earlier sources, from the first on.
#[derive(Default)]
struct Earlier(Vec<Origin>);

impl Earlier {
    fn push(&mut self, origin: Origin) {
        if !origin.is_short() && origin.transforms.is_empty() && !origin.several {
            return;
        }
        if self.0.len() == MAX_EARLIER {
            // A source whose values stayed is missed least.
            let idle = self.0.iter().skip(1).position(|origin| !origin.has_values_changed());
            self.leave_out(idle.map_or(1, |place| place + 1));
        }
        self.0.push(origin.shortened());
    }

    /// Leaves an origin out, but not the facts that it had steps and was merged with others: the origin before gets
    /// these.
    fn leave_out(&mut self, place: usize) {
        let left = self.0.remove(place);
        let before = &mut self.0[place - 1];
        before.several |= left.several;
        if left.has_values_changed() && before.transforms.last().is_none_or(|step| step.name != UNKNOWN) {
            before.transforms.truncate(MAX_STEPS - 1);
            before.transforms.push(unknown());
        }
    }
}

impl<'de> Deserialize<'de> for Earlier {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        reduce_list(text, Self::default(), Self::push)
    }
}

/// The sources that a receipt's text names, the first one first, each with the tool and the transforms that made the
/// next source.
pub(crate) fn lineage_of(text: &str) -> Vec<Origin> {
    work::visit(text.len() as u64, 1);
    let Some(lineage) = parse::<Lineage>(text) else {
        return Vec::new();
    };
    let mut earlier = lineage.history.unwrap_or_default();
    let transforms = match lineage.transforms {
        Some(Value::Null) => vec![unknown()],
        steps => steps.and_then(|steps| serde_json::from_value(steps).ok()).unwrap_or_default(),
    };
    let several = lineage.sources.len() > 1;
    for source in lineage.source.into_iter().chain(lineage.sources) {
        earlier.push(Origin { tool: lineage.tool.clone(), transforms: transforms.clone(), several, ..source });
    }
    earlier.0
}

/// The steps of a lineage, in order, each with whether it was done before files were merged. Nothing says then which
/// of the tensors it was done to.
pub(crate) fn steps_of(lineage: &[Origin]) -> impl Iterator<Item = (&Step, bool)> {
    let merged = lineage.iter().rposition(|origin| origin.several);
    let steps = lineage.iter().enumerate();
    steps.flat_map(move |(place, origin)| origin.transforms.iter().map(move |step| (step, Some(place) <= merged)))
}

/// The histories of several sources, one after the other. A file that several of them were made from by the same steps
/// counts once: its steps were done once to each tensor.
pub(crate) fn histories_of<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<Origin> {
    let (mut seen, mut all) = (HashSet::new(), Earlier::default());
    for origin in texts.flat_map(history_of) {
        let steps = serde_json::to_vec(&origin.transforms).unwrap_or_default();
        if seen.insert((origin.blake3.clone(), blake3::hash(&steps))) {
            all.push(origin);
        }
    }
    all.0
}

/// [`lineage_of`] for a new receipt.
pub(crate) fn history_of(text: &str) -> Vec<Origin> {
    history_from(lineage_of(text))
}

/// A lineage for a new receipt. Long settings stay while there is room, the most recent first; others are cut.
pub(crate) fn history_from(mut history: Vec<Origin>) -> Vec<Origin> {
    let mut room = ALL_SETTINGS;
    for step in history.iter_mut().rev().flat_map(|origin| origin.transforms.iter_mut().rev()) {
        let len = step.settings.to_string().len();
        match room.checked_sub(len).filter(|_| len > LONGEST_SETTINGS) {
            Some(left) => room = left,
            None if len > LONGEST_SETTINGS => cut(&mut step.settings),
            None => {}
        }
    }
    history
}

/// Replaces the long lists of a step's settings by `null`, or all settings if the rest is still too long.
fn cut(settings: &mut Value) {
    long_lists(settings).for_each(|(_, list)| *list = Value::Null);
    if settings.to_string().len() > LONGEST_SETTINGS {
        *settings = Value::Null;
    }
}

/// The lists in a step's settings that a receipt may leave out, with the length of each text.
pub(crate) fn long_lists(settings: &mut Value) -> impl Iterator<Item = (usize, &mut Value)> {
    let fields = settings.as_object_mut().into_iter().flatten().map(|(_, value)| value);
    let lists = fields.filter(|value| value.is_array() || value.is_object());
    lists.map(|list| (list.to_string().len(), list)).filter(|(len, _)| *len > LONGEST_SETTINGS / 2)
}

/// Marks the last file of a history as merged with others, for a receipt without room for the list of sources.
pub(crate) fn mark_merged(history: &mut Value) {
    if let Some(last) = history.as_array_mut().and_then(|origins| origins.last_mut()) {
        last["several"] = Value::Bool(true);
    }
}

/// Folds a list item by item; only the state that `take` changes stays in memory.
pub(crate) fn reduce_list<'de, D: Deserializer<'de>, T: Deserialize<'de>, R>(
    text: D,
    init: R,
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
    text.deserialize_seq(Items(init, take, PhantomData))
}

/// Parses the fields of a receipt that `T` has; serde skips the others.
pub(crate) fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    serde_json::from_str(text).ok()
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
        parse(&text).expect("a receipt")
    }

    #[test]
    fn a_history_keeps_its_first_source_and_the_last_ones() {
        let all: Vec<String> = (0..1000).map(|i| origin(&i.to_string())).collect();
        let kept = lineage(&all).history.expect("a history").0;
        let names: Vec<&str> = kept.iter().map(|origin| &*origin.name).collect();
        assert_eq!((names.len(), names[0]), (64, "0"));
        assert_eq!((names[1], names[63]), ("937", "999"));
    }

    fn history_with(origin: &Origin, times: usize) -> String {
        let list = serde_json::to_string(&vec![origin; times]).expect("JSON");
        format!(r#"{{"source":{},"history":{list}}}"#, self::origin("s"))
    }

    #[test]
    fn steps_of_an_origin_without_room_are_unknown() {
        let mut of_step: Origin = serde_json::from_str(&origin("a")).expect("an origin");
        of_step.transforms = vec![Step::new("rgb", Value::Null)];
        let has_unknown = |text: &str| {
            let lineage = lineage_of(text);
            steps_of(&lineage).any(|(step, _)| step.name == UNKNOWN)
        };
        assert!(!has_unknown(&history_with(&of_step, MAX_EARLIER - 1)));
        assert!(has_unknown(&history_with(&of_step, MAX_EARLIER)));
        // Many files that each have the step, as a merge of these has them.
        assert!(has_unknown(&history_with(&of_step, 1000)));
        let lineage = lineage_of(&history_with(&of_step, 1000));
        assert_eq!((lineage.len(), lineage[0].transforms.len()), (MAX_EARLIER, 2));
        // Parts of a file, each with its selection, are merged again: nothing is unknown.
        of_step.transforms = vec![Step::new("select", Value::Null)];
        assert!(!has_unknown(&history_with(&of_step, 1000)));
        of_step.transforms = vec![Step::new("rgb", Value::Null)];
        // Too many steps, and a text that is too long, are no reason to take them for undone.
        of_step.name = "n".repeat(LONGEST_TEXT + 1);
        let lineage = lineage_of(&history_with(&of_step, 1));
        assert_eq!((&*lineage[0].name, &*lineage[0].transforms[0].name), ("", "rgb"));
        of_step.transforms = vec![of_step.transforms[0].clone(); MAX_STEPS + 1];
        assert!(has_unknown(&history_with(&of_step, 1)));
    }

    #[test]
    fn a_merge_is_known_through_many_later_conversions() {
        let mut first: Origin = serde_json::from_str(&origin("first")).expect("an origin");
        first.transforms = vec![Step::new("rgb", Value::Null)];
        let sources = vec![origin("part"); 100].join(",");
        let first = serde_json::to_string(&first).expect("JSON");
        let mut text = format!(r#"{{"sources":[{sources}],"tool":"t","history":[{first}]}}"#);
        for _ in 0..100 {
            let history = history_of(&text);
            let marks: Vec<bool> = steps_of(&history).map(|(_, is_before_merge)| is_before_merge).collect();
            assert_eq!(marks, [true]);
            let history = serde_json::to_string(&history).expect("JSON");
            text = format!(r#"{{"source":{},"history":{history}}}"#, origin("s"));
        }
        let later = text.replacen(r#""source""#, r#""transforms":[{"name":"rgb"}],"source""#, 1);
        assert_eq!(steps_of(&lineage_of(&later)).map(|(_, is)| is).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_long_text_is_not_handed_on() {
        let kept = lineage(&[origin(&"n".repeat(1025)), origin("b")]).history.expect("a history").0;
        assert_eq!(kept.iter().map(|origin| &*origin.name).collect::<Vec<_>>(), ["b"]);
        let long = format!("{{\"source\":{}}}{}", origin("s"), " ".repeat(16 << 20));
        assert!(Origin::of_receipt(&long).is_empty());
        assert_eq!(Origin::of_receipt(long.trim_end()).len(), 1);
    }
}
