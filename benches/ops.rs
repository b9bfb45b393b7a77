//! What the operations cost, as ratios to memcpy: `cargo bench -p blob-benches --bench ops -- [--mib N] [--only TEXT]`.
//!
//! A figure is the median of paired runs, the operation and a memcpy of its payload by as many threads in turn, in this
//! process, into memory that is there already. A second part has payloads that stay in the caches.

#[path = "ops/cases.rs"]
mod cases;
#[path = "ops/run.rs"]
mod run;
#[allow(dead_code)] // only the machine's name and the median: these rows have columns of their own
mod table;

use std::hint::black_box;
use std::time::Instant;

use cases::Case;
use rayon::ThreadPool;
use table::median;

/// Pairs of measurements; medians are of these.
const ROUNDS: usize = 9;

/// Bytes that a measurement moves at least, milliseconds: the clock and the start on a pool cost nothing beside it.
const WORK: usize = 64 << 20;

/// A memcpy of less stays on one thread, as the operations do: cut in two it takes several times as long.
const SMALL: usize = 1 << 20;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|at| args.get(at + 1))
    };
    let mib: usize = after("--mib").map_or(256, |n| n.parse().expect("--mib takes a number"));
    let only = after("--only").map_or("", String::as_str);
    let pools = [1, 2].map(pool);
    println!("machine: {}", table::machine());
    println!("instruction set: {}", blob_ops::instruction_set());
    section(&format!("{mib} MiB"), cases::large(mib), only, &pools);
    for kib in [64, 4096] {
        section(
            &format!("{kib} KiB, in cache"),
            cases::small(kib),
            only,
            &pools,
        );
    }
}

/// The cases whose names contain `only`, a line each.
fn section(title: &str, cases: Vec<Case>, only: &str, pools: &[ThreadPool; 2]) {
    println!("\n{title}: time / memcpy by as many threads; time of 2 threads / 1 thread");
    println!(
        "{:<42} {:>8} {:>8} {:>8} {:>6}",
        "case", "1 thread", "2", "2 / 1", "bar"
    );
    for case in cases.iter().filter(|case| case.name.contains(only)) {
        let Figures { one, two, speed } = measure(case, pools);
        let bar = case.bar.map_or(String::new(), |bar| bar.to_string());
        let missed = if case.bar.is_some_and(|bar| one > bar) {
            " MISSED"
        } else {
            ""
        };
        let slower = if speed > 1.05 { " SLOWER" } else { "" };
        println!(
            "{:<42} {one:>8.2} {two:>8.2} {speed:>8.2} {bar:>6}{missed}{slower}",
            case.name
        );
    }
}

fn pool(threads: usize) -> ThreadPool {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("threads can be started")
}

/// What one case costs.
struct Figures {
    /// Over memcpy by one thread, the operation having one.
    one: f64,
    /// Over memcpy by two, the operation having two.
    two: f64,
    /// Two threads over one.
    speed: f64,
}

/// Seconds that so many runs take.
fn time(runs: usize, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..runs).for_each(|_| f());
    start.elapsed().as_secs_f64()
}

fn measure(case: &Case, pools: &[ThreadPool; 2]) -> Figures {
    let whole = run::blob(&case.dims);
    let mut copy = vec![0u8; whole.byte_len()];
    let mut op = run::prepare(&case.op, &whole);
    let runs = WORK.div_ceil(whole.byte_len().max(1));
    let mut rounds = Vec::with_capacity(ROUNDS + 1);
    for _ in 0..=ROUNDS {
        rounds.push(pools.each_ref().map(|pool| {
            pool.install(|| {
                let ours = time(runs, &mut op);
                let bytes = whole.data_bytes().expect("nobody writes");
                (ours, time(runs, || memcpy(&mut copy, &bytes)))
            })
        }));
    }
    // The first round touched the memory for the first time.
    let of = |figure: fn(&[(f64, f64); 2]) -> f64| median(rounds[1..].iter().map(figure));
    Figures {
        one: of(|[one, _]| one.0 / one.1),
        two: of(|[_, two]| two.0 / two.1),
        speed: of(|[one, two]| two.0 / one.0),
    }
}

/// By one thread or by two, as the current pool has.
fn memcpy(dst: &mut [u8], src: &[u8]) {
    let (dst, src) = (black_box(dst), black_box(src));
    if rayon::current_num_threads() == 1 || src.len() < SMALL {
        return dst.copy_from_slice(src);
    }
    // A whole number of pages each.
    let half = (src.len() / 2).next_multiple_of(4096).min(src.len());
    let ((dst, rest), (src, from)) = (dst.split_at_mut(half), src.split_at(half));
    rayon::join(|| dst.copy_from_slice(src), || rest.copy_from_slice(from));
}
