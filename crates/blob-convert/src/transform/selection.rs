//! Selects tensors of a file by names, globs, regular expressions, places, layers, dtypes, shapes, exclusions.
//!
//! Every command uses the same type, and the receipt of a conversion stores the selection as a setting. A receipt is
//! untrusted, so the number of patterns and the size of each compiled pattern are bounded. The options of commands are
//! read elsewhere.

mod glob;

use std::fmt;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Group, TensorName};
use regex::bytes::{Regex, RegexBuilder};

use crate::layers::layer;

/// The most patterns, and the most globs and regular expressions among the patterns. Each of the latter is tried on
/// every name.
const MAX_PATTERNS: usize = 1024;
const MAX_COMPILED: usize = 64;

/// The memory of one compiled pattern, in bytes.
const MAX_REGEX: usize = 1 << 20;

/// Some of the tensors of a file; the default is all tensors.
///
/// A pattern is the name of a tensor, and then takes that tensor alone, without the diff; else the place of a tensor
/// (`#3`), or a range of places (`#3-5`, `#3-`); else the name of a sparse array, or of an MXNet array without `arg:`
/// or `aux:`; else the name of a layer or of a group of layers (`conv1`, `features.0`); else a glob, in which `*`
/// matches `/` too.
///
/// As a [`Transform`](super::Transform), a selection keeps these tensors of the source, at any position among the
/// transforms. The receipt stores the selection as `select`.
///
/// ```
/// use blob_convert::Selection;
/// use blob_io::Checkpoint;
///
/// let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
/// let source = Checkpoint::from_bytes("two.binaryproto", &file[..])?;
/// assert_eq!(Selection::matching(["@*"]).places(&source)?, [0]);
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Takes the tensors that match any of these patterns. Without a pattern, takes all.
    pub patterns: Vec<String>,
    /// Whether each pattern, also in `exclude`, is a regular expression that matches anywhere in a name.
    pub regex: bool,
    /// Leaves out the tensors that match any of these patterns.
    pub exclude: Vec<String>,
    /// Takes only tensors of these dtypes. Without a dtype, takes every dtype.
    pub dtypes: Vec<DType>,
    /// Takes only tensors of these shapes. Without a shape, takes every shape.
    pub shapes: Vec<Dims>,
}

/// A shape in which an extent may be anything: `*×3×*×*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims(Vec<Option<usize>>);

/// The tensors that a selection takes from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selected {
    /// The places in [`Checkpoint::entries`], in the order of the file.
    pub places: Vec<usize>,
    /// The patterns, exclusions among them, that match no tensor.
    pub unmatched: Vec<String>,
}

