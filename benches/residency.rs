//! Measures the cost of coherence: accesses, windows, zeroed memory, copies. `cargo bench -p blob-benches --bench
//! residency`.
//!
//! The device is the loopback, so device tokens measure our bookkeeping, not a GPU. A short time is a ratio to a lock
//! and unlock of a mutex in this run; the note has the nanoseconds and the ratio to an allocation with its
//! deallocation. A copy is a ratio to memcpy of the same bytes, the two in turn. All figures are medians: of eleven
//! rounds, or of 201 short ones.

mod table;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blob_core::{AnyBlob, DType, Part, Shape};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Host, Origin, OriginError, SharedMem, SyncedMem};
use table::{Row, median};

const ROUNDS: usize = 11;
/// A short call is measured in so many rounds, each of which is over before the system takes the processor away: on a
/// busy machine a longer one counts the other programs.
const SHORT_ROUNDS: usize = 201;
const ROUND: Duration = Duration::from_micros(500);
const LARGE: usize = 256 << 20;

/// Bars in locks: 10 ns, 60 ns, 2 µs and 10 µs over the 4.8 ns of a lock and unlock on the machine where the bars were
/// set.
const AT_ONCE: f64 = 2.0;
const SHORT: f64 = 13.0;
const CROWDED: f64 = 420.0;
const IN_MICROSECONDS: f64 = 2_100.0;

fn main() {
    let yardstick = Yardstick::measure();
    let mut rows = Vec::from(yardstick.rows());
    rows.extend(accesses(&yardstick));
    rows.push(of_origin(&yardstick));
    rows.extend(on_device(&yardstick));
    rows.extend(during_a_transfer(&yardstick));
    rows.extend(windows(&yardstick));
    rows.extend(scattered());
    rows.push(requests());
    rows.push(zeroed());
    rows.extend(copies());
    table::print(&rows);
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    println!("transparent huge pages: {}", huge.unwrap_or_default().trim());
}

/// The nanoseconds of one call.
fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let mut round = |calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        start.elapsed()
    };
    // As many calls as fit, so many that reading the clock costs nothing.
    let mut calls = 16;
    while calls < 1 << 18 && round(calls) < ROUND {
        calls *= 2;
    }
    let rounds: Vec<_> = (0..SHORT_ROUNDS).map(|_| round(calls).as_secs_f64() * 1e9 / f64::from(calls)).collect();
    median(rounds.into_iter())
}

/// Two basic costs in nanoseconds. Times are divided by them, so that the bars do not depend on the processor's clock.
struct Yardstick {
    lock: f64,
    allocation: f64,
}

impl Yardstick {
    fn measure() -> Self {
        let mutex = Mutex::new(0u64);
        let lock = nanoseconds(|| *black_box(&mutex).lock().expect("no thread panicked") += 1);
        let allocation = nanoseconds(|| drop(black_box(Box::new([0u8; 64]))));
        Self { lock, allocation }
    }

    fn rows(&self) -> [Row; 2] {
        [
            Row::unjudged("a mutex's lock and unlock", self.lock, "ns"),
            Row::unjudged("an allocation of 64 bytes and its end", self.allocation, "ns"),
        ]
    }

    /// A row whose unit is the lock and unlock of a mutex.
    fn row(&self, name: &str, nanoseconds: f64, bar: f64) -> Row {
        let allocations = nanoseconds / self.allocation;
        let note = format!("{nanoseconds:.1} ns, {allocations:.2} allocations");
        Row::at_most(name, nanoseconds / self.lock, "locks", bar).noted(note)
    }
}

