//! What every thread is doing, and the end of the process when one of them does it for too long.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// No step takes so long, not even on a machine with other work to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the watchdog looks.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct Watch {
    seed: u64,
    threads: Vec<Post>,
}

#[derive(Default)]
struct Post {
    beats: AtomicU64,
    has_ended: AtomicBool,
    doing: Mutex<String>,
}

/// Notes on being dropped that a thread has ended, well or in a panic.
pub(crate) struct End<'a>(&'a Post);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
    }
}

impl Watch {
    pub(crate) fn new(seed: u64, threads: usize) -> Self {
        Self { seed, threads: (0..threads).map(|_| Post::default()).collect() }
    }

    pub(crate) fn end_of(&self, thread: usize) -> End<'_> {
        End(&self.threads[thread])
    }

    /// The thread begins with something else.
    pub(crate) fn says(&self, thread: usize, what: String) {
        let post = &self.threads[thread];
        *post.doing.lock().unwrap_or_else(PoisonError::into_inner) = what;
        post.beats.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns when all threads have ended; ends the process when one stands still, for it cannot be stopped.
    pub(crate) fn until_all_have_ended(&self) {
        let now = Instant::now();
        let mut last: Vec<(u64, Instant)> = self.threads.iter().map(|_| (0, now)).collect();
        loop {
            let mut all_ended = true;
            for (post, (beats, since)) in self.threads.iter().zip(&mut last) {
                if post.has_ended.load(Ordering::SeqCst) {
                    continue;
                }
                all_ended = false;
                let new = post.beats.load(Ordering::SeqCst);
                if new != *beats {
                    (*beats, *since) = (new, Instant::now());
                }
                if since.elapsed() > PATIENCE {
                    self.give_up();
                }
            }
            if all_ended {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    fn give_up(&self) -> ! {
        let mut text = format!("soak: a thread stands still in the round of seed {}\n", self.seed);
        for (number, post) in self.threads.iter().enumerate() {
            let doing = post.doing.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = post.has_ended.load(Ordering::SeqCst);
            let state = if ended { "has ended; last:" } else { "is at" };
            text += &format!("  thread {number} {state} {doing}\n");
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::exit(1)
    }
}
