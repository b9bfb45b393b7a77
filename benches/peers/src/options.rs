//! Parses the command line. Pure.

use anyhow::{Context, Result, bail, ensure};

/// The minimum number of pairs; with fewer, the median says little.
const LEAST_ROUNDS: usize = 3;

/// The options of one run.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// The payload of a case in MiB. A few cases have fixed shapes instead.
    pub(crate) mib: usize,
    /// Measure only cases whose names contain this.
    pub(crate) only: String,
    /// The number of paired measurements.
    pub(crate) rounds: usize,
    /// Print tab-separated fields instead of a table.
    pub(crate) tsv: bool,
    /// Print the names of the cases and measure nothing.
    pub(crate) list: bool,
}

impl Options {
    /// Parses the words after the program's name.
    ///
    /// # Errors
    ///
    /// A word is unknown, or a value is missing or out of range.
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
    fn every_option_is_parsed() {
        let options = parse("--mib 8 --only merge --rounds 11 --tsv --list").unwrap();
        let expected = Options { mib: 8, only: "merge".to_string(), rounds: 11, tsv: true, list: true };
        assert_eq!(options, expected);
        assert_eq!(parse("").unwrap().mib, 256);
    }

    #[test]
    fn errors_name_the_option_or_the_value() {
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