/// One pattern, ready to be tried on the tensors.
enum Pattern<'p> {
    Tensor(&'p str),
    Array(&'p str),
    Layer(&'p str),
    Compiled(Box<Regex>),
}

impl Selection {
    /// The tensors that match any of these patterns.
    pub fn matching<P: Into<String>>(patterns: impl IntoIterator<Item = P>) -> Self {
        Self { patterns: patterns.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The tensors at these places of a file, in ascending order: by their names where a tensor is called like a place.
    pub(crate) fn of_places(checkpoint: &Checkpoint, places: &[usize]) -> Self {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for place in places {
            match runs.last_mut().filter(|(_, last)| *last + 1 == *place) {
                Some((_, last)) => *last = *place,
                None => runs.push((*place, *place)),
            }
        }
        let pattern = |(first, last)| if first == last { format!("#{first}") } else { format!("#{first}-{last}") };
        let patterns: Vec<String> = runs.into_iter().map(pattern).collect();
        if patterns.iter().any(|pattern| checkpoint.entry(pattern).is_some()) {
            return Self::matching(places.iter().map(|place| checkpoint.entries()[*place].name()));
        }
        Self::matching(patterns)
    }

    /// Whether the selection takes every tensor of every file.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self { regex: self.regex, ..Self::default() }
    }

    /// The tensors of a file that the selection takes, and the patterns that match no tensor.
    ///
    /// # Errors
    /// The problem with a pattern, in words.
    pub fn of(&self, checkpoint: &Checkpoint) -> Result<Selected, String> {
        let entries = checkpoint.entries();
        let mut unmatched = Vec::new();
        let mut matching = |patterns: &[String]| -> Result<Vec<bool>, String> {
            let (places, others): (Vec<&String>, Vec<&String>) =
                patterns.iter().partition(|text| self.places_of(text, checkpoint).is_some());
            let ranges = places.iter().filter_map(|text| Some((*text, self.places_of(text, checkpoint)?)));
            let (mut found, wrong) = at_places(ranges, entries.len());
            unmatched.extend(wrong);
            for (text, pattern) in others.iter().zip(self.compiled(&others, checkpoint)?) {
                let mut any = false;
                for (place, entry) in entries.iter().enumerate() {
                    if pattern.takes(entry) {
                        (found[place], any) = (true, true);
                    }
                }
                if !any {
                    unmatched.push((*text).clone());
                }
            }
            Ok(found)
        };
        let (named, excluded) = (matching(&self.patterns)?, matching(&self.exclude)?);
        let places = (0..entries.len()).filter(|place| {
            (self.patterns.is_empty() || named[*place]) && !excluded[*place] && self.fits(&entries[*place])
        });
        Ok(Selected { places: places.collect(), unmatched })
    }

    /// The places of the tensors that the selection takes: at least one, unless the selection takes all.
    ///
    /// # Errors
    /// [`Error::Request`] for a pattern that is wrong or matches no tensor, and for a selection that takes no tensor.
    pub fn places(&self, checkpoint: &Checkpoint) -> Result<Vec<usize>, Error> {
        let refuse = |message: String| Error::Request { file: checkpoint.name().to_owned(), message };
        let Selected { places, unmatched } = self.of(checkpoint).map_err(refuse)?;
        if let Some(pattern) = unmatched.first() {
            return Err(refuse(format!("no tensor matches {pattern:?}")));
        }
        if places.is_empty() && !self.is_all() {
            return Err(refuse(format!("no tensor is {self}")));
        }
        Ok(places)
    }

    /// Whether a tensor has one of the dtypes and one of the shapes.
    fn fits(&self, entry: &Entry) -> bool {
        let Some(dtype) = entry.dtype() else { return self.dtypes.is_empty() && self.shapes.is_empty() };
        (self.dtypes.is_empty() || self.dtypes.contains(&dtype))
            && (self.shapes.is_empty() || self.shapes.iter().any(|dims| dims.fits(entry.shape())))
    }

    /// The places that a pattern names, unless a tensor has that name.
    fn places_of(&self, text: &str, checkpoint: &Checkpoint) -> Option<(usize, usize)> {
        let places = text.strip_prefix('#').filter(|_| !self.regex).and_then(range)?;
        checkpoint.entry(text).is_none().then_some(places)
    }

    fn compiled<'p>(&self, patterns: &[&'p String], checkpoint: &Checkpoint) -> Result<Vec<Pattern<'p>>, String> {
        if patterns.len() > MAX_PATTERNS {
            return Err(format!("{} patterns; at most {MAX_PATTERNS} are taken", patterns.len()));
        }
        let compiled = patterns.iter().map(|pattern| {
            if self.regex { regex(pattern, pattern, "regular expression") } else { Pattern::of(pattern, checkpoint) }
        });
        let compiled: Vec<Pattern<'_>> = compiled.collect::<Result<_, _>>()?;
        let count = compiled.iter().filter(|pattern| matches!(pattern, Pattern::Compiled(_))).count();
        if count > MAX_COMPILED {
            Err(format!("{count} globs or regular expressions; at most {MAX_COMPILED} are taken"))
        } else {
            Ok(compiled)
        }
    }
}

/// Writes the criteria in words: `of f16, other than "fc*"`.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |texts: &[String]| texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" or ");
        let mut asked = Vec::new();
        if !self.patterns.is_empty() {
            asked.push(quoted(&self.patterns));
        }
        if !self.dtypes.is_empty() {
            let names: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
            asked.push(format!("of {}", names.join(" or ")));
        }
        if !self.shapes.is_empty() {
            let shapes: Vec<String> = self.shapes.iter().map(ToString::to_string).collect();
            asked.push(format!("{} in shape", shapes.join(" or ")));
        }
        if !self.exclude.is_empty() {
            asked.push(format!("other than {}", quoted(&self.exclude)));
        }
        f.write_str(&asked.join(", "))
    }
}