fn accesses(yardstick: &Yardstick) -> Vec<Row> {
    let mut memory = SyncedMem::new(4096);
    memory.host_mut(..).expect("memory")[0] = 1;
    let host = nanoseconds(|| {
        black_box(black_box(&memory).host(..).expect("host"));
    });
    let device = Loopback::new(Mode::Immediate);
    let queue = device.queue().expect("a queue");
    memory.device(&queue, ..).expect("device");
    let token = nanoseconds(|| {
        black_box(black_box(&memory).device(&queue, ..).expect("device"));
    });
    let shared = SharedMem::new(4096);
    drop(shared.host_mut(0..4096).expect("host"));
    let borrow = nanoseconds(|| {
        black_box(black_box(&shared).host(0..4096).expect("host"));
    });
    let of_a_part = nanoseconds(|| {
        black_box(black_box(&shared).host(64..128).expect("host"));
    });
    let [borrow_of_two, part_of_two] = [0..4096, 64..128].map(|range| contended(&shared, range));
    let borrow_mut = nanoseconds(|| {
        black_box(black_box(&shared).host_mut(64..128).expect("host"));
    });
    let crowded = [
        crowd(yardstick, 10, "host borrow and its end, 10 others alive", "write borrow refused, 10 others alive"),
        crowd(
            yardstick,
            1_000,
            "host borrow and its end, 1,000 others alive",
            "write borrow refused, 1,000 others alive",
        ),
        crowd(
            yardstick,
            100_000,
            "host borrow and its end, 100,000 others alive",
            "write borrow refused, 100,000 others alive",
        ),
    ];
    let mut rows = vec![
        yardstick.row("host slice of a SyncedMem, after the first", host, AT_ONCE),
        yardstick.row("device token of a SyncedMem, loopback", token, SHORT),
        yardstick.row("host borrow of a SharedMem and its end", borrow, SHORT),
        yardstick.row("host borrow of a part of it and its end", of_a_part, SHORT),
        yardstick.row("host write borrow of a SharedMem, its end", borrow_mut, SHORT),
        Row::unjudged("two threads borrow all bytes at once: each", borrow_of_two, "ns"),
        Row::unjudged("two threads borrow the same part at once: each", part_of_two, "ns"),
    ];
    rows.extend(crowded.into_iter().flatten());
    rows
}

/// The nanoseconds of a borrow and a release, while another thread does the same all the time.
fn contended(shared: &SharedMem, range: std::ops::Range<usize>) -> f64 {
    let borrow = || drop(black_box(black_box(shared).host(range.clone()).expect("host")));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                borrow();
            }
        });
        let time = nanoseconds(borrow);
        done.store(true, Ordering::Relaxed);
        time
    })
}

/// A borrow while `live` others of one byte each are alive, and a write borrow of all bytes that they conflict with.
fn crowd(yardstick: &Yardstick, live: usize, name: &str, refused: &str) -> [Row; 2] {
    let shared = SharedMem::new(2 * live);
    let held: Vec<_> = (0..live).map(|at| shared.host(2 * at..2 * at + 1).expect("host")).collect();
    let mut at = 0;
    let borrow = nanoseconds(|| {
        // The step is coprime to the number of borrows, so that all are visited.
        at = (at + 7919) % live;
        black_box(shared.host(2 * at..2 * at + 2).expect("host"));
    });
    let refuse = nanoseconds(|| {
        black_box(shared.check_write(0..2 * live).expect_err("readers"));
    });
    drop(held);
    [yardstick.row(name, borrow, CROWDED), yardstick.row(refused, refuse, CROWDED)]
}

/// Bytes of an origin.
struct Ones;

impl Origin for Ones {
    fn len(&self) -> usize {
        4096
    }

    fn read(&self, _: usize, out: &mut [u8]) -> Result<(), OriginError> {
        out.fill(1);
        Ok(())
    }
}

fn of_origin(yardstick: &Yardstick) -> Row {
    let memory = SyncedMem::of(Arc::new(Ones));
    memory.host(..).expect("the origin's bytes");
    let host = nanoseconds(|| {
        black_box(black_box(&memory).host(..).expect("host"));
    });
    yardstick.row("host slice of a memory of an origin, after the first", host, AT_ONCE)
}

