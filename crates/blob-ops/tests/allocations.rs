//! What allocates: no `_into` form, nothing that works in place and no sum, whatever the size, the dtype, the number of
//! threads; but for a list of the parts where there are more than sixteen.
//!
//! Relies on an allocator that counts what marked threads ask for. The first run of an operation is not counted: it
//! makes the blobs' memory. Then one run of a few must allocate nothing: in the others rayon's queues may allocate, at
//! any time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blob_core::{AnyBlob, DType, Part, Ref, RefMut, Shape};

thread_local! {
    static MARKED: Cell<bool> = const { Cell::new(false) };
}
static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// One test at a time: the counters are everybody's.
static ALONE: Mutex<()> = Mutex::new(());

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn add(bytes: usize) {
    // A thread that ends has no mark any more.
    if MARKED.try_with(Cell::get).unwrap_or(false) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it is; counting allocates nothing. Growing goes through
// `alloc`, as the trait provides it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller promises a layout with a size that is not 0, as the system's allocator asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller promises a layout with a size that is not 0, as the system's allocator asks.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives up `block`, which came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How often all marked threads allocated while `run` ran, and how many bytes.
fn counted(run: impl FnOnce()) -> (usize, usize) {
    let before = (CALLS.load(Ordering::SeqCst), BYTES.load(Ordering::SeqCst));
    run();
    (CALLS.load(Ordering::SeqCst) - before.0, BYTES.load(Ordering::SeqCst) - before.1)
}

/// Runs on a thread of a pool, all threads of which are marked.
fn on_pool(threads: usize, work: impl FnOnce() + Send) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let pool = builder.stack_size(192 << 10).start_handler(|_| MARKED.set(true)).build().unwrap();
    // Every thread has had work, and looked for more.
    pool.broadcast(|_| ());
    pool.install(work);
}

fn blob(dims: &[usize], dtype: DType) -> AnyBlob {
    let shape = Shape::new(dims).unwrap();
    let bytes = (0..shape.count() * dtype.size()).map(|at| (at % 5 == 0).into());
    AnyBlob::from_vec(shape, dtype, bytes.collect()).unwrap()
}

type Check<'a> = &'a dyn Fn(&str, &mut dyn FnMut() -> Result<(), blob_ops::Error>);

/// `rows` objects of 64 elements.
fn dims(rows: usize) -> [usize; 7] {
    [rows, 1, 1, 4, 1, 4, 4]
}

/// Along the first axis, along one in the middle and along the last; in few enough parts that no list is taken.
fn merges_and_splits(rows: usize, dtype: DType, check: Check<'_>) {
    let mut whole = blob(&dims(rows), dtype);
    for (axis, count) in [(0, 2), (0, 8), (0, 16), (3, 2), (3, 4), (6, 4)] {
        let mut part = dims(rows);
        part[axis] /= count;
        let mut parts: Vec<_> = (0..count).map(|_| blob(&part, dtype)).collect();
        let inputs: Vec<_> = parts.iter().collect();
        check(&format!("merge of {count} along {axis}"), &mut || blob_ops::merge_into(&inputs, axis, &mut whole));
        let mut outputs: Vec<_> = parts.iter_mut().collect();
        check(&format!("split into {count} along {axis}"), &mut || blob_ops::split_into(&whole, axis, &mut outputs));
        if axis == 0 {
            continue;
        }
        let inputs: Vec<_> = parts.iter().collect();
        check(&format!("merge of {count} by objects"), &mut || blob_ops::merge_objects_into(&inputs, &mut whole));
        let mut outputs: Vec<_> = parts.iter_mut().collect();
        check(&format!("split into {count} by objects"), &mut || blob_ops::split_objects_into(&whole, &mut outputs));
    }
}

fn reorders_and_converts(rows: usize, dtype: DType, check: Check<'_>) {
    let mut whole = blob(&dims(rows), dtype);
    for (one, other) in [(0, 6), (0, 3), (3, 6), (5, 6), (2, 2)] {
        let mut turned = dims(rows);
        turned.swap(one, other);
        let mut out = blob(&turned, dtype);
        check(&format!("transpose {one} and {other}"), &mut || blob_ops::transpose_into(&whole, one, other, &mut out));
        let mut order = [0, 1, 2, 3, 4, 5, 6];
        order.swap(one, other);
        check(&format!("permute {one} and {other}"), &mut || blob_ops::permute_into(&whole, &order, &mut out));
    }
    check("transpose in place", &mut || blob_ops::transpose_in_place(&mut whole));
    for to in [dtype, DType::F16, DType::U8, DType::F64, DType::Bool] {
        let mut out = blob(&dims(rows), to);
        check(&format!("convert to {to}"), &mut || blob_ops::convert_into(&whole, &mut out, Part::Data));
    }
    let mut out = blob(&dims(rows), DType::F64);
    check("convert checked", &mut || blob_ops::convert_checked_into(&whole, &mut out, Part::Data));
}

