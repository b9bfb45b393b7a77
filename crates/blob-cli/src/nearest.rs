//! The name that a mistyped one probably means.

/// The name most similar to `wanted`, if one is similar enough to be a suggestion.
pub(crate) fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // clap's threshold for suggestions is 0.7.
    const MIN_SIMILARITY: f64 = 0.8;
    // More names, and longer ones, take too long to compare.
    const MAX_NAMES: usize = 10_000;
    const LONGEST: usize = 256;
    if wanted.len() > LONGEST {
        return None;
    }
    names
        .take(MAX_NAMES)
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (strsim::jaro(wanted, name), name))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        // Of several equally similar names, the first one.
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To compare a glob of 15,000 characters with 10,000 names took a minute, not optimised.
    #[test]
    fn a_long_name_is_compared_with_none() {
        let names = ["a".repeat(256), "b".to_owned()];
        let of = |len: usize| nearest(&"a".repeat(len), names.iter().map(String::as_str)).map(str::len);
        assert_eq!((of(255), of(256), of(257)), (Some(256), Some(256), None));
    }
}
