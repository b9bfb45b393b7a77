//! Transfers of pageable memory wait for the GPU with no memory locked: who asks for something else meanwhile is
//! answered at once.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fake_cuda::control::Setup;
use synced_mem::{Error, Queue, SharedMem};

use crate::launch::add_one;
use crate::{expect_no_leaks, gpu, seed};

/// More than the chunks of a ring hold, so that an upload waits, too.
const MOVED: usize = 9 << 20;

/// The longest that any of the questions took.
fn slowest(memory: &SharedMem, guard: impl Sized) -> Duration {
    let timed = |question: &mut dyn FnMut()| {
        let start = Instant::now();
        question();
        start.elapsed()
    };
    let is_conflict = |result: Result<_, Error>| matches!(result, Err(Error::Conflict { .. }));
    let mut guard = Some(guard);
    let moment = Duration::from_micros(100);
    let mut questions: [&mut dyn FnMut(); 6] = [
        &mut || drop(guard.take()),
        &mut || assert!(is_conflict(memory.host_mut(0..1).map(drop))),
        &mut || assert!(is_conflict(memory.with_timeout(moment, |memory| memory.host_mut(..8).map(drop)))),
        &mut || memory.host_mut(MOVED..MOVED + 8).unwrap().fill(5),
        &mut || assert_eq!(memory.stats().leaks.count, 0),
        &mut || assert!(memory.is_initialized()),
    ];
    let first = questions.iter_mut().map(|question| timed(question)).max().unwrap();
    // A busy machine may put this thread off, but not each time.
    for question in &mut questions[1..] {
        let fastest = (0..20).map(|_| timed(question)).min().unwrap();
        assert!(fastest < Duration::from_micros(500), "{fastest:?}");
    }
    first
}

/// Runs `transfer`, and asks questions while it waits for a long kernel of other memories.
fn during(queue: &Arc<dyn Queue>, memory: &SharedMem, transfer: impl Fn() + Sync) {
    let (from, to) = (SharedMem::from(vec![1; 1 << 20]), SharedMem::new(1 << 20));
    add_one(queue, &from, &to).unwrap();
    let guard = memory.host(MOVED + 8..).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            transfer();
            start.elapsed()
        });
        while memory.check_write(0..1).is_ok() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(5));
        let slowest = slowest(memory, guard);
        let (waited, asked) = (waiting.join().unwrap(), start.elapsed());
        assert!(waited > Duration::from_millis(50), "the kernel takes {waited:?} of {asked:?}");
        assert!(slowest * 4 < waited, "{slowest:?} of {waited:?}");
    });
}

/// Room is made by waiting for the GPU: the blocks that were freed come back behind the work before them.
#[test]
fn an_allocation_that_waits_for_room_keeps_nobody_waiting() {
    let (session, gpu, queue) = gpu(Setup { memory: 16 << 20, ..seed(3) });
    let other = SharedMem::from(vec![4; 8 << 20]);
    drop(other.device_mut(&queue, ..).unwrap());
    let memory = SharedMem::from(vec![3; MOVED + 64]);
    // The kernel's output is on the GPU alone, too; what the kernel has read is given up.
    during(&queue, &memory, || {
        assert!(matches!(memory.upload(&queue, ..MOVED).unwrap_err(), Error::Exhausted { dirty: 2, borrowed: 0, .. }))
    });
    assert_eq!(session.calls("cuMemPoolTrimTo"), 2);
    // Memory that a queue frees behind a kernel is room when the kernel has ended.
    drop(other);
    memory.upload(&queue, ..MOVED).unwrap();
    drop((memory, queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_transfer_that_waits_for_a_long_kernel_keeps_nobody_waiting() {
    let (session, gpu, queue) = gpu(seed(1));
    let memory = SharedMem::from(vec![3; MOVED + 64]);
    during(&queue, &memory, || memory.upload(&queue, ..MOVED).unwrap());
    drop(memory.device_mut(&queue, ..MOVED).unwrap());
    during(&queue, &memory, || assert!(memory.host(..MOVED).unwrap().iter().all(|byte| *byte == 3)));
    assert_eq!(memory.host(MOVED..).unwrap()[..16], [[5; 8], [3; 8]].concat());
    drop((memory, queue, gpu));
    expect_no_leaks(&session);
}
