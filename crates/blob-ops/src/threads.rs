//! Pieces of work to threads: how many a piece of work is worth, and running these on the caller's pool, or on the
//! calling thread alone where no pool can be started.
//!
//! The only place that names rayon; kernels below know no threads. Work is cut in two until one piece is left, so there
//! is no list of pieces and nothing here allocates. Not to be called with a
//! memory's lock held (guards are no locks): a thread that waits for a half may take up any other work meanwhile.

use std::error::Error;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// Less work than this stays on one thread: 64 KiB handed to two threads took 25 times as long as on one (2 cores of an
/// AMD EPYC, merge of 128 × (32 + 32) f32).
const SMALL: usize = 1 << 20;

/// The least that a piece holds, in bytes: at the 10 to 40 GB/s of one core, 256 KiB are 6 to 25 µs of work.
const PIECE: usize = 256 << 10;

/// Pieces for each thread, so that a thread that was held up does not keep the others waiting.
const PER_THREAD: usize = 4;

/// How many pieces work on this many bytes is worth on the current pool: 1 when it is small or the pool has one thread.
///
/// Depends on the pool. Where the cut changes a result, as in sums, cut by length and run those pieces instead.
pub(crate) fn pieces(bytes: usize) -> usize {
    if bytes < SMALL {
        return 1;
    }
    match threads() {
        1 => 1,
        threads => (bytes / PIECE).clamp(1, threads * PER_THREAD),
    }
}

/// The length of a piece of this many bytes: whole pages, and so whole elements.
pub(crate) fn piece_len(bytes: usize) -> usize {
    bytes.div_ceil(pieces(bytes)).next_multiple_of(4096).max(4096)
}

/// The threads of the current pool; 1 where there is no pool, because threads cannot be started.
fn threads() -> usize {
    let in_a_pool = rayon::current_thread_index().is_some();
    if in_a_pool || global_pool_runs() { rayon::current_num_threads() } else { 1 }
}

/// Whether rayon's global pool runs. rayon panics on every use of it where its threads could not be started, as under a
/// limit of processes or of memory. So the pool is built here, where a failure is a value.
fn global_pool_runs() -> bool {
    static RUNS: OnceLock<bool> = OnceLock::new();
    *RUNS.get_or_init(|| match rayon::ThreadPoolBuilder::new().build_global() {
        Ok(()) => true,
        // Built before, by the caller perhaps. Whether that failed shows only in use.
        Err(error) if error.source().is_none() => catch_unwind(rayon::current_num_threads).is_ok(),
        Err(_) => false,
    })
}

/// Runs both: on two threads of the current pool where there are two, else one after the other on this one.
pub(crate) fn both<L: Send, R: Send>(left: impl FnOnce() -> L + Send, right: impl FnOnce() -> R + Send) -> (L, R) {
    match threads() {
        1 => (left(), right()),
        _ => rayon::join(left, right),
    }
}

/// Runs `work` on every chunk of `len` bytes with its index; the last may be shorter.
pub(crate) fn chunks(bytes: &mut [u8], len: usize, work: impl Fn(usize, &mut [u8]) + Sync) {
    let count = bytes.len().div_ceil(len);
    slices(bytes, count, |chunk| chunk * len, work);
}

/// Runs `work` on `count` consecutive slices of `bytes` with the index of each; `start` says where a slice begins.
pub(crate) fn slices(
    bytes: &mut [u8],
    count: usize,
    start: impl Fn(usize) -> usize + Sync,
    work: impl Fn(usize, &mut [u8]) + Sync,
) {
    if count > 0 {
        halve(
            0..count,
            bytes,
            &|all, first, at| <[u8]>::split_at_mut(all, start(at) - start(first)),
            &work,
            &|(), ()| (),
        );
    }
}

/// The results of `work` on `count` pieces, joined in the order and shape of a [`Tree`](crate::tree::Tree); `None`
/// where there are no pieces.
pub(crate) fn fold<T: Send>(
    count: usize,
    work: impl Fn(usize) -> T + Sync,
    join: impl Fn(T, T) -> T + Sync,
) -> Option<T> {
    (count > 0).then(|| halve(0..count, (), &|(), _, _| ((), ()), &|piece, ()| work(piece), &join))
}

/// Runs `work` on each of at least one piece with its share of the data. `cut(share, first, middle)` divides a share
/// that begins at piece `first` into the pieces before `middle` and the rest.
///
/// The left half has the greatest power of two of pieces that is not all of them. So the halves are those of a binary
/// counter, however many threads there are.
fn halve<S: Send, T: Send>(
    pieces: Range<usize>,
    share: S,
    cut: &(impl Fn(S, usize, usize) -> (S, S) + Sync),
    work: &(impl Fn(usize, S) -> T + Sync),
    join: &(impl Fn(T, T) -> T + Sync),
) -> T {
    if pieces.len() == 1 {
        return one(pieces.start, share, work);
    }
    let middle = pieces.start + (1 << (pieces.len() - 1).ilog2());
    let (left, right) = cut(share, pieces.start, middle);
    let (left, right) = both(
        || halve(pieces.start..middle, left, cut, work, join),
        || halve(middle..pieces.end, right, cut, work, join),
    );
    join(left, right)
}

/// Not inlined: the buffers that kernels have on the stack would be there once for every level of [`halve`].
#[inline(never)]
fn one<S, T>(piece: usize, share: S, work: &impl Fn(usize, S) -> T) -> T {
    work(piece, share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Join, Tree};

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
    fn every_chunk_runs_once_on_any_pool() {
        for threads in [1, 2, 7] {
            for len in [0, 1, 9, 10, 11, 330, 339] {
                let mut bytes = vec![0u8; len];
                pool(threads).install(|| {
                    chunks(&mut bytes, 10, |index, chunk| {
                        assert!(!chunk.is_empty() && chunk.len() <= 10);
                        chunk.iter_mut().for_each(|byte| *byte += 1 + index as u8);
                    });
                });
                let want: Vec<u8> = (0..len).map(|at| 1 + (at / 10) as u8).collect();
                assert_eq!(bytes, want, "{threads} {len}");
            }
        }
    }

    #[test]
    fn slices_of_any_length_begin_where_they_should() {
        let starts = [0, 3, 3, 10, 11];
        let mut bytes = [0; 20];
        pool(2).install(|| {
            slices(&mut bytes, 5, |at| starts[at], |index, slice| slice.fill(1 + index as u8));
        });
        assert_eq!(bytes, [1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
    }

    /// A number that knows where it was joined.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Joined(u64);

    impl Join for Joined {
        fn join(self, right: Joined) -> Joined {
            Joined(self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7) ^ right.0)
        }
    }

    #[test]
    fn what_is_folded_is_joined_as_a_tree_would() {
        for threads in [1, 2, 7] {
            let pool = pool(threads);
            for count in 0..200 {
                let mut tree = Tree::default();
                (0..count).for_each(|at| tree.push(Joined(at as u64)));
                let folded = pool.install(|| fold(count, |at| Joined(at as u64), Joined::join));
                assert_eq!(folded, tree.total(), "{threads} {count}");
            }
        }
    }
}