fn computes(rows: usize, dtype: DType, check: Check<'_>) {
    let (mut y, x) = (blob(&dims(rows), dtype), blob(&dims(rows), dtype));
    check("stats", &mut || blob_ops::stats(&y, Part::Data).map(drop));
    for part in [Part::Data, Part::Diff] {
        check("fill", &mut || blob_ops::fill(&mut y, 1, part));
        check("fill with 0", &mut || blob_ops::fill(&mut y, 0, part));
        let last = rows - 1;
        check("fill object", &mut || blob_ops::fill_object(&mut y, last, 1, part));
    }
    if dtype == DType::Bool {
        return;
    }
    let part = Part::Data;
    check("add", &mut || blob_ops::add(&mut y, &x, part));
    check("add, flushed", &mut || blob_ops::add_flush_subnormals(&mut y, &x, part));
    check("axpy", &mut || blob_ops::axpy(&mut y, 1, &x, part));
    check("update", &mut || blob_ops::update(&mut y));
    check("scale", &mut || blob_ops::scale(&mut y, 1, part));
    check("asum", &mut || blob_ops::asum(&x, Part::Diff).map(drop));
    blob_ops::fill(&mut y, 1, part).unwrap();
    check("asum", &mut || blob_ops::asum(&y, part).map(drop));
    check("sumsq", &mut || blob_ops::sumsq(&y, part).map(drop));
}

fn everything(rows: usize, dtype: DType, check: Check<'_>) {
    merges_and_splits(rows, dtype, check);
    reorders_and_converts(rows, dtype, check);
    computes(rows, dtype, check);
}

/// Objects in less than a piece, in several pieces, and in what is written past the caches, as f32.
const SMALL: usize = 16;
const LARGE: usize = 10_000;
const HUGE: usize = 160_000;

/// What we allocate ourselves is allocated in every run; what rayon's queues allocate, only in some.
const RUNS: usize = 10;

fn nothing_on(threads: usize, sizes: &[(usize, DType)]) {
    on_pool(threads, || {
        for &(rows, dtype) in sizes {
            everything(rows, dtype, &|name, op| {
                // A run in which rayon sets up a thread or a queue for the first time says nothing about us.
                let runs = std::iter::repeat_with(|| counted(|| op().unwrap()));
                let least = runs.take(RUNS).find(|&seen| seen == (0, 0));
                assert_eq!(least, Some((0, 0)), "{name}, {rows} × 64 of {dtype}, {threads} threads");
            });
        }
    });
}

#[test]
fn nothing_is_allocated_on_one_thread() {
    let small = DType::ALL.iter().map(|&dtype| (SMALL, dtype));
    let large = [(LARGE, DType::F32), (LARGE, DType::U8), (HUGE, DType::F32)];
    nothing_on(1, &small.chain(large).collect::<Vec<_>>());
}

#[test]
fn nothing_is_allocated_on_several_threads() {
    for threads in [2, 7] {
        nothing_on(threads, &[(SMALL, DType::F32), (LARGE, DType::F32), (LARGE, DType::F16), (HUGE, DType::F32)]);
    }
}

/// The allocator counts, or nothing above says anything.
#[test]
fn what_is_allocated_is_counted() {
    on_pool(2, || {
        assert!((0..RUNS).any(|_| counted(|| drop(black_box(vec![1u8; 1000]))) == (1, 1000)));
        let two = (0..RUNS).map(|_| counted(|| drop(black_box(rayon::join(|| vec![1u8; 10], || vec![1u8; 20])))));
        assert!(two.into_iter().any(|counts| counts == (2, 30)));
    });
}

/// A list of the guards, and one of their bytes with the length of a row; no third for any thread.
#[test]
fn many_parts_take_a_list() {
    for threads in [1, 2, 7] {
        on_pool(threads, || {
            for (count, rows, run) in [(17, 3, 1), (40, 5000, 7), (1000, 1, 2000), (20_000, 3, 30)] {
                let mut parts: Vec<_> = (0..count).map(|_| blob(&[rows, run], DType::U8)).collect();
                let mut whole = blob(&[rows, run * count], DType::U8);
                let guard = size_of::<RefMut<'_, [u8]>>().max(size_of::<Ref<'_, [u8]>>());
                let lists = count * (guard + size_of::<(&[u8], usize)>());
                let check = |name: &str, op: &mut dyn FnMut()| {
                    let runs: Vec<_> = std::iter::repeat_with(|| counted(&mut *op)).take(RUNS).collect();
                    assert!(
                        runs.iter().any(|&(calls, bytes)| calls == 2 && bytes <= lists),
                        "{name} {count}, {threads}: {runs:?}"
                    );
                };
                let inputs: Vec<_> = parts.iter().collect();
                check("merge", &mut || blob_ops::merge_into(&inputs, 1, &mut whole).unwrap());
                let mut outputs: Vec<_> = parts.iter_mut().collect();
                check("split", &mut || blob_ops::split_into(&whole, 1, &mut outputs).unwrap());
            }
        });
    }
}
