//! Everything about a GPU that needs one, in one command of at most ten minutes: `./blob-gpu [FILE]`, made by `cargo
//! xtask gpu`.
//!
//! `--only PART` prints the times of the rows with this part of a name alone: for trying a kernel.
//! Each phase is a process of its own, so that a context that is lost takes no other with it. What they print becomes
//! one page. Without a GPU the page says that nothing was run. It relies on `gpu.py` beside it for the peers, and
//! leaves them out where there is no Python.

mod bench;
mod cases;
mod checks;
mod child;
mod driver;
#[path = "../../../tests/cuda/operations.rs"]
mod operations;
mod phases;
mod report;
#[allow(dead_code)] // only the machine's name and the median
#[path = "../../table.rs"]
mod table;
mod transfers;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// How much is measured.
pub(crate) struct Sizes {
    /// Of a tensor, at least.
    pub(crate) bytes: usize,
    pub(crate) rounds: usize,
    /// How long all run before they are measured: a GPU that was idle runs slowly at first.
    pub(crate) warm_up: Duration,
    /// Runs between two waits.
    pub(crate) batch: usize,
}

const FULL: Sizes = Sizes { bytes: 1 << 30, rounds: 7, warm_up: Duration::from_millis(300), batch: 10 };

/// For a test of the program itself, on a driver that interprets.
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

/// Whether all checks have passed.
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

/// Today in UTC, as `2026-11-22`. Howard Hinnant's `civil_from_days`, of days since 1970-01-01.
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

/// The last two fields of a check: its result, and what there is to say.
pub(crate) fn words(done: Result<String>) -> String {
    let line = |text: String| text.replace(['\n', '\t', '|'], " ");
    match done {
        Ok(text) => format!("passed\t{}", line(text)),
        Err(error) => format!("failed\t{}", line(format!("{error:#}")).chars().take(400).collect::<String>()),
    }
}
