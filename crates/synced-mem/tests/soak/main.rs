//! The stress machine: threads that use shared and owned memories on several devices at once, with failures, against a
//! shadow of every byte, and a watchdog that says what every thread was doing when one of them stands still.
//!
//! `cargo xtask soak --seconds N --seed S` runs it; without the variables that this sets it runs for a moment. It works
//! in rounds of a fixed number of steps, each drawn from a seed of its own, so `--seed` of a failing round begins with
//! it; only how the threads interleave differs, and not even that with `--threads 1`.

mod draw;
mod owned;
#[path = "../common/poison.rs"]
mod poison;
mod shadow;
mod shared;
mod watch;
mod whole;
mod world;

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use watch::Watch;
use world::World;

/// What is freed is overwritten, so that who still uses it finds a difference.
#[global_allocator]
static POISONING: poison::Poisoning = poison::Poisoning;

/// How many steps of each thread are a round.
const STEPS: u64 = 400;

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
    let mut totals = world::Counts::default();
    let mut seed = wanted.seed;
    while start.elapsed() < wanted.time {
        let (counts, differences) = round(seed, wanted.threads);
        totals.add(&counts);
        if !differences.is_empty() {
            report(&wanted, start, &totals, differences.len());
            let seconds = start.elapsed().as_secs_f64();
            panic!("after {seconds:.1} s, in the round of seed {seed}:\n{}", differences.join("\n"));
        }
        seed += 1;
    }
    report(&wanted, start, &totals, 0);
}

/// One world, from its making to its end. Returns what was done, and the differences.
fn round(seed: u64, threads: usize) -> (world::Counts, Vec<String>) {
    let world = World::new(seed);
    let watch = Watch::new(seed, threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (world, watch) = (&world, &watch);
            scope.spawn(move || {
                let _end = watch.end_of(thread);
                shared::Worker::new(world, watch, thread).work(STEPS);
            });
        }
        watch.until_all_have_ended();
    });
    let watch = Watch::new(seed, 1);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            let _end = watch.end_of(0);
            watch.says(0, "ending the world".to_string());
            world.end()
        });
        watch.until_all_have_ended();
        ending.join().unwrap()
    })
}

/// Says what ran, and tells `cargo xtask ci` where it asked for it.
fn report(wanted: &Wanted, start: Instant, totals: &world::Counts, differences: usize) {
    let line = format!(
        "soak: {} s, {} threads, {} devices, {} operations, {} injected failures, {differences} differences",
        start.elapsed().as_secs(),
        wanted.threads,
        world::DEVICES,
        totals.operations(),
        totals.injected(),
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
