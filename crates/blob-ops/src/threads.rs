//! Tasks to threads: how many pieces a piece of work is worth, and running them on the caller's pool.
//!
//! The only place that names rayon; kernels below know no threads. Nobody calls it while holding a memory's lock
//! (guards are no locks): a thread that waits for its tasks may take up any other work meanwhile.

use rayon::prelude::*;

/// Less work than this stays on one thread: 64 KiB handed to two threads took 25 times as long as on one (2 cores of an
/// AMD EPYC, merge of 128 × (32 + 32) f32).
const SMALL: usize = 1 << 20;

/// The least that a piece holds, in bytes: at the 10 to 40 GB/s of one core, 256 KiB are 6 to 25 µs of work.
const PIECE: usize = 256 << 10;

/// Pieces for each thread, so that a thread that was held up does not keep the others waiting.
const PER_THREAD: usize = 4;

/// How many pieces work on so many bytes is worth on the current pool: 1 when it is small or the pool has one thread.
///
/// It depends on the pool. Where the cut changes a result, as in sums, cut by length and run those pieces instead.
pub(crate) fn pieces(bytes: usize) -> usize {
    if bytes < SMALL {
        return 1;
    }
    match rayon::current_num_threads() {
        1 => 1,
        threads => (bytes / PIECE).clamp(1, threads * PER_THREAD),
    }
}

/// Runs `work` on every task: on the current pool when there are several tasks and threads, else here and in order.
pub(crate) fn run<T: Send>(tasks: Vec<T>, work: impl Fn(T) + Sync) {
    if tasks.len() > 1 && rayon::current_num_threads() > 1 {
        tasks.into_par_iter().with_max_len(1).for_each(&work);
    } else {
        tasks.into_iter().for_each(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn pool(threads: usize) -> rayon::ThreadPool {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        builder.build().unwrap()
    }

    #[test]
    fn small_work_and_one_thread_are_one_piece() {
        pool(2).install(|| {
            assert_eq!(pieces(0), 1);
            assert_eq!(pieces(SMALL - 1), 1);
            assert_eq!(pieces(SMALL), 4);
            assert_eq!(pieces(5 * PIECE), 5);
            assert_eq!(pieces(usize::MAX), 2 * PER_THREAD);
        });
        assert_eq!(pool(1).install(|| pieces(usize::MAX)), 1);
    }

    #[test]
    fn every_task_runs_once_on_any_pool() {
        for threads in [1, 2, 7] {
            for tasks in [0, 1, 2, 33] {
                let seen = AtomicU64::new(0);
                pool(threads).install(|| {
                    run((0..tasks).collect(), |task: u32| {
                        assert_eq!(seen.fetch_or(1 << task, Ordering::Relaxed) >> task & 1, 0);
                    });
                });
                assert_eq!(seen.into_inner(), (1u64 << tasks) - 1, "{threads} {tasks}");
            }
        }
    }
}
