//! SIGINT and SIGTERM: work that looks for them ends by itself and removes its unfinished files; without such work the
//! process ends at once. SIGXFSZ: a write that fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use blob_io::Error;

use crate::failure::Failure;

/// The exit code of a process that a signal stopped.
pub(crate) const INTERRUPTED: u8 = 130;

/// Set by the first signal during work; the second ends the process.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// How many pieces of work look for a signal.
static WORK: Mutex<usize> = Mutex::new(0);

/// The message where a signal finds no work.
static LAST_WORDS: OnceLock<fn()> = OnceLock::new();

/// Work that looks for a signal, while this lives. Also lines that are being printed, which must end whole.
#[derive(Debug)]
pub(crate) struct Work(());

impl Work {
    pub(crate) fn begin() -> Self {
        *work() += 1;
        Self(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        *work() -= 1;
    }
}

/// Whether a signal came during work.
pub(crate) fn came() -> bool {
    CANCELLED.load(Ordering::Relaxed)
}

/// The failure of work that a signal stopped.
pub(crate) fn check() -> Result<(), Failure> {
    if came() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Checks an output by files that are removed again, which a signal waits for.
pub(crate) fn checked(check_output: impl FnOnce() -> Result<(), Error>) -> Result<(), Failure> {
    catch();
    let _work = Work::begin();
    check_output()?;
    check()
}

/// Says these words where a signal ends the process without work.
pub(crate) fn end_with(words: fn()) {
    let _ = LAST_WORDS.set(words);
    catch();
}

/// Takes SIGXFSZ from the system: a write past the largest file that a process may write (`ulimit -f`) is then an error
/// like that of a full disk, and does not end the process without a word.
#[cfg(unix)]
pub(crate) fn outlive_limits() {
    // The handler alone counts; nobody asks the flag. If that fails, the signal ends the process as usual.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}

#[cfg(not(unix))]
pub(crate) fn outlive_limits() {}

/// Takes the signals from the system. If that fails, signals end the process as usual.
pub(crate) fn catch() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let _ = ctrlc::set_handler(|| {
            // No work begins while this is held.
            let work = work();
            let is_first = !CANCELLED.swap(true, Ordering::Relaxed);
            if is_first && *work > 0 {
                return;
            }
            if let Some(words) = LAST_WORDS.get().filter(|_| *work == 0) {
                words();
            }
            std::process::exit(i32::from(INTERRUPTED));
        });
    });
}

fn work() -> MutexGuard<'static, usize> {
    WORK.lock().unwrap_or_else(|e| e.into_inner())
}
