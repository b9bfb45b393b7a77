//! Threads where the system has some left: a limit on processes or memory may allow none, and one thread does all alone.

use std::thread::{self, Scope, ScopedJoinHandle};

/// Starts a thread; `None`, and `work` dropped, where the system starts none.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    #[cfg(test)]
    if tests::NO_THREADS.get() {
        return None;
    }
    thread::Builder::new().spawn_scoped(scope, work).ok()
}

/// What a thread returned; its panic goes on here.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Set by tests: the system has no thread left.
        pub(crate) static NO_THREADS: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `work` as if the system had no thread left.
    pub(crate) fn without_threads<T>(work: impl FnOnce() -> T) -> T {
        NO_THREADS.set(true);
        let done = work();
        NO_THREADS.set(false);
        done
    }
}