/// Borrows on a device while others are alive there, of one byte each and of the same queue; and write borrows on the
/// host of a memory that a device has too.
fn on_device(yardstick: &Yardstick) -> [Row; 3] {
    const LIVE: usize = 100_000;
    const WRITERS: usize = 1024;
    let queue = Loopback::new(Mode::Immediate).queue().expect("a queue");
    let shared = SharedMem::from(vec![1; 2 * LIVE]);
    // All is on the device alone, so that no access moves a byte.
    drop(shared.device_mut(&queue, ..).expect("room"));
    let held: Vec<_> = (0..LIVE).map(|at| shared.device(&queue, 2 * at..2 * at + 1).expect("device")).collect();
    let mut at = 0;
    let mut next = |live| {
        at = (at + 7919) % live;
        2 * at
    };
    let borrow = nanoseconds(|| {
        let at = next(LIVE);
        black_box(shared.device(&queue, at..at + 2).expect("device"));
    });
    let write = nanoseconds(|| {
        let at = next(LIVE);
        black_box(shared.device_mut(&queue, at + 1..at + 2).expect("device"));
    });
    drop(held);
    let shared = SharedMem::from(vec![1; 2 * WRITERS]);
    drop(shared.device(&queue, ..).expect("room"));
    let held: Vec<_> = (0..WRITERS).map(|at| shared.host_mut(2 * at..2 * at + 1).expect("host")).collect();
    let host_write = nanoseconds(|| {
        let at = next(WRITERS);
        black_box(shared.host_mut(at + 1..at + 2).expect("host"));
    });
    drop(held);
    [
        yardstick.row("device token and its end, 100,000 others alive", borrow, CROWDED),
        yardstick.row("device write token, its end, 100,000 others alive", write, CROWDED),
        yardstick.row("host write borrow, a device copy, 1,024 others alive", host_write, CROWDED),
    ]
}

/// Questions to a memory of which a thread moves half to a device, and is kept waiting all the time.
fn during_a_transfer(yardstick: &Yardstick) -> [Row; 4] {
    const HALF: usize = 1 << 20;
    let device = Loopback::new(Mode::Immediate);
    device.stage_transfers(Host::Done);
    let queue = device.queue().expect("a queue");
    let shared = SharedMem::from(vec![1; 2 * HALF]);
    let hold = device.hold_transfer();
    std::thread::scope(|scope| {
        scope.spawn(|| shared.upload(&queue, ..HALF).expect("room"));
        assert!(hold.has_begun(Duration::from_secs(10)), "the transfer begins");
        let conflict = nanoseconds(|| {
            black_box(shared.host_mut(..1).expect_err("it is read"));
        });
        let timeout = nanoseconds(|| {
            let refused = shared.with_timeout(Duration::ZERO, |memory| memory.host_mut(..1).map(drop));
            black_box(refused.expect_err("it is read"));
        });
        let guard = nanoseconds(|| {
            black_box(shared.host_mut(HALF..HALF + 1).expect("the other half"));
        });
        let stats = nanoseconds(|| {
            black_box(shared.stats());
        });
        drop(hold);
        [
            yardstick.row("a conflict while a transfer waits", conflict, IN_MICROSECONDS),
            yardstick.row("with_timeout of no time while a transfer waits", timeout, IN_MICROSECONDS),
            yardstick.row("a write borrow of the rest while a transfer waits", guard, IN_MICROSECONDS),
            yardstick.row("stats() while a transfer waits", stats, IN_MICROSECONDS),
        ]
    })
}

fn windows(yardstick: &Yardstick) -> Vec<Row> {
    let shape = Shape::new([64, 2, 3, 4, 4, 1, 16]).expect("a shape");
    let blob = AnyBlob::new(shape, DType::F32).expect("a blob");
    let create = nanoseconds(|| {
        black_box(black_box(&blob).make_window(1).expect("a window"));
    });
    let mut window = blob.make_window(1).expect("a window");
    let mut at = 0;
    let moved = nanoseconds(|| {
        at = (at + 1) % 64;
        black_box(&mut window).set_pos(at).expect("within");
    });
    vec![
        yardstick.row("window: create and drop (NeoML 31 ns)", create, SHORT),
        yardstick.row("window: move (NeoML 7-11 ns)", moved, AT_ONCE),
    ]
}

