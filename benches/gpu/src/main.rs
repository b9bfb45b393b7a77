//! Runs every test and measurement that needs a GPU, in at most ten minutes: `./blob-gpu [FILE]`, built by `cargo xtask
//! gpu`.
//!
//! `--only PART` prints only the times of the cases with this part in their names, to try a kernel.
//! Each phase is a process of its own, so that a lost context ends no other phase. All output becomes one page.
//! Without a GPU the page says that nothing was run. The peers need Python and the file `gpu.py` beside the program;
//! without them they are left out.

mod bench;
mod cases;
mod checks;
mod child;
mod driver;
mod files;
#[path = "../../../tests/cuda/operations.rs"]
mod operations;
mod phases;
mod report;
#[allow(dead_code)] // uses only the machine's name and the median
#[path = "../../table.rs"]
mod table;
mod transfers;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// The extent of the measurements.
pub(crate) struct Sizes {
    /// The minimum bytes of a tensor.
    pub(crate) bytes: usize,
    pub(crate) rounds: usize,
    /// The time before measuring starts, because a GPU that was idle is slow at first.
    pub(crate) warm_up: Duration,
    /// The runs between two waits.
    pub(crate) batch: usize,
}

const FULL: Sizes = Sizes { bytes: 1 << 30, rounds: 7, warm_up: Duration::from_millis(300), batch: 10 };

/// For tests of the program itself, with a driver that interprets the kernels.
const TINY: Sizes = Sizes { bytes: 1 << 14, rounds: 1, warm_up: Duration::ZERO, batch: 1 };

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (is_tiny, words) = match words[..] {
        ["--tiny", ref rest @ ..] => (true, rest),
        ref all => (false, all),
    };
    match run(words, is_tiny) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("blob-gpu: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns whether all checks passed.
fn run(words: &[&str], is_tiny: bool) -> Result<bool> {
    match *words {
        ["--phase", name, ref from @ ..] if from.len() < 2 => {
            let from = from.first().map_or(Ok(0), |from| from.parse())?;
            phases::run(name, from, if is_tiny { &TINY } else { &FULL }).map(|()| true)
        }
        ["--only", part] => bench::rows(if is_tiny { &TINY } else { &FULL }, 0, part).map(|()| true),
        [] => phases::record(&format!("{}-gpu.md", date()), is_tiny),
        [file] if !file.starts_with('-') => phases::record(file, is_tiny),
        _ => bail!("blob-gpu [--tiny] [FILE | --only PART_OF_A_NAME], and got {words:?}"),
    }
}

/// Today's date in UTC, as `2026-11-22`, by Howard Hinnant's `civil_from_days`.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

/// The last two fields of a check: the result, and a remark.
pub(crate) fn words(done: Result<String>) -> String {
    let line = |text: String| text.replace(['\n', '\t', '|'], " ");
    match done {
        Ok(text) => format!("passed\t{}", line(text)),
        Err(error) => format!("failed\t{}", line(format!("{error:#}")).chars().take(400).collect::<String>()),
    }
}
