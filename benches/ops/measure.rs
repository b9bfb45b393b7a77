//! Times an operation and a memcpy of the payload in turn, both on blobs, with one thread and with two.

use std::hint::black_box;
use std::time::Instant;

use blob_core::{AnyBlob, DType};
use rayon::ThreadPool;

use crate::own::Line;
use crate::run;
use crate::table::median;

/// A measurement moves at least this many bytes, which takes milliseconds: the clock and the start of a pool cost
/// nothing beside that.
const WORK: usize = 64 << 20;

/// A smaller memcpy stays on one thread, like the operations: split in two, a copy takes several times as long.
const SMALL: usize = 1 << 20;

/// The size of the blob whose pages are counted.
const PROBE: usize = 256 << 20;

/// The number of rounds, and thread pools of one thread and of two.
pub(crate) struct Bench {
    rounds: usize,
    pools: [ThreadPool; 2],
}

/// The time of a case with one thread and with two.
pub(crate) struct Figures {
    /// The seconds of one run.
    pub(crate) seconds: [f64; 2],
    /// The ratio to memcpy with one thread.
    pub(crate) ratio: [f64; 2],
    /// Two threads over memcpy with two.
    pub(crate) by_two: f64,
    /// Two threads over one.
    pub(crate) speed: f64,
}

/// The seconds of one round, each with one thread and with two.
struct Round {
    op: [f64; 2],
    memcpy: [f64; 2],
}

impl Bench {
    pub(crate) fn new(rounds: usize) -> Self {
        let pools = [1, 2].map(|threads| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
            builder.build().expect("threads can be started")
        });
        Self { rounds, pools }
    }

    /// The medians of the rounds.
    pub(crate) fn line(&self, line: &Line) -> Figures {
        let whole = run::blob(&line.dims, line.dtype);
        let (rounds, runs) = self.rounds(&whole, run::prepare(line, &whole));
        let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
        let one_run = |seconds: f64| seconds / runs as f64;
        Figures {
            seconds: [one_run(of(|r| r.op[0])), one_run(of(|r| r.op[1]))],
            ratio: [of(|r| r.op[0] / r.memcpy[0]), of(|r| r.op[1] / r.memcpy[0])],
            by_two: of(|r| r.op[1] / r.memcpy[1]),
            speed: of(|r| r.op[1] / r.op[0]),
        }
    }

    /// The rate of memcpy in GB/s, read and written, with one thread and with two, for copies of this size.
    pub(crate) fn memcpy_rate(&self, bytes: usize) -> [f64; 2] {
        let whole = run::blob(&[bytes / 4], DType::F32);
        let (rounds, runs) = self.rounds(&whole, || ());
        [0, 1].map(|threads| {
            let seconds = median(rounds.iter().map(|round| round.memcpy[threads]));
            2.0 * (bytes * runs) as f64 / seconds / 1e9
        })
    }

    /// The rounds, and the number of runs in each. A round before, which touches the memory for the first time, is
    /// discarded.
    fn rounds(&self, whole: &AnyBlob, mut op: impl FnMut() + Send) -> (Vec<Round>, usize) {
        let mut copy = run::blob(whole.shape().dims(), whole.dtype());
        let mut copy = copy.data_mut().bytes().expect("memory");
        let bytes = whole.data().bytes().expect("no writer");
        let runs = WORK.div_ceil(bytes.len().max(1));
        let mut round = || {
            let both = self.pools.each_ref().map(|pool| {
                pool.install(|| {
                    let ours = time(runs, &mut op);
                    (ours, time(runs, || memcpy(&mut copy, &bytes)))
                })
            });
            Round { op: both.map(|(op, _)| op), memcpy: both.map(|(_, memcpy)| memcpy) }
        };
        round();
        ((0..self.rounds).map(|_| round()).collect(), runs)
    }
}

/// The seconds of `runs` runs.
fn time(runs: usize, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..runs).for_each(|_| f());
    start.elapsed().as_secs_f64()
}

/// Copies with as many threads as the current pool has, one or two.
fn memcpy(dst: &mut [u8], src: &[u8]) {
    let (dst, src) = (black_box(dst), black_box(src));
    if rayon::current_num_threads() == 1 || src.len() < SMALL {
        return dst.copy_from_slice(src);
    }
    // The split is at a page boundary.
    let half = (src.len() / 2).next_multiple_of(4096).min(src.len());
    let ((dst, rest), (src, from)) = (dst.split_at_mut(half), src.split_at(half));
    rayon::join(|| dst.copy_from_slice(src), || rest.copy_from_slice(from));
}

/// Describes how much of a blob the system puts on huge pages.
pub(crate) fn memory() -> String {
    let before = huge_mib();
    let probe = black_box(run::blob(&[PROBE], DType::U8));
    let got = huge_mib() - before;
    format!(
        "{got} of {} MiB of a blob on huge pages, asked for from 2 MiB; memcpy's as the operations'",
        probe.byte_len() >> 20
    )
}

/// The MiB of this process on transparent huge pages; 0 if the system does not report it.
fn huge_mib() -> i64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:")?.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok()).unwrap_or(0) >> 10
}