impl<'p> Pattern<'p> {
    fn of(text: &'p str, checkpoint: &Checkpoint) -> Result<Self, String> {
        if checkpoint.entry(text).is_some() {
            return Ok(Self::Tensor(text));
        }
        for by_name in [Self::Array(text), Self::Layer(text)] {
            if checkpoint.entries().iter().any(|entry| by_name.takes(entry)) {
                return Ok(by_name);
            }
        }
        if !text.contains(['*', '?', '[', '{', '\\']) {
            return Ok(Self::Layer(text));
        }
        let expression = glob::expression(text).map_err(|why| format!("{text:?} is no glob: {why}"))?;
        regex(&expression, text, "glob")
    }

    fn takes(&self, entry: &Entry) -> bool {
        match self {
            Self::Tensor(wanted) => entry.name() == *wanted,
            Self::Array(wanted) => is_called(entry, wanted),
            Self::Layer(wanted) => is_in(entry, wanted),
            Self::Compiled(regex) => regex.is_match(entry.name().as_bytes()),
        }
    }
}

/// Whether an entry is an MXNet array of this name without the prefix, or a part of a sparse array of this name.
fn is_called(entry: &Entry, wanted: &str) -> bool {
    let is_whole = |name: &str| name == wanted || Group::split(name).1 == wanted;
    is_whole(entry.name()) || entry.sparse().is_some_and(|sparse| is_whole(&sparse.name))
}

/// Whether a tensor lies in a layer or a group of layers of this name.
fn is_in(entry: &Entry, wanted: &str) -> bool {
    let name = entry.name();
    let whole = entry.sparse().map_or(name, |sparse| &sparse.name);
    let rest = name.strip_prefix(wanted);
    let is_below = rest.is_some_and(|rest| rest.starts_with(['/', '.']));
    !wanted.is_empty() && (layer(whole) == wanted || is_below && TensorName::of(name).diffed() != Some(wanted))
}

/// Which of `count` places the ranges have, and the patterns of ranges that have none. Takes as long as both lists: a
/// receipt may have a range for every other tensor.
fn at_places<'p>(ranges: impl Iterator<Item = (&'p String, (usize, usize))>, count: usize) -> (Vec<bool>, Vec<String>) {
    let (mut steps, mut wrong) = (vec![0_isize; count + 1], Vec::new());
    for (text, (first, last)) in ranges {
        if first > last || first >= count {
            wrong.push(text.clone());
            continue;
        }
        steps[first] += 1;
        steps[last.min(count - 1) + 1] -= 1;
    }
    let sums = steps[..count].iter().scan(0, |sum, step| {
        *sum += step;
        Some(*sum > 0)
    });
    (sums.collect(), wrong)
}

/// `3`, `3-5` and `3-`, as the first and the last place.
fn range(text: &str) -> Option<(usize, usize)> {
    match text.split_once('-') {
        None => text.parse().ok().map(|place| (place, place)),
        Some((first, "")) => Some((first.parse().ok()?, usize::MAX)),
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
    }
}

/// Compiles an expression; the error names the text that the user wrote.
fn regex<'p>(expression: &str, text: &str, kind: &str) -> Result<Pattern<'p>, String> {
    let is_glob = kind == "glob";
    let compiled = RegexBuilder::new(expression).size_limit(MAX_REGEX).dot_matches_new_line(is_glob).build();
    compiled.map(|regex| Pattern::Compiled(Box::new(regex))).map_err(|e| {
        // The last line of the message gives the reason; the lines before draw the place.
        let message = e.to_string();
        let why = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("{text:?} is no {kind}: {why}")
    })
}

