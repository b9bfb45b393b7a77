//! Work without the interpreter's lock that Ctrl-C ends: short work on the caller's thread, long work on threads of its
//! own with progress.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use blob_convert::Watch;
use blob_io::{Error, OpenOptions};
use pyo3::prelude::*;

use crate::error::Stop;

/// How often signals are looked at, and progress is told.
const TICK: Duration = Duration::from_millis(100);

/// Does work on the caller's thread. The work asks `Watch` on this thread alone whether to stop.
pub(crate) fn here<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&dyn Watch) -> Result<T, Error> + Send,
) -> Result<T, Stop> {
    let signals = Signals::new();
    let done = py.detach(|| work(&signals));
    finished(done, signals.stop.into_inner().unwrap_or_default())
}

/// Opens something on the caller's thread; Ctrl-C ends the unpacking of a stream, of a gzip file, of an archive's
/// member.
pub(crate) fn opening<T: Send>(
    py: Python<'_>,
    options: OpenOptions,
    work: impl FnOnce(OpenOptions) -> Result<T, Error> + Send,
) -> Result<T, Stop> {
    let signals = Arc::new(Signals::new());
    let asked = Arc::clone(&signals);
    let options = options.stop_if(move || asked.cancelled());
    let done = py.detach(|| work(options));
    finished(done, signals.stop.lock().ok().and_then(|mut stop| stop.take()))
}

/// The exception comes first: work may end well, or fail in another way, before the watch is asked again.
fn finished<T>(done: Result<T, Error>, stop: Option<PyErr>) -> Result<T, Stop> {
    match stop {
        Some(stop) => Err(stop.into()),
        None => Ok(done?),
    }
}

struct Signals {
    looked: Mutex<Instant>,
    /// The exception of a signal's handler.
    stop: Mutex<Option<PyErr>>,
}

impl Signals {
    fn new() -> Self {
        Self { looked: Mutex::new(Instant::now()), stop: Mutex::new(None) }
    }
}

impl Watch for Signals {
    fn advanced(&self, _: u64) {}

    fn cancelled(&self) -> bool {
        {
            let Ok(mut looked) = self.looked.lock() else { return false };
            if looked.elapsed() < TICK {
                return false;
            }
            *looked = Instant::now();
        }
        let raised = Python::attach(|py| py.check_signals()).err();
        let is_raised = raised.is_some();
        if let (Some(raised), Ok(mut stop)) = (raised, self.stop.lock()) {
            *stop = Some(raised);
        }
        is_raised
    }
}

/// Who is told how far long work is.
pub(crate) enum Progress {
    Nobody,
    /// A function of two integers: `progress(done, total)`.
    Function(Py<PyAny>),
    /// A bar of tqdm's kind, with `total` and `update(n)`.
    Bar(Py<PyAny>),
}

impl Progress {
    pub(crate) fn new(object: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(object) = object else { return Ok(Self::Nobody) };
        let is_bar = object.hasattr("update")? && object.hasattr("total")?;
        Ok(if is_bar { Self::Bar(object.clone().unbind()) } else { Self::Function(object.clone().unbind()) })
    }

    /// Says how much there is to do.
    pub(crate) fn begin(&self, py: Python<'_>, total: u64) -> PyResult<()> {
        match self {
            Self::Bar(bar) => bar.setattr(py, "total", total),
            _ => Ok(()),
        }
    }

    /// Says that `done` of `total` are done, of which `said` were said before.
    pub(crate) fn tell(&self, py: Python<'_>, said: u64, done: u64, total: u64) -> PyResult<()> {
        match self {
            Self::Nobody => Ok(()),
            Self::Function(function) => function.call1(py, (done, total)).map(drop),
            Self::Bar(bar) => bar.call_method1(py, "update", (done - said,)).map(drop),
        }
    }
}

#[derive(Default)]
struct Counter {
    done: AtomicU64,
    is_cancelled: AtomicBool,
    is_finished: AtomicBool,
}

impl Watch for Counter {
    fn advanced(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// Does long work on a thread of its own, while the caller's thread looks for signals and tells the progress. The
/// work counts up to `total`.
pub(crate) fn beside<T: Send>(
    py: Python<'_>,
    progress: &Progress,
    total: u64,
    work: impl FnOnce(&dyn Watch) -> Result<T, Error> + Send,
) -> Result<T, Stop> {
    progress.begin(py, total)?;
    let (counter, caller) = (Counter::default(), thread::current());
    let (mut stop, mut said) = (None, 0);
    let done = thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || {
            let done = work(&counter);
            counter.is_finished.store(true, Ordering::Release);
            caller.unpark();
            done
        });
        let working =
            started.map_err(|source| Error::Io { file: String::new(), action: "start a thread".to_owned(), source })?;
        while !(counter.is_finished.load(Ordering::Acquire) || working.is_finished()) {
            py.detach(|| thread::park_timeout(TICK));
            let done = counter.done.load(Ordering::Relaxed).min(total);
            let looked = py.check_signals().and_then(|()| {
                if stop.is_none() && done > said {
                    progress.tell(py, said, done, total)?;
                    said = done;
                }
                Ok(())
            });
            if let Err(raised) = looked {
                stop.get_or_insert(raised);
                counter.is_cancelled.store(true, Ordering::Relaxed);
            }
        }
        py.detach(|| working.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let done = finished(done, stop)?;
    if said < total {
        progress.tell(py, said, total, total)?;
    }
    Ok(done)
}
