//! Progress on standard error, and the signals that stop the work.
//!
//! A bar appears only on a terminal and only when the work lasts; `--progress always` prints plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use blob_convert::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Terminal;
use crate::args::When;
use crate::units;

/// Work shorter than this shows no progress.
const PATIENCE: Duration = Duration::from_millis(500);

/// Set by the first SIGINT or SIGTERM; the second ends the process.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// The exit code of a process that a signal stopped.
pub(crate) const INTERRUPTED: u8 = 130;

/// How far a piece of work of a known length is, and whether it should stop.
pub(crate) struct Progress {
    total: u64,
    done: AtomicU64,
    start: Instant,
    how: How,
    bar: OnceLock<ProgressBar>,
    next_line: Mutex<Duration>,
}

#[derive(Clone, Copy)]
enum How {
    Silent,
    Bar,
    Lines,
}

impl Progress {
    /// Begins work on `total` bytes, which a signal can stop from now on.
    pub(crate) fn begin(terminal: &Terminal, total: u64) -> Self {
        catch_signals();
        let how = match (terminal.progress, stderr().is_terminal()) {
            (When::Never, _) | (When::Auto, false) => How::Silent,
            (When::Auto | When::Always, true) => How::Bar,
            (When::Always, false) => How::Lines,
        };
        Self {
            total,
            done: AtomicU64::new(0),
            start: Instant::now(),
            how,
            bar: OnceLock::new(),
            next_line: Mutex::new(PATIENCE),
        }
    }

    /// Removes the bar, so that other output can follow.
    pub(crate) fn end(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn draw(&self, done: u64) {
        let elapsed = self.start.elapsed();
        if elapsed < PATIENCE {
            return;
        }
        match self.how {
            How::Silent => {}
            How::Bar => self.bar.get_or_init(|| bar(self.total)).set_position(done),
            How::Lines => {
                let mut next = self.next_line.lock().unwrap_or_else(|e| e.into_inner());
                if elapsed >= *next {
                    *next = elapsed + Duration::from_secs(1);
                    let (done, total) = (units::bytes(done), units::bytes(self.total));
                    eprintln!("progress: {done} of {total}");
                }
            }
        }
    }
}

impl Watch for Progress {
    fn advanced(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !matches!(self.how, How::Silent) {
            self.draw(done);
        }
    }

    fn cancelled(&self) -> bool {
        CANCELLED.load(Ordering::Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style =
        "{bar:30} {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("##-"));
    }
    bar
}

/// Makes SIGINT and SIGTERM raise the flag. Where that cannot be done they end the process, as they always do.
fn catch_signals() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let _ = ctrlc::set_handler(|| {
            if CANCELLED.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
        });
    });
}