impl Dims {
    /// Reads extents between `x` or `×`: `64x3x7x7`, with `*` for any extent; `scalar` has none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "scalar" {
            return Some(Self(Vec::new()));
        }
        let extents = text.split(['x', '×']);
        let extents = extents.map(|text| if text == "*" { Some(None) } else { text.parse().ok().map(Some) });
        extents.collect::<Option<_>>().map(Self)
    }

    fn fits(&self, shape: &Shape) -> bool {
        let dims = shape.dims();
        dims.len() == self.0.len()
            && self.0.iter().zip(dims).all(|(wanted, extent)| wanted.is_none_or(|w| w == *extent))
    }
}

/// `64x*x7x7`
impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents = self.0.iter().map(|extent| extent.map_or("*".to_owned(), |extent| extent.to_string()));
        let extents: Vec<String> = extents.collect();
        f.write_str(if extents.is_empty() { "scalar" } else { "" })?;
        f.write_str(&extents.join("x"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transform::Transform;

    /// A safetensors file of u8 and f16 vectors of three values, with these names.
    fn file(names: &[&str]) -> Checkpoint {
        let mut header = json!({});
        for (place, name) in names.iter().enumerate() {
            let (dtype, len) = if place % 2 == 0 { ("U8", 3) } else { ("F16", 6) };
            let at: usize = (0..place).map(|before| if before % 2 == 0 { 3 } else { 6 }).sum();
            header[*name] = json!({"dtype": dtype, "shape": [3], "data_offsets": [at, at + len]});
        }
        let header = header.to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend(vec![0; 6 * names.len()].iter().take((0..names.len()).map(|p| 3 + 3 * (p % 2)).sum()));
        Checkpoint::from_bytes("x.safetensors", bytes).unwrap()
    }

    fn taken(selection: &Selection, file: &Checkpoint) -> Result<Vec<String>, String> {
        let places = selection.places(file).map_err(|e| e.to_string())?;
        Ok(places.into_iter().map(|place| file.entries()[place].name().to_owned()).collect())
    }

    fn patterns(patterns: &[&str]) -> Selection {
        Selection::matching(patterns.iter().copied())
    }

    #[test]
    fn a_pattern_is_a_name_a_place_a_layer_or_a_glob() {
        // The header is sorted, as serde_json writes it.
        let names = ["#7", "a*b", "arg:fc_weight", "axb", "conv1/0", "conv1/1", "conv10/0", "l.0.w", "l.1.w"];
        let file = file(&names);
        for (pattern, expected) in [
            ("conv1/0", &["conv1/0"][..]),
            ("conv1", &["conv1/0", "conv1/1"]),
            ("conv1*", &["conv1/0", "conv1/1", "conv10/0"]),
            ("l", &["l.0.w", "l.1.w"]),
            ("l.0", &["l.0.w"]),
            ("fc_weight", &["arg:fc_weight"]),
            ("fc", &["arg:fc_weight"]),
            // The name of a tensor goes before a glob or a place.
            ("a*b", &["a*b"]),
            ("a?b", &["a*b", "axb"]),
            ("#7", &["#7"]),
            ("#0", &["#7"]),
            ("#4-5", &["conv1/0", "conv1/1"]),
            ("#7-", &["l.0.w", "l.1.w"]),
            ("{axb,l.0.w}", &["axb", "l.0.w"]),
        ] {
            assert_eq!(taken(&patterns(&[pattern]), &file).unwrap(), expected, "{pattern}");
        }
        for (pattern, expected) in [
            ("conv2", "no tensor matches \"conv2\""),
            ("#9", "no tensor matches \"#9\""),
            ("con", "no tensor matches \"con\""),
            ("[", "is no glob"),
        ] {
            assert!(taken(&patterns(&[pattern]), &file).unwrap_err().contains(expected), "{pattern}");
        }
    }

    #[test]
    fn the_name_of_a_tensor_is_not_also_that_of_its_layer() {
        let names = ["arg:k", "arg:k_weight", "arg:q", "aux:k", "q", "q.a.b", "q.diff", "q.x", "q/0", "q_bias"];
        let file = file(&names);
        for (pattern, expected) in [
            ("q", &["q"][..]),
            ("arg:q", &["arg:q"]),
            ("q.a", &["q.a.b"]),
            ("q/0", &["q/0"]),
            ("q*", &["q", "q.a.b", "q.diff", "q.x", "q/0", "q_bias"]),
            // An array of either prefix, and not the tensors of the layer.
            ("k", &["arg:k", "aux:k"]),
        ] {
            assert_eq!(taken(&patterns(&[pattern]), &file).unwrap(), expected, "{pattern}");
        }
        let all_but = Selection { exclude: vec!["q".to_owned()], ..patterns(&["q*"]) };
        assert_eq!(taken(&all_but, &file).unwrap(), ["q.a.b", "q.diff", "q.x", "q/0", "q_bias"]);
    }

    #[test]
    fn tensors_are_excluded_and_chosen_by_dtype_and_shape() {
        let file = file(&["a/0", "a/1", "b/0", "b/1", "c/0"]);
        let all_but = Selection { exclude: vec!["b".to_owned()], ..Selection::default() };
        assert_eq!(taken(&all_but, &file).unwrap(), ["a/0", "a/1", "c/0"]);
        let halves = Selection { dtypes: vec![DType::F16], ..Selection::default() };
        assert_eq!(taken(&halves, &file).unwrap(), ["a/1", "b/1"]);
        assert_eq!(taken(&Selection { exclude: vec!["b".to_owned()], ..halves.clone() }, &file).unwrap(), ["a/1"]);
        let of = |text: &str| Selection { shapes: vec![Dims::parse(text).unwrap()], ..Selection::default() };
        assert_eq!(taken(&of("3"), &file).unwrap().len(), 5);
        assert_eq!(taken(&of("*"), &file).unwrap().len(), 5);
        for text in ["4", "*x*", "scalar"] {
            assert!(taken(&of(text), &file).unwrap_err().contains("in shape"), "{text}");
        }
        let typo = Selection { exclude: vec!["d".to_owned()], ..Selection::default() };
        assert!(taken(&typo, &file).unwrap_err().contains("matches \"d\""));
        let by_regex = Selection { regex: true, ..patterns(&["^[ab]/0$"]) };
        assert_eq!(taken(&by_regex, &file).unwrap(), ["a/0", "b/0"]);
    }

    #[test]
    fn a_receipt_gives_the_same_selection_again() {
        let selection = Selection {
            regex: true,
            exclude: vec!["fc".to_owned()],
            dtypes: vec![DType::F16, DType::BF16],
            shapes: vec![Dims::parse("*x3").unwrap(), Dims::parse("scalar").unwrap()],
            ..patterns(&["a", "b"])
        };
        assert_eq!(Selection::read(&selection.settings()), Some(selection));
        assert_eq!(Selection::read(&json!({})), Some(Selection::default()));
        for wrong in [json!({"patterns": 3}), json!({"dtypes": ["f15"]}), json!({"shapes": ["3y"]})] {
            assert_eq!(Selection::read(&wrong), None);
        }
    }

    #[test]
    fn places_are_not_bounded_as_patterns_are() {
        let names: Vec<String> = (0..5000).map(|i| format!("t{i:04}")).collect();
        let file = file(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let odd: Vec<usize> = (0..5000).filter(|place| place % 2 == 1).collect();
        let selection = Selection::of_places(&file, &odd);
        assert_eq!((selection.patterns.len(), selection.places(&file).unwrap()), (2500, odd));
        let overlapping = patterns(&["#1-3", "#2-", "#9-8"]);
        assert!(taken(&overlapping, &file).unwrap_err().contains("\"#9-8\""));
        let named = Selection::matching((0..=MAX_PATTERNS).map(|i| format!("t{i:04}")));
        assert!(taken(&named, &file).unwrap_err().contains("at most 1024"));
    }

    #[test]
    fn patterns_are_bounded() {
        let file = file(&["a"]);
        let many = Selection { patterns: vec!["*".to_owned(); MAX_COMPILED + 1], ..Selection::default() };
        assert!(taken(&many, &file).unwrap_err().contains("at most 64"));
        let large = Selection { regex: true, ..patterns(&[r"(\w{1000}){1000}"]) };
        assert!(taken(&large, &file).unwrap_err().contains("is no regular expression"));
    }
}
