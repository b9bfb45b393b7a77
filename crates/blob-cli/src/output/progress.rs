//! Progress on standard error, of work that a signal stops.
//!
//! A bar appears only on a terminal and only if the work takes long; `--progress always` prints plain lines elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use blob_convert::Watch;
use terminal_size::terminal_size_of;

use super::signals::{self, Work};
use super::{Terminal, columns};
use crate::args::When;
use crate::units;

/// Progress is first shown after this time.
const DELAY: Duration = Duration::from_millis(500);

/// Moves to the start of the line and clears the line.
const CLEAR: &str = "\r\x1b[2K";

/// The progress of work on a known number of bytes, which a signal can stop.
pub(crate) struct Progress {
    total: u64,
    done: AtomicU64,
    start: Instant,
    mode: Mode,
    drawn: Mutex<Drawn>,
    _work: Work,
}

/// When to draw next, and whether a bar is visible.
struct Drawn {
    next: Duration,
    is_bar: bool,
}

#[derive(Clone, Copy)]
enum Mode {
    Silent,
    Bar,
    Lines,
}

impl Mode {
    fn of(terminal: &Terminal) -> Self {
        match (terminal.progress, stderr().is_terminal()) {
            (When::Never, _) | (When::Auto, false) => Self::Silent,
            (When::Auto | When::Always, true) => Self::Bar,
            (When::Always, false) => Self::Lines,
        }
    }
}

impl Progress {
    /// Whether anybody is told how far the work is, so that its length counts.
    pub(crate) fn is_shown(terminal: &Terminal) -> bool {
        !matches!(Mode::of(terminal), Mode::Silent)
    }

    /// Begins work on `total` bytes. From then on a signal cancels the work.
    pub(crate) fn begin(terminal: &Terminal, total: u64) -> Self {
        signals::catch();
        Self {
            total,
            done: AtomicU64::new(0),
            start: Instant::now(),
            mode: Mode::of(terminal),
            drawn: Mutex::new(Drawn { next: DELAY, is_bar: false }),
            _work: Work::begin(),
        }
    }

    /// Removes the bar, so that other output can follow.
    pub(crate) fn end(&self) {
        let mut drawn = self.drawn();
        // A thread that is still running must not draw the bar again.
        drawn.next = Duration::MAX;
        if std::mem::take(&mut drawn.is_bar) {
            let _ = write!(stderr(), "{CLEAR}");
        }
    }

    fn drawn(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn draw(&self, done: u64) {
        let elapsed = self.start.elapsed();
        // Another thread is drawing, with nearly the same numbers.
        let Ok(mut drawn) = self.drawn.try_lock() else {
            return;
        };
        if elapsed < drawn.next {
            return;
        }
        let text = format!("{} of {}", units::bytes(done), units::bytes(self.total));
        match self.mode {
            Mode::Silent => {}
            Mode::Bar => {
                let width = columns(terminal_size_of(stderr()));
                let line = bar(&text, done, self.total, elapsed.as_secs_f64(), width);
                let _ = write!(stderr(), "{CLEAR}{line}");
                *drawn = Drawn { next: elapsed + Duration::from_millis(100), is_bar: true };
            }
            Mode::Lines => {
                drawn.next = elapsed + Duration::from_secs(1);
                let _ = writeln!(stderr(), "progress: {text}");
            }
        }
    }
}

impl Watch for Progress {
    fn advanced(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !matches!(self.mode, Mode::Silent) {
            self.draw(done);
        }
    }

    fn cancelled(&self) -> bool {
        signals::came()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// `#########---------------------  1.20 GiB of 4.00 GiB  512.0 MiB/s  5.6 s left`, shorter if the terminal is
/// narrow. Leaves room for the `^C` that a terminal may print after it, as a wrapped line could not be cleared.
fn bar(text: &str, done: u64, total: u64, seconds: f64, width: usize) -> String {
    const CELLS: u64 = 20;
    const SIGNAL: usize = 3;
    let full = (u128::from(done) * u128::from(CELLS) / u128::from(total.max(1))).min(CELLS.into()) as usize;
    let rate = done as f64 / seconds.max(1e-9);
    let left = total.saturating_sub(done) as f64 / rate.max(1.0);
    let cells = format!("{}{}", "#".repeat(full), "-".repeat(CELLS as usize - full));
    let speed = format!("{}/s", units::bytes(rate as u64));
    let left = format!("{} left", units::seconds(left));
    let room = width.saturating_sub(SIGNAL);
    let lines = [&[&*cells, text, &speed, &left][..], &[&cells, text, &left], &[text, &left], &[text]];
    let mut fitting = lines.iter().map(|parts| parts.join("  ")).filter(|line| line.len() <= room);
    fitting.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fits_a_line_with_room_for_a_signal() {
        let line = |width| bar("3.00 GiB of 4.00 GiB", 3 << 30, 4 << 30, 6.0, width);
        assert_eq!(line(80), "###############-----  3.00 GiB of 4.00 GiB  512.0 MiB/s  2.00 s left");
        assert_eq!(line(60), "###############-----  3.00 GiB of 4.00 GiB  2.00 s left");
        assert_eq!(line(40), "3.00 GiB of 4.00 GiB  2.00 s left");
        let longest = |width| bar("1000.0 GiB of 1000.0 GiB", 1, u64::MAX, 0.5, width);
        assert!(longest(200).starts_with("----") && (0..200).all(|width| longest(width).len() + 3 <= width.max(3)));
        assert!(bar("", 9, 0, 0.0, 80).starts_with("####################"));
    }
}
