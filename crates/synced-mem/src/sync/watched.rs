//! A handler of the C library counts forks, in the child.

use std::sync::atomic::{AtomicBool, Ordering};

use super::FORKS;

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// From now on forks are counted.
pub(super) fn watch() {
    if !IS_WATCHED.load(Ordering::Relaxed) {
        // SAFETY: the handler is a function of this program, and changes an atomic number alone, which a child process
        // may do at once. Two threads that come here together make the handler count twice, which is as good.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // Relaxed: orders nothing. Refused for want of memory: the next caller tries again.
        IS_WATCHED.store(refused == 0, Ordering::Relaxed);
    }
}
