//! Threads where the system allows them: under a limit on processes or memory, one thread does all the work.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TryRecvError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use blob_io::Error;

#[cfg(not(test))]
use real::none_left;
#[cfg(test)]
use tests::none_left;

/// More threads than this find no more memory bandwidth to share.
const MAX_THREADS: usize = 4;

/// Less work than this stays on the thread that has the work: a thread takes as long to start and to end as 256 KiB
/// take to be read and hashed.
pub(crate) const WORTH_A_THREAD: u64 = 1 << 20;

/// How often a thread that takes results looks for them. A thread that is woken for each takes a tenth of the time of
/// small ones.
const TICK: Duration = Duration::from_millis(5);

/// So many results may wait to be taken: more than a tick's, and few megabytes.
const MOST_WAITING: usize = 1 << 12;

/// How many threads read, hash and write a file. The system is asked once, which takes 14 calls where processors are
/// shared out by groups: as long as half of a file of 100 KB.
pub(crate) fn io_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS)))
}

/// Does `items` pieces of work on at most `threads` threads, this one among them. Each thread takes the next piece in
/// turn, with a state of its own; after an error none takes another. Where no thread can be started, this one does all
/// the work. Returns the states.
pub(crate) fn in_turn<S: Send>(
    threads: usize,
    items: u64,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, u64) -> Result<(), Error> + Sync,
) -> Result<Vec<S>, Error> {
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let share = || {
        let mut state = begin();
        while !failed.load(Ordering::Relaxed) {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                break;
            }
            work(&mut state, item).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(state)
    };
    let threads = threads.min(usize::try_from(items).unwrap_or(usize::MAX));
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map_while(|_| spawn(scope, share)).collect();
        let mut done = vec![share()];
        done.extend(others.into_iter().map(join));
        done.into_iter().collect()
    })
}

/// Hands over results on this thread, in the order of their numbers, which count from 0. So many threads make results
/// until none is left, each with a state of its own; where no thread can be started, this one makes all. After an error
/// of `take` each thread ends behind the result that it is at.
///
/// # Errors
/// The first error of `take`.
pub fn in_order<S, T: Send, E>(
    threads: usize,
    begin: impl Fn() -> S + Sync,
    step: impl Fn(&mut S) -> Option<(usize, T)> + Sync,
    take: &mut dyn FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let each = |send: SyncSender<(usize, T)>| {
        let mut state = begin();
        while let Some(made) = step(&mut state)
            && send.send(made).is_ok()
        {}
    };
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(MOST_WAITING);
        let (each, reader) = (&each, thread::current());
        let started = (0..threads).map_while(|_| {
            let (send, reader) = (send.clone(), reader.clone());
            spawn(scope, move || {
                each(send);
                reader.unpark();
            })
        });
        if started.count() == 0 {
            let mut state = begin();
            return std::iter::from_fn(|| step(&mut state)).try_for_each(|(number, made)| take(number, made));
        }
        drop(send);
        let (mut early, mut next) = (BTreeMap::new(), 0);
        loop {
            match receive.try_recv() {
                Ok((number, made)) => drop(early.insert(number, made)),
                Err(TryRecvError::Empty) => thread::park_timeout(TICK),
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            while let Some(made) = early.remove(&next) {
                take(next, made)?;
                next += 1;
            }
        }
    })
}

/// Runs `main` on this thread and `other` on another one. Where no thread can be started, `other` runs after `main`.
pub(crate) fn run_beside<R, T: Send>(
    other: Option<&(impl Fn() -> T + Sync)>,
    main: impl FnOnce() -> R,
) -> (R, Option<T>) {
    thread::scope(|scope| {
        let beside = other.map(|other| (other, spawn(scope, other)));
        let done = main();
        (done, beside.map(|(other, thread)| thread.map_or_else(other, join)))
    })
}

/// Starts a thread; `None` if the system refuses one, and `work` is dropped.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    if none_left() {
        return None;
    }
    thread::Builder::new().spawn_scoped(scope, work).ok()
}

/// The result of a thread; a panic of the thread is passed on.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Takes a poisoned lock anyway: the thread that panicked is joined later, and the panic is reported then.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(not(test))]
mod real {
    /// The system's limit shows only when a thread is started.
    pub(super) fn none_left() -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Set by tests: the system has no thread left.
        static NO_THREADS: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn none_left() -> bool {
        NO_THREADS.get()
    }

    /// Runs `work` as if the system had no thread left.
    pub(crate) fn without_threads<T>(work: impl FnOnce() -> T) -> T {
        NO_THREADS.set(true);
        let done = work();
        NO_THREADS.set(false);
        done
    }
}
