//! The limits of one launch, and how a test lowers these. Pure.

use crate::device::params::PARTS;

/// The limits of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Parts in a table, 1 to [`PARTS`].
    pub(crate) parts: usize,
    /// Words, elements or pieces, a multiple of 16.
    pub(crate) words: usize,
}

/// 2³⁰ words: every index fits in 32 bits, and every grid is below CUDA's 2³¹ blocks.
pub(crate) const LIMITS: Limits = Limits { parts: PARTS, words: 1 << 30 };

impl Limits {
    /// The usual ones, or less, as `WORDS,PARTS` says where possible.
    pub(crate) fn lowered(text: &str) -> Limits {
        let numbers = text.split_once(',').and_then(|(words, parts)| Some((words.parse().ok()?, parts.parse().ok()?)));
        match numbers {
            Some((words @ 16.., parts @ 1..=PARTS)) if words % 16 == 0 && words < LIMITS.words => {
                Limits { parts, words }
            }
            _ => LIMITS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let lowered = |text| Limits::lowered(text).words;
        assert_eq!(lowered("48,2"), 48);
        assert_eq!(Limits::lowered("1024,3").parts, 3);
        for nonsense in ["", "48", "40,2", "0,2", "48,0", "48,193", "1073741840,2", "a,b"] {
            assert_eq!(lowered(nonsense), LIMITS.words, "{nonsense}");
        }
    }
}
