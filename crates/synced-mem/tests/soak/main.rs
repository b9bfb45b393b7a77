//! The stress machine: threads that use shared and owned memories on several devices at once, with failures, against a
//! shadow of every byte, and a watchdog that says what every thread was doing when one of them stands still.
//!
//! `cargo xtask soak --seconds N --seed S` runs it; without the variables that this sets it runs for a moment. It works
//! in rounds of a fixed number of steps, each drawn from a seed of its own, so `--seed` of a failing round begins with
//! it; only how the threads interleave differs, and not even that with `--threads 1`.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "programs of one thread have some of it")]
mod harness;
#[path = "../common/poison.rs"]
mod poison;
mod watch;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use synced_mem::{HostPool, SharedMem, SyncedMem};

use harness::op::{self, DEVICES};
use harness::owned::Owned;
use harness::shadow::Shadow;
use harness::tapes::Tapes;
use harness::worker::Worker;
use harness::world::{Counts, Rules, Subject, World};
use watch::Watch;

/// What is freed is overwritten, so that who still uses it finds a difference.
#[global_allocator]
static POISONING: poison::Poisoning = poison::Poisoning;

/// How many steps of each thread are a round.
const STEPS: usize = 400;
/// How many memories the threads share.
const MEMORIES: usize = 5;

/// What the environment asks for.
struct Wanted {
    time: Duration,
    seed: u64,
    threads: usize,
    /// Whether the run was asked for on the command line: then its result is reported.
    asked: bool,
}

impl Wanted {
    fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seconds = number("BLOB_SOAK_SECONDS");
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let clock = clock.map_or(0, |passed| passed.as_nanos() as u64 % 1_000_000_000);
        Self {
            time: Duration::from_secs(seconds.unwrap_or(2)),
            seed: number("BLOB_SOAK_SEED").unwrap_or(clock),
            threads: number("BLOB_SOAK_THREADS").unwrap_or(4).max(1) as usize,
            asked: seconds.is_some(),
        }
    }
}

#[test]
fn soak() {
    let wanted = Wanted::from_environment();
    say(&format!("soak: seed {}", wanted.seed));
    let start = Instant::now();
    let totals = Counts::default();
    let mut seed = wanted.seed;
    while start.elapsed() < wanted.time {
        let (counts, differences) = round(seed, wanted.threads);
        for (sum, more) in totals.all().into_iter().zip(counts.all()) {
            sum.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if !differences.is_empty() {
            report(&wanted, start, &totals, differences.len());
            let seconds = start.elapsed().as_secs_f64();
            panic!("after {seconds:.1} s, in the round of seed {seed}:\n{}", differences.join("\n"));
        }
        seed += 1;
    }
    report(&wanted, start, &totals, 0);
}

/// A value of a strategy, the same for the same numbers.
fn drawn<S: Strategy>(strategy: &S, seed: u64, thread: usize) -> S::Value {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(thread as u64).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).expect("nothing is filtered").current()
}

/// The world of a seed.
fn world(seed: u64, threads: usize) -> World {
    let strategy = (
        op::modes(),
        op::modes(),
        0..3u8,
        0..128usize,
        0..16usize,
        proptest::collection::vec((op::lens(), any::<bool>()), MEMORIES),
    );
    let (mode, foreign, faulty, staged, sharing, lens) = drawn(&strategy, seed, usize::MAX);
    let pool = HostPool::new(1 << 16);
    let tapes = Tapes::default();
    let memories = lens.into_iter().map(|(len, is_pooled)| {
        if len % 2 == 1 {
            return tapes.subject(len);
        }
        let memory = if is_pooled { SharedMem::from(SyncedMem::new_in(len, &pool)) } else { SharedMem::new(len) };
        Subject::shared(memory, Shadow::zeros(len))
    });
    let failures = faulty > 0;
    let rules = Rules { failures, panics: failures, threads: true, ..Rules::SCATTERED };
    let memories = memories.collect();
    let world = World::over([mode, foreign], memories, pool.clone(), rules).staged(staged);
    // In half of the rounds some of the devices share the host's memory.
    let mut world = if sharing < 8 { world.sharing(sharing) } else { world };
    (world.tapes, world.is_alone) = (tapes, threads == 1);
    if staged >= 64 { world.on_a_budget() } else { world }
}

/// One world, from its making to its end. Returns what was done, and the differences.
fn round(seed: u64, threads: usize) -> (Counts, Vec<String>) {
    let world = world(seed, threads);
    let watch = Watch::new(seed, threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (world, watch) = (&world, &watch);
            scope.spawn(move || {
                let _end = watch.end_of(thread);
                let says = |what| watch.says(thread, what);
                let mut worker = Worker::new(world, thread, Owned::of(SyncedMem::new(0), Shadow::zeros(0)), &says);
                for step in drawn(&op::threads(STEPS, world.rules.failures), seed, thread) {
                    if world.notes.any() {
                        break;
                    }
                    worker.step(&step);
                    worker.check();
                }
                says("letting go".to_string());
                worker.let_go();
            });
        }
        watch.until_all_have_ended();
    });
    let watch = Watch::new(seed, 1);
    std::thread::scope(|scope| {
        let watch = &watch;
        let ending = scope.spawn(move || {
            let _end = watch.end_of(0);
            watch.says(0, "ending the world".to_string());
            let differences = world.end();
            (world.counts, differences)
        });
        watch.until_all_have_ended();
        ending.join().unwrap()
    })
}

/// Says what ran, and tells `cargo xtask ci` where it asked for it.
fn report(wanted: &Wanted, start: Instant, totals: &Counts, differences: usize) {
    let line = format!(
        "soak: {} s, {} threads, {} devices, {} operations, {} injected failures, {differences} differences",
        start.elapsed().as_secs(),
        wanted.threads,
        DEVICES,
        totals.steps.load(Ordering::Relaxed),
        totals.injected.load(Ordering::Relaxed),
    );
    say(&line);
    say(&format!("soak: of these {totals}"));
    let path = std::env::var_os("BLOB_TEST_REPORT").filter(|_| wanted.asked);
    if let Some(path) = path {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.expect("the report can be written");
        writeln!(file, "{line}").expect("the report can be written");
    }
}

/// On standard error itself, which the test harness does not keep back.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
