//! Words that every sentence about many things needs: numbers with commas, names in quotes, the first items of a list.
//!
//! A hostile file makes any list and any name long, so both are cut. Knows no tensor and no format.

/// A name in a zip may have 65,000 bytes: at most this many characters of a name are shown.
pub(crate) const LONGEST_NAME: usize = 128;

/// An error lists at most this many problems.
pub const NAMED_PROBLEMS: usize = 20;

/// An exact number with commas: `1,724,320`.
#[must_use]
pub fn grouped(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", grouped(n / 1000), n % 1000),
    }
}

/// A count with a noun, in the plural unless the count is 1: `1 tensor`, `2 tensors`.
#[must_use]
pub fn plural(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(n))
}

/// A name in quotes, as a message shows it: the first characters of a long one.
pub fn quoted(name: &str) -> String {
    let (shown, dots) = cut(name);
    format!("{shown:?}{dots}")
}

/// A name without quotes, as a list of files shows it: the first characters of a long one.
pub(crate) fn shown(name: &str) -> String {
    let (shown, dots) = cut(name);
    format!("{shown}{dots}")
}

fn cut(name: &str) -> (&str, &'static str) {
    name.char_indices().nth(LONGEST_NAME).map_or((name, ""), |(end, _)| (&name[..end], "…"))
}

/// The first `most` names in quotes, and the number of the others: `"a", "b" and 3 more`.
pub fn listed(most: usize, names: &[impl AsRef<str>]) -> String {
    let named: Vec<String> = names.iter().take(most).map(|name| quoted(name.as_ref())).collect();
    named.join(", ") + &and_more(names.len() - named.len())
}

/// The first `most` of some words, and the number of the others.
pub fn joined(most: usize, words: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = words.iter().take(most).map(AsRef::as_ref).collect();
    first.join(", ") + &and_more(words.len() - first.len())
}

/// The end of a list that leaves out `more` items.
pub fn and_more(more: usize) -> String {
    more_line(more as u64).map_or_else(String::new, |more| format!(" {more}"))
}

/// The last line of a list that leaves out `more` items: `and 3 more`; `None` where none is left out.
pub fn more_line(more: u64) -> Option<String> {
    (more > 0).then(|| format!("and {} more", grouped(more)))
}

/// A list of problems, of which the first [`NAMED_PROBLEMS`] are named.
pub fn listed_problems(problems: Vec<String>) -> String {
    first_of(NAMED_PROBLEMS, problems)
}

/// The first `most` of some sentences, and the number of the others.
pub fn first_of(most: usize, mut sentences: Vec<String>) -> String {
    let more = sentences.len().saturating_sub(most);
    sentences.truncate(most);
    sentences.join("; ") + if more == 0 { "" } else { ";" } + &and_more(more)
}

/// At most `MOST` things, and how many there were.
#[derive(Debug)]
pub struct Listed<T, const MOST: usize> {
    /// The first things.
    pub first: Vec<T>,
    /// The number of all.
    pub count: u64,
}

impl<T, const MOST: usize> Default for Listed<T, MOST> {
    fn default() -> Self {
        Self { first: Vec::new(), count: 0 }
    }
}

impl<T, const MOST: usize> Listed<T, MOST> {
    /// Counts a thing, and keeps the thing if among the first.
    pub fn push(&mut self, thing: impl FnOnce() -> T) {
        self.count += 1;
        if self.first.len() < MOST {
            self.first.push(thing());
        }
    }

    /// The number of things that are not among the first.
    pub fn more(&self) -> u64 {
        self.count - self.first.len() as u64
    }
}

impl<const MOST: usize> Listed<String, MOST> {
    /// The first words, and the number of the others: `a, b and 3 more`.
    pub fn joined(&self) -> String {
        self.first.join(", ") + &and_more(self.more() as usize)
    }
}

impl<T, const MOST: usize> FromIterator<T> for Listed<T, MOST> {
    fn from_iter<I: IntoIterator<Item = T>>(things: I) -> Self {
        let mut listed = Self::default();
        things.into_iter().for_each(|thing| listed.push(|| thing));
        listed
    }
}
