//! What the command line asks for. Pure: it reads words and prints nothing.

use anyhow::{Context, Result, bail, ensure};

/// Fewer pairs than this make no median worth printing.
const LEAST_ROUNDS: usize = 3;

/// The choices of one run.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// Payload of a case; a few cases of fixed shape have their own.
    pub(crate) mib: usize,
    /// Only the cases whose names contain this.
    pub(crate) only: String,
    /// Pairs of measurements.
    pub(crate) rounds: usize,
    /// Lines for a program in place of a table.
    pub(crate) tsv: bool,
    /// Print the names of the cases and measure nothing.
    pub(crate) list: bool,
}

impl Options {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    ///
    /// An unknown word, a missing value, a value out of range.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options { mib: 256, only: String::new(), rounds: 9, tsv: false, list: false };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} what?"));
            match word.as_str() {
                "--mib" => options.mib = number(&word, &value()?, 1)?,
                "--only" => options.only = value()?,
                "--rounds" => options.rounds = number(&word, &value()?, LEAST_ROUNDS)?,
                "--tsv" => options.tsv = true,
                "--list" => options.list = true,
                _ => bail!("unknown: {word:?}; known: --mib N, --only TEXT, --rounds N, --tsv, --list"),
            }
        }
        Ok(options)
    }
}

fn number(name: &str, text: &str, least: usize) -> Result<usize> {
    let number: usize = text.parse().with_context(|| format!("{name} {text}"))?;
    ensure!(number >= least, "{name} {number}: at least {least}");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn every_choice_is_read() {
        let options = parse("--mib 8 --only merge --rounds 11 --tsv --list").unwrap();
        let expected = Options { mib: 8, only: "merge".to_string(), rounds: 11, tsv: true, list: true };
        assert_eq!(options, expected);
        assert_eq!(parse("").unwrap().mib, 256);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (line, named) in [
            ("--rounds 2", "at least 3"),
            ("--mib 0", "at least 1"),
            ("--mib much", "much"),
            ("--only", "--only"),
            ("--fast", "--fast"),
        ] {
            let message = format!("{:#}", parse(line).unwrap_err());
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