/// The bytes transferred per byte touched, for scattered rows of a large table on the device: rows read on the host,
/// and rows written on the host and then used on the device.
fn scattered() -> [Row; 2] {
    const TABLE: usize = 64 << 20;
    const ROW: usize = 256;
    const ROWS: usize = 256;
    let range = |n: usize| {
        let row = (n * 7919 * 13) % (TABLE / ROW);
        row * ROW..(row + 1) * ROW
    };
    let device = Loopback::new(Mode::Immediate);
    let queue = device.queue().expect("a queue");
    let moved = |memory: &SharedMem| {
        let stats = memory.stats();
        (stats.uploads.bytes + stats.downloads.bytes) as f64
    };
    let on_device = || {
        let memory = SharedMem::new(TABLE);
        drop(memory.device_overwrite(&queue, 0..TABLE).expect("a token"));
        memory
    };
    let table = on_device();
    (0..ROWS).for_each(|n| drop(table.host(range(n)).expect("a row")));
    let touched = (ROW * ROWS) as f64;
    let read = moved(&table) / touched;
    let table = on_device();
    (0..ROWS).for_each(|n| table.host_mut(range(n)).expect("a row").fill(1));
    drop(table.device(&queue, 0..TABLE).expect("a token"));
    // Each row is downloaded once and uploaded once.
    let written = moved(&table) / (2.0 * touched);
    let name = "256 reads of 256 bytes out of 64 MiB: moved / touched";
    let name_written = "256 such writes, there and back: moved / touched, a way";
    [Row::at_most(name, read, "", 2.0), Row::at_most(name_written, written, "", 2.0)]
}

/// Requests that each read a memory on a queue of their own. The time of one must not grow with the number before.
fn requests() -> Row {
    let device = Loopback::new(Mode::Immediate);
    let per_request = |requests: u32| {
        let memory = SharedMem::from(vec![1; 4096]);
        let start = Instant::now();
        for _ in 0..requests {
            let queue = device.queue().expect("a queue");
            drop(memory.device(&queue, 0..4096).expect("a token"));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(requests)
    };
    let pairs: Vec<_> = (0..ROUNDS).map(|_| (per_request(1_000), per_request(20_000))).collect();
    let few = median(pairs.iter().map(|pair| pair.0));
    let grown = median(pairs.iter().map(|pair| pair.1 / pair.0));
    let name = "a request on a queue of its own: 20,000 / 1,000";
    Row::at_most(name, grown, "", 1.5).noted(format!("{few:.0} ns a request among 1,000"))
}

fn zeroed() -> Row {
    let ms = median(
        (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                let mut memory = SyncedMem::new(LARGE);
                black_box(memory.host_overwrite(..).expect("memory"));
                let seconds = start.elapsed().as_secs_f64();
                drop(memory);
                seconds * 1e3
            })
            .collect::<Vec<_>>()
            .into_iter(),
    );
    Row::at_most("zeroed 256 MiB, before the first touch", ms, "ms", 0.1)
}

fn copies() -> Vec<Row> {
    let shape = || Shape::new([LARGE / 4]).expect("a shape");
    let mut source = AnyBlob::new(shape(), DType::F32).expect("a blob");
    source.data_mut().overwrite_bytes().expect("memory").fill(3);
    let mut target = AnyBlob::new(shape(), DType::F32).expect("a blob");
    let from = vec![3u8; LARGE];
    let mut to = vec![1u8; LARGE];
    let mut plain = move || {
        let start = Instant::now();
        black_box(&mut to).copy_from_slice(black_box(&from));
        start.elapsed().as_secs_f64()
    };
    let mut warm = Vec::new();
    let mut fresh = Vec::new();
    for _ in 0..=ROUNDS {
        let memcpy = plain();
        let start = Instant::now();
        target.copy_from(&source, Part::Data).expect("a copy");
        warm.push(memcpy / start.elapsed().as_secs_f64());
        let memcpy = plain();
        let mut new = AnyBlob::new(shape(), DType::F32).expect("a blob");
        let start = Instant::now();
        new.copy_from(&source, Part::Data).expect("a copy");
        fresh.push(start.elapsed().as_secs_f64() / memcpy);
    }
    // The first round is discarded, as the one that touches the memory for the first time.
    let (warm, fresh) = (median(warm.into_iter().skip(1)), median(fresh.into_iter().skip(1)));
    vec![
        Row::at_least("copy_from 256 MiB, warm: speed / memcpy", warm, "", 0.95),
        Row::at_most("copy_from 256 MiB into a fresh blob: time / memcpy (Caffe 7.0-7.3)", fresh, "", 2.5),
    ]
}
