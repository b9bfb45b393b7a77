//! The name that a mistyped one probably means.

/// The name most similar to `wanted`, if one is similar enough to be a suggestion.
pub(crate) fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // clap's threshold for suggestions is 0.7.
    const MIN_SIMILARITY: f64 = 0.8;
    // More names take too long to compare.
    const MAX_NAMES: usize = 10_000;
    names
        .take(MAX_NAMES)
        .filter(|name| name.len() <= 256)
        .map(|name| (strsim::jaro(wanted, name), name))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        // Of several equally similar names, the first one.
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, name)| name)
}
