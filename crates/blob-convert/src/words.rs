//! Words that every sentence about tensors needs: names in quotes, the number of items that a list leaves out.

const LONGEST_NAME: usize = 128;

/// An error lists at most this many problems.
pub(crate) const NAMED_PROBLEMS: usize = 20;

/// The first `most` names in quotes, and the number of the others: `"a", "b" and 3 more`.
pub(crate) fn listed(most: usize, names: &[impl AsRef<str>]) -> String {
    let named: Vec<String> = names.iter().take(most).map(|name| quoted(name.as_ref())).collect();
    named.join(", ") + &and_more(names.len() - named.len())
}

/// The first `most` of some words, and the number of the others.
pub(crate) fn joined(most: usize, words: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = words.iter().take(most).map(AsRef::as_ref).collect();
    first.join(", ") + &and_more(words.len() - first.len())
}

/// The end of a list that leaves out `more` items.
pub(crate) fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" and {more} more") }
}

/// A name in quotes, as a message shows it: the first characters of a long one.
pub(crate) fn quoted(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{:?}…", &name[..end]),
        None => format!("{name:?}"),
    }
}

/// A list of problems, of which the first [`NAMED_PROBLEMS`] are named.
pub(crate) fn listed_problems(problems: Vec<String>) -> String {
    first_of(NAMED_PROBLEMS, problems)
}

/// A list of problems, of which the first `max` are named.
pub(crate) fn first_of(max: usize, mut problems: Vec<String>) -> String {
    let more = match problems.len().saturating_sub(max) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    problems.truncate(max);
    format!("{}{more}", problems.join("; "))
}
